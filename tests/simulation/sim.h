/*
 * Whole jobs in one thread, from a seed: the service as it is (methods, messages, membership,
 * store), on a simulated clock, network and disk, and members that decide with the session's own
 * policy. Time passes only from event to event, so that an hour takes a second.
 *
 * README.md says what is simulated, and what is checked.
 */
#ifndef MUSTER_TESTS_SIMULATION_SIM_H
#define MUSTER_TESTS_SIMULATION_SIM_H

#include "elastic/messages/messages.h"
#include "rendezvous/service/held_requests.h"
#include "worker/fabric/fabric.h"
#include "worker/session/stall_report.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIM_MS = 1000000, SIM_SERVERS_MAX = 3 };
#define SIM_NEVER INT64_MAX

struct sim;

/* Time and chance (sim_clock.c), in place of worker/base/clock.c and random.c ------------------ */

void sim_clock_set(int64_t now_ns);
/* Until the next event: a call has taken so long. */
void sim_clock_advance(int64_t by_ns);
void sim_random_seed(uint64_t seed);
uint64_t sim_random(void);
/* Uniform in [least, most]. */
int64_t sim_between(int64_t least, int64_t most);
/* True in so many of a thousand cases. */
bool sim_chance(uint32_t per_mille);

/* The disk (sim_disk.c): a VFS of SQLite. Files are in memory; what was not synced may be lost. -
 */

struct sim_disk_faults {
    bool full;       /* nothing more can be written */
    bool sync_fails; /* and what was written since the last sync is not certain */
    uint32_t keeps;  /* of a thousand unsynced sectors, after a power loss */
};
void sim_disk_begin(void); /* an empty disk */
struct sim_disk_faults *sim_disk_faults(void);
/* The process that had its files open is gone. power_lost: what was not synced, too. */
void sim_disk_crash(bool power_lost);
void sim_disk_end(void);

/* Events (sim_events.c) ------------------------------------------------------------------------ */

/* A request or a response on its way. */
struct sim_message {
    unsigned worker, channel;
    uint64_t connection, call;
    enum muster_rpc_method method;
    enum muster_rpc_code code; /* of a response */
    unsigned owner; /* of a response: 1 + the server that has given it for another; or 0 */
    bool forwarded; /* a request: by a server */
    uint32_t timeout_ms;
    bool twin; /* the second copy of a request: nobody waits for its response */
    size_t size_bytes;
    char *body; /* owned */
};
struct sim_message *sim_message_copy(const struct sim_message *message);
void sim_message_free(struct sim_message *message);

struct sim_event {
    int64_t at_ns;
    uint64_t sequence;
    void (*run)(struct sim *sim, struct sim_event *event);
    uint64_t a, b, c;
    struct sim_message *message; /* owned */
};
/* Takes the message of the event. */
void sim_push(struct sim *sim, int64_t at_ns, struct sim_event event);
/* Runs the first event. False: there is none. */
bool sim_step(struct sim *sim);

/* The network (sim_network.c) ------------------------------------------------------------------ */

struct sim_server;

struct sim_connection {
    unsigned worker, channel;
    unsigned server;
    uint64_t life;  /* of the server that it reaches */
    bool open_here; /* at the client */
    bool open_there;
    bool lost;                  /* nothing arrives any more, at either end */
    int64_t up_ns, down_ns;     /* when the last message arrives; later ones arrive later */
    struct muster_held_id held; /* of the last request that was held over it */
    uint64_t forward;           /* the connection over which its request was forwarded; or 0 */
    /* Of one between two servers: the connection of the client, the server that forwards, and what
     * is to be answered over it. client 0: it is from a client. */
    uint64_t client, from_life;
    unsigned from;
    struct sim_message asked; /* without a body */
};

/* Faults of the network, of a thousand messages each. */
struct sim_network_faults {
    uint32_t lose, twin, reset;
    int64_t delay_ns, slow_ns; /* usual, and of one message in a hundred */
    int64_t twin_ns;           /* how much later a second copy may arrive */
};

