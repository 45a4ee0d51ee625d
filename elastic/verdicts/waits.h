/*
 * Who waits on whom, and who is the root: the member for whom the others wait, directly or by way
 * of others, and that waits for nobody.
 *
 *   the root                                 kind
 *   does not answer the service              frozen (stopped, or its host is)
 *   answers, and is in no call               in user code
 *   answers, is in a call, which moves       slow
 *   all wait for each other                  slow: the one that has finished the fewest operations
 *
 * Members that do not answer are told apart from a server that heard nobody: where more than half
 * are silent, and several, the fault is the server's or its network's.
 */
#ifndef MUSTER_ELASTIC_VERDICTS_WAITS_H
#define MUSTER_ELASTIC_VERDICTS_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#define MUSTER_WAITS_NOBODY UINT32_MAX

enum muster_wait_kind {
    MUSTER_WAIT_NONE = 0, /* nobody waits */
    MUSTER_WAIT_FROZEN,
    MUSTER_WAIT_USER_CODE,
    MUSTER_WAIT_SLOW,
};

struct muster_wait_member {
    uint32_t host;      /* its number */
    bool answers;       /* it gave a sign of life after it was asked; what follows is then known */
    bool in_call;       /* its calling thread is in a call of the library */
    bool waits;         /* nothing of that call has moved for a while */
    uint32_t waits_for; /* for this member; MUSTER_WAITS_NOBODY: it is not known for whom */
    uint64_t progress;  /* operations finished in the generation */
};

struct muster_wait_root {
    enum muster_wait_kind kind;
    uint32_t member, waiter; /* the root, and one that waits for it, if only by way of others */
};

/* members: [count]; first: one that waits, from whose wait on the root is sought. */
struct muster_wait_root muster_waits_find_root(const struct muster_wait_member *members,
                                               uint32_t count, uint32_t first);

/* Whether so many silent members of so many are the server's own fault. */
bool muster_waits_is_own_fault(uint32_t silent, uint32_t count);

#endif
