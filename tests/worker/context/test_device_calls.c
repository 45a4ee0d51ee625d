/* Calls on memory of GPUs as group steps by NCCL, with a pretended GPU and a pretended NCCL; ranks
 * are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/gpu_pretend.h"
#include "tests/support/group.h"
#include "tests/support/nccl_pretend.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

enum {
    COUNT = 1000,
    ROOM_BYTES = 2 * (COUNT + 1) * 8 * sizeof(double),
    HANGS_MS = 30000,
    SHORT_MS = 600,
};

static const struct gpu_pretend *gpu;
static const struct nccl_pretend *nccl;

static const enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER,
                                                     MUSTER_ALLGATHER, MUSTER_ALLGATHERV,
                                                     MUSTER_BROADCAST, MUSTER_REDUCE};
enum { COLLECTIVES = sizeof collectives / sizeof collectives[0] };

/* Memory of one rank: the library's addresses, and those of the test. */
struct buffers {
    char *in, *out;
    char *in_alias, *out_alias;
};

/* Of the same GPU for all ranks: that of the first one. */
static char *allocate(void)
{
    static _Atomic(void *) chosen;
    struct muster_device_memory memory = {.context = NULL};
    for (;;) {
        char *made = gpu->allocate(ROOM_BYTES, 0);
        void *nothing = NULL;
        (void)muster_device_find(made, &memory);
        (void)atomic_compare_exchange_strong(&chosen, &nothing, memory.context);
        if (atomic_load(&chosen) == memory.context) {
            return made;
        }
        gpu->release(made);
    }
}

static struct buffers make_buffers(void)
{
    struct buffers made = {.in = allocate(), .out = allocate()};
    made.in_alias = gpu->alias(made.in);
    made.out_alias = gpu->alias(made.out);
    return made;
}

static void free_buffers(const struct buffers *buffers)
{
    gpu->release(buffers->in);
    gpu->release(buffers->out);
}

static struct muster_context *context_of(const struct group_member *member)
{
    return member->contexts[MUSTER_GLOBAL];
}

/* Calls ---------------------------------------------------------------------------------------- */

/* Runs the request, which has no buffers yet, on the rank's, and checks its result. */
static void check_call(struct group_member *member, const struct buffers *buffers,
                       struct muster_request *request, bool in_place)
{
    char text[128] = "";
    uint32_t ranks = member->group->size;
    int64_t offset = pattern_in_place_offset(request, member->rank, ranks) *
                     (int64_t)muster_type_size_bytes(request->type);
    int64_t in_at = in_place && offset > 0 ? offset : 0;
    int64_t out_at = in_place && offset < 0 ? -offset : 0;
    bool broadcasts = request->collective == MUSTER_BROADCAST;
    struct muster_request on_gpu = *request;
    request->in = broadcasts ? NULL : in_place ? buffers->out_alias + in_at : buffers->in_alias;
    request->out = buffers->out_alias + out_at;
    on_gpu.in = broadcasts ? NULL : in_place ? buffers->out + in_at : buffers->in;
    on_gpu.out = buffers->out + out_at;
    pattern_fill(request, broadcasts ? request->out : (void *)request->in, member->rank, ranks);
    muster_status status = muster_context_run(context_of(member), &on_gpu, NULL);
    if (status != MUSTER_OK || pattern_check(request, member->rank, ranks, text, sizeof text) > 0) {
        group_fail(member, "%s of %llu, %s %s%s: %s", muster_collective_name(request->collective),
                   (unsigned long long)request->count, muster_type_name(request->type),
                   muster_op_name(request->op), in_place ? ", in place" : "",
                   status == MUSTER_OK ? text : muster_last_error());
    }
}

static struct muster_request sum(void)
{
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .count = COUNT,
                                   .algorithm = "nccl",
                                   .type = MUSTER_FLOAT32,
                                   .op = MUSTER_SUM,
                                   .deadline_ns = muster_clock_after_ms(HANGS_MS)};
}

/* All ranks see it at the same call. */
static void await_group(struct group_member *member, const struct buffers *buffers)
{
    int64_t until_ns = muster_clock_after_ms(HANGS_MS);
    while (member->failure[0] == '\0' && !muster_context_has_device_group(context_of(member))) {
        struct muster_request request = sum();
        check_call(member, buffers, &request, false);
        if (muster_clock_ns() > until_ns) {
            group_fail(member, "no group of GPUs");
        }
    }
}

