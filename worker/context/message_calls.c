/* Sends and receives of a context: their arguments, the blocking form, and how they end. */
#include <stdatomic.h>
#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/context/message_staging.h"
#include "worker/context/point_to_point_parts.h"
#include "worker/device/devices.h"

muster_status muster_context_messages(struct muster_context *context,
                                      struct muster_point_to_point **ret_messages)
{
    struct muster_point_to_point *messages = atomic_load(&context->messages);
    if (messages == NULL) {
        AUTO_LOCK(&context->mutex);
        messages = atomic_load(&context->messages);
        if (messages == NULL) {
            TRY(muster_point_to_point_create(context, &messages));
            atomic_store(&context->messages, messages);
        }
    }
    *ret_messages = messages;
    return MUSTER_OK;
}

/* Arguments ------------------------------------------------------------------------------------ */

static const char *name_of(const struct muster_message_call *what)
{
    return what->direction == MUSTER_SEND ? "send" : "receive";
}

static muster_status check_peer(const struct muster_context *context, const char *name, bool sends,
                                uint32_t peer, uint32_t tag)
{
    uint32_t size = context->topology.ranks;
    if (peer >= size && (sends || peer != MUSTER_ANY_SOURCE)) {
        return muster_error_set(MUSTER_INVALID, "%s: rank %u: context %s has %u ranks", name, peer,
                                context->name, size);
    }
    if (sends && tag == MUSTER_ANY_TAG) {
        return muster_error_set(MUSTER_INVALID, "%s: tag %u is MUSTER_ANY_TAG, for receives only",
                                name, tag);
    }
    return MUSTER_OK;
}

static muster_status check_buffer(const struct muster_message_call *what)
{
    const char *name = name_of(what);
    const void *data = what->direction == MUSTER_SEND ? what->in : what->out;
    if ((unsigned)what->type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "%s: element type %d: there is no such type", name,
                                (int)what->type);
    }
    if (what->count > MUSTER_ELEMENTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu elements, at most %llu", name, what->count,
                                (unsigned long long)MUSTER_ELEMENTS_MAX);
    }
    if (data == NULL && what->count > 0) {
        return muster_error_set(MUSTER_INVALID, "%s: the buffer is NULL, for %zu elements", name,
                                what->count);
    }
    return MUSTER_OK;
}

muster_status muster_message_call_check(const struct muster_context *context,
                                        const struct muster_message_call *what)
{
    TRY(check_peer(context, name_of(what), what->direction == MUSTER_SEND, what->peer, what->tag));
    return check_buffer(what);
}

/* The end -------------------------------------------------------------------------------------- */

static void print_number(uint32_t number, const char *any, char *ret_text, size_t size)
{
    if (number == UINT32_MAX) {
        (void)snprintf(ret_text, size, "%s", any);
    } else {
        (void)snprintf(ret_text, size, "%u", number);
    }
}

/* Puts the call before the error text. */
static muster_status prefix(const struct muster_message_call *what,
                            const struct muster_context *context, muster_status status)
{
    bool sends = what->direction == MUSTER_SEND;
    char peer[16];
    char tag[16];
    print_number(what->peer == MUSTER_ANY_SOURCE ? UINT32_MAX
                                                 : muster_context_global_rank(context, what->peer),
                 "any", peer, sizeof peer);
    print_number(what->tag, "any", tag, sizeof tag);
    return muster_error_prefix(
        status, "%s of %s%zu %s %s rank %s, tag %s (context %s, generation %llu)", name_of(what),
        sends ? "" : "at most ", what->count, muster_type_name(what->type), sends ? "to" : "from",
        peer, tag, context->name, (unsigned long long)muster_epoch_shown(context->generation));
}

/* As for collectives: which rank is suspected, and whether the fault is this process's own. The
 * error text is that of the status. */
static muster_status judge(const struct muster_context *context, muster_status status,
                           uint32_t *ret_suspect)
{
    char reason[MUSTER_REASON_SIZE];
    if (status != MUSTER_REJOIN) {
        return status;
    }
    if (muster_fabric_out_of_descriptors(context->fabric, context->generation, reason)) {
        return muster_error_set(MUSTER_FATAL, "%s", reason);
    }
    if (*ret_suspect == UINT32_MAX) {
        (void)muster_fabric_lost_peer(context->fabric, context->generation, ret_suspect, reason);
    }
    return status;
}

