// main.c: build/kernels measures single operators on a GPU, batch-invariant ones beside those that are not.
//
//     build/kernels                              every part
//     build/kernels --part products              TFLOP/s of matrix products by rows (LLM-42, Fig. 4a)
//     build/kernels --part leaves                the same of products with leaves, beside cuBLAS's without
//     build/kernels --part rmsnorm               GB/s of RMSNorm by rows (LLM-42, Fig. 4b)
//     build/kernels --part operators             which operators keep the bits of a row (LLM-42, Table 2)
//     build/kernels --part cost --out FILE       the time of whole passes, INVARIANT beside FAST; the table as TSV
//     build/kernels --part attention             TFLOP/s of a layer's causal attention by tokens of a prompt
//     build/kernels --part exchange              how two devices add their parts of a sum, beside NCCL (not in `all`)
//
// Exit status 1 if anything fails, if bits differ that must be equal, or if a control does not come out as it must:
// then a probe cannot see differences.
#define _POSIX_C_SOURCE 200809L
#include "sweep/lib/common.h"

#include "sweep/kernels/kernels.h"

typedef struct report {
    const char *path;  // NULL: no file
    FILE *tsv;
    const char *model, *part;
    bool quick;
    args_manifest manifest;
    char shown[32];  // the part whose head was printed last
    int controls, failed, compared, wrong;
} report;

static void show_progress(const char *text) {
    static bool shown;
    if (!args_is_terminal(stderr)) return;
    if (text || shown) fprintf(stderr, "\r\033[K%s", text ? text : "");
    fflush(stderr);
    shown = text != NULL;
}

// A number that the line may lack: then "nan".
static void put_number(FILE *file, double value) {
    if (value < 0) fprintf(file, "\tnan");
    else fprintf(file, "\t%.6g", value);
}

static void put_count(FILE *file, int value) {
    if (value < 0) fprintf(file, "\t-");
    else fprintf(file, "\t%d", value);
}

static void put_text(FILE *file, const char *text) { fprintf(file, "\t%s", text ? text : "-"); }

static bool is_exchange(const report *r) { return !strcmp(r->part, "exchange"); }

// What the columns are, and their names.
static void tsv_columns(const report *r) {
    if (is_exchange(r)) {
        fprintf(
            r->tsv,
            "# us: the median time of a step, on the slower device. In a step each rank writes its part, the parts\n"
            "#   are exchanged and added, then come the residual and RMSNorm. A chain has 64 steps\n"
            "# exchange_us: us less that of way none, which has no exchange: its norm is that of one device\n"
            "# relative_pct: exchange_us, of that of nccl_all_gather\n"
            "# bits: x and h of all steps, on both ranks, compared with those by mail or meeting on rank 0\n"
            "# control: one part of a chain by mail or meeting is an old one, which the comparison has to find\n"
            "ranks\trows\ttype\tway\tus\texchange_us\trelative_pct\tbits\tcontrol\tnote\n");
        return;
    }
    fprintf(
        r->tsv,
        "# us: the median time of a launch or of a pass. Weights and rows come from memory, not from a cache\n"
        "# ceilings: those that last are of a GPU that has been busy for half a second, as is whatever is timed\n"
        "# ceiling_pct: the least time of a product, by the ceilings that last for its operations and its weights, in\n"
        "#   %% of its time\n"
        "# products: gb_per_s counts weights; relative_pct is of cuBLASLt's first choice; gate_up includes the gate\n"
        "# leaves: cublas is the fastest of cuBLASLt's without leaves, and relative_pct is of it\n"
        "# rmsnorm: gb_per_s counts what is read and written; relative_pct is of the copy ceiling\n"
        "# operators: distinct results of one row over row_counts numbers of rows, up to most_rows; changes_at is\n"
        "#   the first of them with another result than one row alone, 0 if there is none; places that rows took\n"
        "# cost: relative_pct is the time, of FAST\n"
        "# attention: tflop_per_s counts the causal half: 2 x tokens^2 x head size x heads\n"
        "part\tsubject\tvariant\trows\tn\tk\tleaves\tus\ttflop_per_s\tgb_per_s\trelative_pct\tceiling_pct\t"
        "batch_invariant\tposition_invariant\trepeats\tdistinct\tchanges_at\trow_counts\tmost_rows\tplaces\tcontrol\t"
        "published_as\tnote\n");
}

static void tsv_begin(report *r) {
    char cpu[256];
    if (!r->path || r->tsv) return;
    r->tsv = out_begin(r->path);
    fprintf(r->tsv, "# llm42 %s kernels; host: %s; compiler: %s\n", LLM42_VERSION, processor_name(cpu, sizeof cpu),
            __VERSION__);
    args_manifest_print(&r->manifest, r->tsv);
    fprintf(r->tsv, "# model: %s\n# part: %s%s\n", r->model, r->part, r->quick ? "; quick" : "");
    tsv_columns(r);
    out_flush(r->tsv, r->path);
}

