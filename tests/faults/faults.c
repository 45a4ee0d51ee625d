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
    PATIENCE_MS = 60000,    /* what only a hanging test reaches */
    FREEZE_MS = 200,        /* after which a frozen member is given up */
    FROZEN_CALL_US = 300,   /* at most so long the member that freezes is in the call */
    CALLS_AFTER = 6,        /* that follow a fault which may be survived */
    CALLS_TO_FREEZE = 1000, /* all may be in time; then it stops between two */
    CALLS_MAX = 100000,     /* after a death: it must be noticed before that */
    NS_PER_US = 1000,
};

/* Drawing -------------------------------------------------------------------------------------- */

static uint32_t below(struct fault_run *run, uint32_t bound)
{
    return test_random_below(&run->dice, bound);
}

/* Sizes on either side of what goes at once (16 KiB) and of what comes in one piece (256 KiB). */
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

static void draw(struct fault_run *run, const struct fault_transport *transport)
{
    run->dice = run->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    (void)test_random(&run->dice);
    draw_shape(run, transport);
    draw_call(run);
    uint32_t kind = below(run, 8); /* a freeze takes a deadline's time: there are fewer of them */
    run->kind = kind < 4 ? FAULT_KILL : kind == 4 ? FAULT_FREEZE : FAULT_CUT;
    if (kind == 7) {
        run->kind = FAULT_STRANGERS;
    }
    if (!transport->has_port && run->kind > FAULT_FREEZE) {
        run->kind = FAULT_KILL;
    }
    run->victim = below(run, run->group.size);
    run->good_calls = below(run, GOOD_CALLS_MAX + 1);
    run->call_ms = run->kind == FAULT_FREEZE ? FREEZE_MS : PATIENCE_MS;
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

/* What one member has for its calls. Collectives that want a count for each rank get equal ones: a
 * member without a block could die unnoticed. */
struct work {
    struct fault_run *run;
    struct group_member *member;
    struct muster_request request;
    struct muster_request pattern; /* the same without counts for each rank */
    char *in, *out;
    size_t counts[RANKS_MAX];
};

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
    bool wants_counts = muster_collective_needs_bounds(collective);
    work->request = (struct muster_request){
        .collective = collective,
        .in = collective == MUSTER_BROADCAST ? NULL : work->in,
        .out = work->out,
        .count = collective == MUSTER_BARRIER ? 0 : run->count,
        .in_counts = wants_counts && collective == MUSTER_ALLTOALLV ? work->counts : NULL,
        .out_counts = wants_counts ? work->counts : NULL,
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
        group_fail(member, "it came back long after its deadline");
    }
    return member->failure[0] == '\0';
}

/* One call with fresh data, and all that must be true of it however it ends. */
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
    bool in_time = muster_clock_ns() < deadline_ns + (int64_t)PATIENCE_MS * 1000 * NS_PER_US;
    if (status != MUSTER_OK && status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    } else if (status == MUSTER_REJOIN && muster_last_error()[0] == '\0') {
        group_fail(member, "it does not say why");
    }
    (void)check_result(work, status, in_time);
    return status;
}

/* What a session does with its contexts when a generation has formed. */
static void share_memory(struct group_member *member, void *argument)
{
    (void)argument;
    if (muster_context_share_memory(member->contexts[MUSTER_GLOBAL],
                                    muster_clock_after_ms(PATIENCE_MS), NULL) != MUSTER_OK) {
        group_fail(member, "no shared memory: %s", muster_last_error());
    }
}

/* What the service does once it hears of a death: all hear of it. */
static void revoke_everywhere(struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        muster_fabric_revoke(group->members[i].fabric, group->generation, "a member was reported");
    }
}

/* The victim says that it is where the fault is to hit it. */
static void arm(struct fault_run *run, struct muster_fabric *fabric)
{
    struct muster_fabric_figures figures = muster_fabric_figures(fabric);
    run->begun_messages = figures.messages_sent + figures.messages_received;
    atomic_store(&run->armed, true);
}

static void freeze(struct work *work)
{
    muster_status status = MUSTER_OK;
    uint32_t suspect;
    uint64_t us = (work->run->seed * 7 + work->run->point) % FROZEN_CALL_US;
    for (uint32_t i = 0; i < CALLS_TO_FREEZE && status == MUSTER_OK; i++) {
        status = call(work, muster_clock_ns() + (int64_t)us * NS_PER_US, &suspect);
    }
}

/* A death must end somebody's calls, strangers none. */
static void judge(struct work *work, muster_status status, uint32_t suspect)
{
    const struct fault_run *run = work->run;
    bool mortal = run->kind == FAULT_KILL || run->kind == FAULT_FREEZE;
    if (status == MUSTER_OK && mortal) {
        group_fail(work->member, "nobody noticed");
    } else if (status != MUSTER_OK && run->kind == FAULT_STRANGERS) {
        group_fail(work->member, "strangers ended a call: %s", muster_last_error());
    } else if (run->kind == FAULT_KILL && suspect != UINT32_MAX && suspect != run->victim) {
        group_fail(work->member, "rank %u is suspected: %s", suspect, muster_last_error());
    }
    if (status != MUSTER_OK || work->member->failure[0] != '\0') {
        revoke_everywhere(work->member->group);
    }
}

/* Calls until one fails, or until a fault that may be survived is long over. Members do not run
 * at the same pace, so that the fault may hit some before the call that the victim is in. */