void sim_network_send(struct sim *sim, struct sim_message *request);
/* A request over a connection of its own, whose response nobody waits for. Takes the message. */
void sim_network_ask(struct sim *sim, unsigned server, struct sim_message *request);
void sim_network_respond(struct sim *sim, struct sim_message *response);
/* The client closes the connection of this channel. */
void sim_network_close(struct sim *sim, unsigned worker, unsigned channel);
/* Both ends of every connection see that it has ended, at different times. */
void sim_network_reset_all(struct sim *sim);
/* The server sends a request on to the one that has its job. Takes the message. */
void sim_network_forward(struct sim *sim, const struct sim_server *from, unsigned to,
                         struct sim_message *request);
/* The connection between two servers has ended, as the forwarding one sees it. */
void sim_network_forward_failed(struct sim *sim, uint64_t number);
/* The end of the connection reaches the server. */
void sim_network_end_there(struct sim *sim, uint64_t number, int64_t at_ns);
struct sim_connection *sim_connection(struct sim *sim, uint64_t number);

/* The server (sim_server.c) -------------------------------------------------------------------- */

struct sim_server {
    struct sim *sim;
    unsigned index;
    struct muster_store *store;
    struct muster_service *service; /* NULL: it is down */
    uint64_t life;                  /* how often it has started */
    bool dying;                     /* responses are not sent any more */
    bool ending;                    /* as soon as the compaction that runs has returned */
    int64_t paused_until_ns;
    int64_t wake_ns;        /* after a pause its sockets are read so much later */
    int64_t renew_ns;       /* or its lease is looked at so much later */
    int64_t spent_until_ns; /* it waits for the store until then, and does nothing else */
    int64_t cut_until_ns;   /* etcd does not answer it */
    int64_t behind_ns;      /* it reads requests so much later than they arrive */
    bool sees_ends_at_once; /* while it is behind */
    int64_t late_until_ns;  /* what came while it was behind may be read until then */
    int64_t tick_at_ns;
    bool sync_planned, compact_planned;
    uint32_t compacts; /* of a thousand events one after which the job is to be compacted */
    uint32_t requests; /* that have no response yet */
    char path[64];
};

bool sim_server_start(struct sim *sim, struct sim_server *server);
enum sim_server_end { SIM_STOP, SIM_KILL, SIM_POWER_LOSS };
void sim_server_end(struct sim *sim, struct sim_server *server, enum sim_server_end how);
void sim_server_deliver(struct sim *sim, struct sim_event *event);
void sim_server_closed(struct sim *sim, struct sim_event *event);
/* The server that has the one job, and may answer for it now; NULL: none. Two: the run fails. */
struct sim_server *sim_server_owner(struct sim *sim);
/* The number of the claim by which it has the job. */
uint64_t sim_server_claim(const struct sim_server *server);
/* The one job's membership there; NULL: none. */
struct muster_membership *sim_server_membership(struct sim *sim);
/* After whatever the service did: when its threads run next. */
void sim_server_plan(struct sim *sim, struct sim_server *server);
/* The call that it makes takes so long. */
void sim_server_spend(struct sim_server *server, int64_t for_ns);
/* Until then nothing that comes is seen. */
int64_t sim_server_busy_until(const struct sim_server *server);

/* The etcd cluster of several servers (sim_etcd.c) ----------------------------------------------
 */

void sim_etcd_begin(struct sim *sim);
void sim_etcd_end(void);
/* The server has started: it renews its lease from now on. */
void sim_etcd_start(struct sim *sim, struct sim_server *server);
/* The server's watch connects, and lists the jobs without an owner. */
void sim_etcd_look(struct sim *sim, struct sim_server *server);
bool sim_etcd_has_job(void);

/* Workers (sim_worker.c: its two threads and the service; sim_member.c: its work) ---------------
 */

enum sim_stage { SIM_OFF, SIM_JOINING, SIM_RUNNING, SIM_LEAVING, SIM_LEFT };
enum { SIM_CALLER, SIM_LEASE, SIM_CHANNELS };

