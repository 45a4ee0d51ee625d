/* Compressed calls: every algorithm, in place and not, with blocks that end within a pack, on
 * ranges that do, in any order of ranks, blocking, in flight and persistent, with inputs kept or
 * not. All members get equal bits, and no element is farther from the exact result than
 * muster_collectives.h says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/compression.h"
#include "collectives/call/request_ranges.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "tests/support/thinning.h"
#include "worker/base/clock.h"

enum { RANKS_MAX = 6, COUNT_MAX = 20011 };
enum { CUTS = 24, GAP_MAX = 3 };
enum { ROUNDS = TEST_ONE_OF == 1 ? 3 : 1 };
enum { ABSENT_MS = 50 }; /* no result can come: the longer, the more a wrong member has done */

static const muster_compression compressions[] = {
    MUSTER_COMPRESSION_BFLOAT16, MUSTER_COMPRESSION_FLOAT16, MUSTER_COMPRESSION_INT8};

enum form { BLOCKS, STARTS, PERSISTS, FORMS };

/* One call of all members. */
struct trial {
    struct muster_request request; /* without buffers */
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE];
    uint32_t ranks;
    enum form form;
    bool in_place;
    bool cut;                              /* most members call on ranges, each on others */
    float *in[RANKS_MAX], *out[RANKS_MAX]; /* the longest that a collective has */
    float *results[RANKS_MAX];             /* in out[] */
};

/* Memory of a member that is cut into ranges. */
struct cut {
    float memory[COUNT_MAX + CUTS * GAP_MAX];
    muster_range ranges[CUTS];
};

/* What a member calls on. */
struct own_buffers {
    float *in, *result;
    bool cut;
    struct cut *ins, *outs; /* the same in place */
};

static uint64_t seed;

static float input_of(uint32_t rank, uint64_t index)
{
    uint64_t random = seed + 1000003 * index + rank + 1;
    (void)test_random(&random);
    return (float)((double)(int64_t)test_random(&random) * 0x1p-63 * (double)(1 + index % 5));
}

static uint64_t block_of(const struct trial *trial, bool blocks)
{
    return trial->request.count * (blocks ? trial->ranks : 1);
}

static uint64_t input_count(const struct trial *trial)
{
    return block_of(trial, trial->request.collective == MUSTER_REDUCE_SCATTER);
}

static uint64_t output_count(const struct trial *trial)
{
    return block_of(trial, trial->request.collective == MUSTER_ALLGATHER);
}

/* Ranges of few elements and of many, in reverse order in memory. */
static void make_cut(struct cut *cut, uint64_t count, uint64_t *random)
{
    float *next = cut->memory;
    for (uint32_t i = 0; i < CUTS; i++) {
        uint64_t most = i % 3 == 0 ? count : count < 300 ? count : 300;
        cut->ranges[i].count =
            i + 1 == CUTS ? count : test_random_below(random, (uint32_t)most + 1);
        count -= cut->ranges[i].count;
    }
    for (uint32_t i = CUTS; i-- > 0;) {
        cut->ranges[i].address = next;
        next += cut->ranges[i].count + test_random_below(random, GAP_MAX + 1);
    }
}

static void copy_in(struct cut *cut, const float *from)
{
    for (uint32_t i = 0; i < CUTS; i++) {
        memcpy(cut->ranges[i].address, from, cut->ranges[i].count * sizeof(float));
        from += cut->ranges[i].count;
    }
}

static void copy_out(const struct cut *cut, float *to)
{
    for (uint32_t i = 0; i < CUTS; i++) {
        memcpy(to, cut->ranges[i].address, cut->ranges[i].count * sizeof(float));
        to += cut->ranges[i].count;
    }
}

static void fill(const struct trial *trial, uint32_t rank, const struct own_buffers *own)
{
    for (uint64_t i = 0; i < input_count(trial); i++) {
        own->in[i] = input_of(rank, i);
    }
    if (own->cut) {
        copy_in(own->ins, own->in);
    }
}

/* A persistent call is started twice. */
static muster_status run_persistent(const struct trial *trial, struct group_member *member,
                                    const struct muster_request *request,
                                    const struct own_buffers *own)
{
    struct muster_started_call *call = NULL;
    TRY(muster_context_make_persistent(member->contexts[MUSTER_GLOBAL], request, &call));
    muster_status status = MUSTER_OK;
    for (int i = 0; i < 2 && status == MUSTER_OK; i++) {
        fill(trial, member->rank, own);
        status = muster_started_call_start(call);
        if (status == MUSTER_OK) {
            status = muster_started_call_end(call, NULL);
        }
    }
    muster_started_call_free(call);
    return status;
}

