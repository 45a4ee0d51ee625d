/*
 * Held requests: Join, Watch and Wait, which are answered when something happens or their time is
 * over. Each job has a set of them, under the job's lock; answers are collected under that lock and
 * delivered after it is free.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H
#define MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H

#include "rendezvous/service/rpc_call.h"

enum {
    MUSTER_WAITS_MAX = 4096, /* held Waits of one job */
    /* Deadlines are rounded up to this, so that many of them make one round. */
    MUSTER_DEADLINE_STEP_MS = 8,
};

struct muster_held_request;
typedef void (*muster_respond_function)(struct muster_held_request *held,
                                        struct muster_rpc_response response);

/* Part of the caller's request. It stays until answer was called, which happens once, from any
 * thread, with no lock held. answer takes the body. */
struct muster_held_request {
    muster_respond_function respond;
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
    struct muster_held_request *prev, *next;
    struct muster_rpc_response response;
};

struct muster_held_requests {
    struct muster_held_request *members; /* Join and Watch, by deadline; one a member */
    struct muster_held_request *waits;   /* by deadline */
    uint32_t wait_count;
};

struct muster_ready_responses {
    struct muster_held_request *first;
};

/* Puts it among the others; an older one of the same member must have been taken. */
void muster_held_requests_add(struct muster_held_requests *held_requests,
                              struct muster_held_request *held, uint32_t hold_ms);
void muster_held_requests_remove(struct muster_held_requests *held_requests,
                                 struct muster_held_request *held);

/* NULL: none. */
struct muster_held_request *
muster_held_requests_find_member(const struct muster_held_requests *held_requests,
                                 const char *member);
struct muster_held_request *
muster_held_requests_find_serial(const struct muster_held_requests *held_requests, uint64_t serial);

/* The earliest deadline; INT64_MAX: nothing is held. */
int64_t muster_held_requests_next_ns(const struct muster_held_requests *held_requests);

/* The watcher has been taken; takes the answer. */
void muster_ready_responses_add(struct muster_ready_responses *responses,
                                struct muster_held_request *held,
                                struct muster_rpc_response response);
/* With no lock held. */
void muster_ready_responses_send(struct muster_ready_responses *responses);

#endif
