# coll.h: make demo | check | test | test-all | bench | bench-threads | precision | dist | deps | help
#     config=release|debug|plain|asan|ubsan|tsan|portable
#
# The library is a header and needs no build.  This builds the demonstration, the tests, the measuring program and the
# launcher, in build/$(config)/.

config ?= release
CC     ?= cc
PREFIX ?= /usr/local

WARN = -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes
FLAGS_release = -O2
# Debug and sanitizer builds hold the library to what must hold inside (COLL_ASSERT); a release does not look.
FLAGS_debug   = -O0 -g -DCOLL_ASSERT
# Compiled several times sooner than release, and slower: for tests whose speed does not matter.
FLAGS_plain   = -O0 -DCOLL__ONE_TIER -DCOLL_ASSERT
# With the address sanitizer, what -fsanitize=null and object-size would say is said by it, and leaving them out makes the
# compiler a quarter faster.  -g1 is all that a sanitizer's report needs; config=debug is for debuggers.
FLAGS_asan    = -O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=undefined \
                -fno-omit-frame-pointer -DCOLL_ASSERT
FLAGS_ubsan   = -O1 -g1 -fsanitize=undefined -fno-sanitize-recover=undefined -DCOLL_ASSERT
FLAGS_tsan    = -O1 -g1 -fsanitize=thread -DCOLL_ASSERT

# Without what only Linux has, as on other systems.
FLAGS_portable = -O1 -DCOLL_PORTABLE -DCOLL__ONE_TIER -DCOLL_ASSERT

ifeq ($(FLAGS_$(config)),)
$(error config=$(config) is none of release, debug, plain, asan, ubsan, tsan, portable)
endif

# Can a program with this header, and this in main, be linked with these libraries?
links = $(shell printf '\043include <$(1)>\nint main(void) { return $(2); }\n' | $(CC) -x c - $(3) -o /dev/null 2>/dev/null \
                && echo yes)
LIBS = $(LDFLAGS) -pthread $(BEHIND)

# What the library is linked with by the switches in CPPFLAGS: `make lib CPPFLAGS=-DCOLL_WITH_OPENSSL` has TLS.
BEHIND = $(if $(filter -DCOLL_WITH_OPENSSL,$(CPPFLAGS)),-lssl -lcrypto) $(if $(filter -DCOLL_WITH_URING,$(CPPFLAGS)),-luring)

# TLS, where OpenSSL is installed, for the programs that are about it; nothing else is linked with it.
HAS_OPENSSL := $(call links,openssl/ssl.h,SSL_CTX_new(TLS_method()) == 0,-lssl -lcrypto)
TLS := $(if $(HAS_OPENSSL),-DCOLL_WITH_OPENSSL -lssl -lcrypto)

# What switches in CPPFLAGS leave out (core/base/coll_parts.h) is in the folder's name, so that objects of different libraries do
# not meet: `make check CPPFLAGS=-DCOLL_SMALL` builds in build/plain.COLL_SMALL.  tests/folder.sh says the same to the tests.
nothing :=
SWITCHES := $(subst =,-,$(patsubst -D%,.%,$(filter -DCOLL_%,$(CPPFLAGS))))
BUILD  := build/$(config)$(subst $(nothing) ,,$(SWITCHES))
GPT    := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/gpt/*.c))
INFERENCE := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/inference/*.c))
HEADER := $(wildcard coll.h coll_impl.h core/*.h core/*/*.h transports/*.h transports/*/*.h carriers/*.h carriers/*/*.h)
COMPILE = $(CC) $(WARN) $(FLAGS_$(config)) $(CFLAGS) $(CPPFLAGS)

.PHONY: help demo check test test-all test-mpi test-nccl examples-check plots bench bench-conv bench-queued bench-instructions \
        footprint memory bench-threads bench-threads-full bench-tcp bench-tcp-full bench-mpi bench-hub bench-compare \
        bench-record bench-nccl bench-busy bench-python bench-ddp bindings precision dist deps ptx clean lib man torch \
        abi install uninstall all
.DEFAULT_GOAL := help

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 28
	@echo "  config=release|debug|plain|asan|ubsan|tsan|portable chooses the flags; CC=clang the compiler"

