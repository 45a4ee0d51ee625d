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
    HANGS_MS = 60000, /* only a hanging test takes so long */
    GIVE_UP_MS = 400, /* deadline of the calls that wait for a silent member */
    LAST_CALLS = 5,   /* calls in the generation after the fault */
    COUNT_MAX = 60000,
    ELEMENT_MAX = 8,
    STALL_MAX_US = 3000, /* time between the start of a call and the fault */
};

enum fault { KILLED, STOPPED, UNPLUGGED, FAULTS };

/* A byte in a pipe. Members send PUBLISHED, FAILED and DONE, the test sends GO and REVOKED. */
enum message { PUBLISHED = 'p', FAILED = 'f', DONE = 'd', GO = 'g', REVOKED = 'r' };

/* Shared by the test and all members. A member's own items are read after its next message. */
struct board {
    struct muster_request request; /* without buffers; written before the members start */
    bool shared_memory;            /* the members offer it to each other */
    bool apart;     /* each member is in its own network namespace; all have the same host name */
    bool allocated; /* the members' buffers are allocated by muster_alloc() */
    uint64_t generation;
    uint32_t size;
    uint32_t members[MEMBERS_MAX]; /* by rank */
    uint32_t call_ms;
    uint32_t calls; /* each member makes so many in this generation; 0: until one fails */
    struct muster_peer peers[MEMBERS_MAX];
    muster_status statuses[MEMBERS_MAX];
    char texts[MEMBERS_MAX][MUSTER_ERROR_MAX];
    char data_errors[MEMBERS_MAX][256]; /* empty: the results are right, the inputs are unchanged */
    atomic_uint called[MEMBERS_MAX];
};

struct member {
    pid_t pid;
    int in_fd, out_fd; /* the test's ends of two pipes: reads in_fd, writes out_fd */
    bool failed;
};

struct run {
    uint64_t seed, random;
    enum fault fault;
    uint32_t size, victim, after_calls, stall_us;
    size_t algorithm;
    struct board *board;
    struct member members[MEMBERS_MAX];
};

/* A member ------------------------------------------------------------------------------------- */

struct process {
    struct board *board;
    uint32_t index;
    int in_fd, out_fd; /* the member's ends of two pipes: reads in_fd, writes out_fd */
    struct muster_fabric *fabric;
    int go[2]; /* a pipe from the thread that reads in_fd to the one that calls */
    char *in, *out;
};

static void send_message(int fd, enum message message)
{
    char byte = (char)message;
    if (write(fd, &byte, 1) != 1) {
        _exit(1);
    }
}

/* Ends the process if the test has ended and so has closed the pipe. */
static enum message receive_message(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1) {
        _exit(0);
    }
    return (enum message)byte;
}

/* Receives the test's messages while the other thread calls. It keeps the number of the generation,
 * because the board may have the next one already when a revocation arrives. */
static void *receive_from_test(void *argument)
{
    struct process *self = argument;
    uint64_t generation = 0;
    for (enum message message = receive_message(self->in_fd); message != 0;
         message = receive_message(self->in_fd)) {
        if (message == REVOKED) {
            muster_fabric_revoke(self->fabric, generation, "a member was reported");
        } else {
            generation = self->board->generation;
            send_message(self->go[1], GO);
        }
    }
    return NULL;
}

static void publish(struct process *self, const char *listen)
{
    struct muster_peer *peer = &self->board->peers[self->index];
    muster_random_uuid(peer->member);
    const struct board *board = self->board;
    (void)snprintf(peer->host, sizeof peer->host, "host%u", board->shared_memory ? 0 : self->index);
    const struct fabric_wish wish = {.transports = !board->shared_memory ? "tcp"
                                                   : board->apart        ? "shm,tcp"
                                                                         : "shm",
                                     .options.listen = listen,
                                     .fabric = {.member = peer->member, .link_token = "a token"}};
    if (fabrics_make(&wish, &self->fabric) != MUSTER_OK) {
        (void)fprintf(stderr, "member %u: %s\n", self->index, muster_last_error());
        _exit(1);
    }
    peer->address_count = muster_fabric_address_count(self->fabric);
    for (uint32_t i = 0; i < peer->address_count; i++) {
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[i], "%s",
                       muster_fabric_address(self->fabric, i));
    }
}

