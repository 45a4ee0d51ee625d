/* The responses of a stream. libmicrohttpd asks for bytes when it can send some; the method is
 * called again when all of a response are sent, and the connection is suspended until the next is
 * there. */
#include "rendezvous/http/http_parts.h"
#include "rendezvous/http/library_errors.h"

#include <string.h>

enum { STREAM_BLOCK_BYTES = 16 * 1024 }; /* of a chunk */

/* What of the response may be sent now; 0: none. */
static size_t copy_locked(struct muster_http_request *request, char *buffer, size_t most)
{
    size_t left = request->response.size_bytes - request->sent_bytes;
    size_t size_bytes = left < most ? left : most;
    if (size_bytes > 0) {
        memcpy(buffer, request->response.body + request->sent_bytes, size_bytes);
        request->sent_bytes += size_bytes;
    }
    return size_bytes;
}

static void call_again(struct muster_http_request *request)
{
    request->cursor = request->response.next;
    request->sent_bytes = 0;
    muster_rpc_response_finish(&request->response);
    muster_http_enqueue(request);
}

/* In a thread of libmicrohttpd, as long as the stream lasts. Once a response is there and no other
 * thread has the request, nothing else changes it. */
static ssize_t read_stream(void *user, uint64_t position, char *buffer, size_t most)
{
    struct muster_http_request *request = user;
    (void)position;
    for (;;) {
        muster_mutex_lock(&request->mutex);
        if (request->stage != MUSTER_HTTP_ANSWERED || request->queued_or_run) {
            request->suspended = true;
            MHD_suspend_connection(request->connection);
            muster_mutex_unlock(&request->mutex);
            return 0;
        }
        size_t size_bytes = copy_locked(request, buffer, most);
        muster_mutex_unlock(&request->mutex);
        if (size_bytes > 0) {
            return (ssize_t)size_bytes;
        }
        if (request->response.body == NULL) { /* no memory for the response */
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (request->response.next == 0) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        call_again(request);
    }
}

enum MHD_Result muster_http_send_stream(struct muster_http_request *request)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, request, NULL);
    if (response == NULL) {
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  muster_http_content_type(request, MHD_HTTP_OK));
    if (request->coding.may_pack) {
        (void)MHD_add_response_header(response, "Connect-Content-Encoding", "gzip");
    }
    enum MHD_Result result = muster_http_queue_response(request->connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}
