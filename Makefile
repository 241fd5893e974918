# coll.h: make demo | check | test | test-all | lib | install | dist | deps | help
#     config=release|debug|plain|asan|ubsan|tsan|portable
#
# The library is a header and needs no build.  This builds the demonstration, the examples, the launcher and the installed files,
# in build/$(config)/.  tests/tests.mk builds the tests, bench/bench.mk the benchmarks.

config ?= release
CC     ?= cc
PREFIX ?= /usr/local

WARN = -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes
FLAGS_release = -O2
# Debug and sanitizer builds check internal assertions (COLL_ASSERT); a release does not.
FLAGS_debug   = -O0 -g -DCOLL_ASSERT
# Compiles several times faster than release, and runs slower: for tests whose speed does not matter.
FLAGS_plain   = -O0 -DCOLL__ONE_TIER -DCOLL_ASSERT
# The address sanitizer also reports what -fsanitize=null and object-size find; without them the compiler is a quarter faster.
# -g1 is enough for a sanitizer's report; config=debug is for debuggers.
FLAGS_asan    = -O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=undefined \
                -fno-omit-frame-pointer -DCOLL_ASSERT
FLAGS_ubsan   = -O1 -g1 -fsanitize=undefined -fno-sanitize-recover=undefined -DCOLL_ASSERT
FLAGS_tsan    = -O1 -g1 -fsanitize=thread -DCOLL_ASSERT

# Without Linux-specific features, as on other systems.
FLAGS_portable = -O1 -DCOLL_PORTABLE -DCOLL__ONE_TIER -DCOLL_ASSERT

ifeq ($(FLAGS_$(config)),)
$(error config=$(config) is none of release, debug, plain, asan, ubsan, tsan, portable)
endif

# Can a program with this header, and this expression in main, be linked with these libraries?
links = $(shell printf '\043include <$(1)>\nint main(void) { return $(2); }\n' | $(CC) -x c - $(3) -o /dev/null 2>/dev/null \
                && echo yes)
LIBS = $(LDFLAGS) -pthread $(BEHIND)

# Libraries that the switches in CPPFLAGS require: `make lib CPPFLAGS=-DCOLL_WITH_OPENSSL` has TLS.
BEHIND = $(if $(filter -DCOLL_WITH_OPENSSL,$(CPPFLAGS)),-lssl -lcrypto) $(if $(filter -DCOLL_WITH_URING,$(CPPFLAGS)),-luring)

# TLS, if OpenSSL is installed, only for the programs that test or use it.
HAS_OPENSSL := $(call links,openssl/ssl.h,SSL_CTX_new(TLS_method()) == 0,-lssl -lcrypto)
TLS := $(if $(HAS_OPENSSL),-DCOLL_WITH_OPENSSL -lssl -lcrypto)

# The switches in CPPFLAGS (core/base/coll_features.h) are in the folder's name, so that objects of different builds are kept
# apart: `make check CPPFLAGS=-DCOLL_SMALL` builds in build/plain.COLL_SMALL.  tests/support/folder.sh says the same.
nothing :=
SWITCHES := $(subst =,-,$(patsubst -D%,.%,$(filter -DCOLL_%,$(CPPFLAGS))))
BUILD  := build/$(config)$(subst $(nothing) ,,$(SWITCHES))
GPT    := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/gpt/*.c))
INFERENCE := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/inference/*.c))
HEADER := $(wildcard coll.h coll_impl.h core/*.h core/*/*.h transports/*.h transports/*/*.h carriers/*.h carriers/*/*.h)
COMPILE = $(CC) $(WARN) $(FLAGS_$(config)) $(CFLAGS) $(CPPFLAGS)

.PHONY: help help-all demo check test test-all bindings dist deps ptx clean lib man torch abi install uninstall all
.DEFAULT_GOAL := help

HELP = sed -n 's/^\([a-z-]*\):.*\#\# /  make \1\t/p'
help:            ## this list
	@$(HELP) Makefile | expand -t 28
	@echo "  config=release|debug|plain|asan|ubsan|tsan|portable chooses the flags; CC=clang the compiler"

help-all: help   ## the same, and benchmarks and single tests
	@for file in bench/bench.mk tests/tests.mk; do echo "$$file:"; $(HELP) $$file | expand -t 28; done

demo:            ## train a small transformer on 1 rank, 4 threads, 4 processes over TCP, and with bf16: 2 minutes
	@sh tools/deps.sh demo
	@$(MAKE) --no-print-directory run-demo

check:           ## the main tests: 2 minutes on two processors
	@CC="$(CC)" sh tests/run_all.sh check

test:            ## the full tests: 10 minutes on two processors; as root it lists and installs the packages that it needs
	@sh tools/deps.sh test
	@$(MAKE) --no-print-directory run-test

test-all:        ## what `make test` leaves out: sanitizers, fuzzing, other machines, MPI, GPUs, long proofs: 35 minutes
	@sh tools/deps.sh rest
	@$(MAKE) --no-print-directory run-test-all

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

lib: $(LIBRARY) ## libcoll.a, and libcoll.so.0.4, which shows what begins with coll_ and nothing else
man: $(PAGES) $(BUILD)/man/functions/coll_init.3 ## man pages: the manual in coll.h, each function, and --help of the tools

# One object for both, so that another shared library may contain it.
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
DECLARED = coll.h $(patsubst %,core/contract/coll_%.h,memory leaf_nodes transport wrap)
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
abi:             ## write down what libcoll shows, for tests/build/test_packages.sh: once for a new minor version
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
	@$(MAKE) --no-print-directory -f bindings/torch/Makefile

ptx:             ## compile the kernels for GPUs again: carriers/nccl/coll_nccl_ptx.h (takes nvcc)
	sh tools/ptx.sh carriers/nccl/coll_nccl_ptx.h

clean:           ## remove build/ and pair/
	rm -rf build pair

# ---- what the targets above run, once their dependencies are there

.PHONY: run-demo run-test run-test-all

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

$(BUILD)/coll-run: tools/coll-run.c $(wildcard tools/run_*.h) coll.h core/base/coll_hmac.h
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LDFLAGS)

$(BUILD)/coll-check: tools/coll-check.c tools/check_tuning.h $(BUILD)/coll.o coll.h
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm

$(BUILD)/%: examples/%.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) $< -o $@ $(LIBS) -lm

# The pages of examples/gpt share the implementation, which is compiled once.
all: $(GPT)
$(GPT): $(BUILD)/%: examples/%.c $(wildcard examples/gpt/*.h) examples/data_file.h coll.h $(BUILD)/coll.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm
$(BUILD)/gpt/combine: examples/gpt/tensor.c examples/gpt/pipeline.c
$(BUILD)/gpt/elastic: examples/gpt/leaves.c

all: $(INFERENCE)
$(INFERENCE): $(BUILD)/%: examples/%.c $(wildcard examples/inference/*.h) coll.h $(BUILD)/coll.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(BUILD)/coll.o -o $@ $(LIBS) -lm

$(BUILD)/train_digits: examples/digits_conv.h examples/data_file.h

$(BUILD)/coll.o: coll.c $(HEADER)
	@mkdir -p $(BUILD)
	$(COMPILE) -Werror -c $< -o $@

# Beside this file: bench-compare builds old commits with it.
include $(addprefix $(dir $(firstword $(MAKEFILE_LIST))),bench/bench.mk tests/tests.mk)
