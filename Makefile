# llm42: everything is built in build/. `make help` lists the targets, the variables and what they default to.
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
ifeq ($(origin CC),default)
CC := $(shell command -v gcc >/dev/null && echo gcc || { command -v clang >/dev/null && echo clang || echo gcc; })
endif
B ?= build
ARCH ?= native
CFLAGS ?= -O3 -march=$(ARCH)
TEST_CFLAGS ?= -O2 -g -march=$(ARCH)
SANITIZE := -O1 -g1 -march=$(ARCH) -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
PREFIX ?= /usr/local
STB ?= /usr/include/stb
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 120
TEST ?=
PART ?=
TEST_CUDA ?=
EMULATED_CFLAGS ?= -O3
TEST_EMULATED ?= --part arithmetic --devices 2
SANITIZE_CUDA ?= --part small
NCCL ?= 0
LADDER ?=
comma := ,

# CUDA: what `make cuda` has built once stays built in. CUDA_ARCH is kept with it.
NVCC ?= $(shell command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; })
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v "$(NVCC)")))
CUDA ?= $(if $(wildcard $(B)/llm42_cuda.o),1,0)
CUDA_ARCH ?= $(or $(shell cat $(B)/.cuda_arch 2>/dev/null),80 89 90)
NVCCFLAGS ?= -O3
# 90a is all of sm_90, with its products of four warps.
GENCODE = $(foreach a,$(CUDA_ARCH:90=90a),-gencode=arch=compute_$(a)$(comma)code=sm_$(a))
# -fmad=false: products and sums are fused only where the source says so, or bits would be the compiler's choice.
override NVCC_REQUIRED := -std=c++17 -fmad=false -Xcompiler -Wall$(comma)-Wextra -I. -isystem $(STB)
ifneq ($(filter -use_fast_math --use_fast_math -ftz=true --ftz=true -fmad=true --fmad=true,$(NVCCFLAGS)),)
$(error NVCCFLAGS: fast-math and fused multiply-adds of the compiler's choice: results would not be reproducible)
endif
CUDA_LINK := -DLLM42_CUDA $(B)/llm42_cuda.o -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 \
    -lcublasLt -lcudart -lstdc++ $(if $(filter 1,$(NCCL)),-L$(CUDA_HOME)/lib -Wl$(comma)-rpath$(comma)$(CUDA_HOME)/lib -lnccl)
# NCCL=1: a second way for ranks to exchange sums, to compare with. For what llm42.cu is in, and to link that with nvcc.
CUDA_NCCL = $(if $(filter 1,$(NCCL)),-DLLM42_NCCL)
NVCC_NCCL = $(if $(filter 1,$(NCCL)),-L$(CUDA_HOME)/lib -Xlinker -rpath$(comma)$(CUDA_HOME)/lib -lnccl)
NO_NVCC := no nvcc: install the CUDA Toolkit (12 or later, with cuBLAS) and put nvcc on PATH, or set NVCC=/path/bin/nvcc

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
COMPILE = $(if $(V),,@echo "  building $@"; )$(CC) $(1) $(REQUIRED) $(OMP) -MMD -MP -MF $@.d -MT $@ $< -o $@ \
    $(2) $(LDFLAGS) $$(grep -q tokenizer.h $< && echo -lpcre2-8) -lm

PROGRAMS := $(patsubst examples/%.c,$(B)/%,$(wildcard examples/*.c)) $(patsubst sweep/%.c,$(B)/%,$(wildcard sweep/*.c))
# test_isa is built and compared in many ways by tests/test_isa.sh; fuzz targets run for a moment as tests.
TESTS := $(patsubst %.c,$(B)/%,$(filter-out tests/test_isa.c,$(wildcard tests/test_*.c)) $(wildcard tests/fuzz_*.c)) \
    $(if $(filter 1,$(CUDA)),$(B)/tests/test_cuda)
SCRIPTS := $(wildcard tests/test_*.sh)
# The inner loop: all but what takes long. TEST=NAME chooses of all tests those of that name, PART of their parts.
SLOW := test_determinism fuzz_engine test_accuracy test_cuda_build test_demo test_examples test_header test_install \
    test_isa test_slurm
CHOSEN = $(if $(TEST),$(strip $(foreach t,$(TESTS) $(SCRIPTS),$(if $(filter $(TEST) $(TEST:%=test_%) $(TEST:%=fuzz_%),\
    $(basename $(notdir $(t)))),$(t)))),$(TESTS) $(SCRIPTS))
FAST_TESTS := $(foreach t,$(TESTS) $(SCRIPTS),$(if $(filter $(SLOW),$(basename $(notdir $(t)))),,$(t)))
# Parallel inside, unless the caller has chosen a number of jobs.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

.PHONY: all cuda figures accuracy fit demo test check test-cuda ladder kernels sanitize-cuda asan bench bench-cuda fuzz format \
    campaign deps install uninstall clean help banner setup need nvcc programs tests run-demo
.DELETE_ON_ERROR:

all: need banner  ## build every program (default)
	@+$(SUBMAKE) programs

cuda test-cuda sanitize-cuda bench-cuda: CUDA := 1
cuda: nvcc need banner  ## build the CUDA backend with nvcc, and every program with it
	@+$(SUBMAKE) CUDA=1 programs

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

demo: setup banner  ## build and run the lecture demo, a determinism check under load, and an audit of an H200's answers
	@+$(SUBMAKE) $(B)/rollback $(B)/determinism $(B)/audit
	@+$(MAKE) --no-print-directory run-demo

run-demo:
	$(B)/rollback --record $(B)/demo.txt
	$(B)/determinism --suite mixed --requests 16 --tokens 160
	@echo; echo "The answers of the lecture demo are computed again, each alone:"
	$(B)/audit $(B)/demo.txt --skip-ordinary
	@echo; echo "examples/h200.txt was written on an NVIDIA H200. This computer computes its answers again:"
	$(B)/audit examples/h200.txt

RUN_TESTS = CC="$(CC)" OMP="$(OMP)" STB="$(STB)" B="$(B)" PROGRAMS="$(PROGRAMS)" JOBS=$(JOBS) bash tests/run.sh
# Only C tests have parts.
WITH_PART = $(foreach t,$(1),$(if $(PART),"$(t) $(PART)",$(t)))
NO_PARTS = PART=$(PART): needs TEST=NAME, one of $(notdir $(filter-out $(B)/tests/fuzz_%,$(TESTS)))
HAS_PARTS = $(and $(TEST),$(if $(filter %.sh $(B)/tests/fuzz_%,$(CHOSEN)),,1))

test: setup banner  ## build and run every test (TEST=sim: only test_sim); the last line is "N passed, N failed"
	@$(if $(CHOSEN),,echo "TEST=$(TEST): no such test: there are $(notdir $(basename $(TESTS) $(SCRIPTS)))" >&2; exit 2)
	@$(if $(and $(PART),$(if $(HAS_PARTS),,1)),echo "$(NO_PARTS)" >&2; exit 2)
	@+$(SUBMAKE) $(if $(filter %.sh,$(CHOSEN)),programs) $(filter-out %.sh,$(CHOSEN))
	@$(RUN_TESTS) $(call WITH_PART,$(CHOSEN))

check: setup banner  ## the fast tests: half a minute, and what must be built
	@+$(SUBMAKE) programs $(filter-out %.sh,$(FAST_TESTS))
	@$(RUN_TESTS) $(FAST_TESTS)

test-cuda sanitize-cuda ladder: PROGRAMS := $(B)/tests/test_cuda
test-cuda: nvcc need banner  ## the tests that need a GPU; the last line is "N passed, N failed"
	@+$(SUBMAKE) CUDA=1 $(B)/tests/test_cuda $(B)/tests/cuda_inside $(B)/tests/cuda_lost \
	    $(B)/tests/cuda_failing $(B)/tests/cuda_leaves $(B)/tests/cuda_steps $(B)/tests/matmul_ladder
	@bash tests/run.sh "$(B)/tests/test_cuda $(TEST_CUDA)" $(B)/tests/cuda_inside $(B)/tests/cuda_lost \
	    $(B)/tests/cuda_failing $(B)/tests/cuda_leaves "$(B)/tests/cuda_steps --brief" \
	    "$(B)/tests/matmul_ladder $(LADDER)"

test-emulated: nvcc need banner  ## test_cuda with its kernels run on the CPU, thread by thread: part arithmetic, minutes
	@+$(SUBMAKE) $(B)/tests/cuda_emulated
	@bash tests/run.sh "$(B)/tests/cuda_emulated $(TEST_EMULATED)"

ladder: nvcc need banner  ## one matrix product on the GPU, from a naive kernel to ours: times, errors and bits
	@+$(SUBMAKE) $(B)/tests/matmul_ladder
	$(B)/tests/matmul_ladder $(LADDER)

sanitize-cuda: nvcc need banner  ## compute-sanitizer (memcheck, synccheck, racecheck) over a short part of the GPU tests
	@+$(SUBMAKE) CUDA=1 $(B)/tests/test_cuda
	@bash tests/sanitize_cuda.sh $(B)/tests/test_cuda $(SANITIZE_CUDA)

# The campaign is left out: its loads are those of the other tests.
ASAN_TESTS = $(patsubst $(B)/%,$(B)/asan/%,$(filter-out $(B)/tests/test_cuda $(B)/tests/test_campaign,$(TESTS)))
asan: setup banner  ## tests and programs under the address and undefined-behaviour sanitizers
	@+$(SUBMAKE) B=$(B)/asan CUDA=0 $(ASAN_TESTS) programs TEST_CFLAGS="$(SANITIZE)" CFLAGS="$(SANITIZE)"
	@UBSAN_OPTIONS=print_stacktrace=1 B=$(B)/asan TEST_SLOW=1 JOBS=$(JOBS) bash tests/run.sh $(ASAN_TESTS) \
	    tests/test_sweep.sh tests/test_tools.sh tests/test_diff.sh

bench: setup banner  ## measure this machine's ceilings and the engine's speed
	@+$(SUBMAKE) $(B)/bench
	OMP_PROC_BIND=true $(B)/bench

kernels: PROGRAMS := $(B)/kernels
kernels: nvcc need banner  ## build/kernels: single operators on the GPU, their speed and whether they keep bits
	@+$(SUBMAKE) $(B)/kernels

bench-cuda: PROGRAMS := $(B)/bench
bench-cuda: nvcc need banner  ## measure the GPU's ceilings and the engine's speed on it
	@+$(SUBMAKE) CUDA=1 $(B)/bench
	$(B)/bench --backend cuda

fuzz: setup banner  ## fuzz files, programs and the engine for FUZZ_SECONDS each, with libFuzzer where clang has it
	@+$(SUBMAKE) B=$(B)/asan CUDA=0 $(patsubst tests/%.c,$(B)/asan/tests/%,$(wildcard tests/fuzz_*.c)) \
	    TEST_CFLAGS="$(SANITIZE)" CFLAGS="$(SANITIZE)"
	@CC="$(CC)" STB="$(STB)" B="$(B)" bash tests/fuzz.sh $(FUZZ_SECONDS) $(wildcard tests/fuzz_*.c)

campaign: setup banner  ## 1,100,000 simulated and 22,000 CPU requests under 600 loads, beside their runs alone
	@+$(SUBMAKE) $(B)/tests/test_campaign
	$(B)/tests/test_campaign --cpu 0 --sim 1100000 --sim-shapes 500 --out $(B)/campaign_sim.tsv
	$(B)/tests/test_campaign --sim 0 --cpu 22000 --cpu-shapes 100 --out $(B)/campaign_cpu.tsv

programs: $(PROGRAMS)
tests: $(TESTS)

CUDA_OBJECT := $(if $(filter 1,$(CUDA)),$(B)/llm42_cuda.o)
$(B)/%: examples/%.c $(B)/.flags $(CUDA_OBJECT)
	$(call COMPILE,$(CFLAGS),$(if $(CUDA_OBJECT),$(CUDA_LINK)))
$(B)/%: sweep/%.c $(B)/.flags $(CUDA_OBJECT)
	$(call COMPILE,$(CFLAGS),$(if $(CUDA_OBJECT),$(CUDA_LINK)))
# bench is several files, each with an object of its own; cuda.c needs the CUDA backend.
BENCH_PARTS := $(filter-out $(if $(CUDA_OBJECT),,sweep/bench/cuda.c),$(wildcard sweep/bench/*.c))
BENCH_OBJECTS := $(B)/bench.o $(patsubst sweep/bench/%.c,$(B)/bench-%.o,$(BENCH_PARTS))
OBJECT = $(if $(V),,@echo "  building $@"; )$(CC) $(CFLAGS) $(REQUIRED) $(OMP) $(if $(CUDA_OBJECT),-DLLM42_CUDA) \
    -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$(B)/bench.o: sweep/bench.c $(B)/.flags
	$(OBJECT)
$(B)/bench-%.o: sweep/bench/%.c $(B)/.flags
	$(OBJECT)
$(B)/bench: $(BENCH_OBJECTS) $(CUDA_OBJECT)
	$(if $(V),,@echo "  building $@"; )$(CC) $(CFLAGS) $(OMP) $(BENCH_OBJECTS) -o $@ $(if $(CUDA_OBJECT),$(CUDA_LINK)) \
	    $(LDFLAGS) -lm
# test_cuda is a program of several files, and the library is a file of its own.
COMPILE_PART = $(if $(V),,@echo "  building $@"; )mkdir -p $(@D) && $(CC) $(TEST_CFLAGS) $(REQUIRED) $(OMP)
$(B)/tests/cuda/llm42.o: llm42.h $(B)/.flags
	$(COMPILE_PART) -DLLM42_IMPLEMENTATION -x c -c $< -o $@
$(B)/tests/cuda/%.o: tests/cuda/%.c $(B)/.flags
	$(COMPILE_PART) $(if $(CUDA_OBJECT),-DLLM42_CUDA) -MMD -MP -c $< -o $@
$(B)/tests/test_cuda: $(patsubst %.c,$(B)/%.o,$(wildcard tests/cuda/*.c)) $(B)/tests/cuda/llm42.o $(CUDA_OBJECT)
	$(COMPILE_PART) $(filter $(B)/tests/cuda/%.o,$^) -o $@ $(if $(CUDA_OBJECT),$(CUDA_LINK)) $(LDFLAGS) -lm
# test_cuda with the CUDA backend on a CPU (tests/cuda/emulator.h). A launch by <<<>>> becomes a call, and a kernel's
# shared memory a pointer.
$(B)/emulated/%.cu: %.cu Makefile
	@mkdir -p $(@D)
	sed -e 's/\([a-z0-9_<>]*\)<<<\(.*\)>>>(/emulator::run(emulator::shape(\2), \1, /' \
	    -e 's/extern __shared__ .* shared\[\];/unsigned char *const shared = emulator::here->shared;/' $< > $@
$(B)/emulated/backend.o: tests/cuda/emulated.cc tests/cuda/emulated_runtime.h tests/cuda/emulator.h \
    $(B)/emulated/llm42.cu $(B)/emulated/kernels.cu llm42.h $(B)/.flags
	$(if $(V),,@echo "  building $@"; )$(CXX) -std=c++17 $(EMULATED_CFLAGS) -march=$(ARCH) -ffp-contract=off -Wno-psabi -I$(B)/emulated -I. \
	    -isystem $(STB) -isystem $(CUDA_HOME)/include -c $< -o $@
$(B)/emulated/%.o: %.c $(B)/.flags
	$(COMPILE_PART) -DLLM42_CUDA -MMD -MP -c $< -o $@
$(B)/tests/cuda_emulated: $(patsubst %.c,$(B)/emulated/%.o,$(wildcard tests/cuda/*.c)) $(B)/emulated/backend.o \
    $(B)/tests/cuda/llm42.o
	$(if $(V),,@echo "  building $@"; )$(CXX) $(OMP) -rdynamic $^ -o $@ $(LDFLAGS) -ldl -lm -lpthread
# cuda_steps with the emulator's tensor cores.
$(B)/tests/cuda_steps_emulated: tests/cuda/steps.cu tests/cuda/emulated_runtime.h tests/cuda/emulator.h \
    $(B)/emulated/kernels.cu llm42.h $(B)/tests/cuda/steps/library.o $(B)/.flags
	$(if $(V),,@echo "  building $@"; )$(CXX) -std=c++17 $(EMULATED_CFLAGS) -march=$(ARCH) -ffp-contract=off -Wno-psabi \
	    -DLLM42_EMULATED_STEPS -I$(B)/emulated -I. -isystem $(STB) -isystem $(CUDA_HOME)/include $(OMP) -rdynamic \
	    -x c++ $< -x none $(filter %.o,$^) -o $@ $(LDFLAGS) -ldl -lm -lpthread
# Programs of nvcc's. cuda_host and cuda_inside include llm42.cu. cuda_host tests what the backend does on the host. No
# kernel of it runs, so none is optimised or assembled. It also shows that the backend compiles for sm_80.
CUDA_PROGRAM_FLAGS = $(NVCCFLAGS) $(GENCODE)
$(B)/tests/cuda_host: CUDA_PROGRAM_FLAGS = -O1 -Xcicc -O0 -gencode=arch=compute_80$(comma)code=compute_80
$(B)/tests/cuda_host: tests/cuda/host.cu llm42.cu kernels.cu
$(B)/tests/cuda_inside: tests/cuda/inside.cu llm42.cu kernels.cu $(B)/.cuda_arch
$(B)/tests/cuda_failing: tests/cuda/failing.cu llm42.cu kernels.cu $(B)/.cuda_arch
$(B)/tests/cuda_leaves: tests/cuda/leaves.cu kernels.cu $(B)/.cuda_arch
$(B)/tests/cuda_steps: tests/cuda/steps.cu kernels.cu $(B)/tests/cuda/steps/library.o $(B)/.cuda_arch
$(B)/tests/cuda_lost: tests/cuda/lost.cu $(B)/.cuda_arch $(CUDA_OBJECT)
$(B)/tests/matmul_ladder: tests/cuda/matmul_ladder.cu kernels.cu $(B)/.cuda_arch
NVCC_PROGRAMS := $(addprefix $(B)/tests/,cuda_host cuda_inside cuda_failing cuda_leaves cuda_steps cuda_lost \
    matmul_ladder)
$(filter-out %/cuda_steps,$(NVCC_PROGRAMS)): $(B)/tests/cuda/llm42.o
$(NVCC_PROGRAMS): $(B)/.cuda_flags
	$(if $(V),,@echo "  building $@"; )$(NVCC) $(CUDA_PROGRAM_FLAGS) $(NVCC_REQUIRED) \
	    $(filter tests/cuda/%.cu %.o,$^) $(addprefix -Xcompiler ,$(OMP)) \
	    -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublasLt $(NVCC_NCCL) -o $@
# kernels includes llm42.cu. (With --split-compile ptxas would serialise wgmma in the kernels for leaves.)
$(B)/kernels_main.o: sweep/kernels/main.c $(B)/.flags
	$(if $(V),,@echo "  building $@"; )$(CC) $(CFLAGS) $(REQUIRED) $(OMP) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$(B)/kernels_measure.o: sweep/kernels/measure.cu $(wildcard sweep/kernels/*.h) llm42.cu kernels.cu llm42.h \
    $(B)/.cuda_arch $(B)/.cuda_flags
	$(if $(V),,@echo "  building $@ for sm $(CUDA_ARCH): takes a while"; )$(NVCC) $(NVCCFLAGS) $(GENCODE) $(NVCC_REQUIRED) \
	    $(CUDA_NCCL) -c $< -o $@
$(B)/kernels: $(B)/kernels_measure.o $(B)/kernels_main.o $(B)/tests/cuda/llm42.o
	$(if $(V),,@echo "  building $@"; )$(NVCC) $^ $(addprefix -Xcompiler ,$(OMP)) \
	    -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublasLt $(NVCC_NCCL) -o $@
$(B)/tests/fuzz_programs: | programs  # it runs them
$(B)/tests/%: tests/%.c $(B)/.flags
	@mkdir -p $(@D)
	$(call COMPILE,$(TEST_CFLAGS))

$(B)/llm42_cuda.o: llm42.cu kernels.cu llm42.h $(B)/.cuda_arch $(B)/.cuda_flags
	@$(HAVE_NVCC)
	$(if $(V),,@echo "  building $@ for sm $(CUDA_ARCH): takes a while"; )$(NVCC) $(NVCCFLAGS) \
	    $(NVCC_REQUIRED) $(CUDA_NCCL) --threads $(words $(CUDA_ARCH)) \
	    $(GENCODE) -c $< -o $@ || { rm -f $@ $(B)/.cuda_arch; exit 1; }

# Rewritten only when a flag changes, so that other flags mean building again.
FLAGS_NOW = $(CC) | $(CFLAGS) | $(TEST_CFLAGS) | $(REQUIRED) | $(OMP) | $(LDFLAGS) | $(if $(CUDA_OBJECT),$(CUDA_LINK))
$(B)/.flags: NOW = $(FLAGS_NOW)
$(B)/.cuda_arch: NOW := $(CUDA_ARCH)
$(B)/.cuda_flags: NOW := $(NVCC) | $(NVCCFLAGS) | $(NVCC_REQUIRED) | $(CUDA_NCCL)
$(B)/.flags $(B)/.cuda_arch $(B)/.cuda_flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(NOW)' | cmp -s - $@ || printf '%s\n' '$(NOW)' >$@
FORCE:

# The chosen programs that read text: only they need PCRE2.
PCRE2 = $(shell grep -ls tokenizer.h $(foreach p,$(PROGRAMS:$(B)/%=%),examples/$(p).c sweep/$(p).c $(p).c) /dev/null)

# Sets missing (packages) and install (how to get them). Each header is looked for on its own.
define NEED
has() { printf "#include <stddef.h>\n#include <$$1>\n" | $(CC) -DPCRE2_CODE_UNIT_WIDTH=8 -isystem $(STB) -E - ; }; \
look() { missing=; \
has stdio.h >/dev/null 2>&1 || missing="$$missing gcc libc6-dev"; \
has stb_ds.h >/dev/null 2>&1 || missing="$$missing libstb-dev"; \
has jsmn.h >/dev/null 2>&1 || missing="$$missing libjsmn-dev"; \
[ -z "$(PCRE2)" ] || has pcre2.h >/dev/null 2>&1 || missing="$$missing libpcre2-dev"; \
[ -z "$(PLOTS)" ] || command -v gnuplot >/dev/null || missing="$$missing gnuplot-nox"; \
install="apt-get install -y --no-install-recommends$$missing"; }; look
endef

need:
	@$(NEED); [ -z "$$missing" ] || { echo "Missing:$$missing. Run: sudo $$install" >&2; exit 1; }

deps: PLOTS := gnuplot
deps: setup  ## install what is missing (packages of Debian and Ubuntu); test, demo, figures and others call it

FORMATTED = $(shell git ls-files '*.c' '*.h' '*.cu')
format:  ## format every C and CUDA file by .clang-format
	@clang-format --version | grep -q ' version 14' || echo "format: made for clang-format 14, this is another" >&2
	clang-format -i $(FORMATTED)

HAVE_NVCC = command -v "$(NVCC)" >/dev/null || { echo "$(NO_NVCC)" >&2; exit 1; }
nvcc:
	@$(HAVE_NVCC)

setup:
	@$(NEED); [ -n "$$missing" ] || exit 0; \
	as=; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
	if command -v apt-get >/dev/null && $$as true 2>/dev/null; then \
	    echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	    $$as $$install >/dev/null 2>&1 || { $$as apt-get update -qq && $$as $$install; }; look; \
	fi; \
	[ -z "$$missing" ] || { echo "Missing:$$missing. Run: sudo $$install" >&2; exit 1; }

# The widest instruction set that the flags allow, as the compiler tells.
ISA = $(shell echo | $(CC) $(CFLAGS) -dM -E - 2>/dev/null | awk '/__AVX512F__/ {a = 2} /__AVX2__/ {b = 1} \
    END {print a ? "AVX-512" : b ? "AVX2" : "scalar"}')

# It tells what there is now, so it comes behind setup where a goal asks for that, under -j too.
banner: | $(if $(filter figures accuracy fit demo test check asan bench fuzz,$(MAKECMDGOALS)),setup)
	@echo "llm42 $(VERSION) with $$($(CC) --version | head -1)"
	@echo "  flags    $(CFLAGS) -ffp-contract=off, instruction set $(ISA)"
	@echo "  OpenMP   $(if $(OMP),found,not found: one thread)"
	@echo "  CUDA     $(if $(filter 1,$(CUDA)),built in (sm $(CUDA_ARCH)),$(if $(NVCC),found but not built in,not found))"
	@echo "  gnuplot  $(if $(shell command -v gnuplot),found,not found (make figures installs it))"

# All but the numbered examples.
INSTALLED := $(filter-out 0%,$(notdir $(PROGRAMS)))

# The model and the calibrations keep their paths, below share/llm42, where the programs look for them.
SHARED := $(wildcard examples/tiny42/*.json examples/tiny42/*.safetensors sweep/calibration/*.tsv)
SHARE = $(DESTDIR)$(PREFIX)/share/llm42

install: all  ## install llm42.h, llm42.pc, tiny42, calibrations, programs (as llm42-NAME) below DESTDIR and PREFIX
	install -d "$(DESTDIR)$(PREFIX)/include/llm42" "$(DESTDIR)$(PREFIX)/share/pkgconfig" "$(DESTDIR)$(PREFIX)/bin"
	install -m 644 llm42.h "$(DESTDIR)$(PREFIX)/include/llm42.h"
	install -m 644 examples/tokenizer.h "$(DESTDIR)$(PREFIX)/include/llm42/tokenizer.h"
	install -d $(addprefix "$(SHARE)"/,$(sort $(dir $(SHARED))))
	for f in $(SHARED); do install -m 644 $$f "$(SHARE)/$$f" || exit 1; done
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@STB@|$(STB)|; s|@OPENMP@|$(OMP)|' \
	    -e 's|@VERSION@|$(VERSION)|' llm42.pc.in \
	    >"$(DESTDIR)$(PREFIX)/share/pkgconfig/llm42.pc"
	for p in $(INSTALLED); do install -m 755 $(B)/$$p "$(DESTDIR)$(PREFIX)/bin/llm42-$$p" || exit 1; done
	@echo "pkg-config finds it with PKG_CONFIG_PATH=$(PREFIX)/share/pkgconfig; compile with -O3 -march=native"

uninstall:  ## remove what install put there
	rm -f "$(DESTDIR)$(PREFIX)/include/llm42.h" "$(DESTDIR)$(PREFIX)/share/pkgconfig/llm42.pc"
	rm -f "$(DESTDIR)$(PREFIX)/include/llm42/tokenizer.h"
	for p in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/bin/llm42-$$p"; done
	for f in $(SHARED); do rm -f "$(SHARE)/$$f"; done
	for d in $(sort $(dir $(SHARED))) examples sweep ""; do rmdir "$(SHARE)/$$d" 2>/dev/null || true; done
	rmdir "$(DESTDIR)$(PREFIX)/include/llm42" 2>/dev/null || true

clean:  ## remove build/
	rm -rf $(B)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 17
	@echo "  variables: CC=$(CC) ARCH=$(ARCH) (native, x86-64, x86-64-v3, ...) OPENMP=$(OPENMP) CFLAGS TEST_CFLAGS LDFLAGS"
	@echo "             PREFIX=$(PREFIX) DESTDIR STB=$(STB) JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) V=1"
	@echo "             CUDA=$(CUDA) (0: leave it out) NVCC=$(NVCC) CUDA_ARCH=\"$(CUDA_ARCH)\" NVCCFLAGS CUDA_HOME"
	@echo "             NCCL=$(NCCL) (1: with NCCL too, to compare the exchange of ranks with)"
	@echo "             TEST_CUDA=\"$(TEST_CUDA)\" (options of build/tests/test_cuda)"
	@echo "             TEST_EMULATED=\"$(TEST_EMULATED)\" (options of build/tests/cuda_emulated)"
	@echo "             SANITIZE_CUDA=\"$(SANITIZE_CUDA)\" LADDER=\"$(LADDER)\" (options of build/tests/matmul_ladder)"

-include $(wildcard $(B)/emulated/tests/cuda/*.d) \
    $(wildcard $(B)/*.d $(B)/tests/*.d $(B)/tests/cuda/*.d $(B)/tests/cuda/steps/*.d)
