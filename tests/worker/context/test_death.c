/* A member that dies or stops in the middle of a collective: two processes over TCP, one of which
 * gets a signal. With more of them the service would have to inform the ranks that have no link
 * to the victim. */
#include "tests/support/descriptors.h"
#include "tests/support/fabrics.h"
#include "tests/support/group.h"
#include "worker/base/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 2, VICTIM = 1, COUNT = 20000, GOOD_CALLS = 50, WAIT_MS = 20000, QUIET_MS = 20 };

/* The addresses of all ranks and their results, in memory that the processes share. */
struct board {
    struct muster_peer peers[RANKS];
    uint32_t call_timeout_ms;
    muster_status statuses[RANKS];
    uint32_t suspects[RANKS];
    char texts[RANKS][MUSTER_ERROR_MAX];
    bool input_intact[RANKS];
    bool result_right[RANKS];
};

/* A process writes a byte to `reached` at each point where the test waits for it, and reads a byte
 * from `go` to go on. */
struct process {
    pid_t pid;
    int reached, go;
};

static void send_byte(int fd)
{
    if (write(fd, "x", 1) != 1) {
        _exit(1);
    }
}

static void await_byte(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1) {
        _exit(0); /* the test's process has ended */
    }
}

/* Makes this process's fabric, waits for the addresses of all ranks, and makes the context. */
static struct muster_context *join(struct board *board, uint32_t rank, int reached, int go)
{
    struct muster_peer *peer = &board->peers[rank];
    muster_random_uuid(peer->member);
    (void)snprintf(peer->host, sizeof peer->host, "box%u", rank);
    const struct fabric_wish wish = {
        .transports = "tcp",
        .fabric = {.member = peer->member, .link_token = "secret", .quiet_ms = QUIET_MS}};
    struct muster_fabric *fabric = NULL;
    if (fabrics_make(&wish, &fabric) != MUSTER_OK) {
        _exit(1);
    }
    peer->address_count = 1;
    (void)snprintf(peer->addresses[0], sizeof peer->addresses[0], "%s",
                   muster_fabric_address(fabric, 0));
    send_byte(reached);
    await_byte(go);
    static const uint32_t ranks[RANKS] = {0, 1};
    struct muster_topology topology;
    struct muster_context *context = NULL;
    const struct muster_context_options options = {.fabric = fabric,
                                                   .generation = 5,
                                                   .name = "global",
                                                   .topology = &topology,
                                                   .ranks = ranks,
                                                   .rank = rank,
                                                   .model = &muster_cost_model_default};
    if (muster_fabric_begin_generation(fabric, 5, board->peers, RANKS) != MUSTER_OK ||
        muster_topology_init_even(RANKS, 1, &topology) != MUSTER_OK ||
        muster_context_create(&options, &context) != MUSTER_OK) {
        _exit(1);
    }
    return context;
}

static bool all_equal(const double *values, double wanted)
{
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != wanted) {
            return false;
        }
    }
    return true;
}

/* Runs in each process: calls until a call fails, then records what it returned. */
static void call_until_failure(struct board *board, uint32_t rank, int reached, int go)
{
    static double in[COUNT];
    static double out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = rank + 1;
    }
    struct muster_context *context = join(board, rank, reached, go);
    board->result_right[rank] = true;
    for (int calls = 1; board->statuses[rank] == MUSTER_OK; calls++) {
        struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = COUNT,
                                         .type = MUSTER_FLOAT64,
                                         .deadline_ns =
                                             muster_clock_after_ms(board->call_timeout_ms)};
        board->statuses[rank] = muster_context_run(context, &request, &board->suspects[rank]);
        if (board->statuses[rank] == MUSTER_OK && !all_equal(out, 1 + 2)) {
            board->result_right[rank] = false;
        }
        if (calls == GOOD_CALLS) {
            send_byte(reached);
        }
    }
    (void)snprintf(board->texts[rank], MUSTER_ERROR_MAX, "%s", muster_last_error());
    board->input_intact[rank] = all_equal(in, rank + 1);
    send_byte(reached);
    await_byte(go); /* keeps its links open, so that the others see one death only */
    _exit(0);
}

