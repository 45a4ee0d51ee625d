/*
 * A member on ragged hosts that is killed, stopped or leaves in the middle of the group steps of
 * its host, in every row hierarchical_group, blocking and in flight: all others end with REJOIN
 * within a bound, one of them names it (or the rank that it waits for, if it stopped), and what
 * they got and gave is right. Processes; the test is what the service is in a job: it hears of the
 * first failure and revokes the generation.
 *
 * MUSTER_SEED=N repeats the draws.
 */
#include "tests/support/fabrics.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/host/group_parts.h"
#include "worker/executor/progress_engine.h"

#include <poll.h>
#include <pthread.h>
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

enum {
    RANKS_MAX = 5,
    COUNT = 20000,
    GOOD_CALLS = 4,
    HANGS_MS = 60000, /* only a hanging test takes so long */
    BOUND_MS =
        10000, /* from the death until all have returned, with a sanitizer on a busy machine */
    GIVE_UP_MS = 300, /* deadline of the calls that wait for a stopped member */
    STALL_MAX_US = 2000,
    IN_FLIGHT = 3,
};

enum fault { KILLED, STOPPED, LEFT, FAULTS };

static const struct {
    uint32_t ranks, hosts, sizes[3];
} shapes[] = {{5, 2, {3, 2}}, {4, 3, {1, 2, 1}}, {4, 2, {1, 3}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const enum muster_collective collectives[] = {
    MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER, MUSTER_ALLGATHERV,
    MUSTER_BROADCAST, MUSTER_REDUCE,         MUSTER_BARRIER};
enum { COLLECTIVES = sizeof collectives / sizeof collectives[0] };

/* Shared by the test and all members. */
struct board {
    uint32_t shape, victim;
    enum muster_collective collective;
    enum fault fault;
    bool in_flight;
    struct muster_peer peers[RANKS_MAX];
    atomic_bool go, over, revoked, leave;
    atomic_uint ready, called[RANKS_MAX], ended;
    muster_status statuses[RANKS_MAX];
    uint32_t suspects[RANKS_MAX];
    char texts[RANKS_MAX][MUSTER_ERROR_MAX];
    char data_errors[RANKS_MAX][256];
    bool grouped[RANKS_MAX]; /* the member has performed group steps */
};

/* A member ------------------------------------------------------------------------------------- */

struct member {
    struct board *board;
    uint32_t rank;
    struct muster_fabric *fabric;
    struct muster_progress_engine *engine;
    struct muster_context *context;
    uint64_t first_step; /* before the first call */
    char *in[IN_FLIGHT], *out[IN_FLIGHT];
};

static void await(const atomic_bool *flag)
{
    while (!atomic_load(flag)) {
        (void)usleep(500);
    }
}

/* What the service's Watch is: tells the member that the generation is over. */
static void *watch(void *argument)
{
    struct member *self = argument;
    await(&self->board->revoked);
    muster_fabric_revoke(self->fabric, 1, "a member was reported");
    return NULL;
}

static uint32_t host_of(const struct board *board, uint32_t rank)
{
    uint32_t host = 0;
    for (uint32_t end = shapes[board->shape].sizes[0]; rank >= end;) {
        end += shapes[board->shape].sizes[++host];
    }
    return host;
}

static muster_status publish(struct member *self)
{
    struct muster_peer *peer = &self->board->peers[self->rank];
    const struct fabric_wish wish = {.transports = "shm,tcp",
                                     .fabric = {.member = peer->member, .link_token = "a token"}};
    muster_random_uuid(peer->member);
    (void)snprintf(peer->host, sizeof peer->host, "host%u", host_of(self->board, self->rank));
    TRY(fabrics_make(&wish, &self->fabric));
    peer->address_count = muster_fabric_address_count(self->fabric);
    for (uint32_t i = 0; i < peer->address_count; i++) {
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[i], "%s",
                       muster_fabric_address(self->fabric, i));
    }
    return MUSTER_OK;
}

static muster_status join(struct member *self)
{
    static const uint32_t ranks[RANKS_MAX] = {0, 1, 2, 3, 4};
    const struct board *board = self->board;
    struct muster_topology topology =
        test_topology(shapes[board->shape].hosts, shapes[board->shape].sizes);
    TRY(muster_fabric_begin_generation(self->fabric, 1, board->peers, shapes[board->shape].ranks));
    TRY(muster_progress_engine_create(self->fabric, &self->engine));
    const struct muster_context_options options = {.fabric = self->fabric,
                                                   .engine = self->engine,
                                                   .generation = 1,
                                                   .name = "global",
                                                   .topology = &topology,
                                                   .ranks = ranks,
                                                   .rank = self->rank,
                                                   .model = &muster_cost_model_default};
    TRY(muster_context_create(&options, &self->context));
    muster_topology_finish(&topology);
    TRY(muster_context_share_memory(self->context, muster_clock_after_ms(HANGS_MS), NULL));
    const struct muster_group_memory *memory = self->context->host.memory;
    self->first_step = memory != NULL ? memory->announced : 0;
    return MUSTER_OK;
}

static struct muster_request request_of(const struct member *self, uint32_t i)
{
    const struct board *board = self->board;
    struct muster_request request = {
        .collective = board->collective,
        .in = board->collective == MUSTER_BROADCAST ? NULL : self->in[i],
        .out = self->out[i],
        .count = board->collective == MUSTER_BARRIER ? 0 : COUNT,
        .type = MUSTER_INT64,
        .op = MUSTER_SUM,
        .root = muster_collective_has_root(board->collective) ? 1 : 0,
        .algorithm = "hierarchical_group",
        .keep_input = i == 1,
        .deadline_ns = muster_clock_after_ms(board->fault == STOPPED ? GIVE_UP_MS : HANGS_MS)};
    if (muster_collective_needs_bounds(board->collective)) {
        pattern_make_counts(&request, self->rank, shapes[board->shape].ranks);
    }
    return request;
}

/* What must be true however the call has ended. */
static void check(struct member *self, const struct muster_request *request, muster_status status)
{
    char text[128] = "";
    uint32_t ranks = shapes[self->board->shape].ranks;
    char *error = self->board->data_errors[self->rank];
    if (request->collective == MUSTER_BARRIER) {
        return;
    }
    if (status == MUSTER_OK && pattern_check(request, self->rank, ranks, text, sizeof text) > 0) {
        (void)snprintf(error, 256, "wrong result: %s", text);
    } else if (request->in != NULL &&
               pattern_check_input(request, self->rank, ranks, text, sizeof text) > 0) {
        (void)snprintf(error, 256, "its input was changed: %s", text);
    }
}

/* One blocking call, or some in flight at once. Records the first failure. */
static muster_status call(struct member *self)
{
    struct board *board = self->board;
    uint32_t count = board->in_flight ? IN_FLIGHT : 1;
    struct muster_request requests[IN_FLIGHT];
    struct muster_started_call *calls[IN_FLIGHT] = {NULL};
    muster_status first = MUSTER_OK;
    for (uint32_t i = 0; i < count && first == MUSTER_OK; i++) {
        requests[i] = request_of(self, i);
        if (board->collective != MUSTER_BARRIER) {
            pattern_fill(&requests[i], requests[i].in != NULL ? self->in[i] : self->out[i],
                         self->rank, shapes[board->shape].ranks);
        }
        atomic_fetch_add(&board->called[self->rank], 1);
        first = board->in_flight
                    ? muster_context_start(self->context, &requests[i], &calls[i])
                    : muster_context_run(self->context, &requests[i], &board->suspects[self->rank]);
        if (!board->in_flight || first != MUSTER_OK) {
            check(self, &requests[i], first);
            (void)snprintf(board->texts[self->rank], MUSTER_ERROR_MAX, "%s", muster_last_error());
            pattern_free_counts(&requests[i]);
        }
    }
    for (uint32_t i = 0; i < count && calls[i] != NULL; i++) {
        uint32_t suspect = UINT32_MAX;
        muster_status status = muster_started_call_end(calls[i], &suspect);
        check(self, &requests[i], status);
        pattern_free_counts(&requests[i]);
        if (first == MUSTER_OK && status != MUSTER_OK) {
            first = status;
            (void)snprintf(board->texts[self->rank], MUSTER_ERROR_MAX, "%s", muster_last_error());
        }
        if (status != MUSTER_OK && board->suspects[self->rank] == UINT32_MAX) {
            board->suspects[self->rank] = suspect;
        }
    }
    return first;
}

static bool has_grouped(const struct member *self)
{
    const struct muster_context_memory *host = &self->context->host;
    const struct muster_group_memory *memory = host->memory;
    bool grouped = memory != NULL && memory->announced > self->first_step;
    for (uint32_t i = 0; memory != NULL && i < MUSTER_GROUP_CHANNELS; i++) {
        const struct muster_group_memory *channel = host->channels[i];
        grouped |= channel->announced >= MUSTER_PARTS_MAX;
    }
    return grouped;
}

static _Noreturn void run_member(struct board *board, uint32_t rank)
{
    struct member self = {.board = board, .rank = rank};
    pthread_t watcher;
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        self.in[i] = malloc(2 * (COUNT + 1) * RANKS_MAX * sizeof(int64_t));
        self.out[i] = malloc(2 * (COUNT + 1) * RANKS_MAX * sizeof(int64_t));
    }
    muster_status status = publish(&self);
    atomic_fetch_add(&board->ready, 1);
    await(&board->go);
    status = status == MUSTER_OK ? join(&self) : status;
    if (status != MUSTER_OK || pthread_create(&watcher, NULL, watch, &self) != 0) {
        (void)snprintf(board->data_errors[rank], 256, "%s", muster_last_error());
        _exit(1);
    }
    board->suspects[rank] = UINT32_MAX;
    while (status == MUSTER_OK && !(rank == board->victim && atomic_load(&board->leave))) {
        status = call(&self);
    }
    board->statuses[rank] = status;
    board->grouped[rank] = has_grouped(&self);
    (void)pthread_detach(watcher);
    if (rank == board->victim && board->fault == LEFT) {
        muster_context_destroy(self.context);
        muster_progress_engine_destroy(self.engine);
        muster_fabric_destroy(self.fabric, 0);
        _exit(0);
    }
    atomic_fetch_add(&board->ended, 1);
    await(&board->over); /* keeps its links open, so that the others see one death only */
    _exit(0);
}

