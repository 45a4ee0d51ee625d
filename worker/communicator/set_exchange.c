/*
 * The exchange of the members of a process set: an allreduce by AND of some bytes.
 *
 *   at  bytes
 *   0   1      bits: the candidates that are free at this member
 *   1   1      autotune: 0 or 1 \  of the first member; all bits are set at the others, so that AND
 *   2   136    its cost model   /  gives its value
 */
#include "worker/communicator/set_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/call/request.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"
#include "worker/communicator/figures_wire.h"
#include "worker/communicator/set_numbers.h"
#include "worker/executor/executor.h"

enum {
    AT_CANDIDATES = 0,
    AT_AUTOTUNE = 1,
    AT_MODEL = 2,
    TERMS_BYTES = AT_MODEL + MUSTER_COST_MODEL_SIZE,
};

static void encode(const struct muster_set_exchange *exchange, const struct muster_set_terms *terms,
                   unsigned char bytes[TERMS_BYTES])
{
    memset(bytes, 0xff, TERMS_BYTES);
    bytes[AT_CANDIDATES] = terms->free_candidates;
    if (exchange->rank == 0) {
        bytes[AT_AUTOTUNE] = terms->autotunes;
        muster_cost_model_encode(&terms->model, bytes + AT_MODEL);
    }
}

static muster_status decode(const unsigned char bytes[TERMS_BYTES], struct muster_set_terms *terms)
{
    if (bytes[AT_CANDIDATES] == 0) {
        return muster_error_set(MUSTER_INVALID,
                                "each of its %d numbers belongs to another set of a member",
                                MUSTER_SET_CANDIDATES);
    }
    TRY(muster_cost_model_decode(bytes + AT_MODEL, MUSTER_COST_MODEL_SIZE, &terms->model));
    terms->free_candidates = bytes[AT_CANDIDATES];
    terms->candidate = (uint32_t)__builtin_ctz(bytes[AT_CANDIDATES]);
    terms->autotunes = bytes[AT_AUTOTUNE] == 1;
    return MUSTER_OK;
}

/* The allreduce, with a signature of its own. */
static muster_status prepare(const struct muster_set_exchange *exchange,
                             const struct muster_request_key *key, struct muster_launch *launch)
{
    TRY(muster_request_check(key, exchange->rank, exchange->count, launch));
    launch->generation = exchange->generation;
    muster_set_creation_key(exchange->name, exchange->creation, &launch->context,
                            &launch->sequence);
    launch->call.flags = MUSTER_CALL_SET;
    launch->call.algorithm = key->algorithm;
    launch->call.root = exchange->count;
    launch->call.count =
        MUSTER_CALL_LISTED | muster_set_list_checksum(exchange->members, exchange->count);
    launch->call.prescale = 1;
    launch->call.postscale = 1;
    launch->reduction = (struct muster_reduction){
        .type = MUSTER_UINT8, .op = MUSTER_BITWISE_AND, .prescale = 1, .postscale = 1};
    launch->deadline_ns = exchange->deadline_ns;
    return MUSTER_OK;
}

/* By the members' order alone: their hosts do not matter for so few bytes. */
static muster_status run(const struct muster_set_exchange *exchange,
                         const struct muster_topology *topology,
                         const struct muster_request_key *key, struct muster_launch *launch,
                         uint32_t *ret_suspect)
{
    const struct muster_plan plan = {.collective = MUSTER_ALLREDUCE,
                                     .topology = topology,
                                     .rank = exchange->rank,
                                     .count = TERMS_BYTES};
    struct muster_schedule schedule;
    struct muster_operation *operation = NULL;
    TRY(muster_schedule_generate(key->algorithm, &plan, &schedule));
    AUTO_FREE void *scratch = malloc(schedule.scratch_count + 1);
    if (scratch == NULL) {
        muster_schedule_finish(&schedule);
        return muster_error_set(MUSTER_FATAL, "no memory to create process set %s", exchange->name);
    }
    launch->scratch = scratch;
    TRY(muster_operation_create(exchange->fabric, &schedule, exchange->members, &operation));
    muster_status status = muster_operation_run(operation, launch, ret_suspect);
    muster_operation_destroy(operation);
    return status == MUSTER_RETRY ? MUSTER_REJOIN : status;
}

muster_status muster_set_agree(const struct muster_set_exchange *exchange,
                               struct muster_set_terms *terms, uint32_t *ret_suspect)
{
    unsigned char mine[TERMS_BYTES];
    unsigned char all[TERMS_BYTES];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = mine,
                                           .out = all,
                                           .count = TERMS_BYTES,
                                           .type = MUSTER_UINT8,
                                           .op = MUSTER_BITWISE_AND,
                                           .algorithm = "recursive_doubling"};
    struct muster_request_key key;
    struct muster_launch launch = {.in = mine, .out = all};
    struct muster_topology topology;
    *ret_suspect = UINT32_MAX;
    encode(exchange, terms, mine);
    if (exchange->count == 1) {
        return decode(mine, terms);
    }
    TRY(muster_request_key(&request, exchange->count, &key));
    TRY(prepare(exchange, &key, &launch));
    launch.in = mine;
    launch.out = all;
    TRY(muster_topology_init(1, &exchange->count, &topology));
    muster_status status = run(exchange, &topology, &key, &launch, ret_suspect);
    muster_topology_finish(&topology);
    return status == MUSTER_OK ? decode(all, terms) : status;
}
