// workload.c: a spec text becomes a stream of requests (see workload.h).
#define _POSIX_C_SOURCE 200809L
#include "workload.h"

// >>fit ----------------------------------------------------------------------------------------------------------
// Two published sources: Table 3 of the LLM-42 paper (mean, median and standard deviation of the datasets' input and
// output lengths), and the 4,096 pairs of each dataset that its evaluation served (Llama-3.1 tokenizer). For ShareGPT
// they differ: the served outputs are longer (mean 203 and median 132 against 192 and 118), the served inputs vary
// less. `arxiv` meets Table 3. `sharegpt` is within 5% of Table 3 and as near the served pairs as that allows, since
// the latencies of the paper's runs are those of the served pairs; `sharegpt-served` has the served pairs' own figures.
//
// - Each length has a quantile function that is linear in log(tokens) between knots at the shares below. The knots
//   start at the served pairs' quantiles and are moved to where mean, median and standard deviation (in closed form:
//   integrals of exponentials) are those wanted. Of all such moves this is the most probable one if the served pairs
//   are a sample of n: least squares under the covariance of sample quantiles, p (1 - r) / n times the slopes of
//   log(tokens) at the shares p <= r.
// - The end knots are the served extremes. The longest input of `sharegpt` alone is free to grow, by a standard
//   deviation of 0.5 in log(tokens): the variance that the served inputs lack must lie in a tail beyond them.
// - Joint: octiles of the served inputs (rows) against octiles of the served outputs, ties broken at random, counts of
//   4,096 pairs. Rows and columns sum to 512, so each length keeps its distribution; in a cell the two are independent.
//   One correlation would not do: ShareGPT's outputs are longest for short prompts and shortest for middling ones.
//
// 1,000,000 requests of seed 42 beside both sources:
//                                mean  median   std   p75   p90   p95   p99  p99.9   max
//   ShareGPT in   sharegpt        307     131   473   433   761   930  2336   4101  7814
//                 Table 3         304     136   491
//                 sharegpt-served 307     131   463   435   762   939  2342   3970  5766
//                 served pairs    307     132   461   427   766   967  2362   3598  5766
//            out  sharegpt        200     123   219   315   504   652   772   1512  1835
//                 Table 3         192     118   212
//                 sharegpt-served 203     132   219   318   505   652   772   1506  1835
//                 served pairs    203     132   219   316   506   656   773   1547  1835
//   ArXiv    in   arxiv          7014    6424  3482  9299 12103 13689 15450  16099 16137
//                 Table 3        7017    6435  3479
//                 served pairs   7063    6504  3472  9349 12160 13736 15470  16096 16137
//            out  arxiv           198     191    74   248   303   328   373    432   595
//                 Table 3         198     191    74
//                 served pairs    199     192    74   250   304   329   376    440   595
// Rank correlation (Spearman's) of input and output: ShareGPT -0.33 (served -0.32), ArXiv 0.23 (0.24). Not matched: the
// served ArXiv pairs have at most 16,384 tokens in and out together, pairs here up to 16,732 (see workload_clip).
static const double workload__share[WORKLOAD_KNOTS] = {0,   0.01, 0.05, 0.1,  0.2,  0.3,  0.4,   0.5,   0.6,
                                                       0.7, 0.8,  0.9,  0.95, 0.97, 0.99, 0.995, 0.999, 1};
#define WORKLOAD__SHAREGPT_JOINT                                                                                       \
    {                                                                                                                  \
        {43, 19, 49, 85, 95, 118, 62, 41}, {8, 13, 33, 72, 97, 105, 108, 76}, {11, 15, 37, 65, 82, 94, 115, 93},       \
            {31, 26, 39, 67, 75, 74, 95, 105}, {89, 109, 82, 46, 45, 44, 43, 54}, {105, 136, 110, 57, 27, 18, 32, 27}, \
            {108, 130, 106, 52, 24, 27, 15, 50}, {                                                                     \
            117, 64, 56, 68, 67, 32, 42, 66                                                                            \
        }                                                                                                              \
    }

