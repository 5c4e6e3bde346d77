// cells.h: the grid of a sweep (axes, values, cells) and the files that hold finished cells. It runs no engine.
//
// An axis is a list that the user gives; a cell takes one value of each. An axis that means nothing in the cell
// is left out of the cell (its index is -1), so that a mode without verification has one cell and not one for each
// window. Cells stand in the order of the axes, the last one running fastest.
#ifndef SWEEP_CELLS_H
#define SWEEP_CELLS_H

#include "sweep/lib/common.h"
#include "stb_ds.h"
#include "sweep/lib/fleet.h"

enum { MAX_VALUES = 64, MAX_CELLS = 1000000, MAX_PRESETS = 8, AS_PRESET = -2 };
typedef enum backend_name { BACKEND_SIM, BACKEND_CPU, BACKEND_CUDA } backend_name;

// What a cell must have for an axis to mean anything in it.
enum {
    VERIFIED = 1,            // replay passes
    VERIFIED_BY_CHOICE = 2,  // the policies choose in which schedule these run
    INVARIANT_PASSES = 4,
    MIXED = 8,  // both kinds of requests, which differ in how they run
    DRAFTED = 16,
    SIMULATED = 32,
    SET_APART = 64,  // replicas for deterministic requests
    TRACED = 128,    // arrivals of the workload's file
};

// An axis is added here, and nowhere else if its value is a word of a policy or a field of llm42_engine_desc: options,
// columns, names of cells and plots follow from this table. Any other value is read by cell_number, or cell_value,
// where it is needed. (If it was an option for the whole grid before, delete that, and compare a cell with a run of the
// old program.) A label with a unit, for plots, stands in `words` of sweep/plot/layout.awk.
#define SWEEP_AXES(X)                                                                                                  \
    X(PRESET, "preset", "dvr", "what the options of policies, W and G leave open", .policy = true)                     \
    X(MODE, "mode", "preset", "", .policy = true)                                                                      \
    X(PLANNER, "planner", "default", "who decides what shares a pass", .words = planner_names)                         \
    X(VERIFIER, "verifier", "preset", "order of sums of replay passes", .policy = true, .needs = VERIFIED_BY_CHOICE)   \
    X(VERIFY, "verify", "preset", "when windows are verified", .policy = true, .needs = VERIFIED)                      \
    X(PREFILL, "prefill", "preset", "of deterministic prompts", .policy = true, .needs = VERIFIED)                     \
    X(CHUNKED, "chunked", "preset", "chunked prefill", .policy = true)                                                 \
    X(BONUS, "bonus", "preset", "the verifier's own token", .policy = true, .needs = VERIFIED)                         \
    X(WINDOW, "window", "preset", "W, rows of a verification window", WHOLE(1, 4096), FIELD(policy.window),            \
      .needs = VERIFIED)                                                                                               \
    X(GROUP, "group", "preset", "G, windows of a replay pass", WHOLE(1, 4096), FIELD(policy.group), .needs = VERIFIED) \
    X(RATIO, "ratio", "1", "share of requests that are deterministic, 0 to 1", REAL(0, 1), .needs = MIXED)             \
    X(QPS, "qps", "12", "requests a second (Poisson), offline (all at once) or trace", .words = qps_words,             \
      REAL(1e-6, 1e6))                                                                                                 \
    X(TRACE_SPEED, "trace-speed", "1", "qps trace: a trace's arrivals come so many times as fast", REAL(1e-6, 1e6),    \
      .optional = true, .needs = TRACED)                                                                               \
    X(SLOWDOWN, "slowdown", "0", "INVARIANT passes cost so many times FAST ones; 0: the calibration's own",            \
      REAL(0, 1000), .needs = SIMULATED | INVARIANT_PASSES)                                                            \
    X(SEED, "seed", "42", "of lengths, arrivals, tokens and flips", WHOLE(1, 1e15))                                    \
    X(MAX_RUNNING, "max-running", "0", "requests at once, 0: 2048 (sim), 32 (cpu), 256 (cuda); several: a column",     \
      WHOLE(0, 1 << 16), FIELD(max_running))                                                                           \
    X(TENSOR_PARALLEL, "tensor-parallel", "1", "ranks (devices) that share the model: 1, 2, 4, 8", WHOLE(1, 8),        \
      FIELD(tensor_parallel), .optional = true)                                                                        \
    X(LEAVES, "leaves", "1", "INVARIANT passes cut sums that ranks share into 1, 2, 4 or 8; sim: the calibration's",   \
      WHOLE(1, 8), FIELD(numerics.leaves), .optional = true, .needs = INVARIANT_PASSES)                                \
    X(DRAFT, "draft", "none", "sim: drafts are made, each right with this probability if those before it are",         \
      .words = draft_words, REAL(0, 1), .optional = true)                                                              \
    X(DRAFT_LIMIT, "draft-limit", "7", "drafts of a request in a pass, at most; fewer where more do not pay",          \
      WHOLE(1, 4096), FIELD(draft_limit), .optional = true, .of = DRAFT, .needs = DRAFTED)                             \
    X(REPLICAS, "replicas", "1", "sim: a fleet of so many engines behind a router", WHOLE(1, FLEET_MOST),              \
      .optional = true)                                                                                                \
    X(ROUTER, "router", "round_robin", "with --replicas: where a request goes", .words = fleet_routers,                \
      .of = REPLICAS)                                                                                                  \
    X(APART, "apart", "share", "deterministic_apart: replicas for deterministic requests, share: by their share",      \
      .words = apart_words, WHOLE(1, FLEET_MOST - 1), .optional = true, .of = REPLICAS, .needs = SET_APART)

