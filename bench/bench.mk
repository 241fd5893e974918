# bench.mk - the benchmarks: bench/README.md says what each measures.  The Makefile includes it.

.PHONY: bench bench-threads bench-threads-full bench-tcp bench-tcp-full bench-nccl bench-processes bench-busy bench-python \
        bench-ddp bench-mpi bench-compare bench-record bench-conv bench-queued bench-recovery bench-leaf-sum bench-leaf-call \
        bench-instructions footprint memory plots run-bench run-bench-threads run-bench-tcp run-plots

# What deps.sh peers has installed comes first.
MPIS := openmpi mpich intel
MPI_CC := OMPI_CC=$(CC) MPICH_CC=$(CC) I_MPI_CC=$(CC)
bench-mpi run-bench-threads run-bench-tcp: export PATH := $(CURDIR)/build/peers/bin:$(PATH)

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

bench-nccl: $(BUILD)/coll_nccl_bench $(BUILD)/coll-run ## on GPUs: the bits, and the library compared with NCCL; RANKS=2
	$(BUILD)/coll-run -n $(or $(RANKS),2) $(BUILD)/coll_nccl_bench

bench-processes: $(BUILD)/coll_perf $(BUILD)/coll-run ## processes of one host and threads; RANKS=2,4 BUSY=1 that only compute
	@python3 bench/processes.py --build $(BUILD) $(if $(RANKS),--ranks $(RANKS)) $(if $(BUSY),--busy $(BUSY))

bench-busy: $(BUILD)/busy ## waiting while other programs compute, blocking sockets and ours: BUSY="--ranks 4 --rounds 5"
	@python3 bench/busy.py --build $(BUILD) $(BUSY)

bench-python: $(BUILD)/coll_perf $(BUILD)/coll-run lib ## Python compared with C and mpi4py, for calls of 8 B
	@COLL_LIBRARY=$(BUILD)/libcoll.so PYTHONPATH=bindings/python \
	    $$(python3 -c 'import numpy' 2> /dev/null && echo python3 || echo /usr/bin/python3) bench/python.py \
	    --build $(BUILD)

bench-ddp: torch ## steps of training under PyTorch, also with Gloo: RANKS=2,4 PLACES=host,1gbit,10gbit DDP="--models ddp"
	@$$(ls build/torch-venv/bin/python3 2> /dev/null || echo python3) bench/ddp.py \
	    $(if $(RANKS),--ranks $(RANKS)) $(if $(MILLIONS),--millions $(MILLIONS)) $(if $(PLACES),--places $(PLACES)) \
	    $(if $(BLOCKS),--blocks $(BLOCKS)) $(DDP)

bench-mpi:       ## what this library adds to MPI: every collective called directly and through it, in turns
	@for mpi in $(MPIS); do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(BUILD)/mpi/both.$$mpi; fi; \
	done
	@sh bench/mpi/compare.sh $(BUILD)/mpi $(COMPARE)

MADE_WITH = --make "CC=$(CC)" --make "CFLAGS=$(CFLAGS)" --make "CPPFLAGS=$(CPPFLAGS)" --make "config=$(config)"

# Commits up to 0.3.0 have to be linked with liburing where its header is.
COMPARED = $(LIBS) $(if $(call links,liburing.h,0,-luring),-luring)

bench-compare:   ## which calls are slower in B than in A: A=COMMIT [B=COMMIT] [ROUNDS=5] [ONLY=threads,tcp] [CALLS=...]
	@python3 bench/compare/compare.py --old "$(A)" --new "$(B)" --rounds "$(ROUNDS)" --only "$(ONLY)" --calls "$(CALLS)" \
	    $(if $(QUICK),--quick) --jobs "$(JOBS)" --compile "$(COMPILE)" --libs "$(COMPARED)" $(MADE_WITH) --make "LIBS=$(COMPARED)"

bench-record:    ## write ours / the best other, cell by cell, to bench/history/VERSION.txt: [TO=FILE] [ROUNDS=5]
	@CC="$(CC)" python3 bench/history/record.py --to "$(TO)" --rounds "$(ROUNDS)" --only "$(ONLY)" $(if $(QUICK),--tiny) \
	    $(MADE_WITH)

