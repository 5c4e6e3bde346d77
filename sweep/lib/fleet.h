// fleet.h: one run of a workload on a fleet: several engines (replicas) behind a router. Simulated engines only,
// because each replica needs a clock of its own.
//
// A request is routed at its arrival, once and for all. The router sees what a router of real servers sees at that
// time: for each replica, the requests that it has sent there and that are not finished, the tokens of their prompts,
// and the tokens that these requests have returned. A pass that is still running has returned nothing. The router never
// sees how long an output will be, nor anything of a replica's batch or KV cache.
//
// How it runs: llm42_engine_run_until runs a replica up to a time. It is called only when the router needs to know what
// the replica has returned. Before a request is routed, every replica whose clock is behind the arrival is run up to
// the arrival. A pass that begins before the arrival may end after it. What such a pass returns is kept apart until the
// router's time has reached the end of the pass (replica.later). A tree finds the replicas that have something to do
// before the arrival, so that not all replicas are looked at. The work for an arrival depends on what has happened
// since the arrival before. round_robin needs to know nothing of replicas. There a replica runs each time it has got
// FLEET_STRIDE requests. Replicas do not know of each other, so the result depends neither on the order in which they
// run nor on how far they run at a time.
#ifndef SWEEP_FLEET_H
#define SWEEP_FLEET_H

#include "sweep/lib/planner.h"
#include "sweep/lib/draft.h"
#include "sweep/lib/serve.h"

typedef enum fleet_router { ROUND_ROBIN, LEAST_TOKENS, DETERMINISTIC_APART } fleet_router;
extern const char *const fleet_routers[];

// FLEET_STRIDE: requests that a replica gets under round_robin before it runs on.
enum { FLEET_MOST = 4096, FLEET_STRIDE = 16 };

// Finds the smallest of some numbers, and of equal ones the first. It is a tree whose nodes hold the smaller of their
// two children. Numbers change one at a time.
typedef struct least {
    int leaves;    // a power of two
    double *key;   // [leaves]; INFINITY: takes no part
    int *smaller;  // [2 leaves]: an index of key; node i has the children 2 i and 2 i + 1, the root is 1
} least;

int least_first(const least *l);
void least_set(least *l, int index, double key);
// False: out of memory. All numbers are infinite at first.
bool least_open(least *l, int count);
void least_close(least *l);

typedef struct fleet fleet;

typedef struct replica {
    fleet *f;
    int index;
    llm42_engine *engine;
    own_planner own;
    sim_drafter drafter;
    collect_running running;
    int64_t tokens;           // outstanding at the router's time: prompts and returned tokens of unfinished requests
    int64_t later;            // what a pass that ends after the router's time will add to .tokens then
    workload_request *queue;  // stb_ds array: requests routed here that the engine has not got yet, from `next` on
    int64_t next;
    int64_t waiting;  // requests that the engine has got and never admitted
    int stride;       // round_robin: requests since it ran last
} replica;

typedef struct fleet_desc {
    int replicas;
    fleet_router router;
    int apart;     // deterministic_apart: the first so many replicas serve the deterministic requests, the others the
                   // rest. 0, or all of them: every replica serves every request. See fleet_apart.
    double ratio;  // share of requests that are deterministic
    llm42_engine_desc engine, set_apart;  // of a replica, and of one of those set apart. If .on_event is set, it gets
                                          // all events, with the request's index in the workload as .user
    const char *planner;       // its text in --planner, for planners of your own; NULL: as the engines' descs say
    llm42_oracle_desc oracle;  // of each replica's drafter; .truth is NULL: there is none
} fleet_desc;

struct fleet {
    serving v;  // the workload and the figures; v.engine is NULL
    fleet_desc desc;
    replica *replica;
    double now;           // the router's clock: the arrival of the request that is routed, INFINITY after the last one
    least clock;          // of replicas: when they have something to do next, INFINITY if nothing
    least tokens[2];      // of replicas: outstanding tokens; of those set apart (or all), and of the others
    int turn;             // round_robin: the next one
    int64_t runs;         // calls of llm42_engine_run_until, for the progress line
    llm42_result result;  // the first error inside an event
    llm42_error error;
};

// How many replicas deterministic_apart sets apart. asked: so many; 0: the share of requests that are deterministic, at
// least one and not all. If all requests are of one kind, or there is one replica, none is set apart.
int fleet_apart(fleet_router router, int replicas, int asked, double ratio);
bool fleet_splits(const fleet *f);
// Serves the whole workload.
llm42_result fleet_serve(fleet *f, llm42_error *error);
// Sets f->desc and opens its engines. f->v.s must be set.
llm42_result fleet_open(fleet *f, const fleet_desc *desc, const char *qps, uint64_t seed, llm42_error *error);
void fleet_close(fleet *f);
// Of all replicas together: counts, passes and times are sums.
llm42_result fleet_figures(fleet *f, metrics *m, llm42_error *error);

#endif  // SWEEP_FLEET_H