static const struct workload__fit {
    const char *name;
    double in[WORKLOAD_KNOTS], out[WORKLOAD_KNOTS];  // tokens
    uint8_t joint[WORKLOAD_CELLS][WORKLOAD_CELLS];
} workload__fits[] = {
    {"sharegpt",
     {2, 2, 7, 11, 17, 27.9, 57.6, 132, 258, 363.8, 516.9, 761.4, 927.3, 1391.8, 2323, 2856.7, 3966.6, 7814.5},
     {2, 2, 5.8, 9.9, 16.5, 30.6, 62.5, 122.7, 198.4, 276.5, 358.8, 502.4, 650, 760.4, 772.3, 912.1, 1503.5, 1835},
     WORKLOAD__SHAREGPT_JOINT},
    {"sharegpt-served",
     {2, 2, 7, 11, 17, 27.9, 57.7, 132, 258.6, 364.8, 518.9, 762.5, 936.2, 1404.6, 2328.6, 2858.4, 3894.1, 5766},
     {2, 2, 6, 10, 17.1, 32.1, 67.2, 132, 205, 280.8, 361.3, 503.6, 649.7, 760.1, 772.2, 905.4, 1497.4, 1835},
     WORKLOAD__SHAREGPT_JOINT},
    {"arxiv",
     {178, 1062.7, 2118.1, 2928, 4061.6, 4870.1, 5598.3, 6435, 7432.9, 8603.1, 10054.7, 12105.8, 13682.6, 14460.1,
      15439.1, 15840, 16096.7, 16137},
     {51, 65.6, 89.4, 107.4, 131, 152.6, 171.9, 191, 211.1, 234, 263.8, 302.8, 327.6, 340.2, 373.1, 391.1, 429.9, 595},
     {{136, 79, 76, 60, 40, 45, 47, 29},
      {82, 73, 66, 70, 69, 53, 47, 52},
      {72, 83, 66, 63, 67, 55, 59, 47},
      {70, 64, 63, 74, 61, 69, 55, 56},
      {45, 60, 67, 80, 69, 65, 68, 58},
      {45, 57, 65, 56, 66, 69, 70, 84},
      {36, 46, 51, 61, 75, 80, 76, 87},
      {26, 50, 58, 48, 65, 76, 90, 99}}},
};

// The length that a share u in [0, 1] of the requests does not exceed.
static int workload__quantile(const double *log_knot, double u) {
    int k = 0;
    while (k < WORKLOAD_KNOTS - 2 && u >= workload__share[k + 1]) k++;
    double t = (u - workload__share[k]) / (workload__share[k + 1] - workload__share[k]);
    return (int)(llm42_exp64(log_knot[k] + t * (log_knot[k + 1] - log_knot[k])) + 0.5);
}

static void workload__draw(const workload *w, int64_t index, int *input, int *output) {
    uint64_t h1 = llm42_hash(w->length_key ^ (uint64_t)index), h2 = llm42_hash(h1), h3 = llm42_hash(h2);
    double u = llm42_uniform(h1);
    const uint8_t *row = w->joint[(int)(u * WORKLOAD_CELLS)];
    int pick = (int)(h2 % 512), column = 0;
    while (pick >= row[column]) pick -= row[column++];
    *input = workload__quantile(w->log_in, u);
    *output = workload__quantile(w->log_out, (column + llm42_uniform(h3)) / WORKLOAD_CELLS);
}

// >>read ---------------------------------------------------------------------------------------------------------
typedef struct workload__format {
    const char *prefix;   // of the spec
    char separator;       // of columns; 0: JSON objects
    const char *name[3];  // of input tokens, output tokens and time, as the file calls them
    enum { SECONDS, MILLISECONDS, DATE } time;
    bool untimed;  // the file may have no times
} workload__format;