bench-conv:      ## compare conversions and sums of halves with memcpy and loops of intrinsics, on one processor
	@sh tools/deps.sh demo
	@$(MAKE) --no-print-directory $(BUILD)/coll_conv
	$(BUILD)/coll_conv

footprint:       ## print how large a small program is, by what is left out of the library
	@sh bench/footprint.sh table

memory: $(BUILD)/memory ## print what a rank takes of memory, between threads and over TCP
	@$(BUILD)/memory

bench-recovery: $(BUILD)/recovery ## from the death of a rank to the next allreduce, with a spare one: RUNS=9 RANKS=8 JOB=64
	@$(BUILD)/recovery $(or $(RUNS),9) $(or $(RANKS),8) $(or $(JOB),64)

bench-queued: $(BUILD)/queued ## many small collectives queued, compared with the same ones one after the other
	@for what in "threads allreduce 8 2" "threads allgather 8 4" "tcp allreduce 8 2" "tcp allgather 8 2" "tcp allgather 1024 2" \
	    "tcp allreduce 8 4" "tcp allgather 8 8" "memory allgather 8 2"; do $(BUILD)/queued $$what 32 || exit 1; done

bench-leaf-sum: $(BUILD)/leaf_sum ## coll_sum_add compared with a[i] += b[i], on leaves that are read from memory
	@$(BUILD)/leaf_sum

bench-leaf-call: $(BUILD)/leaf_call ## an allreduce over leaves compared with the plain one: LEAVES="--threads 2,5 --hosts 2"
	@python3 bench/leaf_call.py --build $(BUILD) $(LEAVES)

bench-instructions: $(BUILD)/instructions ## count the instructions of repeated short calls (takes valgrind)
	@sh bench/instructions.sh $(BUILD)/instructions

plots:           ## train a few minutes with the pages of examples/gpt, and draw losses, times and memory to build/plots
	@$(MAKE) --no-print-directory run-plots

run-plots: $(BUILD)/coll-run $(GPT)
	@sh examples/gpt/plots.sh $(BUILD) build/plots

run-bench: $(BUILD)/coll-run $(BUILD)/coll_perf
	$(BUILD)/coll_perf -t 2 -b 8 -e 64M -f 8 --pin
	$(BUILD)/coll-run -n 2 --no-prefix $(BUILD)/coll_perf -b 8 -e 64M -f 8 --pin