/* Call number i of a collective. What NCCL cannot do goes through the host. */
static void run_number(struct group_member *member, const struct buffers *buffers,
                       enum muster_collective collective, size_t i)
{
    struct muster_request request = {
        .collective = collective,
        .algorithm = i % 5 == 4 ? NULL : "nccl",
        .count = i % 7 == 6 ? i % 2 : COUNT - i,
        .root = muster_collective_has_root(collective) ? (uint32_t)i % member->group->size : 0,
        .keep_input = i % 6 == 5,
        .finish_together = i % 3 == 1,
        .user_function = pattern_user,
        .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    pattern_pair(i % pattern_pairs(), &request.type, &request.op);
    request.reproducible = request.algorithm == NULL && i % 2 == 0;
    if (collective == MUSTER_ALLGATHERV || (collective == MUSTER_REDUCE_SCATTER && i % 4 == 3)) {
        pattern_make_counts(&request, member->rank, member->group->size);
    }
    check_call(member, buffers, &request, i % 2 == 1 && collective != MUSTER_BROADCAST);
    pattern_free_counts(&request);
}

static void run_all(struct group_member *member, void *argument)
{
    const struct buffers buffers = make_buffers();
    const size_t *every = argument;
    await_group(member, &buffers);
    for (size_t i = *every - 1; i < pattern_pairs(); i += *every) {
        for (size_t k = 0; k < COLLECTIVES && member->failure[0] == '\0'; k++) {
            run_number(member, &buffers, collectives[k], i);
        }
    }
    free_buffers(&buffers);
}

static void every_call_is_right_whether_nccl_can_do_it_or_not(void **state)
{
    static const struct {
        enum group_transport transport;
        uint32_t hosts, sizes[3];
        size_t every; /* pair of a type and an operation */
    } shapes[] = {
        {GROUP_INPROC, 1, {2}, 1}, {GROUP_MEMORY, 1, {3}, 7}, {GROUP_MEMORY, 3, {1, 3, 1}, 11}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct group group;
        uint64_t before = nccl->collectives();
        nccl->set_faults(i == 1 ? "late" : "");
        group_start(&group, shapes[i].transport, shapes[i].hosts, shapes[i].sizes, NULL);
        size_t every = shapes[i].every;
        group_each(&group, run_all, &every);
        /* More than a fifth of the calls. */
        assert_true(nccl->collectives() - before >
                    pattern_pairs() / every * COLLECTIVES * group.size / 5);
        group_finish(&group);
        assert_int_equal(nccl->communicators(), 0);
    }
    nccl->set_faults("");
}

/* A context without NCCL ----------------------------------------------------------------------- */

static void pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Calls go on for some time, and then there is still no group. */
static void go_on_without(struct group_member *member, void *argument)
{
    const struct buffers buffers = make_buffers();
    (void)argument;
    for (int i = 0; i < 30 && member->failure[0] == '\0'; i++) {
        struct muster_request request = sum();
        check_call(member, &buffers, &request, false);
        pause_ms(2);
    }
    if (muster_context_has_device_group(context_of(member))) {
        group_fail(member, "there is a group of GPUs");
    }
    free_buffers(&buffers);
}

static void where_nccl_cannot_be_used_calls_go_through_the_host(void **state)
{
    static const char *const faults[] = {"id_fails", "out_of_memory@1", "init_in_progress@1"};
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct group group;
        uint64_t before = nccl->collectives();
        nccl->set_faults(faults[i]);
        group_start_flat(&group, GROUP_INPROC, 3);
        group_each(&group, go_on_without, NULL);
        nccl->set_faults("");
        int64_t start_ns = muster_clock_ns();
        group_finish(&group);
        assert_true(muster_clock_ns() - start_ns < (int64_t)HANGS_MS / 3 * MUSTER_NS_PER_MS);
        assert_int_equal(nccl->collectives(), before);
        assert_int_equal(nccl->communicators(), 0);
    }
}

/* Rank 0's buffers are memory of the host. */
static void add_mixed(struct group_member *member, void *argument)
{
    const struct buffers buffers = make_buffers();
    struct buffers own = buffers;
    (void)argument;
    if (member->rank == 0) {
        own.in = own.in_alias;
        own.out = own.out_alias;
    }
    for (int i = 0; i < 10; i++) {
        struct muster_request request = sum();
        request.algorithm = i % 2 == 0 ? "ring" : NULL;
        check_call(member, &own, &request, false);
        pause_ms(1);
    }
    free_buffers(&buffers);
}

static void while_a_rank_uses_no_gpu_the_others_go_through_the_host(void **state)
{
    struct group group;
    uint64_t before = nccl->collectives();
    (void)state;
    group_start_flat(&group, GROUP_INPROC, 3);
    group_each(&group, add_mixed, NULL);
    group_finish(&group);
    assert_int_equal(nccl->collectives(), before);
}

