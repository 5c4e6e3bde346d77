#!/bin/bash
# Products by rows in TFLOP/s on one H200, as LLM-42's Fig. 4a has them: cuBLASLt's first choice, one fixed tile of ours,
# and the INVARIANT choice, for the five products of the 8B shape. From kernels.tsv (sweep/h200/run.sh kernels). The
# peaks that LLM-42 publishes for an H100 PCIe stand beside `down`.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="kernels"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
table=$H200/kernels.tsv
rows "$table" part subject variant rows tflop_per_s >"$work/rows"
{
    echo "# measured on the GPU; published: sweep/reference/fig4_kernels, peaks"
    printf 'figure\tmetric\tseries\tx\tmeasured\tpublished\n'
    awk -F '\t' -v OFS='\t' -v figure="$figure" '
        $1 == "products" && $3 != "fast" { print figure, "tflop_per_s " $2, $3, $4, $5, "nan" }' "$work/rows"
    rows "$reference/fig4_kernels.tsv" figure kernel value | awk -F '\t' -v OFS='\t' -v figure="$figure" '
        $1 == "4a" { print figure, "tflop_per_s down", "published " $2, "nan", "nan", $3 }'
} >"$work/points"
mv "$work/points" "$points"
width=1400
title=$(tell "With 4,096 rows INVARIANT products reach %.0f to %.0f TFLOP/s, cuBLASLt's first choice %.0f to %.0f, \
one fixed tile of ours %.0f to %.0f" '
    $2 ~ /^tflop_per_s/ && $4 == 4096 { low[$3] = smaller(low[$3], $5); high[$3] = larger(high[$3], $5) }
    END { print low["invariant"], high["invariant"], low["cublas"], high["cublas"], low["fixed_tile"], high["fixed_tile"] }')
reading="matrix products of one pass, by the rows of the pass; gate_up includes the gate; head up to 1,024"
notes=("dotted: the peaks of cuBLAS and of a batch-invariant Triton kernel that LLM-42 publishes, on an H100 PCIe"
    "cuBLASLt's first choice is not batch-invariant; INVARIANT: its algorithms in a fixed choice, or tiles of ours")
source="measured: $(model_name 8b), bf16, on $(device_of "$table"); $(made_of "$table")"
plot