static muster_status run(const struct trial *trial, struct group_member *member,
                         const struct muster_request *request, const struct own_buffers *own)
{
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct muster_started_call *started = NULL;
    if (trial->form == PERSISTS) {
        return run_persistent(trial, member, request, own);
    }
    if (trial->form == BLOCKS) {
        return muster_context_run(context, request, NULL);
    }
    TRY(muster_context_start(context, request, &started));
    return muster_started_call_end(started, NULL);
}

/* Sets the member's buffers, or its ranges. */
static void bind(struct trial *trial, uint32_t rank, struct own_buffers *own,
                 struct muster_given_ranges *given, struct muster_request *request)
{
    uint64_t random = seed + trial->request.count + rank;
    uint64_t offset = rank * request->count;
    own->in = trial->in[rank];
    own->result = trial->out[rank];
    if (trial->in_place) {
        own->in = trial->out[rank] + (request->collective == MUSTER_ALLGATHER ? offset : 0);
        own->result += request->collective == MUSTER_REDUCE_SCATTER ? offset : 0;
    }
    trial->results[rank] = own->result;
    request->in = own->in;
    request->out = own->result;
    own->cut = trial->cut && rank > 0;
    if (own->cut) {
        make_cut(own->ins, request->count, &random);
        make_cut(own->outs, request->count, &random);
        own->outs = trial->in_place ? own->ins : own->outs;
        *given = (struct muster_given_ranges){.ins = own->ins->ranges,
                                              .outs = own->outs->ranges,
                                              .in_count = CUTS,
                                              .out_count = CUTS};
        request->ranges = given;
    }
}

static void make_call(struct group_member *member, void *argument)
{
    struct trial *trial = argument;
    uint32_t rank = member->rank;
    struct muster_request request = trial->request;
    struct muster_given_ranges given;
    struct cut *cuts = calloc(2, sizeof *cuts);
    struct own_buffers own = {.ins = cuts, .outs = cuts + 1};
    if (cuts == NULL) {
        group_fail(member, "no memory");
        return;
    }
    request.algorithm = trial->algorithm[0] != '\0' ? trial->algorithm : NULL;
    request.deadline_ns = group_deadline();
    bind(trial, rank, &own, &given, &request);
    fill(trial, rank, &own);
    if (run(trial, member, &request, &own) != MUSTER_OK) {
        group_fail(member, "%s: %s", trial->algorithm, muster_last_error());
    }
    if (own.cut) {
        copy_out(own.outs, own.result);
    }
    if (own.cut && !trial->in_place) {
        copy_out(own.ins, own.in);
    }
    for (uint64_t i = 0; !trial->in_place && i < input_count(trial); i++) {
        if (own.in[i] != input_of(rank, i)) {
            group_fail(member, "%s: input %llu was changed", trial->algorithm,
                       (unsigned long long)i);
            break;
        }
    }
    free(cuts);
}

/* The largest magnitude of this rank's inputs in the pack of the element. */
static double largest(const struct trial *trial, uint32_t rank, uint64_t index)
{
    uint64_t count = trial->request.count;
    uint64_t each = muster_pack_elements(trial->request.compression);
    uint64_t block = index / count * count;
    uint64_t first = block + (index - block) / each * each;
    uint64_t end = first + each < block + count ? first + each : block + count;
    double most = 0;
    for (uint64_t i = first; i < end; i++) {
        most = fmax(most, fabsf(input_of(rank, i)));
    }
    return most;
}

/* The exact result of the element of the inputs with this index, and its error bound. */
static double exact(const struct trial *trial, uint64_t index, double *ret_bound)
{
    double unit = trial->request.compression == MUSTER_COMPRESSION_INT8      ? 1.0 / 253
                  : trial->request.compression == MUSTER_COMPRESSION_FLOAT16 ? 0x1p-11
                                                                             : 0x1p-8;
    double result = input_of(0, index);
    double magnitudes = 0;
    for (uint32_t rank = 0; rank < trial->ranks; rank++) {
        double value = input_of(rank, index);
        magnitudes += trial->request.compression == MUSTER_COMPRESSION_INT8
                          ? largest(trial, rank, index)
                          : fabs(value);
        if (rank > 0) {
            result = trial->request.op == MUSTER_MIN   ? fmin(result, value)
                     : trial->request.op == MUSTER_MAX ? fmax(result, value)
                                                       : result + value;
        }
    }
    double bound = magnitudes * (pow(1 + unit, trial->ranks) - 1) + 1e-6;
    bool average = trial->request.op == MUSTER_AVERAGE;
    *ret_bound = average ? bound / trial->ranks : bound;
    return average ? result / trial->ranks : result;
}