static void tsv_exchange(const report *r, const kernels_line *line) {
    fprintf(r->tsv, "%d\t%d", line->ranks, line->rows);
    put_text(r->tsv, line->subject), put_text(r->tsv, line->variant);
    put_number(r->tsv, line->us), put_number(r->tsv, line->exchange_us), put_number(r->tsv, line->relative_pct);
    put_text(r->tsv, line->bits);
    put_text(r->tsv, !line->control ? NULL : line->control_failed ? "failed" : "as it must be");
    put_text(r->tsv, line->note);
    fprintf(r->tsv, "\n");
}

static void tsv_line(report *r, const kernels_line *line) {
    if (!r->tsv) return;
    if (is_exchange(r)) {
        if (line->variant) tsv_exchange(r, line);
        else fprintf(r->tsv, "# %s\n", line->note);
        out_flush_kept(r->tsv, r->path);
        return;
    }
    fprintf(r->tsv, "%s", line->part);
    put_text(r->tsv, line->subject), put_text(r->tsv, line->variant);
    put_count(r->tsv, line->rows), put_count(r->tsv, line->n), put_count(r->tsv, line->k);
    put_count(r->tsv, line->leaves);
    put_number(r->tsv, line->us), put_number(r->tsv, line->tflop_per_s);
    put_number(r->tsv, line->gb_per_s), put_number(r->tsv, line->relative_pct), put_number(r->tsv, line->ceiling_pct);
    put_text(r->tsv, line->batch_invariant), put_text(r->tsv, line->position_invariant);
    put_text(r->tsv, line->repeats);
    put_count(r->tsv, line->distinct), put_count(r->tsv, line->changes_at), put_count(r->tsv, line->row_counts);
    put_count(r->tsv, line->most_rows), put_count(r->tsv, line->places);
    put_text(r->tsv, !line->control ? NULL : line->control_failed ? "failed" : "as it must be");
    put_text(r->tsv, line->published_as), put_text(r->tsv, line->note);
    fprintf(r->tsv, "\n");
    out_flush_kept(r->tsv, r->path);
}

static bool is_wrong(const kernels_line *line) { return line->must_equal && strcmp(line->bits, "equal") != 0; }

static void print_head(report *r, const char *part) {
    if (!strcmp(r->shown, part)) return;
    snprintf(r->shown, sizeof r->shown, "%s", part);
    if (!strcmp(part, "ceilings")) printf("ceilings of the device\n");
    if (!strcmp(part, "products"))
        printf("\n%-10s %-11s %5s %10s %9s %9s %10s %10s  %s\n", "product", "variant", "rows", "us", "TFLOP/s", "GB/s",
               "% cuBLAS", "% ceiling", "algorithm");
    if (!strcmp(part, "leaves"))
        printf("\n%-10s %-11s %5s %10s %9s %10s %10s  %s\n", "product", "variant", "rows", "us", "TFLOP/s", "% cuBLAS",
               "% ceiling", "algorithm");
    if (!strcmp(part, "rmsnorm"))
        printf("\n%-17s %-10s %5s %10s %9s %10s\n", "norm", "variant", "rows", "us", "GB/s", "% copying");
    if (!strcmp(part, "operators"))
        printf("\n%-36s %-34s %6s %9s %8s %9s %8s\n", "operator", "variant", "batch-", "position-", "distinct", "first",
               "");
    if (!strcmp(part, "operators"))
        printf("%-36s %-34s %6s %9s %8s %9s %8s\n", "", "", "inv.", "invariant", "results", "change at", "repeats");
    if (!strcmp(part, "cost")) printf("\n%-7s %-11s %5s %10s %10s\n", "pass", "variant", "rows", "ms", "% of FAST");
    if (!strcmp(part, "attention"))
        printf("\n%-10s %-14s %6s %10s %9s\n", "attention", "variant", "rows", "us", "TFLOP/s");
    if (!strcmp(part, "exchange"))
        printf("%-5s %5s %-16s %9s %9s %9s %7s\n%-5s %5s %-16s %9s %9s %9s %7s\n", "", "", "", "us of", "us of the",
               "% of all-", "", "parts", "rows", "way", "a step", "exchange", "gather's", "bits");
}