#define AXIS_NAME(name, ...) name,
typedef enum axis_name { SWEEP_AXES(AXIS_NAME) AXES } axis_name;
#undef AXIS_NAME

typedef struct axis {
    const char *name;          // of the option
    const char *list;          // the values where the user gives none; "preset": what the cell's preset says
    const char *about;         // for --help
    bool policy;               // the values are the words of the library's policy of this name
    const char *const *words;  // else these words, NULL-terminated; NULL: none
    bool number, whole;        // may a value be a number, and must that be whole
    double low, high;
    size_t field;    // offset of the int in llm42_engine_desc that the value is; 0: it is none
    unsigned needs;  // without which it means nothing in a cell
    bool optional;   // results have no column of it while nobody gives it
    axis_name of;    // nor while the results have none of this axis; 0: of none
} axis;
extern const axis axes[AXES];

typedef struct value {
    int word;  // index into the axis' words; -1: a number; AS_PRESET: what the cell's preset says
    double number;
    char text[64];  // as results have it: one text for a value, however it was typed
} value;

typedef struct cell {
    int at[AXES];     // index of the value, or -1: means nothing here
    char *row;        // its line of the TSV once it has run, without newline
    char error[480];  // or why it could not
} cell;

typedef struct grid {
    value values[AXES][MAX_VALUES];
    int count[AXES];
    value of_preset[MAX_PRESETS][2][AXES];  // [1]: if the cell's verifier is given as FIXED
    bool hidden[AXES];                      // axes that no cell and no result has
    cell *cells;                            // stb_ds array
} grid;

const char *const *axis_words(axis_name which);
// The name in results.
const char *axis_column(axis_name which);
// Reads a comma-separated list. Exits on an empty list, a value that is there twice, or one that the axis has not.
void axis_parse(grid *g, axis_name which, const char *list);
// NULL when the axis means nothing in this cell.
const value *cell_value(const grid *g, const cell *c, axis_name which);
// Makes the cells of the lists.
void grid_make(grid *g, backend_name backend);
const char *cell_text(const grid *g, const cell *c, axis_name which);
// Sets what the cell says of policies and other fields.
void cell_desc(const grid *g, const cell *c, llm42_engine_desc *desc);
// `otherwise` where the axis means nothing.
double cell_number(const grid *g, const cell *c, axis_name which, double otherwise);
// The default planner goes without saying: names and configurations mention other planners only.
bool is_default_planner(axis_name which, const value *v);

// A name that says what the cell is, the same in every grid that has it.
typedef struct cell_name_text {
    char text[320];
} cell_name_text;

cell_name_text cell_name(const grid *g, const cell *c);

typedef struct file_name {
    char text[4500];
} file_name;

file_name cell_path(const char *folder, const char *configuration, const grid *g, const cell *c);
// False if the text could not be written; errno says why.
bool file_write(const char *path, const char *text);
bool cell_write(const char *folder, const char *configuration, const grid *g, const cell *c,
                const args_manifest *manifest);

typedef enum cell_state { CELL_DONE, CELL_MISSING, CELL_CUT, CELL_EDITED, CELL_OTHER_VERSION } cell_state;
extern const char *const cell_state_text[];
// Sets the cell's row from its file if that is whole and says what its name says, with `columns` columns, and adds to
// the manifest what the file has of one.
cell_state cell_read(const char *folder, const char *configuration, const grid *g, cell *c, int columns,
                     args_manifest *manifest);

// A configuration of which a folder has finished cells.
typedef struct found {
    char *configuration;
    int64_t cells;
} found;

// The configurations of the finished cells in a folder, in a fixed order (stb_ds array, configurations to be freed).
found *configurations_find(const char *folder);
// How another configuration differs from ours: "requests 201 (here 200)".
void differences_print(FILE *file, const char *other, const char *ours);

#endif  // SWEEP_CELLS_H
