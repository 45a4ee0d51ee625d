/* muster plan: the list of algorithms, and all output as JSON, one object a line. */
#include "worker/cli/plan/plan.h"

#include "collectives/schedule/group_step.h"
#include "worker/cli/print.h"

#include <inttypes.h>

#include <jansson.h>

static json_t *pack_aliases(const struct muster_algorithm *row)
{
    json_t *aliases = json_array();
    for (size_t i = 0; i < MUSTER_ALIASES_MAX && row->aliases[i].name != NULL; i++) {
        json_t *alias = json_pack("{s:s, s:s}", "library", row->aliases[i].library, "name",
                                  row->aliases[i].name);
        if (json_array_append_new(aliases, alias) != 0) {
            json_decref(aliases);
            return NULL;
        }
    }
    return aliases;
}

/* All algorithms can make both promises: this is what it takes, if anything. */
static const char *needed_to_keep_input(const struct muster_algorithm *row)
{
    return muster_collective_overwrites_input(row->collective) ? "scratch" : "";
}

static const char *needed_to_finish_together(const struct muster_algorithm *row)
{
    return muster_collective_synchronizes(row->collective) ? "" : "closing round";
}

static void print_needed(const char *promise, const char *needed)
{
    if (needed[0] != '\0') {
        (void)printf(" [%s: %s]", promise, needed);
    }
}

static muster_status print_row(const struct muster_algorithm *row, bool json)
{
    const char *collective = muster_collective_name(row->collective);
    if (json) {
        return muster_cli_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "collective", collective,
                      "algorithm", row->name, "what", row->what, "rounds",
                      muster_algorithm_rounds_text(row), "elements",
                      muster_algorithm_elements_text(row), "best_for", row->best_for, "keep_input",
                      needed_to_keep_input(row), "finish_together", needed_to_finish_together(row),
                      "aliases", pack_aliases(row)),
            MUSTER_CLI_TIME_DIGITS);
    }
    char aliases[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print_aliases(row, aliases, sizeof aliases);
    (void)printf("%-17s  %-25s  %s", collective, row->name, row->what);
    print_needed("keep-input", needed_to_keep_input(row));
    print_needed("finish-together", needed_to_finish_together(row));
    (void)printf("%s%s\n", aliases[0] == '\0' ? "" : "; also: ", aliases);
    return MUSTER_OK;
}

muster_status muster_plan_print_list(bool json)
{
    for (int collective = 1; collective < MUSTER_COLLECTIVE_END; collective++) {
        for (size_t i = 0; i < muster_algorithm_count; i++) {
            if ((int)muster_algorithms[i].collective == collective) {
                TRY(print_row(&muster_algorithms[i], json));
            }
        }
    }
    return MUSTER_OK;
}

muster_status muster_plan_print_verdict_json(const struct muster_plan_request *request,
                                             const struct muster_check_result *verdict)
{
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(request->algorithm, name, sizeof name);
    return muster_cli_print_json(
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:I, s:I, s:I}", "collective",
                  muster_collective_name(request->plan.collective), "algorithm", name, "ranks",
                  (json_int_t)request->topology.ranks, "hosts", (json_int_t)request->topology.hosts,
                  "count", (json_int_t)request->plan.count, "keep_input",
                  (int)request->plan.keep_input, "finish_together",
                  (int)request->plan.finish_together, "proven", (int)verdict->proven, "why",
                  verdict->why, "rounds", (json_int_t)verdict->rounds, "elements_sent_max",
                  (json_int_t)verdict->elements_sent_max, "messages_sent_max",
                  (json_int_t)verdict->messages_sent_max),
        MUSTER_CLI_TIME_DIGITS);
}

muster_status muster_plan_print_time_json(const struct muster_plan_request *request,
                                          size_t algorithm, double time_us, bool chosen)
{
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(algorithm, name, sizeof name);
    return muster_cli_print_json(
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:b}", "collective",
                  muster_collective_name(request->plan.collective), "algorithm", name, "ranks",
                  (json_int_t)request->topology.ranks, "hosts", (json_int_t)request->topology.hosts,
                  "bytes", (json_int_t)request->plan.count * MUSTER_PLAN_ELEMENT_SIZE_BYTES,
                  "predicted_us", time_us, "chosen", (int)chosen),
        MUSTER_CLI_TIME_DIGITS);
}

/* Fields that the kind of step does not use are left out, and times without --simulate. */
static json_t *pack_step(const struct muster_plan_scene *scene, uint32_t rank, size_t index)
{
    const struct muster_step *step = &scene->set->schedules[rank].steps[index];
    const struct muster_step_ranges ranges =
        muster_step_ranges(&scene->set->shapes[rank], &scene->set->schedules[rank], step);
    bool group = muster_step_is_group(step);
    bool peer = muster_step_is_message(step) || muster_step_has_root(step);
    bool reads = ranges.reads;
    bool writes = ranges.writes;
    struct muster_step_times times = {0};
    if (scene->times != NULL) {
        times = muster_simulation_times(scene->times->simulation, rank)[index];
    }
    return json_pack("{s:I, s:I, s:I, s:s, s:I, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*}",
                     "rank", (json_int_t)rank, "lane", (json_int_t)step->lane, "round",
                     (json_int_t)step->round, "kind", muster_step_kind_name(step->kind), "count",
                     (json_int_t)step->span.count, "peer", peer ? json_integer(step->peer) : NULL,
                     "scope", group ? json_string(muster_step_scope_name(step->scope)) : NULL,
                     "source", reads ? json_string(muster_buffer_name(step->source)) : NULL,
                     "offset", reads ? json_integer((json_int_t)step->span.offset) : NULL, "target",
                     writes ? json_string(muster_buffer_name(step->target)) : NULL, "at",
                     writes ? json_integer((json_int_t)step->at) : NULL, "start_us",
                     scene->times != NULL ? json_real(times.start_us) : NULL, "end_us",
                     scene->times != NULL ? json_real(times.end_us) : NULL);
}

muster_status muster_plan_print_steps_json(const struct muster_plan_scene *scene)
{
    for (uint32_t rank = 0; rank < scene->set->ranks; rank++) {
        if (scene->request->one_rank && scene->request->plan.rank != rank) {
            continue;
        }
        for (size_t i = 0; i < scene->set->schedules[rank].step_count; i++) {
            TRY(muster_cli_print_json(pack_step(scene, rank, i), MUSTER_CLI_TIME_DIGITS));
        }
    }
    return MUSTER_OK;
}
