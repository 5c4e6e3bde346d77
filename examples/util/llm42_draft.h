// llm42_draft.h: three drafters (see llm42_drafter in llm42.h). None of them changes a result; they save passes.
//
//     #define LLM42_DRAFT_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_draft.h"             // it includes llm42.h
//
//     llm42_drafter drafter;
//     llm42_lookup_open(&drafter, &(llm42_lookup_desc){0}, &error);
//     desc.drafter = &drafter;             // llm42_engine_desc; the drafter must outlive the engine
//     ...
//     llm42_drafter_close(&drafter);       // when the engine is closed
//
// A drafter belongs to one engine.
#if defined(LLM42_DRAFT_IMPLEMENTATION) && defined(__cplusplus)
#error "llm42_draft.h: the implementation is C11: define LLM42_DRAFT_IMPLEMENTATION in a .c file"
#undef LLM42_DRAFT_IMPLEMENTATION
#elif defined(LLM42_DRAFT_IMPLEMENTATION) && !defined(LLM42_BASE)
#define LLM42_BASE  // memory and messages of llm42.h
#endif
#include "llm42.h"

#ifndef LLM42_DRAFT_H
#define LLM42_DRAFT_H

// lookup: texts repeat themselves. The drafter finds the longest end of the text (prompt and output) that occurs
// earlier in it too, and proposes what followed there; of several such places it takes the latest. A token costs
// constant time, amortised, whatever the length of the text, and about 200 bytes.
typedef struct llm42_lookup_desc {
    int min_match;  // tokens that must be equal before it proposes anything; default: 2
    bool always;    // propose as many tokens as the engine allows, whether they pay or not
} llm42_lookup_desc;
LLM42_API llm42_result llm42_lookup_open(llm42_drafter *drafter, const llm42_lookup_desc *desc, llm42_error *error);

// model: a small model with the same vocabulary continues the text, token by token, on a backend of its own. It draws
// with the request's own noise, so where the two models agree on the odds, they draw the same token, also at high
// temperatures. Requests are drafted together. A request that has no slot, or does not fit into the small model's
// context, gets no drafts.
typedef struct llm42_draft_model_desc {
    const llm42_model *model;      // required; must outlive the drafter
    const llm42_backend *backend;  // default: llm42_backend_cpu()
    const void *backend_desc;      // of the backend's own type; default: the backend's
    llm42_dtype compute;           // default: LLM42_DTYPE_BF16
    int vocab;                     // of the large model, to compare; 0: not compared
    int max_running;               // requests that have KV here; default: 32
    int max_context;               // tokens of a request; default: the model's, at most 8192
    bool always;                   // propose as many tokens as the engine allows, whether they pay or not
    bool other_noise;              // for experiments: draw with another seed than the request's
} llm42_draft_model_desc;
// Errors: INVALID (the vocabularies differ), MEMORY, those of the backend's open.
LLM42_API llm42_result llm42_draft_model_open(llm42_drafter *drafter, const llm42_draft_model_desc *desc,
                                              llm42_error *error);

// oracle: proposes the right token with a given probability, and else a wrong one. It measures what a rate of
// acceptance is worth on a model for which there is no drafter, and says nothing about real drafters.
typedef struct llm42_oracle_desc {
    // Required: the canonical token `at` (counted from 0) of a request's output; negative: it is not known.
    int32_t (*truth)(void *user, const llm42_request *request, int at);
    void *user;
    bool always;    // propose as many tokens as the engine allows, whether they pay or not
    double rate;    // 0 to 1; the probability that a draft is right
    double spread;  // requests differ: a request's rate is .rate to the power of a number with mean 1 and this
                    // standard deviation; default: 0
    uint64_t seed;  // of the tosses; default: 42
    int vocab;      // required, at least 2
    double request_us, token_us;  // time of drafting on a simulated clock: of a request, and in addition of each token
} llm42_oracle_desc;
LLM42_API llm42_result llm42_oracle_open(llm42_drafter *drafter, const llm42_oracle_desc *desc, llm42_error *error);

// Frees what a drafter has; *drafter is zero then. A drafter that is zero already is fine.
LLM42_API void llm42_drafter_close(llm42_drafter *drafter);

#endif  // LLM42_DRAFT_H

#if defined(LLM42_DRAFT_IMPLEMENTATION) && !defined(LLM42_DRAFT_IMPLEMENTED)
#define LLM42_DRAFT_IMPLEMENTED
#if defined(LLM42_FREE) && !defined(INCLUDE_STB_DS_H)
#define STBDS_REALLOC(context, pointer, size) LLM42_REALLOC(pointer, size)
#define STBDS_FREE(context, pointer) LLM42_FREE(pointer)
#endif
#include "stb_ds.h"

// hmgeti(map, key), for a key that has an address. The macro of stb_ds needs typeof, which C11 lacks. -1: not there.
#define LLM42__MAP_AT(map, place)                                                                                  \
    ((map) = stbds_hmget_key((map), sizeof *(map), (void *)(uintptr_t)(place), sizeof(map)->key, STBDS_HM_BINARY), \
     stbds_temp((map)-1))

// hmdel, likewise.
#define LLM42__MAP_DELETE(map, place) \
    ((map) = stbds_hmdel_key((map), sizeof *(map), (void *)(uintptr_t)(place), sizeof(map)->key, 0, STBDS_HM_BINARY))

static int32_t llm42__text_at(const llm42_request *r, int at) {
    return at < r->prompt_count ? r->prompt[at] : r->tokens[at - r->prompt_count];
}