# The references have all that the compiler and this processor can do; the library is compiled as its users do.
THREADS := $(BUILD)/threads
TCP := $(BUILD)/tcp
PARTS_bench := $(wildcard bench/*/*.h)

run-bench-threads: $(THREADS)/pair $(THREADS)/numbers $(THREADS)/counters $(THREADS)/processes $(THREADS)/coll-run
	@for mpi in $(MPIS); do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(THREADS)/mpi.$$mpi; fi; \
	done
	@if [ -d $(ONECCL)/include/oneapi ]; then $(MAKE) --no-print-directory $(THREADS)/oneccl; fi
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

MPI_bench := $(foreach mpi,$(MPIS),$(THREADS)/mpi.$(mpi) $(TCP)/mpi.$(mpi))
$(MPI_bench): bench/common/mpi.c bench/common/solo.c $(PARTS_bench)
	@mkdir -p $(@D)
	$(MPI_CC) mpicc$(suffix $@) $(WARN) -O2 $(CPPFLAGS) $(filter %.c,$^) -o $@

# Both define what library.h declares; here they are two ways of one program.
$(addprefix $(BUILD)/mpi/both.,$(MPIS)): bench/mpi/both.c bench/common/solo.c bench/common/mpi.c bench/common/ours.c \
        $(PARTS_bench) $(HEADER)
	@mkdir -p $(@D)
	for way in mpi ours; do $(MPI_CC) mpicc$(suffix $@) -std=c11 -O2 -DCOLL_WITH_MPI \
	    $(CPPFLAGS) \
	    $$(printf -- '-Dlibrary_%s='$$way'_library_%s ' open open ways ways close close) \
	    -c bench/common/$$way.c -o $@.$$way.o || exit 1; done
	$(MPI_CC) mpicc$(suffix $@) -std=c11 -O2 $(CPPFLAGS) -Ibench/common $(filter %both.c %solo.c,$^) \
	    $@.mpi.o $@.ours.o -o $@ $(LIBS) -lm

# compare.py names the libraries that are not installed.
run-bench-tcp: $(TCP)/pair $(TCP)/link $(TCP)/overlap $(TCP)/start.ours $(TCP)/coll-run $(TCP)/coll-check
	@for mpi in $(MPIS); do \
	    if command -v mpicc.$$mpi > /dev/null; then $(MAKE) --no-print-directory $(TCP)/mpi.$$mpi $(TCP)/start.$$mpi; fi; \
	done
	@if [ -e $(GLOO)/include/gloo/config.h ]; then $(MAKE) --no-print-directory $(TCP)/gloo $(TCP)/start.gloo; fi
	@if [ -d $(ONECCL)/include/oneapi ]; then $(MAKE) --no-print-directory $(TCP)/oneccl $(TCP)/start.oneccl; fi
	@python3 bench/tcp/compare.py --build $(TCP) $(COMPARE)

$(TCP)/link $(TCP)/overlap: $(TCP)/%: bench/tcp/%.c $(TCP)/ours.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(TCP)/start.ours: bench/tcp/start.c $(TCP)/ours.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(addprefix $(TCP)/start.,$(MPIS)): bench/common/mpi.c bench/tcp/start.c $(PARTS_bench)
	@mkdir -p $(@D)
	$(MPI_CC) mpicc$(suffix $@) $(WARN) -O2 $(CPPFLAGS) $(filter %.c,$^) -o $@

# GLOO: where Gloo is installed.
GLOO ?= /usr
$(TCP)/gloo.o: bench/tcp/gloo.cc $(PARTS_bench)
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -Wextra $(CPPFLAGS) -idirafter $(GLOO)/include -c $< -o $@

$(TCP)/gloo: bench/common/solo.c $(TCP)/gloo.o $(PARTS_bench)
$(TCP)/start.gloo: bench/tcp/start.c $(TCP)/gloo.o $(PARTS_bench)
$(TCP)/gloo $(TCP)/start.gloo:
	$(COMPILE) $(filter %.c %.o,$^) -o $@ -L$(GLOO)/lib -lgloo -lstdc++ -lm -pthread

ONECCL := build/peers/intel
$(BUILD)/oneccl.o: bench/common/oneccl.cc $(PARTS_bench)
	@mkdir -p $(@D)
	mpicxx.intel -std=c++17 -O2 -Wall -Wextra $(CPPFLAGS) -isystem $(ONECCL)/include -c $< -o $@

$(THREADS)/oneccl $(TCP)/oneccl: bench/common/solo.c $(BUILD)/oneccl.o $(PARTS_bench)
$(TCP)/start.oneccl: bench/tcp/start.c $(BUILD)/oneccl.o $(PARTS_bench)
$(THREADS)/oneccl $(TCP)/oneccl $(TCP)/start.oneccl:
	@mkdir -p $(@D)
	$(MPI_CC) mpicc.intel -std=c11 -O2 $(CPPFLAGS) $(filter %.c %.o,$^) $(ONECCL)/lib/ccl/cpu/lib/libccl.a -o $@ \
	    -L$(ONECCL)/lib -Wl,-rpath,$(CURDIR)/$(ONECCL)/lib -lhwloc -lstdc++ -lm -ldl -pthread

$(THREADS)/processes: bench/common/solo.c $(THREADS)/ours.o $(PARTS_bench)
	$(COMPILE) $(filter %.c %.o,$^) -o $@ $(LIBS) -lm

$(THREADS)/coll-run $(TCP)/coll-run: $(BUILD)/coll-run
$(TCP)/coll-check: $(BUILD)/coll-check
$(THREADS)/coll-run $(TCP)/coll-run $(TCP)/coll-check:
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/busy: $(PARTS_bench)
$(BUILD)/%: bench/%.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LIBS) -lm

# It includes the library; here that is linked, which is compiled for the tests anyway.  The counts are the same.
$(BUILD)/instructions: bench/instructions.c $(BUILD)/coll.o
	sed 's/^#define COLL_IMPLEMENTATION$$/#define _GNU_SOURCE 1/; s,"\.\./coll\.h","coll.h",' $< > $@.c
	$(COMPILE) -I. $@.c $(BUILD)/coll.o -o $@ $(LIBS) -lm

$(BUILD)/coll_nccl_bench: bench/nccl/coll_nccl_bench.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror $< -o $@ $(LIBS) -lm
