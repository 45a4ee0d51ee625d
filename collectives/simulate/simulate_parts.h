/*
 * What the simulator's files share.
 *
 *   simulate.c            schedules, rounds, the work of a rank, the event loop, the result
 *   event_queue.c         events in order of time: a binary heap, ties by lane and rank
 *   bandwidth_sharing.c   the rates of messages that share ports, memory and uplinks
 *   bursts.c              uplinks that let bursts pass
 *   core_sharing.c        the work of ranks on cores, own or shared
 *   message_flow.c        a message from posting to arrival
 *   simulated_groups.c    group steps
 *   lower_bound.c         a time below which no run can finish
 *   simulated_faults.c    faults; which ranks wait for which when nothing more happens
 *
 * Times are rounded up to a grid of 2^-10 us. So events that differ only by rounding happen at the
 * same time, and rates are computed once for all of them.
 */
#ifndef MUSTER_COLLECTIVES_SIMULATE_SIMULATE_PARTS_H
#define MUSTER_COLLECTIVES_SIMULATE_SIMULATE_PARTS_H

#include "collectives/simulate/simulate.h"

#define MUSTER_NOTHING UINT32_MAX /* no node, no step */

/* What is stored of a step. */
struct muster_sim_step {
    uint64_t count;
    uint32_t peer; /* of a group step its enum muster_step_scope */
    uint8_t kind;  /* enum muster_step_kind */
    uint8_t lane;
    bool begins_round : 1;
    bool early : 1; /* a receive that is posted one round early */
    bool done : 1;
};
_Static_assert(sizeof(struct muster_sim_step) == 16, "there are millions of them");

struct muster_sim_lane {
    uint32_t end;         /* behind its last step */
    uint32_t start, next; /* the current round: steps [start, next) */
    uint32_t waiting;     /* its steps that are not done */
    uint32_t round;
};

struct muster_sim_rank {
    struct muster_sim_step *steps;   /* [step_count]; NULL until its schedule is added */
    struct muster_sim_lane *lanes;   /* [lane_count] */
    struct muster_step_times *times; /* [step_count], with trace */
    uint32_t *group_steps;           /* [group_count] in the order in which it performs them */
    uint32_t group_count;
    uint32_t group_next;
    bool in_group; /* it performs group_steps[group_next] */
    uint32_t step_count;
    uint32_t lane_count;
    uint32_t lanes_left;
    uint32_t host;
    uint32_t rack;
    bool added;
    double core_free_us;
    double busy_us; /* total time of the work on its core */
    double core_factor;
    double begins_us;
    double dead_us;   /* when it dies; INFINITY: never */
    double finish_us; /* -1: not yet */
};

/* What a node's event means. */
enum muster_sim_event {
    MUSTER_SIM_BEGIN = 1,    /* a rank begins */
    MUSTER_SIM_WORK_DONE,    /* a local step, an eager send or a receive is done */
    MUSTER_SIM_FLOW_START,   /* the first byte leaves */
    MUSTER_SIM_FLOW_END,     /* the last byte has left */
    MUSTER_SIM_ARRIVAL,      /* the message has arrived */
    MUSTER_SIM_DEATH,        /* a rank or a link dies */
    MUSTER_SIM_BUCKET_EMPTY, /* an uplink's burst has passed; its number is the node's `peer` */
};

/* A message's use of a resource: of the sender's port, the receiver's, or one that it shares. */
enum { MUSTER_SIM_USES_MAX = 6 };
struct muster_sim_use {
    uint32_t resource;
    uint32_t previous, next; /* uses of the resource: node x MUSTER_SIM_USES_MAX + index */
};

/* Work up to some time: on a rank's core; and on all cores of its host, if they are shared. */
struct muster_sim_busy {
    double rank_us, host_us;
};

