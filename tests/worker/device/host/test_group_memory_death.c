/*
 * Ranks, each a process, that are killed or stopped in the middle of collectives in shared memory:
 * the calls of all others return and name the rank, and their input is unchanged.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/memory_calls.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"

enum {
    RANKS_MAX = 5,
    ROUNDS = 12,
    LONG_MS = 60000, /* only a hanging test takes so long */
    SHORT_MS = 200,  /* deadline of the calls that wait for a stopped rank */
    LEAVING_ROUNDS = 30,
    LEAVING_POLLS = 200,
};

/* Memory that all processes of the test share. */
struct shared {
    uint64_t seed;
    uint32_t ranks, victim, order[RANKS_MAX];
    uint32_t deadline_ms;
    bool polls; /* as operations in flight do */
    int fd;     /* of the group's memory; inherited by all */
    pthread_barrier_t barrier;
    struct {
        atomic_ullong done; /* operations */
        muster_status status;
        uint32_t suspect;
        char text[MUSTER_ERROR_MAX]; /* the error, of the test or of the status */
        bool failed;
    } results[RANKS_MAX];
};

static muster_status keep_waiting(void *user, uint32_t *ret_suspect)
{
    (void)user;
    (void)ret_suspect;
    return MUSTER_OK;
}

static struct muster_group_memory *join(const struct shared *shared, uint32_t rank)
{
    struct muster_group_memory *memory = NULL;
    const struct muster_group_options options = {.rank = rank,
                                                 .ranks = shared->ranks,
                                                 .names = shared->order,
                                                 .order = shared->order,
                                                 .cores = 1};
    return muster_group_memory_open(&options, dup(shared->fd), &memory) == MUSTER_OK ? memory
                                                                                     : NULL;
}

/* Runs operations until one fails. */
static void run_until_failure(struct shared *shared, uint32_t rank,
                              struct muster_group_memory *memory, uint64_t *buffer)
{
    struct memory_call call;
    bool buffers = muster_group_memory_probe(memory);
    muster_status status = MUSTER_OK;
    uint32_t suspect = UINT32_MAX;
    bool right = true;
    muster_group_memory_begin(memory, 0);
    pthread_barrier_wait(&shared->barrier);
    for (uint64_t i = 1; status == MUSTER_OK && right; i++) {
        memory_call_make(shared->seed, i, shared->order, rank, shared->ranks, buffers, buffer,
                         &call);
        const struct muster_group_launch step =
            memory_call_step(&call, muster_clock_after_ms(shared->deadline_ms), keep_waiting, NULL);
        status = shared->polls ? memory_call_poll(memory, &step, false, &suspect)
                               : muster_group_memory_run(memory, &step, &suspect);
        (void)snprintf(shared->results[rank].text, MUSTER_ERROR_MAX, "%s", muster_last_error());
        if (status == MUSTER_OK) {
            right = memory_call_check(&call, shared->results[rank].text, MUSTER_ERROR_MAX);
            atomic_store(&shared->results[rank].done, i);
        } else if (!call.in_place) {
            right = memory_call_check_input(&call, shared->results[rank].text, MUSTER_ERROR_MAX);
        }
    }
    shared->results[rank].status = status;
    shared->results[rank].suspect = suspect;
    shared->results[rank].failed = !right;
}

static _Noreturn void run_rank(struct shared *shared, uint32_t rank)
{
    struct muster_group_memory *memory = join(shared, rank);
    pthread_barrier_wait(&shared->barrier);
    uint64_t *buffer = malloc(memory_calls_elements(shared->ranks) * sizeof *buffer);
    if (memory == NULL || buffer == NULL) {
        shared->results[rank].failed = true;
        _exit(1);
    }
    run_until_failure(shared, rank, memory, buffer);
    muster_group_memory_destroy(memory);
    free(buffer);
    _exit(0);
}

static void prepare(struct shared *shared)
{
    pthread_barrierattr_t attributes;
    assert_int_equal(pthread_barrierattr_init(&attributes), 0);
    assert_int_equal(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    assert_int_equal(pthread_barrier_init(&shared->barrier, &attributes, shared->ranks), 0);
    for (uint32_t i = 0; i < shared->ranks; i++) {
        shared->order[i] = i;
    }
    assert_int_equal(muster_group_memory_invite(shared->ranks, &shared->fd), MUSTER_OK);
    (void)fflush(stdout);
}

static void start(struct shared *shared, pid_t *pids)
{
    prepare(shared);
    for (uint32_t i = 0; i < shared->ranks; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            run_rank(shared, i);
        }
    }
}