/* Every output element of every rank; and whether any was rounded at all. */
static bool check(const struct trial *trial)
{
    bool rounded = false;
    for (uint32_t rank = 0; rank < trial->ranks; rank++) {
        for (uint64_t i = 0; i < output_count(trial); i += 1 + output_count(trial) / 997) {
            double bound = 0;
            double wanted = 0;
            uint64_t count = trial->request.count;
            if (trial->request.collective == MUSTER_ALLGATHER) {
                struct trial alone = *trial;
                wanted = input_of((uint32_t)(i / count), i % count);
                alone.ranks = 1;
                bound = trial->request.compression == MUSTER_COMPRESSION_INT8
                            ? largest(&alone, (uint32_t)(i / count), i % count) / 253
                            : fabs(wanted) * 0x1p-8 + 0x1p-25;
            } else {
                bool scatters = trial->request.collective == MUSTER_REDUCE_SCATTER;
                wanted = exact(trial, i + (scatters ? rank * count : 0), &bound);
            }
            double got = trial->results[rank][i];
            rounded = rounded || got != (float)wanted;
            if (!(fabs(got - wanted) <= bound)) {
                fail_msg("%s by %s to %s: rank %u element %llu is %.9g, not %.9g +- %.3g",
                         muster_collective_name(trial->request.collective), trial->algorithm,
                         muster_compression_name(trial->request.compression), rank,
                         (unsigned long long)i, got, wanted, bound);
            }
        }
        if (trial->request.collective != MUSTER_REDUCE_SCATTER) {
            assert_memory_equal(trial->results[rank], trial->results[0],
                                output_count(trial) * sizeof(float));
        }
    }
    return rounded;
}

static void allocate(struct trial *trial)
{
    size_t bytes = (size_t)RANKS_MAX * COUNT_MAX * sizeof(float);
    for (uint32_t rank = 0; rank < trial->ranks; rank++) {
        trial->in[rank] = malloc(bytes);
        trial->out[rank] = malloc(bytes);
        assert_non_null(trial->in[rank]);
        assert_non_null(trial->out[rank]);
    }
}

static void release(struct trial *trial)
{
    for (uint32_t rank = 0; rank < trial->ranks; rank++) {
        free(trial->in[rank]);
        free(trial->out[rank]);
    }
}

/* Draws the rest of the call. False: the algorithm does not fit it. */
static bool draw(struct trial *trial, size_t algorithm, const struct muster_topology *topology,
                 uint64_t *random)
{
    static const muster_op ops[] = {MUSTER_SUM, MUSTER_AVERAGE, MUSTER_MIN, MUSTER_MAX};
    static const uint64_t counts[] = {1, 127, 240, 1000, 5003, COUNT_MAX};
    char why[MUSTER_ERROR_MAX];
    const struct muster_algorithm *row = &muster_algorithms[algorithm];
    trial->request = (struct muster_request){
        .collective = row->collective,
        .type = MUSTER_FLOAT32,
        .op = ops[test_random_below(random, 4)],
        .count = counts[test_random_below(random, 6)],
        .compression = compressions[test_random_below(random, 3)],
    };
    trial->in_place = test_random_below(random, 2) == 0;
    trial->form = (enum form)test_random_below(random, FORMS);
    trial->cut = row->collective == MUSTER_ALLREDUCE && test_random_below(random, 2) == 0;
    trial->request.keep_input = test_random_below(random, 3) == 0;
    trial->request.finish_together = test_random_below(random, 3) == 0;
    muster_algorithm_print(algorithm, trial->algorithm, sizeof trial->algorithm);
    const struct muster_plan plan = {
        .collective = row->collective, .topology = topology, .count = trial->request.count};
    bool compressed = row->collective == MUSTER_ALLREDUCE || row->collective == MUSTER_ALLGATHER ||
                      row->collective == MUSTER_REDUCE_SCATTER;
    return compressed && !row->memory && muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

/* callers: as of group_start_shuffled(), or NULL. */
static void run_all(enum group_transport transport, uint32_t hosts, const uint32_t *host_sizes,
                    const uint32_t *callers)
{
    struct group group;
    struct trial trial = {.form = BLOCKS};
    uint64_t random = seed;
    uint32_t tried = 0;
    uint32_t rounded = 0;
    if (callers != NULL) {
        group_start_shuffled(&group, transport, hosts, host_sizes, callers, NULL);
    } else {
        group_start(&group, transport, hosts, host_sizes, NULL);
    }
    trial.ranks = group.size;
    allocate(&trial);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            if (draw(&trial, algorithm, &group.topology, &random)) {
                group_each(&group, make_call, &trial);
                rounded += check(&trial);
                tried++;
            }
        }
    }
    release(&trial);
    group_finish(&group);
    assert_true(tried > 10 * ROUNDS);
    assert_true(rounded > tried / 2); /* otherwise nothing was encoded */
}

