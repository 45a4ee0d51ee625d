/*
 * What the simulator's files share.
 *
 *   simulate.c           schedules in, rounds, what a rank does, the loop, the result
 *   event_queue.c     what happens next: a binary heap, ties by lane and rank
 *   bandwidth_sharing.c   messages that flow, and what they share
 *   bursts.c    uplinks that let bursts through
 *   message_flow.c  from posting to arrival
 *   lower_bound.c     what no run can be faster than
 *   simulated_faults.c    faults; who waits for whom when nothing more happens
 *
 * Times are kept on a grid (2^-10 us, rounded up), so that what is simultaneous but for rounding
 * happens at the same time, and rates are shared out once for all of it.
 */
#ifndef MUSTER_COLLECTIVES_SIMULATE_SIMULATE_PARTS_H
#define MUSTER_COLLECTIVES_SIMULATE_SIMULATE_PARTS_H

#include "collectives/simulate/simulate.h"

#define MUSTER_NOTHING UINT32_MAX /* no node, no step */

/* What is kept of a step. */
struct muster_sim_step {
    uint64_t count;
    uint32_t peer;
    uint8_t kind; /* enum muster_step_kind */
    uint8_t lane;
    bool begins_round : 1;
    bool early : 1; /* a receive that is posted with the round before */
    bool done : 1;
};
_Static_assert(sizeof(struct muster_sim_step) == 16, "there are millions of them");

struct muster_sim_lane {
    uint32_t end;         /* of its steps */
    uint32_t start, next; /* the round under way: [start, next) */
    uint32_t waiting;     /* steps of it that are not done */
    uint32_t round;
};

struct muster_sim_rank {
    struct muster_sim_step *steps;   /* [step_count]; NULL before its schedule came */
    struct muster_sim_lane *lanes;   /* [lane_count] */
    struct muster_step_times *times; /* [step_count], with trace */
    uint32_t step_count;
    uint32_t lane_count;
    uint32_t lanes_left;
    uint32_t host;
    uint32_t rack;
    bool added;
    double core_free_us;
    double busy_us; /* all that its core did, in sum */
    double core_factor;
    double begins_us;
    double dead_us;   /* from then on; INFINITY: never */
    double finish_us; /* -1: not yet */
};

/* What a node's event means. */
enum muster_sim_event {
    MUSTER_SIM_BEGIN = 1,    /* a rank begins */
    MUSTER_SIM_WORK_DONE,    /* of a local step, of a send that was buffered, of a receive */
    MUSTER_SIM_FLOW_START,   /* the first byte leaves */
    MUSTER_SIM_FLOW_END,     /* the last byte has left */
    MUSTER_SIM_ARRIVAL,      /* it is there */
    MUSTER_SIM_DEATH,        /* something dies */
    MUSTER_SIM_BUCKET_EMPTY, /* an uplink has let its burst through; the node's `peer` is its number
                              */
};

/* What a message goes through: the sender's port, the receiver's, and what it shares with others.
 */
enum { MUSTER_SIM_USES_MAX = 6 };
struct muster_sim_use {
    uint32_t resource;
    uint32_t previous, next; /* uses of the resource: node x MUSTER_SIM_USES_MAX + index */
};

/* What a rank's core, and all cores of its host where they are shared, had done up to some time. */
struct muster_sim_busy {
    double rank_us, host_us;
};

/* A message, or what else an event is about. */
struct muster_sim_node {
    uint8_t event;
    uint8_t level;
    uint8_t use_count; /* 0: it does not flow */
    bool eager;
    bool whole;                  /* it leaves its link in turn */
    bool arrived;                /* before its receive was posted */
    uint32_t rank, step;         /* the sender's; or whose work it is */
    uint32_t peer;               /* the receiver */
    uint32_t peer_step;          /* MUSTER_NOTHING: its receive is not posted */
    uint32_t next;               /* in its channel, or of the free ones */
    uint32_t link_next;          /* of those that follow it over the same link */
    uint32_t place;              /* in the queue; MUSTER_NOTHING: not there */
    uint32_t rated;              /* the sharing-out that last looked at it */
    double ready_us;             /* when the end that came first can begin */
    double factor;               /* of a slow link */
    double left_bytes;           /* that have not left */
    double rate;                 /* bytes in a microsecond */
    double rated_us;             /* since when */
    double flow_us;              /* when it began to flow */
    struct muster_sim_busy busy; /* of the receiver then */
    struct muster_sim_use uses[MUSTER_SIM_USES_MAX];
};

/* Messages of which one end is posted, from one sender to one receiver in one lane, in order; or,
 * by link, those that leave one after the other. */
struct muster_sim_channel {
    uint64_t key; /* 0: free */
    uint32_t first, last;
};

/* What an uplink lets through beyond its rate. */
struct muster_sim_bucket {
    double tokens; /* bytes */
    double filled_us;
    double outflow; /* bytes in a microsecond */
    bool open;      /* it holds nobody up */
    uint32_t node;  /* for its event */
};

/* A port, a host's memory, an uplink. */
struct muster_sim_resource {
    double capacity; /* bytes in a microsecond; 0: as many as the message alone could use */
    double largest;  /* that one message could use, of all so far */
    struct muster_sim_bucket *bucket; /* or NULL */
    uint32_t first;                   /* use */
    uint32_t count;                   /* messages that flow through it */
    uint32_t shared;                  /* the count when it was last shared out */
    bool changed;                     /* it stands in the list of those to be shared out */
};

struct muster_sim_entry {
    double at_us;
    uint64_t order; /* of what happens at the same time */
    uint32_t node;
};

