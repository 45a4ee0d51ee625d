/*
 * Held requests: a Join, Watch or Wait that is answered when something happens, or when its time is
 * over. Each job has a set of them under the job's lock. Responses are collected under that lock
 * and sent once it is released.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H
#define MUSTER_RENDEZVOUS_SERVICE_HELD_REQUESTS_H

#include "rendezvous/service/deadlines.h"
#include "rendezvous/service/rpc_call.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum {
    MUSTER_WAITS_MAX = 4096, /* held Waits of one job */
    MUSTER_VIEWERS_MAX = 64, /* held WatchStreams of viewers of one job */
    /* Deadlines are rounded up to a multiple of this, so that many of them end in one tick. */
    MUSTER_DEADLINE_STEP_MS = 8,
};

struct muster_held_request;
struct muster_transaction;

/* What the service needs to know of a method whose requests are held. */
struct muster_held_kind {
    /* Join and Watch: the request is a member's, which has at most one. Wait: false. */
    bool of_member;
    bool of_viewer;   /* a viewer's: asked after every event */
    bool ends_by_ask; /* a member that lives sends the next at once when it ends */
    /* True if the request can be answered now; *ret_response is then the response. */
    bool (*ready)(struct muster_transaction *transaction, const struct muster_held_request *held,
                  struct muster_rpc_response *ret_response);
    /* The response to a request whose time is over. */
    struct muster_rpc_response (*expire)(struct muster_transaction *transaction,
                                         const struct muster_held_request *held);
};

/* Names a held request, also when it may be gone already. */
struct muster_held_id {
    uint64_t serial; /* of all held requests of the service; 0: none */
    char job[MUSTER_JOB_NAME_SIZE];
    char member[MUSTER_UUID_SIZE]; /* Wait: "" */
    bool forwarded;                /* the connection is one of another server's */
};

/* Sends a response, and takes its body. Called once for a held request, from any thread, with no
 * lock held; the storage of the request may be freed from then on. */
typedef void (*muster_respond_function)(struct muster_held_request *held,
                                        struct muster_rpc_response response);

/* The keys of a Wait for several. */
struct muster_wait_keys {
    uint32_t count;
    uint32_t seen;                          /* the first of them had values when looked up */
    char (*keys)[MUSTER_KEY_MAX_BYTES + 1]; /* owned */
};
/* Takes the keys, also if it fails. NULL: no memory. */
struct muster_wait_keys *muster_wait_keys_create(char (*keys)[MUSTER_KEY_MAX_BYTES + 1],
                                                 uint32_t count);
/* Accepts NULL. */
void muster_wait_keys_destroy(struct muster_wait_keys *several);

/* Storage of the caller, zeroed but for respond, and borrowed until respond is called. */
struct muster_held_request {
    muster_respond_function respond;
    struct muster_held_id id;
    const struct muster_held_kind *kind;
    enum muster_rpc_method method;
    uint64_t generation;                /* Watch, Wait */
    bool pending_known, leave_known;    /* Watch */
    uint32_t neighbours_above;          /* Join: see muster_join_responses_formed() */
    uint64_t cursor;                    /* WatchStream */
    char key[MUSTER_KEY_MAX_BYTES + 1]; /* Wait */
    struct muster_wait_keys *several;   /* Wait, or NULL; owned, freed when it is removed */
    int64_t deadline_ns;
    size_t deadline_at; /* in the heap of deadlines */
    struct muster_held_request *prev, *next;
    UT_hash_handle hh;                   /* Join, Watch: by member */
    struct muster_rpc_response response; /* once it is ready */
    uint64_t claim;                      /* of the job that the response is about */
};

struct muster_held_requests {
    struct muster_held_request *members;   /* Join and Watch, in any order; one a member */
    struct muster_held_request *waits;     /* in any order */
    struct muster_held_request *viewers;   /* in any order */
    struct muster_held_request *by_member; /* the same as members, as a hash */
    struct muster_deadlines deadlines;     /* of all */
    uint32_t wait_count, viewer_count;
};

/* kind and id are set. No other request of the same member is held. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_held_requests_add(struct muster_held_requests *requests,
                                                      struct muster_held_request *held,
                                                      uint32_t hold_ms);
void muster_held_requests_remove(struct muster_held_requests *requests,
                                 struct muster_held_request *held);

/* NULL: none. */
struct muster_held_request *
muster_held_requests_find_member(const struct muster_held_requests *requests, const char *member);
struct muster_held_request *muster_held_requests_find(const struct muster_held_requests *requests,
                                                      const struct muster_held_id *id);

/* Nothing is held. */
void muster_held_requests_finish(struct muster_held_requests *requests);

/* The request whose time is over first; NULL: nothing is held. */
struct muster_held_request *muster_held_requests_first(const struct muster_held_requests *requests);
/* The earliest deadline; MUSTER_NEVER: nothing is held. */
int64_t muster_held_requests_next_ns(const struct muster_held_requests *requests);

/* Requests that were removed, with their responses. */
struct muster_ready_responses {
    struct muster_held_request *first;
};

/* Takes the response. */
void muster_ready_responses_add(struct muster_ready_responses *responses,
                                struct muster_held_request *held,
                                struct muster_rpc_response response);
/* With no lock held. */
void muster_ready_responses_send(struct muster_ready_responses *responses);

#endif
