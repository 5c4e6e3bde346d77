#!/bin/bash
# Batch-invariant kernels beside those that are not, on one H200: the product down by rows in % of cuBLASLt's speed
# (LLM-42, Fig. 4a), RMSNorm by rows (Fig. 4b), and what invariance costs whole passes. All products are in % of the
# first choice of cuBLASLt in our run. INVARIANT ones are cuBLASLt's algorithms in a fixed choice, or tiles of ours; a
# note of each row says which. Needs kernels.tsv (sweep/h200/run.sh kernels). If there is kernels_peers.tsv (PyTorch's
# kernels in the same call: part, subject, variant, rows, tflop_per_s, gb_per_s), its kernels are drawn, too.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="kernels"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
table=$H200/kernels.tsv peers=$H200/kernels_peers.tsv
rows "$table" part subject variant rows tflop_per_s gb_per_s relative_pct note >"$work/rows"

lines() { awk -F '\t' -v OFS='\t' -v figure="$figure" "$@"; }
# Ours, then what others published. A published value without a number of rows has x "nan".
{
    echo "# measured on the GPU; published: sweep/reference/fig4_kernels, peer_*_h200 and tml_cost"
    printf 'figure\tmetric\tseries\tx\tmeasured\tpublished\n'
    lines '
        $1 == "products" { print figure, "tflop_per_s " $2, $3, $4, $5, "nan" }
        $1 == "products" { print figure, "pct_of_cublas " $2, $3, $4, $7, "nan" }
        $1 == "rmsnorm" { print figure, "gb_per_s " $2, $3, $4, $6, "nan" }
        $1 == "cost" { print figure, "pct_of_fast " $2, $3, $4, $7, "nan" }' "$work/rows"
    if [ -r "$peers" ]; then
        rows "$peers" part subject variant rows tflop_per_s gb_per_s | lines '
            $1 == "products" { print figure, "tflop_per_s " $2, "peer " $3, $4, "nan", $5 }
            $1 == "products" && $3 == "cublas" { base[$4] = $5; next }
            $1 == "products" { print figure, "pct_of_cublas " $2, "peer " $3, $4, "nan", 100 * $5 / base[$4] }
            $1 == "rmsnorm" { print figure, "gb_per_s " $2, "peer " $3, $4, "nan", $6 }'
    else
        rows "$reference/peer_matmul_h200.tsv" rows cublas | lines '
            { print figure, "tflop_per_s down", "peer cublas", $1, "nan", $2 }'
    fi
    rows "$reference/peer_matmul_h200.tsv" rows cublas tml_triton tbik_triton | lines '
        { print figure, "tflop_per_s down", "peer tml_triton", $1, "nan", $3 }
        { print figure, "tflop_per_s down", "peer tbik_triton", $1, "nan", $4 }
        { print figure, "pct_of_cublas down", "peer tml_triton", $1, "nan", 100 * $3 / $2 }
        { print figure, "pct_of_cublas down", "peer tbik_triton", $1, "nan", 100 * $4 / $2 }'
    rows "$reference/fig4_kernels.tsv" figure kernel value | lines '
        $1 == "4a" { print figure, "tflop_per_s down", "published " $2, "nan", "nan", $3 }
        $2 == "cublas" { base = $3 }
        $2 ~ /^batch_invariant_/ { print figure, "pct_of_cublas down", "published " $2, "nan", "nan", 100 * $3 / base }'
    rows "$reference/peer_decode_h200.tsv" batch cublas_ms tml_triton_ms | lines '
        { print figure, "pct_of_fast decode", "peer tml_triton", $1, "nan", 100 * $3 / $2 }'
    rows "$reference/tml_cost.tsv" setup seconds | lines '
        $1 == "vllm_default" { base = $2; next }
        { print figure, "pct_of_fast run", "published " $1, "nan", "nan", 100 * $2 / base }'
} >"$work/points"
mv "$work/points" "$points"

peak() {  # peak VARIANT: its TFLOP/s with 512 rows and more, least and most
    tell "%.0f to %.0f" '$2 == "tflop_per_s down" && $3 == "peer '"$1"'" && $4 >= 512 {
        least = smaller(least, $6); most = larger(most, $6) } END { print least, most }'
}
# Before build/kernels measured ceilings that last it timed products one after another while the GPU warmed up: larger
# ones cannot be compared.
grep -q matmul_bf16_sustained "$table" && most=4096 upto= || most=512 upto=" up to 512 rows"
width=1400
title=$(tell "Product down, batch-invariant: cuBLASLt's own algorithms in a fixed choice have %.0f to %.0f%% of the speed of its \
first choice$upto, our fixed tile %.0f to %.0f%%, those in Triton at most %.0f%%" '
    FILENAME == ARGV[2] && $1 == "products" && $2 == "down" && $3 == "invariant" && $8 ~ /^cublasLt/ { theirs[$4] }
    FILENAME == ARGV[2] || $4 > '$most' { next }
    $2 == "tflop_per_s down" && $3 == "cublas" { base[$4] = $5 }
    $2 == "pct_of_cublas down" && $3 == "invariant" { speed[$4] = $5 }
    $2 == "pct_of_cublas down" && $3 == "fixed_tile" { tile = smaller(tile, $5); best = larger(best, $5) }
    $2 == "tflop_per_s down" && $3 ~ /^peer .*_triton|^peer triton/ { triton = larger(triton, 100 * $6 / base[$4]) }
    END {
        for (x in speed) if (x in theirs) { least = smaller(least, speed[x]); most = larger(most, speed[x]) }
        print least, most, tile, best, triton
    }' "$points" "$work/rows")
reading="100%: the kernel that is not batch-invariant; filled marks: our kernels and passes; hollow: kernels of others"
notes=("$(tell "of the %d INVARIANT products of this run %d are cuBLASLt's algorithms and the others tiles of ours" '
    $1 == "products" && $3 == "invariant" { n++; k += $8 ~ /^cublasLt/ } END { print n, k }' "$work/rows")"
    "Triton, one fixed tile of 128 rows: measured by us in PyTorch (kernels_peers.tsv), \
$(peak triton_fixed_tile_128) TFLOP/s from 512 rows on"
    "Thinking Machines' batch_invariant_ops and TBIK: measured by us in PyTorch on another day, \
$(peak tml_triton) and $(peak tbik_triton) TFLOP/s from 512 rows on"
    "$(tell "LLM-42 publishes %.0f%% of cuBLAS on an H100 for Triton; decode step: each in %% of the same program without invariance" '
    $3 == "published batch_invariant_triton" && $2 ~ /^pct/ { print $6 }')"
    "vLLM: published by Thinking Machines, of its default (triangle up: better attention)")
[ -z "$upto" ] || notes+=("ours: no points beyond 512 rows, where this run timed products while the GPU warmed up")
source="measured: $(model_name 8b), bf16, on $(device_of "$table"); $(made_of "$table")"
plot most=$most kernels="$work/rows"
