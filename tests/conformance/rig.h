/*
 * Fabrics of one process, linked by the transport under test, and a thread for each rank. A rank's
 * thread returns an error text, or NULL; the test's own thread asserts.
 */
#ifndef MUSTER_TESTS_CONFORMANCE_RIG_H
#define MUSTER_TESTS_CONFORMANCE_RIG_H

#include "tests/support/fabrics.h"
#include "worker/base/clock.h"

enum {
    RIG_MAX = 8,
    RIG_TIMEOUT_MS = 60000, /* nothing that works takes so long, even on a busy machine */
};

/* How the fabrics under test are created: see fabrics.h. */
struct rig_transport {
    const char *name;
    const char *transports;
    muster_options options;
    /* Called by each thread before it acts for a rank: with a wish before it creates the rank's
     * fabric, else with NULL; and with RIG_MAX after it has created one. May be NULL. */
    void (*prepare)(uint32_t rank, struct fabric_wish *wish);
};

struct rig {
    const struct rig_transport *transport;
    uint32_t count;
    struct muster_fabric *fabrics[RIG_MAX];
    struct muster_peer peers[RIG_MAX];
    uint64_t generation;
};

void rig_init(struct rig *rig, const struct rig_transport *transport, uint32_t count);
void rig_finish(struct rig *rig);

/* Replaces a fabric by a new one with another member. */
void rig_replace(struct rig *rig, uint32_t rank);

/* Begins the next generation on all fabrics. */
void rig_begin(struct rig *rig);
/* On one of them: the rig's generation, with the rig's peers. */
void rig_begin_one(struct rig *rig, uint32_t rank);

/* What one rank does in a test. */
typedef char *(*rig_function)(struct rig *rig, uint32_t rank, void *user);

/* Runs the function in a thread for each rank. Fails the test with the first error text. */
void rig_run(struct rig *rig, rig_function function, void *user);

/* printf to a string that rig_run() frees. */
char *rig_error(const char *format, ...) MUSTER_PRINTF(1, 2);
#define RIG_EXPECT(condition)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            return rig_error("%s:%d: %s (%s)", __FILE__, __LINE__, #condition, \
                             muster_last_error());                             \
        }                                                                      \
    } while (0)

/* Counts transfers of one operation. */
struct rig_counter {
    uint32_t left;
    bool finished;        /* all are done, or one has failed */
    muster_status status; /* of the first that failed */
    char reason[MUSTER_ERROR_MAX];
};

/* A transfer with the rig's generation, context 0, lane 0, and elements of one byte. */
struct muster_transfer rig_send(const struct rig *rig, uint32_t peer, uint64_t sequence, void *data,
                                uint64_t size_bytes);
struct muster_transfer rig_receive(const struct rig *rig, uint32_t peer, uint64_t sequence,
                                   void *data, uint64_t size_bytes);
extern const struct muster_call rig_call;

/* Posts a transfer that the counter counts. A failed post fails the counter. */
void rig_post(struct rig *rig, uint32_t rank, struct rig_counter *counter,
              struct muster_transfer *transfer);
/* Waits until all are done, at most RIG_TIMEOUT_MS. Returns the counter's status, or the wait's. */
muster_status rig_wait(struct rig *rig, uint32_t rank, struct rig_counter *counter);

/* Drives the rank's fabric for so long. */
void rig_progress(struct rig *rig, uint32_t rank, uint32_t ms);
/* Rank 1 sends a byte to rank 0, which posts no receive. Drives both until the send has ended. */
struct rig_counter rig_send_unexpected(struct rig *rig);

/* A byte each way, as operation 1 of context 0: with a peer, or for rig_run() between ranks 0
 * and 1. */
char *rig_exchange_with(struct rig *rig, uint32_t rank, uint32_t peer);
char *rig_exchange(struct rig *rig, uint32_t rank, void *user);

/* A pattern of bytes, another one for each seed. */
void rig_fill(void *data, uint64_t size_bytes, uint64_t seed);
bool rig_filled(const void *data, uint64_t size_bytes, uint64_t seed);

#endif
