/*
 * Collectives in shared memory, with a thread for each rank: random ones of all kinds, sizes and
 * ways, and calls that differ.
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

enum { OPERATIONS = 40, DEADLINE_MS = 60000, CALLS_A_ROOM = 12 };

struct party {
    uint64_t seed;
    uint32_t ranks, order[MEMORY_CALLS_RANKS_MAX], names[MEMORY_CALLS_RANKS_MAX];
    int fd; /* of the memory */
    pthread_barrier_t barrier;
    bool errs; /* now and then a rank calls for something else */
};

struct guest {
    struct party *party;
    uint32_t rank;
    pthread_t thread;
    char failure[MUSTER_ERROR_MAX];
};

static muster_status go_on(void *user, uint32_t *ret_suspect)
{
    (void)user;
    (void)ret_suspect;
    return MUSTER_OK;
}

/* Two ranks have a way of their own for large outputs, so theirs always are. */
static size_t stream_bytes(const struct party *party)
{
    return party->ranks == 2 ? 1000 : party->seed % 3 * 20000;
}

static muster_status sit(struct guest *guest, struct muster_group_memory **ret_memory)
{
    struct party *party = guest->party;
    const struct muster_group_memory_options options = {.rank = guest->rank,
                                                        .ranks = party->ranks,
                                                        .names = party->names,
                                                        .order = party->order,
                                                        .cores =
                                                            party->seed % 2 == 0 ? 1 : party->ranks,
                                                        .stream_bytes = stream_bytes(party)};
    if (guest->rank == 0) {
        TRY(muster_group_memory_create(&options, ret_memory));
        party->fd = muster_group_memory_descriptor(*ret_memory);
    }
    pthread_barrier_wait(&party->barrier);
    if (guest->rank != 0) {
        TRY(muster_group_memory_open(&options, dup(party->fd), ret_memory));
    }
    pthread_barrier_wait(&party->barrier);
    return MUSTER_OK;
}

/* The rank that errs in this operation, or `ranks`: nobody does. */
static uint32_t who_errs(const struct party *party, uint64_t sequence)
{
    uint64_t drawn = (party->seed + sequence * UINT64_C(0x9e3779b97f4a7c15)) >> 33;
    return party->errs && drawn % 3 == 0 ? (uint32_t)(drawn / 3 % party->ranks) : party->ranks;
}

/* Who errs does another collective, here or by messages. */
static muster_status err(struct muster_group_memory *memory, struct memory_call *call)
{
    uint32_t suspect = UINT32_MAX;
    call->call.count += 1;
    const struct muster_group_step work =
        memory_call_work(call, muster_clock_after_ms(DEADLINE_MS), go_on, NULL);
    return call->sequence % 2 == 0 ? muster_group_memory_announce(memory, &work, &suspect)
                                   : muster_group_memory_run(memory, &work, &suspect);
}

/* Where data flows one way, not everybody finds out. */
static bool all_find_out(const struct memory_call *call)
{
    return !muster_collective_has_root(call->shape.collective) ||
           call->method == MUSTER_MEMORY_BUFFERS;
}

static void call_together(struct guest *guest, struct muster_group_memory *memory,
                          uint64_t sequence, bool buffers, uint64_t *room)
{
    struct party *party = guest->party;
    struct memory_call call;
    uint32_t suspect = UINT32_MAX;
    uint32_t wrong = who_errs(party, sequence);
    memory_call_make(party->seed, sequence, party->order, guest->rank, party->ranks, buffers, room,
                     &call);
    if (guest->rank == wrong) {
        muster_status status = err(memory, &call);
        if (status != MUSTER_OK && status != MUSTER_INVALID) {
            (void)snprintf(guest->failure, sizeof guest->failure, "%s", muster_last_error());
        }
        return;
    }
    const struct muster_group_step work =
        memory_call_work(&call, muster_clock_after_ms(DEADLINE_MS), go_on, NULL);
    muster_status status = muster_group_memory_run(memory, &work, &suspect);
    bool agreed = wrong == party->ranks;
    if (status == MUSTER_OK && agreed) {
        (void)memory_call_check(&call, guest->failure, sizeof guest->failure);
    } else if (status == MUSTER_INVALID && !agreed) {
        (void)memory_call_check_input(&call, guest->failure, sizeof guest->failure);
    } else if (status != MUSTER_OK || all_find_out(&call)) {
        (void)snprintf(guest->failure, sizeof guest->failure, "rank %u #%llu: %s: %.300s",
                       guest->rank, (unsigned long long)sequence, muster_status_name(status),
                       status == MUSTER_OK ? "calls differ" : muster_last_error());
    }
}

/* In some parties all have memory of muster_alloc(), in others only some. */
static bool has_pieces(const struct guest *guest)
{
    return guest->party->ranks % 3 != 0 || guest->rank % 2 == 0;
}