// >>thrift -------------------------------------------------------------------------------------------------------
// How many drafts pay. Drafts are asked for that are right with at least a probability, the worth. It is chosen so that
// a round of passes is expected to give most tokens per second.
typedef struct llm42__odds {
    int64_t key;                // id of the request
    double right, wrong;        // how often its drafts were right lately: sums that fade
    int64_t drafted, accepted;  // of the request, when they were last looked at
} llm42__odds;

enum { LLM42__THRIFT_SIZES = 16, LLM42__THRIFT_ROUNDS = 4, LLM42__THRIFT_LONG = 8 };
typedef struct llm42__thrift {
    llm42_drafter drafter;  // whose drafts these are
    bool always;            // as many drafts as the engine allows
    bool dear;              // the first drafts of a request take the drafter long
    llm42__odds *odds;      // a map of stb_ds
    double right, wrong;    // of all requests
    double worth;           // the choice: the least probability, and the most drafts in all
    int limit, running;
    int64_t rounds, next;               // so far, and in which one the next choice is made
    double second;                      // tokens that a second is worth where prompts run; 0: not known, or none runs
    double price[LLM42__THRIFT_SIZES];  // tokens per second of rounds without prompts, by the logarithm of the batch
    int64_t seen[LLM42__THRIFT_SIZES];  // rounds for which a choice was made
    int tries[LLM42__THRIFT_SIZES];     // of those, with drafts whose time was not known
    int trying;                         // drafts in the try under way, in all; 0: there is none
    int64_t judged, judged_before;      // passes that judged drafts of a request: so far, and before this try
    int room;                           // of the arrays, all [room]
    double *chance;                     // that a draft of a running request is right if those before it are
    int *most, *drafts;                 // that it may have, and would have
} llm42__thrift;

static void llm42__thrift_forget(llm42__thrift *t, const llm42_request *r) {
    if (LLM42__MAP_AT(t->odds, &r->id) >= 0) LLM42__MAP_DELETE(t->odds, &r->id);
}

static void llm42__thrift_free(llm42__thrift *t) {
    hmfree(t->odds);
    llm42__free(t->chance), llm42__free(t->most), llm42__free(t->drafts);
}

static bool llm42__thrift_grow(llm42__thrift *t, int room) {
    if (room <= t->room) return true;
    llm42__free(t->chance), llm42__free(t->most), llm42__free(t->drafts);
    t->chance = llm42__alloc((size_t)room, sizeof *t->chance);
    t->most = llm42__alloc((size_t)room, sizeof *t->most);
    t->drafts = llm42__alloc((size_t)room, sizeof *t->drafts);
    t->room = t->chance && t->most && t->drafts ? room : 0;
    return t->room > 0;
}

// Takes what has become of a request's drafts since it was last looked at. Few of its own drafts count for little
// beside those of all requests, and these, when they are few or old, for little beside a guess. So what did not pay is
// tried again after a while.
static double llm42__thrift_chance(llm42__thrift *t, const llm42_request *r, bool asked) {
    const double guess = 0.7, few = 4, own = 6;
    ptrdiff_t at = LLM42__MAP_AT(t->odds, &r->id);
    if (at < 0) {
        llm42__odds first = {.key = r->id};
        hmputs(t->odds, first);
        at = LLM42__MAP_AT(t->odds, &r->id);
    }
    llm42__odds *o = &t->odds[at];
    const int64_t judged = r->drafted - o->drafted, right = r->accepted - o->accepted;
    if (judged) {
        t->judged++;
        o->right = 0.98 * o->right + (double)right, o->wrong = 0.98 * o->wrong + (right < judged);
        t->right = 0.995 * t->right + (double)right, t->wrong = 0.995 * t->wrong + (right < judged);
    } else if (asked) {
        o->right *= 0.99, o->wrong *= 0.99;
    }
    o->drafted = r->drafted, o->accepted = r->accepted;
    const double all = (t->right + few * guess) / (t->right + t->wrong + few);
    return (o->right + own * all) / (o->right + o->wrong + own);
}

static void llm42__thrift_add(llm42_mix *m, llm42_kind kind, int rows, double context) {
    if (!rows) return;
    m->context[kind] = (m->rows[kind] * m->context[kind] + rows * context) / (m->rows[kind] + rows);
    m->rows[kind] += rows;
}

static llm42_mix llm42__thrift_join(llm42_mix a, const llm42_mix *b) {
    for (int k = 0; k < LLM42_KIND_COUNT; k++) llm42__thrift_add(&a, (llm42_kind)k, b->rows[k], b->context[k]);
    a.windows += b->windows;
    return a;
}

// A FAST pass with prompts may never run, so that its time stays unknown: an INVARIANT one takes about as long.
static double llm42__thrift_pass(const llm42_view *v, llm42_schedule schedule, llm42_mix mix) {
    mix.schedule = schedule;
    const double seconds = v->seconds(v, &mix);
    mix.schedule = LLM42_SCHEDULE_INVARIANT;
    return seconds < 0 && schedule == LLM42_SCHEDULE_FAST ? v->seconds(v, &mix) : seconds;
}