/* A message, or the subject of another event. */
struct muster_sim_node {
    uint8_t event;
    uint8_t level;
    uint8_t use_count; /* 0: it is not flowing */
    bool eager;
    bool whole;                  /* it is not cut: it waits for its turn on the link */
    bool arrived;                /* before its receive was posted */
    uint32_t rank, step;         /* of the sender; or of the work */
    uint32_t peer;               /* the receiver */
    uint32_t peer_step;          /* of the receive; MUSTER_NOTHING: it is not posted */
    uint32_t next;               /* in its channel, or in the list of free nodes */
    uint32_t link_next;          /* the message that follows it over the same link */
    uint32_t place;              /* in the event queue; MUSTER_NOTHING: it is not queued */
    uint32_t rated;              /* the number of the sharing that last rated it */
    double ready_us;             /* when the end that was posted first can begin */
    double factor;               /* of a slow link */
    double left_bytes;           /* that have not left the sender */
    double rate;                 /* bytes in a microsecond */
    double rated_us;             /* when it got this rate */
    double flow_us;              /* when it began to flow */
    struct muster_sim_busy busy; /* of the receiver at that time */
    struct muster_sim_use uses[MUSTER_SIM_USES_MAX];
};

/* A queue: of the messages of which one end is posted, from one sender to one receiver in one lane;
 * or, for a link, of the messages that leave one after the other. */
struct muster_sim_channel {
    uint64_t key; /* 0: free */
    uint32_t first, last;
};

/* A token bucket: what an uplink lets pass beyond its rate. */
struct muster_sim_bucket {
    double tokens; /* bytes */
    double filled_us;
    double outflow; /* bytes in a microsecond */
    bool open;      /* it does not limit any message */
    uint32_t node;  /* for its event */
};

/* A port, a host's memory, an uplink. */
struct muster_sim_resource {
    double capacity; /* bytes in a microsecond; 0: as much as one message could use alone */
    double largest;  /* the highest rate that one message could use, of all so far */
    struct muster_sim_bucket *bucket; /* or NULL */
    uint32_t first;                   /* use */
    uint32_t count;                   /* messages that flow through it */
    uint32_t shared;                  /* the count at the last sharing */
    bool changed;                     /* it is in the list of changed resources */
};

struct muster_sim_entry {
    double at_us;
    uint64_t order; /* among events at the same time */
    uint32_t node;
};

/* simulated_groups.c: where no plan says what a group can do. */
extern const struct muster_memory_reach muster_sim_default_reach;

struct muster_simulation {
    const struct muster_topology *topology;
    struct muster_cost_model model;
    size_t element_size_bytes;
    struct muster_memory_reach reach; /* of the groups of hosts */
    bool keep_input;                  /* of the plan */
    double limit_us;
    bool trace;
    struct muster_sim_rank *ranks; /* [topology->ranks] */
    double **cores_us;             /* [hosts] when each of its cores is free, then the total work on
                                      all of them; NULL: each rank has its own core */
    uint32_t unfinished;
    double now_us;
    muster_status status; /* the first failure; its text is the thread's */

    struct muster_fault *faults; /* the faults of links, sorted by link */
    size_t fault_count;

    struct muster_sim_node *nodes;
    uint32_t node_count, node_capacity, free_node;

    struct muster_sim_entry *queue;
    size_t queue_count, queue_capacity;

    struct muster_sim_channel *channels; /* [channel_capacity], a power of two */
    size_t channel_count, channel_capacity;

    struct muster_sim_resource *resources;
    struct muster_sim_bucket *buckets; /* of the hosts' uplinks; NULL: they have none */
    uint32_t *changed;                 /* [resources] those whose rates must be computed anew */
    uint32_t changed_count;
    uint32_t sharing; /* the number of the current sharing */

    uint64_t bytes[MUSTER_LEVEL_COUNT];
    uint64_t messages[MUSTER_LEVEL_COUNT];
};

/* event_queue.c */

/* Rounds up to the next point of the grid. */
double muster_sim_grid_us(double time_us);
/* An empty node. MUSTER_NOTHING: no memory, the simulation has failed. */
uint32_t muster_sim_node_allocate(struct muster_simulation *sim);
void muster_sim_node_free(struct muster_simulation *sim, uint32_t node);
/* Schedules the node's event for this time, in place of one that is scheduled already. */
void muster_sim_schedule(struct muster_simulation *sim, uint32_t node, uint8_t event, double at_us);
void muster_sim_cancel(struct muster_simulation *sim, uint32_t node);
/* Schedules the end of the step for this time. */
void muster_sim_finish_step(struct muster_simulation *sim, uint32_t rank, uint32_t step,
                            double at_us);
