/*
 * Doubts: members of which it is not certain that they live, because their connection closed, or
 * because the server has started and not heard of them yet. Others, the witnesses, are asked to
 * dial them: their next response to a Join that waits, or to a Watch, names whom. A dial that is
 * refused is a death (membership.h); so simultaneous deaths, and deaths that no collective noticed,
 * cost milliseconds. A dial that is answered changes nothing: the member is about to send its next
 * request, or the time of a suspicion runs, or it is ending, and its sockets close one after the
 * other. So they are asked again, a few times.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_DOUBTS_H
#define MUSTER_RENDEZVOUS_SERVICE_DOUBTS_H

#include "elastic/membership/membership.h"

#include <stdbool.h>

struct muster_transaction;

enum {
    MUSTER_DOUBTS_MAX = 64,      /* of one job at a time; those beyond wait for their time */
    MUSTER_DOUBTS_ASKED_MAX = 8, /* named in one response */
    MUSTER_WITNESSES = 3,        /* of one doubt, that live as far as is known */
};

struct muster_doubt {
    char member[MUSTER_UUID_SIZE];
    int64_t again_ns; /* when others, or the same ones, are asked again; 0: nobody was asked yet */
    uint32_t rounds;
    uint32_t witness_count;
    char witnesses[MUSTER_WITNESSES][MUSTER_UUID_SIZE];
};

/* Of one job; zeroed: none. Nothing of it is stored. */
struct muster_doubts {
    uint32_t count;
    struct muster_doubt items[MUSTER_DOUBTS_MAX];
};

/* Whether this member dials others, and is doubted for an idle connection that closes, or because
 * it was not heard of. Stock clients open a connection for each request. */
bool muster_doubts_dials(const struct muster_member_info *info);

/* This member is doubted. Forgets doubts that are over. True: it was not listed before, and is now.
 */
bool muster_doubts_add(struct muster_doubts *doubts, const struct muster_membership *membership,
                       const char *member);

/* After a start of the server: those for whom the others of the last generation wait, once they are
 * few. */
void muster_doubts_add_unheard(struct muster_doubts *doubts,
                               const struct muster_membership *membership);

/* Whether this member is to be asked of somebody. */
bool muster_doubts_need(const struct muster_doubts *doubts,
                        const struct muster_membership *membership, const char *witness);

/* Whom this member is to dial: it becomes a witness of each. Returns how many; views are borrowed
 * as those of the membership. */
uint32_t muster_doubts_ask(struct muster_doubts *doubts, const struct muster_membership *membership,
                           const char *witness,
                           struct muster_member_view ret_views[MUSTER_DOUBTS_ASKED_MAX]);

/* When to ask again at the earliest; MUSTER_NEVER: not, or nobody was asked yet. */
int64_t muster_doubts_next_ns(const struct muster_doubts *doubts);

/* Those whom nobody has found dead by now need witnesses again. False: none, or it is too early. */
bool muster_doubts_renew(struct muster_doubts *doubts, const struct muster_membership *membership,
                         int64_t now_ns);

/* Ends the held requests of as many members as doubts need witnesses. */
void muster_doubts_ask_held(struct muster_transaction *transaction);

#endif
