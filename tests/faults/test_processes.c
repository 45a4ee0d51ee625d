/* The same faults as they happen to processes: kill -9, SIGSTOP and SIGCONT, a link of the network
 * that goes down and comes back. The test is what the service is in a job: it hears who was given
 * up, tells the others, and begins the next generation.
 *
 * MUSTER_SEED=N MUSTER_RUNS=1 repeats run N, as far as a race of processes can be repeated. */
#include "tests/support/fabrics.h"
#include "tests/support/network.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/context/context.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MEMBERS_MAX = 4,
    RUNS = 8,
    PATIENCE_MS = 60000, /* what only a hanging test reaches */
    GIVE_UP_MS = 400,    /* on those who are silent */
    LAST_CALLS = 5,      /* of the generation after the fault */
    COUNT_MAX = 60000,
    ELEMENT_MAX = 8,
    STALL_MAX_US = 3000, /* between a call's beginning and the fault */
};

enum fault { KILLED, STOPPED, UNPLUGGED, FAULTS };

/* What members tell, and are told. */
enum word { PUBLISHED = 'p', FAILED = 'f', DONE = 'd', GO = 'g', REVOKED = 'r' };

/* In memory that all share. Of each member: written by it, read when it has told its next word. */
struct board {
    struct muster_request request; /* without buffers; written before the members are made */
    bool shared_memory;            /* is offered */
    bool apart;     /* in network name spaces of their own, though their host has one name */
    bool allocated; /* the members' buffers are of muster_alloc() */
    uint64_t generation;
    uint32_t size;
    uint32_t members[MEMBERS_MAX]; /* by rank */
    uint32_t call_ms;
    uint32_t calls; /* of each member in this generation; 0: until one fails */
    struct muster_peer peers[MEMBERS_MAX];
    muster_status statuses[MEMBERS_MAX];
    char texts[MEMBERS_MAX][MUSTER_ERROR_MAX];
    char complaints[MEMBERS_MAX][256]; /* empty: what came out was right, what went in is whole */
    atomic_uint called[MEMBERS_MAX];
};

struct member {
    pid_t pid;
    int told, tell; /* pipes, the test's ends */
    bool failed;
};

struct run {
    uint64_t seed, dice;
    enum fault fault;
    uint32_t size, victim, after_calls, stall_us;
    size_t algorithm;
    struct board *board;
    struct member members[MEMBERS_MAX];
};

/* A member ------------------------------------------------------------------------------------- */

struct life {
    struct board *board;
    uint32_t index;
    int told, tell; /* its ends: reads told, writes tell */
    struct muster_fabric *fabric;
    int go[2]; /* from the thread that hears to the one that works */
    char *in, *out;
};

static void say(int fd, enum word word)
{
    char byte = (char)word;
    if (write(fd, &byte, 1) != 1) {
        _exit(1);
    }
}

/* The test has ended when there is nothing more to hear. */
static enum word hear(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1) {
        _exit(0);
    }
    return (enum word)byte;
}

/* A revocation may be heard when the board is about the next generation already. */
static void *listen_to_test(void *argument)
{
    struct life *life = argument;
    uint64_t generation = 0;
    for (enum word word = hear(life->told); word != 0; word = hear(life->told)) {
        if (word == REVOKED) {
            muster_fabric_revoke(life->fabric, generation, "a member was reported");
        } else {
            generation = life->board->generation;
            say(life->go[1], GO);
        }
    }
    return NULL;
}

static void publish(struct life *life, const char *listen)
{
    struct muster_peer *peer = &life->board->peers[life->index];
    muster_random_uuid(peer->member);
    const struct board *board = life->board;
    (void)snprintf(peer->host, sizeof peer->host, "host%u", board->shared_memory ? 0 : life->index);
    const struct fabric_wish wish = {.transports = !board->shared_memory ? "tcp"
                                                   : board->apart        ? "shm,tcp"
                                                                         : "shm",
                                     .options.listen = listen,
                                     .fabric = {.member = peer->member, .link_token = "a token"}};
    if (fabrics_make(&wish, &life->fabric) != MUSTER_OK) {
        (void)fprintf(stderr, "member %u: %s\n", life->index, muster_last_error());
        _exit(1);
    }
    peer->address_count = muster_fabric_address_count(life->fabric);
    for (uint32_t i = 0; i < peer->address_count; i++) {
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[i], "%s",
                       muster_fabric_address(life->fabric, i));
    }
}