static void free_room(const struct guest *guest, uint64_t *room)
{
    (has_pieces(guest) ? muster_free : free)(room);
}

static uint64_t *make_room(struct guest *guest)
{
    size_t size_bytes = memory_calls_room(guest->party->ranks) * sizeof(uint64_t);
    void *room = NULL;
    if (!has_pieces(guest)) {
        room = malloc(size_bytes);
    } else if (muster_alloc(size_bytes, &room) != MUSTER_OK) {
        (void)snprintf(guest->failure, sizeof guest->failure, "%s", muster_last_error());
    }
    return room;
}

static void *attend(void *argument)
{
    struct guest *guest = argument;
    struct muster_group_memory *memory = NULL;
    uint64_t *room = NULL;
    if (sit(guest, &memory) != MUSTER_OK) {
        (void)snprintf(guest->failure, sizeof guest->failure, "%s", muster_last_error());
        return NULL;
    }
    bool buffers = muster_group_memory_probe(memory);
    muster_group_memory_begin(memory, 5);
    pthread_barrier_wait(&guest->party->barrier);
    for (uint64_t i = 6; i < 6 + OPERATIONS && guest->failure[0] == '\0'; i++) {
        if (i % CALLS_A_ROOM == guest->rank || room == NULL) {
            free_room(guest, room);
            room = make_room(guest);
        }
        if (room != NULL) {
            call_together(guest, memory, i, buffers, room);
        }
    }
    if (guest->failure[0] == '\0') { /* else the others notice that it is gone */
        pthread_barrier_wait(&guest->party->barrier);
    }
    muster_group_memory_destroy(memory);
    free_room(guest, room);
    return NULL;
}

static void shuffle(struct party *party)
{
    uint64_t state = party->seed;
    for (uint32_t i = 0; i < party->ranks; i++) {
        party->order[i] = i;
        party->names[i] = 100 + i;
    }
    for (uint32_t i = party->ranks; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint32_t other = (uint32_t)((state >> 33) % i);
        uint32_t kept = party->order[i - 1];
        party->order[i - 1] = party->order[other];
        party->order[other] = kept;
    }
}

static void hold_party(uint64_t seed, uint32_t ranks, bool errs)
{
    struct party party = {.seed = seed, .ranks = ranks, .errs = errs};
    struct guest guests[MEMORY_CALLS_RANKS_MAX] = {0};
    shuffle(&party);
    assert_int_equal(pthread_barrier_init(&party.barrier, NULL, ranks), 0);
    for (uint32_t i = 0; i < ranks; i++) {
        guests[i].party = &party;
        guests[i].rank = i;
        assert_int_equal(pthread_create(&guests[i].thread, NULL, attend, &guests[i]), 0);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(guests[i].thread, NULL), 0);
    }
    pthread_barrier_destroy(&party.barrier);
    for (uint32_t i = 0; i < ranks; i++) {
        if (guests[i].failure[0] != '\0') {
            fail_msg("%u ranks: %s", ranks, guests[i].failure);
        }
    }
}

static void everything_comes_out_right_in_the_canonical_order(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t ranks = 2; ranks <= MEMORY_CALLS_RANKS_MAX; ranks++) {
        hold_party(seed + ranks, ranks, false);
    }
}

static void calls_that_differ_fail_and_the_next_ones_go_on(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t ranks = 2; ranks <= 5; ranks++) {
        hold_party(seed + ranks, ranks, true);
    }
}

static void what_is_no_such_memory_is_refused(void **state)
{
    (void)state;
    const uint32_t order[3] = {0, 1, 2};
    struct muster_group_memory_options options = {.ranks = 2, .names = order, .order = order};
    struct muster_group_memory *memory;
    struct muster_group_memory *other = NULL;
    assert_int_equal(muster_group_memory_create(&options, &memory), MUSTER_OK);
    options.rank = 1;
    options.ranks = 3;
    assert_int_equal(
        muster_group_memory_open(&options, dup(muster_group_memory_descriptor(memory)), &other),
        MUSTER_INVALID);
    options.ranks = 2;
    assert_int_equal(muster_group_memory_open(&options, dup(STDERR_FILENO), &other),
                     MUSTER_INVALID);
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    struct stat size;
    assert_int_equal(fstat(muster_group_memory_descriptor(memory), &size), 0);
    assert_int_equal(ftruncate(fd, size.st_size), 0);
    assert_int_equal(muster_group_memory_open(&options, fd, &other), MUSTER_INVALID);
    assert_null(other);
    muster_group_memory_destroy(memory);
    muster_group_memory_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_out_right_in_the_canonical_order),
        cmocka_unit_test(calls_that_differ_fail_and_the_next_ones_go_on),
        cmocka_unit_test(what_is_no_such_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