/* The test ------------------------------------------------------------------------------------- */

static void await_count(const atomic_uint *count, uint32_t wanted, uint32_t ms, const char *what,
                        const struct board *board)
{
    int64_t deadline_ns = muster_clock_after_ms(ms);
    while (atomic_load(count) < wanted) {
        if (muster_clock_ns() > deadline_ns) {
            fail_msg("%s: %u of %u: %s %s", what, atomic_load(count), wanted, board->texts[0],
                     board->data_errors[0]);
        }
        (void)usleep(500);
    }
}

static void inject(struct board *board, const pid_t *pids, uint32_t stall_us)
{
    await_count(&board->called[board->victim], GOOD_CALLS, HANGS_MS, "calls", board);
    (void)usleep(stall_us); /* a random point in this call or a later one */
    if (board->fault == LEFT) {
        atomic_store(&board->leave, true);
    } else {
        assert_int_equal(kill(pids[board->victim], board->fault == KILLED ? SIGKILL : SIGSTOP), 0);
    }
}

static void check_survivors(const struct board *board)
{
    uint32_t ranks = shapes[board->shape].ranks;
    uint32_t named = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        if (i == board->victim) {
            continue;
        }
        /* At a deadline the first to give up may wait for one that waits for the victim. */
        named += board->suspects[i] == board->victim ||
                 (board->fault == STOPPED && board->suspects[i] != UINT32_MAX);
        bool blames_another = board->fault != STOPPED && board->suspects[i] != board->victim &&
                              board->suspects[i] != UINT32_MAX;
        if (board->statuses[i] != MUSTER_REJOIN || board->data_errors[i][0] != '\0' ||
            board->texts[i][0] == '\0' || blames_another ||
            (shapes[board->shape].sizes[host_of(board, i)] > 1 && !board->grouped[i])) {
            fail_msg("rank %u: %s, suspects %u: %s %s", i, muster_status_name(board->statuses[i]),
                     board->suspects[i], board->texts[i], board->data_errors[i]);
        }
    }
    if (named == 0 && board->fault != LEFT) {
        fail_msg("nobody names rank %u: rank %u says %s", board->victim, board->victim == 0,
                 board->texts[board->victim == 0]);
    }
}

