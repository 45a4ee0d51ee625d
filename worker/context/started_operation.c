/* The operation of a call in flight: kept from an earlier call with the same key, or made. */
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/float_environment.h"
#include "worker/context/buffer_counts.h"
#include "worker/context/compression_choice.h"
#include "worker/context/started_parts.h"

static size_t key_bytes(const struct muster_request_key *key)
{
    return sizeof *key + key->bound_count * sizeof key->bounds[0];
}

void muster_started_call_free(struct muster_started_call *call)
{
    muster_operation_destroy(call->own.operation);
    muster_operation_destroy(call->counting);
    muster_operation_order_finish(&call->own.order_of_blocks);
    free(call->scratch.memory);
    if (call->device != NULL && call->device->launch_moves.failed) {
        muster_device_room_abandon(&call->staging);
    }
    muster_device_room_finish(&call->staging);
    free(call->device);
    free(call->inputs);
    free(call->outputs);
    muster_call_ranges_finish(&call->ranges);
    free(call->own.key);
    free(call->message);
    free(call);
}

static struct muster_started_call *take_idle(struct muster_started_calls *calls)
{
    struct muster_started_call *each = NULL;
    TAILQ_FOREACH(each, &calls->idle, order)
    {
        if (key_bytes(each->own.key) == key_bytes(calls->key) &&
            memcmp(each->own.key, calls->key, key_bytes(calls->key)) == 0) {
            TAILQ_REMOVE(&calls->idle, each, order);
            calls->idle_count--;
            return each;
        }
    }
    return NULL;
}

/* Sets the launch's packing of a call that is compressed. */
static muster_status choose(struct muster_context *context, const struct muster_plan *plan,
                            struct muster_cached_operation *own)
{
    struct muster_choices *choices = &context->started.choices;
    if (muster_compresses(muster_request_key_compression(own->key))) {
        return muster_compression_choose(choices, own->key, plan, &own->launch.packing,
                                         &own->algorithm);
    }
    if ((own->key->flags & MUSTER_KEY_NAMED) != 0) {
        own->algorithm = own->key->algorithm;
        return MUSTER_OK;
    }
    return muster_context_choose_tuned(choices, &context->started.tuned, plan, own)
               ? MUSTER_OK
               : muster_choices_make(choices, plan, own->element_size_bytes, &own->algorithm);
}

/* call->own holds its key and its launch. */
static muster_status make_operation(struct muster_context *context,
                                    struct muster_started_call *call)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all members must choose alike */
    struct muster_cached_operation *own = &call->own;
    TRY(muster_operation_order_init(&context->order, &own->launch.shape, &own->order_of_blocks));
    struct muster_plan plan = muster_context_plan(context, own);
    TRY(choose(context, &plan, own));
    return muster_context_schedule(context, &context->started.group, &plan, own);
}

static muster_status fill_call(struct muster_context *context, const struct muster_request *request,
                               struct muster_started_call *call)
{
    const struct muster_request_key *key = context->started.key;
    struct muster_cached_operation *own = &call->own;
    muster_type type = request->collective == MUSTER_BARRIER ? MUSTER_FLOAT32 : request->type;
    call->context = context;
    call->figures = context->started.figures;
    own->element_size_bytes = muster_type_size_bytes(type);
    own->key = malloc(key_bytes(key));
    if (own->key == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a call in flight");
    }
    memcpy(own->key, key, key_bytes(key));
    TRY(muster_request_check(own->key, context->rank, context->topology.ranks, &own->launch));
    TRY(muster_request_check_buffers(request, &own->launch.sizes));
    TRY(make_operation(context, call));
    return muster_request_counts_buffers(request)
               ? muster_buffer_counts_make(context, &call->counting, &call->in_flight.then_launch)
               : MUSTER_OK;
}

/* By the key in the context, with its mutex held. */
muster_status muster_started_call_find(struct muster_context *context,
                                       const struct muster_request *request,
                                       struct muster_started_call **ret_call)
{
    struct muster_started_call *call = take_idle(&context->started);
    muster_status status = MUSTER_OK;
    if (call != NULL) {
        status = muster_request_check_buffers(request, &call->own.launch.sizes);
    } else {
        call = calloc(1, sizeof *call);
        if (call == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for a call in flight");
        }
        status = fill_call(context, request, call);
    }
    if (status != MUSTER_OK) {
        muster_started_call_free(call);
        return status;
    }
    *ret_call = call;
    return MUSTER_OK;
}