static struct process start(struct board *board, uint32_t rank)
{
    int reached[2];
    int go[2];
    assert_int_equal(pipe(reached), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(reached[0]);
        close(go[1]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        call_until_failure(board, rank, reached[1], go[0]);
    }
    close(reached[1]);
    close(go[0]);
    return (struct process){.pid = pid, .reached = reached[0], .go = go[1]};
}

static void await_reached(const struct process *processes, bool without_victim)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        struct pollfd poll_one = {.fd = processes[i].reached, .events = POLLIN};
        char byte;
        if (i == VICTIM && without_victim) {
            continue;
        }
        if (poll(&poll_one, 1, WAIT_MS) != 1 || read(processes[i].reached, &byte, 1) != 1) {
            fail_msg("rank %u does not reach the point", i);
        }
    }
}

/* Starts all processes, sends the signal to the victim after GOOD_CALLS calls, waits for the
 * results of the rest, and ends all. */
static struct board *run_and_signal(int signal_number, uint32_t call_timeout_ms)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    board->call_timeout_ms = call_timeout_ms;
    struct process processes[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        processes[i] = start(board, i);
    }
    await_reached(processes, false); /* addresses */
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(write(processes[i].go, "x", 1), 1);
    }
    await_reached(processes, false); /* good calls */
    assert_int_equal(kill(processes[VICTIM].pid, signal_number), 0);
    await_reached(processes, true);
    assert_int_equal(kill(processes[VICTIM].pid, SIGKILL), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != VICTIM) {
            assert_int_equal(write(processes[i].go, "x", 1), 1);
        }
        close(processes[i].reached);
        close(processes[i].go);
        assert_int_equal(waitpid(processes[i].pid, NULL, 0), processes[i].pid);
    }
    return board;
}

static void a_killed_process_is_named_by_the_others_at_once(void **state)
{
    (void)state;
    int64_t start_ns = muster_clock_ns();
    struct board *board = run_and_signal(SIGKILL, GROUP_DEADLINE_MS);
    assert_true(muster_clock_ns() - start_ns < (int64_t)WAIT_MS * 1000000);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i == VICTIM) {
            continue;
        }
        if (board->statuses[i] != MUSTER_REJOIN || strstr(board->texts[i], "rank 1") == NULL ||
            strstr(board->texts[i], "allreduce #") == NULL) {
            fail_msg("rank %u: %s: %s", i, muster_status_name(board->statuses[i]), board->texts[i]);
        }
        assert_int_equal(board->suspects[i], VICTIM);
        assert_true(board->result_right[i]);
        assert_true(board->input_intact[i]);
    }
    munmap(board, sizeof *board);
}

/* It is there, so its deadline counts and not the bounds for members that are gone or cut off,
 * which are 8 and 120 ms here. */
static void a_stopped_process_is_named_at_the_deadline(void **state)
{
    (void)state;
    int64_t start_ns = muster_clock_ns();
    struct board *board = run_and_signal(SIGSTOP, 500);
    assert_true(muster_clock_ns() - start_ns >= INT64_C(500) * MUSTER_NS_PER_MS);
    bool suspected = false;
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i == VICTIM) {
            continue;
        }
        assert_int_equal(board->statuses[i], MUSTER_REJOIN);
        assert_non_null(strstr(board->texts[i], "the deadline passed while it waited for rank"));
        assert_non_null(strstr(board->texts[i], ": its process is there"));
        assert_true(board->result_right[i]);
        assert_true(board->input_intact[i]);
        suspected = suspected || board->suspects[i] == VICTIM;
    }
    assert_true(suspected);
    munmap(board, sizeof *board);
}

/* Both ranks send first in this algorithm, so both connect. */
static void expect_fatal(struct group_member *member, void *argument)
{
    float in = 1;
    float out = 0;
    uint32_t suspect = UINT32_MAX;
    (void)argument;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .algorithm = "recursive_doubling",
                                           .in = &in,
                                           .out = &out,
                                           .count = 1,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = group_deadline()};
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, &suspect);
    if (status != MUSTER_FATAL || suspect != UINT32_MAX ||
        strstr(muster_last_error(), "this process has no descriptor left") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void a_process_without_descriptors_fails_and_suspects_no_rank(void **state)
{
    (void)state;
    struct group group;
    struct rlimit before;
    group_start_flat(&group, GROUP_TCP, RANKS);
    descriptors_exhaust(&before);
    group_each(&group, expect_fatal, NULL);
    descriptors_restore(&before);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_is_named_by_the_others_at_once),
        cmocka_unit_test(a_stopped_process_is_named_at_the_deadline),
        cmocka_unit_test(a_process_without_descriptors_fails_and_suspects_no_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