static uint32_t own_rank(const struct life *life)
{
    uint32_t rank = 0;
    while (life->board->members[rank] != life->index) {
        rank++;
    }
    return rank;
}

static muster_status begin(struct life *life, struct muster_context **ret_context)
{
    static const uint32_t ranks[MEMBERS_MAX] = {0, 1, 2, 3};
    struct board *board = life->board;
    struct muster_peer peers[MEMBERS_MAX];
    struct muster_topology topology;
    for (uint32_t i = 0; i < board->size; i++) {
        peers[i] = board->peers[board->members[i]];
    }
    TRY(muster_fabric_begin_generation(life->fabric, board->generation, peers, board->size));
    TRY(muster_topology_init_even(board->size, 1, &topology));
    const struct muster_context_options options = {.fabric = life->fabric,
                                                   .generation = board->generation,
                                                   .name = "global",
                                                   .topology = &topology,
                                                   .ranks = ranks,
                                                   .rank = own_rank(life),
                                                   .model = &muster_cost_model_default};
    muster_status status = muster_context_create(&options, ret_context);
    muster_topology_finish(&topology);
    if (status == MUSTER_OK && board->shared_memory) {
        status =
            muster_context_share_memory(*ret_context, muster_clock_after_ms(board->call_ms), NULL);
    }
    return status;
}

static muster_status call(struct life *life, struct muster_context *context)
{
    struct board *board = life->board;
    struct muster_request request = board->request;
    uint32_t rank = own_rank(life);
    char text[128];
    request.in = request.collective == MUSTER_BROADCAST ? NULL : life->in;
    request.out = life->out;
    request.user_function = pattern_user;
    pattern_fill(&request, request.in != NULL ? life->in : life->out, rank, board->size);
    request.deadline_ns = muster_clock_after_ms(board->call_ms);
    atomic_fetch_add(&board->called[life->index], 1);
    muster_status status = muster_context_run(context, &request, NULL);
    if (status != MUSTER_OK) {
        (void)snprintf(board->texts[life->index], MUSTER_ERROR_MAX, "%s", muster_last_error());
    } else if (pattern_check(&request, rank, board->size, text, sizeof text) > 0) {
        (void)snprintf(board->complaints[life->index], 256, "wrong result: %s", text);
    }
    if (request.in != NULL &&
        pattern_check_input(&request, rank, board->size, text, sizeof text) > 0) {
        (void)snprintf(board->complaints[life->index], 256, "its input was changed: %s", text);
    }
    return status;
}

/* One generation. */
static void work(struct life *life)
{
    struct board *board = life->board;
    struct muster_context *context = NULL;
    muster_status status = begin(life, &context);
    if (status != MUSTER_OK) {
        (void)snprintf(board->texts[life->index], MUSTER_ERROR_MAX, "%s", muster_last_error());
    }
    for (uint32_t i = 0; status == MUSTER_OK && (board->calls == 0 || i < board->calls); i++) {
        status = call(life, context);
    }
    muster_context_destroy(context);
    board->statuses[life->index] = status;
    say(life->tell, status == MUSTER_OK ? DONE : FAILED);
}

static char *make_buffer(const struct board *board)
{
    const size_t size_bytes = (size_t)COUNT_MAX * MEMBERS_MAX * ELEMENT_MAX;
    void *buffer = NULL;
    if (!board->allocated) {
        buffer = malloc(size_bytes);
    } else if (muster_alloc(size_bytes, &buffer) != MUSTER_OK) {
        (void)fprintf(stderr, "%s\n", muster_last_error());
    }
    if (buffer == NULL) {
        _exit(1);
    }
    return buffer;
}

