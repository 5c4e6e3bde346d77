# The page: `make web` writes a folder that any static server shows. Its programs are compiled to WebAssembly by clang
# with wasi-libc, and they are the same sources as those that run natively.
WEB := $(B)/web
WASM_CC ?= clang
# Names of functions would be a third of what a browser has to load.
# A linker gives a program a stack of 64 KiB, which is less than the sums of a step of attention in sm90 need.
# Debian's headers of stb and jsmn lie beside those of its own C library, which must not be found.
WASM_FLAGS = --target=wasm32-wasi --sysroot=/usr -std=c11 -O3 -Wl,--strip-all -Wl,-z,stack-size=1048576 \
    -ffp-contract=off -msimd128 -DNDEBUG -Wall -Wextra -Wno-pass-failed -Wno-unused-command-line-argument \
    -D_WASI_EMULATED_MMAN -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_PROCESS_CLOCKS -D_WASI_EMULATED_GETPID -I. \
    -isystem examples/web/wasi -isystem $(B)/wasm -lwasi-emulated-mman -lwasi-emulated-signal \
    -lwasi-emulated-process-clocks -lwasi-emulated-getpid
WEB_PAGE := $(patsubst examples/web/%,$(WEB)/%,$(filter-out %.c %.mk %.md %.png,$(wildcard examples/web/*.*)))
WEB_DATA := $(addprefix $(WEB)/,$(patsubst examples/%,%,$(addprefix examples/tiny42/,config.json model.safetensors tokenizer.json)) h200.txt \
    $(patsubst sweep/%,%,$(addprefix sweep/calibration/,h100-pcie-paper.tsv h200-llama-3.1-8b.tsv)))
WEB_PROGRAMS := $(addprefix $(WEB)/,web.wasm audit.wasm diff.wasm digest.wasm)

.PHONY: web
web: WASM := 1
web: setup banner  ## the page on which a class sees why answers drift, what cures it and what that costs: build/web
	@+$(SUBMAKE) $(WEB_PAGE) $(WEB_DATA) $(WEB_PROGRAMS)
	@echo "$(WEB) is the page. To see it: python3 -m http.server --directory $(WEB), then open http://localhost:8000"

$(B)/wasm/stb_ds.h: $(STB)/stb_ds.h
	$(SAY)mkdir -p $(@D) && cp $< /usr/include/jsmn.h $(@D)
WASM_NEEDS := $(B)/wasm/stb_ds.h $(wildcard *.h examples/*.h examples/*/*.h examples/web/wasi/*.h sweep/lib/*.h) \
    examples/web/web.mk
WASM_SHARED := $(patsubst %,examples/lib/%.c,args compare scoring texts)

$(WEB)/web.wasm: examples/web/web.c $(WASM_SHARED) $(wildcard sweep/lib/*.c) $(WASM_NEEDS)
	$(SAY)mkdir -p $(@D) && $(WASM_CC) $(WASM_FLAGS) -mexec-model=reactor $(filter %.c,$^) -o $@
$(WEB)/audit.wasm: examples/audit.c examples/audit/against.c $(WASM_SHARED) $(WASM_NEEDS) \
    $(patsubst %,examples/lib/%.c,answers chat request_file)
$(WEB)/diff.wasm: examples/diff.c examples/diff/explain.c $(WASM_SHARED) $(WASM_NEEDS)
$(WEB)/audit.wasm $(WEB)/diff.wasm:
	$(SAY)mkdir -p $(@D) && $(WASM_CC) $(WASM_FLAGS) $(filter %.c,$^) -o $@
$(WEB)/digest.wasm: tests/test_isa.c $(wildcard tests/*.h) $(WASM_NEEDS)
	$(SAY)mkdir -p $(@D) && $(WASM_CC) $(WASM_FLAGS) $< -o $@

$(WEB_PAGE): $(WEB)/%: examples/web/%
	$(SAY)mkdir -p $(@D) && cp $< $@
$(filter $(WEB)/calibration/%,$(WEB_DATA)): $(WEB)/%: sweep/%
	$(SAY)mkdir -p $(@D) && cp $< $@
$(filter-out $(WEB)/calibration/%,$(WEB_DATA)): $(WEB)/%: examples/%
	$(SAY)mkdir -p $(@D) && cp $< $@