// The seconds of passes in which DVR gives every request that decodes its rows once. own: rows of verified requests,
// which are decoded now and verified later, or have drafts and stand in replay passes of G windows. Negative: not
// known.
static double llm42__thrift_dvr(const llm42_view *v, llm42_mix ordinary, const llm42_mix *own) {
    const llm42_policy *p = &v->desc->policy;
    const int decode = own->rows[LLM42_KIND_DECODE], prompts = own->rows[LLM42_KIND_PROMPT];
    llm42__thrift_add(&ordinary, LLM42_KIND_DECODE, decode, own->context[LLM42_KIND_DECODE]);
    if (!own->windows) llm42__thrift_add(&ordinary, LLM42_KIND_PROMPT, prompts, own->context[LLM42_KIND_PROMPT]);
    const double fast = llm42__thrift_pass(v, LLM42_SCHEDULE_FAST, ordinary);
    if (fast < 0) return fast;
    if (!own->windows)
        return fast + (decode ? decode * v->verify_seconds(v, fast / ordinary.rows[LLM42_KIND_DECODE]) : 0);
    const int passes = (own->windows + p->group - 1) / p->group, all = own->rows[LLM42_KIND_WINDOW] / passes;
    llm42_mix replay = {.windows = own->windows / passes};
    llm42__thrift_add(&replay, LLM42_KIND_WINDOW, v->replay == LLM42_SCHEDULE_FIXED ? p->window * p->group : all,
                      own->context[LLM42_KIND_WINDOW]);
    llm42__thrift_add(&replay, LLM42_KIND_PROMPT, prompts / passes, own->context[LLM42_KIND_PROMPT]);
    const double verify = llm42__thrift_pass(v, v->replay, replay);
    return verify < 0 ? verify : passes * (verify + fast);  // they take turns
}

// The same of any mode, if running request i has drafts[i] drafts; with the prompts that run, or without.
static double llm42__thrift_round(const llm42_view *v, const int *drafts, bool prompts) {
    const llm42_mode mode = v->desc->policy.mode;
    llm42_mix ordinary = {0}, own = {0};
    int room = v->desc->token_budget;
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        llm42_mix *mix = r->verified ? &own : &ordinary;
        const int prompt = LLM42__MIN(room, r->prompt_count + r->committed - r->kv);
        if (prompts && r->state == LLM42_STATE_PREFILL && prompt > 0) {
            llm42__thrift_add(mix, LLM42_KIND_PROMPT, prompt, r->kv + 0.5 * prompt);
            room -= prompt;
        }
        if (r->state != LLM42_STATE_DECODE) continue;
        llm42__thrift_add(mix, drafts[i] ? LLM42_KIND_WINDOW : LLM42_KIND_DECODE, 1 + drafts[i],
                          r->kv + 1 + 0.5 * drafts[i]);
        mix->windows += drafts[i] > 0;
    }
    const llm42_mix both = llm42__thrift_join(ordinary, &own);
    if (mode == LLM42_MODE_NONDETERMINISTIC) return llm42__thrift_pass(v, LLM42_SCHEDULE_FAST, both);
    if (mode == LLM42_MODE_DVR) return llm42__thrift_dvr(v, ordinary, &own);
    const double together = llm42__thrift_pass(v, LLM42_SCHEDULE_INVARIANT, both);
    if (mode == LLM42_MODE_BATCH_INVARIANT || together < 0) return together;
    if (!own.windows) return LLM42__MIN(together, llm42__thrift_dvr(v, ordinary, &own));
    const double fast = llm42__thrift_pass(v, LLM42_SCHEDULE_FAST, ordinary),
                 invariant = llm42__thrift_pass(v, LLM42_SCHEDULE_INVARIANT, own);
    return fast < 0 || invariant < 0 ? -1 : LLM42__MIN(together, fast + invariant);
}

// The rows that a pass has left for drafts, beside a row for each request and the prompts. Where these fill it, a draft
// would take the place of a row that is of use for certain.
static int64_t llm42__thrift_room(const llm42_view *v) {
    const llm42_engine_desc *d = v->desc;
    const bool replayed = d->policy.mode == LLM42_MODE_DVR || d->policy.mode == LLM42_MODE_HYBRID;
    int64_t room = d->token_budget;
    if (replayed) room = LLM42__MAX(room, (int64_t)d->policy.window * d->policy.group);  // rows of a replay pass
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        room -= r->state == LLM42_STATE_PREFILL ? r->prompt_count + r->committed - r->kv : 1;
    }
    return room;
}

// Gives each request the drafts that are worth it, but not more than `most` in all. Returns the tokens that a round is
// then expected to give.
static double llm42__thrift_share(llm42__thrift *t, const llm42_view *v, double worth, int most) {
    double sum = 0;
    int64_t room = t->always ? INT64_MAX : LLM42__MIN(most, llm42__thrift_room(v));
    for (int i = 0; i < v->running_count; i++) {
        double right = t->chance[i];
        int n = 0;
        for (; n < t->most[i] && right >= worth && room > 0; n++, room--, right *= t->chance[i]) sum += right;
        t->drafts[i] = n;
        sum += v->running[i]->state == LLM42_STATE_DECODE;
    }
    return sum;
}

// Tokens per second of a round with these drafts or, where a second has a worth, the tokens that it gives beyond what
// its seconds are worth. INFINITY: the time is not known, and should be found out. Tokens count by 1 / gain.
static double llm42__thrift_value(llm42__thrift *t, const llm42_view *v, double worth, int most, double gain) {
    const double sum = llm42__thrift_share(t, v, worth, most) / gain;
    double seconds = llm42__thrift_round(v, t->drafts, true);
    const llm42_drafter *d = &t->drafter;
    int deepest = 0, requests = 0;
    if (seconds <= 0) return (double)INFINITY;
    for (int i = 0; i < v->running_count; i++)
        deepest = LLM42__MAX(deepest, t->drafts[i]), requests += t->drafts[i] > 0;
    if (requests && d->seconds) seconds += d->seconds(d->user, requests, deepest);
    return t->second > 0 ? sum - t->second * seconds : sum / seconds;
}

