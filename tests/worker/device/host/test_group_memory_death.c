/*
 * Ranks that are killed or stopped in the middle of collectives in shared memory, each a process:
 * all others return, say who it was, and find their input as it was.
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
    LONG_MS = 60000, /* that only a hanging test reaches */
    SHORT_MS = 200,  /* after which a stopped rank is given up */
    GOING_ROUNDS = 30,
    GOING_LOOKS = 200,
};

/* What all processes see. */
struct board {
    uint64_t seed;
    uint32_t ranks, victim, order[RANKS_MAX];
    uint32_t deadline_ms;
    int fd; /* of the memory, that all inherit */
    pthread_barrier_t barrier;
    struct {
        atomic_ullong done; /* operations */
        muster_status status;
        uint32_t suspect;
        char text[MUSTER_ERROR_MAX]; /* why the test fails, or what the status says */
        bool failed;
    } seats[RANKS_MAX];
};

static muster_status go_on(void *user, uint32_t *ret_suspect)
{
    (void)user;
    (void)ret_suspect;
    return MUSTER_OK;
}

static struct muster_group_memory *sit(const struct board *board, uint32_t rank)
{
    struct muster_group_memory *memory = NULL;
    const struct muster_group_memory_options options = {.rank = rank,
                                                        .ranks = board->ranks,
                                                        .names = board->order,
                                                        .order = board->order,
                                                        .cores = 1};
    return muster_group_memory_open(&options, dup(board->fd), &memory) == MUSTER_OK ? memory : NULL;
}

/* Goes on until it ends badly. */
static void work(struct board *board, uint32_t rank, struct muster_group_memory *memory,
                 uint64_t *room)
{
    struct memory_call call;
    bool buffers = muster_group_memory_probe(memory);
    muster_status status = MUSTER_OK;
    uint32_t suspect = UINT32_MAX;
    bool right = true;
    muster_group_memory_begin(memory, 0);
    pthread_barrier_wait(&board->barrier);
    for (uint64_t i = 1; status == MUSTER_OK && right; i++) {
        memory_call_make(board->seed, i, board->order, rank, board->ranks, buffers, room, &call);
        const struct muster_group_step next =
            memory_call_work(&call, muster_clock_after_ms(board->deadline_ms), go_on, NULL);
        status = muster_group_memory_run(memory, &next, &suspect);
        (void)snprintf(board->seats[rank].text, MUSTER_ERROR_MAX, "%s", muster_last_error());
        if (status == MUSTER_OK) {
            right = memory_call_check(&call, board->seats[rank].text, MUSTER_ERROR_MAX);
            atomic_store(&board->seats[rank].done, i);
        } else if (!call.in_place) {
            right = memory_call_check_input(&call, board->seats[rank].text, MUSTER_ERROR_MAX);
        }
    }
    board->seats[rank].status = status;
    board->seats[rank].suspect = suspect;
    board->seats[rank].failed = !right;
}

static _Noreturn void be_rank(struct board *board, uint32_t rank)
{
    struct muster_group_memory *memory = sit(board, rank);
    pthread_barrier_wait(&board->barrier);
    uint64_t *room = malloc(memory_calls_room(board->ranks) * sizeof *room);
    if (memory == NULL || room == NULL) {
        board->seats[rank].failed = true;
        _exit(1);
    }
    work(board, rank, memory, room);
    muster_group_memory_destroy(memory);
    free(room);
    _exit(0);
}

static void prepare(struct board *board)
{
    pthread_barrierattr_t shared;
    assert_int_equal(pthread_barrierattr_init(&shared), 0);
    assert_int_equal(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED), 0);
    assert_int_equal(pthread_barrier_init(&board->barrier, &shared, board->ranks), 0);
    for (uint32_t i = 0; i < board->ranks; i++) {
        board->order[i] = i;
    }
    const struct muster_group_memory_options options = {
        .ranks = board->ranks, .names = board->order, .order = board->order};
    struct muster_group_memory *memory;
    assert_int_equal(muster_group_memory_create(&options, &memory), MUSTER_OK);
    board->fd = dup(muster_group_memory_descriptor(memory));
    muster_group_memory_destroy(memory);
    (void)fflush(stdout);
}

static void start(struct board *board, pid_t *pids)
{
    prepare(board);
    for (uint32_t i = 0; i < board->ranks; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            be_rank(board, i);
        }
    }
}

/* Strikes while it works (the first operation is done: all are at it), at no point in particular.
 */
