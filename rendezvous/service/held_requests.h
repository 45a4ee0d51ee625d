/*
 * Held requests: Join, Watch and Wait, which are answered when something happens or their time is
 * over. Each job has a set of them, under the job's lock; answers are collected under that lock and
 * delivered after it is free.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H
#define MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H

#include "rendezvous/service/answer.h"

enum {
    MUSTER_WAITS_MAX = 4096, /* held Waits of one job */
    /* Deadlines are rounded up to this, so that many of them make one round. */
    MUSTER_DEADLINE_STEP_MS = 8,
};

struct muster_watcher;
typedef void (*muster_answer_function)(struct muster_watcher *watcher,
                                       struct muster_rpc_answer answer);

/* Part of the caller's request. It stays until answer was called, which happens once, from any
 * thread, with no lock held. answer takes the body. */
struct muster_watcher {
    muster_answer_function answer;
    /* Set when it is held: the job, and a number that no other watcher ever has. */
    char job[MUSTER_JOB_NAME_SIZE];
    uint64_t serial;
    /* The rest belongs to the service. */
    enum muster_rpc_method method;
    char member[MUSTER_UUID_SIZE]; /* Join, Watch */
    uint64_t generation;           /* Watch, Wait */
    bool pending_known, leave_known;
    char key[MUSTER_KEY_MAX_BYTES + 1]; /* Wait */
    int64_t deadline_ns;
    struct muster_watcher *prev, *next;
    struct muster_rpc_answer given;
};

struct muster_watchers {
    struct muster_watcher *members; /* Join and Watch, by deadline; one a member */
    struct muster_watcher *waits;   /* by deadline */
    uint32_t wait_count;
};

struct muster_answers {
    struct muster_watcher *first;
};

/* Puts it among the others; an older one of the same member must have been taken. */
void muster_watchers_hold(struct muster_watchers *watchers, struct muster_watcher *watcher,
                          uint32_t hold_ms);
void muster_watchers_take(struct muster_watchers *watchers, struct muster_watcher *watcher);

/* NULL: none. */
struct muster_watcher *muster_watchers_of_member(const struct muster_watchers *watchers,
                                                 const char *member);
struct muster_watcher *muster_watchers_by_serial(const struct muster_watchers *watchers,
                                                 uint64_t serial);

/* The earliest deadline; INT64_MAX: nothing is held. */
int64_t muster_watchers_next_ns(const struct muster_watchers *watchers);

/* The watcher has been taken; takes the answer. */
void muster_answers_add(struct muster_answers *answers, struct muster_watcher *watcher,
                        struct muster_rpc_answer answer);
/* With no lock held. */
void muster_answers_deliver(struct muster_answers *answers);

#endif