/* A call of one of the two threads: attempts of one request. */
struct sim_call {
    uint64_t number;             /* of the present attempt; 0: none */
    uint64_t connection;         /* 0: none is open */
    unsigned at, server;         /* of the list of servers; the one that is called */
    struct sim_message *request; /* NULL: no call */
    uint32_t made, attempts, attempt_ms;
    int64_t deadline_ns;
    bool refusal; /* it reports a doubted member */
    uint32_t refused_count;
    char refused[MUSTER_PROBED_MAX][MUSTER_UUID_SIZE]; /* doubted members still to be reported */
};

struct sim_worker {
    unsigned index;
    bool alive, frozen;
    bool host_lost; /* its host was killed with it: no dial is answered */
    bool strange;   /* it failed for good, which no fault explains */
    int64_t thaw_ns;
    uint64_t life;
    enum sim_stage stage;
    struct sim_call calls[SIM_CHANNELS];
    /* As in the session. */
    char member[MUSTER_UUID_SIZE], host[MUSTER_HOST_SIZE];
    uint64_t generation;
    uint32_t rank, hold_ms, lease_ms;
    bool known_to_service, declared_dead, ended, finished, rejoin_due;
    bool pending, leave_requested, leave_called;
    uint32_t failed_generations;
    uint64_t reported_generation, progress;
    uint32_t suspect; /* rank whose link was reset; UINT32_MAX: none */
    struct muster_stall_watch stall;
    bool reporting_stall;
    /* Of the lease thread. */
    uint64_t revoked;
    bool sign_sent, unreachable, pausing;
    /* The state: what its last commit copied. */
    uint64_t version, committed_generation, content;
    /* Its work. */
    struct sim_generation *in; /* NULL: none */
    uint32_t barrier;          /* the number of the one it is in, or was in last */
    bool waits;                /* it is in it */
    bool at_end;               /* it is the one at the end of the work */
    uint64_t highest;          /* the last generation that it began, in any life */
};

/* What the members know of a generation, and how far its work is. */
struct sim_generation {
    uint64_t number;
    uint32_t size;
    unsigned *workers; /* [size] by rank */
    char (*members)[MUSTER_UUID_SIZE];
    uint32_t *host_of, host_count; /* [size] */
    uint64_t state_version;
    uint32_t source;
    bool *stale;
    bool *begun;               /* ranks that got the answer */
    uint32_t barrier, entered; /* the present barrier, and how many are in it */
    bool change;               /* somebody in it wants the membership to change */
    uint64_t new_version, new_content, new_committed; /* of the sync, when all are in */
    bool broken;                                      /* a member is in it no more */
    bool synced;
    struct sim_generation *next;
};

/* Calls (sim_calls.c). Starting one takes the JSON; limit_ms 0: as long as attempts are left. */
void sim_call_drop(struct sim_call *call);
void sim_call_start(struct sim *sim, struct sim_worker *worker, unsigned channel,
                    enum muster_rpc_method method, json_t *json, uint32_t attempt_ms,
                    uint32_t attempts, uint32_t limit_ms);
/* A call has ended. json: NULL, or the answer. */
void sim_worker_conclude(struct sim *sim, struct sim_worker *worker, unsigned channel,
                         muster_status status, enum muster_rpc_code code, const json_t *json);
void sim_worker_push(struct sim *sim, const struct sim_worker *worker, int64_t after_ms,
                     void (*run)(struct sim *sim, struct sim_event *event), uint64_t c);
/* The worker that such an event is for; NULL: it is not the same process any more, or the event
 * comes again. */
struct sim_worker *sim_worker_of(struct sim *sim, struct sim_event *event);

void sim_worker_start(struct sim *sim, unsigned index);
void sim_worker_kill(struct sim *sim, unsigned index, bool with_host);
void sim_worker_freeze(struct sim *sim, unsigned index, int64_t until_ns);
void sim_worker_response(struct sim *sim, struct sim_event *event);
void sim_worker_reset(struct sim *sim, struct sim_event *event);
/* The session's: from one generation to the next. */
void sim_worker_rejoin(struct sim *sim, struct sim_worker *worker);
void sim_worker_leave(struct sim *sim, struct sim_worker *worker, enum muster_leave_reason reason);
void sim_worker_report(struct sim *sim, struct sim_worker *worker, uint32_t suspect,
                       enum muster_report_kind kind);
