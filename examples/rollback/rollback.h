// rollback.h: what the files of build/rollback share. A pass is never drawn from the engine but from the record of what
// the lecture demo has seen, so that the viewer can go back. Everything that changes carries the number of the pass
// that changed it; passes count from 1. Pointers marked [] are stb_ds arrays.
//
//     ../rollback.c    options, serving, what is recorded, the comparison at the end
//     record.c         the record, and its text as characters that have a look
//     screen.c         a pass on a terminal or in a log, and the keys
//     slides.c         the whole run as SVG or HTML
#ifndef ROLLBACK_H
#define ROLLBACK_H

#include "examples/lib/args.h"
#include "../util/llm42_trace.h"
#include "../util/llm42_transcript.h"
#include "../util/tokenizer.h"

enum { MAX_LANES = 16, TOKEN_COLUMNS = 24 };  // no token is wider where it stands alone
#define WORD_BEGINS "\u00b7"                  // instead of a token's leading space, where tokens stand alone
// How text looks. Looks differ by more than their colour, and brackets say most of it where there is none. The colours
// are one palette, on a terminal, in HTML and in SVG. People who see no red or green can tell them apart, and they can
// be read on black and on white.
#define LOOKS(X)                                                                      \
    X(PROMPT, "\033[2m", "", "", "prompt")                                            \
    X(ORDINARY, "", "", "", "ordinary")                                               \
    X(CANDIDATE, "\033[4;38;5;166m", "(", ")", "candidate")                           \
    X(COMMITTED, "\033[1;38;5;32m", "", "", "committed")                              \
    X(STRUCK, "\033[9;38;5;166m", "[-", "-]", "dropped")                              \
    X(VERDICT, "\033[7;1;38;5;29m", "{+", "+}", "verifier's own")                     \
    X(PLAIN, "", "", "", NULL)                                                        \
    X(STRONG, "\033[1m", "", "", NULL)                                                \
    X(FAINT, "\033[2m", "", "", NULL)                                                 \
    X(NAME, "\033[1;38;5;32m", "", "", NULL)       /* of a deterministic request */   \
    X(FAST_LETTER, "\033[38;5;166m", "", "", NULL) /* the letter of a kind of pass */ \
    X(REPLAY_LETTER, "\033[1;38;5;32m", "", "", NULL)                                 \
    X(ROLLBACK_LETTER, "\033[7;1;38;5;166m", "", "", NULL)

typedef enum look {
#define LOOK_NAME(name, ansi, open, close, legend) name,
    LOOKS(LOOK_NAME)
#undef LOOK_NAME
} look;

typedef struct look_text {
    const char *name, *ansi, *open, *close, *legend;
} look_text;
extern const look_text LOOK[];  // by look

typedef struct pass_kind {
    char letter;
    look look;
    const char *legend;
} pass_kind;

// INVARIANT_PASS: without a window. PROMPT_PASS: deterministic prompts in a FIXED pass.
enum { FAST_PASS, INVARIANT_PASS, PROMPT_PASS, REPLAY_PASS, ROLLBACK_PASS, PASS_KINDS };
extern const pass_kind PASSES[PASS_KINDS];

// A token of a request's line. Nothing leaves the line: what was dropped stays, struck out.
typedef struct item {
    int32_t token;
    look look;  // at the end: of a candidate COMMITTED or STRUCK
    int index;  // among the output tokens; prompt: -1
    int born;
    int settled;  // when it was committed or dropped; 0: still a candidate
} item;

// A verification: a request's candidates beside the outputs of the replay pass. If `dropped` is not 0, it is a
// rollback: candidate[agreed] differs from output[agreed].
typedef struct window {
    int lane, pass, index;        // index of candidate[0] among the output tokens
    int agreed, dropped;          // candidates; of the dropped ones the first is the one that differs
    int32_t *candidate, *output;  // []; an output behind the candidates is the replay pass's own token
    float fast, replay;           // rollback: log-probability of the candidate less that of its replacement, by pass
    float step;                   // the distance of bf16 numbers as large as these two logits
    bool injected;                // the candidate was made wrong on purpose
    int state, *taken;            // positions that the state has taken in then; [] how often each candidate
} window;