demo:            ## train a small transformer on 1 rank, 4 threads, 4 processes over TCP, and with bf16: 2 minutes
	@sh tools/deps.sh demo
	@$(MAKE) --no-print-directory run-demo

check:           ## an answer for who changes something: 2 minutes on two processors
	@CC="$(CC)" sh tests/run_all.sh check

test:            ## prove the whole: 10 minutes on two processors; as root it installs what it uses, and lists that first
	@sh tools/deps.sh test
	@$(MAKE) --no-print-directory run-test

test-all:        ## what `make test` leaves out: sanitizers, fuzzing, other machines, MPI, GPUs, long proofs: 35 minutes
	@sh tools/deps.sh rest
	@$(MAKE) --no-print-directory run-test-all

test-nccl:       ## communicators on GPUs, with false libraries of CUDA and NCCL: takes no GPU
	@CC="$(CC)" sh tests/test_nccl.sh $(config)

examples-check:  ## the pages of examples/gpt, briefly, on threads and processes: what they reach, and that it is the same
	@$(MAKE) --no-print-directory run-examples-check

plots:           ## train a few minutes with the pages of examples/gpt, and draw losses, times and memory to build/plots
	@$(MAKE) --no-print-directory run-plots

bench:           ## measure allreduce on 2 threads and on 2 processes over TCP
	@sh tools/deps.sh demo
	@$(MAKE) --no-print-directory run-bench

bench-threads:   ## between threads: this library, hand-written references and MPI, side by side
	@$(MAKE) --no-print-directory run-bench-threads

bench-threads-full: ## the same with all sizes: ten minutes instead of two
	@$(MAKE) --no-print-directory run-bench-threads COMPARE=--full

bench-tcp:       ## over TCP: this library, sockets by hand, Gloo and MPI, side by side; links of a given rate and overlap as root
	@$(MAKE) --no-print-directory run-bench-tcp

bench-tcp-full:  ## the same with all sizes and conditions: half an hour instead of three minutes
	@$(MAKE) --no-print-directory run-bench-tcp COMPARE=--full

bench-nccl: $(BUILD)/coll_nccl_bench $(BUILD)/coll-run ## on GPUs: the bits, and the library beside NCCL alone; RANKS=2
	$(BUILD)/coll-run -n $(or $(RANKS),2) $(BUILD)/coll_nccl_bench

bench-hub: $(BUILD)/coll_perf $(BUILD)/coll-run ## processes of one host beside threads; RANKS=2,4 BUSY=1 that only compute
	@python3 bench/hub.py --build $(BUILD) $(if $(RANKS),--ranks $(RANKS)) $(if $(BUSY),--busy $(BUSY))

bench-busy: $(BUILD)/busy ## waiting beside programs that compute, by blocking sockets and by ours: BUSY="--ranks 4 --rounds 5"
	@python3 bench/busy.py --build $(BUILD) $(BUSY)

bench-python: $(BUILD)/coll_perf $(BUILD)/coll-run ## Python beside C and mpi4py, for calls of 8 B
	@PYTHONPATH=python $$(python3 -c 'import numpy' 2> /dev/null && echo python3 || echo /usr/bin/python3) bench/python.py \
	    --build $(BUILD)

bench-ddp: torch ## steps of training under PyTorch beside Gloo: RANKS=2,4 MILLIONS=10,100 PLACES=host,1gbit BLOCKS=7
	@$$(python3 -c 'import torch.version' 2> /dev/null && echo python3 || echo /usr/bin/python3) bench/ddp.py \
	    $(if $(RANKS),--ranks $(RANKS)) $(if $(MILLIONS),--millions $(MILLIONS)) $(if $(PLACES),--places $(PLACES)) \
	    $(if $(BLOCKS),--blocks $(BLOCKS))

bench-mpi:       ## what this library adds to MPI: every collective called directly and through it, in turns
	@for mpi in openmpi mpich; do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(BUILD)/mpi/both.$$mpi; fi; \
	done
	@sh bench/mpi/compare.sh $(BUILD)/mpi $(COMPARE)

MADE_WITH = --make "CC=$(CC)" --make "CFLAGS=$(CFLAGS)" --make "CPPFLAGS=$(CPPFLAGS)" --make "config=$(config)"