/* Removes the earliest event from the queue, and returns its node. The queue must not be empty. */
uint32_t muster_sim_pop(struct muster_simulation *sim);

/* bandwidth_sharing.c */

MUSTER_CHECKED muster_status muster_sim_network_init(struct muster_simulation *sim);
void muster_sim_network_finish(struct muster_simulation *sim);
/* The level of the link between two ranks. */
enum muster_link_level muster_sim_level(const struct muster_simulation *sim, uint32_t rank,
                                        uint32_t peer);
/* The message begins to flow; the next sharing gives it a rate. */
void muster_sim_flow_begin(struct muster_simulation *sim, uint32_t node);
void muster_sim_flow_end(struct muster_simulation *sim, uint32_t node);
/* Computes the rates of messages that use changed resources. False: no resource had changed. */
bool muster_sim_share(struct muster_simulation *sim);

/* The bucket of the uplink with this number is empty. */
void muster_sim_close_uplink(struct muster_simulation *sim, uint32_t resource);

/* bursts.c; the middle two have no effect on a resource without a bucket */

/* Gives buckets to `count` resources from number `first` on. */
MUSTER_CHECKED muster_status muster_sim_buckets_init(struct muster_simulation *sim, uint32_t first,
                                                     uint32_t count);
/* Updates whether it is open. */
void muster_sim_bucket_update(struct muster_simulation *sim, struct muster_sim_resource *resource);
/* The flow through the resource changes by so many bytes in a microsecond. */
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

/* core_sharing.c */

MUSTER_CHECKED muster_status muster_sim_cores_init(struct muster_simulation *sim);
void muster_sim_cores_finish(struct muster_simulation *sim);
/* True if the rank shares cores with more ranks than there are cores. */
bool muster_sim_is_crowded(const struct muster_simulation *sim, uint32_t rank);
/* Adds work of this length to the rank's core, from from_us on at the earliest. Returns when it is
 * done. */
double muster_sim_work(struct muster_simulation *sim, uint32_t rank, double from_us,
                       double work_us);
/* The work that was done so far. */
struct muster_sim_busy muster_sim_busy(const struct muster_simulation *sim, uint32_t rank);
/* Of work that could be done in pieces during the last span_us: the part that was done, which is as
 * much as the core had time for beside its other work since `since`. */
double muster_sim_work_before(struct muster_simulation *sim, uint32_t rank, double span_us,
                              const struct muster_sim_busy *since, double work_us);

/* simulated_groups.c */

MUSTER_CHECKED muster_status muster_sim_groups_add(struct muster_sim_rank *rank,
                                                   const struct muster_schedule *schedule);
bool muster_sim_is_group(const struct muster_sim_step *step);
/* Begins the rank's next group step if all members have come to it. To be called when the rank has
 * come to a group step, and when it has finished one. */
void muster_sim_try_group(struct muster_simulation *sim, uint32_t rank);
/* The rank has finished its group step. */
void muster_sim_group_done(struct muster_simulation *sim, uint32_t rank);
/* A member of the group that the rank waits for; MUSTER_NOTHING: it waits for none. */
uint32_t muster_sim_group_missing(const struct muster_simulation *sim, uint32_t rank);
/* Work of one rank for the group step: no run takes less. */
double muster_sim_group_busy_us(const struct muster_simulation *sim, uint32_t rank,
                                const struct muster_sim_step *step);

/* simulate.c */

void muster_sim_step_done(struct muster_simulation *sim, uint32_t rank, uint32_t step);

/* simulated_faults.c */

MUSTER_CHECKED muster_status muster_sim_faults_init(struct muster_simulation *sim,
                                                    const struct muster_fault *faults,
                                                    size_t count);
/* The link between two ranks: the factor by which it is slower, and when it dies. */
double muster_sim_link_factor(const struct muster_simulation *sim, uint32_t rank, uint32_t peer);
double muster_sim_link_dead_us(const struct muster_simulation *sim, uint32_t rank, uint32_t peer);
/* Stops all messages that flow over dead links, or to or from dead ranks. */
void muster_sim_stop_dead_flows(struct muster_simulation *sim);
/* No event is left and some ranks have not finished: why, and which ranks wait for which. */
void muster_sim_explain(const struct muster_simulation *sim, char *ret_text, size_t size);

#endif