typedef struct lane {
    char name[8];
    bool deterministic;
    int64_t id;
    int32_t *prompt;  // []
    item *items;      // []
    // Of the pass that is running:
    float *fast;      // [] ring x V: the logits that the latest candidates were drawn from, and
    int32_t *drawn;   // [] ring: what was drawn
    int32_t *output;  // []: what a replay pass gave in its place
    int *taken;       // [] by position: how often the state of recurrent layers has taken it in
    int state;        // positions that it has taken in
    bool disagrees;   // it found a candidate that differs, and `found` has fast, replay, step and injected
    window found;
} lane;

// A pass, and the counts after it.
typedef struct frame {
    int kind, windows;  // so many are in the record by then
    llm42_event event;
    llm42_stats stats;
} frame;

typedef struct demo {
    const char *model_path, *preset, *verifier, *verify, *prefill, *planner, *trace_path, *record_path, *html_path,
        *svg_path;
    llm42_engine_desc how;  // policies and planner
    int64_t window, group, requests, tokens, delay, seed, threads;
    int budget, longest;  // rows of a pass, tokens of a request, at most
    double inject;
    bool step, keep_fast_kv, keep_fast_state;  // the controls are in the run that is shown, not in the one beside it
    llm42_model *model;
    tok *tok;
    llm42_trace *trace;
    llm42_recorder *recorder;
    float *logits;  // of a pass
    int ring;
    // The record.
    llm42_event event;  // of the pass that is running
    lane lane[MAX_LANES];
    frame *frames;    // []
    window *windows;  // []
} demo;

// >>record -------------------------------------------------------------------------------------------------------
frame *frame_at(const demo *d, int pass);
int passes(const demo *d);
int first_window(const demo *d, int pass);
// Whether a kind of pass may be in a run with these policies.
bool may_occur(const demo *d, int kind);
look look_at(const item *i, int pass);
// Output tokens of a request that a pass released or dropped.
int count_settled(const lane *l, int pass, bool dropped);
// The rollback to show where there is room for one: the first that nothing injected, else the first; NULL: none.
const window *best_rollback(const demo *d);
const llm42_event *drawn_by(const demo *d, const window *w, int i);

// Passes, their rows, and the median of their times, because one time alone is noise. total: passes x median.
typedef struct cost {
    int passes, rows;
    double median, total;  // seconds; the median is 0 where kinds of passes are added
} cost;

// How the same requests came out alone. The first line counts deterministic ones, and their tokens.
typedef struct proof {
    int same, count, tokens, bits, returned;
    int drifted;  // of all, none marked
    cost all_fast, all_invariant;
} proof;

const char *no_rollback(const demo *d);

// >>text ---------------------------------------------------------------------------------------------------------
// A character that is safe on a terminal, in XML and in HTML, and the columns that it takes.
typedef struct cell {
    char text[5];
    signed char width;
    unsigned char look;
    bool glued;  // a space at which no line ends
} cell;

// Columns are counted by the C library, which knows characters in a UTF-8 locale only. Nothing else of the locale is
// used: numbers keep their point.
void text_open(void);
int columns_of(const cell *cells, int begin, int end);
int columns(const cell *cells);
__attribute__((format(printf, 3, 4))) void add(cell **cells, look look, const char *format, ...);
void add_cells(cell **cells, const cell *more, int begin, int end);
void add_tokens(cell **cells, const demo *d, look look, const int32_t *ids, int count);
// One token alone: its text, or its number if it has none. A long one loses its end.
void add_token(cell **cells, const demo *d, look look, int32_t id);
// A request's whole line as it stands after a pass.
cell *lane_text(const demo *d, const lane *l, int pass, bool color);

// Text that has been broken into lines: a stb_ds array of stb_ds arrays.
typedef cell **page;
void page_free(page *p);
bool is_break(const cell *c);
// Adds a paragraph in lines of at most `width` columns, all but the first indented by `hang`, and frees its text.
void add_paragraph(page *p, cell *cells, int width, int hang);
// Moves the lines from `first` on to another page.
void move_lines(page *to, page *from, int first);

