# llm42: everything is built in build/. `make help` lists the targets, the variables and what they default to.
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
ifeq ($(origin CC),default)
CC := $(shell command -v gcc >/dev/null && echo gcc || { command -v clang >/dev/null && echo clang || echo gcc; })
endif
B ?= build
ARCH ?= native
CFLAGS ?= -O3 -march=$(ARCH)
TEST_CFLAGS ?= -O1 -g1 -march=$(ARCH)
# Only the library is optimised, because tests and programs take longer to compile than to run. Tests that have the whole
# header (HEADER_CFLAGS) would do so with -O2. With sanitizers gcc warns of texts that are never cut.
SANITIZE := -O0 -g1 -march=$(ARCH) -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
    -fno-omit-frame-pointer
SANITIZE_LIBRARY := HEADER_CFLAGS=-O1 LIBRARY_CFLAGS="-O2 -Wno-format-truncation"
PREFIX ?= /usr/local
STB ?= /usr/include/stb
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 120
PLANNER ?=
TEST ?=
PART ?=
comma := ,

# The path becomes a word of make, of the shell and of C.
ifneq ($(strip $(word 2,$(PLANNER)) $(foreach c,' " \,$(findstring $c,$(PLANNER)))),)
$(error PLANNER=$(PLANNER): the path must have no space, quote or backslash: rename or copy the file)
endif
ifneq ($(PLANNER),$(wildcard $(PLANNER)))
$(error PLANNER=$(PLANNER): no such file)
endif

# The bits that the library promises need these whatever CFLAGS says; the warnings are part of the house style.
override REQUIRED := -std=c11 -ffp-contract=off -Wall -Wextra -Wpedantic -I. -isystem $(STB)
ifneq ($(filter -Ofast -ffast-math -funsafe-math-optimizations -fassociative-math,$(CFLAGS) $(TEST_CFLAGS)),)
$(error CFLAGS: -Ofast and -ffast-math reorder floating-point sums: results would not be reproducible)
endif
# Asked at its first use, since a target may install the compiler first.
ifndef OPENMP
OPENMP = $(eval OPENMP := $(HAS_OPENMP))$(OPENMP)
endif
HAS_OPENMP = $(shell echo 'int main(void) { return omp_get_max_threads() < 1; }' | \
    $(CC) -fopenmp -include omp.h -x c - -o /dev/null 2>/dev/null && echo 1 || echo 0)
OMP = $(if $(filter 1,$(OPENMP)),-fopenmp)
VERSION := $(shell sed -n 's/^.define LLM42_VERSION "\(.*\)"$$/\1/p' llm42.h)
SAY = $(if $(V),,@echo "  building $@"; )
include tests/cuda/cuda.mk
include examples/web/web.mk

# build/serve alone needs these two libraries, and is left out where they are not found.
HTTP := $(shell pkg-config --exists libmicrohttpd jansson 2>/dev/null && echo 1 || echo 0)
PROGRAMS := $(patsubst examples/%.c,$(B)/%,$(filter-out $(if $(filter 1,$(HTTP)),,examples/serve.c),\
    $(wildcard examples/*.c))) $(patsubst sweep/%.c,$(B)/%,$(wildcard sweep/*.c))
# test_isa is built and compared in many ways by tests/test_isa.sh; fuzz targets run for a moment as tests.
TESTS := $(patsubst %.c,$(B)/%,$(filter-out tests/test_isa.c,$(wildcard tests/test_*.c)) $(wildcard tests/fuzz_*.c)) \
    $(if $(filter 1,$(CUDA)),$(B)/tests/test_cuda)
SCRIPTS := $(wildcard tests/test_*.sh)
# These test the inside of the implementation, so they are compiled with the whole header, which takes the compiler a
# while. All other tests and programs are linked with llm42.o.
WHITE_BOX := $(addprefix tests/,test_corners test_e4m3 test_sfu test_sm90 test_trace cuda/steps/library)
# `make check` is for the inner loop: the tests in C that are quick to build and to run. Scripts need the programs.
SLOW := $(patsubst %,$(B)/tests/%,test_campaign test_corners test_cuda test_determinism test_ranks fuzz_engine \
    fuzz_programs)
FAST_TESTS := $(filter-out $(SLOW),$(TESTS)) tests/test_style.sh
# TEST=NAME chooses of all tests those of that name, PART of their parts.
CHOSEN = $(if $(TEST),$(strip $(foreach t,$(TESTS) $(SCRIPTS),$(if $(filter $(TEST) $(TEST:%=test_%) $(TEST:%=fuzz_%),\
    $(basename $(notdir $(t)))),$(t)))),$(TESTS) $(SCRIPTS))
# Parallel inside, unless the caller has chosen a number of jobs.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

.PHONY: all sweep figures accuracy fit pages demo test check asan bench fuzz format campaign serve-hostile deps \
    install uninstall clean help banner setup need programs tests shared run-demo FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: need banner  ## build every program (default)
	@+$(SUBMAKE) programs

sweep: need banner  ## build/sweep alone; PLANNER=FILE: with the planners of this file (sweep/budget.h is an example)
	@+$(SUBMAKE) $(B)/sweep

figures: PLOTS := gnuplot
figures: setup banner  ## the LLM-42 paper's figures and tables, simulated: TSV, PNG and SVG in sweep/results/paper
	@+$(SUBMAKE) $(B)/sweep $(B)/determinism $(B)/diff
	@B=$(B) bash sweep/figures/all.sh

accuracy: setup banner  ## our figures beside every published point: errors by figure
	@+$(SUBMAKE) $(B)/sweep
	@rm -rf $(B)/accuracy; B=$(B) OUT=$(B)/accuracy bash sweep/experiments/accuracy.sh

fit: setup banner  ## fit the calibration h100-pcie-paper.tsv to the published tables again
	@+$(SUBMAKE) $(B)/fit
	$(B)/fit

pages:  ## write the tables of the pages from the files that were measured (sweep/pages says which)
	python3 sweep/pages/pages.py

demo: setup banner  ## build and run the lecture demo, a determinism check under load, and an audit of an H200's answers
	@+$(SUBMAKE) $(B)/rollback $(B)/diff $(B)/determinism $(B)/audit
	@+$(MAKE) --no-print-directory run-demo

run-demo:
	$(B)/rollback --record $(B)/demo.txt
	$(B)/determinism --suite mixed --requests 16 --tokens 160
	@echo; echo "The answers of the lecture demo are computed again, each alone:"
	$(B)/audit $(B)/demo.txt --model examples/tiny42 --skip-ordinary
	@echo; echo "examples/h200.txt was written on an NVIDIA H200. This computer computes its answers again:"
	$(B)/audit examples/h200.txt --model examples/tiny42

RUN_TESTS = CC="$(CC)" OMP="$(OMP)" STB="$(STB)" B="$(B)" PROGRAMS="$(PROGRAMS)" WHITE_BOX="$(WHITE_BOX)" JOBS=$(JOBS) \
    bash tests/run.sh
# Only C tests have parts.
WITH_PART = $(foreach t,$(1),$(if $(PART),"$(t) $(PART)",$(t)))
NO_PARTS = PART=$(PART): needs TEST=NAME, one of $(notdir $(filter-out $(B)/tests/fuzz_%,$(TESTS)))
HAS_PARTS = $(and $(TEST),$(if $(filter %.sh $(B)/tests/fuzz_%,$(CHOSEN)),,1))

test: NUMPY = $(filter %/test_python.sh %/test_science.sh,$(CHOSEN))
test: setup banner  ## build and run every test (TEST=sim: only test_sim); the last line is "N passed, N failed"
	@$(if $(CHOSEN),,echo "TEST=$(TEST): no such test: there are $(notdir $(basename $(TESTS) $(SCRIPTS)))" >&2; exit 2)
	@$(if $(and $(PART),$(if $(HAS_PARTS),,1)),echo "$(NO_PARTS)" >&2; exit 2)
	@+$(SUBMAKE) $(if $(filter %.sh,$(CHOSEN)),programs) $(if $(NUMPY),$(B)/libllm42_python.so) \
	    $(filter-out %.sh,$(CHOSEN))
	@$(RUN_TESTS) $(call WITH_PART,$(CHOSEN))

check: setup banner  ## the tests for the inner loop: under 45 seconds on two idle cores, all building included
	@+$(SUBMAKE) $(filter-out %.sh,$(FAST_TESTS))
	@$(RUN_TESTS) $(FAST_TESTS)

# The campaign is left out: its loads are those of the other tests.
ASAN_TESTS = $(patsubst $(B)/%,$(B)/asan/%,$(filter-out $(B)/tests/test_cuda $(B)/tests/test_campaign,$(TESTS)))
asan: setup banner  ## tests and programs under the address and undefined-behaviour sanitizers
	@+$(SUBMAKE) B=$(B)/asan CUDA=0 $(ASAN_TESTS) programs TEST_CFLAGS="$(SANITIZE)" CFLAGS="$(SANITIZE)" \
	    $(SANITIZE_LIBRARY)
	@UBSAN_OPTIONS=print_stacktrace=1 SANITIZE="$(SANITIZE)" CC="$(CC)" OMP="$(OMP)" STB="$(STB)" B=$(B)/asan \
	    TEST_SLOW=1 JOBS=$(JOBS) bash tests/run.sh $(ASAN_TESTS) tests/test_sweep.sh tests/test_tools.sh \
	    tests/test_diff.sh tests/test_batch.sh tests/test_serve.sh

bench: setup banner  ## measure this machine's ceilings and the engine's speed
	@+$(SUBMAKE) $(B)/bench
	OMP_PROC_BIND=true $(B)/bench

fuzz: setup banner  ## fuzz files, programs and the engine for FUZZ_SECONDS each, with libFuzzer where clang has it
	@+$(SUBMAKE) B=$(B)/asan CUDA=0 $(patsubst tests/%.c,$(B)/asan/tests/%,$(wildcard tests/fuzz_*.c)) \
	    TEST_CFLAGS="$(SANITIZE)" CFLAGS="$(SANITIZE)" $(SANITIZE_LIBRARY)
	@CC="$(CC)" STB="$(STB)" B="$(B)" bash tests/fuzz.sh $(FUZZ_SECONDS) $(wildcard tests/fuzz_*.c)

serve-hostile: setup banner  ## clients that are careless, broken or hostile ask build/serve for FUZZ_SECONDS
	@+$(SUBMAKE) $(B)/serve
	python3 tests/serve/hostile.py $(FUZZ_SECONDS) $(B)

campaign: setup banner  ## 1,100,000 simulated and 22,000 CPU requests under 600 loads, beside their runs alone
	@+$(SUBMAKE) $(B)/tests/test_campaign
	$(B)/tests/test_campaign --cpu 0 --sim 1100000 --sim-shapes 500 --out $(B)/campaign_sim.tsv
	$(B)/tests/test_campaign --sim 0 --cpu 22000 --cpu-shapes 100 --out $(B)/campaign_cpu.tsv

programs: $(PROGRAMS)
tests: $(TESTS)

# Each source has an object in $(B)/o. The library is in llm42.o, with its assertions, because tests rely on them, and
# with random weights, whose header includes llm42.h.
WHOLE := examples/util/llm42_synthetic.h examples/util/llm42_sm90.h
$(B)/llm42.o: $(WHOLE) llm42.h tests/allocate.h $(B)/.flags
	$(SAY)$(CC) $(CFLAGS) $(HEADER_CFLAGS) $(LIBRARY_CFLAGS) -UNDEBUG $(REQUIRED) $(OMP) -DLLM42_IMPLEMENTATION \
	    -include tests/allocate.h -x c -c $< -o $@
# Shared libraries have an object of the library of their own, since code in them must run at any address. The second
# one is for Python: it also has companions, and the declarations, line by line as strings of C.
EXPORTED = -fPIC -fvisibility=hidden -D'LLM42_API=extern __attribute__((visibility("default")))'
PIC := $(B)/o/pic
shared: need banner $(B)/libllm42.so $(B)/libllm42_python.so  ## build/libllm42.so, and libllm42_python.so for Python
$(PIC)/llm42.o: $(WHOLE) llm42.h $(B)/.flags
	$(SAY)mkdir -p $(@D) && $(CC) $(CFLAGS) $(REQUIRED) $(OMP) $(EXPORTED) -DLLM42_IMPLEMENTATION -x c -c $< -o $@
$(PIC)/declarations.inc: examples/python/binding.h llm42.h $(wildcard examples/util/*.h) $(B)/.flags
	@mkdir -p $(@D)
	@$(CC) $(REQUIRED) -E $< | awk '/^# [0-9]/ { ours = $$3 ~ /(llm42[a-z0-9_]*|binding)\.h"/; next } \
	    ours && NF { gsub(/[\\"]/, "\\\\&"); print "\"" $$0 "\"," }' >$@
$(PIC)/binding.o: examples/python/binding.c $(PIC)/declarations.inc
	$(SAY)$(CC) $(CFLAGS) $(REQUIRED) -I$(PIC) $(EXPORTED) -DLLM42_IMPLEMENTED -c $< -o $@
# The CUDA backend has functions of its own and of libraries, and all but the library's are kept inside.
INSIDE = -Wl,--version-script=<(echo '{ global: llm42_[a-z]*; local: *; };')
$(B)/libllm42.so $(B)/libllm42_python.so: $(PIC)/llm42.o $(CUDA_OBJECT)
	$(SAY)$(CC) -shared $(CFLAGS) $(OMP) $(filter %.o,$^) -o $@ $(if $(CUDA_OBJECT),$(INSIDE) $(CUDA_LIBS)) $(LDFLAGS) \
	    $(if $(filter %/binding.o,$^),-lpcre2-8) -lm -pthread
$(B)/libllm42_python.so: $(PIC)/binding.o
WITH_CUDA = $(or $(filter tests/cuda/%,$<),$(if $(CUDA_OBJECT),$(filter-out tests/%,$<)))
$(B)/o/%.o: %.c $(B)/.flags
	$(SAY)mkdir -p $(@D) && $(CC) $(if $(filter tests/%,$<),$(TEST_CFLAGS),$(CFLAGS)) $(REQUIRED) $(OMP) \
	    $(if $(filter $(WHITE_BOX),$*),$(HEADER_CFLAGS),-DLLM42_IMPLEMENTED) $(if $(WITH_CUDA),-DLLM42_CUDA) \
	    $(OWN_PLANNER) -MMD -MP -c $< -o $@
$(B)/o/sweep/lib/planner.o: OWN_PLANNER = $(if $(PLANNER),-DLLM42_PLANNER='"$(abspath $(PLANNER))"')
$(B)/o/sweep/lib/planner.o: $(B)/.planner
# What programs and tests share: a linker takes of an archive what is asked for.
$(B)/programs.a: $(patsubst %.c,$(B)/o/%.o,$(wildcard examples/lib/*.c sweep/lib/*.c))
	$(SAY)rm -f $@ && ar rcs $@ $^
LINK = $(SAY)mkdir -p $(@D) && $(CC) $(if $(filter $(B)/tests/%,$@),$(TEST_CFLAGS),$(CFLAGS)) $(OMP) $(filter %.o,$^) \
    $(filter %.a,$^) -o $@ $(if $(filter %/llm42_cuda.o,$^),$(CUDA_LIBS)) $(LDFLAGS) \
    $$(grep -qs tokenizer.h $(patsubst %.o,%.d,$(filter $(B)/o/%,$^)) && echo -lpcre2-8) -lm -pthread
# A program is its own file and those in the folder of its name, of which cuda.c needs the CUDA backend.
.SECONDEXPANSION:
PARTS = $(patsubst %.c,$(B)/o/%.o,$(filter-out $(if $(CUDA_OBJECT),,%/cuda.c),$(wildcard $(1)/*.c)))
$(B)/%: $(B)/o/examples/%.o $$(call PARTS,examples/$$*) $(B)/programs.a $(B)/llm42.o $(CUDA_OBJECT)
	$(LINK)
$(B)/%: $(B)/o/sweep/%.o $$(call PARTS,sweep/$$*) $(B)/programs.a $(B)/llm42.o $(CUDA_OBJECT)
	$(LINK)
ifeq ($(HTTP),1)
$(B)/serve: LDFLAGS += $(shell pkg-config --libs libmicrohttpd jansson)
else
$(B)/serve:
	@echo "$@ needs libmicrohttpd and jansson: make deps installs libmicrohttpd-dev, libjansson-dev and pkg-config" >&2
	@exit 1
endif
$(B)/tests/%: $(B)/o/tests/%.o $(B)/programs.a
	$(LINK)
$(filter-out $(WHITE_BOX:%=$(B)/%),$(TESTS)): $(B)/llm42.o
$(B)/tests/fuzz_programs: | programs  # it runs them

# Rewritten only when a flag changes, so that other flags mean building again.
FLAGS_NOW = $(CC) | $(CFLAGS) $(HEADER_CFLAGS) $(LIBRARY_CFLAGS) | $(TEST_CFLAGS) | $(REQUIRED) | $(OMP) | $(LDFLAGS) \
    | $(if $(CUDA_OBJECT),$(CUDA_LIBS))
$(B)/.flags: NOW = $(FLAGS_NOW)
$(B)/.planner: NOW = $(abspath $(PLANNER))
$(B)/.flags $(B)/.planner $(B)/.cuda_arch $(B)/.cuda_flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(NOW)' | cmp -s - $@ || printf '%s\n' '$(NOW)' >$@
FORCE:

# The chosen programs that read text: only they need PCRE2.
PCRE2 = $(shell grep -ls tokenizer.h $(foreach p,$(PROGRAMS:$(B)/%=%),examples/$(p).c sweep/$(p).c $(p).c) /dev/null)

SETUP = CC="$(CC)" STB="$(STB)" PCRE2="$(PCRE2)" PLOTS="$(PLOTS)" WASM="$(WASM)" NUMPY="$(NUMPY)" \
    SERVE="$(SERVE)" bash tests/setup.sh
need:
	@$(SETUP)
setup:
	@$(SETUP) install
deps: PLOTS := gnuplot
deps: NUMPY := numpy
deps test asan serve-hostile: SERVE := try  # build/serve is left out without its libraries
deps: setup  ## install what is missing (packages of Debian and Ubuntu); test, demo, figures and others call it

FORMATTED = $(shell git ls-files '*.c' '*.h' '*.cu' '*.js')
format:  ## format every C, CUDA and JavaScript file by .clang-format
	@clang-format --version | grep -q ' version 14' || echo "format: made for clang-format 14, this is another" >&2
	clang-format -i $(FORMATTED)

# The widest instruction set that the flags allow, as the compiler tells.
ISA = $(shell echo | $(CC) $(CFLAGS) -dM -E - 2>/dev/null | awk '/__AVX512F__/ {a = 2} /__AVX2__/ {b = 1} \
    END {print a ? "AVX-512" : b ? "AVX2" : "scalar"}')

# It tells what there is now, so it comes behind setup where a goal asks for that, under -j too.
banner: | $(if $(filter figures accuracy fit demo test check asan bench fuzz,$(MAKECMDGOALS)),setup)
	@echo "llm42 $(VERSION) with $$($(CC) --version | head -1)"
	@echo "  flags    $(CFLAGS) -ffp-contract=off, instruction set $(ISA)"
	@echo "  OpenMP   $(if $(OMP),found,not found: one thread)"
	@echo "  CUDA     $(if $(filter 1,$(CUDA)),built in (sm $(CUDA_ARCH)),$(if $(NVCC),found but not built in,not found))"
	@echo "  HTTP     $(if $(filter 1,$(HTTP)),found: build/serve,no libmicrohttpd or jansson: build/serve is left out)"
	@echo "  gnuplot  $(if $(shell command -v gnuplot),found,not found (make figures installs it))"

# Headers of examples/ for users' programs, and all programs but the numbered examples.
COMPANIONS := $(wildcard examples/util/*.h) examples/planners.h
INSTALLED := $(filter-out 0% nano42,$(notdir $(PROGRAMS)))

# These keep their paths below share/llm42, where programs look for the model and the calibrations, and plot.sh for its
# parts. The examples compile there with their headers.
SHARED := $(wildcard examples/tiny42/*.json examples/tiny42/*.safetensors sweep/calibration/*.tsv examples/0*.c) \
    $(COMPANIONS) sweep/plot.sh $(wildcard sweep/plot/*) sweep/figures/draw.inc sweep/figures/common.gp \
    examples/python/llm42.py examples/python/llm42_chat.py examples/python/llm42_torch.py
SHARE = $(DESTDIR)$(PREFIX)/share/llm42
# What pkg-config and CMake read.
FOUND_BY := pkgconfig/llm42.pc llm42/cmake/llm42-config.cmake llm42/cmake/llm42-config-version.cmake

# What Python loads stands apart from the libraries of programs.
install: all $(B)/libllm42_python.so  ## install llm42.h, companions, models, programs (llm42-NAME) below DESTDIR, PREFIX
	install -d $(addprefix "$(DESTDIR)$(PREFIX)"/,include/llm42 share/pkgconfig bin lib/llm42) \
	    $(addprefix "$(SHARE)"/,cmake $(sort $(dir $(SHARED))))
	install -m 644 llm42.h "$(DESTDIR)$(PREFIX)/include/llm42.h"
	install -m 644 $(COMPANIONS) "$(DESTDIR)$(PREFIX)/include/llm42"
	install -m 644 $(B)/libllm42_python.so "$(DESTDIR)$(PREFIX)/lib/llm42"
	for f in $(SHARED); do install -m $$([ -x $$f ] && echo 755 || echo 644) $$f "$(SHARE)/$$f" || exit 1; done
	for f in $(FOUND_BY); do sed -e 's|@PREFIX@|$(PREFIX)|; s|@STB@|$(STB)|; s|@OPENMP@|$(OMP)|' \
	    -e 's|@VERSION@|$(VERSION)|' examples/install/$${f##*/}.in >"$(DESTDIR)$(PREFIX)/share/$$f" || exit 1; done
	for p in $(INSTALLED); do install -m 755 $(B)/$$p "$(DESTDIR)$(PREFIX)/bin/llm42-$$p" || exit 1; done
	ln -sf ../share/llm42/sweep/plot.sh "$(DESTDIR)$(PREFIX)/bin/llm42-plot"
	@echo "pkg-config finds it with PKG_CONFIG_PATH=$(PREFIX)/share/pkgconfig; compile with -O3 -march=native"
	@echo "Python finds it with PYTHONPATH=$(PREFIX)/share/llm42/examples/python"

# Folders that are empty then go too, but not those of the system, which had them before.
uninstall:  ## remove what install put there
	rm -f $(addprefix "$(DESTDIR)$(PREFIX)"/,include/llm42.h $(addprefix include/llm42/,$(notdir $(COMPANIONS))) \
	    lib/llm42/libllm42_python.so $(addprefix bin/llm42-,$(INSTALLED) plot) \
	    $(addprefix share/,$(FOUND_BY) $(addprefix llm42/,$(SHARED))))
	for d in $(sort $(dir $(SHARED))) cmake examples sweep ""; do rmdir "$(SHARE)/$$d" 2>/dev/null || true; done
	for d in include lib; do rmdir "$(DESTDIR)$(PREFIX)/$$d/llm42" 2>/dev/null || true; done
	case "$(DESTDIR)$(PREFIX)/" in /usr/ | /usr/local/ | /usr/local//) ;; *) \
	    for d in share/pkgconfig share include lib bin ""; do rmdir "$(DESTDIR)$(PREFIX)/$$d" 2>/dev/null || true; done ;; esac

clean:  ## remove build/
	rm -rf $(B)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 17
	@echo "  variables: CC=$(CC) ARCH=$(ARCH) (native, x86-64, x86-64-v3, ...) OPENMP=$(OPENMP) CFLAGS TEST_CFLAGS LDFLAGS"
	@echo "             PREFIX=$(PREFIX) DESTDIR STB=$(STB) JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) PLANNER V=1"
	@echo "             CUDA=$(CUDA) (0: leave it out) NVCC=$(NVCC) CUDA_ARCH=\"$(CUDA_ARCH)\" NVCCFLAGS CUDA_HOME"
	@echo "             NCCL=$(NCCL) (1: build/kernels compares the exchange of ranks with NCCL's)"
	@echo "             TEST_CUDA=\"$(TEST_CUDA)\" (options of build/tests/test_cuda)"
	@echo "             TEST_EMULATED=\"$(TEST_EMULATED)\" (options of build/tests/cuda_emulated)"
	@echo "             SANITIZE_CUDA=\"$(SANITIZE_CUDA)\" LADDER=\"$(LADDER)\" (options of build/matmul_ladder)"
	@echo "             ATTENTION_LADDER=\"$(ATTENTION_LADDER)\" (options of build/attention_ladder)"

-include $(wildcard $(addprefix $(B)/o/,*/*.d */*/*.d */*/*/*.d))
