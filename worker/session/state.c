#include "worker/session/state.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "worker/base/thread.h"
#include "worker/device/cuda/gpu.h"

enum { COPY_ALIGNMENT_BYTES = 64 };

void muster_state_init(struct muster_state *state)
{
    muster_mutex_init(&state->mutex);
}

void muster_state_finish(struct muster_state *state)
{
    free(state->regions);
    free(state->copy);
    (void)pthread_mutex_destroy(&state->mutex);
}

static muster_status check_region(const struct muster_state *state, const char *name,
                                  const void *data, size_t size_bytes)
{
    size_t length = name != NULL ? strlen(name) : 0;
    if (length == 0 || length >= MUSTER_REGION_NAME_SIZE) {
        return muster_error_set(MUSTER_INVALID, "state region \"%.80s\": a name has 1 to %d bytes",
                                name != NULL ? name : "", MUSTER_REGION_NAME_SIZE - 1);
    }
    if (data == NULL && size_bytes > 0) {
        return muster_error_set(MUSTER_INVALID, "state region \"%s\": data is NULL", name);
    }
    struct muster_gpu_memory memory;
    if (size_bytes > 0 && muster_gpu_find(data, &memory)) {
        return muster_error_set(MUSTER_INVALID,
                                "state region \"%s\": data is memory of a GPU; register a copy "
                                "in memory of the host",
                                name);
    }
    if (state->copy != NULL) {
        return muster_error_set(
            MUSTER_INVALID, "state region \"%s\": registered after the first commit or sync", name);
    }
    if (state->count == MUSTER_REGIONS_MAX) {
        return muster_error_set(MUSTER_INVALID, "state region \"%s\": there are %d already", name,
                                MUSTER_REGIONS_MAX);
    }
    if (size_bytes > SIZE_MAX / 2 - state->total_bytes - COPY_ALIGNMENT_BYTES) {
        return muster_error_set(MUSTER_INVALID, "state region \"%s\": %zu bytes are too many", name,
                                size_bytes);
    }
    for (uint32_t i = 0; i < state->count; i++) {
        if (strcmp(state->regions[i].name, name) == 0) {
            return muster_error_set(MUSTER_INVALID, "state region \"%s\": registered twice", name);
        }
    }
    return MUSTER_OK;
}

muster_status muster_state_register(struct muster_state *state, const char *name, void *data,
                                    size_t size_bytes)
{
    TRY(check_region(state, name, data, size_bytes));
    struct muster_region *grown =
        realloc(state->regions, (state->count + (size_t)1) * sizeof *grown);
    if (grown == NULL) {
        return muster_error_set(MUSTER_FATAL, "state region \"%s\": no memory", name);
    }
    state->regions = grown;
    struct muster_region *region = &grown[state->count++];
    *region = (struct muster_region){
        .data = data, .size_bytes = size_bytes, .offset_bytes = state->total_bytes};
    memcpy(region->name, name, strlen(name));
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

void muster_state_keep(struct muster_state *state, uint64_t version, uint64_t committed)
{
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_region *region = &state->regions[i];
        if (region->size_bytes > 0) {
            memcpy(state->copy + region->offset_bytes, region->data, region->size_bytes);
        }
    }
    state->kept = true;
    state->committed = committed;
    atomic_store(&state->version, version);
}

void muster_state_put_back(struct muster_state *state)
{
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_region *region = &state->regions[i];
        if (region->size_bytes > 0) {
            memcpy(region->data, state->copy + region->offset_bytes, region->size_bytes);
        }
    }
}

int64_t muster_state_digest(const struct muster_state *state)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint32_t i = 0; i < state->count; i++) {
        uint64_t size_bytes = state->regions[i].size_bytes;
        crc = crc32(crc, (const Bytef *)state->regions[i].name, MUSTER_REGION_NAME_SIZE);
        crc = crc32(crc, (const Bytef *)&size_bytes, sizeof size_bytes);
    }
    return (int64_t)((uint64_t)state->count << 32 | (uint64_t)(crc & UINT32_MAX));
}