/* Hosts of one rank have no group steps, so the victim is on another one. */
static uint32_t draw_victim(const struct board *board, uint64_t *random)
{
    uint32_t rank = 0;
    do {
        rank = test_random_below(random, shapes[board->shape].ranks);
    } while (shapes[board->shape].sizes[host_of(board, rank)] < 2);
    return rank;
}

static void run(uint32_t number, uint64_t *random)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    board->collective = collectives[number / FAULTS % COLLECTIVES];
    board->fault = (enum fault)(number % FAULTS);
    board->shape = test_random_below(random, SHAPES);
    board->in_flight = test_random_below(random, 2) == 1;
    board->victim = draw_victim(board, random);
    uint32_t stall_us = test_random_below(random, STALL_MAX_US);
    uint32_t ranks = shapes[board->shape].ranks;
    pid_t pids[RANKS_MAX];
    print_message("%s: rank %u of %u on %u hosts %s after %u us%s\n",
                  muster_collective_name(board->collective), board->victim, ranks,
                  shapes[board->shape].hosts,
                  board->fault == KILLED    ? "is killed"
                  : board->fault == STOPPED ? "is stopped"
                                            : "leaves",
                  stall_us, board->in_flight ? ", in flight" : "");
    for (uint32_t i = 0; i < ranks; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_member(board, i);
        }
    }
    await_count(&board->ready, ranks, HANGS_MS, "members", board);
    atomic_store(&board->go, true);
    inject(board, pids, stall_us);
    await_count(&board->ended, 1, BOUND_MS, "the first failure", board);
    atomic_store(&board->revoked, true);
    await_count(&board->ended, ranks - 1, BOUND_MS, "ended", board);
    assert_int_equal(kill(pids[board->victim], SIGKILL), 0);
    atomic_store(&board->over, true);
    for (uint32_t i = 0; i < ranks; i++) {
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
    check_survivors(board);
    munmap(board, sizeof *board);
}

static void survivors_of_a_death_in_group_steps_rejoin_and_name_the_rank(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t i = 0; i < FAULTS * COLLECTIVES; i++) {
        run(i, &random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_a_death_in_group_steps_rejoin_and_name_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