/* Sends the signal to the victim after so many operations, at no particular point of the next. */
static void send_signal(const struct shared *shared, const pid_t *pids, int signal_number,
                        uint64_t after)
{
    siginfo_t ended = {0}; /* on a slow machine the short deadline may have ended it */
    while (atomic_load(&shared->results[shared->victim].done) < after && ended.si_pid == 0) {
        assert_int_equal(
            waitid(P_PID, (id_t)pids[shared->victim], &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        (void)usleep(100);
    }
    assert_int_equal(kill(pids[shared->victim], signal_number), 0);
}

static void wait_for(const struct shared *shared, const pid_t *pids, bool victim_too)
{
    for (uint32_t i = 0; i < shared->ranks; i++) {
        if (i != shared->victim || victim_too) {
            assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        }
    }
}

static void check(const struct shared *shared, bool killed)
{
    bool suspected = false;
    for (uint32_t i = 0; i < shared->ranks; i++) {
        if (i == shared->victim && killed) {
            continue;
        }
        muster_status status = shared->results[i].status;
        bool expected = status == MUSTER_REJOIN || (!killed && status == MUSTER_RETRY);
        if (shared->results[i].failed || !expected) {
            fail_msg("rank %u of %u: %s: %s", i, shared->ranks, muster_status_name(status),
                     shared->results[i].text);
        }
        suspected |= shared->results[i].suspect == shared->victim;
        if (killed && shared->results[i].suspect != UINT32_MAX) {
            assert_int_equal(shared->results[i].suspect, shared->victim);
        }
    }
    assert_true(!killed || suspected);
}

static struct shared *map_shared(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

static void signal_one_rank(uint64_t *random, int signal_number)
{
    pid_t pids[RANKS_MAX];
    struct shared *shared = map_shared();
    bool kills = signal_number == SIGKILL;
    shared->seed = test_random(random);
    shared->ranks = 2 + test_random_below(random, RANKS_MAX - 1);
    shared->victim = test_random_below(random, shared->ranks);
    shared->polls = test_random(random) % 2 == 0;
    shared->deadline_ms = kills ? LONG_MS : SHORT_MS;
    start(shared, pids);
    send_signal(shared, pids, signal_number, 1 + test_random_below(random, kills ? 30 : 3));
    wait_for(shared, pids, kills);
    if (!kills) {
        assert_int_equal(kill(pids[shared->victim], SIGCONT), 0);
        assert_int_equal(waitpid(pids[shared->victim], NULL, 0), pids[shared->victim]);
    }
    check(shared, kills);
    close(shared->fd);
    assert_int_equal(pthread_barrier_destroy(&shared->barrier), 0);
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

static void a_killed_rank_ends_the_others_calls_at_once(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        signal_one_rank(&random, SIGKILL);
    }
}

static void a_stopped_rank_ends_the_others_calls_in_time(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS / 2; i++) {
        signal_one_rank(&random, SIGSTOP);
    }
}

/* Rank 1, a process that starts its operation after rank 0 has written a byte, and ends right after
 * it. */
struct partner {
    pid_t pid;
    int start_fd;
    bool started;
};

static void let_start(struct partner *partner)
{
    if (!partner->started) {
        assert_int_equal(write(partner->start_fd, "x", 1), 1);
        partner->started = true;
    }
}

/* Called when rank 0's polls have found nothing, before it checks that rank 1 is alive: waits until
 * rank 1 has ended, or for a while, because rank 1 may still need rank 0. */
static muster_status await_end_of_partner(void *user, uint32_t *ret_suspect)
{
    struct partner *partner = user;
    siginfo_t ended = {0};
    (void)ret_suspect;
    let_start(partner);
    for (int i = 0; i < LEAVING_POLLS && ended.si_pid == 0; i++) {
        (void)usleep(100);
        (void)waitid(P_PID, (id_t)partner->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    return MUSTER_OK;
}

/* Runs one operation. Rank 1 starts it when it can read a byte from start_fd. */
static void run_one_operation(struct shared *shared, uint32_t rank, int start_fd,
                              struct partner *partner)
{
    struct memory_call call;
    char byte = 0;
    uint32_t suspect = UINT32_MAX;
    struct muster_group_memory *memory = join(shared, rank);
    uint64_t *buffer = malloc(memory_calls_elements(shared->ranks) * sizeof *buffer);
    pthread_barrier_wait(&shared->barrier);
    bool buffers = muster_group_memory_probe(memory);
    memory_call_make(shared->seed, 1, shared->order, rank, shared->ranks, buffers, buffer, &call);
    muster_group_memory_begin(memory, 0);
    pthread_barrier_wait(&shared->barrier);
    shared->results[rank].failed = rank == 1 && read(start_fd, &byte, 1) != 1;
    const struct muster_group_launch step =
        memory_call_step(&call, muster_clock_after_ms(LONG_MS),
                         rank == 0 ? await_end_of_partner : keep_waiting, partner);
    shared->results[rank].status = muster_group_memory_run(memory, &step, &suspect);
    (void)snprintf(shared->results[rank].text, MUSTER_ERROR_MAX, "%s", muster_last_error());
    shared->results[rank].failed |=
        shared->results[rank].status != MUSTER_OK ||
        !memory_call_check(&call, shared->results[rank].text, MUSTER_ERROR_MAX);
    muster_group_memory_destroy(memory);
    free(buffer);
}

/* Both ranks run one operation, and rank 1 ends while rank 0 is still in it: it must succeed. */
static void end_partner_during_operation(uint64_t *random)
{
    int start[2];
    struct shared *shared = map_shared();
    shared->seed = test_random(random);
    shared->ranks = 2;
    prepare(shared);
    assert_int_equal(pipe(start), 0);
    struct partner partner = {.pid = fork(), .start_fd = start[1]};
    assert_true(partner.pid >= 0);
    if (partner.pid == 0) {
        run_one_operation(shared, 1, start[0], NULL);
        _exit(0);
    }
    run_one_operation(shared, 0, start[0], &partner);
    let_start(&partner);
    assert_int_equal(waitpid(partner.pid, NULL, 0), partner.pid);
    for (uint32_t i = 0; i < 2; i++) {
        if (shared->results[i].failed) {
            fail_msg("rank %u: %s", i, shared->results[i].text);
        }
    }
    close(start[0]);
    close(start[1]);
    close(shared->fd);
    assert_int_equal(pthread_barrier_destroy(&shared->barrier), 0);
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

static void a_rank_that_has_done_its_part_may_leave(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < LEAVING_ROUNDS; i++) {
        end_partner_during_operation(&random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_ends_the_others_calls_at_once),
        cmocka_unit_test(a_stopped_rank_ends_the_others_calls_in_time),
        cmocka_unit_test(a_rank_that_has_done_its_part_may_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