static uint32_t own_rank(const struct process *self)
{
    uint32_t rank = 0;
    while (self->board->members[rank] != self->index) {
        rank++;
    }
    return rank;
}

/* Begins the generation that is on the board, and makes its context. */
static muster_status begin(struct process *self, struct muster_context **ret_context)
{
    static const uint32_t ranks[MEMBERS_MAX] = {0, 1, 2, 3};
    struct board *board = self->board;
    struct muster_peer peers[MEMBERS_MAX];
    struct muster_topology topology;
    for (uint32_t i = 0; i < board->size; i++) {
        peers[i] = board->peers[board->members[i]];
    }
    TRY(muster_fabric_begin_generation(self->fabric, board->generation, peers, board->size));
    TRY(muster_topology_init_even(board->size, 1, &topology));
    const struct muster_context_options options = {.fabric = self->fabric,
                                                   .generation = board->generation,
                                                   .name = "global",
                                                   .topology = &topology,
                                                   .ranks = ranks,
                                                   .rank = own_rank(self),
                                                   .model = &muster_cost_model_default};
    muster_status status = muster_context_create(&options, ret_context);
    muster_topology_finish(&topology);
    if (status == MUSTER_OK && board->shared_memory) {
        status =
            muster_context_share_memory(*ret_context, muster_clock_after_ms(board->call_ms), NULL);
    }
    return status;
}

static muster_status call(struct process *self, struct muster_context *context)
{
    struct board *board = self->board;
    struct muster_request request = board->request;
    uint32_t rank = own_rank(self);
    char text[128];
    request.in = request.collective == MUSTER_BROADCAST ? NULL : self->in;
    request.out = self->out;
    request.user_function = pattern_user;
    pattern_fill(&request, request.in != NULL ? self->in : self->out, rank, board->size);
    request.deadline_ns = muster_clock_after_ms(board->call_ms);
    atomic_fetch_add(&board->called[self->index], 1);
    muster_status status = muster_context_run(context, &request, NULL);
    if (status != MUSTER_OK) {
        (void)snprintf(board->texts[self->index], MUSTER_ERROR_MAX, "%s", muster_last_error());
    } else if (pattern_check(&request, rank, board->size, text, sizeof text) > 0) {
        (void)snprintf(board->data_errors[self->index], 256, "wrong result: %s", text);
    }
    if (request.in != NULL &&
        pattern_check_input(&request, rank, board->size, text, sizeof text) > 0) {
        (void)snprintf(board->data_errors[self->index], 256, "its input was changed: %s", text);
    }
    return status;
}

