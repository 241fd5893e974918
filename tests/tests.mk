# tests.mk - builds the tests, and runs some of them alone.  The Makefile includes it; tests/run_all.sh runs the suites.

.PHONY: test-nccl test-mpi precision examples-check run-examples-check sealed

test-nccl:       ## communicators on GPUs, with false libraries of CUDA and NCCL: needs no GPU
	@CC="$(CC)" sh tests/transports/test_nccl.sh $(config)

test-mpi:        ## the contract, random programs and failures over Open MPI and MPICH, whichever are installed
	@sh tests/transports/test_mpi.sh

precision: $(BUILD)/test_precision ## print how exact sums of 16-bit floats are, by four schemes
	@$(BUILD)/test_precision

examples-check:  ## the programs of examples/gpt, briefly, on threads and processes: losses and bits
	@$(MAKE) --no-print-directory run-examples-check

run-examples-check: $(BUILD)/coll-run $(BUILD)/train_digits $(GPT)
	@sh tests/programs/test_gpt_pages.sh $(BUILD)

$(BUILD)/run_link $(BUILD)/run_elastic: $(BUILD)/coll.o

# A test of public functions links the implementation, which is compiled once for each configuration.  So does a test of private
# functions, with inside.h.  A test that must compile the library in its own way includes it (COLL_IMPLEMENTATION), or parts of
# it, with world.h.
# The tests in SEALED link an implementation with TLS, so that they run in every mode of security.
TEST_FOLDERS := $(addprefix tests/,unit collectives failure transports build bindings programs)
TESTS   := $(wildcard $(TEST_FOLDERS:%=%/test_*.c))
SEALED  := $(foreach name,matrix soak security middle crowded intruders shrink elastic replace quiet greetings,\
             $(wildcard tests/*/test_$(name).c))
INSIDE  := $(shell grep -l '^\#include "\.\./support/inside\.h"' $(TESTS) /dev/null)
WHOLE   := $(filter-out $(INSIDE),$(shell grep -lE '^\#define COLL_IMPLEMENTATION|^\#include "world\.h"' $(TESTS) /dev/null))
OUTSIDE := $(filter-out $(WHOLE) $(SEALED) tests/transports/test_nccl%,$(TESTS))
TESTED   = $(HEADER) $(wildcard tests/*/*.h)
built = $(patsubst %.c,$(BUILD)/%,$(notdir $(1)))

# To leave out what the test does not call takes an optimiser.
$(call built,$(INSIDE)): private override CPPFLAGS += -isystem .
$(call built,$(INSIDE)): private FLAGS_plain += -O1
$(call built,$(INSIDE)): private FLAGS_debug += -Og

define build_test =
@mkdir -p $(@D)
$(COMPILE) -Werror $< $(filter %.o,$^) -o $@ $(LIBS) -lm
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(BUILD)/%: $(folder)/%.c $$(TESTED); $$(build_test)))
$(call built,$(OUTSIDE)): $(BUILD)/coll.o
$(call built,$(SEALED)): $(BUILD)/coll_tls.o

sealed:
	@echo $(notdir $(SEALED:.c=))

# Counts its steps, the library's among them.  They are compared with each other, for which -O1 will do: it is compiled in less
# than half the time of -O2.
$(BUILD)/test_bykey: $(BUILD)/steps.o
$(BUILD)/test_bykey: private FLAGS_release += -O1
$(BUILD)/test_bykey: private override CFLAGS += -fsanitize-coverage=trace-pc
$(BUILD)/steps.o: tests/unit/steps.c tests/unit/steps.h
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror -c $< -o $@

# The same with TLS, where it can be had, and with keys that are renewed within the tests.  These are about other things than
# numbers, and mostly wait: -O0 with a sanitizer, which is compiled in half the time, costs nothing.
SEALS = -DCOLL__ONE_TIER -DCOLL__TLS_RENEW=300000
$(call built,$(SEALED)) $(BUILD)/coll_tls.o: LIBS += $(TLS)
$(call built,$(SEALED)) $(BUILD)/coll_tls.o: private override CPPFLAGS += $(SEALS)
$(BUILD)/coll_tls.o: private FLAGS_asan += -O0
$(BUILD)/coll_tls.o: private FLAGS_tsan += -O0
$(BUILD)/coll_tls.o: coll.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror $(sort $(filter -D%,$(LIBS))) -c $< -o $@

# It compiles the library itself, with every kernel: -O0 takes a third of the time.
$(BUILD)/test_stores: private FLAGS_asan += -O0
$(BUILD)/test_gpt: examples/gpt/gpt.h
$(BUILD)/test_rails: tests/collectives/test_random.c
$(BUILD)/test_tuning: tools/coll-check.c tools/check_tuning.h
$(BUILD)/test_keyfile: $(BUILD)/coll-run
$(BUILD)/test_elastic: $(if $(filter release plain debug,$(config)),$(BUILD)/elastic)     # the part `example`
$(BUILD)/test_lanes: LIBS += $(TLS)

# Those that include all and are about other things than numbers say so too, in a line of their own.  Where they are compiled with
# a sanitizer they mostly wait, so that -O0, which is compiled in half the time, costs nothing.  Half of the rest would be for
# undefined behavior, which the tests that share an object of the library look for.
ONE_TIER := $(filter-out $(INSIDE),$(shell grep -l '^\#define COLL__ONE_TIER' $(TESTS) /dev/null))
$(call built,$(ONE_TIER)): FLAGS_asan += -O0 -fno-sanitize=undefined
$(call built,$(ONE_TIER)): FLAGS_tsan += -O0

