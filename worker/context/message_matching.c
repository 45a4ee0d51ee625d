/* Matching of point-to-point messages: lists of receives and of messages, and who gets what. */
#include "worker/context/message_matching.h"

#include <stdlib.h>

#include "worker/muster.h"

static bool fits(uint32_t wanted_source, uint32_t wanted_tag,
                 const struct muster_arrived_message *message)
{
    return (wanted_source == MUSTER_ANY_SOURCE || wanted_source == message->source) &&
           (wanted_tag == MUSTER_ANY_TAG || wanted_tag == message->tag);
}

muster_status muster_message_matching_init(struct muster_message_matching *matching, uint32_t size)
{
    struct muster_message_source *sources = calloc(size, sizeof *sources);
    if (sources == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for messages of %u ranks", size);
    }
    for (uint32_t i = 0; i < size; i++) {
        TAILQ_INIT(&sources[i].early);
    }
    matching->size = size;
    matching->sources = sources;
    TAILQ_INIT(&matching->waiting);
    TAILQ_INIT(&matching->arrived);
    return MUSTER_OK;
}

void muster_message_matching_finish(struct muster_message_matching *matching)
{
    free(matching->sources);
    matching->sources = NULL;
}

/* Messages -------------------------------------------------------------------------------------
 */

/* The early message before which one with this number belongs, or the one with this number; NULL:
 * it comes last. From the end, where most messages belong. */
static struct muster_arrived_message *find_early(const struct muster_message_source *source,
                                                 uint64_t number)
{
    struct muster_arrived_message *after = NULL;
    struct muster_arrived_message *each = NULL;
    TAILQ_FOREACH_REVERSE(each, &source->early, muster_arrived_messages, order)
    {
        if (each->number < number) {
            break;
        }
        after = each;
    }
    return after;
}

bool muster_message_matching_is_new(const struct muster_message_matching *matching, uint32_t source,
                                    uint64_t number)
{
    const struct muster_message_source *from = &matching->sources[source];
    const struct muster_arrived_message *found = find_early(from, number);
    return number >= from->next && (found == NULL || found->number != number);
}

void muster_message_matching_add(struct muster_message_matching *matching,
                                 struct muster_arrived_message *message)
{
    struct muster_message_source *from = &matching->sources[message->source];
    struct muster_arrived_message *after = find_early(from, message->number);
    if (after != NULL) {
        TAILQ_INSERT_BEFORE(after, message, order);
    } else {
        TAILQ_INSERT_TAIL(&from->early, message, order);
    }
}

static struct muster_waiting_receive *take_receive_for(struct muster_message_matching *matching,
                                                       const struct muster_arrived_message *message)
{
    struct muster_waiting_receive *each = NULL;
    TAILQ_FOREACH(each, &matching->waiting, order)
    {
        if (fits(each->source, each->tag, message)) {
            TAILQ_REMOVE(&matching->waiting, each, order);
            return each;
        }
    }
    return NULL;
}

bool muster_message_matching_deliver(struct muster_message_matching *matching, uint32_t source,
                                     struct muster_message_match *ret_match)
{
    struct muster_message_source *from = &matching->sources[source];
    struct muster_arrived_message *message = NULL;
    while ((message = TAILQ_FIRST(&from->early)) != NULL && message->number == from->next) {
        TAILQ_REMOVE(&from->early, message, order);
        from->next++;
        struct muster_waiting_receive *receive = take_receive_for(matching, message);
        if (receive != NULL) {
            *ret_match = (struct muster_message_match){.message = message, .receive = receive};
            return true;
        }
        TAILQ_INSERT_TAIL(&matching->arrived, message, order);
    }
    return false;
}

struct muster_arrived_message *
muster_message_matching_take_any(struct muster_message_matching *matching)
{
    struct muster_arrived_message *message = TAILQ_FIRST(&matching->arrived);
    if (message != NULL) {
        TAILQ_REMOVE(&matching->arrived, message, order);
        return message;
    }
    for (uint32_t i = 0; i < matching->size; i++) {
        message = TAILQ_FIRST(&matching->sources[i].early);
        if (message != NULL) {
            TAILQ_REMOVE(&matching->sources[i].early, message, order);
            return message;
        }
    }
    return NULL;
}

/* Receives -------------------------------------------------------------------------------------
 */

struct muster_arrived_message *
muster_message_matching_find(const struct muster_message_matching *matching, uint32_t source,
                             uint32_t tag)
{
    struct muster_arrived_message *each = NULL;
    TAILQ_FOREACH(each, &matching->arrived, order)
    {
        if (fits(source, tag, each)) {
            return each;
        }
    }
    return NULL;
}

bool muster_message_matching_awaits_next(const struct muster_message_matching *matching,
                                         uint32_t source, uint32_t tag)
{
    return TAILQ_EMPTY(&matching->waiting) && TAILQ_EMPTY(&matching->sources[source].early) &&
           muster_message_matching_find(matching, source, tag) == NULL;
}

void muster_message_matching_pass_next(struct muster_message_matching *matching, uint32_t source)
{
    matching->sources[source].next++;
}

struct muster_arrived_message *
muster_message_matching_post(struct muster_message_matching *matching,
                             struct muster_waiting_receive *receive)
{
    struct muster_arrived_message *message =
        muster_message_matching_find(matching, receive->source, receive->tag);
    if (message != NULL) {
        TAILQ_REMOVE(&matching->arrived, message, order);
    } else {
        TAILQ_INSERT_TAIL(&matching->waiting, receive, order);
    }
    return message;
}

struct muster_arrived_message *
muster_message_matching_take(struct muster_message_matching *matching, uint32_t source,
                             uint32_t tag)
{
    struct muster_arrived_message *message = muster_message_matching_find(matching, source, tag);
    if (message != NULL) {
        TAILQ_REMOVE(&matching->arrived, message, order);
    }
    return message;
}

void muster_message_matching_withdraw(struct muster_message_matching *matching,
                                      struct muster_waiting_receive *receive)
{
    TAILQ_REMOVE(&matching->waiting, receive, order);
}

struct muster_waiting_receive *
muster_message_matching_take_waiting(struct muster_message_matching *matching, uint32_t source)
{
    struct muster_waiting_receive *each = NULL;
    TAILQ_FOREACH(each, &matching->waiting, order)
    {
        if (each->source == source) {
            TAILQ_REMOVE(&matching->waiting, each, order);
            return each;
        }
    }
    return NULL;
}
