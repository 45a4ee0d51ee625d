/* muster plan: parses the request from the command line. */
#include "worker/cli/plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "worker/base/cleanup.h"
#include "worker/base/option_parse.h"
#include "worker/cli/print.h"

static muster_status parse_count(const char *what, const char *text, uint64_t *ret_count)
{
    char *end = NULL;
    errno = 0;
    unsigned long long count = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return muster_error_set(MUSTER_INVALID, "%s: \"%.64s\" is not a number of elements", what,
                                text);
    }
    *ret_count = count;
    return MUSTER_OK;
}

/* "3,1,4" */
static muster_status parse_sizes(const char *what, const char *text, uint32_t **ret_sizes,
                                 uint32_t *ret_count)
{
    AUTO_FREE uint32_t *sizes = calloc(strlen(text) + 1, sizeof *sizes);
    AUTO_FREE char *copy = strdup(text);
    if (copy == NULL || sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: no memory", what);
    }
    uint32_t count = 0;
    for (char *rest = copy; rest != NULL;) {
        const char *size = strsep(&rest, ",");
        TRY(muster_option_parse_number(what, size, 1, MUSTER_RANKS_MAX, &sizes[count++]));
    }
    *ret_sizes = TAKE(sizes);
    *ret_count = count;
    return MUSTER_OK;
}

static muster_status parse_ragged_hosts(const char *text, uint32_t ranks,
                                        struct muster_topology *ret_topology)
{
    AUTO_FREE uint32_t *sizes = NULL;
    uint32_t hosts = 0;
    TRY(parse_sizes("--hosts", text, &sizes, &hosts));
    struct muster_topology topology = {0};
    TRY(muster_topology_init(hosts, sizes, &topology));
    if (ranks != 0 && ranks != topology.ranks) {
        uint32_t sum = topology.ranks;
        muster_topology_finish(&topology);
        return muster_error_set(
            MUSTER_INVALID, "--ranks %" PRIu32 " and --hosts with %" PRIu32 " ranks do not agree",
            ranks, sum);
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

/* "2": the number of racks; "2,1": the number of hosts in each rack. */
static muster_status parse_racks(const char *text, struct muster_topology *topology)
{
    AUTO_FREE uint32_t *sizes = NULL;
    uint32_t racks = 0;
    TRY(parse_sizes("--racks", text, &sizes, &racks));
    if (racks == 1) {
        racks = sizes[0];
        if (racks > topology->hosts) {
            return muster_error_set(MUSTER_INVALID,
                                    "--racks: %" PRIu32 " hosts cannot fill %" PRIu32 " racks",
                                    topology->hosts, racks);
        }
        free(TAKE(sizes));
        sizes = calloc(racks, sizeof *sizes);
        if (sizes == NULL) {
            return muster_error_set(MUSTER_FATAL, "--racks: no memory");
        }
        for (uint32_t rack = 0; rack < racks; rack++) {
            struct muster_span hosts = {.count = topology->hosts};
            sizes[rack] = (uint32_t)muster_span_part(hosts, racks, rack).count;
        }
    }
    muster_status status = muster_topology_set_racks(topology, racks, sizes);
    return status == MUSTER_OK ? status : muster_error_prefix(status, "--racks");
}

static muster_status parse_topology(const struct muster_plan_options *options,
                                    struct muster_topology *topology)
{
    uint32_t ranks = 0;
    uint32_t hosts = 1;
    bool ragged = options->hosts != NULL && strchr(options->hosts, ',') != NULL;
    if (options->ranks != NULL) {
        TRY(muster_option_parse_number("--ranks", options->ranks, 1, MUSTER_RANKS_MAX, &ranks));
    } else if (!ragged) {
        return muster_error_set(MUSTER_INVALID,
                                "the number of ranks is missing: --ranks P or --hosts A,B,...");
    }
    if (ragged) {
        TRY(parse_ragged_hosts(options->hosts, ranks, topology));
    } else {
        if (options->hosts != NULL) {
            TRY(muster_option_parse_number("--hosts", options->hosts, 1, MUSTER_RANKS_MAX, &hosts));
        }
        TRY(muster_topology_init_even(ranks, hosts, topology));
    }
    return options->racks == NULL ? MUSTER_OK : parse_racks(options->racks, topology);
}

static bool needs_blocks(enum muster_collective collective)
{
    return collective == MUSTER_ALLGATHERV || collective == MUSTER_GATHERV ||
           collective == MUSTER_ALLTOALLV;
}

/* The bounds of blocks with these sizes. Without a text, all blocks have the count of the call. */
static muster_status parse_blocks(const char *text, uint64_t count, uint32_t ranks,
                                  uint64_t *ret_bounds)
{
    AUTO_FREE char *copy = text == NULL ? NULL : strdup(text);
    if (text != NULL && copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "--blocks: no memory");
    }
    char *rest = copy;
    ret_bounds[0] = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint64_t size = count;
        if (text != NULL && rest == NULL) {
            return muster_error_set(
                MUSTER_INVALID, "--blocks: %" PRIu32 " blocks, but %" PRIu32 " ranks need one each",
                rank, ranks);
        }
        if (text != NULL) {
            TRY(parse_count("--blocks", strsep(&rest, ","), &size));
        }
        if (__builtin_add_overflow(ret_bounds[rank], size, &ret_bounds[rank + 1])) {
            return muster_error_set(MUSTER_INVALID,
                                    "--blocks: together over the limit of %" PRIu64 " elements",
                                    (uint64_t)MUSTER_ELEMENTS_MAX);
        }
    }
    return rest == NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "--blocks: more blocks than the %" PRIu32 " ranks", ranks);
}