static void strike(const struct board *board, const pid_t *pids, int signal_number, uint64_t after)
{
    siginfo_t ended = {0}; /* a slow machine may have been over a short deadline */
    while (atomic_load(&board->seats[board->victim].done) < after && ended.si_pid == 0) {
        assert_int_equal(
            waitid(P_PID, (id_t)pids[board->victim], &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        (void)usleep(100);
    }
    assert_int_equal(kill(pids[board->victim], signal_number), 0);
}

static void wait_for(const struct board *board, const pid_t *pids, bool victim_too)
{
    for (uint32_t i = 0; i < board->ranks; i++) {
        if (i != board->victim || victim_too) {
            assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        }
    }
}

static void check(const struct board *board, bool killed)
{
    bool suspected = false;
    for (uint32_t i = 0; i < board->ranks; i++) {
        if (i == board->victim && killed) {
            continue;
        }
        muster_status status = board->seats[i].status;
        bool expected = status == MUSTER_REJOIN || (!killed && status == MUSTER_RETRY);
        if (board->seats[i].failed || !expected) {
            fail_msg("rank %u of %u: %s: %s", i, board->ranks, muster_status_name(status),
                     board->seats[i].text);
        }
        suspected |= board->seats[i].suspect == board->victim;
        if (killed && board->seats[i].suspect != UINT32_MAX) {
            assert_int_equal(board->seats[i].suspect, board->victim);
        }
    }
    assert_true(!killed || suspected);
}

static struct board *make_board(void)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    return board;
}

static void strike_somebody(uint64_t *random, int signal_number)
{
    pid_t pids[RANKS_MAX];
    struct board *board = make_board();
    bool kills = signal_number == SIGKILL;
    board->seed = test_random(random);
    board->ranks = 2 + test_random_below(random, RANKS_MAX - 1);
    board->victim = test_random_below(random, board->ranks);
    board->deadline_ms = kills ? LONG_MS : SHORT_MS;
    start(board, pids);
    strike(board, pids, signal_number, 1 + test_random_below(random, kills ? 30 : 3));
    wait_for(board, pids, kills);
    if (!kills) {
        assert_int_equal(kill(pids[board->victim], SIGCONT), 0);
        assert_int_equal(waitpid(pids[board->victim], NULL, 0), pids[board->victim]);
    }
    check(board, kills);
    close(board->fd);
    assert_int_equal(pthread_barrier_destroy(&board->barrier), 0);
    assert_int_equal(munmap(board, sizeof *board), 0);
}

static void a_killed_rank_ends_the_others_calls_at_once(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        strike_somebody(&random, SIGKILL);
    }
}

static void a_stopped_rank_ends_the_others_calls_in_time(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS / 2; i++) {
        strike_somebody(&random, SIGSTOP);
    }
}

/* Rank 1, which does its part when it is told to, and goes at once. */
struct companion {
    pid_t pid;
    int go;
    bool told;
};

static void tell(struct companion *companion)
{
    if (!companion->told) {
        assert_int_equal(write(companion->go, "x", 1), 1);
        companion->told = true;
    }
}

/* Rank 0 has found nothing yet, and is about to see after rank 1: which is gone by then, unless its
 * part needs rank 0 once more. */
static muster_status let_it_go(void *user, uint32_t *ret_suspect)
{
    struct companion *companion = user;
    siginfo_t ended = {0};
    (void)ret_suspect;
    tell(companion);
    for (int i = 0; i < GOING_LOOKS && ended.si_pid == 0; i++) {
        (void)usleep(100);
        (void)waitid(P_PID, (id_t)companion->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    return MUSTER_OK;
}

/* One operation; rank 1 waits until it is told to. */
static void do_one(struct board *board, uint32_t rank, int told, struct companion *companion)
{
    struct memory_call call;
    char byte = 0;
    uint32_t suspect = UINT32_MAX;
    struct muster_group_memory *memory = sit(board, rank);
    uint64_t *room = malloc(memory_calls_room(board->ranks) * sizeof *room);
    pthread_barrier_wait(&board->barrier);
    bool buffers = muster_group_memory_probe(memory);
    memory_call_make(board->seed, 1, board->order, rank, board->ranks, buffers, room, &call);
    muster_group_memory_begin(memory, 0);
    pthread_barrier_wait(&board->barrier);
    board->seats[rank].failed = rank == 1 && read(told, &byte, 1) != 1;
    const struct muster_group_step work = memory_call_work(
        &call, muster_clock_after_ms(LONG_MS), rank == 0 ? let_it_go : go_on, companion);
    board->seats[rank].status = muster_group_memory_run(memory, &work, &suspect);
    (void)snprintf(board->seats[rank].text, MUSTER_ERROR_MAX, "%s", muster_last_error());
    board->seats[rank].failed |=
        board->seats[rank].status != MUSTER_OK ||
        !memory_call_check(&call, board->seats[rank].text, MUSTER_ERROR_MAX);
    muster_group_memory_destroy(memory);
    free(room);
}

static void part_after_one(uint64_t *random)
{
    int told[2];
    struct board *board = make_board();
    board->seed = test_random(random);
    board->ranks = 2;
    prepare(board);
    assert_int_equal(pipe(told), 0);
    struct companion companion = {.pid = fork(), .go = told[1]};
    assert_true(companion.pid >= 0);
    if (companion.pid == 0) {
        do_one(board, 1, told[0], NULL);
        _exit(0);
    }
    do_one(board, 0, told[0], &companion);
    tell(&companion);
    assert_int_equal(waitpid(companion.pid, NULL, 0), companion.pid);
    for (uint32_t i = 0; i < 2; i++) {
        if (board->seats[i].failed) {
            fail_msg("rank %u: %s", i, board->seats[i].text);
        }
    }
    close(told[0]);
    close(told[1]);
    close(board->fd);
    assert_int_equal(pthread_barrier_destroy(&board->barrier), 0);
    assert_int_equal(munmap(board, sizeof *board), 0);
}

static void who_has_done_its_part_may_go(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < GOING_ROUNDS; i++) {
        part_after_one(&random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_ends_the_others_calls_at_once),
        cmocka_unit_test(a_stopped_rank_ends_the_others_calls_in_time),
        cmocka_unit_test(who_has_done_its_part_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
