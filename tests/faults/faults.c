/* Random faults: draws jobs, calls and faults from a seed, injects each fault in the middle of a
 * call, and checks what every member returns. The transports' programs call faults_main(). */
#include "tests/faults/faults.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS_MAX = 6,
    HOSTS_MAX = 3,
    ELEMENT_MAX = 8,
    GOOD_CALLS_MAX = 3,
    HANGS_MS = 60000,       /* only a hanging test takes so long */
    FREEZE_MS = 200,        /* deadline of the calls that wait for a frozen member */
    FROZEN_CALL_US = 300,   /* the freezing member leaves its call after at most this time */
    CALLS_AFTER = 6,        /* calls after a fault that ends no calls */
    CALLS_TO_FREEZE = 1000, /* if none of them times out, the member freezes between two */
    CALLS_MAX = 100000,     /* a death must end a call before this many */
    NS_PER_US = 1000,
};

/* Drawing -------------------------------------------------------------------------------------- */

static uint32_t below(struct fault_run *run, uint32_t bound)
{
    return test_random_below(&run->random, bound);
}

/* Sizes below and above the limits of an eager message (16 KiB) and of one piece (256 KiB). */
static uint64_t draw_count(struct fault_run *run)
{
    switch (below(run, 4)) {
    case 0:
        return 1 + below(run, 8);
    case 1:
        return 1 + below(run, 1000);
    case 2:
        return 2000 + below(run, 6000);
    default:
        return 20000 + below(run, 40000);
    }
}

static void draw_shape(struct fault_run *run, const struct fault_transport *transport)
{
    static const uint32_t segments[] = {0, 0, 1000, 40000};
    static const uint32_t orders[RANKS_MAX] = {0, 1, 2, 3, 4, 5};
    uint32_t ranks = 2 + below(run, RANKS_MAX - 1);
    uint32_t hosts = 1 + below(run, ranks < HOSTS_MAX ? ranks : HOSTS_MAX);
    uint32_t sizes[HOSTS_MAX] = {1, 1, 1};
    for (uint32_t i = hosts; i < ranks; i++) {
        sizes[below(run, hosts)]++;
    }
    run->shares_memory = below(run, 2) == 0 && hosts == 1 && !transport->has_port;
    group_start_ordered(&run->group, transport->transport, hosts, sizes, orders,
                        segments[below(run, sizeof segments / sizeof segments[0])]);
}

static void draw_call(struct fault_run *run)
{
    struct muster_plan plan;
    run->count = draw_count(run);
    run->root = below(run, run->group.size);
    do {
        run->algorithm = below(run, (uint32_t)muster_algorithm_count);
        plan = test_plan(run->algorithm, &run->group.topology, run->count, run->root);
    } while (!test_fits(run->algorithm, &plan));
    pattern_pair(below(run, (uint32_t)pattern_pairs()), &run->type, &run->op);
    if (!muster_collective_has_root(muster_algorithms[run->algorithm].collective)) {
        run->root = 0;
    }
}

/* The last of an odd number of ranks has no partner: nobody would notice its death. */
static bool exchanges_nothing(const struct fault_run *run)
{
    return muster_algorithms[run->algorithm].collective == MUSTER_PAIRWISE_EXCHANGE &&
           run->group.size % 2 == 1 && run->victim + 1 == run->group.size;
}

static void draw(struct fault_run *run, const struct fault_transport *transport)
{
    run->random = run->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    (void)test_random(&run->random);
    draw_shape(run, transport);
    draw_call(run);
    uint32_t kind =
        below(run, 8); /* freezes are rarer, because each takes the time of a deadline */
    run->kind = kind < 4 ? FAULT_KILL : kind == 4 ? FAULT_FREEZE : FAULT_CUT;
    if (kind == 7) {
        run->kind = FAULT_STRANGERS;
    }
    if (!transport->has_port && run->kind > FAULT_FREEZE) {
        run->kind = FAULT_KILL;
    }
    run->victim = below(run, run->group.size);
    if (exchanges_nothing(run)) {
        run->victim = 0;
    }
    run->good_calls = below(run, GOOD_CALLS_MAX + 1);
    run->call_ms = run->kind == FAULT_FREEZE ? FREEZE_MS : HANGS_MS;
    run->point = below(run, 3 * run->group.size);
}