/* In an alltoallv each rank receives the block with its own number from all ranks. */
static muster_status spread_alltoallv_blocks(struct muster_plan_request *request)
{
    size_t ranks = request->topology.ranks;
    request->output_bounds = calloc(ranks * (ranks + 1), sizeof *request->output_bounds);
    if (request->output_bounds == NULL) {
        return muster_error_set(MUSTER_FATAL, "--blocks: no memory for %zu ranks", ranks);
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        uint64_t size = request->bounds[rank + 1] - request->bounds[rank];
        uint64_t *bounds = &request->output_bounds[rank * (ranks + 1)];
        for (size_t from = 0; from < ranks; from++) {
            if (__builtin_add_overflow(bounds[from], size, &bounds[from + 1])) {
                return muster_error_set(MUSTER_INVALID,
                                        "--blocks: together over the limit of %" PRIu64 " elements",
                                        (uint64_t)MUSTER_ELEMENTS_MAX);
            }
        }
    }
    return MUSTER_OK;
}

/* Blocks are optional in a reduce_scatter and needed by the collectives with a v. Other collectives
 * have no blocks of different sizes. */
muster_status muster_plan_request_block(const struct muster_plan_options *options,
                                        struct muster_plan_request *request)
{
    const struct muster_plan *plan = &request->plan;
    bool needed = needs_blocks(plan->collective);
    if (options->blocks == NULL && !needed) {
        return MUSTER_OK;
    }
    uint32_t ranks = request->topology.ranks;
    if (ranks > MUSTER_PLAN_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s with blocks: %" PRIu32 " ranks, at most %d",
                                muster_collective_name(plan->collective), ranks,
                                MUSTER_PLAN_RANKS_MAX);
    }
    if (!needed && plan->collective != MUSTER_REDUCE_SCATTER) {
        return muster_error_set(MUSTER_INVALID,
                                "%s has no blocks of different sizes: allgatherv, gatherv, "
                                "alltoallv and reduce_scatter do",
                                muster_collective_name(plan->collective));
    }
    request->bounds = calloc((size_t)ranks + 1, sizeof *request->bounds);
    if (request->bounds == NULL) {
        return muster_error_set(MUSTER_FATAL, "--blocks: no memory");
    }
    TRY(parse_blocks(options->blocks, plan->count, ranks, request->bounds));
    return plan->collective == MUSTER_ALLTOALLV ? spread_alltoallv_blocks(request) : MUSTER_OK;
}

/* Two elements for the part of each rank in a vector, or one for each block. */
static uint64_t default_count(const struct muster_plan *plan)
{
    struct muster_shape one = {.collective = plan->collective,
                               .ranks = plan->topology->ranks,
                               .rank = plan->root,
                               .root = plan->root,
                               .count = 1};
    if (plan->collective == MUSTER_BARRIER) {
        return 0;
    }
    bool blocks = muster_shape_input_count(&one) > 1 || muster_shape_output_count(&one) > 1;
    return blocks || needs_blocks(plan->collective) ? 1 : 2 * (uint64_t)plan->topology->ranks;
}

