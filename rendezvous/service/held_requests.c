#include "rendezvous/service/held_requests.h"

#include "worker/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static struct muster_watcher **list_of(struct muster_watchers *watchers,
                                       const struct muster_watcher *watcher)
{
    return watcher->method == MUSTER_RPC_WAIT ? &watchers->waits : &watchers->members;
}

static int64_t round_up(int64_t ns)
{
    const int64_t step_ns = (int64_t)MUSTER_DEADLINE_STEP_MS * MUSTER_NS_PER_MS;
    return (ns / step_ns + 1) * step_ns;
}

void muster_watchers_hold(struct muster_watchers *watchers, struct muster_watcher *watcher,
                          uint32_t hold_ms)
{
    watcher->deadline_ns = round_up(muster_clock_after_ms(hold_ms));
    struct muster_watcher **list = list_of(watchers, watcher);
    /* Nearly all are held equally long: the place is at the end. */
    struct muster_watcher *before = *list == NULL ? NULL : (*list)->prev;
    while (before != NULL && before->deadline_ns > watcher->deadline_ns) {
        before = before == *list ? NULL : before->prev;
    }
    if (before == NULL) {
        DL_PREPEND(*list, watcher);
    } else {
        DL_APPEND_ELEM(*list, before, watcher);
    }
    watchers->wait_count += watcher->method == MUSTER_RPC_WAIT;
}

void muster_watchers_take(struct muster_watchers *watchers, struct muster_watcher *watcher)
{
    struct muster_watcher **list = list_of(watchers, watcher);
    DL_DELETE(*list, watcher);
    watchers->wait_count -= watcher->method == MUSTER_RPC_WAIT;
}

struct muster_watcher *muster_watchers_of_member(const struct muster_watchers *watchers,
                                                 const char *member)
{
    struct muster_watcher *watcher = NULL;
    DL_FOREACH(watchers->members, watcher)
    {
        if (strcmp(watcher->member, member) == 0) {
            return watcher;
        }
    }
    return NULL;
}

struct muster_watcher *muster_watchers_by_serial(const struct muster_watchers *watchers,
                                                 uint64_t serial)
{
    struct muster_watcher *watcher = NULL;
    DL_FOREACH(watchers->members, watcher)
    {
        if (watcher->serial == serial) {
            return watcher;
        }
    }
    DL_FOREACH(watchers->waits, watcher)
    {
        if (watcher->serial == serial) {
            return watcher;
        }
    }
    return NULL;
}

int64_t muster_watchers_next_ns(const struct muster_watchers *watchers)
{
    int64_t members_ns = watchers->members != NULL ? watchers->members->deadline_ns : MUSTER_NEVER;
    int64_t waits_ns = watchers->waits != NULL ? watchers->waits->deadline_ns : MUSTER_NEVER;
    return members_ns < waits_ns ? members_ns : waits_ns;
}

void muster_answers_add(struct muster_answers *answers, struct muster_watcher *watcher,
                        struct muster_rpc_answer answer)
{
    watcher->given = answer;
    LL_PREPEND(answers->first, watcher);
}

void muster_answers_deliver(struct muster_answers *answers)
{
    struct muster_watcher *watcher = answers->first;
    answers->first = NULL;
    while (watcher != NULL) {
        struct muster_watcher *next = watcher->next; /* answer() may free it */
        watcher->answer(watcher, watcher->given);
        watcher = next;
    }
}