# The tests of GPUs have the library with NCCL in it, and load false libraries: of NCCL one for each version that matters.
NCCL_fakes := tests/transports/nccl
NCCL_VERSIONS := 21703 21805 22203 22703 22809
FAKES = $(BUILD)/fake_cuda.so $(NCCL_VERSIONS:%=$(BUILD)/fake_nccl_%.so)
FAKED = $(COMPILE) -Werror -fPIC -shared -fvisibility=hidden

$(BUILD)/fake_cuda.so: $(NCCL_fakes)/fake_cuda.c $(BUILD)/fake_kernels.o $(wildcard $(NCCL_fakes)/*.h) \
        carriers/nccl/coll_nccl_abi.h
	$(FAKED) $< $(BUILD)/fake_kernels.o -o $@ -pthread -lm

# The kernels' source is CUDA; no multiplication of it may be fused with an addition.
$(BUILD)/fake_kernels.o: $(NCCL_fakes)/fake_kernels.cc carriers/nccl/coll_nccl_kernels.cu $(wildcard $(NCCL_fakes)/*.h)
	@mkdir -p $(BUILD)
	$(CXX) -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Werror $(FLAGS_$(config)) -ffp-contract=off -fno-exceptions -fno-rtti \
	    -fPIC -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

$(BUILD)/fake_nccl_%.so: $(NCCL_fakes)/fake_nccl.c $(BUILD)/fake_cuda.so $(wildcard $(NCCL_fakes)/*.h)
	$(FAKED) -DFAKE_VERSION=$* $< -o $@ -L$(BUILD) -l:fake_cuda.so -Wl,-rpath,'$$ORIGIN' -pthread -lm

WITH_NCCL := $(call built,$(wildcard tests/transports/test_nccl*.c))
$(WITH_NCCL): $(FAKES) $(wildcard $(NCCL_fakes)/*.h) tests/collectives/test_contract.c tests/collectives/test_random.c
$(filter-out %_fakes,$(WITH_NCCL)): $(BUILD)/coll_nccl.o
$(filter-out %_fakes,$(WITH_NCCL)): override CPPFLAGS += -DCOLL_WITH_NCCL
$(BUILD)/test_nccl_fakes: $(BUILD)/coll.o

$(BUILD)/coll_nccl.o: coll.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror -DCOLL_WITH_NCCL -c $< -o $@

# Over MPI: the implementation, tests and the example of each library that is here.  Optimising would take longer than it saves.
# In build/crowds.MPI ranks that share processors take MPI's blocking forms like others, for there are few processors here.
MPI_folders := build/mpi.openmpi build/mpi.mpich build/crowds.openmpi build/crowds.mpich
MPI_tests := $(foreach folder,$(MPI_folders),$(addprefix $(folder)/,mpi_contract mpi_random mpi_failure mpi_forms mpi_freed \
    mpi_strides mpi_waiting))
MPI_COMPILE = OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc$(suffix $(@D)) -std=c11 -O0 -g1 -DCOLL_WITH_MPI -DCOLL__ONE_TIER \
    $(if $(findstring crowds,$(@D)),-DCOLL__MPI_CROWDS=1) $(CPPFLAGS)

$(addsuffix /coll.o,$(MPI_folders)): coll.c $(HEADER)
	@mkdir -p $(@D)
	$(MPI_COMPILE) -c $< -o $@

.SECONDEXPANSION:
$(MPI_tests): tests/transports/$$(@F).c $$(@D)/coll.o $(TESTED) $(addprefix tests/collectives/,test_contract.c test_random.c)
	$(MPI_COMPILE) $< $(filter %.o,$^) -o $@ $(LIBS) -lm

build/mpi.openmpi/train_digits build/mpi.mpich/train_digits: examples/train_digits.c $$(@D)/coll.o
	sed 's/^#define COLL_IMPLEMENTATION$$/#define _DEFAULT_SOURCE 1/; s,"\.\./coll\.h","../../coll.h",' $< > $@.c
	$(MPI_COMPILE) -O2 -Iexamples $@.c $(filter %.o,$^) -o $@ $(LIBS) -lm

# The same tests, with the single file in the place of the parts.  The single file stands as it is here: test_single.sh.
DIST := $(CC) -std=c11 -O2 $(CPPFLAGS) $(TEST_FOLDERS:%=-I%)

define build_from_dist =
@mkdir -p build/dist
sed 's,"\.\./\.\./coll\.h","../../single/coll.h",' $< > $@.c
$(DIST) $@.c $(filter %.o,$^) -o $@ $(LIBS) -lm
endef
$(foreach folder,$(TEST_FOLDERS),$(eval build/dist/%: $(folder)/%.c single/coll.h $$(TESTED); $$(build_from_dist)))
$(patsubst %.c,build/dist/%,$(notdir $(OUTSIDE))): build/dist/coll.o

build/dist/coll.o: coll.c single/coll.h
	@mkdir -p build/dist
	sed 's,"coll\.h","../../single/coll.h",' $< > build/dist/coll.c
	$(DIST) -c build/dist/coll.c -o $@