# Commits up to 0.3.0 have to be linked with liburing where its header is.
COMPARED = $(LIBS) $(if $(call links,liburing.h,0,-luring),-luring)

bench-compare:   ## which calls are slower in B than in A: A=COMMIT [B=COMMIT] [ROUNDS=5] [ONLY=threads,tcp] [CALLS=...]
	@python3 bench/compare/compare.py --old "$(A)" --new "$(B)" --rounds "$(ROUNDS)" --only "$(ONLY)" --calls "$(CALLS)" \
	    $(if $(QUICK),--quick) --jobs "$(JOBS)" --compile "$(COMPILE)" --libs "$(COMPARED)" $(MADE_WITH) --make "LIBS=$(COMPARED)"

bench-record:    ## write ours / the best beside it, cell by cell, to bench/history/VERSION.txt: [TO=FILE] [ROUNDS=5]
	@CC="$(CC)" python3 bench/history/record.py --to "$(TO)" --rounds "$(ROUNDS)" --only "$(ONLY)" $(if $(QUICK),--tiny) \
	    $(MADE_WITH)

bench-conv:      ## measure conversions and sums of halves beside memcpy and loops of intrinsics, on one processor
	@sh tools/deps.sh demo
	@$(MAKE) --no-print-directory $(BUILD)/coll_conv
	$(BUILD)/coll_conv

footprint:       ## print how large a small program is, by what is left out of the library
	@sh bench/footprint.sh table

memory: $(BUILD)/memory ## print what a rank takes of memory, between threads and over TCP
	@$(BUILD)/memory

bench-queued: $(BUILD)/queued ## many small collectives queued, beside the same ones one after the other
	@for what in "threads allreduce 8 2" "threads allgather 8 4" "tcp allreduce 8 2" "tcp allgather 8 2" "tcp allgather 1024 2" \
	    "tcp allreduce 8 4" "tcp allgather 8 8" "memory allgather 8 2"; do $(BUILD)/queued $$what 32 || exit 1; done

bench-instructions: $(BUILD)/instructions ## count the instructions of repeated short calls (takes valgrind)
	@sh bench/instructions.sh $(BUILD)/instructions

test-mpi:        ## the contract, random programs and failures over Open MPI and MPICH, whichever are installed
	@sh tests/test_mpi.sh

precision: $(BUILD)/test_precision ## print how exact sums of 16-bit floats are, by four schemes
	@$(BUILD)/test_precision

# Always made: a checkout does not say which of its files is the older one.
dist:            ## write single/coll.h: the library as one file; and pair/: as coll.h and coll.c
	@mkdir -p build single pair
	awk -f tools/amalgamate.awk coll.h > build/coll.h
	@mv build/coll.h single/coll.h
	awk -v part=header -f tools/amalgamate.awk coll.h > build/coll.h
	@mv build/coll.h pair/coll.h
	awk -v part=source -f tools/amalgamate.awk coll.h > build/coll.c
	@mv build/coll.c pair/coll.c

bindings:        ## write the table of declarations, and from it the lowest layers for Python, Fortran and Rust (bindings/)
	@python3 bindings/generate.py

deps:            ## install what the demo and the tests use (Debian: apt), or say what is missing
	@sh tools/deps.sh rest

TOOLS := $(BUILD)/coll-run $(BUILD)/coll-check $(BUILD)/coll_perf

