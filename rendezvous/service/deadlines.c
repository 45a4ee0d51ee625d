/* The heap of held requests by deadline. */
#include "rendezvous/service/deadlines.h"

#include "rendezvous/service/held_requests.h"

enum { FIRST_CAPACITY = 16 };

static void place(struct muster_deadlines *deadlines, size_t at, struct muster_held_request *held)
{
    deadlines->items[at] = held;
    held->deadline_at = at;
}

/* The place at is free: fills it with held, or with one of its parents. */
static void sift_up(struct muster_deadlines *deadlines, size_t at, struct muster_held_request *held)
{
    while (at > 0 && deadlines->items[(at - 1) / 2]->deadline_ns > held->deadline_ns) {
        place(deadlines, at, deadlines->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(deadlines, at, held);
}

/* The place at is free: fills it with held, or with one of its children. */
static void sift_down(struct muster_deadlines *deadlines, size_t at,
                      struct muster_held_request *held)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < deadlines->count &&
            deadlines->items[child + 1]->deadline_ns < deadlines->items[child]->deadline_ns) {
            child++;
        }
        if (child >= deadlines->count ||
            deadlines->items[child]->deadline_ns >= held->deadline_ns) {
            place(deadlines, at, held);
            return;
        }
        place(deadlines, at, deadlines->items[child]);
        at = child;
    }
}

muster_status muster_deadlines_add(struct muster_deadlines *deadlines,
                                   struct muster_held_request *held)
{
    if (deadlines->count == deadlines->capacity) {
        size_t capacity = deadlines->capacity > 0 ? 2 * deadlines->capacity : FIRST_CAPACITY;
        struct muster_held_request **grown =
            reallocarray(deadlines->items, capacity, sizeof(struct muster_held_request *));
        if (grown == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory to hold a request");
        }
        deadlines->items = grown;
        deadlines->capacity = capacity;
    }
    sift_up(deadlines, deadlines->count++, held);
    return MUSTER_OK;
}

void muster_deadlines_remove(struct muster_deadlines *deadlines, struct muster_held_request *held)
{
    size_t at = held->deadline_at;
    struct muster_held_request *last = deadlines->items[--deadlines->count];
    if (last == held) {
        return;
    }
    if (last->deadline_ns < held->deadline_ns) {
        sift_up(deadlines, at, last);
    } else {
        sift_down(deadlines, at, last);
    }
}

struct muster_held_request *muster_deadlines_first(const struct muster_deadlines *deadlines)
{
    return deadlines->count > 0 ? deadlines->items[0] : NULL;
}

void muster_deadlines_finish(struct muster_deadlines *deadlines)
{
    free(deadlines->items);
    *deadlines = (struct muster_deadlines){0};
}