static void every_algorithm_gives_equal_bits_within_the_bound(void **state)
{
    static const uint32_t one_host[] = {4};
    static const uint32_t ragged[] = {3, 1, 2};
    static const uint32_t two[] = {1, 1};
    (void)state;
    run_all(GROUP_INPROC, 1, one_host, NULL);
    run_all(GROUP_INPROC, 3, ragged, NULL);
    run_all(GROUP_TCP, 2, two, NULL);
    run_all(GROUP_TCP, 3, ragged, NULL);
    run_all(GROUP_SHM, 1, one_host, NULL);
}

static void so_it_does_in_any_order_of_ranks(void **state)
{
    static const uint32_t ragged[] = {3, 1, 2};
    static const uint32_t even[] = {2, 2};
    static const uint32_t mixed[] = {4, 0, 5, 2, 1, 3};
    static const uint32_t dealt[] = {0, 2, 1, 3};
    (void)state;
    run_all(GROUP_INPROC, 3, ragged, mixed);
    run_all(GROUP_INPROC, 2, even, dealt);
    run_all(GROUP_TCP, 3, ragged, mixed);
}

/* Kept inputs ---------------------------------------------------------------------------------- */

/* A call without its last member, and how many elements of the others have changed. */
static void call_without_one(struct group_member *member, void *argument)
{
    struct trial *trial = argument;
    uint32_t rank = member->rank;
    struct muster_request request = trial->request;
    if (rank + 1 == trial->ranks) {
        return;
    }
    bool scatters = request.collective == MUSTER_REDUCE_SCATTER;
    request.algorithm = trial->algorithm;
    request.deadline_ns = muster_clock_after_ms(ABSENT_MS);
    request.in = trial->in[rank];
    request.out = trial->in[rank] + (scatters ? rank * request.count : 0);
    for (uint64_t i = 0; i < input_count(trial); i++) {
        trial->in[rank][i] = input_of(rank, i);
    }
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) == MUSTER_OK) {
        group_fail(member, "%s: succeeded without a member", trial->algorithm);
    }
    for (uint64_t i = 0; i < input_count(trial); i++) {
        if (trial->in[rank][i] != input_of(rank, i)) {
            group_fail(member, "%s: element %llu has changed", trial->algorithm,
                       (unsigned long long)i);
            return;
        }
    }
}

static void no_kept_input_changes_before_all_members_have_called(void **state)
{
    static const uint32_t sizes[] = {2, 2};
    uint64_t random = seed;
    uint32_t tried = 0;
    (void)state;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm += TEST_ONE_OF) {
        struct group group;
        struct trial trial = {.ranks = 4};
        group_start(&group, GROUP_INPROC, 2, sizes, NULL);
        allocate(&trial);
        if (draw(&trial, algorithm, &group.topology, &random) &&
            trial.request.collective != MUSTER_ALLGATHER) {
            trial.request.keep_input = true;
            group_each(&group, call_without_one, &trial);
            tried++;
        }
        release(&trial);
        group_finish(&group);
    }
    assert_true(tried > 10 / TEST_ONE_OF);
}

/* Choice --------------------------------------------------------------------------------------- */

/* Runs one allreduce, and returns whether its result was rounded to the compression. */
static bool is_compressed_as(enum group_transport transport, struct muster_request request,
                             uint32_t ranks, enum form form, bool cut)
{
    struct group group;
    struct trial trial = {.request = request, .ranks = ranks, .form = form, .cut = cut};
    uint32_t sizes[RANKS_MAX] = {1, 1, 1, 1, 1, 1};
    if (transport == GROUP_MEMORY) {
        group_start_flat(&group, transport, ranks);
    } else {
        group_start(&group, transport, ranks, sizes, NULL);
    }
    for (uint32_t rank = 0; transport == GROUP_INPROC && rank < ranks; rank++) {
        struct muster_cost_model slow = muster_cost_model_default; /* shared by all ranks */
        for (int level = 0; level < MUSTER_LEVEL_COUNT; level++) {
            slow.links[level].bandwidth_GBps = 0.125;
            slow.links[level].shared_GBps = 0.125;
        }
        muster_context_set_model(group.members[rank].contexts[MUSTER_GLOBAL], &slow);
    }
    if (request.algorithm != NULL) {
        (void)snprintf(trial.algorithm, sizeof trial.algorithm, "%s", request.algorithm);
    }
    allocate(&trial);
    group_each(&group, make_call, &trial);
    bool rounded = check(&trial);
    release(&trial);
    group_finish(&group);
    return rounded;
}

