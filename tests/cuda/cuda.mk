# What needs nvcc, included by the Makefile: the CUDA backend, the programs that test it, and its kernels run on a CPU.
TEST_CUDA ?=
EMULATED_CFLAGS ?= -O3
TEST_EMULATED ?= --part arithmetic --devices 2
SANITIZE_CUDA ?= --part small
LADDER ?=
ATTENTION_LADDER ?=
NCCL ?= 0

# What `make cuda` has built once stays built in. CUDA_ARCH is kept with it.
NVCC ?= $(shell command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; })
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v "$(NVCC)")))
CUDA ?= $(if $(wildcard $(B)/llm42_cuda.o),1,0)
CUDA_OBJECT := $(if $(filter 1,$(CUDA)),$(B)/llm42_cuda.o)
CUDA_ARCH ?= $(or $(shell cat $(B)/.cuda_arch 2>/dev/null),80 89 90)
NVCCFLAGS ?= -O3
# 90a is all of sm_90, with its products of four warps.
GENCODE = $(foreach a,$(CUDA_ARCH:90=90a),-gencode=arch=compute_$(a)$(comma)code=sm_$(a))
# What all but the backend are compiled for. test_cuda_build has them not assembled.
PROGRAM_GENCODE = $(GENCODE)
# -fmad=false: products and sums are fused only where the source says so, or bits would be the compiler's choice.
# -fPIC: the backend may become a part of a shared library.
# -compress-all: without it a program that links the backend has 10 MB for each architecture, and with it 2.5.
override NVCC_REQUIRED := -std=c++17 -fmad=false -Xcompiler -Wall$(comma)-Wextra$(comma)-fPIC -Xfatbin -compress-all \
    -I. -isystem $(STB)