static void print_run(const struct fault_run *run, const struct fault_transport *transport)
{
    static const char *const names[FAULT_KINDS] = {"killed", "frozen", "cut off",
                                                   "visited by strangers"};
    const struct muster_algorithm *row = &muster_algorithms[run->algorithm];
    print_message("MUSTER_SEED=%" PRIu64
                  " %s: rank %u of %u on %u hosts%s is %s after %u calls and "
                  "%" PRIu64 " messages of %s %s, %" PRIu64 " %s %s\n",
                  run->seed, transport->name, run->victim, run->group.size,
                  run->group.topology.hosts, run->shares_memory ? " with shared memory" : "",
                  names[run->kind], run->good_calls, run->point,
                  muster_collective_name(row->collective), row->name, run->count,
                  muster_type_name(run->type), muster_op_name(run->op));
}

/* One member ----------------------------------------------------------------------------------- */

/* The request and the buffers of one member. A collective that needs a count per rank gets equal
 * ones, because no call fails if a member without a block dies. */
struct work {
    struct fault_run *run;
    struct group_member *member;
    struct muster_request request;
    struct muster_request pattern; /* the same without counts per rank */
    char *in, *out;
    size_t counts[RANKS_MAX];
};

/* Allocates the buffers, and makes the request for the drawn call. */
static void work_init(struct work *work, struct group_member *member, struct fault_run *run)
{
    enum muster_collective collective = muster_algorithms[run->algorithm].collective;
    size_t size_bytes = run->count * member->group->size * ELEMENT_MAX;
    *work = (struct work){.run = run, .member = member};
    work->in = malloc(size_bytes);
    work->out = malloc(size_bytes);
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        work->counts[i] = run->count;
    }
    bool needs_counts = muster_collective_needs_bounds(collective);
    work->request = (struct muster_request){
        .collective = collective,
        .in = collective == MUSTER_BROADCAST ? NULL : work->in,
        .out = work->out,
        .count = collective == MUSTER_BARRIER ? 0 : run->count,
        .in_counts = needs_counts && collective == MUSTER_ALLTOALLV ? work->counts : NULL,
        .out_counts = needs_counts ? work->counts : NULL,
        .type = run->type,
        .op = run->op,
        .root = run->root < member->group->size ? run->root : 0,
        .user_function = pattern_user,
        .algorithm = muster_algorithms[run->algorithm].name,
    };
    work->pattern = work->request;
    work->pattern.in_counts = work->pattern.out_counts = NULL;
}

static void work_finish(struct work *work)
{
    free(work->in);
    free(work->out);
}

static bool check_result(struct work *work, muster_status status, bool in_time)
{
    struct group_member *member = work->member;
    uint32_t ranks = member->group->size;
    char text[128] = "";
    if (work->request.collective == MUSTER_BARRIER) {
        return true;
    }
    if (status == MUSTER_OK &&
        pattern_check(&work->pattern, member->rank, ranks, text, sizeof text) > 0) {
        group_fail(member, "wrong result: %s", text);
    } else if (work->request.in != NULL &&
               pattern_check_input(&work->pattern, member->rank, ranks, text, sizeof text) > 0) {
        group_fail(member, "its input was changed: %s", text);
    } else if (!in_time) {
        group_fail(member, "it returned long after its deadline");
    }
    return member->failure[0] == '\0';
}

/* Makes one call with fresh data, and checks what must be true however it ends. */
static muster_status call(struct work *work, int64_t deadline_ns, uint32_t *ret_suspect)
{
    struct group_member *member = work->member;
    struct muster_request *request = &work->request;
    if (request->collective != MUSTER_BARRIER) {
        void *data = request->in == NULL ? request->out : (void *)request->in;
        pattern_fill(&work->pattern, data, member->rank, member->group->size);
    }
    request->deadline_ns = deadline_ns;
    *ret_suspect = UINT32_MAX;
    muster_status status =
        muster_context_run(member->contexts[MUSTER_GLOBAL], request, ret_suspect);
    bool in_time = muster_clock_ns() < deadline_ns + (int64_t)HANGS_MS * 1000 * NS_PER_US;
    if (status != MUSTER_OK && status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    } else if (status == MUSTER_REJOIN && muster_last_error()[0] == '\0') {
        group_fail(member, "it failed without an error text");
    }
    (void)check_result(work, status, in_time);
    return status;
}

/* Stands in for the session, which does so when a generation has formed. */
static void share_memory(struct group_member *member, void *argument)
{
    (void)argument;
    if (muster_context_share_memory(member->contexts[MUSTER_GLOBAL],
                                    muster_clock_after_ms(HANGS_MS), NULL) != MUSTER_OK) {
        group_fail(member, "no shared memory: %s", muster_last_error());
    }
}

