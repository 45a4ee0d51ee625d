/* Registered memory and its last committed copy. */
#include "worker/session/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/thread.h"
#include "worker/device/devices.h"
#include "worker/session/copier.h"

enum { COPY_ALIGNMENT_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

void muster_state_init(struct muster_state *state)
{
    muster_mutex_init(&state->mutex);
    muster_mutex_init(&state->reader_mutex);
    muster_condition_init(&state->reader_changed);
}

void muster_state_finish(struct muster_state *state)
{
    muster_state_abandon_commit(state);
    muster_copier_destroy(state->copier);
    free(state->buffers);
    free(state->copy);
    free(state->spares[0]);
    free(state->spares[1]);
    (void)pthread_cond_destroy(&state->reader_changed);
    (void)pthread_mutex_destroy(&state->reader_mutex);
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

static unsigned char *allocate(const struct muster_state *state)
{
    size_t alignment_bytes =
        state->total_bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : COPY_ALIGNMENT_BYTES;
    size_t size_bytes = state->total_bytes / alignment_bytes * alignment_bytes + alignment_bytes;
    unsigned char *copy = aligned_alloc(alignment_bytes, size_bytes);
    if (copy != NULL && alignment_bytes == HUGE_PAGE_BYTES) {
        (void)madvise(copy, size_bytes, MADV_HUGEPAGE); /* fewer page faults, if it can be had */
    }
    return copy;
}

static muster_status no_memory(const struct muster_state *state)
{
    return muster_error_set(MUSTER_FATAL, "no memory for the copy of %zu bytes of state",
                            state->total_bytes);
}

muster_status muster_state_reserve(struct muster_state *state)
{
    if (state->copy == NULL) {
        unsigned char *copy = allocate(state);
        if (copy == NULL) {
            return no_memory(state);
        }
        AUTO_LOCK(&state->reader_mutex);
        state->copy = copy;
    }
    return MUSTER_OK;
}

/* Copies ---------------------------------------------------------------------------------------
 */

static void copy_buffers(const struct muster_state *state, unsigned char *copy)
{
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        if (buffer->size_bytes > 0) {
            memcpy(copy + buffer->offset_bytes, buffer->data, buffer->size_bytes);
        }
    }
}

static bool is_read(struct muster_state *state, const unsigned char *copy)
{
    AUTO_LOCK(&state->reader_mutex);
    return state->read == copy;
}

/* A spare that nobody reads; NULL: no memory. There are two, and one copy at most is read. */
static unsigned char *find_spare(struct muster_state *state)
{
    for (int i = 0; i < 2; i++) {
        if (state->spares[i] == NULL) {
            state->spares[i] = allocate(state);
        }
        if (state->spares[i] == NULL || !is_read(state, state->spares[i])) {
            return state->spares[i];
        }
    }
    return NULL;
}

/* This copy, which is whole, is the state from now on. */
static void install(struct muster_state *state, unsigned char *copy, uint64_t version,
                    uint64_t committed)
{
    AUTO_LOCK(&state->reader_mutex);
    for (int i = 0; i < 2; i++) {
        if (state->spares[i] == copy) {
            state->spares[i] = state->copy;
        }
    }
    state->copy = copy;
    state->has_copy = true;
    state->writing = false;
    state->committed_generation = committed;
    atomic_store(&state->version, version);
    (void)pthread_cond_broadcast(&state->reader_changed);
}

/* The copy of the last commit may be written in place: the caller waits, and needs it again only
 * once it is whole. False: the spill thread reads it. */
static bool begin_writing(struct muster_state *state)
{
    AUTO_LOCK(&state->reader_mutex);
    state->writing = state->read != state->copy;
    return state->writing;
}

static void wait_for_reader(struct muster_state *state)
{
    AUTO_LOCK(&state->reader_mutex);
    while (state->read == state->copy) {
        (void)pthread_cond_wait(&state->reader_changed, &state->reader_mutex);
    }
    state->writing = true;
}

void muster_state_copy_commit(struct muster_state *state, uint64_t version, uint64_t committed)
{
    unsigned char *copy = state->copy;
    if (!begin_writing(state)) {
        copy = find_spare(state);
        if (copy == NULL) { /* no memory for another copy: this once the commit waits */
            wait_for_reader(state);
            copy = state->copy;
        }
    }
    copy_buffers(state, copy);
    install(state, copy, version, committed);
}

void muster_state_mark_committed(struct muster_state *state)
{
    AUTO_LOCK(&state->reader_mutex);
    state->committed = true;
    (void)pthread_cond_broadcast(&state->reader_changed);
}

void muster_state_accept_copy(struct muster_state *state, uint64_t version, uint64_t committed)
{
    install(state, state->copy, version, committed);
}

/* In two parts --------------------------------------------------------------------------------- */

static void copy_begun(void *argument)
{
    const struct muster_state *state = argument;
    copy_buffers(state, state->begun);
}

muster_status muster_state_begin_commit(struct muster_state *state)
{
    if (state->copier == NULL) {
        TRY(muster_copier_create(&state->copier));
    }
    TRY(muster_state_reserve(state));
    state->begun = find_spare(state);
    if (state->begun == NULL) {
        return no_memory(state);
    }
    muster_copier_start(state->copier, copy_begun, state);
    return MUSTER_OK;
}

void muster_state_end_commit(struct muster_state *state, uint64_t version, uint64_t committed)
{
    muster_copier_wait(state->copier);
    install(state, TAKE(state->begun), version, committed);
}

void muster_state_abandon_commit(struct muster_state *state)
{
    if (state->begun != NULL) {
        muster_copier_wait(state->copier);
        state->begun = NULL;
    }
}

/* The spill thread ----------------------------------------------------------------------------- */

static bool has_newer(const struct muster_state *state, uint64_t newer_than)
{
    return state->has_copy && state->committed && !state->writing &&
           atomic_load(&state->version) > newer_than;
}

bool muster_state_begin_reading(struct muster_state *state, uint64_t newer_than,
                                const atomic_bool *stop, struct muster_state_reading *ret_reading)
{
    AUTO_LOCK(&state->reader_mutex);
    while (!has_newer(state, newer_than) && !atomic_load(stop)) {
        (void)pthread_cond_wait(&state->reader_changed, &state->reader_mutex);
    }
    if (!has_newer(state, newer_than)) {
        return false;
    }
    state->read = state->copy;
    *ret_reading = (struct muster_state_reading){
        .bytes = state->copy,
        .version = atomic_load(&state->version),
        .committed_generation = state->committed_generation,
    };
    return true;
}

void muster_state_end_reading(struct muster_state *state)
{
    AUTO_LOCK(&state->reader_mutex);
    state->read = NULL;
    (void)pthread_cond_broadcast(&state->reader_changed);
}

void muster_state_wake_reader(struct muster_state *state)
{
    AUTO_LOCK(&state->reader_mutex);
    (void)pthread_cond_broadcast(&state->reader_changed);
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