static bool is_compressed(enum group_transport transport, struct muster_request request,
                          uint32_t ranks)
{
    return is_compressed_as(transport, request, ranks, BLOCKS, false);
}

/* MAX of float32 is exact, so that any rounding shows. */
static struct muster_request largest_request(uint64_t count)
{
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .type = MUSTER_FLOAT32,
                                   .op = MUSTER_MAX,
                                   .count = count,
                                   .untuned = true,
                                   .compression = MUSTER_COMPRESSION_INT8};
}

static void a_call_is_compressed_where_that_is_predicted_to_be_faster(void **state)
{
    (void)state;
    struct muster_request request = largest_request(COUNT_MAX);
    assert_true(is_compressed(GROUP_INPROC, request, 3));
    assert_false(is_compressed(GROUP_INPROC, largest_request(1), 3));
    assert_false(is_compressed(GROUP_MEMORY, request, 3));
    assert_false(is_compressed(GROUP_INPROC, request, 1));
    for (enum form form = BLOCKS; form < FORMS; form++) {
        request.keep_input = request.finish_together = form != STARTS;
        assert_true(is_compressed_as(GROUP_INPROC, request, 3, form, true));
        assert_false(is_compressed_as(GROUP_INPROC, largest_request(1), 3, form, true));
    }
    request.keep_input = request.finish_together = false;
    request.compression = MUSTER_COMPRESSION_NONE;
    assert_false(is_compressed(GROUP_INPROC, request, 3));
    request.algorithm = "ring";
    assert_false(is_compressed(GROUP_TCP, request, 2));
    request.compression = MUSTER_COMPRESSION_BFLOAT16;
    assert_true(is_compressed(GROUP_TCP, request, 2));
}

static void refuse(struct group *group, struct muster_request request, const char *text)
{
    static float data[100];
    size_t counts[] = {10};
    request.in = data;
    request.out = data;
    request.deadline_ns = group_deadline();
    request.in_counts = request.in_counts != NULL ? counts : NULL;
    struct muster_context *context = group->members[0].contexts[MUSTER_GLOBAL];
    if (muster_context_run(context, &request, NULL) != MUSTER_INVALID ||
        strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), text);
    }
}

static void calls_that_cannot_be_compressed_are_refused(void **state)
{
    struct group group;
    const size_t some = 0;
    (void)state;
    group_start_flat(&group, GROUP_INPROC, 1);
    struct muster_request request = largest_request(10);
    request.op = MUSTER_PROD;
    refuse(&group, request,
           "allreduce: compression int8 of float32, prod: only sum, average, min and max");
    request = largest_request(10);
    request.type = MUSTER_INT32;
    refuse(&group, request, "compression int8 of int32, max: only float32");
    request = largest_request(10);
    request.collective = MUSTER_BROADCAST;
    refuse(&group, request, "only allreduce, reduce_scatter and allgather");
    request.collective = MUSTER_BARRIER;
    refuse(&group, request, "only allreduce, reduce_scatter and allgather");
    request = largest_request(10);
    request.op = MUSTER_SUM;
    request.reproducible = true;
    refuse(&group, request, "reproducible calls are not compressed");
    request = largest_request(0);
    request.collective = MUSTER_REDUCE_SCATTER;
    request.in_counts = &some;
    refuse(&group, request, "blocks of different sizes are not compressed");
    request = largest_request(10);
    request.compression = (muster_compression)9;
    refuse(&group, request, "there is no compression 9");
    request.compression = (muster_compression)1000;
    refuse(&group, request, "there is no compression 1000");
    request.collective = MUSTER_BARRIER;
    refuse(&group, request, "barrier: there is no compression 1000");
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_gives_equal_bits_within_the_bound),
        cmocka_unit_test(so_it_does_in_any_order_of_ranks),
        cmocka_unit_test(no_kept_input_changes_before_all_members_have_called),
        cmocka_unit_test(a_call_is_compressed_where_that_is_predicted_to_be_faster),
        cmocka_unit_test(calls_that_cannot_be_compressed_are_refused),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