static void live(struct life *life, const char *listen)
{
    pthread_t thread;
    life->in = make_buffer(life->board);
    life->out = make_buffer(life->board);
    publish(life, listen);
    if (pipe(life->go) != 0 || pthread_create(&thread, NULL, listen_to_test, life) != 0) {
        _exit(1);
    }
    say(life->tell, PUBLISHED);
    for (;;) {
        (void)hear(life->go[0]);
        work(life);
    }
}

/* The network ---------------------------------------------------------------------------------- */

static bool networked;

static void enter_host(struct life *life, char listen[32])
{
    (void)snprintf(listen, 32, "198.18.2.%u", life->index + 1);
    if (unshare(CLONE_NEWNET) != 0) {
        _exit(1);
    }
    say(life->tell, PUBLISHED);
    (void)hear(life->told); /* plugged in */
    if (!test_ip("link set lo up") || !test_ip("address add %s/24 dev eth0", listen) ||
        !test_ip("link set eth0 up")) {
        _exit(1);
    }
}

/* The test ------------------------------------------------------------------------------------- */

static uint32_t below(struct run *run, uint32_t bound)
{
    return test_random_below(&run->dice, bound);
}

static void draw(struct run *run)
{
    static const uint32_t counts[] = {8, 1000, 9000, COUNT_MAX};
    struct muster_plan plan;
    struct muster_plan plan_after; /* without the victim */
    struct muster_topology topology;
    struct muster_topology topology_after;
    run->dice = run->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    run->size = 2 + below(run, MEMBERS_MAX - 1);
    run->fault = (enum fault)below(run, networked ? FAULTS : UNPLUGGED);
    run->victim = below(run, run->size);
    run->after_calls = 1 + below(run, 6);
    run->stall_us = below(run, STALL_MAX_US);
    run->board->shared_memory = below(run, 2) == 0;
    run->board->apart = run->fault == UNPLUGGED;
    run->board->allocated = below(run, 2) == 0;
    uint64_t count = 1 + below(run, counts[below(run, sizeof counts / sizeof counts[0])]);
    uint32_t root = below(run, run->size - 1); /* who is there in any generation */
    topology = test_topology_even(run->size, 1);
    topology_after = test_topology_even(run->size - 1, 1);
    /* Whole-host collectives in memory are some rows of many, but another way to do it. */
    bool in_memory = run->board->shared_memory && below(run, 2) == 0;
    do {
        run->algorithm = below(run, (uint32_t)muster_algorithm_count);
        plan = test_plan(run->algorithm, &topology, count, root);
        plan_after = test_plan(run->algorithm, &topology_after, count, root);
    } while ((in_memory && strcmp(muster_algorithms[run->algorithm].name, "host_memory") != 0) ||
             muster_algorithms[run->algorithm].collective == MUSTER_BARRIER ||
             muster_collective_needs_bounds(muster_algorithms[run->algorithm].collective) ||
             !test_fits(run->algorithm, &plan) || !test_fits(run->algorithm, &plan_after));
    muster_topology_finish(&topology);
    muster_topology_finish(&topology_after);
    struct muster_request *request = &run->board->request;
    *request = (struct muster_request){.collective = plan.collective,
                                       .count = count,
                                       .root = plan.root,
                                       .algorithm = muster_algorithms[run->algorithm].name};
    pattern_pair(below(run, (uint32_t)pattern_pairs()), &request->type, &request->op);
}

static void print_run(const struct run *run)
{
    static const char *const names[FAULTS] = {"killed", "stopped and woken", "unplugged"};
    const struct muster_request *request = &run->board->request;
    print_message("MUSTER_SEED=%" PRIu64
                  " member %u of %u over %s is %s %u us after call %u of "
                  "%s %s, %" PRIu64 " %s %s%s\n",
                  run->seed, run->victim, run->size,
                  !run->board->shared_memory ? "tcp"
                  : run->board->apart        ? "shm that does not reach, so tcp"
                                             : "shm",
                  names[run->fault], run->stall_us, run->after_calls,
                  muster_collective_name(request->collective), request->algorithm, request->count,
                  muster_type_name(request->type), muster_op_name(request->op),
                  run->board->allocated ? " of muster_alloc" : "");
}

