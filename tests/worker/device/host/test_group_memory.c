/*
 * Collectives in shared memory, a thread for each rank: random collectives, sizes and methods, and
 * calls that differ.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/select/host_memory.h"
#include "tests/support/memory_calls.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { OPERATIONS = 15 };
#else
enum { OPERATIONS = 40 };
#endif
enum { DEADLINE_MS = 60000, CALLS_PER_ALLOCATION = 12 };

struct group {
    uint64_t seed;
    uint32_t ranks, order[MEMORY_CALLS_RANKS_MAX], names[MEMORY_CALLS_RANKS_MAX];
    int fd; /* of the memory */
    pthread_barrier_t barrier;
    bool makes_errors; /* some operations are called differently by one rank */
    bool polls;        /* operations in flight, in the second part */
};

struct member {
    struct group *group;
    uint32_t rank;
    pthread_t thread;
    char failure[MUSTER_ERROR_MAX];
};

static muster_status keep_waiting(void *user, uint32_t *ret_suspect)
{
    (void)user;
    (void)ret_suspect;
    return MUSTER_OK;
}

/* Two ranks have an algorithm of their own for large outputs, so theirs always count as large. */
static size_t stream_bytes(const struct group *group)
{
    return group->ranks == 2 ? 1000 : group->seed % 3 * 20000;
}

static muster_status join(struct member *member, struct muster_group_memory **ret_memory)
{
    struct group *group = member->group;
    const struct muster_group_options options = {.rank = member->rank,
                                                 .ranks = group->ranks,
                                                 .names = group->names,
                                                 .order = group->order,
                                                 .cores = group->seed % 2 == 0 ? 1 : group->ranks,
                                                 .stream_bytes = stream_bytes(group)};
    if (member->rank == 0) {
        TRY(muster_group_memory_invite(group->ranks, &group->fd));
    }
    pthread_barrier_wait(&group->barrier);
    TRY(muster_group_memory_open(&options, dup(group->fd), ret_memory));
    pthread_barrier_wait(&group->barrier);
    if (member->rank == 0) {
        (void)close(group->fd);
    }
    return MUSTER_OK;
}

/* The rank that calls this operation differently; `ranks`: none does. */
static uint32_t wrong_rank(const struct group *group, uint64_t sequence)
{
    uint64_t drawn = (group->seed + sequence * UINT64_C(0x9e3779b97f4a7c15)) >> 33;
    return group->makes_errors && drawn % 3 == 0 ? (uint32_t)(drawn / 3 % group->ranks)
                                                 : group->ranks;
}

static muster_status perform(const struct group *group, struct muster_group_memory *memory,
                             const struct muster_group_launch *step)
{
    uint32_t suspect = UINT32_MAX;
    return group->polls ? memory_call_poll(memory, step, false, &suspect)
                        : muster_group_memory_run(memory, step, &suspect);
}

static muster_status announce(const struct group *group, struct muster_group_memory *memory,
                              const struct muster_group_launch *step)
{
    uint32_t suspect = UINT32_MAX;
    return group->polls ? memory_call_poll(memory, step, true, &suspect)
                        : muster_group_memory_announce(memory, step, &suspect);
}

/* The wrong rank runs another operation, in memory or by messages. */
static muster_status call_wrongly(const struct group *group, struct muster_group_memory *memory,
                                  struct memory_call *call)
{
    call->call.count += 1;
    const struct muster_group_launch step =
        memory_call_step(call, muster_clock_after_ms(DEADLINE_MS), keep_waiting, NULL);
    return call->sequence % 2 == 0 ? announce(group, memory, &step) : perform(group, memory, &step);
}

/* Where data flows one way, not all ranks notice. */
static bool all_notice(const struct memory_call *call)
{
    return !muster_collective_has_root(call->shape.collective) ||
           call->method != MUSTER_MEMORY_STAGED;
}

/* Runs one operation on this rank. If a rank calls it differently, an error is right, and required
 * where all ranks can notice. */
static void run_call(struct member *member, struct muster_group_memory *memory, uint64_t sequence,
                     bool buffers, uint64_t *buffer)
{
    struct group *group = member->group;
    struct memory_call call;
    uint32_t wrong = wrong_rank(group, sequence);
    memory_call_make(group->seed, sequence, group->order, member->rank, group->ranks, buffers,
                     buffer, &call);
    if (member->rank == wrong) {
        muster_status status = call_wrongly(group, memory, &call);
        if (status != MUSTER_OK && status != MUSTER_INVALID) {
            (void)snprintf(member->failure, sizeof member->failure, "%s", muster_last_error());
        }
        return;
    }
    const struct muster_group_launch step =
        memory_call_step(&call, muster_clock_after_ms(DEADLINE_MS), keep_waiting, NULL);
    muster_status status = perform(group, memory, &step);
    bool agreed = wrong == group->ranks;
    if (status == MUSTER_OK && agreed) {
        (void)memory_call_check(&call, member->failure, sizeof member->failure);
    } else if (status == MUSTER_INVALID && !agreed) {
        (void)memory_call_check_input(&call, member->failure, sizeof member->failure);
    } else if (status != MUSTER_OK || all_notice(&call)) {
        (void)snprintf(member->failure, sizeof member->failure, "rank %u #%llu: %s: %.300s",
                       member->rank, (unsigned long long)sequence, muster_status_name(status),
                       status == MUSTER_OK ? "calls differ" : muster_last_error());
    }
}

/* In some groups all ranks use muster_alloc(), in others only some. */
static bool uses_muster_alloc(const struct member *member)
{
    return member->group->ranks % 3 != 0 || member->rank % 2 == 0;
}

