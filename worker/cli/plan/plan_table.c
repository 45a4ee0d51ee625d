/* muster plan: all algorithms side by side, by predicted times and by formulas. */
#include "worker/cli/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "worker/cli/print.h"

/* Times ---------------------------------------------------------------------------------------- */

/* False: the algorithm does not fit the request, or is for another collective. */
static bool fits(const struct muster_plan_request *request, size_t algorithm)
{
    char why[MUSTER_ERROR_MAX];
    const struct muster_plan plan = muster_plan_for_rank(request, 0);
    return muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].collective == plan.collective &&
           muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

/* Simulated if `simulate` is set or there are at most MUSTER_SELECT_SIMULATED_RANKS_MAX ranks; else
 * from the formula, as selection predicts for large jobs. */
static muster_status predict_us(const struct muster_plan_request *request, size_t algorithm,
                                bool simulate, double *ret_us)
{
    struct muster_plan_request one = *request;
    one.algorithm = algorithm;
    const struct muster_plan plan = muster_plan_for_rank(&one, 0);
    TRY(muster_plan_check(algorithm, &plan));
    if (!simulate && plan.topology->ranks > MUSTER_SELECT_SIMULATED_RANKS_MAX) {
        *ret_us = muster_cost_formula_us(algorithm, &plan, MUSTER_PLAN_ELEMENT_SIZE_BYTES,
                                         &muster_cost_model_default);
        return MUSTER_OK;
    }
    struct muster_plan_times times = {0};
    TRY(muster_plan_times_create(&one, NULL, &times));
    *ret_us = times.result.total_us;
    muster_plan_times_finish(&times);
    return MUSTER_OK;
}

static muster_status print_time(const struct muster_plan_request *request, size_t algorithm,
                                bool json)
{
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(algorithm, name, sizeof name);
    double time_us = 0;
    TRY(predict_us(request, algorithm, true, &time_us));
    bool chosen = request->chosen && algorithm == request->algorithm;
    if (json) {
        return muster_plan_print_time_json(request, algorithm, time_us, chosen);
    }
    (void)printf("predicted: %-20s %12.2f us%s\n", name, time_us, chosen ? "  <- chosen" : "");
    return MUSTER_OK;
}

muster_status muster_plan_print_times(const struct muster_plan_request *request, bool json)
{
    if (!request->chosen) {
        return print_time(request, request->algorithm, json);
    }
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        if (fits(request, i)) {
            TRY(print_time(request, i, json));
        }
    }
    return MUSTER_OK;
}

enum {
    SIZES = 13,          /* 4 B, 16 B, ..., 64 MiB */
    ALGORITHMS_MAX = 64, /* of one collective */
};

struct table {
    size_t algorithms[ALGORITHMS_MAX];
    size_t count;
    double us[SIZES][ALGORITHMS_MAX];
    size_t best[SIZES]; /* index of the fastest in algorithms */
};

/* The element count of the size with this index. */
static uint64_t count_of(int size)
{
    return UINT64_C(1) << (2 * size);
}

static muster_status predict_all(const struct muster_plan_request *request, struct table *table)
{
    struct muster_plan_request sized = *request;
    for (int size = 0; size < SIZES; size++) {
        sized.plan.count = count_of(size);
        double *us = table->us[size];
        for (size_t i = 0; i < table->count; i++) {
            TRY(predict_us(&sized, table->algorithms[i], false, &us[i]));
            table->best[size] = us[i] < us[table->best[size]] ? i : table->best[size];
        }
    }
    return MUSTER_OK;
}

static muster_status print_table_json(const struct muster_plan_request *request,
                                      const struct table *table)
{
    struct muster_plan_request sized = *request;
    for (int size = 0; size < SIZES; size++) {
        sized.plan.count = count_of(size);
        for (size_t i = 0; i < table->count; i++) {
            TRY(muster_plan_print_time_json(&sized, table->algorithms[i], table->us[size][i],
                                            i == table->best[size]));
        }
    }
    return MUSTER_OK;
}

