/* What the ranks of a benchmark put in, and what must come out. Small whole numbers that repeat, so
 * that any order of reduction gives the same and 128 ranks' sum fits into a byte. */
#include "worker/cli/bench.h"

#include <inttypes.h>
#include <math.h>

#include "worker/base/status.h"

enum { PERIOD = 64 };

static double value_of(const struct muster_request *request, uint32_t rank, uint64_t index)
{
    uint64_t phase = (index + rank) % PERIOD;
    return request->op == MUSTER_PROD ? (phase == 0 ? 2 : 1) : (double)(phase % 2);
}

static double reduced(const struct muster_request *request, uint32_t ranks, uint64_t index)
{
    double result = value_of(request, 0, index);
    for (uint32_t i = 1; i < ranks; i++) {
        double value = value_of(request, i, index);
        switch (request->op) {
        case MUSTER_PROD:
            result *= value;
            break;
        case MUSTER_MIN:
            result = fmin(result, value);
            break;
        case MUSTER_MAX:
            result = fmax(result, value);
            break;
        case MUSTER_SUM:
        case MUSTER_AVERAGE:
            result += value;
            break;
        }
    }
    if (request->op == MUSTER_AVERAGE) {
        bool is_float = request->type == MUSTER_FLOAT32 || request->type == MUSTER_FLOAT64;
        result = is_float ? result / ranks : trunc(result / ranks);
    }
    return result;
}

void muster_bench_fill(const struct muster_request *request, void *in, uint32_t rank,
                       uint32_t ranks)
{
    double values[PERIOD];
    for (uint64_t i = 0; i < PERIOD; i++) {
        values[i] = value_of(request, rank, i);
    }
    uint64_t count = muster_collective_input_count(request->collective, request->count, ranks);
    for (uint64_t i = 0; i < count; i++) {
        muster_type_store(in, i, request->type, values[i % PERIOD]);
    }
}

/* The values that out[first..first + count) must have repeat in `values`. */
static muster_status check_range(const struct muster_request *request, uint64_t first,
                                 uint64_t count, const double *values)
{
    for (uint64_t i = 0; i < count; i++) {
        double got = muster_type_load(request->out, first + i, request->type);
        double wanted = values[i % PERIOD];
        if (fabs(got - wanted) > 1e-6 * fabs(wanted)) {
            return muster_error_set(
                MUSTER_FATAL, "wrong result: element %" PRIu64 " of %s is %g, not %g", first + i,
                muster_collective_name(request->collective), got, wanted);
        }
    }
    return MUSTER_OK;
}

muster_status muster_bench_check(const struct muster_request *request, uint32_t rank,
                                 uint32_t ranks)
{
    double values[PERIOD];
    if (request->collective == MUSTER_ALLGATHER) {
        for (uint32_t block = 0; block < ranks; block++) {
            for (uint64_t i = 0; i < PERIOD; i++) {
                values[i] = value_of(request, block, i);
            }
            TRY(check_range(request, block * request->count, request->count, values));
        }
        return MUSTER_OK;
    }
    uint64_t first = request->collective == MUSTER_REDUCE_SCATTER ? rank * request->count : 0;
    for (uint64_t i = 0; i < PERIOD; i++) {
        values[i] = request->collective == MUSTER_BROADCAST ? value_of(request, request->root, i)
                                                            : reduced(request, ranks, first + i);
    }
    return check_range(request, 0, request->count, values);
}