static const workload__format workload__formats[] = {
    {"lengths:", '\t', {"input_len", "output_len", "arrival_s"}, SECONDS, true},
    {"azure:", ',', {"ContextTokens", "GeneratedTokens", "TIMESTAMP"}, DATE, false},
    {"mooncake:", 0, {"input_length", "output_length", "timestamp"}, MILLISECONDS, false},
};

typedef struct workload__reader {
    const workload__format *format;
    workload *w;
    llm42_error *error;
    const char *path;
    char *file;                  // the whole text
    size_t file_size, at;        // at: where the next line begins
    const char *text;            // the line read last, without its end
    int size;                    // of text
    int64_t number;              // of that line, from 1
    char place[400];             // "FILE:LINE"
    jsmntok_t *token;            // of the line, where lines are JSON: a stb_ds array
    int64_t first, before, now;  // nanoseconds: the first request's time, the one before's, this one's
} workload__reader;

// False at the end of the file. Passes over blank lines and comments.
static bool workload__line_next(workload__reader *in) {
    while (in->at < in->file_size) {
        const char *begin = in->file + in->at, *newline = memchr(begin, '\n', in->file_size - in->at);
        const char *end = newline ? newline : in->file + in->file_size;
        in->at = (size_t)(end - in->file) + 1;
        in->number++;
        while (begin < end && (end[-1] == '\r' || end[-1] == ' ')) end--;
        if (begin == end || *begin == '#') continue;
        in->text = begin;
        in->size = (int)(end - begin);
        snprintf(in->place, sizeof in->place, "%s:%" PRId64, in->path, in->number);
        return true;
    }
    return false;
}

static llm42_result workload__bad(const workload__reader *in, const char *name, const char *text, int size,
                                  const char *wanted) {
    return llm42_fail(in->error, LLM42_FORMAT, "%s: %s: '%.*s' is not %s", in->place, name, size < 40 ? size : 40, text,
                      wanted);
}

// A number in [low, high]; does not follow the locale. NaN and infinity are none.
static bool workload__real(const char *text, int size, double low, double high, double *value) {
    return llm42_number(text, text + size, value) && *value >= low && *value <= high;
}

static bool workload__whole(const char *text, int size, double low, double high, double *value) {
    return workload__real(text, size, low, high, value) && *value == (double)(int64_t)*value;
}