ifneq ($(filter -use_fast_math --use_fast_math -ftz=true --ftz=true -fmad=true --fmad=true,$(NVCCFLAGS)),)
$(error NVCCFLAGS: fast-math and fused multiply-adds of the compiler's choice: results would not be reproducible)
endif
# NCCL=1: kernels has NCCL to compare with.
CUDA_NCCL = $(if $(filter 1,$(NCCL)),-DLLM42_NCCL)
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublasLt -lcudart -lstdc++
NVCC_LIBS = $(addprefix -Xcompiler ,$(OMP)) -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublasLt
NCCL_LIBS = $(if $(filter 1,$(NCCL)),-L$(CUDA_HOME)/lib -Xlinker -rpath$(comma)$(CUDA_HOME)/lib -lnccl)
NO_NVCC := no nvcc: install the CUDA Toolkit (12 or later, with cuBLAS) and put nvcc on PATH, or set NVCC=/path/bin/nvcc
HAVE_NVCC = command -v "$(NVCC)" >/dev/null || { echo "$(NO_NVCC)" >&2; exit 1; }

.PHONY: cuda test-cuda test-emulated ladder sanitize-cuda kernels bench-cuda nvcc
cuda test-cuda sanitize-cuda bench-cuda: CUDA := 1
nvcc:
	@$(HAVE_NVCC)

cuda: nvcc need banner  ## build the CUDA backend with nvcc, and every program with it
	@+$(SUBMAKE) CUDA=1 programs

test-cuda sanitize-cuda ladder: PROGRAMS := $(B)/tests/test_cuda
test-cuda: nvcc need banner  ## the tests that need a GPU; the last line is "N passed, N failed"
	@+$(SUBMAKE) CUDA=1 $(B)/tests/test_cuda $(filter-out %/cuda_host,$(NVCC_PROGRAMS)) $(SFU) $(LADDERS)
	@bash tests/run.sh "$(B)/tests/test_cuda $(TEST_CUDA)" $(B)/tests/cuda_inside $(B)/tests/cuda_lost \
	    "$(B)/tests/cuda_inside failing" $(B)/tests/cuda_leaves "$(B)/tests/cuda_steps --brief" $(SFU) \
	    "$(B)/matmul_ladder $(LADDER)" "$(B)/attention_ladder $(ATTENTION_LADDER)"

test-emulated: nvcc need banner  ## test_cuda with its kernels run on the CPU, thread by thread; takes minutes
	@+$(SUBMAKE) $(B)/tests/cuda_emulated
	@bash tests/run.sh "$(B)/tests/cuda_emulated $(TEST_EMULATED)"

HAVE_GPU = test -n "$$(ls /dev/nvidia[0-9]* /dev/dxg /dev/nvhost-gpu 2>/dev/null)" || \
    { echo "no GPU here: /dev has no nvidia0, dxg or nvhost-gpu" >&2; exit 1; }
ladder: nvcc need banner  ## a matrix product, and attention, from a naive kernel to ours: times, errors and bits
	@$(HAVE_GPU)
	@+$(SUBMAKE) $(LADDERS)
	$(B)/matmul_ladder $(LADDER)
	$(B)/attention_ladder $(ATTENTION_LADDER)

sanitize-cuda: nvcc need banner  ## compute-sanitizer's memcheck, synccheck and racecheck over some GPU tests
	@+$(SUBMAKE) CUDA=1 $(B)/tests/test_cuda
	@bash tests/sanitize_cuda.sh $(B)/tests/test_cuda $(SANITIZE_CUDA)

kernels: PROGRAMS := $(B)/kernels
kernels: nvcc need banner  ## build/kernels: single operators on the GPU, their speed and whether they keep bits
	@+$(SUBMAKE) $(B)/kernels

bench-cuda: PROGRAMS := $(B)/bench
bench-cuda: nvcc need banner  ## measure the GPU's ceilings and the engine's speed on it
	@+$(SUBMAKE) CUDA=1 $(B)/bench
	$(B)/bench --backend cuda

$(B)/llm42_cuda.o: llm42.cu kernels.cu llm42.h $(B)/.cuda_arch $(B)/.cuda_flags
	@$(HAVE_NVCC)
	$(if $(V),,@echo "  building $@ for sm $(CUDA_ARCH): takes a while"; )$(NVCC) $(NVCCFLAGS) \
	    $(NVCC_REQUIRED) --threads $(words $(CUDA_ARCH)) \
	    $(GENCODE) -c $< -o $@ || { rm -f $@ $(B)/.cuda_arch; exit 1; }
$(B)/.cuda_arch: NOW := $(CUDA_ARCH)
$(B)/.cuda_flags: NOW := $(NVCC) | $(NVCCFLAGS) | $(NVCC_REQUIRED) | $(CUDA_NCCL)

# test_cuda is a program of several files. It and the programs of nvcc's are linked with llm42.o too.
TEST_CUDA_OBJECTS := $(patsubst %.c,$(B)/o/%.o,$(wildcard tests/cuda/*.c))
$(B)/tests/test_cuda: $(TEST_CUDA_OBJECTS) $(B)/programs.a $(B)/llm42.o $(B)/llm42_cuda.o
	$(LINK)

# Programs of nvcc's. cuda_host and cuda_inside include llm42.cu. cuda_host tests what the backend does on the host. No
# kernel of it runs, so none is assembled. It also shows that the backend compiles for sm_80.
CUDA_PROGRAM_FLAGS = $(NVCCFLAGS) $(PROGRAM_GENCODE)
$(B)/tests/cuda_host: CUDA_PROGRAM_FLAGS = $(NVCCFLAGS) -gencode=arch=compute_80$(comma)code=compute_80
LADDERS := $(B)/matmul_ladder $(B)/attention_ladder
SFU := $(B)/special_functions
NVCC_PROGRAMS := $(addprefix $(B)/tests/,cuda_host cuda_inside cuda_leaves cuda_steps cuda_lost)
$(addprefix $(B)/tests/cuda_,host inside): llm42.cu
$(B)/tests/cuda_inside: tests/cuda/failing.h
$(B)/tests/cuda_lost: $(CUDA_OBJECT)
$(B)/tests/cuda_steps $(B)/tests/cuda_steps_emulated: $(B)/o/tests/cuda/steps/library.o
$(B)/o/tests/cuda/steps/library.o: HEADER_CFLAGS = -O2  # most of the time of cuda_steps is spent in it
$(filter-out %/cuda_steps,$(NVCC_PROGRAMS)) $(LADDERS) $(SFU): $(B)/llm42.o
NVCC_LINK = $(SAY)mkdir -p $(@D) && $(NVCC) $(CUDA_PROGRAM_FLAGS) $(NVCC_REQUIRED) \
    $(filter tests/cuda/%.cu examples/ladders/%.cu sweep/science/%.cu %.o,$^) $(NVCC_LIBS) -o $@
$(NVCC_PROGRAMS): $(B)/tests/cuda_%: tests/cuda/%.cu tests/cuda/counts.h kernels.cu llm42.h $(B)/.cuda_arch \
    $(B)/.cuda_flags
	$(NVCC_LINK)
$(SFU): sweep/science/special_functions.cu examples/util/llm42_sfu.h tests/cuda/counts.h llm42.h $(B)/.cuda_arch \
    $(B)/.cuda_flags
	$(NVCC_LINK)
$(LADDERS): $(B)/%: examples/ladders/%.cu examples/ladders/ladder.h kernels.cu llm42.h $(B)/.cuda_arch $(B)/.cuda_flags
	$(NVCC_LINK)

# kernels includes llm42.cu. (With --split-compile ptxas would serialise wgmma in the kernels for leaves.)
$(B)/kernels_measure.o: sweep/kernels/measure.cu $(wildcard sweep/kernels/*.h) llm42.cu kernels.cu llm42.h \
    $(B)/.cuda_arch $(B)/.cuda_flags
	$(if $(V),,@echo "  building $@ for sm $(CUDA_ARCH): takes a while"; )$(NVCC) $(CUDA_PROGRAM_FLAGS) \
	    $(NVCC_REQUIRED) $(CUDA_NCCL) -c $< -o $@
$(B)/kernels: $(B)/kernels_measure.o $(B)/o/sweep/kernels/main.o $(B)/programs.a $(B)/llm42.o
	$(SAY)$(NVCC) $^ $(NVCC_LIBS) $(NCCL_LIBS) -o $@

# The CUDA backend on a CPU (emulator.h), with test_cuda; cuda_steps, cuda_leaves and attention_ladder, too. A launch by
# <<<>>> becomes a call, and a kernel's shared memory a pointer.
$(B)/emulated/%: % tests/cuda/cuda.mk
	@mkdir -p $(@D)
	sed -e 's/\([a-z0-9_<>]*\)<<<\(.*\)>>>(/emulator::run(emulator::shape(\2), \1, /' \
	    -e 's/extern __shared__ .* shared\[\];/unsigned char *const shared = emulator::here->shared;/' $< > $@
EMULATED := tests/cuda/emulated_runtime.h tests/cuda/emulator.h $(B)/emulated/kernels.cu llm42.h $(B)/.flags
EMULATE = $(SAY)mkdir -p $(@D) && $(CXX) -std=c++17 $(EMULATED_CFLAGS) -march=$(ARCH) -ffp-contract=off \
    -fno-strict-aliasing -Wno-psabi -DLLM42_EMULATED -I$(B)/emulated -Itests/cuda -I. -isystem $(STB) -isystem $(CUDA_HOME)/include
EMULATED_LIBS = $(LDFLAGS) -ldl -lm -lpthread
$(B)/emulated/backend.o: tests/cuda/emulated.cc $(B)/emulated/llm42.cu $(EMULATED)
	$(EMULATE) -c $< -o $@
$(B)/tests/cuda_emulated: $(TEST_CUDA_OBJECTS) $(B)/emulated/backend.o $(B)/programs.a $(B)/llm42.o
	$(SAY)mkdir -p $(@D) && $(CXX) $(OMP) -rdynamic $^ -o $@ $(EMULATED_LIBS)
EMULATED_LINK = $(EMULATE) $(OMP) -rdynamic -x c++ $< -x none $(filter %.o,$^) -o $@ $(EMULATED_LIBS)
$(addprefix $(B)/tests/cuda_,steps_emulated leaves_emulated): $(B)/tests/cuda_%_emulated: \
    $(B)/emulated/tests/cuda/%.cu tests/cuda/counts.h $(EMULATED)
	$(EMULATED_LINK)
$(B)/tests/attention_ladder_emulated: $(B)/emulated/examples/ladders/attention_ladder.cu \
    $(B)/emulated/examples/ladders/ladder.h $(EMULATED)
	$(EMULATED_LINK)
$(B)/tests/cuda_leaves_emulated $(B)/tests/attention_ladder_emulated: $(B)/llm42.o
