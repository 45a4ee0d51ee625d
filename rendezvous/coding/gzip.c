/* gzip by zlib, with a bound on what is unpacked. */
#include "rendezvous/coding/gzip.h"

#include "worker/base/cleanup.h"

#include <stdlib.h>
#include <zlib.h>

enum {
    GZIP_WINDOW_BITS = 15 + 16, /* 16: gzip's head and checksum, not zlib's */
    LEVEL = 1,                  /* fast: a response waits for it */
    MEMORY_LEVEL = 8,
    FIRST_BYTES = 4096,
};

muster_status muster_gzip_pack(const void *bytes, size_t size_bytes, char **ret_bytes,
                               size_t *ret_size_bytes)
{
    z_stream stream = {.next_in = (Bytef *)bytes, .avail_in = (uInt)size_bytes};
    if (deflateInit2(&stream, LEVEL, Z_DEFLATED, GZIP_WINDOW_BITS, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return muster_error_set(MUSTER_FATAL, "no memory for gzip");
    }
    size_t most = deflateBound(&stream, (uLong)size_bytes);
    AUTO_FREE char *packed = malloc(most);
    stream.next_out = (Bytef *)packed;
    stream.avail_out = (uInt)most;
    int result = packed != NULL ? deflate(&stream, Z_FINISH) : Z_MEM_ERROR;
    size_t packed_bytes = stream.total_out;
    (void)deflateEnd(&stream);
    if (result != Z_STREAM_END) {
        return muster_error_set(MUSTER_FATAL, "no memory for gzip");
    }
    *ret_bytes = TAKE(packed);
    *ret_size_bytes = packed_bytes;
    return MUSTER_OK;
}

/* The buffer grows as it fills, up to one byte more than may be: that byte shows that it is too
 * long. */
static muster_status unpack(z_stream *stream, size_t max_bytes, char **ret_bytes,
                            size_t *ret_size_bytes)
{
    AUTO_FREE char *bytes = NULL;
    size_t used = 0;
    size_t capacity = 0;
    for (;;) {
        if (used == capacity) {
            capacity = capacity == 0 ? FIRST_BYTES : 2 * capacity;
            capacity = capacity < max_bytes + 1 ? capacity : max_bytes + 1;
            char *grown = realloc(bytes, capacity);
            if (grown == NULL) {
                return muster_error_set(MUSTER_FATAL, "no memory for gzip");
            }
            bytes = grown;
        }
        stream->next_out = (Bytef *)bytes + used;
        stream->avail_out = (uInt)(capacity - used);
        int result = inflate(stream, Z_NO_FLUSH);
        used = capacity - stream->avail_out;
        if (used > max_bytes) {
            return muster_error_set(MUSTER_RETRY, "gzip: becomes more than %zu bytes", max_bytes);
        }
        if (result == Z_STREAM_END && stream->avail_in > 0) {
            return muster_error_set(MUSTER_INVALID, "gzip: %u bytes follow its end",
                                    stream->avail_in);
        }
        if (result == Z_STREAM_END) {
            break;
        }
        if (result != Z_OK || (stream->avail_in == 0 && stream->avail_out > 0)) {
            return muster_error_set(
                MUSTER_INVALID, "gzip: %s",
                result == Z_OK || result == Z_BUF_ERROR ? "cut off" : "damaged, or no gzip");
        }
    }
    *ret_bytes = TAKE(bytes);
    *ret_size_bytes = used;
    return MUSTER_OK;
}

muster_status muster_gzip_unpack(const void *bytes, size_t size_bytes, size_t max_bytes,
                                 char **ret_bytes, size_t *ret_size_bytes)
{
    z_stream stream = {.next_in = (Bytef *)bytes, .avail_in = (uInt)size_bytes};
    if (inflateInit2(&stream, GZIP_WINDOW_BITS) != Z_OK) {
        return muster_error_set(MUSTER_FATAL, "no memory for gzip");
    }
    muster_status status = unpack(&stream, max_bytes, ret_bytes, ret_size_bytes);
    (void)inflateEnd(&stream);
    return status;
}