static void live(struct group_member *member, void *argument)
{
    struct fault_run *run = argument;
    struct work work;
    bool victim = member->rank == run->victim;
    bool mortal = run->kind == FAULT_KILL || run->kind == FAULT_FREEZE;
    uint32_t most = mortal ? CALLS_MAX : run->good_calls + CALLS_AFTER;
    uint32_t suspect = UINT32_MAX;
    muster_status status = MUSTER_OK;
    work_init(&work, member, run);
    uint32_t counted = 0;
    for (uint32_t i = 0; counted < most && status == MUSTER_OK && member->failure[0] == '\0'; i++) {
        if (victim && i == run->good_calls) {
            arm(run, member->fabric);
        }
        if (victim && i == run->good_calls && run->kind == FAULT_FREEZE) {
            freeze(&work);
            break;
        }
        if (victim && run->kind == FAULT_KILL && atomic_load(&run->struck)) {
            break; /* as the dead do, who leave no link but maybe memory */
        }
        status = call(&work, muster_clock_after_ms(run->call_ms), &suspect);
        counted += !mortal || atomic_load(&run->struck); /* who strikes may be late */
    }
    if (!victim || !mortal) {
        judge(&work, status, suspect);
    }
    work_finish(&work);
}

/* Of the generations after the fault. A connection that broke may be noticed as late as that. */
static void live_again(struct group_member *member, void *argument)
{
    struct fault_run *run = argument;
    struct work work;
    uint32_t suspect;
    muster_status status = MUSTER_OK;
    work_init(&work, member, run);
    for (int i = 0; i < 2 && status == MUSTER_OK; i++) {
        status = call(&work, muster_clock_after_ms(PATIENCE_MS), &suspect);
    }
    if (status != MUSTER_OK && (run->kind != FAULT_CUT || run->last_chance)) {
        group_fail(member, "in the next generation: %s", muster_last_error());
    }
    if (status != MUSTER_OK) {
        atomic_store(&run->again, true);
        revoke_everywhere(member->group);
    }
    work_finish(&work);
}

/* The fault ------------------------------------------------------------------------------------ */

/* Whether the victim's call has moved so many messages. Where memory is shared there are none, and
 * what goes by is time: so many looks at it. */
static bool is_due(struct fault_run *run, uint64_t looks)
{
    if (!atomic_load(&run->armed)) {
        return false;
    }
    if (run->shares_memory) {
        return looks >= run->point;
    }
    struct muster_fabric_figures figures =
        muster_fabric_figures(run->group.members[run->victim].fabric);
    return figures.messages_sent + figures.messages_received >= run->begun_messages + run->point;
}

static void *strike(void *argument)
{
    struct fault_run *run = argument;
    for (uint64_t looks = 0; !atomic_load(&run->over) && !is_due(run, looks);
         looks += atomic_load(&run->armed)) {
        (void)sched_yield();
    }
    atomic_store(&run->struck, true);
    if (run->kind == FAULT_KILL) {
        muster_fabric_kill(run->group.members[run->victim].fabric);
    } else if (run->kind == FAULT_CUT) {
        faults_cut(run);
    } else if (run->kind == FAULT_STRANGERS) {
        faults_send_strangers(run);
    }
    return NULL;
}

/* Fewer ranks may not have what the algorithm needs. */
static void choose_for_the_rest(struct fault_run *run)
{
    struct muster_plan plan = test_plan(run->algorithm, &run->group.topology, run->count, 0);
    if (!test_fits(run->algorithm, &plan)) {
        run->root = 0;
        draw_call(run);
    }
}

/* They are counted where they came, though maybe later than they came. */
static void await_refused(struct fault_run *run)
{
    struct muster_fabric *fabric = run->group.members[run->victim].fabric;
    int64_t deadline_ns = muster_clock_after_ms(PATIENCE_MS);
    while (muster_fabric_figures(fabric).connections_rejected < run->refused &&
           muster_clock_ns() < deadline_ns) {
        bool never = false;
        muster_status status =
            muster_fabric_wait(fabric, run->group.generation, &never, muster_clock_after_ms(5));
        (void)status;
    }
    assert_true(muster_fabric_figures(fabric).connections_rejected >= run->refused);
}

static void begin_next(struct fault_run *run, uint32_t leaver)
{
    group_regroup(&run->group, leaver, NULL);
    choose_for_the_rest(run);
    if (run->shares_memory) {
        group_each(&run->group, share_memory, NULL);
    }
    atomic_store(&run->again, false);
    group_each(&run->group, live_again, run);
}

static void go_on(struct fault_run *run)
{
    begin_next(run, run->kind == FAULT_KILL ? run->victim : UINT32_MAX);
    if (atomic_load(&run->again)) {
        run->last_chance = true;
        begin_next(run, UINT32_MAX);
    }
}

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
    assert_int_equal(pthread_create(&injector, NULL, strike, run), 0);
    group_each(&run->group, live, run);
    atomic_store(&run->over, true);
    (void)pthread_join(injector, NULL);
    if (run->kind == FAULT_STRANGERS) {
        await_refused(run);
    }
    if (run->group.size > 1) {
        go_on(run);
    }
    group_finish(&run->group);
    free(run);
}

static const struct fault_transport *tested;
static uint32_t wanted_runs;

static void whatever_fails_the_survivors_return_and_go_on(void **state)
{
    (void)state;
    const char *text = getenv("MUSTER_RUNS");
    unsigned long runs = text != NULL ? strtoul(text, NULL, 10) : wanted_runs;
    uint64_t first = test_seed();
    for (uint64_t i = 0; i < runs; i++) {
        run_one(tested, first + 2 * i); /* a seed is odd */
    }
}

int faults_main(const struct fault_transport *transport, uint32_t runs)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_fails_the_survivors_return_and_go_on),
    };
    tested = transport;
    wanted_runs = runs;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