// Measured times are known only of what has run, and grow old. So for each size of batch a pass with drafts is tried
// after 4, 16, 64 and 256 choices, and then after each 256: first with some drafts in all, and then each time with
// twice as many, unless that would be far too slow. Returns how many may be proposed; 0: none is tried now. A drafter
// may have nothing to propose, so a try lasts until a pass has judged drafts.
static int llm42__thrift_try(llm42__thrift *t, const llm42_view *v, int size, double plain) {
    enum { FIRST = 4, SELDOM = 256 };
    if (t->trying && t->judged == t->judged_before) return t->trying;
    const int64_t seen = ++t->seen[size];
    const bool power = (seen & (seen - 1)) == 0 && seen % 3 == 1;  // of four
    t->trying = 0;
    if (!v->measured || seen < FIRST || (seen % SELDOM && !power) || !isfinite(plain)) return 0;
    const int tries = t->tries[size]++, most = (t->dear ? 8 : 16) << LLM42__MIN(tries, 12);
    if (tries && llm42__thrift_value(t, v, 0.1, most, 1) <= (t->dear ? 0.7 : 0.5) * plain) return 0;
    t->judged_before = t->judged;
    return t->trying = most;
}

// The least probability with which drafts pay. Drafts must promise 3% more than none (50% where mode DVR takes turns),
// so that errors of the estimates cost nothing. *most: how many may be proposed in all.
static double llm42__thrift_worth(llm42__thrift *t, const llm42_view *v, int *most) {
    int size = 0;
    bool prompts = false;
    while (size < LLM42__THRIFT_SIZES - 1 && v->running_count >> (size + 1)) size++;
    *most = INT32_MAX, t->second = 0;
    if (t->always) return 0;
    for (int i = 0; i < v->running_count; i++) prompts |= v->running[i]->state == LLM42_STATE_PREFILL;
    const double none = 2, plain = llm42__thrift_value(t, v, none, 0, 1);
    if ((*most = llm42__thrift_try(t, v, size, plain)) > 0) return 0.1;
    // Prompts take their time with drafts or without, so it must not make drafts look cheap. Drafts save rounds without
    // prompts, so a second is worth the tokens that such rounds have given lately, or would give without drafts.
    double best = none, *price = &t->price[size], rate = *price;
    if (rate <= 0) rate = llm42__thrift_share(t, v, none, 0) / llm42__thrift_round(v, t->drafts, false);
    if (prompts && (rate < 0 || rate > plain)) t->second = rate < 0 ? (double)INFINITY : rate;
    // The estimate knows too little of what drafts do to replay passes that take turns with FAST ones: windows with
    // drafts do not wait until G of them are ready.
    const bool turns = v->desc->policy.mode == LLM42_MODE_DVR &&
                       (v->replay == LLM42_SCHEDULE_FIXED || v->running_count > v->desc->policy.group);
    const double gain = turns ? 1.5 : 1.03;
    double value = llm42__thrift_value(t, v, none, 0, 1);
    *most = INT32_MAX;
    for (double worth = 0.9; worth > 0.04; worth -= worth > 0.15 ? 0.1 : 0.05) {
        const double its = llm42__thrift_value(t, v, worth, *most, gain);
        if (its > value) best = worth, value = its;
    }
    const double got = best < none ? gain * value : plain;
    if (!prompts && isfinite(got)) *price = *price > 0 ? 0.9 * *price + 0.1 * got : got;
    return best;
}

// Lowers the limits to what pays; 0: nothing. The drafts are of running requests, in the same order.
static llm42_result llm42__thrift_limit(llm42__thrift *t, const llm42_view *v, llm42_draft *draft, int count,
                                        llm42_error *error) {
    bool some = false;
    // On a real clock a choice holds for some rounds, because making it takes time that small models feel: for few of
    // them while drafts are proposed, and for more and more while none is.
    const bool holds = v->measured && t->rounds++ < t->next && t->running == v->running_count && t->limit == INT32_MAX;
    if (holds && t->worth > 1) {
        for (int i = 0; i < count; i++) draft[i].limit = 0;
        t->right *= 0.998, t->wrong *= 0.998;
        return LLM42_OK;
    }
    if (!llm42__thrift_grow(t, v->desc->max_running))
        return llm42_fail(error, LLM42_MEMORY, "drafter %s: out of memory", t->drafter.name);
    for (int i = 0, k = 0; i < v->running_count; i++) {
        const bool asked = k < count && draft[k].request == v->running[i];
        t->chance[i] = llm42__thrift_chance(t, v->running[i], asked);
        // One that is not asked about has drafts already.
        t->most[i] = asked ? draft[k++].limit : llm42_draft_room(v, v->running[i]);
    }
    if (!holds) {
        int64_t seen = 0;
        t->worth = llm42__thrift_worth(t, v, &t->limit);
        for (int i = 0; i < LLM42__THRIFT_SIZES; i++) seen += t->seen[i];
        t->next = t->rounds + (t->worth > 1 ? LLM42__MIN(seen, LLM42__THRIFT_LONG) : LLM42__THRIFT_ROUNDS) - 1;
    }
    t->running = v->running_count;
    llm42__thrift_share(t, v, t->worth, t->limit);
    for (int i = 0, k = 0; i < v->running_count && k < count; i++) {
        if (draft[k].request != v->running[i]) continue;
        some |= t->drafts[i] > 0;
        draft[k++].limit = t->drafts[i];
    }
    if (!some) t->right *= 0.998, t->wrong *= 0.998;
    return LLM42_OK;
}

