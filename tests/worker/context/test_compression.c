/* Compressed calls: every algorithm, in place and not, with blocks that end within a pack. All
 * members get equal bits, and no element is farther from the exact result than muster.h says. */
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
#include "collectives/call/request.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"

enum { RANKS_MAX = 6, COUNT_MAX = 20011 };

static const muster_compression compressions[] = {
    MUSTER_COMPRESSION_BFLOAT16, MUSTER_COMPRESSION_FLOAT16, MUSTER_COMPRESSION_INT8};

/* One call of all members. */
struct trial {
    struct muster_request request; /* without buffers */
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE];
    uint32_t ranks;
    bool in_place, starts;
    float *in[RANKS_MAX], *out[RANKS_MAX]; /* the longest that a collective has */
    float *results[RANKS_MAX];             /* in out[] */
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

static void make_call(struct group_member *member, void *argument)
{
    struct trial *trial = argument;
    uint32_t rank = member->rank;
    struct muster_request request = trial->request;
    uint64_t own = rank * request.count;
    request.algorithm = trial->algorithm[0] != '\0' ? trial->algorithm : NULL;
    request.deadline_ns = group_deadline();
    float *in = trial->in[rank];
    trial->results[rank] = trial->out[rank];
    if (trial->in_place) {
        in = trial->out[rank] + (request.collective == MUSTER_ALLGATHER ? own : 0);
        trial->results[rank] += request.collective == MUSTER_REDUCE_SCATTER ? own : 0;
    }
    for (uint64_t i = 0; i < input_count(trial); i++) {
        in[i] = input_of(rank, i);
    }
    request.in = in;
    request.out = trial->results[rank];
    struct muster_started_call *started = NULL;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    muster_status status = trial->starts ? muster_context_start(context, &request, &started)
                                         : muster_context_run(context, &request, NULL);
    if (status == MUSTER_OK && trial->starts) {
        status = muster_started_call_end(started, NULL);
    }
    if (status != MUSTER_OK) {
        group_fail(member, "%s: %s", trial->algorithm, muster_last_error());
    }
    for (uint64_t i = 0; !trial->in_place && i < input_count(trial); i++) {
        if (in[i] != input_of(rank, i)) {
            group_fail(member, "%s: input %llu was changed", trial->algorithm,
                       (unsigned long long)i);
            return;
        }
    }
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
    trial->starts = test_random_below(random, 3) == 0;
    muster_algorithm_print(algorithm, trial->algorithm, sizeof trial->algorithm);
    const struct muster_plan plan = {
        .collective = row->collective, .topology = topology, .count = trial->request.count};
    bool compressed = row->collective == MUSTER_ALLREDUCE || row->collective == MUSTER_ALLGATHER ||
                      row->collective == MUSTER_REDUCE_SCATTER;
    return compressed && !row->memory && muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

static void run_all(enum group_transport transport, uint32_t hosts, const uint32_t *host_sizes)
{
    struct group group;
    struct trial trial = {.starts = false};
    uint64_t random = seed;
    uint32_t tried = 0;
    uint32_t rounded = 0;
    group_start(&group, transport, hosts, host_sizes, NULL);
    trial.ranks = group.size;
    allocate(&trial);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (uint32_t round = 0; round < 3; round++) {
            if (draw(&trial, algorithm, &group.topology, &random)) {
                group_each(&group, make_call, &trial);
                rounded += check(&trial);
                tried++;
            }
        }
    }
    release(&trial);
    group_finish(&group);
    assert_true(tried > 30);
    assert_true(rounded > tried / 2); /* otherwise nothing was encoded */
}

static void every_algorithm_gives_equal_bits_within_the_bound(void **state)
{
    static const uint32_t one_host[] = {4};
    static const uint32_t ragged[] = {3, 1, 2};
    static const uint32_t two[] = {1, 1};
    (void)state;
    run_all(GROUP_INPROC, 1, one_host);
    run_all(GROUP_INPROC, 3, ragged);
    run_all(GROUP_TCP, 2, two);
    run_all(GROUP_TCP, 3, ragged);
    run_all(GROUP_SHM, 1, one_host);
}

/* Runs one allreduce, and returns whether its result was rounded to the compression. */
static bool is_compressed(enum group_transport transport, struct muster_request request,
                          uint32_t ranks)
{
    struct group group;
    struct trial trial = {.request = request, .ranks = ranks};
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
    refuse(&group, request, "allreduce: compression int8 of prod: only sum, average, min and max");
    request = largest_request(10);
    request.type = MUSTER_INT32;
    refuse(&group, request, "compression int8 of int32: only float32");
    request = largest_request(10);
    request.collective = MUSTER_BROADCAST;
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
    refuse(&group, request, "there is no compression");
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_gives_equal_bits_within_the_bound),
        cmocka_unit_test(a_call_is_compressed_where_that_is_predicted_to_be_faster),
        cmocka_unit_test(calls_that_cannot_be_compressed_are_refused),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