struct muster_simulation {
    const struct muster_topology *topology;
    struct muster_cost_model model;
    size_t element_size_bytes;
    double limit_us;
    bool trace;
    struct muster_sim_rank *ranks; /* [topology->ranks] */
    double **cores_us;             /* [hosts] when each of its cores is free, and what all of them
                                      did, in sum; NULL: each rank has its own */
    uint32_t unfinished;
    double now_us;
    muster_status status; /* the first failure; its text is the thread's */

    struct muster_fault *faults; /* those of links, by link */
    size_t fault_count;

    struct muster_sim_node *nodes;
    uint32_t node_count, node_capacity, free_node;

    struct muster_sim_entry *queue;
    size_t queue_count, queue_capacity;

    struct muster_sim_channel *channels; /* [channel_capacity], a power of two */
    size_t channel_count, channel_capacity;

    struct muster_sim_resource *resources;
    struct muster_sim_bucket *buckets; /* of the hosts' uplinks; NULL: they have none */
    uint32_t *changed;                 /* [resources] those to be shared out */
    uint32_t changed_count;
    uint32_t sharing; /* number of the present sharing-out */

    uint64_t bytes[MUSTER_LEVEL_COUNT];
    uint64_t messages[MUSTER_LEVEL_COUNT];
};

/* event_queue.c */

/* Up to the next point of the grid. */
double muster_sim_grid_us(double time_us);
/* A node with nothing in it, or MUSTER_NOTHING and the simulation has failed. */
uint32_t muster_sim_node_take(struct muster_simulation *sim);
void muster_sim_node_give(struct muster_simulation *sim, uint32_t node);
/* The node's event is to happen then; if it was to happen at another time, no longer then. */
void muster_sim_put(struct muster_simulation *sim, uint32_t node, uint8_t event, double at_us);
void muster_sim_withdraw(struct muster_simulation *sim, uint32_t node);
/* The node of the earliest event, which leaves the queue. There must be one. */
uint32_t muster_sim_pop(struct muster_simulation *sim);

/* bandwidth_sharing.c */

MUSTER_CHECKED muster_status muster_sim_network_init(struct muster_simulation *sim);
void muster_sim_network_finish(struct muster_simulation *sim);
/* How far apart two ranks are. */
enum muster_link_level muster_sim_level(const struct muster_simulation *sim, uint32_t rank,
                                        uint32_t peer);
/* The message begins to flow; the next sharing-out gives it a rate. */
void muster_sim_flow_begin(struct muster_simulation *sim, uint32_t node);
void muster_sim_flow_end(struct muster_simulation *sim, uint32_t node);
/* Shares out what has changed; false: nothing had. */
bool muster_sim_share_out(struct muster_simulation *sim);

/* The event of an uplink's bucket; `resource` is its number. */
void muster_sim_close_uplink(struct muster_simulation *sim, uint32_t resource);

/* bursts.c; without effect where there is no bucket, but for the first and the last */

/* For `count` resources from number `first` on. */
MUSTER_CHECKED muster_status muster_sim_buckets_init(struct muster_simulation *sim, uint32_t first,
                                                     uint32_t count);
/* Decides whether it is open. */
void muster_sim_bucket_look(struct muster_simulation *sim, struct muster_sim_resource *resource);
/* So much more flows through it, in bytes in a microsecond. */
void muster_sim_bucket_flow(struct muster_simulation *sim, struct muster_sim_resource *resource,
                            double change);
void muster_sim_bucket_empty(struct muster_simulation *sim, struct muster_sim_resource *resource);

/* message_flow.c */

void muster_sim_post_send(struct muster_simulation *sim, uint32_t rank, uint32_t step);
void muster_sim_post_receive(struct muster_simulation *sim, uint32_t rank, uint32_t step);
/* Events of messages. */
void muster_sim_start_flow(struct muster_simulation *sim, uint32_t node);
void muster_sim_end_flow(struct muster_simulation *sim, uint32_t node);
void muster_sim_arrive(struct muster_simulation *sim, uint32_t node);

/* simulate.c */

/* The rank shares cores with more ranks than they are. */
bool muster_sim_is_crowded(const struct muster_simulation *sim, uint32_t rank);
/* The rank's core works so long, from then on at the earliest; returns when it is done. */
double muster_sim_work(struct muster_simulation *sim, uint32_t rank, double from_us,
                       double work_us);
/* What was done so far. */
struct muster_sim_busy muster_sim_busy(const struct muster_simulation *sim, uint32_t rank);
/* Of work that could have been done piece by piece in the last span_us, what was: as much as the
 * core had time for since it had done so much. */
double muster_sim_work_before(struct muster_simulation *sim, uint32_t rank, double span_us,
                              const struct muster_sim_busy *since, double work_us);
/* The step is to be done then. */
void muster_sim_finish_step(struct muster_simulation *sim, uint32_t rank, uint32_t step,
                            double at_us);
void muster_sim_step_done(struct muster_simulation *sim, uint32_t rank, uint32_t step);

/* simulated_faults.c */

MUSTER_CHECKED muster_status muster_sim_faults_init(struct muster_simulation *sim,
                                                    const struct muster_fault *faults,
                                                    size_t count);
/* Of what goes between two ranks: how much slower it is; and from when on it is dead. */
double muster_sim_link_factor(const struct muster_simulation *sim, uint32_t rank, uint32_t peer);
double muster_sim_link_dead_us(const struct muster_simulation *sim, uint32_t rank, uint32_t peer);
/* Something has died: what flows over dead links, or to or from dead ranks, stops. */
void muster_sim_strike(struct muster_simulation *sim);
/* Nothing more happens and not all are through: why, and who waits for whom. */
void muster_sim_judge(const struct muster_simulation *sim, char *ret_text, size_t size);

#endif