// >>lookup -------------------------------------------------------------------------------------------------------
// A suffix automaton (Blumer et al., 1985) of the committed text. A state stands for all substrings that end at the
// same places; .length is that of the longest. .link is the state of its longest suffix that also ends elsewhere. So
// the link of the whole text's state is the longest end of the text that was there before.
typedef struct llm42__state {
    int length, link;
    int recent;     // a place where it ends, the latest one at which it was the longest repeated end
    int32_t token;  // of its first edge. Most states have no other
    int to;         // state that this edge leads to; 0: no edge
    int more;       // index of the newest of its other edges; -1 ends the list
} llm42__state;

typedef struct llm42__edge {
    int32_t token;
    int to, next;
} llm42__edge;

typedef struct llm42__edge_place {
    uint64_t key;  // state, then token
    int value;     // index of the edge
} llm42__edge_place;

typedef struct llm42__known {
    llm42__state *state;  // stb_ds arrays; state 0 is the empty text
    llm42__edge *edge;
    llm42__edge_place *find;  // the edges by state and token: a map of stb_ds
    int last, count;          // the state of the whole text, and its tokens
} llm42__known;

typedef struct llm42__known_place {
    int64_t key;  // id of a request
    llm42__known *value;
} llm42__known_place;

typedef struct llm42__lookup {
    llm42__thrift thrift;
    int min_match;
    llm42__known_place *requests;  // a map of stb_ds
} llm42__lookup;

// Where the edge of a state for a token leads to; NULL: there is none.
static int *llm42__edge_of(llm42__known *k, int state, int32_t token) {
    llm42__state *s = &k->state[state];
    if (s->to && s->token == token) return &s->to;
    if (s->more < 0) return NULL;
    const uint64_t key = (uint64_t)state << 32 | (uint32_t)token;
    const ptrdiff_t at = LLM42__MAP_AT(k->find, &key);
    return at < 0 ? NULL : &k->edge[k->find[at].value].to;
}

static void llm42__edge_add(llm42__known *k, int state, int32_t token, int to) {
    llm42__state *s = &k->state[state];
    if (!s->to) {
        s->token = token, s->to = to;
        return;
    }
    const llm42__edge edge = {token, to, s->more};
    llm42__edge_place place = {(uint64_t)state << 32 | (uint32_t)token, (int)arrlen(k->edge)};
    s->more = place.value;
    arrput(k->edge, edge);
    hmputs(k->find, place);
}

static int llm42__state_add(llm42__known *k, int length, int link, int recent) {
    const llm42__state state = {.length = length, .link = link, .recent = recent, .more = -1};
    arrput(k->state, state);
    return (int)arrlen(k->state) - 1;
}

static void llm42__known_add(llm42__known *k, int32_t token) {
    const int cur = llm42__state_add(k, k->count + 1, 0, k->count);
    int p = k->last, *to = NULL;
    if (k->count) k->state[k->state[k->last].link].recent = k->count - 1;
    for (; p >= 0 && !(to = llm42__edge_of(k, p, token)); p = k->state[p].link) llm42__edge_add(k, p, token, cur);
    if (p >= 0) {
        int q = *to;
        if (k->state[p].length + 1 != k->state[q].length) {  // q's longest substring is not the end of this text
            const int clone = llm42__state_add(k, k->state[p].length + 1, k->state[q].link, k->state[q].recent);
            llm42__edge_add(k, clone, k->state[q].token, k->state[q].to);
            for (int e = k->state[q].more; e >= 0; e = k->edge[e].next)
                llm42__edge_add(k, clone, k->edge[e].token, k->edge[e].to);
            for (; p >= 0 && (to = llm42__edge_of(k, p, token)) && *to == q; p = k->state[p].link) *to = clone;
            k->state[q].link = clone;
            q = clone;
        }
        k->state[cur].link = q;
    }
    k->last = cur;
    k->count++;
}

static llm42__known *llm42__known_of(llm42__lookup *lookup, int64_t id) {
    const ptrdiff_t at = LLM42__MAP_AT(lookup->requests, &id);
    if (at >= 0) return lookup->requests[at].value;
    llm42__known_place place = {id, llm42__alloc_zero(1, sizeof *place.value)};
    if (!place.value) return NULL;
    llm42__state_add(place.value, 0, -1, -1);
    hmputs(lookup->requests, place);
    return place.value;
}

static llm42_result llm42__lookup_draft(void *user, const llm42_view *view, llm42_draft *draft, int count,
                                        llm42_error *error) {
    llm42__lookup *lookup = user;
    LLM42__TRY(llm42__thrift_limit(&lookup->thrift, view, draft, count, error));
    for (int i = 0; i < count; i++) {
        llm42_draft *d = &draft[i];
        const llm42_request *r = d->request;
        const int final = r->prompt_count + r->committed, end = final + r->candidates;
        if (!d->limit) continue;  // its text is taken in when drafts are worth it
        llm42__known *k = llm42__known_of(lookup, r->id);
        if (!k) return llm42_fail(error, LLM42_MEMORY, "drafter lookup: out of memory");
        while (k->count < final) llm42__known_add(k, llm42__text_at(r, k->count));
        int state = k->state[k->last].link, match = k->state[state].length;
        for (int at = final; at < end; at++) {  // candidates may be dropped, so the automaton does not get them
            int *to;
            while (!(to = llm42__edge_of(k, state, llm42__text_at(r, at))) && state)
                match = k->state[state = k->state[state].link].length;
            if (to) state = *to, match++;
        }
        if (match < lookup->min_match) continue;
        for (int from = k->state[state].recent + 1; d->count < d->limit; from++)  // it may run into its own drafts
            d->token[d->count++] = from < end ? llm42__text_at(r, from) : d->token[from - end];
    }
    return LLM42_OK;
}