/* The calls of one generation. */
static void run_generation(struct process *self)
{
    struct board *board = self->board;
    struct muster_context *context = NULL;
    muster_status status = begin(self, &context);
    if (status != MUSTER_OK) {
        (void)snprintf(board->texts[self->index], MUSTER_ERROR_MAX, "%s", muster_last_error());
    }
    for (uint32_t i = 0; status == MUSTER_OK && (board->calls == 0 || i < board->calls); i++) {
        status = call(self, context);
    }
    muster_context_destroy(context);
    board->statuses[self->index] = status;
    send_message(self->out_fd, status == MUSTER_OK ? DONE : FAILED);
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

/* The main function of a member: runs generations until the test closes the pipe. */
static void run_member(struct process *self, const char *listen)
{
    pthread_t thread;
    self->in = make_buffer(self->board);
    self->out = make_buffer(self->board);
    publish(self, listen);
    if (pipe(self->go) != 0 || pthread_create(&thread, NULL, receive_from_test, self) != 0) {
        _exit(1);
    }
    send_message(self->out_fd, PUBLISHED);
    for (;;) {
        (void)receive_message(self->go[0]);
        run_generation(self);
    }
}

/* The network ---------------------------------------------------------------------------------- */

static bool networked;

/* Moves the member to a network namespace of its own, which the test plugs into a bridge. */
static void enter_host(struct process *self, char listen[32])
{
    (void)snprintf(listen, 32, "198.18.2.%u", self->index + 1);
    if (unshare(CLONE_NEWNET) != 0) {
        _exit(1);
    }
    send_message(self->out_fd, PUBLISHED);
    (void)receive_message(self->in_fd); /* the test has plugged it in */
    if (!test_ip("link set lo up") || !test_ip("address add %s/24 dev eth0", listen) ||
        !test_ip("link set eth0 up")) {
        _exit(1);
    }
}

/* The test ------------------------------------------------------------------------------------- */

static uint32_t below(struct run *run, uint32_t bound)
{
    return test_random_below(&run->random, bound);
}

/* Draws the fault and the call. The algorithm must fit the members with the victim and without it.
 */
static void draw(struct run *run)
{
    static const uint32_t counts[] = {8, 1000, 9000, COUNT_MAX};
    struct muster_plan plan;
    struct muster_plan plan_after; /* without the victim */
    struct muster_topology topology;
    struct muster_topology topology_after;
    run->random = run->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    run->size = 2 + below(run, MEMBERS_MAX - 1);
    run->fault = (enum fault)below(run, networked ? FAULTS : UNPLUGGED);
    run->victim = below(run, run->size);
    run->after_calls = 1 + below(run, 6);
    run->stall_us = below(run, STALL_MAX_US);
    run->board->shared_memory = below(run, 2) == 0;
    run->board->apart = run->fault == UNPLUGGED;
    run->board->allocated = below(run, 2) == 0;
    uint64_t count = 1 + below(run, counts[below(run, sizeof counts / sizeof counts[0])]);
    uint32_t root = below(run, run->size - 1); /* a rank that every generation has */
    topology = test_topology_even(run->size, 1);
    topology_after = test_topology_even(run->size - 1, 1);
    /* "host_memory" runs through other code but is one row of many, so it is drawn more often. */
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
                  : run->board->apart ? "tcp, because the offered shm is in another namespace"
                                      : "shm",
                  names[run->fault], run->stall_us, run->after_calls,
                  muster_collective_name(request->collective), request->algorithm, request->count,
                  muster_type_name(request->type), muster_op_name(request->op),
                  run->board->allocated ? " of muster_alloc" : "");
}

/* Forks a member, which closes all pipe ends but its own, so that a pipe ends with its two users.
 */
static void start_member(struct run *run, uint32_t index)
{
    int to_member[2];
    int from_member[2];
    assert_int_equal(pipe(to_member), 0);
    assert_int_equal(pipe(from_member), 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char listen[32] = "127.0.0.1";
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1);
        }
        close(to_member[1]);
        close(from_member[0]);
        for (uint32_t i = 0; i < index; i++) {
            close(run->members[i].in_fd);
            close(run->members[i].out_fd);
        }
        struct process self = {
            .board = run->board, .index = index, .in_fd = to_member[0], .out_fd = from_member[1]};
        if (run->fault == UNPLUGGED) {
            enter_host(&self, listen);
        }
        run_member(&self, listen);
    }
    close(to_member[0]);
    close(from_member[1]);
    run->members[index] =
        (struct member){.pid = pid, .in_fd = from_member[0], .out_fd = to_member[1]};
}

/* Receives a message of the member, 0 after timeout_ms. Fails the test if the member has ended. */
static enum message poll_member(const struct run *run, uint32_t index, int timeout_ms)
{
    struct pollfd poll_one = {.fd = run->members[index].in_fd, .events = POLLIN};
    char byte = 0;
    if (poll(&poll_one, 1, timeout_ms) == 1 && read(poll_one.fd, &byte, 1) != 1) {
        fail_msg("member %u has ended", index);
    }
    return (enum message)byte;
}

static void await_message(const struct run *run, uint32_t index, enum message message)
{
    enum message received = poll_member(run, index, HANGS_MS);
    if (received != message) {
        fail_msg("member %u sent '%c' and not '%c': %s", index, received, message,
                 run->board->texts[index]);
    }
}

/* Starts the next generation of all members but `leaver`. */
static void start_generation(struct run *run, uint32_t leaver, uint32_t call_ms, uint32_t calls)
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
        send_message(run->members[board->members[i]].out_fd, GO);
    }
}

