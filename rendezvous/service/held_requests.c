/* Held requests in three lists and a heap of their deadlines; those of members also in a hash. */
#include "rendezvous/service/held_requests.h"

#include "worker/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct muster_wait_keys *muster_wait_keys_create(char (*keys)[MUSTER_KEY_MAX_BYTES + 1],
                                                 uint32_t count)
{
    struct muster_wait_keys *several = malloc(sizeof *several);
    if (several == NULL) {
        free(keys);
        return NULL;
    }
    *several = (struct muster_wait_keys){.count = count, .keys = keys};
    return several;
}

void muster_wait_keys_destroy(struct muster_wait_keys *several)
{
    if (several != NULL) {
        free(several->keys);
        free(several);
    }
}

static struct muster_held_request **list_of(struct muster_held_requests *requests,
                                            const struct muster_held_request *held)
{
    if (held->kind->of_viewer) {
        return &requests->viewers;
    }
    return held->kind->of_member ? &requests->members : &requests->waits;
}

static int64_t round_up(int64_t ns)
{
    const int64_t step_ns = (int64_t)MUSTER_DEADLINE_STEP_MS * MUSTER_NS_PER_MS;
    return (ns / step_ns + 1) * step_ns;
}

muster_status muster_held_requests_add(struct muster_held_requests *requests,
                                       struct muster_held_request *held, uint32_t hold_ms)
{
    held->deadline_ns = round_up(muster_clock_after_ms(hold_ms));
    TRY(muster_deadlines_add(&requests->deadlines, held));
    if (held->kind->of_member) {
        held->hh.tbl = NULL;
        HASH_ADD_KEYPTR(hh, requests->by_member, held->id.member, strlen(held->id.member), held);
        if (held->hh.tbl == NULL) {
            muster_deadlines_remove(&requests->deadlines, held);
            return muster_error_set(MUSTER_FATAL, "no memory to hold a request");
        }
    }
    DL_APPEND(*list_of(requests, held), held);
    requests->viewer_count += held->kind->of_viewer ? 1 : 0;
    requests->wait_count += held->kind->of_member || held->kind->of_viewer ? 0 : 1;
    return MUSTER_OK;
}

void muster_held_requests_remove(struct muster_held_requests *requests,
                                 struct muster_held_request *held)
{
    DL_DELETE(*list_of(requests, held), held);
    muster_deadlines_remove(&requests->deadlines, held);
    if (held->kind->of_member) {
        HASH_DEL(requests->by_member, held);
    }
    requests->viewer_count -= held->kind->of_viewer ? 1 : 0;
    requests->wait_count -= held->kind->of_member || held->kind->of_viewer ? 0 : 1;
    muster_wait_keys_destroy(held->several);
    held->several = NULL;
}

struct muster_held_request *
muster_held_requests_find_member(const struct muster_held_requests *requests, const char *member)
{
    struct muster_held_request *held = NULL;
    HASH_FIND_STR(requests->by_member, member, held);
    return held;
}

static struct muster_held_request *find_serial(struct muster_held_request *list, uint64_t serial)
{
    struct muster_held_request *held = NULL;
    DL_FOREACH(list, held)
    {
        if (held->id.serial == serial) {
            return held;
        }
    }
    return NULL;
}

struct muster_held_request *muster_held_requests_find(const struct muster_held_requests *requests,
                                                      const struct muster_held_id *id)
{
    if (id->member[0] != '\0') {
        struct muster_held_request *held = muster_held_requests_find_member(requests, id->member);
        return held != NULL && held->id.serial == id->serial ? held : NULL;
    }
    struct muster_held_request *wait = find_serial(requests->waits, id->serial);
    return wait != NULL ? wait : find_serial(requests->viewers, id->serial);
}

void muster_held_requests_finish(struct muster_held_requests *requests)
{
    muster_deadlines_finish(&requests->deadlines);
}

struct muster_held_request *muster_held_requests_first(const struct muster_held_requests *requests)
{
    return muster_deadlines_first(&requests->deadlines);
}

int64_t muster_held_requests_next_ns(const struct muster_held_requests *requests)
{
    const struct muster_held_request *first = muster_held_requests_first(requests);
    return first != NULL ? first->deadline_ns : MUSTER_NEVER;
}

void muster_ready_responses_add(struct muster_ready_responses *responses,
                                struct muster_held_request *held,
                                struct muster_rpc_response response)
{
    held->response = response;
    LL_PREPEND(responses->first, held);
}

void muster_ready_responses_send(struct muster_ready_responses *responses)
{
    struct muster_held_request *held = responses->first;
    responses->first = NULL;
    while (held != NULL) {
        struct muster_held_request *next = held->next; /* respond() may free it */
        held->respond(held, held->response);
        held = next;
    }
}