static void llm42__known_free(llm42__known *k) {
    arrfree(k->state);
    arrfree(k->edge);
    hmfree(k->find);
    llm42__free(k);
}

static void llm42__lookup_forget(void *user, const llm42_request *r) {
    llm42__lookup *lookup = user;
    llm42__thrift_forget(&lookup->thrift, r);
    const ptrdiff_t at = LLM42__MAP_AT(lookup->requests, &r->id);
    if (at < 0) return;
    llm42__known_free(lookup->requests[at].value);
    LLM42__MAP_DELETE(lookup->requests, &r->id);
}

static void llm42__lookup_close(llm42__lookup *lookup) {
    for (ptrdiff_t i = 0; i < hmlen(lookup->requests); i++) llm42__known_free(lookup->requests[i].value);
    hmfree(lookup->requests);
    llm42__thrift_free(&lookup->thrift);
    llm42__free(lookup);
}

llm42_result llm42_lookup_open(llm42_drafter *drafter, const llm42_lookup_desc *desc, llm42_error *error) {
    *drafter = (llm42_drafter){0};
    if (desc->min_match < 0)
        return llm42_fail(error, LLM42_INVALID, "llm42_lookup_desc.min_match: %d: must be 0 (default) or more",
                          desc->min_match);
    llm42__lookup *lookup = llm42__alloc_zero(1, sizeof *lookup);
    if (!lookup) return llm42_fail(error, LLM42_MEMORY, "llm42_lookup_open: out of memory");
    lookup->min_match = desc->min_match ? desc->min_match : 2;
    lookup->thrift.always = desc->always;
    *drafter = lookup->thrift.drafter = (llm42_drafter){
        .name = "lookup", .user = lookup, .draft = llm42__lookup_draft, .forget = llm42__lookup_forget};
    return LLM42_OK;
}

// >>model --------------------------------------------------------------------------------------------------------
enum { LLM42__DRAFT_PAGE = 16, LLM42__DRAFT_ROWS = 512 };

typedef struct llm42__drafted {
    int64_t id;          // of the request; 0: free
    int kv;              // its first positions have KV, of the tokens in .token
    int32_t *token;      // [max_context]
    llm42_draft *draft;  // under way; NULL: it is finished, or there is none
} llm42__drafted;

typedef struct llm42__draft_model {
    llm42__thrift thrift;
    llm42_draft_model_desc desc;
    void *state;            // the backend's
    int32_t *page, *token;  // [max_running][pages of a request], [max_running][max_context]
    llm42__drafted *slot;   // [max_running]
    llm42_seq *seq;         // [max_running]
    int rows;               // of a pass, at most
    llm42_row *row;         // [rows]
    llm42_output *out;      // [rows]
    double first, later;    // seconds of a call's first pass, and of each one after it, lately
    llm42__memory memory;
} llm42__draft_model;

// The slot of a request, or a free one. -1: there is none, or the text is too long.
static int llm42__draft_slot(llm42__draft_model *m, const llm42_draft *d) {
    const llm42_request *r = d->request;
    int slot = -1;
    if (r->prompt_count + r->committed + r->candidates + d->limit > m->desc.max_context) return -1;
    for (int i = 0; i < m->desc.max_running; i++) {
        if (m->slot[i].id == r->id) return i;
        if (!m->slot[i].id && slot < 0) slot = i;
    }
    if (slot < 0) return -1;
    m->slot[slot].id = r->id, m->slot[slot].kv = 0;
    m->seq[slot].sampling = r->sampling;
    if (m->desc.other_noise) m->seq[slot].sampling.seed = llm42_hash(r->sampling.seed);
    return slot;
}

// The tokens of a request behind its KV go into the next pass, drafts included. The output of the newest is a draft. A
// text may have changed since its KV was written, because candidates and drafts were dropped.
static int llm42__draft_rows(llm42__draft_model *m, int slot, int rows) {
    llm42__drafted *s = &m->slot[slot];
    const llm42_draft *d = s->draft;
    const llm42_request *r = d->request;
    const int text = r->prompt_count + r->committed + r->candidates, end = text + d->count;
    for (; s->kv < end && rows < m->rows; rows++, s->kv++) {
        s->token[s->kv] = s->kv < text ? llm42__text_at(r, s->kv) : d->token[s->kv - text];
        m->row[rows] = (llm42_row){slot, s->kv, s->token[s->kv], s->kv + 1 == end ? LLM42_ROW_SAMPLE : 0};
    }
    return rows;
}

// Takes the seconds of a pass into a mean of the latest ones.
static void llm42__model_note(double *mean, double seconds) { *mean += (*mean > 0 ? 0.1 : 1) * (seconds - *mean); }