all: $(TOOLS) $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/*.c)) ## build the programs and examples

# ---- the library as a library, and what is installed.  Most programs need neither: they have a copy of single/coll.h.

INCLUDEDIR ?= $(PREFIX)/include
LIBDIR     ?= $(PREFIX)/lib
BINDIR     ?= $(PREFIX)/bin
MANDIR     ?= $(PREFIX)/share/man

VERSION = $(shell awk '/^.define COLL_VERSION_M/ { printf "%s.", $$3 } /^.define COLL_VERSION_PATCH/ { print $$3 }' coll.h)
SERIES  = $(basename $(VERSION))
# The day of the newest release, for man pages.
DATED   = $(shell awk '/^.. [0-9.]+, [0-9]+-/ { print $$3; exit }' CHANGELOG.md)

SONAME = libcoll.so.$(SERIES)
LIBRARY = $(BUILD)/libcoll.a $(BUILD)/$(SONAME)
PAGES = $(patsubst %,$(BUILD)/man/%,coll.3 coll-run.1 coll-check.1 coll_perf.1)
SETTLED = $(patsubst packages/%.in,$(BUILD)/%,$(wildcard packages/*.in))

lib: $(LIBRARY) ## libcoll.a, and libcoll.so.0.3, which shows what begins with coll_ and nothing else
man: $(PAGES) $(BUILD)/man/functions/coll_init.3 ## man pages: the manual in coll.h, each function, and --help of the tools

# One object for both, so that a shared library of somebody else's may have it within.
$(BUILD)/libcoll.o: coll.c $(HEADER)
	@mkdir -p $(@D)
	$(COMPILE) -fPIC -c $< -o $@

$(BUILD)/libcoll.a: $(BUILD)/libcoll.o
	rm -f $@
	$(AR) rcs $@ $<

$(BUILD)/libcoll.so.%: $(BUILD)/libcoll.o packages/libcoll.map
	$(COMPILE) -shared -Wl,-soname,$(@F) -Wl,--version-script=packages/libcoll.map -Wl,-Bsymbolic-functions -Wl,-z,defs \
	    $< -o $@ $(LIBS)
	ln -sf $(@F) $(BUILD)/libcoll.so

$(SETTLED): $(BUILD)/%: packages/%.in coll.h Makefile
	@mkdir -p $(@D)
	sed -e 's|@VERSION@|$(VERSION)|; s|@SERIES@|$(SERIES)|; s|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
	    -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@LIBS_PRIVATE@|$(strip $(BEHIND))|' \
	    -e 's|@CMAKE_PRIVATE@|$(subst $(nothing) ,;,$(strip $(BEHIND)))|' -e 's|[; ]*$$||' $< > $@

$(BUILD)/man/coll.3: coll.h tools/man.awk
	@mkdir -p $(@D)
	awk -v date='$(DATED)' -f tools/man.awk coll.h > $@

# A page for each public function, from the comment above it.
DECLARED = coll.h $(patsubst %,core/contract/coll_%.h,memory transport wrap)
FUNCTIONS = $(shell awk -v names=1 -f tools/man_functions.awk $(DECLARED))
$(BUILD)/man/functions/coll_init.3: $(DECLARED) tools/man_functions.awk
	@rm -rf $(@D) && mkdir -p $(@D)
	awk -v date='$(DATED)' -v to='$(@D)' -f tools/man_functions.awk $(DECLARED)

ABOUT_coll-run   = start the processes of a job, on one machine or on several
ABOUT_coll-check = measure the way between every two ranks of a job
ABOUT_coll_perf  = measure collective operations, with the flags and columns of nccl-tests
$(BUILD)/man/%.1: $(BUILD)/% tools/man.awk
	@mkdir -p $(@D)
	$< --help > $(BUILD)/$*.help
	awk -v date='$(DATED)' -v program='$*' -v about='$(ABOUT_$*)' -f tools/man.awk $(BUILD)/$*.help > $@

# What `make install` writes and `make uninstall` removes.
INSTALLED = $(INCLUDEDIR)/coll.h $(INCLUDEDIR)/coll.hpp $(LIBDIR)/libcoll.a $(LIBDIR)/$(SONAME) $(LIBDIR)/libcoll.so \
            $(patsubst %,$(LIBDIR)/pkgconfig/%,coll.pc coll-header.pc) \
            $(patsubst %,$(LIBDIR)/cmake/coll/%,coll-config.cmake coll-config-version.cmake) \
            $(TOOLS:$(BUILD)/%=$(BINDIR)/%) $(MANDIR)/man3/coll.3 $(FUNCTIONS:%=$(MANDIR)/man3/%.3) \
            $(patsubst %,$(MANDIR)/man1/%.1,$(TOOLS:$(BUILD)/%=%))

# Where the library and the header lie is in coll.pc, which is therefore written again.
abi:             ## write down what libcoll shows, for tests/test_packages.sh: once for a new minor version
	@sh packages/abi.sh write

install: $(TOOLS) lib man ## put header, library, tools, man pages and what finds them under PREFIX (DESTDIR, LIBDIR, ...)
	@rm -f $(SETTLED)
	@$(MAKE) --no-print-directory $(SETTLED)
	install -d $(addprefix $(DESTDIR),$(sort $(dir $(INSTALLED))))
	install -m 644 single/coll.h coll.hpp $(DESTDIR)$(INCLUDEDIR)/
	install -m 644 $(LIBRARY) $(DESTDIR)$(LIBDIR)/
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libcoll.so
	install -m 644 $(filter %.pc,$(SETTLED)) $(DESTDIR)$(LIBDIR)/pkgconfig/
	install -m 644 $(filter %.cmake,$(SETTLED)) $(DESTDIR)$(LIBDIR)/cmake/coll/
	install -m 755 $(TOOLS) $(DESTDIR)$(BINDIR)/
	install -m 644 $(filter %.3,$(PAGES)) $(BUILD)/man/functions/*.3 $(DESTDIR)$(MANDIR)/man3/
	install -m 644 $(filter %.1,$(PAGES)) $(DESTDIR)$(MANDIR)/man1/

uninstall:       ## remove what `make install` has written there
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(DESTDIR)$(LIBDIR)/cmake/coll 2> /dev/null

torch:           ## the back end of torch.distributed, as build/torch/coll_torch (takes PyTorch; see docs/torch.md)
	@$(MAKE) --no-print-directory -f torch/Makefile

ptx:             ## compile the kernels for GPUs again: carriers/nccl/coll_nccl_ptx.h (takes nvcc)
	sh tools/ptx.sh carriers/nccl/coll_nccl_ptx.h

clean:           ## remove build/ and pair/
	rm -rf build pair

# ---- what the targets above run, once their dependencies are there

.PHONY: run-demo run-test run-test-all run-bench run-examples-check run-plots

# Compiling the library takes longer than anything else here.
run-demo:
	@sh tools/aloud.sh "compiling the library and the programs" \
	    $(MAKE) --no-print-directory $(addprefix $(BUILD)/,coll-run coll.o gpt/data gpt/mixed)
	@echo '#include <liburing.h>' | $(CC) -E -x c - > /dev/null 2>&1 || echo "without liburing: TCP runs on poll"
	@sh examples/demo.sh $(BUILD)

run-test:
	@CC="$(CC)" sh tests/run_all.sh check test

run-test-all:
	@CC="$(CC)" sh tests/run_all.sh rest

run-examples-check: $(BUILD)/coll-run $(BUILD)/train_digits $(GPT)
	@sh tests/test_gpt_pages.sh $(BUILD)

run-plots: $(BUILD)/coll-run $(GPT)
	@sh examples/gpt/plots.sh $(BUILD) build/plots

run-bench: $(BUILD)/coll-run $(BUILD)/coll_perf
	$(BUILD)/coll_perf -t 2 -b 8 -e 64M -f 8 --pin
	$(BUILD)/coll-run -n 2 --no-prefix $(BUILD)/coll_perf -b 8 -e 64M -f 8 --pin

# The references have all that the compiler and this processor can do; the library is compiled as its users do.
THREADS := $(BUILD)/threads
TCP := $(BUILD)/tcp
PARTS_bench := $(wildcard bench/*/*.h)