static muster_status parse_call(const struct muster_plan_options *options,
                                struct muster_plan_request *request)
{
    struct muster_plan *plan = &request->plan;
    uint32_t last = request->topology.ranks - 1;
    static const struct muster_memory_reach reach = {.staging_bytes = 256 << 10, .buffers = true};
    plan->memory = options->shared_memory ? &reach : NULL;
    plan->in_place = options->in_place || options->keep_input;
    plan->keep_input = options->keep_input;
    plan->finish_together = options->finish_together;
    if (options->root != NULL) {
        TRY(muster_option_parse_number("--root", options->root, 0, last, &plan->root));
    }
    if (options->rank != NULL) {
        TRY(muster_option_parse_number("--rank", options->rank, 0, last, &plan->rank));
        request->one_rank = true;
    }
    plan->count = default_count(plan);
    if (options->count != NULL) {
        TRY(parse_count("--count", options->count, &plan->count));
    }
    return muster_plan_request_block(options, request);
}

muster_status muster_plan_request_read(const struct muster_plan_options *options,
                                       struct muster_plan_request *request)
{
    struct muster_plan *plan = &request->plan;
    if (options->collective == NULL) {
        return muster_error_set(MUSTER_INVALID, "a collective is missing; --list prints them");
    }
    TRY(muster_collective_parse(options->collective, &plan->collective));
    TRY(parse_topology(options, &request->topology));
    plan->topology = &request->topology;
    TRY(parse_call(options, request));
    struct muster_plan any = muster_plan_for_rank(request, 0);
    const struct muster_shape shape = muster_plan_shape(&any);
    TRY(muster_shape_check(&shape));
    if (options->algorithm != NULL) {
        TRY(muster_algorithm_find(plan->collective, options->algorithm, &request->algorithm));
        return muster_plan_check(request->algorithm, &any);
    }
    request->chosen = true;
    return muster_select(&any, MUSTER_PLAN_ELEMENT_SIZE_BYTES, &muster_cost_model_default,
                         &request->algorithm);
}

void muster_plan_request_finish(struct muster_plan_request *request)
{
    muster_topology_finish(&request->topology);
    free(request->bounds);
    free(request->output_bounds);
    *request = (struct muster_plan_request){0};
}

struct muster_plan muster_plan_for_rank(const struct muster_plan_request *request, uint32_t rank)
{
    struct muster_plan plan = request->plan;
    plan.rank = rank;
    if (request->output_bounds != NULL) {
        plan.input_bounds = request->bounds;
        plan.output_bounds =
            &request->output_bounds[(size_t)rank * ((size_t)request->topology.ranks + 1)];
    } else if (plan.collective == MUSTER_REDUCE_SCATTER) {
        plan.input_bounds = request->bounds;
    } else {
        plan.output_bounds = request->bounds;
    }
    return plan;
}

/* " (4,4)"; nothing for a single one. */
static void print_sizes(uint32_t count, const uint32_t *sizes, FILE *out)
{
    enum { SHOWN_MAX = 16 };
    for (uint32_t i = 0; count > 1 && i < count && i < SHOWN_MAX; i++) {
        (void)fprintf(out, "%s%" PRIu32, i == 0 ? " (" : ",", sizes[i]);
    }
    (void)fprintf(out, "%s", count <= 1 ? "" : count > SHOWN_MAX ? ",...)" : ")");
}

/* Leaves out what is as usual: one rack, no root, not in place, no promises. */
void muster_plan_request_print(const struct muster_plan_request *request, FILE *out)
{
    const struct muster_topology *topology = &request->topology;
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(request->algorithm, name, sizeof name);
    (void)fprintf(out, "%s %s, P = %" PRIu32 " on %" PRIu32 " host%s",
                  muster_collective_name(request->plan.collective), name, topology->ranks,
                  topology->hosts, muster_cli_plural(topology->hosts));
    print_sizes(topology->hosts, topology->host_sizes, out);
    if (topology->racks > 1) {
        (void)fprintf(out, " in %" PRIu32 " racks", topology->racks);
        print_sizes(topology->racks, topology->rack_sizes, out);
    }
    if (request->bounds != NULL) {
        (void)fprintf(out, ", %" PRIu64 " elements in blocks",
                      request->bounds[request->topology.ranks]);
    } else {
        (void)fprintf(out, ", count %" PRIu64, request->plan.count);
    }
    if (muster_collective_has_root(request->plan.collective)) {
        (void)fprintf(out, ", root %" PRIu32, request->plan.root);
    }
    if (request->plan.in_place) {
        (void)fprintf(out, ", in place%s", request->plan.keep_input ? ", input kept" : "");
    }
    if (request->plan.finish_together) {
        (void)fprintf(out, ", finishing together");
    }
}
