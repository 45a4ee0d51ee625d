/* Registered memory and its last committed copy. */
#include "worker/session/state.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "worker/base/thread.h"
#include "worker/device/devices.h"

enum { COPY_ALIGNMENT_BYTES = 64 };

void muster_state_init(struct muster_state *state)
{
    muster_mutex_init(&state->mutex);
}

void muster_state_finish(struct muster_state *state)
{
    free(state->buffers);
    free(state->copy);
    (void)pthread_mutex_destroy(&state->mutex);
}

static muster_status check_buffer(const struct muster_state *state, const char *name,
                                  const void *data, size_t size_bytes)
{
    size_t length = name != NULL ? strlen(name) : 0;
    if (length == 0 || length >= MUSTER_REGISTERED_BUFFER_NAME_SIZE) {
        return muster_error_set(MUSTER_INVALID, "state buffer \"%.80s\": a name has 1 to %d bytes",
                                name != NULL ? name : "", MUSTER_REGISTERED_BUFFER_NAME_SIZE - 1);
    }
    if (data == NULL && size_bytes > 0) {
        return muster_error_set(MUSTER_INVALID, "state buffer \"%s\": data is NULL", name);
    }
    struct muster_device_memory memory;
    if (size_bytes > 0 && muster_device_find(data, &memory)) {
        return muster_error_set(MUSTER_INVALID,
                                "state buffer \"%s\": data is memory of a device (%s); register a "
                                "copy in memory of the host",
                                name, memory.device->name);
    }
    if (state->copy != NULL) {
        return muster_error_set(
            MUSTER_INVALID, "state buffer \"%s\": registered after the first commit or sync", name);
    }
    if (state->count == MUSTER_REGISTERED_BUFFERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "state buffer \"%s\": there are %d already", name,
                                MUSTER_REGISTERED_BUFFERS_MAX);
    }
    if (size_bytes > SIZE_MAX / 2 - state->total_bytes - COPY_ALIGNMENT_BYTES) {
        return muster_error_set(MUSTER_INVALID, "state buffer \"%s\": %zu bytes are too many", name,
                                size_bytes);
    }
    for (uint32_t i = 0; i < state->count; i++) {
        if (strcmp(state->buffers[i].name, name) == 0) {
            return muster_error_set(MUSTER_INVALID, "state buffer \"%s\": registered twice", name);
        }
    }
    return MUSTER_OK;
}

muster_status muster_state_register(struct muster_state *state, const char *name, void *data,
                                    size_t size_bytes)
{
    TRY(check_buffer(state, name, data, size_bytes));
    struct muster_registered_buffer *grown =
        realloc(state->buffers, (state->count + (size_t)1) * sizeof *grown);
    if (grown == NULL) {
        return muster_error_set(MUSTER_FATAL, "state buffer \"%s\": no memory", name);
    }
    state->buffers = grown;
    struct muster_registered_buffer *buffer = &grown[state->count++];
    *buffer = (struct muster_registered_buffer){
        .data = data, .size_bytes = size_bytes, .offset_bytes = state->total_bytes};
    memcpy(buffer->name, name, strlen(name));
    size_t padded = (size_bytes + COPY_ALIGNMENT_BYTES - 1) / COPY_ALIGNMENT_BYTES;
    state->total_bytes += padded * COPY_ALIGNMENT_BYTES;
    return MUSTER_OK;
}

muster_status muster_state_reserve(struct muster_state *state)
{
    if (state->copy != NULL) {
        return MUSTER_OK;
    }
    state->copy = aligned_alloc(COPY_ALIGNMENT_BYTES, state->total_bytes + COPY_ALIGNMENT_BYTES);
    if (state->copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the copy of %zu bytes of state",
                                state->total_bytes);
    }
    return MUSTER_OK;
}

void muster_state_copy_commit(struct muster_state *state, uint64_t version, uint64_t committed)
{
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        if (buffer->size_bytes > 0) {
            memcpy(state->copy + buffer->offset_bytes, buffer->data, buffer->size_bytes);
        }
    }
    state->has_copy = true;
    state->committed_generation = committed;
    atomic_store(&state->version, version);
}

void muster_state_restore_commit(struct muster_state *state)
{
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        if (buffer->size_bytes > 0) {
            memcpy(buffer->data, state->copy + buffer->offset_bytes, buffer->size_bytes);
        }
    }
}

int64_t muster_state_digest(const struct muster_state *state)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint32_t i = 0; i < state->count; i++) {
        uint64_t size_bytes = state->buffers[i].size_bytes;
        crc = crc32(crc, (const Bytef *)state->buffers[i].name, MUSTER_REGISTERED_BUFFER_NAME_SIZE);
        crc = crc32(crc, (const Bytef *)&size_bytes, sizeof size_bytes);
    }
    return (int64_t)((uint64_t)state->count << 32 | (uint64_t)(crc & UINT32_MAX));
}