// "2023-11-16 18:15:46.6805900" as nanoseconds since 1970. Also with a T between day and time; there may be up to nine
// decimals, and Z or +00:00 behind them.
static bool workload__time(const char *text, int size, int64_t *nanoseconds) {
    static const int8_t days_of[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    char copy[40];
    int year, month, day, hour, minute, second, at = 0;
    char between;
    int64_t fraction = 0, unit = 1000000000;
    snprintf(copy, sizeof copy, "%.*s", size, text);
    if (sscanf(copy, "%4d-%2d-%2d%c%2d:%2d:%2d%n", &year, &month, &day, &between, &hour, &minute, &second, &at) != 7 ||
        (between != ' ' && between != 'T'))
        return false;
    if (copy[at] == '.')
        for (at++; copy[at] >= '0' && copy[at] <= '9' && unit > 1; at++) fraction += (copy[at] - '0') * (unit /= 10);
    const bool universal = !copy[at] || !strcmp(copy + at, "Z") || !strcmp(copy + at, "+00:00");
    if (!universal || year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > days_of[month - 1] ||
        hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59)
        return false;
    // Years taken from March end with the leap day, and their months repeat 31 30 31 30 31 days, 153 in five.
    int64_t y = year - (month < 3), m = (month + 9) % 12;
    int64_t days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719469;
    *nanoseconds = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000000000 + fraction;
    return true;
}

// Takes the value of format->name[c].
static llm42_result workload__value(workload__reader *in, int c, const char *text, int size, workload__line *line) {
    double value = 0;
    const char *name = in->format->name[c];
    if (c == 2 && in->format->time == DATE) {
        if (!workload__time(text, size, &in->now))
            return workload__bad(in, name, text, size, "a time such as 2023-11-16 18:15:46.6805900");
    } else if (c == 2) {
        const bool seconds = in->format->time == SECONDS;
        if (!workload__real(text, size, 0, seconds ? 1e9 : 1e12, &value))
            return workload__bad(in, name, text, size,
                                 seconds ? "a time in seconds from 0 to 1e9" : "a time in milliseconds from 0 to 1e12");
        in->now = (int64_t)(value * (seconds ? 1e9 : 1e6) + 0.5);
    } else {
        if (!workload__whole(text, size, 0, WORKLOAD_LONGEST, &value))
            return workload__bad(in, name, text, size, "a whole number of tokens from 0 to 10000000");
        *(c ? &line->output : &line->input) = (int)value;
    }
    return LLM42_OK;
}

static llm42_result workload__add(workload__reader *in, workload__line *line) {
    if (arrlen(in->w->line) == 0) in->first = in->before = in->now;
    if (in->now < in->before)
        return llm42_fail(in->error, LLM42_FORMAT,
                          "%s: %s: earlier than that of the request before: sort the trace by"
                          " time",
                          in->place, in->format->name[2]);
    in->before = in->now;
    if (!line->input || !line->output) in->w->empty++;
    if (!line->input) line->input = 1;
    if (!line->output) line->output = 1;
    line->arrival_s = (double)(in->now - in->first) / 1e9;
    arrput(in->w->line, *line);
    return LLM42_OK;
}

// The index-th field of the line, without spaces around it; false when the line has fewer.
static bool workload__field(const workload__reader *in, int index, const char **text, int *size) {
    const char *begin = in->text, *last = in->text + in->size, *end;
    while ((end = memchr(begin, in->format->separator, (size_t)(last - begin))) && index > 0) begin = end + 1, index--;
    if (index > 0) return false;
    if (!end) end = last;
    while (begin < end && *begin == ' ') begin++;
    while (begin < end && end[-1] == ' ') end--;
    *text = begin;
    *size = (int)(end - begin);
    return true;
}

static llm42_result workload__read_table(workload__reader *in) {
    const char *const *name = in->format->name, *text;
    int column[3] = {-1, -1, -1}, columns = 3, size;
    if (!workload__line_next(in)) return LLM42_OK;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; workload__field(in, i, &text, &size); i++) {
            if ((size_t)size != strlen(name[c]) || memcmp(text, name[c], (size_t)size)) continue;
            if (column[c] >= 0)
                return llm42_fail(in->error, LLM42_FORMAT, "%s: column %s is there twice", in->place, name[c]);
            column[c] = i;
        }
        if (column[c] < 0 && c == 2 && in->format->untimed) columns = 2;
        else if (column[c] < 0)
            return llm42_fail(in->error, LLM42_FORMAT, "%s: the header line has no column %s", in->place, name[c]);
    }
    in->w->timed = columns == 3;
    while (workload__line_next(in)) {
        workload__line line = {0};
        for (int c = 0; c < columns; c++) {
            if (!workload__field(in, column[c], &text, &size))
                return llm42_fail(in->error, LLM42_FORMAT, "%s: column %s is missing", in->place, name[c]);
            TRY(workload__value(in, c, text, size, &line));
        }
        TRY(workload__add(in, &line));
    }
    return LLM42_OK;
}

// >>json ---------------------------------------------------------------------------------------------------------
// Splits the line into tokens. jsmn takes quadratic time for deep nesting, which no trace has.
static llm42_result workload__parse(workload__reader *in) {
    enum { DEEPEST = 100 };
    jsmn_parser parser;
    int depth = 0, count;
    for (int i = 0; i < in->size; i++) {
        depth += (in->text[i] == '{' || in->text[i] == '[') - (in->text[i] == '}' || in->text[i] == ']');
        if (depth > DEEPEST)
            return llm42_fail(in->error, LLM42_FORMAT, "%s: malformed JSON: nested more than %d deep", in->place,
                              DEEPEST);
    }
    jsmn_init(&parser);
    count = jsmn_parse(&parser, in->text, (size_t)in->size, NULL, 0);
    if (count > 0) {
        arrsetlen(in->token, count);
        jsmn_init(&parser);
        count = jsmn_parse(&parser, in->text, (size_t)in->size, in->token, (unsigned)count);
    }
    if (count <= 0) return llm42_fail(in->error, LLM42_FORMAT, "%s: malformed JSON", in->place);
    arrsetlen(in->token, count);
    return LLM42_OK;
}

