/* Rejected connections: counted, and logged at a bounded rate. */
#ifndef MUSTER_WORKER_FABRIC_WIRE_REJECTED_CONNECTIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_REJECTED_CONNECTIONS_H

#include <stdint.h>

enum muster_rejection {
    MUSTER_REJECTED_SILENT = 0,   /* closed before its hello was complete */
    MUSTER_REJECTED_SLOW = 1,     /* no complete hello in MUSTER_HELLO_MS */
    MUSTER_REJECTED_TOO_MANY = 2, /* too many without a complete hello */
    MUSTER_REJECTED_GARBAGE = 3,
    MUSTER_REJECTED_VERSION = 4,
    MUSTER_REJECTED_TOKEN = 5,
    MUSTER_REJECTED_UNKNOWN = 6, /* the dialler is no member, or the hello is for another member */
    MUSTER_REJECTED_NO_GENERATION = 7, /* its generation did not begin here in time */
    MUSTER_REJECTED_PLAIN = 8,         /* without TLS, which this member uses */
    MUSTER_REJECTED_TLS = 9,           /* with TLS, which this member does not use */
    MUSTER_REJECTED_HANDSHAKE = 10,
    MUSTER_REJECTED_RANK = 11, /* the dialler says that it has another rank */
    MUSTER_REJECTED_KINDS = 12,
};

/* Zeroed at first. */
struct muster_rejections {
    struct {
        uint64_t unlogged; /* since the last line */
        int64_t quiet_until_ns;
    } kinds[MUSTER_REJECTED_KINDS];
};

/* Counts one, and logs at most one line a kind and minute. from: its address; why: more to log, or
 * NULL. */
void muster_rejections_note(struct muster_rejections *rejections, enum muster_rejection kind,
                            const char *from, const char *why, int64_t now_ns);

#endif