/* Stands in for the service, which revokes the generation on all members after a report. */
static void revoke_everywhere(struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        muster_fabric_revoke(group->members[i].fabric, group->generation, "a member was reported");
    }
}

/* The victim starts the call that the fault hits: from here its messages are counted. */
static void arm(struct fault_run *run, struct muster_fabric *fabric)
{
    struct muster_fabric_figures figures = muster_fabric_figures(fabric);
    run->messages_before = figures.messages_sent + figures.messages_received;
    atomic_store(&run->armed, true);
}

/* Calls with a random, very short deadline, so that the member stops at a random point of a call.
 */
static void freeze(struct work *work)
{
    muster_status status = MUSTER_OK;
    uint32_t suspect;
    uint64_t us = (work->run->seed * 7 + work->run->point) % FROZEN_CALL_US;
    for (uint32_t i = 0; i < CALLS_TO_FREEZE && status == MUSTER_OK; i++) {
        status = call(work, muster_clock_ns() + (int64_t)us * NS_PER_US, &suspect);
    }
}

/* A death must end the calls of every survivor; rejected connections must end none. */
static void check_outcome(struct work *work, muster_status status, uint32_t suspect)
{
    const struct fault_run *run = work->run;
    bool ends_calls = run->kind == FAULT_KILL || run->kind == FAULT_FREEZE;
    if (status == MUSTER_OK && ends_calls) {
        group_fail(work->member, "no call failed after the death");
    } else if (status != MUSTER_OK && run->kind == FAULT_STRANGERS) {
        group_fail(work->member, "a rejected connection ended a call: %s", muster_last_error());
    } else if (run->kind == FAULT_KILL && suspect != UINT32_MAX && suspect != run->victim) {
        group_fail(work->member, "rank %u is suspected: %s", suspect, muster_last_error());
    }
    if (status != MUSTER_OK || work->member->failure[0] != '\0') {
        revoke_everywhere(work->member->group);
    }
}

/* The calls of one member: until one fails, or, if the fault ends no calls, until CALLS_AFTER calls
 * after it. Members do not run at the same pace: the fault may hit some of them in an earlier call
 * than the victim's. */
static void call_until_failure(struct group_member *member, void *argument)
{
    struct fault_run *run = argument;
    struct work work;
    bool victim = member->rank == run->victim;
    bool ends_calls = run->kind == FAULT_KILL || run->kind == FAULT_FREEZE;
    uint32_t calls_max = ends_calls ? CALLS_MAX : run->good_calls + CALLS_AFTER;
    uint32_t suspect = UINT32_MAX;
    muster_status status = MUSTER_OK;
    work_init(&work, member, run);
    uint32_t counted = 0;
    for (uint32_t i = 0; counted < calls_max && status == MUSTER_OK && member->failure[0] == '\0';
         i++) {
        if (victim && i == run->good_calls) {
            arm(run, member->fabric);
        }
        if (victim && i == run->good_calls && run->kind == FAULT_FREEZE) {
            freeze(&work);
            break;
        }
        if (victim && run->kind == FAULT_KILL && atomic_load(&run->injected)) {
            break; /* a dead member makes no more calls; its shared memory may stay */
        }
        status = call(&work, muster_clock_after_ms(run->call_ms), &suspect);
        counted +=
            !ends_calls || atomic_load(&run->injected); /* the injecting thread may be late */
    }
    if (!victim || !ends_calls) {
        check_outcome(&work, status, suspect);
    }
    work_finish(&work);
}

/* The calls of one member in a generation after the fault. A connection that was cut may be
 * detected only here, so one such generation may fail. */
static void call_after_fault(struct group_member *member, void *argument)
{
    struct fault_run *run = argument;
    struct work work;
    uint32_t suspect;
    muster_status status = MUSTER_OK;
    work_init(&work, member, run);
    for (int i = 0; i < 2 && status == MUSTER_OK; i++) {
        status = call(&work, muster_clock_after_ms(HANGS_MS), &suspect);
    }
    if (status != MUSTER_OK && (run->kind != FAULT_CUT || run->last_chance)) {
        group_fail(member, "in the next generation: %s", muster_last_error());
    }
    if (status != MUSTER_OK) {
        atomic_store(&run->failed_again, true);
        revoke_everywhere(member->group);
    }
    work_finish(&work);
}