static int name_width(const struct table *table)
{
    size_t width = strlen("count x 4");
    for (size_t i = 0; i < table->count; i++) {
        size_t length = strlen(muster_algorithms[table->algorithms[i]].name);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_table_head(const struct muster_plan_request *request, int width)
{
    const struct muster_topology *topology = &request->topology;
    (void)printf(
        "%s on %" PRIu32 " ranks and %" PRIu32 " host%s: predicted times, %s; * is the fastest\n",
        muster_collective_name(request->plan.collective), topology->ranks, topology->hosts,
        muster_cli_plural(topology->hosts),
        topology->ranks <= MUSTER_SELECT_SIMULATED_RANKS_MAX ? "simulated" : "by the formulas");
    (void)printf("%-*s", width, "count x 4");
    for (int size = 0; size < SIZES; size++) {
        char text[MUSTER_CLI_UNIT_TEXT_SIZE];
        (void)printf(
            "%9s ", muster_cli_format_bytes(count_of(size) * MUSTER_PLAN_ELEMENT_SIZE_BYTES, text));
    }
    (void)putchar('\n');
}

static void print_table(const struct muster_plan_request *request, const struct table *table)
{
    int width = name_width(table);
    print_table_head(request, width);
    for (size_t i = 0; i < table->count; i++) {
        (void)printf("%-*s", width, muster_algorithms[table->algorithms[i]].name);
        for (int size = 0; size < SIZES; size++) {
            char text[MUSTER_CLI_UNIT_TEXT_SIZE];
            const char *mark = i == table->best[size] ? "*" : size + 1 < SIZES ? " " : "";
            (void)printf("%9s%s", muster_cli_format_us(table->us[size][i], text), mark);
        }
        (void)putchar('\n');
    }
}

muster_status muster_plan_print_table(const struct muster_plan_request *request, bool json)
{
    if (request->bounds != NULL || request->plan.collective == MUSTER_BARRIER) {
        return muster_error_set(MUSTER_INVALID,
                                "--table: %s has no single count; --simulate predicts its time",
                                muster_collective_name(request->plan.collective));
    }
    struct table table = {0};
    for (size_t i = 0; i < muster_algorithm_count && table.count < ALGORITHMS_MAX; i++) {
        if (fits(request, i)) {
            table.algorithms[table.count++] = i;
        }
    }
    TRY(predict_all(request, &table));
    if (json) {
        return print_table_json(request, &table);
    }
    print_table(request, &table);
    return MUSTER_OK;
}

/* Formulas ------------------------------------------------------------------------------------- */

/* The element count of the examples: the number of ranks of each example divides it. */
enum { EXAMPLE_COUNT = 720720 };

/* "6; 1.5n", or only the rounds if the messages are empty. */
static void print_counts(const struct muster_check_result *verdict)
{
    double elements = (double)verdict->elements_sent_max / EXAMPLE_COUNT;
    (void)printf(" %" PRIu32, verdict->rounds);
    if (elements == 1) {
        (void)printf("; n");
    } else if (elements > 0) {
        (void)printf("; %.4gn", elements);
    }
    (void)printf(" |");
}

/* Rounds, and elements that the busiest rank sends, counted in the schedules of `ranks` ranks. */
static muster_status print_example(size_t algorithm, uint32_t ranks, uint32_t hosts)
{
    const struct muster_algorithm *row = &muster_algorithms[algorithm];
    struct muster_plan_request request = {
        .algorithm = algorithm,
        .plan = {.collective = row->collective,
                 .count = row->collective == MUSTER_BARRIER ? 0 : EXAMPLE_COUNT}};
    TRY(muster_topology_init_even(ranks, hosts, &request.topology));
    request.plan.topology = &request.topology;
    struct muster_plan_options options = {0};
    struct muster_plan_set set = {0};
    muster_status status = muster_plan_request_block(&options, &request);
    if (status == MUSTER_OK && !fits(&request, algorithm)) {
        (void)printf(" - |");
    } else if (status == MUSTER_OK) {
        status = muster_plan_set_create(&request, &set);
        if (status == MUSTER_OK) {
            print_counts(&set.verdict);
        }
    }
    muster_plan_set_finish(&set);
    muster_plan_request_finish(&request);
    return status;
}

/* A table in Markdown: the formulas are the algorithm's text, the examples are counted in
 * schedules, so that a reader sees whether both agree. */
muster_status muster_plan_print_formulas(void)
{
    static const struct {
        uint32_t ranks, hosts;
    } examples[] = {{4, 1}, {6, 1}, {8, 1}, {16, 4}};
    (void)printf("| collective | algorithm | rounds | elements sent |");
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        (void)printf(examples[i].hosts == 1 ? " P = %" PRIu32 " |"
                                            : " P = %" PRIu32 ", H = %" PRIu32 " |",
                     examples[i].ranks, examples[i].hosts);
    }
    (void)printf(" best for |\n|---|---|---|---|");
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        (void)printf("---|");
    }
    (void)printf("---|\n");
    for (int collective = 1; collective < MUSTER_COLLECTIVE_END; collective++) {
        for (size_t row = 0; row < muster_algorithm_count; row++) {
            const struct muster_algorithm *algorithm = &muster_algorithms[row];
            if ((int)algorithm->collective != collective) {
                continue;
            }
            (void)printf("| %s | `%s` | %s | %s |", muster_collective_name(algorithm->collective),
                         algorithm->name, muster_algorithm_rounds_text(algorithm),
                         muster_algorithm_elements_text(algorithm));
            for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
                TRY(print_example(row, examples[i].ranks, examples[i].hosts));
            }
            (void)printf(" %s |\n", algorithm->best_for);
        }
    }
    return MUSTER_OK;
}
