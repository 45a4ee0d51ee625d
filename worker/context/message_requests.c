/* Point to point: how a send or a receive ends, wherever it was posted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/context/point_to_point_parts.h"

void muster_message_request_finish_with(struct muster_message_request *request,
                                        muster_status status, const char *text)
{
    request->status = status;
    if (status != MUSTER_OK) {
        (void)snprintf(request->text, sizeof request->text, "%s", text);
    }
    TAILQ_REMOVE(&request->owner->pending, request, order);
    request->waits = false;
    bool *awake = request->awake;
    __atomic_store_n(&request->finished, true, __ATOMIC_SEQ_CST); /* now it may be freed */
    if (awake != NULL) { /* last: whoever clears it looks at `finished` after that */
        __atomic_store_n(awake, true, __ATOMIC_SEQ_CST);
    }
}

/* With the text of muster_last_error(). */
void muster_message_request_finish(struct muster_message_request *request, muster_status status)
{
    muster_message_request_finish_with(request, status,
                                       status != MUSTER_OK ? muster_last_error() : "");
}

void muster_message_transfer_done(struct muster_transfer *transfer)
{
    struct muster_message_request *request = transfer->owner;
    if (transfer->status == MUSTER_OK && request->dropped) {
        char text[MUSTER_ERROR_MAX];
        memcpy(text, request->text, sizeof text);
        muster_message_request_finish_with(request, MUSTER_INVALID, text);
    } else {
        muster_message_request_finish(request, transfer->status);
    }
}

void muster_stored_message_free(struct muster_point_to_point *messages,
                                struct stored_message *stored)
{
    if (stored->own_copy != NULL) {
        messages->own_bytes -= stored->announced.size_bytes;
        free(stored->own_copy);
    }
    free(stored);
}