static void start_member(struct run *run, uint32_t index)
{
    int told[2];
    int tell[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(tell), 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char listen[32] = "127.0.0.1";
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1);
        }
        close(told[1]);
        close(tell[0]);
        for (uint32_t i = 0; i < index; i++) {
            close(run->members[i].told);
            close(run->members[i].tell);
        }
        struct life life = {.board = run->board, .index = index, .told = told[0], .tell = tell[1]};
        if (run->fault == UNPLUGGED) {
            enter_host(&life, listen);
        }
        live(&life, listen);
    }
    close(told[0]);
    close(tell[1]);
    run->members[index] = (struct member){.pid = pid, .told = tell[0], .tell = told[1]};
}

/* One word of this member's, 0 after so long; ends the test if the member has. */
static enum word ask(const struct run *run, uint32_t index, int timeout_ms)
{
    struct pollfd poll_one = {.fd = run->members[index].told, .events = POLLIN};
    char byte = 0;
    if (poll(&poll_one, 1, timeout_ms) == 1 && read(poll_one.fd, &byte, 1) != 1) {
        fail_msg("member %u has ended", index);
    }
    return (enum word)byte;
}

static void await(const struct run *run, uint32_t index, enum word word)
{
    enum word heard = ask(run, index, PATIENCE_MS);
    if (heard != word) {
        fail_msg("member %u says '%c' and not '%c': %s", index, heard, word,
                 run->board->texts[index]);
    }
}

static void let_go(struct run *run, uint32_t leaver, uint32_t call_ms, uint32_t calls)
{
    struct board *board = run->board;
    board->generation++;
    board->size = 0;
    board->call_ms = call_ms;
    board->calls = calls;
    for (uint32_t i = 0; i < run->size; i++) {
        run->members[i].failed = false;
        atomic_store(&board->called[i], 0);
        if (i != leaver) {
            board->members[board->size++] = i;
        }
    }
    for (uint32_t i = 0; i < board->size; i++) {
        say(run->members[board->members[i]].tell, GO);
    }
}

/* Hears for a moment who has failed; the others are told, as the service does. */
static void look_round(struct run *run)
{
    for (uint32_t i = 0; i < run->size; i++) {
        if (run->members[i].pid == 0 || run->members[i].failed || ask(run, i, 1) == 0) {
            continue;
        }
        run->members[i].failed = true;
        for (uint32_t j = 0; j < run->size; j++) {
            if (j != i && run->members[j].pid != 0) {
                say(run->members[j].tell, REVOKED);
            }
        }
    }
}

static uint32_t count_failed(const struct run *run)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < run->size; i++) {
        failed += run->members[i].failed;
    }
    return failed;
}

/* Everybody but the victim, if it is not there yet. */
static void await_failed(struct run *run, bool victim_too)
{
    int64_t deadline_ns = muster_clock_after_ms(PATIENCE_MS);
    uint32_t wanted = run->size - (victim_too ? 0 : 1);
    for (;;) {
        uint32_t failed = count_failed(run) - (!victim_too && run->members[run->victim].failed);
        if (failed == wanted) {
            return;
        }
        if (muster_clock_ns() > deadline_ns) {
            fail_msg("%u of %u members have come back", failed, wanted);
        }
        look_round(run);
    }
}

/* A member in a call has memory without a name, where it has memory to share at all, and no file
 * that it could leave behind. */
static void check_memory(const struct run *run)
{
    const struct board *board = run->board;
    char path[64];
    char line[512];
    bool shares = false;
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)run->members[run->victim].pid);
    FILE *maps = fopen(path, "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        assert_null(strstr(line, "/dev/shm/"));
        shares = shares || strstr(line, "/memfd:") != NULL;
    }
    (void)fclose(maps);
    assert_int_equal(shares, board->allocated || (board->shared_memory && !board->apart));
}