// The token behind a token and all that it holds.
static const jsmntok_t *workload__behind(const workload__reader *in, const jsmntok_t *t) {
    const jsmntok_t *end = in->token + arrlen(in->token), *next = t + 1;
    while (next < end && next->start < t->end) next++;
    return next;
}

// The value of a key of the line's object; NULL, with the error set, when there is none, or two.
static const jsmntok_t *workload__member(const workload__reader *in, const char *key) {
    const jsmntok_t *end = in->token + arrlen(in->token), *value = NULL;
    bool twice = false;
    for (const jsmntok_t *t = in->token + 1; t + 1 < end; t = workload__behind(in, t + 1)) {
        size_t size = (size_t)(t->end - t->start);
        if (t->type != JSMN_STRING || size != strlen(key) || memcmp(in->text + t->start, key, size)) continue;
        twice |= value != NULL, value = t + 1;
    }
    if (value && !twice) return value;
    llm42_fail(in->error, LLM42_FORMAT, "%s: %s is %s", in->place, key, twice ? "there twice" : "missing");
    return NULL;
}

static llm42_result workload__read_blocks(workload__reader *in, workload__line *line) {
    const jsmntok_t *list = workload__member(in, "hash_ids"), *end = in->token + arrlen(in->token);
    if (!list) return LLM42_FORMAT;
    if (list->type != JSMN_ARRAY)
        return workload__bad(in, "hash_ids", in->text + list->start, list->end - list->start, "a list of block ids");
    line->first_block = arrlen(in->w->block);
    for (const jsmntok_t *t = list + 1; t < end && t->start < list->end; t++) {
        double id;
        const char *text = in->text + t->start;
        int size = t->end - t->start;
        if (!workload__whole(text, size, 0, 1e15, &id))
            return workload__bad(in, "hash_ids", text, size, "a whole number from 0 to 1e15");
        arrput(in->w->block, (int64_t)id);
        line->block_count++;
    }
    // An empty prompt has no block, and is taken as one token.
    if ((int64_t)line->block_count * WORKLOAD_BLOCK >= line->input || line->input <= 1) return LLM42_OK;
    return llm42_fail(in->error, LLM42_FORMAT, "%s: hash_ids: %d blocks of %d tokens are too few for %d input tokens",
                      in->place, line->block_count, WORKLOAD_BLOCK, line->input);
}

static llm42_result workload__read_object(workload__reader *in) {
    workload__line line = {0};
    TRY(workload__parse(in));
    if (in->token[0].type != JSMN_OBJECT || workload__behind(in, in->token) != in->token + arrlen(in->token))
        return llm42_fail(in->error, LLM42_FORMAT, "%s: expected one JSON object a line", in->place);
    for (int c = 0; c < 3; c++) {
        const jsmntok_t *t = workload__member(in, in->format->name[c]);
        if (!t) return LLM42_FORMAT;
        TRY(workload__value(in, c, in->text + t->start, t->end - t->start, &line));
    }
    TRY(workload__read_blocks(in, &line));
    return workload__add(in, &line);
}

static llm42_result workload__read_objects(workload__reader *in) {
    in->w->timed = true;
    while (workload__line_next(in)) TRY(workload__read_object(in));
    return LLM42_OK;
}