.PHONY: run-bench-threads run-bench-tcp
run-bench-threads: $(THREADS)/pair $(THREADS)/numbers $(THREADS)/counters
	@for mpi in openmpi mpich; do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(THREADS)/mpi.$$mpi; fi; \
	done
	@python3 bench/threads/compare.py --build $(THREADS) $(COMPARE)

$(THREADS)/reference.o $(TCP)/reference.o: $(BUILD)/%/reference.o: bench/%/reference.c $(PARTS_bench)
	@mkdir -p $(@D)
	$(CC) $(WARN) -O3 -march=native $(CPPFLAGS) -c $< -o $@

$(THREADS)/ours.o $(TCP)/ours.o: bench/common/ours.c $(PARTS_bench) $(HEADER)
	@mkdir -p $(@D)
	$(COMPILE) -c $< -o $@

$(THREADS)/pair $(TCP)/pair: $(BUILD)/%/pair: bench/%/pair.c $(BUILD)/%/ours.o $(BUILD)/%/reference.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(THREADS)/numbers $(THREADS)/counters: $(THREADS)/%: bench/threads/%.c $(PARTS_bench) $(HEADER)
	@mkdir -p $(THREADS)
	$(COMPILE) $< -o $@ $(LIBS) -lm

# For bench-compare, which links them with the code at several places.
$(THREADS)/numbers.o $(THREADS)/counters.o: $(THREADS)/%.o: bench/threads/%.c $(PARTS_bench) $(HEADER)
	@mkdir -p $(THREADS)
	$(COMPILE) -c $< -o $@