// A verification as columns: a candidate, how it compares, the replay pass's output, and with recurrent layers how
// often the state has taken in the candidate.
typedef struct column {
    cell *candidate, *output;  // []; empty: there is none
    int taken;
    char mark;  // = equal, X differs, . behind one that differs, + the replay pass's own, else a space
    int width;
} column;

column *columns_of_window(const demo *d, const window *w);
void columns_free(column *all);
// What came of a verification.
cell *window_outcome(const demo *d, const window *w);
// Why a rollback happened. An injected candidate says nothing about the pass that drew it.
cell *rollback_reason(const demo *d, const window *w, bool in_full);
// What a rollback has to do with the state of recurrent layers.
cell *state_text(const window *w, bool in_full);
// Which passes drew the candidates up to the one that differs. The keys and values that they left are in all that came
// behind, so the first difference may be some tokens earlier.
cell *rows_text(const demo *d, const window *w);
// build/diff runs the same rows both ways. NULL: it cannot, because a replay pass has come between.
cell *diff_command(const demo *d, const window *w);

cell *candidates_text(const demo *d);
cell *committed_text(const demo *d);
// What these passes cost. Frees the array.
cost cost_of_passes(llm42_event *events);
cost cost_of_kinds(const demo *d, int first, int last);

// What the run cost, beside the two ways to serve the same requests without verification.
typedef struct cost_line {
    const char *name;
    cost cost;
} cost_line;

enum { COSTS = 7 };
// Returns how many lines there are.
int costs_of(const demo *d, const proof *p, cost_line to[COSTS]);
bool verifies(const demo *d);
bool controlled(const demo *d);  // the run that is shown is a control
// When verification takes less time than running all passes INVARIANT would.
cell *pays_text(const demo *d, const proof *p);
// What verification costs, and what it buys. Every number is of this run.
cell *price_text(const demo *d);

// >>screen -------------------------------------------------------------------------------------------------------
// STEP waits for a key after each pass, SEEK goes on to the next rollback, QUIET shows nothing until the summary.
typedef enum screen_mode { RUN, STEP, SEEK, QUIET } screen_mode;

typedef struct screen {
    bool terminal, live, color;  // live: drawn in place
    bool keys, piped_keys;       // there is someone, or something, to press them
    bool letter;                 // was the last piped key
    screen_mode mode;
    int at;           // the pass that is shown
    int width, rows;  // columns to use
    bool drawn, ended;
    int64_t delay;
} screen;

typedef enum key { KEY_NONE, KEY_NEXT, KEY_BACK, KEY_ROLLBACK, KEY_RUN, KEY_QUIT, KEY_END } key;
void stop_if_interrupted(const screen *s);
void screen_open(screen *s, bool step, int64_t delay);
void print_page(const screen *s, page *p, int indent);
// A paragraph of the summary.
void print_text(const screen *s, cell *text, int hang);
// A command, which a shell reads as one line. Lines end behind a space or a comma, unless there is none.
void print_command(const screen *s, cell *text);
__attribute__((format(printf, 4, 5))) void say(const screen *s, look look, int hang, const char *format, ...);
// The last `lines` lines of a request as it stands after a pass, or all if that is 0. A single line shows the last
// characters instead.
void add_lane(page *p, const demo *d, const screen *s, const lane *l, int pass, int lines);
// A verification as README.md draws it: candidates above the outputs of the replay pass. What is too long goes on
// below. If there are more than `most` lines, the stretch with the first difference is kept.
void add_window(page *p, const demo *d, const window *w, int width, int most);
// W, G and policies.
cell *policies_text(const demo *d);
// Shows a pass that has just been recorded, and older ones as long as the viewer pages through them.
void show(const demo *d, screen *s);
// After the last pass. Who looked for another rollback and found none may still go back.
void show_end(const demo *d, screen *s);

// >>slides -------------------------------------------------------------------------------------------------------
typedef struct slides {
    FILE *html, *svg;
} slides;

// Before the run, so that a name that cannot be written ends it at once.
void slides_open(slides *s, const demo *d);
void slides_finish(slides *s, const demo *d, const proof *p);

#endif  // ROLLBACK_H