// >>open ---------------------------------------------------------------------------------------------------------
static llm42_result workload__open_file(workload *w, const char *spec, llm42_error *error) {
    workload__reader in = {.w = w, .error = error};
    for (size_t i = 0; i < sizeof workload__formats / sizeof *workload__formats; i++)
        if (!strncmp(spec, workload__formats[i].prefix, strlen(workload__formats[i].prefix)))
            in.format = &workload__formats[i];
    if (!in.format)
        return llm42_fail(error, LLM42_INVALID,
                          "workload: '%.80s' is unknown: take sharegpt, sharegpt-served, arxiv, fixed:IxO,"
                          " uniform:IxO, sglang:IxOxN, lengths:FILE, azure:FILE or mooncake:FILE",
                          spec);
    in.path = spec + strlen(in.format->prefix);
    if (!*in.path) return llm42_fail(error, LLM42_INVALID, "workload: '%s' names no file", spec);
    TRY(file_read(in.path, &in.file, &in.file_size, error));
    if (in.file_size >= 3 && !memcmp(in.file, "\xef\xbb\xbf", 3)) in.at = 3;  // a byte order mark, as Excel writes it
    llm42_result result = LLM42_OK;
    if (!in.file_size) result = llm42_fail(error, LLM42_FORMAT, "%s: the file is empty", in.path);
    else if (!memcmp(in.file, "\xff\xfe", 2) || !memcmp(in.file, "\xfe\xff", 2))
        result = llm42_fail(error, LLM42_FORMAT, "%s: begins with a byte order mark (BOM) of UTF-16: save it as UTF-8",
                            in.path);
    else result = in.format->separator ? workload__read_table(&in) : workload__read_objects(&in);
    free(in.file);
    arrfree(in.token);
    if (result || arrlen(w->line)) return result;
    return llm42_fail(error, LLM42_FORMAT, "%s: the trace has no requests", in.path);
}

// fixed:IxO, uniform:IxO and sglang:IxOxN. COUNT numbers go into value.
static llm42_result workload__sizes(const char *spec, const char *wanted, int count, double *value,
                                    llm42_error *error) {
    const char *text = strchr(spec, ':') + 1;
    for (int i = 0; i < count; i++) {
        const char *end = i + 1 < count ? strchr(text, 'x') : text + strlen(text);
        if (!end || !workload__whole(text, (int)(end - text), 1, WORKLOAD_LONGEST, &value[i]))
            return llm42_fail(error, LLM42_INVALID, "workload: '%.80s': expected %s, each from 1 to 10000000", spec,
                              wanted);
        text = end + 1;
    }
    return LLM42_OK;
}

// The generator behind numpy.random.seed: MT19937 (Matsumoto and Nishimura, 1998).
typedef struct workload__twister {
    uint32_t state[624];
    int next;
} workload__twister;

static void workload__twister_seed(workload__twister *t, uint32_t seed) {
    t->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++) t->state[i] = 1812433253u * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + i;
    t->next = 624;
}