/* True if the event came for a frozen worker, and comes again later. */
bool sim_worker_postpones(struct sim *sim, struct sim_worker *worker, struct sim_event *event);
void sim_worker_watch(struct sim *sim, struct sim_worker *worker);

void sim_member_begin(struct sim *sim, struct sim_worker *worker,
                      const struct muster_join_response *formed);
/* It is not in its generation any more. died: its peers' links are reset. */
void sim_member_end(struct sim *sim, struct sim_worker *worker, bool died);
/* The generation is revoked: its waits end. */
void sim_member_revoked(struct sim *sim, struct sim_worker *worker);

/* Checks (sim_checks.c) ------------------------------------------------------------------------ */

void sim_check_server(struct sim *sim);
void sim_check_formed(struct sim *sim, struct sim_worker *worker,
                      const struct muster_join_response *formed);
void sim_check_sync(struct sim *sim, const struct sim_generation *generation);
void sim_check_committed(struct sim *sim, const struct sim_worker *worker);
/* All that should have formed has. */
bool sim_is_settled(struct sim *sim);
void sim_fail(struct sim *sim, const char *format, ...) MUSTER_PRINTF(2, 3)
    __attribute__((noreturn));
void sim_trace(struct sim *sim, const char *format, ...) MUSTER_PRINTF(2, 3);

/* The whole (sim_run.c) ------------------------------------------------------------------------ */

/* What may happen in a run; drawn from its seed, or given. */
struct sim_plan {
    unsigned workers, hosts;
    unsigned servers; /* 1: with SQLite; more: with etcd */
    uint32_t min, max, target;
    uint64_t work;     /* versions until the work is done; 0: it has no end */
    int64_t faults_ns; /* how long faults happen */
    int64_t fault_every_ns;
    int64_t step_ns; /* of computing, at most */
    struct sim_network_faults network;
    /* How often each kind is drawn, relative to the others. */
    uint32_t kills, lost_hosts, freezes, leaves, starts, resizes;
    uint32_t stops, server_kills, power_losses, pauses, behind, proxy_restarts, full_disks;
    uint32_t links;
    uint32_t cuts, outages; /* one server from etcd, and all */
    uint32_t lost_calls;    /* of a thousand calls of etcd */
    bool nobody_dies;       /* a death is a failure */
    bool mixed;             /* a fault may come while another lasts, and soon after it */
};

struct sim {
    uint64_t seed;
    bool traced;
    int64_t now_ns;
    struct sim_plan plan;
    bool faults_are_over;
    struct sim_event *heap;
    size_t count, capacity;
    uint64_t sequence, steps;
    struct sim_server *nested; /* inside of a compaction of it */
    struct sim_server servers[SIM_SERVERS_MAX];
    int64_t lease_ends_ns; /* for which there is an event */
    struct sim_worker *workers;
    struct sim_connection *connections;
    size_t connection_count, connection_capacity;
    uint64_t calls;
    struct sim_generation *generations;
    /* Of the checks. */
    uint64_t answered;       /* the highest generation number that a worker was told */
    uint64_t server_highest; /* while one server has the job by one claim */
    unsigned owner;
    uint64_t owner_life, claim;
    uint64_t best_version, best_content;
    uint64_t departures;
    bool failed;
    bool two_histories; /* a living member was declared dead */
    struct sim_totals *totals;
};

/* How often these happened, over all seeds: what is never drawn is not tested. */
struct sim_totals {
    uint64_t events, requests, generations, commits, deaths, wrong_deaths, restarts, compactions,
        twins, resizes, finishes, power_losses, refusals, forwards, cuts, moves, lost_calls;
};

void sim_plan_draw(struct sim_plan *plan, unsigned workers);
/* Runs one seed; fails the test with what went wrong. plan NULL: drawn. */
void sim_run(uint64_t seed, const struct sim_plan *plan, bool traced, struct sim_totals *totals);

#endif