MPI_bench := $(addsuffix /mpi.openmpi,$(THREADS) $(TCP)) $(addsuffix /mpi.mpich,$(THREADS) $(TCP))
$(MPI_bench): bench/common/mpi.c bench/common/solo.c $(PARTS_bench)
	@mkdir -p $(@D)
	OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc$(suffix $@) $(WARN) -O2 $(CPPFLAGS) $(filter %.c,$^) -o $@

# Both define what library.h declares; here they are two ways of one program.
$(BUILD)/mpi/both.openmpi $(BUILD)/mpi/both.mpich: bench/mpi/both.c bench/common/solo.c bench/common/mpi.c bench/common/ours.c \
        $(PARTS_bench) $(HEADER)
	@mkdir -p $(@D)
	for way in mpi ours; do OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc$(suffix $@) -std=c11 -O2 -DCOLL_WITH_MPI \
	    $(CPPFLAGS) \
	    $$(printf -- '-Dlibrary_%s='$$way'_library_%s ' open open ways ways close close) \
	    -c bench/common/$$way.c -o $@.$$way.o || exit 1; done
	OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc$(suffix $@) -std=c11 -O2 $(CPPFLAGS) -Ibench/common $(filter %both.c %solo.c,$^) \
	    $@.mpi.o $@.ours.o -o $@ $(LIBS) -lm

# Of the libraries that are not here, compare.py tells.
run-bench-tcp: $(TCP)/pair $(TCP)/link $(TCP)/overlap $(TCP)/start.ours $(TCP)/coll-run $(TCP)/coll-check
	@for mpi in openmpi mpich; do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(TCP)/mpi.$$mpi $(TCP)/start.$$mpi; fi; \
	done
	@if [ -e /usr/include/gloo/config.h ]; then $(MAKE) --no-print-directory $(TCP)/gloo $(TCP)/start.gloo; fi
	@python3 bench/tcp/compare.py --build $(TCP) $(COMPARE)

$(TCP)/link $(TCP)/overlap: $(TCP)/%: bench/tcp/%.c $(TCP)/ours.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(TCP)/start.ours: bench/tcp/start.c $(TCP)/ours.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(TCP)/start.openmpi $(TCP)/start.mpich: bench/common/mpi.c bench/tcp/start.c $(PARTS_bench)
	@mkdir -p $(@D)
	OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc$(suffix $@) $(WARN) -O2 $(CPPFLAGS) $(filter %.c,$^) -o $@

$(TCP)/gloo.o: bench/tcp/gloo.cc $(PARTS_bench)
	@mkdir -p $(@D)
	$(CXX) -std=c++14 -O2 -Wall -Wextra $(CPPFLAGS) -c $< -o $@

$(TCP)/gloo: bench/common/solo.c $(TCP)/gloo.o $(PARTS_bench)
$(TCP)/start.gloo: bench/tcp/start.c $(TCP)/gloo.o $(PARTS_bench)
$(TCP)/gloo $(TCP)/start.gloo:
	$(COMPILE) $(filter %.c %.o,$^) -o $@ -lgloo -lstdc++ -lm -pthread

$(TCP)/coll-run $(TCP)/coll-check: $(TCP)/%: $(BUILD)/%
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/coll-run: tools/coll-run.c $(wildcard tools/run_*.h) coll.h core/base/coll_hmac.h
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LDFLAGS)

$(BUILD)/coll-check: tools/coll-check.c tools/check_tuning.h $(BUILD)/coll.o coll.h
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm

$(BUILD)/run_link: $(BUILD)/coll.o

$(BUILD)/%: examples/%.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LIBS) -lm