static void print_line(const kernels_line *line) {
    const char *part = line->part;
    if (!strcmp(part, "ceilings") && line->gb_per_s >= 0) printf("  %-21s %8.0f GB/s\n", line->subject, line->gb_per_s);
    if (!strcmp(part, "ceilings") && line->tflop_per_s >= 0)
        printf("  %-21s %8.0f TFLOP/s\n", line->subject, line->tflop_per_s);
    if (!strcmp(part, "products"))
        printf("%-10s %-11s %5d %10.2f %9.1f %9.0f %10.1f %10.1f  %s\n", line->subject, line->variant, line->rows,
               line->us, line->tflop_per_s, line->gb_per_s, line->relative_pct, line->ceiling_pct, line->note);
    if (!strcmp(part, "leaves"))
        printf("%-10s %-11s %5d %10.2f %9.1f %10.1f %10.1f  %s\n", line->subject, line->variant, line->rows, line->us,
               fmax(line->tflop_per_s, 0), fmax(line->relative_pct, 0), fmax(line->ceiling_pct, 0), line->note);
    if (!strcmp(part, "rmsnorm"))
        printf("%-17s %-10s %5d %10.2f %9.0f %10.1f\n", line->subject, line->variant, line->rows, line->us,
               line->gb_per_s, line->relative_pct);
    if (!strcmp(part, "operators"))
        printf("%-36s %-34s %6s %9s %8d %9d %8s%s\n", line->subject, line->variant, line->batch_invariant,
               line->position_invariant, line->distinct < 0 ? 0 : line->distinct,
               line->changes_at < 0 ? 0 : line->changes_at, line->repeats,
               !line->control         ? ""
               : line->control_failed ? "  CONTROL FAILED"
                                      : "  control: as it must be");
    if (!strcmp(part, "cost"))
        printf("%-7s %-11s %5d %10.3f %10.1f\n", line->subject, line->variant, line->rows, 1e-3 * line->us,
               line->relative_pct);
    if (!strcmp(part, "attention"))
        printf("%-10s %-14s %6d %10.2f %9.1f\n", line->subject, line->variant, line->rows, line->us, line->tflop_per_s);
    if (!strcmp(part, "exchange") && !line->variant) printf("%s\n", line->note);
    if (!strcmp(part, "exchange") && line->variant)
        printf("%-5s %5d %-16s %9.2f %9.2f %9.1f %7s%s%s\n", line->subject, line->rows, line->variant, line->us,
               line->exchange_us, fmax(line->relative_pct, 0), line->bits ? line->bits : "-",
               is_wrong(line) ? "  WRONG" : "", line->control_failed ? "  CONTROL FAILED" : "");
    fflush(stdout);
}

static void take_line(void *user, const kernels_line *line) {
    report *r = user;
    show_progress(NULL);
    tsv_begin(r);
    tsv_line(r, line);
    if (!is_exchange(r) || line->variant) print_head(r, line->part);
    print_line(line);
    r->controls += line->control, r->failed += line->control_failed;
    r->compared += line->must_equal, r->wrong += is_wrong(line);
}

int main(int argc, char **argv) {
    static report r;
    static const char *const parts[] = {"products",  "leaves",   "rmsnorm", "operators", "cost",
                                        "attention", "exchange", "all",     NULL};
    int64_t leaves = 0, most_rows = 4096;
    kernels_settings s = {.part = "all", .model = "synthetic:llama-3.1-8b,margin=6.2"};
    llm42_error error = {0};
    const args_option options[] = {
        ARGS_TEXT("part P", &s.part, "products, leaves, rmsnorm, operators, cost, attention, exchange or all"),
        ARGS_INT("leaves C", &leaves, 0, 8, "of INVARIANT passes: 1, 2, 4 or 8; 0: 8 in part leaves, else 1"),
        ARGS_OUT("out FILE", &r.path, "the table goes there too, as TSV, line by line"),
        ARGS_IN("model,m NAME", &s.model, "synthetic:NAME, a dense shape"),
        ARGS_OUT("algorithm-file FILE", &s.algorithm_file, "keeps chosen algorithms from run to run"),
        ARGS_INT("most-rows N", &most_rows, 512, 4096, "rows of a pass, at most, but for part attention"),
        ARGS_FLAG("quick", &s.quick, "at most 512 rows"),
        ARGS_FLAG("one-by-one", &s.one_by_one, "exchange: NCCL's chains are launched one by one, not as CUDA graphs"),
        ARGS_END};
    args_status_1 =
        "bits differ that must be equal, or a control does not come out as it must, or something went wrong";
    args_parse(argc, argv, "Measures single operators on a GPU: speed by rows, and whether they keep bits.", options);
    args_choice("--part", s.part, parts);
    if (strncmp(s.model, "synthetic:", 10)) args_fail(2, "--model: '%s': must be synthetic:NAME", s.model);
    s.most_rows = s.quick ? 512 : (int)most_rows;
    s.leaves = leaves ? (int)leaves : strcmp(s.part, "leaves") ? 1 : 8;
    if (!strcmp(s.part, "leaves") && s.leaves < 2) args_fail(2, "--leaves: part leaves needs 2, 4 or 8");
    out_try(r.path);
    r.model = s.model, r.part = s.part, r.quick = s.quick;
    s.log = args_manifest_log, s.log_user = &r.manifest;
    s.progress = show_progress, s.emit = take_line, s.user = &r;
    double begin = wall_seconds();
    llm42_result result = kernels_measure(&s, &error);
    show_progress(NULL);
    args_check(result, &error);
    printf("\n%.0f s\n", wall_seconds() - begin);
    if (r.tsv) out_finish(r.tsv, r.path);
    if (r.controls) printf("controls: %d of %d came out as they must\n", r.controls - r.failed, r.controls);
    if (r.compared) printf("bits: %d of %d that must be equal are\n", r.compared - r.wrong, r.compared);
    if (r.wrong) args_fail(1, "two ways to exchange give different bits, or two ranks");
    if (r.failed) args_fail(1, "a control did not come out as it must: the probes of this run prove nothing");
    return args_finish();
}