static llm42_result llm42__model_draft(void *user, const llm42_view *view, llm42_draft *draft, int count,
                                       llm42_error *error) {
    enum { CATCH_UP = 12 };  // rows of a request that it was given since the last call, with the passes between calls
    llm42__draft_model *m = user;
    LLM42__TRY(llm42__thrift_limit(&m->thrift, view, draft, count, error));
    double begin = m->desc.backend->now(m->state);
    int requests = 0;
    for (int i = 0; i < m->desc.max_running; i++) m->slot[i].draft = NULL;
    for (int i = 0; i < count; i++) {
        const llm42_request *r = draft[i].request;
        const int newest = r->prompt_count + r->committed + r->candidates - 1,
                  slot = draft[i].limit ? llm42__draft_slot(m, &draft[i]) : -1;
        if (slot < 0) continue;
        requests++;
        llm42__drafted *s = &m->slot[slot];
        int same = 0;
        while (same < s->kv && same < newest && s->token[same] == llm42__text_at(r, same)) same++;
        s->kv = same, s->draft = &draft[i];
    }
    for (bool first = true;; first = false) {
        int rows = 0;
        for (int i = 0; i < m->desc.max_running; i++)
            if (m->slot[i].draft && m->slot[i].draft->count < m->slot[i].draft->limit)
                rows = llm42__draft_rows(m, i, rows);
        if (!rows) return LLM42_OK;
        const llm42_pass pass = {
            .schedule = LLM42_SCHEDULE_FAST, .rows = rows, .shape = rows, .row = m->row, .seq = m->seq, .out = m->out};
        LLM42__TRY(m->desc.backend->run(m->state, &pass, error));
        for (int i = 0; i < rows; i++) {
            if (!(m->row[i].flags & LLM42_ROW_SAMPLE)) continue;
            llm42_draft **d = &m->slot[m->row[i].seq].draft;
            if (m->out[i].token >= 0) (*d)->token[(*d)->count++] = m->out[i].token;
            else *d = NULL;  // its logits are not finite
        }
        const double end = m->desc.backend->now(m->state);
        if (!first) llm42__model_note(&m->later, end - begin);
        else if (rows <= CATCH_UP * requests) llm42__model_note(&m->first, end - begin);  // no whole texts among them
        begin = end;
    }
}

static double llm42__model_seconds(void *user, int requests, int tokens) {
    const llm42__draft_model *m = user;
    (void)requests;
    return m->first + (tokens - 1) * m->later;
}

static void llm42__model_forget(void *user, const llm42_request *r) {
    llm42__draft_model *m = user;
    llm42__thrift_forget(&m->thrift, r);
    for (int i = 0; i < m->desc.max_running; i++)
        if (m->slot[i].id == r->id) m->slot[i].id = 0;
}

static void llm42__model_close(llm42__draft_model *m) {
    if (m->state) m->desc.backend->close(m->state);
    llm42__thrift_free(&m->thrift);
    llm42__free_all(&m->memory);
    llm42__free(m);
}

static bool llm42__model_allocate(llm42__draft_model *m) {
    const size_t running = (size_t)m->desc.max_running, context = (size_t)m->desc.max_context;
    const size_t pages = (context + LLM42__DRAFT_PAGE - 1) / LLM42__DRAFT_PAGE;
    m->rows = LLM42__MAX(LLM42__DRAFT_ROWS, m->desc.max_running);
    m->page = llm42__take(&m->memory, running * pages, sizeof *m->page);
    m->token = llm42__take(&m->memory, running * context, sizeof *m->token);
    m->slot = llm42__take(&m->memory, running, sizeof *m->slot);
    m->seq = llm42__take(&m->memory, running, sizeof *m->seq);
    m->row = llm42__take(&m->memory, (size_t)m->rows, sizeof *m->row);
    m->out = llm42__take(&m->memory, (size_t)m->rows, sizeof *m->out);
    if (m->memory.missing) return false;
    for (size_t i = 0; i < running * pages; i++) m->page[i] = (int32_t)i;
    for (size_t i = 0; i < running; i++) {
        m->slot[i] = (llm42__drafted){.token = m->token + i * context};
        m->seq[i] = (llm42_seq){.request = (int64_t)i + 1, .pages = m->page + i * pages};
    }
    return true;
}

llm42_result llm42_draft_model_open(llm42_drafter *drafter, const llm42_draft_model_desc *desc, llm42_error *error) {
    const char *const name = "llm42_draft_model_desc.model";
    *drafter = (llm42_drafter){0};
    if (!desc->model) return llm42_fail(error, LLM42_INVALID, "%s: required", name);
    const llm42_config *c = &desc->model->config;
    if (desc->vocab && desc->vocab != c->vocab)
        return llm42_fail(error, LLM42_INVALID,
                          "%s: %s has a vocabulary of %d tokens, and the model that it drafts for has %d: they "
                          "must have the same tokenizer",
                          name, desc->model->name, c->vocab, desc->vocab);
    if (c->recurrent_layers) return llm42_fail(error, LLM42_UNSUPPORTED, "%s: must have no recurrent layers", name);
    llm42__draft_model *m = llm42__alloc_zero(1, sizeof *m);
    if (!m) return llm42_fail(error, LLM42_MEMORY, "llm42_draft_model_open: out of memory");
    m->desc = *desc;
    if (!m->desc.backend) m->desc.backend = llm42_backend_cpu();
    if (!m->desc.compute) m->desc.compute = LLM42_DTYPE_BF16;
    if (m->desc.max_running < 1) m->desc.max_running = 32;
    if (m->desc.max_context < 1 || m->desc.max_context > c->context) m->desc.max_context = LLM42__MIN(c->context, 8192);
    llm42_result result = LLM42_OK;
    if (!llm42__model_allocate(m)) result = llm42_fail(error, LLM42_MEMORY, "llm42_draft_model_open: out of memory");
    const int pages = (m->desc.max_context + LLM42__DRAFT_PAGE - 1) / LLM42__DRAFT_PAGE;
    const llm42_backend_desc backend = {.model = desc->model,
                                        .numerics = {.compute = m->desc.compute, .leaves = 1},
                                        .tensor_parallel = 1,
                                        .max_rows = m->rows,
                                        .max_context = m->desc.max_context,
                                        .pages = pages * m->desc.max_running,
                                        .page_size = LLM42__DRAFT_PAGE,
                                        .max_running = m->desc.max_running,
                                        .schedules = 1u << LLM42_SCHEDULE_FAST,
                                        .backend_desc = m->desc.backend_desc};
    if (result == LLM42_OK) result = m->desc.backend->open(&m->state, &backend, error);
    if (result != LLM42_OK) {
        llm42__model_close(m);
        return result;
    }
    m->thrift.always = desc->always;
    m->thrift.dear = true;
    *drafter = m->thrift.drafter = (llm42_drafter){.name = "model",
                                                   .user = m,
                                                   .draft = llm42__model_draft,
                                                   .forget = llm42__model_forget,
                                                   .seconds = llm42__model_seconds};
    return LLM42_OK;
}