muster_status muster_message_request_end(struct muster_message_request *request,
                                         uint32_t *ret_suspect)
{
    struct muster_context *context = request->context;
    *ret_suspect = UINT32_MAX;
    if (request->status == MUSTER_OK) {
        if (request->what.ret_message != NULL) {
            *request->what.ret_message = request->message;
        }
        atomic_fetch_add(&context->progress, 1);
        return MUSTER_OK;
    }
    if (request->status == MUSTER_INVALID) {
        muster_fabric_poll(context->fabric); /* the sender, too, is to learn of it */
    }
    *ret_suspect = request->suspect;
    muster_status status = muster_error_set(request->status, "%s", request->text);
    return prefix(&request->what, context, judge(context, status, ret_suspect));
}

/* The blocking form ---------------------------------------------------------------------------- */

static muster_status run(struct muster_context *context, const struct muster_message_call *what,
                         uint32_t *ret_suspect)
{
    struct muster_point_to_point *messages = NULL;
    struct muster_message_request request;
    TRY(muster_context_messages(context, &messages));
    if (muster_message_send_or_receive_now(messages, what)) {
        return MUSTER_OK;
    }
    if (!muster_message_request_start(messages, what, NULL, &request)) {
        muster_status status =
            muster_fabric_wait(context->fabric, context->generation, &request.finished,
                               muster_clock_after_ms(what->timeout_ms));
        if (status != MUSTER_OK) {
            muster_message_request_give_up(&request, status);
        }
    }
    return muster_message_request_end(&request, ret_suspect);
}

static bool is_on_device(struct muster_context *context, const struct muster_message_call *what,
                         struct muster_device_memory *ret_memory)
{
    bool sends = what->direction == MUSTER_SEND;
    const void *data = sends ? what->in : what->out;
    bool small = what->count <= MUSTER_SMALL_BUFFER_BYTES / muster_type_size_bytes(what->type);
    if (small &&
        atomic_load_explicit(&context->host_buffers[sends], memory_order_relaxed) == data) {
        return false;
    }
    bool found = muster_message_call_is_on_device(what, ret_memory);
    if (small && !found && !muster_devices_active()) {
        atomic_store_explicit(&context->host_buffers[sends], data, memory_order_relaxed);
    }
    return found;
}

muster_status muster_context_message(struct muster_context *context,
                                     const struct muster_message_call *what, uint32_t *ret_suspect)
{
    struct muster_staged_message staged;
    *ret_suspect = UINT32_MAX;
    TRY(muster_message_call_check(context, what));
    if (!is_on_device(context, what, &staged.memory)) {
        return run(context, what, ret_suspect);
    }
    staged.timeline = muster_fabric_timeline(context->fabric);
    muster_status status = muster_staged_message_begin(&staged, what);
    bool copied = status == MUSTER_OK;
    if (copied) {
        status = run(context, &staged.what, ret_suspect);
    }
    if (copied && status == MUSTER_OK) {
        status = muster_staged_message_end(&staged);
        copied = status == MUSTER_OK;
    }
    muster_staged_message_finish(&staged);
    return copied ? status : prefix(what, context, status);
}

muster_status muster_context_probe(struct muster_context *context,
                                   const struct muster_message_probe *what, bool *ret_found,
                                   muster_message *ret_message, uint32_t *ret_suspect)
{
    *ret_suspect = UINT32_MAX;
    const char *name = what->takes ? "take" : "probe";
    struct muster_point_to_point *messages = NULL;
    TRY(check_peer(context, name, false, what->source, what->tag));
    TRY(muster_context_messages(context, &messages));
    muster_status status = muster_point_to_point_probe(messages, what, ret_found, ret_message);
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(judge(context, status, ret_suspect),
                                     "%s (context %s, generation %llu)", name, context->name,
                                     (unsigned long long)muster_epoch_shown(context->generation));
}