/* The fault ------------------------------------------------------------------------------------ */

/* Whether the victim's call has moved as many messages as drawn. In shared memory there are no
 * messages: there the number of polls counts. */
static bool is_due(struct fault_run *run, uint64_t polls)
{
    if (!atomic_load(&run->armed)) {
        return false;
    }
    if (run->shares_memory) {
        return polls >= run->point;
    }
    struct muster_fabric_figures figures =
        muster_fabric_figures(run->group.members[run->victim].fabric);
    return figures.messages_sent + figures.messages_received >= run->messages_before + run->point;
}

/* A thread: waits until the fault is due, and injects it. */
static void *inject_fault(void *argument)
{
    struct fault_run *run = argument;
    for (uint64_t polls = 0; !atomic_load(&run->over) && !is_due(run, polls);
         polls += atomic_load(&run->armed)) {
        (void)sched_yield();
    }
    atomic_store(&run->injected, true);
    if (run->kind == FAULT_KILL) {
        muster_fabric_kill(run->group.members[run->victim].fabric);
    } else if (run->kind == FAULT_CUT) {
        faults_cut(run);
    } else if (run->kind == FAULT_STRANGERS) {
        faults_connect_strangers(run);
    }
    return NULL;
}

/* Draws another call if the algorithm does not fit the remaining ranks. */
static void redraw_unfit_call(struct fault_run *run)
{
    struct muster_plan plan = test_plan(run->algorithm, &run->group.topology, run->count, 0);
    if (!test_fits(run->algorithm, &plan)) {
        run->root = 0;
        draw_call(run);
    }
}

/* The victim counts all rejected connections, some of them after it has returned from its calls. */
static void await_rejected(struct fault_run *run)
{
    struct muster_fabric *fabric = run->group.members[run->victim].fabric;
    int64_t deadline_ns = muster_clock_after_ms(HANGS_MS);
    while (muster_fabric_figures(fabric).connections_rejected < run->rejected &&
           muster_clock_ns() < deadline_ns) {
        bool never = false;
        muster_status status =
            muster_fabric_wait(fabric, run->group.generation, &never, muster_clock_after_ms(5));
        (void)status;
    }
    assert_true(muster_fabric_figures(fabric).connections_rejected >= run->rejected);
}

static void run_generation(struct fault_run *run, uint32_t leaver)
{
    group_regroup(&run->group, leaver, NULL);
    redraw_unfit_call(run);
    if (run->shares_memory) {
        group_each(&run->group, share_memory, NULL);
    }
    atomic_store(&run->failed_again, false);
    group_each(&run->group, call_after_fault, run);
}

static void run_generations_after_fault(struct fault_run *run)
{
    run_generation(run, run->kind == FAULT_KILL ? run->victim : UINT32_MAX);
    if (atomic_load(&run->failed_again)) {
        run->last_chance = true;
        run_generation(run, UINT32_MAX);
    }
}

/* One run: a generation in which the fault is injected, and the one or two generations after it. */
static void run_one(const struct fault_transport *transport, uint64_t seed)
{
    struct fault_run *run = calloc(1, sizeof *run);
    pthread_t injector;
    assert_non_null(run);
    run->seed = seed;
    draw(run, transport);
    print_run(run, transport);
    if (run->shares_memory) {
        group_each(&run->group, share_memory, NULL);
    }
    assert_int_equal(pthread_create(&injector, NULL, inject_fault, run), 0);
    group_each(&run->group, call_until_failure, run);
    atomic_store(&run->over, true);
    (void)pthread_join(injector, NULL);
    if (run->kind == FAULT_STRANGERS) {
        await_rejected(run);
    }
    if (run->group.size > 1) {
        run_generations_after_fault(run);
    }
    group_finish(&run->group);
    free(run);
}

static const struct fault_transport *tested;
static uint32_t wanted_runs;

static void survivors_of_random_faults_return_and_form_the_next_generation(void **state)
{
    (void)state;
    const char *text = getenv("MUSTER_RUNS");
    unsigned long runs = text != NULL ? strtoul(text, NULL, 10) : wanted_runs;
    uint64_t first = test_seed();
    for (uint64_t i = 0; i < runs; i++) {
        run_one(tested, first + 2 * i); /* a seed is odd, so the next run's is this one plus 2 */
    }
}

int faults_main(const struct fault_transport *transport, uint32_t runs)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_random_faults_return_and_form_the_next_generation),
    };
    tested = transport;
    wanted_runs = runs;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