# The pages of examples/gpt share the implementation, which is compiled once.
all: $(GPT)
$(GPT): $(BUILD)/%: examples/%.c $(wildcard examples/gpt/*.h) examples/data_file.h coll.h $(BUILD)/coll.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm
$(BUILD)/gpt/combine: examples/gpt/tensor.c examples/gpt/pipeline.c

all: $(INFERENCE)
$(INFERENCE): $(BUILD)/%: examples/%.c $(wildcard examples/inference/*.h) coll.h $(BUILD)/coll.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm

$(BUILD)/train_digits: examples/digits_conv.h examples/data_file.h

$(BUILD)/busy: $(PARTS_bench)
$(BUILD)/%: bench/%.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LIBS) -lm

# It includes the library; here that is linked, which is compiled for the tests anyway.  The counts are the same.
$(BUILD)/instructions: bench/instructions.c $(BUILD)/coll.o
	sed 's/^#define COLL_IMPLEMENTATION$$/#define _GNU_SOURCE 1/; s,"\.\./coll\.h","coll.h",' $< > $@.c
	$(COMPILE) -I. $@.c $(BUILD)/coll.o -o $@ $(LIBS) -lm

# A test of what is public links the implementation, which is compiled once for each configuration.  So does one that looks
# inside, with inside.h.  One that must have all of it compiled in its own way includes it, and says so in a line of its own, or
# takes some parts of it, with world.h.
# Those in SEALED link an implementation with TLS, so that they run in every mode of security.
SEALED  := $(patsubst %,tests/test_%.c,matrix soak security middle crowded strangers shrink quiet greetings)
INSIDE  := $(shell grep -l '^\#include "inside\.h"' tests/test_*.c)
WHOLE   := $(filter-out $(INSIDE),$(shell grep -lE '^\#define COLL_IMPLEMENTATION|^\#include "world\.h"' tests/test_*.c))
OUTSIDE := $(filter-out $(WHOLE) $(SEALED) tests/test_nccl%,$(wildcard tests/test_*.c))
TESTED   = $(HEADER) $(wildcard tests/*.h)

# To leave out what the test does not call takes an optimiser.
$(INSIDE:tests/%.c=$(BUILD)/%): private override CPPFLAGS += -isystem .
$(INSIDE:tests/%.c=$(BUILD)/%): private FLAGS_plain += -O1
$(INSIDE:tests/%.c=$(BUILD)/%): private FLAGS_debug += -Og

$(OUTSIDE:tests/%.c=$(BUILD)/%): $(BUILD)/coll.o
$(BUILD)/%: tests/%.c $(TESTED)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror $< $(filter %.o,$^) -o $@ $(LIBS) -lm

$(SEALED:tests/%.c=$(BUILD)/%): $(BUILD)/coll_tls.o

.PHONY: sealed
sealed:
	@echo $(SEALED:tests/%.c=%)

# Counts its steps, the library's among them.  They are compared with one another, for which -O1 will do: it is compiled in less
# than half the time of -O2.
$(BUILD)/test_bykey: $(BUILD)/steps.o
$(BUILD)/test_bykey: private FLAGS_release += -O1
$(BUILD)/test_bykey: private override CFLAGS += -fsanitize-coverage=trace-pc
$(BUILD)/steps.o: tests/steps.c tests/steps.h
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror -c $< -o $@

$(BUILD)/coll.o: coll.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror -c $< -o $@

# The same with TLS, where it can be had, and with keys that are renewed within the tests.  These are about other things than
# numbers, and mostly wait: -O0 with a sanitizer, which is compiled in half the time, costs nothing.
SEALS = -DCOLL__ONE_TIER -DCOLL__SEAL_RENEW=300000
$(SEALED:tests/%.c=$(BUILD)/%) $(BUILD)/coll_tls.o: LIBS += $(TLS)
$(SEALED:tests/%.c=$(BUILD)/%) $(BUILD)/coll_tls.o: private override CPPFLAGS += $(SEALS)
$(BUILD)/coll_tls.o: private FLAGS_asan += -O0
$(BUILD)/coll_tls.o: private FLAGS_tsan += -O0
$(BUILD)/coll_tls.o: coll.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror $(sort $(filter -D%,$(LIBS))) -c $< -o $@

$(BUILD)/test_gpt: examples/gpt/gpt.h
$(BUILD)/test_rails: tests/test_random.c
$(BUILD)/test_tuning: tools/coll-check.c tools/check_tuning.h
$(BUILD)/test_keyfile: $(BUILD)/coll-run
$(BUILD)/test_lanes: LIBS += $(TLS)

$(BUILD)/coll_nccl_bench: bench/nccl/coll_nccl_bench.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror $< -o $@ $(LIBS) -lm

# Those that include all and are about other things than numbers say so too, in a line of their own.  Where they are compiled with
# a sanitizer they mostly wait, so that -O0, which is compiled in half the time, costs nothing.
ONE_TIER := $(filter-out $(INSIDE),$(shell grep -l '^\#define COLL__ONE_TIER' tests/test_*.c))
$(ONE_TIER:tests/%.c=$(BUILD)/%): FLAGS_asan += -O0
$(ONE_TIER:tests/%.c=$(BUILD)/%): FLAGS_tsan += -O0

# The tests of GPUs have the library with NCCL in it, and load false libraries: of NCCL one for each version that matters.
NCCL_VERSIONS := 21703 21805 22203 22703 22809
FAKES = $(BUILD)/fake_cuda.so $(NCCL_VERSIONS:%=$(BUILD)/fake_nccl_%.so)
FAKED = $(COMPILE) -Werror -fPIC -shared -fvisibility=hidden

$(BUILD)/fake_cuda.so: tests/nccl/fake_cuda.c $(BUILD)/fake_kernels.o $(wildcard tests/nccl/*.h) carriers/nccl/coll_nccl_abi.h
	$(FAKED) $< $(BUILD)/fake_kernels.o -o $@ -pthread -lm

# The kernels' source is CUDA; no multiplication of it may be fused with an addition.
$(BUILD)/fake_kernels.o: tests/nccl/fake_kernels.cc carriers/nccl/coll_nccl_kernels.cu $(wildcard tests/nccl/*.h)
	@mkdir -p $(BUILD)
	$(CXX) -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Werror $(FLAGS_$(config)) -ffp-contract=off -fno-exceptions -fno-rtti \
	    -fPIC -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

$(BUILD)/fake_nccl_%.so: tests/nccl/fake_nccl.c $(BUILD)/fake_cuda.so $(wildcard tests/nccl/*.h)
	$(FAKED) -DFAKE_VERSION=$* $< -o $@ -L$(BUILD) -l:fake_cuda.so -Wl,-rpath,'$$ORIGIN' -pthread -lm

WITH_NCCL := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_nccl*.c))
$(WITH_NCCL): $(FAKES) $(wildcard tests/nccl/*.h) tests/test_contract.c tests/test_random.c
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
$(MPI_tests): tests/$$(@F).c $$(@D)/coll.o $(TESTED) tests/test_contract.c tests/test_random.c
	$(MPI_COMPILE) $< $(filter %.o,$^) -o $@ $(LIBS) -lm

build/mpi.openmpi/train_digits build/mpi.mpich/train_digits: examples/train_digits.c $$(@D)/coll.o
	sed 's/^#define COLL_IMPLEMENTATION$$/#define _DEFAULT_SOURCE 1/; s,"\.\./coll\.h","../../coll.h",' $< > $@.c
	$(MPI_COMPILE) -O2 -Iexamples $@.c $(filter %.o,$^) -o $@ $(LIBS) -lm

# The same tests, with the single file in the place of the parts.  It stands as it is here: tests/test_single.sh proves it.
DIST := $(CC) -std=c11 -O2 $(CPPFLAGS) -Itests

$(OUTSIDE:tests/%.c=build/dist/%): build/dist/coll.o
build/dist/%: tests/%.c single/coll.h $(TESTED)
	@mkdir -p build/dist
	sed 's,"\.\./coll\.h","../../single/coll.h",' $< > $@.c
	$(DIST) $@.c $(filter %.o,$^) -o $@ $(LIBS) -lm

build/dist/coll.o: coll.c single/coll.h
	@mkdir -p build/dist
	sed 's,"coll\.h","../../single/coll.h",' $< > build/dist/coll.c
	$(DIST) -c build/dist/coll.c -o $@
