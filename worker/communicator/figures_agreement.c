/* The agreement on link figures: a broadcast of rank 0's choice, and measuring if that is the
 * choice. */
#include "worker/communicator/figures_agreement.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/communicator/figures_wire.h"

static muster_status broadcast(const struct muster_figures_group *group,
                               struct muster_figures_choice *choice, uint32_t *ret_suspect)
{
    unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE] = {0};
    if (group->rank == 0) {
        muster_figures_choice_encode(choice, bytes);
    }
    const struct muster_context_options options = {
        .fabric = group->fabric,
        .generation = group->generation,
        .number = group->context,
        .name = "figures",
        .topology = group->topology,
        .ranks = group->peers,
        .rank = group->rank,
        .model = &muster_cost_model_default,
    };
    const struct muster_request request = {
        .collective = MUSTER_BROADCAST,
        .algorithm = "binomial", /* choosing one by cost would take longer than the broadcast */
        .in = bytes,
        .out = bytes,
        .count = sizeof bytes,
        .type = MUSTER_UINT8,
        .deadline_ns = muster_clock_after_ms(group->timeout_ms),
    };
    struct muster_context *context;
    TRY(muster_context_create(&options, &context));
    muster_status status = muster_context_run(context, &request, ret_suspect);
    muster_context_destroy(context);
    TRY(status);
    status = muster_figures_choice_decode(bytes, sizeof bytes, choice);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "rank 0");
}

static void replace_invalid(const struct muster_figures_group *group,
                            struct muster_figures *figures)
{
    if (muster_figures_check(figures) == MUSTER_OK) {
        return;
    }
    muster_figures_init(figures);
    if (group->rank == 0) {
        muster_log(MUSTER_LOG_WARN, "%s: the default figures are used", muster_last_error());
    }
}

static muster_status measure(const struct muster_figures_group *group,
                             struct muster_figures *figures, uint32_t *ret_suspect)
{
    const struct muster_measure_options options = {
        .fabric = group->fabric,
        .generation = group->generation,
        .context = group->context + 1,
        .topology = group->topology,
        .rank = group->rank,
        .peers = group->peers,
        .deadline_ns = muster_clock_after_ms(group->timeout_ms),
    };
    int64_t start_ns = muster_clock_ns();
    TRY(muster_measure(&options, &figures->model, ret_suspect));
    figures->hosts_digest = group->hosts_digest;
    figures->shape_digest = group->shape_digest;
    figures->levels = muster_measure_levels(group->topology);
    figures->tuned.count = 0;
    replace_invalid(group, figures);
    if (group->rank == 0) {
        muster_log(MUSTER_LOG_INFO, "links measured in %.1f ms",
                   (double)(muster_clock_ns() - start_ns) / 1e6);
    }
    return MUSTER_OK;
}

muster_status muster_figures_agree(const struct muster_figures_group *group,
                                   struct muster_figures_choice *choice, uint32_t *ret_suspect)
{
    TRY(broadcast(group, choice, ret_suspect));
    replace_invalid(group, &choice->figures);
    if (choice->measure) {
        TRY(measure(group, &choice->figures, ret_suspect));
    }
    if (!muster_figures_match(&choice->figures, group->topology, group->hosts_digest,
                              group->shape_digest)) {
        choice->figures.tuned.count = 0;
    }
    return MUSTER_OK;
}
