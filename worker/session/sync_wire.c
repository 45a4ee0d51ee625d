/* Layouts and state headers as bytes: encoded, and decoded with checks. */
#include "worker/session/sync_wire.h"

#include <inttypes.h>
#include <string.h>

#include "worker/base/bytes.h"
#include "worker/base/epoch.h"

enum {
    AT_NAME = 0,
    AT_SIZE = MUSTER_REGISTERED_BUFFER_NAME_SIZE,

    AT_VERSION = 0,
    AT_COMMITTED = 8,
};

void muster_buffer_count_encode(uint32_t count, unsigned char ret_bytes[MUSTER_BUFFER_COUNT_SIZE])
{
    muster_bytes_put(ret_bytes, count, MUSTER_BUFFER_COUNT_SIZE);
}

muster_status muster_buffer_count_decode(const unsigned char *bytes, size_t size_bytes,
                                         uint32_t *ret_count)
{
    TRY(muster_bytes_check_size("number of state buffers", size_bytes, MUSTER_BUFFER_COUNT_SIZE));
    uint32_t count = (uint32_t)muster_bytes_get(bytes, MUSTER_BUFFER_COUNT_SIZE);
    if (count > MUSTER_REGISTERED_BUFFERS_MAX) {
        return muster_error_set(MUSTER_FATAL, "%u state buffers, at most %d", count,
                                MUSTER_REGISTERED_BUFFERS_MAX);
    }
    *ret_count = count;
    return MUSTER_OK;
}

void muster_outlines_encode(const struct muster_state *state, unsigned char *ret_bytes)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        unsigned char *outline = ret_bytes + i * MUSTER_OUTLINE_SIZE;
        memset(outline, 0, MUSTER_OUTLINE_SIZE);
        memcpy(outline + AT_NAME, buffer->name, strnlen(buffer->name, sizeof buffer->name - 1));
        muster_bytes_put(outline + AT_SIZE, buffer->size_bytes, 8);
    }
}

muster_status muster_outlines_decode(const unsigned char *bytes, size_t size_bytes, uint32_t count,
                                     struct muster_outline *ret_outlines)
{
    TRY(muster_bytes_check_size("layout of the state", size_bytes,
                                (size_t)count * MUSTER_OUTLINE_SIZE));
    for (size_t i = 0; i < count; i++) {
        const unsigned char *name = bytes + i * MUSTER_OUTLINE_SIZE + AT_NAME;
        if (memchr(name, '\0', MUSTER_REGISTERED_BUFFER_NAME_SIZE) == NULL) {
            return muster_error_set(MUSTER_FATAL,
                                    "state buffer %zu has a name of more than %d bytes", i,
                                    MUSTER_REGISTERED_BUFFER_NAME_SIZE - 1);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *outline = bytes + i * MUSTER_OUTLINE_SIZE;
        memcpy(ret_outlines[i].name, outline + AT_NAME, sizeof ret_outlines[i].name);
        ret_outlines[i].size_bytes = muster_bytes_get(outline + AT_SIZE, 8);
    }
    return MUSTER_OK;
}

void muster_state_header_encode(const struct muster_state_header *header,
                                unsigned char ret_bytes[MUSTER_STATE_HEADER_SIZE])
{
    muster_bytes_put(ret_bytes + AT_VERSION, header->version, 8);
    muster_bytes_put(ret_bytes + AT_COMMITTED, header->committed_generation, 8);
}

/* Members compare both numbers as int64, so larger ones do not exist. */
muster_status muster_state_header_decode(const unsigned char *bytes, size_t size_bytes,
                                         struct muster_state_header *ret_header)
{
    TRY(muster_bytes_check_size("state header", size_bytes, MUSTER_STATE_HEADER_SIZE));
    const struct muster_state_header header = {
        .version = muster_bytes_get(bytes + AT_VERSION, 8),
        .committed_generation = muster_bytes_get(bytes + AT_COMMITTED, 8),
    };
    if (header.version > INT64_MAX || header.committed_generation > INT64_MAX) {
        return muster_error_set(MUSTER_FATAL,
                                "state of version %" PRIu64 ", committed in generation %" PRIu64,
                                header.version, muster_epoch_shown(header.committed_generation));
    }
    *ret_header = header;
    return MUSTER_OK;
}