/* Sends a revocation to the others for each member that has failed, as the service does. */
static void forward_failures(struct run *run)
{
    for (uint32_t i = 0; i < run->size; i++) {
        if (run->members[i].pid == 0 || run->members[i].failed || poll_member(run, i, 1) == 0) {
            continue;
        }
        run->members[i].failed = true;
        for (uint32_t j = 0; j < run->size; j++) {
            if (j != i && run->members[j].pid != 0) {
                send_message(run->members[j].out_fd, REVOKED);
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

/* Waits until all members have failed, or all but the victim. */
static void await_failed(struct run *run, bool victim_too)
{
    int64_t deadline_ns = muster_clock_after_ms(HANGS_MS);
    uint32_t wanted = run->size - (victim_too ? 0 : 1);
    for (;;) {
        uint32_t failed = count_failed(run) - (!victim_too && run->members[run->victim].failed);
        if (failed == wanted) {
            return;
        }
        if (muster_clock_ns() > deadline_ns) {
            fail_msg("%u of %u members have returned from their calls", failed, wanted);
        }
        forward_failures(run);
    }
}

/* Shared memory of a member that is in a call has no name in a file system, so that a dead member
 * leaves no file. muster_alloc() allocates such memory, too. */
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

/* Injects the fault during the victim's calls, and waits until all living members have returned. */
static void inject_fault(struct run *run)
{
    struct member *victim = &run->members[run->victim];
    while (count_failed(run) == 0 &&
           atomic_load(&run->board->called[run->victim]) < run->after_calls) {
        forward_failures(run);
    }
    if (count_failed(run) == 0) {
        check_memory(run);
    }
    (void)usleep(run->stall_us); /* a random point in this call or a later one */
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
        if (board->statuses[i] != wanted || board->data_errors[i][0] != '\0' ||
            (wanted != MUSTER_OK && board->texts[i][0] == '\0')) {
            fail_msg("member %u: %s: %s %s", i, muster_status_name(board->statuses[i]),
                     board->texts[i], board->data_errors[i]);
        }
    }
}

static void end_members(struct run *run)
{
    for (uint32_t i = 0; i < run->size; i++) {
        close(run->members[i].in_fd);
        close(run->members[i].out_fd);
        if (run->members[i].pid != 0) {
            assert_int_equal(waitpid(run->members[i].pid, NULL, 0), run->members[i].pid);
        }
        if (run->fault == UNPLUGGED) {
            /* The kernel may have deleted it with its other end. */
            (void)test_ip("link delete cable%u 2>/dev/null", i);
        }
    }
}

/* One run: a generation in which the fault is injected, and one after it that must succeed. */
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
            await_message(&run, i, PUBLISHED);
            assert_true(test_bridge_plug_in(i, run.members[i].pid));
            send_message(run.members[i].out_fd, GO);
        }
    }
    for (uint32_t i = 0; i < run.size; i++) {
        await_message(&run, i, PUBLISHED);
    }
    start_generation(&run, UINT32_MAX, run.fault == KILLED ? HANGS_MS : GIVE_UP_MS, 0);
    inject_fault(&run);
    check_members(&run, MUSTER_REJOIN);
    start_generation(&run, run.fault == KILLED ? run.victim : UINT32_MAX, HANGS_MS, LAST_CALLS);
    for (uint32_t i = 0; i < run.size; i++) {
        if (run.members[i].pid != 0) {
            await_message(&run, i, DONE);
        }
    }
    check_members(&run, MUSTER_OK);
    end_members(&run);
    munmap(run.board, sizeof *run.board);
}

static void
survivors_of_random_faults_of_processes_return_and_form_the_next_generation(void **state)
{
    (void)state;
    const char *text = getenv("MUSTER_RUNS");
    unsigned long runs = text != NULL ? strtoul(text, NULL, 10) : RUNS;
    uint64_t first = test_seed();
    networked = test_bridge_make();
    if (!networked) {
        print_message("no network namespaces (they need root and ip): no member is unplugged\n");
    }
    for (uint64_t i = 0; i < runs; i++) {
        run_one(first + 2 * i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            survivors_of_random_faults_of_processes_return_and_form_the_next_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
