/* Point to point: messages that are looked for, and those that are taken, before they are received.
 */
#include "worker/base/clock.h"
#include "worker/context/point_to_point_parts.h"

static struct stored_message *find_locked(struct muster_point_to_point *messages,
                                          const struct muster_message_probe *what)
{
    struct muster_message_matching *matching = &messages->matching;
    if (!what->takes) {
        return (struct stored_message *)muster_message_matching_find(matching, what->source,
                                                                     what->tag);
    }
    struct stored_message *stored =
        (struct stored_message *)muster_message_matching_take(matching, what->source, what->tag);
    if (stored != NULL) {
        stored->taken = ++messages->last_taken;
        TAILQ_INSERT_TAIL(&messages->taken, &stored->arrived, order);
    }
    return stored;
}

/* A message that has arrived is found also when its sender is gone. */
static muster_status look_locked(struct muster_point_to_point *messages,
                                 const struct muster_message_probe *what, bool *ret_found,
                                 muster_message *ret_message)
{
    if (messages->broken != MUSTER_OK) {
        return muster_error_set(messages->broken, "%s", messages->broken_text);
    }
    const struct stored_message *found = find_locked(messages, what);
    if (found != NULL) {
        *ret_message = muster_stored_message_describe(found);
        *ret_found = true;
        return MUSTER_OK;
    }
    *ret_found = false;
    const char *ended = muster_messages_find_end(messages, what->source);
    return ended == NULL ? MUSTER_OK : muster_error_set(MUSTER_REJOIN, "%s", ended);
}

/* The link to a named source is opened, so that its death is noticed. */
static void open_link_locked(const struct muster_context *context, uint32_t source)
{
    if (source != MUSTER_ANY_SOURCE && source != context->rank) {
        muster_fabric_open_locked(context->fabric, context->generation,
                                  muster_context_global_rank(context, source));
    }
}

static void stop_observing(struct muster_point_to_point *messages,
                           struct message_observer *observer)
{
    struct muster_fabric *fabric = messages->context->fabric;
    muster_fabric_begin_posting(fabric);
    TAILQ_REMOVE(&messages->observers, observer, order);
    muster_fabric_end_posting(fabric);
}

/* Becomes an observer under the lock under which it has looked, so that it misses nothing. */
muster_status muster_point_to_point_probe(struct muster_point_to_point *messages,
                                          const struct muster_message_probe *what, bool *ret_found,
                                          muster_message *ret_message)
{
    const struct muster_context *context = messages->context;
    struct muster_fabric *fabric = context->fabric;
    int64_t deadline_ns = what->timeout_ms > 0 ? muster_clock_after_ms(what->timeout_ms) : 0;
    muster_status waited = MUSTER_OK;
    TRY(muster_fabric_check(fabric, context->generation));
    muster_fabric_poll(fabric);
    for (;;) {
        struct message_observer observer = {.awake = false};
        muster_fabric_begin_posting(fabric);
        muster_status status = look_locked(messages, what, ret_found, ret_message);
        bool waits = status == MUSTER_OK && !*ret_found && waited == MUSTER_OK && deadline_ns > 0;
        if (waits) {
            open_link_locked(context, what->source);
            TAILQ_INSERT_TAIL(&messages->observers, &observer, order);
        }
        muster_fabric_end_posting(fabric);
        if (!waits) {
            return status != MUSTER_OK || *ret_found || waited == MUSTER_RETRY ? status : waited;
        }
        waited = muster_fabric_wait(fabric, context->generation, &observer.awake, deadline_ns);
        stop_observing(messages, &observer);
    }
}