/* Where the others use NCCL, it is an error, which says who has what. */
static void add_mixed_by_nccl(struct group_member *member, void *argument)
{
    const struct buffers buffers = make_buffers();
    const bool *in_two_places = argument;
    struct muster_request request = sum();
    await_group(member, &buffers);
    request.in = buffers.in;
    request.out = buffers.out;
    if (member->rank == 1) {
        request.in = buffers.in_alias;
        request.out = *in_two_places ? buffers.out : buffers.out_alias;
    }
    muster_status status = muster_context_run(context_of(member), &request, NULL);
    /* Who has noticed it first says so: "here" may be either of the two. */
    const char *other = *in_two_places ? "in memory of several devices" : "in memory of the host";
    const char *text = muster_last_error();
    if (status != MUSTER_INVALID || strstr(text, "in memory of a device") == NULL ||
        strstr(text, other) == NULL) {
        group_fail(member, "%s, not \"%s\": %s", muster_status_name(status), other, text);
    }
    request = sum(); /* the context goes on */
    check_call(member, &buffers, &request, false);
    free_buffers(&buffers);
}

static void buffers_in_other_memory_than_the_other_ranks_are_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct group group;
        bool in_two_places = i == 1;
        group_start_flat(&group, GROUP_INPROC, 3);
        group_each(&group, add_mixed_by_nccl, &in_two_places);
        group_finish(&group);
    }
}

/* Failures ------------------------------------------------------------------------------------- */

static const char *wanted_text;

static void fail_in_a_call(struct group_member *member, void *argument)
{
    const struct buffers buffers = make_buffers();
    pthread_barrier_t *barrier = argument;
    await_group(member, &buffers);
    if (pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        nccl->set_faults(strchr(wanted_text, '/') + 1);
    }
    (void)pthread_barrier_wait(barrier);
    struct muster_request request = sum();
    request.in = buffers.in;
    request.out = buffers.out;
    request.deadline_ns = muster_clock_after_ms(SHORT_MS);
    int64_t start_ns = muster_clock_ns();
    muster_status status = muster_context_run(context_of(member), &request, NULL);
    int64_t took_ms = (muster_clock_ns() - start_ns) / MUSTER_NS_PER_MS;
    char wanted[128];
    (void)snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(wanted_text, "/"), wanted_text);
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), wanted) == NULL ||
        took_ms > HANGS_MS / 3) {
        group_fail(member, "%s after %lld ms, not \"%s\": %s", muster_status_name(status),
                   (long long)took_ms, wanted, muster_last_error());
    }
    free_buffers(&buffers);
}

static void a_collective_that_fails_ends_at_its_bound_and_says_why(void **state)
{
    static const char *const cases[] = {
        "remote process exited or there was a network error/remote_error",
        "the deadline passed while NCCL was at work/call_in_progress@1"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct group group;
        pthread_barrier_t barrier;
        wanted_text = cases[i];
        (void)pthread_barrier_init(&barrier, NULL, 2);
        group_start_flat(&group, GROUP_INPROC, 2);
        group_each(&group, fail_in_a_call, &barrier);
        group_finish(&group);
        (void)pthread_barrier_destroy(&barrier);
        nccl->set_faults("");
        assert_int_equal(nccl->communicators(), 0);
    }
}

/* The last test: afterwards this process uses no NCCL. */
static void a_communicator_that_cannot_be_ended_is_left_behind(void **state)
{
    struct group group;
    pthread_barrier_t barrier;
    (void)state;
    wanted_text = "the deadline passed while NCCL was at work/call_in_progress@1,abort_hangs@1";
    (void)pthread_barrier_init(&barrier, NULL, 2);
    group_start_flat(&group, GROUP_INPROC, 2);
    group_each(&group, fail_in_a_call, &barrier);
    group_finish(&group);
    (void)pthread_barrier_destroy(&barrier);
    assert_int_equal(nccl->communicators(), 1);

    uint64_t before = nccl->collectives();
    group_start_flat(&group, GROUP_INPROC, 2);
    group_each(&group, go_on_without, NULL);
    group_finish(&group);
    assert_int_equal(nccl->collectives(), before);
}

static int start(void **state)
{
    (void)state;
    gpu = gpu_pretend_load(false);
    nccl = nccl_pretend_load();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_right_whether_nccl_can_do_it_or_not),
        cmocka_unit_test(where_nccl_cannot_be_used_calls_go_through_the_host),
        cmocka_unit_test(while_a_rank_uses_no_gpu_the_others_go_through_the_host),
        cmocka_unit_test(buffers_in_other_memory_than_the_other_ranks_are_an_error),
        cmocka_unit_test(a_collective_that_fails_ends_at_its_bound_and_says_why),
        cmocka_unit_test(a_communicator_that_cannot_be_ended_is_left_behind),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