// >>oracle -------------------------------------------------------------------------------------------------------
// A number from a log-normal distribution with mean 1 and this standard deviation (Box and Muller, 1958).
static double llm42__oracle_power(uint64_t key, double deviation) {
    const double variance = llm42_log64(1 + deviation * deviation), u = 1 - llm42_uniform(llm42_hash(key ^ 1));
    double sine, cosine;
    llm42_sincos(6.283185307179586 * llm42_uniform(llm42_hash(key ^ 2)), &sine, &cosine);
    return llm42_exp64(sqrt(-2 * variance * llm42_log64(u)) * cosine - 0.5 * variance);
}

typedef struct llm42__oracle {
    llm42__thrift thrift;
    llm42_oracle_desc desc;
} llm42__oracle;

// A request's rate is the same whenever it is asked for, and so is each toss.
static llm42_result llm42__oracle_draft(void *user, const llm42_view *view, llm42_draft *draft, int count,
                                        llm42_error *error) {
    llm42__oracle *oracle = user;
    const llm42_oracle_desc *o = &oracle->desc;
    LLM42__TRY(llm42__thrift_limit(&oracle->thrift, view, draft, count, error));
    for (llm42_draft *d = draft; d < draft + count; d++) {
        const llm42_request *r = d->request;
        const uint64_t key = llm42_hash(o->seed ^ llm42_hash((uint64_t)r->key));
        double rate = o->rate;
        if (o->spread > 0 && rate > 0) rate = llm42_exp64(llm42_log64(rate) * llm42__oracle_power(key, o->spread));
        for (int at = r->committed + r->candidates; d->count < d->limit; at++) {
            const int32_t truth = o->truth(o->user, r, at);
            if (truth < 0) break;
            const bool right = llm42_uniform(llm42_hash(key ^ (uint64_t)at)) < rate;
            d->token[d->count++] = right ? truth : (truth + 1) % o->vocab;
        }
    }
    return LLM42_OK;
}

static double llm42__oracle_seconds(void *user, int requests, int tokens) {
    const llm42_oracle_desc *o = &((llm42__oracle *)user)->desc;
    return 1e-6 * (requests * o->request_us + tokens * o->token_us);
}

static void llm42__oracle_forget(void *user, const llm42_request *r) {
    llm42__thrift_forget(&((llm42__oracle *)user)->thrift, r);
}

llm42_result llm42_oracle_open(llm42_drafter *drafter, const llm42_oracle_desc *desc, llm42_error *error) {
    const char *const name = "llm42_oracle_desc";
    *drafter = (llm42_drafter){0};
    if (!desc->truth) return llm42_fail(error, LLM42_INVALID, "%s.truth: required", name);
    if (desc->vocab < 2) return llm42_fail(error, LLM42_INVALID, "%s.vocab: %d: at least 2", name, desc->vocab);
    if (!(desc->rate >= 0 && desc->rate <= 1))
        return llm42_fail(error, LLM42_INVALID, "%s.rate: %g: must be from 0 to 1", name, desc->rate);
    if (!(desc->spread >= 0 && desc->spread <= 10))
        return llm42_fail(error, LLM42_INVALID, "%s.spread: %g: must be from 0 to 10", name, desc->spread);
    if (!(desc->request_us >= 0 && desc->token_us >= 0 && desc->request_us < 1e9 && desc->token_us < 1e9))
        return llm42_fail(error, LLM42_INVALID, "%s: request_us and token_us must be 0 or more", name);
    llm42__oracle *o = llm42__alloc_zero(1, sizeof *o);
    if (!o) return llm42_fail(error, LLM42_MEMORY, "llm42_oracle_open: out of memory");
    o->desc = *desc;
    if (!o->desc.seed) o->desc.seed = 42;
    o->thrift.always = desc->always;
    *drafter = o->thrift.drafter = (llm42_drafter){.name = "oracle",
                                                   .user = o,
                                                   .draft = llm42__oracle_draft,
                                                   .forget = llm42__oracle_forget,
                                                   .seconds = llm42__oracle_seconds};
    return LLM42_OK;
}

void llm42_drafter_close(llm42_drafter *drafter) {
    if (drafter->draft == llm42__lookup_draft) llm42__lookup_close(drafter->user);
    else if (drafter->draft == llm42__model_draft) llm42__model_close(drafter->user);
    else if (drafter->draft == llm42__oracle_draft) llm42__thrift_free(&((llm42__oracle *)drafter->user)->thrift);
    if (drafter->draft == llm42__oracle_draft) llm42__free(drafter->user);
    *drafter = (llm42_drafter){0};
}

#endif  // LLM42_DRAFT_IMPLEMENTATION