static uint32_t workload__twister_draw(workload__twister *t) {
    if (t->next == 624) {
        for (int i = 0; i < 624; i++) {
            uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);
            t->state[i] = t->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->next = 0;
    }
    uint32_t y = t->state[t->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

// numpy.random.randint(low, high + 1): draws of as many bits as the span has, until one is in range.
static int workload__twister_range(workload__twister *t, int low, int high) {
    uint32_t span = (uint32_t)(high - low), mask = span, draw;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    do draw = span ? workload__twister_draw(t) & mask : 0;
    while (draw > span);
    return low + (int)draw;
}

// The lengths that SGLang's benchmark draws for its random data set with range ratio 0: all inputs from 1 to I, then
// all outputs from 0 to O. They depend on N and the seed, and are the paper's where these are.
static llm42_result workload__open_sglang(workload *w, const char *spec, uint64_t seed, llm42_error *error) {
    double size[3];
    TRY(workload__sizes(spec, "sglang:IxOxN, I input and O output tokens at most and N requests", 3, size, error));
    if (seed > UINT32_MAX)  // numpy takes no more
        return llm42_fail(error, LLM42_INVALID, "workload: '%.80s': seed %llu: must be below 2^32", spec,
                          (unsigned long long)seed);
    w->drawn_in = (int)size[0];
    w->drawn_out = (int)size[1];
    workload__twister t;
    workload__twister_seed(&t, (uint32_t)seed);
    for (int i = 0; i < (int)size[2]; i++)
        arrput(w->line, ((workload__line){.input = workload__twister_range(&t, 1, (int)size[0])}));
    for (int i = 0; i < (int)size[2]; i++) {
        int output = workload__twister_range(&t, 0, (int)size[1]);
        w->line[i].output = output ? output : 1;
    }
    return LLM42_OK;
}

static llm42_result workload__open_fixed(workload *w, const char *spec, llm42_error *error) {
    double size[2];
    const char *wanted = w->uniform ? "uniform:IxO, I input and O output tokens at most"
                                    : "fixed:IxO, I input and O output tokens";
    TRY(workload__sizes(spec, wanted, 2, size, error));
    arrput(w->line, ((workload__line){.input = (int)size[0], .output = (int)size[1]}));
    return LLM42_OK;
}

static llm42_result workload__open_lengths(workload *w, const char *spec, uint64_t seed, llm42_error *error) {
    if (!strncmp(spec, "sglang:", 7)) return workload__open_sglang(w, spec, seed, error);
    w->uniform = !strncmp(spec, "uniform:", 8);
    if (!strncmp(spec, "fixed:", 6) || w->uniform) return workload__open_fixed(w, spec, error);
    for (size_t i = 0; i < sizeof workload__fits / sizeof *workload__fits; i++) {
        const struct workload__fit *fit = &workload__fits[i];
        if (strcmp(spec, fit->name)) continue;
        w->joint = fit->joint;
        for (int k = 0; k < WORKLOAD_KNOTS; k++) {
            w->log_in[k] = llm42_log64(fit->in[k]);
            w->log_out[k] = llm42_log64(fit->out[k]);
        }
        return LLM42_OK;
    }
    return workload__open_file(w, spec, error);
}

static llm42_result workload__open_arrivals(workload *w, const char *spec, const char *qps, llm42_error *error) {
    bool offline = !strcmp(qps, "offline"), trace = !strcmp(qps, "trace");
    w->arrivals = offline ? WORKLOAD_OFFLINE : trace ? WORKLOAD_TRACE : WORKLOAD_POISSON;
    if (offline || (trace && w->timed)) return LLM42_OK;
    if (trace)
        return llm42_fail(error, LLM42_INVALID,
                          "qps: trace: workload %.80s has no arrivals of its own (azure:FILE and"
                          " mooncake:FILE have, and lengths:FILE with a column arrival_s)",
                          spec);
    if (workload__real(qps, (int)strlen(qps), 1e-6, 1e9, &w->qps)) return LLM42_OK;
    return llm42_fail(error, LLM42_INVALID,
                      "qps: '%.40s' is neither a number of requests a second from 1e-6 to 1e9"
                      " nor offline nor trace",
                      qps);
}

const char *workload_path(const char *spec) {
    for (size_t i = 0; i < sizeof workload__formats / sizeof *workload__formats; i++) {
        size_t length = strlen(workload__formats[i].prefix);
        if (!strncmp(spec, workload__formats[i].prefix, length)) return spec + length;
    }
    return NULL;
}

// >>use ----------------------------------------------------------------------------------------------------------
void workload_close(workload *w) {
    arrfree(w->line);
    arrfree(w->block);
    *w = (workload){0};
}

llm42_result workload_open(workload *w, const char *spec, const char *qps, uint64_t seed, llm42_error *error) {
    uint64_t key = llm42_hash(seed);
    *w = (workload){0};
    w->length_key = llm42_hash(key + 1);
    w->gap_key = llm42_hash(key + 2);
    w->token_key = llm42_hash(key + 3);
    llm42_result result = workload__open_lengths(w, spec, seed, error);
    if (!result) result = workload__open_arrivals(w, spec, qps, error);
    if (result) workload_close(w);
    return result;
}

llm42_result workload_clip(workload *w, int max_context, llm42_error *error) {
    if (max_context < 2) return llm42_fail(error, LLM42_INVALID, "max_context: %d: must be at least 2", max_context);
    w->max_context = max_context;
    return LLM42_OK;
}

llm42_result workload_speed(workload *w, double speed, llm42_error *error) {
    if (!(speed >= 1e-6 && speed <= 1e6))
        return llm42_fail(error, LLM42_INVALID, "speed: %g: must be from 1e-6 to 1e6", speed);
    w->speed = speed;
    return LLM42_OK;
}

static void workload__fit_context(const workload *w, int *input, int *output) {
    if (!w->max_context || *input + *output <= w->max_context) return;
    if (*output >= w->max_context) *output = w->max_context - 1;
    *input = w->max_context - *output;
}

int workload_max_tokens(const workload *w) {
    int most = 0;
    bool bounded = w->joint || w->drawn_in;  // whatever the seed
    for (int64_t i = 0; i < (bounded ? 1 : arrlen(w->line)); i++) {
        int input = w->joint ? workload__quantile(w->log_in, 1) : w->drawn_in ? w->drawn_in : w->line[i].input;
        int output = w->joint ? workload__quantile(w->log_out, 1) : w->drawn_in ? w->drawn_out : w->line[i].output;
        workload__fit_context(w, &input, &output);
        if (input + output > most) most = input + output;
    }
    return most;
}

void workload_next(workload *w, workload_request *r) {
    int64_t index = w->next++, count = arrlen(w->line);
    *r = (workload_request){.index = index};
    if (w->joint) {
        workload__draw(w, index, &r->input_tokens, &r->output_tokens);
    } else {
        const workload__line *line = &w->line[index % count];
        uint64_t h = llm42_hash(w->length_key ^ (uint64_t)index);
        r->input_tokens = w->uniform ? 1 + (int)(llm42_uniform(h) * line->input) : line->input;
        r->output_tokens = w->uniform ? 1 + (int)(llm42_uniform(llm42_hash(h)) * line->output) : line->output;
        r->block = line->block_count ? w->block + line->first_block : NULL;
        r->block_count = line->block_count;
        r->cycle = index / count;
        r->arrival_s = line->arrival_s + (double)r->cycle * w->line[count - 1].arrival_s;
    }
    if (w->arrivals == WORKLOAD_POISSON && index > 0)
        w->clock_s -= llm42_log64(1 - llm42_uniform(llm42_hash(w->gap_key ^ (uint64_t)index))) / w->qps;
    if (w->speed > 0) r->arrival_s /= w->speed;
    // Where a trace begins again, rounding can put an arrival a hair before the last one.
    if (w->arrivals == WORKLOAD_TRACE && r->arrival_s > w->clock_s) w->clock_s = r->arrival_s;
    r->arrival_s = w->clock_s;
    workload__fit_context(w, &r->input_tokens, &r->output_tokens);
}

void workload_rewind(workload *w) {
    w->next = 0;
    w->clock_s = 0;
}

void workload_prompt(const workload *w, const workload_request *r, int vocab, int32_t *tokens) {
    uint64_t own = llm42_hash(~w->token_key ^ (uint64_t)r->index);
    uint64_t cycle = llm42_hash(w->token_key + (uint64_t)r->cycle);
    for (int i = 0; i < r->input_tokens; i++) {
        int b = i / WORKLOAD_BLOCK;
        uint64_t key = b < r->block_count ? llm42_hash(cycle ^ (uint64_t)r->block[b]) : own;
        tokens[i] = (int32_t)(llm42_hash(key + (uint64_t)i) % (uint64_t)vocab);
    }
}

bool workload_is_deterministic(int64_t index, double ratio) {
    return floor((double)(index + 1) * ratio + 0.5) > floor((double)index * ratio + 0.5);
}
