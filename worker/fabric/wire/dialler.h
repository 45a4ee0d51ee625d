/*
 * When a member dials: the retries of a link that is opening, and of the missing paths of a link
 * that is open, each with a back-off that doubles.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_DIALLER_H
#define MUSTER_WORKER_FABRIC_WIRE_DIALLER_H

#include <stdbool.h>
#include <stdint.h>

struct muster_match;

enum {
    MUSTER_CROSSED_MS = 200, /* how long to wait for the peer's connection before dialling again */
    MUSTER_DIALS_MAX = 6,    /* dials that the peer closes without an answer */
    MUSTER_REDIAL_MS = 10,   /* back-off before the first retry; doubles */
    MUSTER_PATH_RETRY_MS = 100,       /* likewise, for a missing path of an open link */
    MUSTER_PATH_RETRY_DOUBLINGS = 13, /* to 14 min: a dial can cost the fabric a second */
    MUSTER_PATH_RETRY_LOGGED = 8,     /* after so many failed dials a line is logged */
};

/* What dialling needs of a link: the first member of what link->end points to. */
struct muster_dialler {
    struct muster_match *match;         /* of the same link */
    uint32_t failed_dials;              /* closed by the peer without an answer */
    int64_t redial_ns;                  /* when to dial next; MUSTER_NEVER: not */
    uint32_t failed_path_dials;         /* for missing paths of an open link, since it lost one */
    struct muster_dialler *prev, *next; /* in pending_list->diallers */
};

/* The peer closed the connection without an answer, perhaps because it has too many pending ones:
 * dials again after a back-off. False: this was the last of MUSTER_DIALS_MAX. */
bool muster_dialler_retry(struct muster_dialler *dialler);
/* The link uses the peer's own connection instead. If that does not arrive, this member dials
 * again. */
void muster_dialler_crossed(struct muster_dialler *dialler);
/* A missing path of an open link could not be opened: dials again after a back-off, which doubles
 * up to a bound, without end. Does nothing if a dial is due already. */
void muster_dialler_retry_path(struct muster_dialler *dialler);
/* An open link has lost a path: dials again after the first back-off. */
void muster_dialler_path_lost(struct muster_dialler *dialler);

#endif