static void free_memory(const struct member *member, uint64_t *buffer)
{
    (uses_muster_alloc(member) ? muster_free : free)(buffer);
}

static uint64_t *allocate(struct member *member)
{
    size_t size_bytes = memory_calls_elements(member->group->ranks) * sizeof(uint64_t);
    void *buffer = NULL;
    if (!uses_muster_alloc(member)) {
        buffer = malloc(size_bytes);
    } else if (muster_alloc(size_bytes, &buffer) != MUSTER_OK) {
        (void)snprintf(member->failure, sizeof member->failure, "%s", muster_last_error());
    }
    return buffer;
}

/* A rank's thread: joins the group memory and runs all operations, with new buffers from time to
 * time. */
static void *run_rank(void *argument)
{
    struct member *member = argument;
    struct muster_group_memory *memory = NULL;
    struct muster_group_memory *second = NULL;
    uint64_t *buffer = NULL;
    if (join(member, &memory) != MUSTER_OK ||
        muster_group_memory_create_part(memory, 1, &second) != MUSTER_OK) {
        (void)snprintf(member->failure, sizeof member->failure, "%s", muster_last_error());
        return NULL;
    }
    bool buffers = muster_group_memory_probe(memory);
    uint64_t first = member->group->polls ? 1 : 6;
    muster_group_memory_begin(memory, first - 1);
    muster_group_memory_begin(second, 0);
    pthread_barrier_wait(&member->group->barrier);
    for (uint64_t i = first; i < first + OPERATIONS && member->failure[0] == '\0'; i++) {
        if (i % CALLS_PER_ALLOCATION == member->rank || buffer == NULL) {
            free_memory(member, buffer);
            buffer = allocate(member);
        }
        if (buffer != NULL) {
            run_call(member, member->group->polls ? second : memory, i, buffers, buffer);
        }
    }
    if (member->failure[0] == '\0') { /* else the others notice that this rank has left */
        pthread_barrier_wait(&member->group->barrier);
    }
    muster_group_memory_destroy(second);
    muster_group_memory_destroy(memory);
    free_memory(member, buffer);
    return NULL;
}

static void shuffle(struct group *group)
{
    uint64_t state = group->seed;
    for (uint32_t i = 0; i < group->ranks; i++) {
        group->order[i] = i;
        group->names[i] = 100 + i;
    }
    for (uint32_t i = group->ranks; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint32_t other = (uint32_t)((state >> 33) % i);
        uint32_t swapped = group->order[i - 1];
        group->order[i - 1] = group->order[other];
        group->order[other] = swapped;
    }
}

static void run_group(uint64_t seed, uint32_t ranks, bool makes_errors, bool polls)
{
    struct group group = {
        .seed = seed, .ranks = ranks, .makes_errors = makes_errors, .polls = polls};
    struct member members[MEMORY_CALLS_RANKS_MAX] = {0};
    shuffle(&group);
    assert_int_equal(pthread_barrier_init(&group.barrier, NULL, ranks), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        members[i].group = &group;
        members[i].rank = i;
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_rank, &members[i]), 0);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
    }
    pthread_barrier_destroy(&group.barrier);
    for (uint32_t i = 0; i < ranks; i++) {
        if (members[i].failure[0] != '\0') {
            fail_msg("%u ranks: %s", ranks, members[i].failure);
        }
    }
}

static void all_results_are_right_and_in_the_canonical_order(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t ranks = 2; ranks <= MEMORY_CALLS_RANKS_MAX; ranks++) {
        run_group(seed + ranks, ranks, false, false);
    }
}

static void calls_that_differ_fail_and_the_next_ones_succeed(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t ranks = 2; ranks <= 5; ranks++) {
        run_group(seed + ranks, ranks, true, false);
    }
}

static void operations_in_flight_do_the_same(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t ranks = 2; ranks <= MEMORY_CALLS_RANKS_MAX; ranks++) {
        run_group(seed + ranks, ranks, false, true);
        run_group(seed + ranks + 100, ranks, true, true);
    }
}

static void a_descriptor_of_other_memory_is_refused(void **state)
{
    (void)state;
    const uint32_t order[3] = {0, 1, 2};
    struct muster_group_options options = {.ranks = 2, .names = order, .order = order};
    struct muster_group_memory *memory;
    struct muster_group_memory *other = NULL;
    int right;
    assert_int_equal(muster_group_memory_invite(2, &right), MUSTER_OK);
    assert_int_equal(muster_group_memory_open(&options, dup(right), &memory), MUSTER_OK);
    options.rank = 1;
    options.ranks = 3;
    assert_int_equal(muster_group_memory_open(&options, dup(right), &other), MUSTER_INVALID);
    options.ranks = 2;
    assert_int_equal(muster_group_memory_open(&options, dup(STDERR_FILENO), &other),
                     MUSTER_INVALID);
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    struct stat size;
    assert_int_equal(fstat(right, &size), 0);
    assert_int_equal(ftruncate(fd, size.st_size), 0);
    assert_int_equal(muster_group_memory_open(&options, fd, &other), MUSTER_INVALID);
    assert_null(other);
    (void)close(right);
    muster_group_memory_destroy(memory);
    muster_group_memory_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_results_are_right_and_in_the_canonical_order),
        cmocka_unit_test(calls_that_differ_fail_and_the_next_ones_succeed),
        cmocka_unit_test(operations_in_flight_do_the_same),
        cmocka_unit_test(a_descriptor_of_other_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