static void strike(struct run *run)
{
    struct member *victim = &run->members[run->victim];
    while (count_failed(run) == 0 &&
           atomic_load(&run->board->called[run->victim]) < run->after_calls) {
        look_round(run);
    }
    if (count_failed(run) == 0) {
        check_memory(run);
    }
    (void)usleep(run->stall_us); /* anywhere in the call, or in the next ones */
    if (run->fault == UNPLUGGED) {
        assert_true(test_bridge_switch(run->victim, false));
        await_failed(run, false);
        assert_true(test_bridge_switch(run->victim, true));
        await_failed(run, true);
    } else if (run->fault == STOPPED) {
        assert_int_equal(kill(victim->pid, SIGSTOP), 0);
        await_failed(run, false);
        assert_int_equal(kill(victim->pid, SIGCONT), 0);
        await_failed(run, true);
    } else {
        assert_int_equal(kill(victim->pid, SIGKILL), 0);
        assert_int_equal(waitpid(victim->pid, NULL, 0), victim->pid);
        victim->pid = 0;
        await_failed(run, false);
    }
}

static void check_members(const struct run *run, muster_status wanted)
{
    const struct board *board = run->board;
    for (uint32_t i = 0; i < run->size; i++) {
        if (run->members[i].pid == 0) {
            continue;
        }
        if (board->statuses[i] != wanted || board->complaints[i][0] != '\0' ||
            (wanted != MUSTER_OK && board->texts[i][0] == '\0')) {
            fail_msg("member %u: %s: %s %s", i, muster_status_name(board->statuses[i]),
                     board->texts[i], board->complaints[i]);
        }
    }
}

static void end_members(struct run *run)
{
    for (uint32_t i = 0; i < run->size; i++) {
        close(run->members[i].told);
        close(run->members[i].tell);
        if (run->members[i].pid != 0) {
            assert_int_equal(waitpid(run->members[i].pid, NULL, 0), run->members[i].pid);
        }
        if (run->fault == UNPLUGGED) {
            (void)test_ip("link delete cable%u 2>/dev/null",
                          i); /* gone already with its other end */
        }
    }
}

static void run_one(uint64_t seed)
{
    struct run run = {.seed = seed};
    run.board =
        mmap(NULL, sizeof *run.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(run.board != MAP_FAILED);
    draw(&run);
    print_run(&run);
    for (uint32_t i = 0; i < run.size; i++) {
        start_member(&run, i);
        if (run.fault == UNPLUGGED) {
            await(&run, i, PUBLISHED);
            assert_true(test_bridge_plug_in(i, run.members[i].pid));
            say(run.members[i].tell, GO);
        }
    }
    for (uint32_t i = 0; i < run.size; i++) {
        await(&run, i, PUBLISHED);
    }
    let_go(&run, UINT32_MAX, run.fault == KILLED ? PATIENCE_MS : GIVE_UP_MS, 0);
    strike(&run);
    check_members(&run, MUSTER_REJOIN);
    let_go(&run, run.fault == KILLED ? run.victim : UINT32_MAX, PATIENCE_MS, LAST_CALLS);
    for (uint32_t i = 0; i < run.size; i++) {
        if (run.members[i].pid != 0) {
            await(&run, i, DONE);
        }
    }
    check_members(&run, MUSTER_OK);
    end_members(&run);
    munmap(run.board, sizeof *run.board);
}

static void whatever_happens_to_a_process_the_others_return_and_go_on(void **state)
{
    (void)state;
    const char *text = getenv("MUSTER_RUNS");
    unsigned long runs = text != NULL ? strtoul(text, NULL, 10) : RUNS;
    uint64_t first = test_seed();
    networked = test_bridge_make();
    if (!networked) {
        print_message("no network of its own (needs root and ip): nobody is unplugged\n");
    }
    for (uint64_t i = 0; i < runs; i++) {
        run_one(first + 2 * i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_to_a_process_the_others_return_and_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
