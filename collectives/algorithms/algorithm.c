/* Algorithms by number and by name; what a plan must fulfil; making one rank's schedule. */
#include "collectives/algorithms/algorithm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/promises.h"
#include "collectives/schedule/builder.h"
#include "worker/base/status.h"

/* Numbers ------------------------------------------------------------------------------------- */

enum { ROW_BITS = 8 };
_Static_assert(1 << ROW_BITS == MUSTER_ALGORITHM_ROWS_MAX, "the row is the lowest bits");

/* NULL: there is no algorithm of this number. */
static const struct muster_algorithm *row_of(size_t algorithm)
{
    size_t row = algorithm % MUSTER_ALGORITHM_ROWS_MAX;
    bool varied = algorithm >> ROW_BITS != 0;
    if (row >= muster_algorithm_count || algorithm > UINT32_MAX ||
        (varied && muster_algorithms[row].variants == NULL)) {
        return NULL;
    }
    return &muster_algorithms[row];
}

bool muster_algorithm_uses_memory(size_t algorithm)
{
    const struct muster_algorithm *row = row_of(algorithm);
    return row != NULL && row->memory;
}

bool muster_algorithm_is_of_device(size_t algorithm)
{
    const struct muster_algorithm *row = row_of(algorithm);
    return row != NULL && row->on_device != NULL;
}

bool muster_device_group_fits(size_t algorithm, const struct muster_plan *plan)
{
    char why[MUSTER_ERROR_MAX];
    return muster_algorithm_is_of_device(algorithm) && muster_device_plan_fits(plan) &&
           muster_algorithm_fits(algorithm, plan, why, sizeof why);
}

/* The plan with the variant of the algorithm's number. */
static struct muster_plan vary(size_t algorithm, const struct muster_plan *plan)
{
    struct muster_plan varied = *plan;
    uint32_t variant = (uint32_t)(algorithm >> ROW_BITS);
    varied.variant = variant != 0 ? variant : row_of(algorithm)->variant;
    return varied;
}

bool muster_algorithm_fits(size_t algorithm, const struct muster_plan *plan, char *ret_why,
                           size_t size)
{
    const struct muster_plan varied = vary(algorithm, plan);
    if (plan->reduction_order != NULL && !row_of(algorithm)->reproducible) {
        (void)snprintf(ret_why, size, "its order of reduction depends on ranks and hosts");
        return false;
    }
    return row_of(algorithm)->fits(&varied, ret_why, size);
}

void muster_algorithm_formula(size_t algorithm, const struct muster_plan *plan,
                              struct muster_formula *ret_formula)
{
    const struct muster_plan varied = vary(algorithm, plan);
    row_of(algorithm)->generator->formula(&varied, ret_formula);
    if (muster_promise_needs_closing(&varied)) {
        muster_promise_add_closing_formula(&varied, ret_formula);
    }
}

struct muster_shape muster_algorithm_shape(size_t algorithm, const struct muster_plan *plan)
{
    const struct muster_plan varied = vary(algorithm, plan);
    return muster_plan_shape(&varied);
}

/* Names --------------------------------------------------------------------------------------- */

void muster_algorithm_print(size_t algorithm, char *ret_name, size_t size)
{
    const struct muster_algorithm *row = row_of(algorithm);
    uint32_t variant = (uint32_t)(algorithm >> ROW_BITS);
    char text[MUSTER_ALGORITHM_NAME_SIZE] = "";
    if (row != NULL && variant != 0) {
        row->variants->print(variant, text, sizeof text);
    }
    (void)snprintf(ret_name, size, "%s%s%s%s", row == NULL ? "unknown" : row->name,
                   text[0] == '\0' ? "" : "(", text, text[0] == '\0' ? "" : ")");
}

/* Lists the names of a collective's algorithms that fit the plan; all names if there is no plan. */
static void list_names(enum muster_collective collective, const struct muster_plan *plan,
                       char *ret_names, size_t size)
{
    size_t used = 0;
    ret_names[0] = '\0';
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        char why[MUSTER_ERROR_MAX];
        if (row->collective != collective || used >= size ||
            (plan != NULL && !muster_algorithm_fits(i, plan, why, sizeof why))) {
            continue;
        }
        used += (size_t)snprintf(ret_names + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                 row->name);
    }
}

static bool begins_with_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(word, text, length) == 0;
}

bool muster_algorithm_is_named(const struct muster_algorithm *row, const char *name)
{
    size_t length = strcspn(name, "(");
    bool found = begins_with_word(name, length, row->name);
    for (size_t i = 0; !found && i < MUSTER_ALIASES_MAX && row->aliases[i].name != NULL; i++) {
        found = begins_with_word(name, length, row->aliases[i].name);
    }
    return found;
}

void muster_algorithm_print_aliases(const struct muster_algorithm *row, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < MUSTER_ALIASES_MAX && row->aliases[i].name != NULL && used < size; i++) {
        const struct muster_alias *alias = &row->aliases[i];
        bool same = i > 0 && strcmp(row->aliases[i - 1].library, alias->library) == 0;
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s%s%s", i == 0 ? "" : ", ",
                                 same ? "" : alias->library, same ? "" : "'s ", alias->name);
    }
}

/* text is "(local=ring,cross=swing)". */
static muster_status find_variant(const struct muster_algorithm *row, const char *text,
                                  uint32_t *ret_variant)
{
    size_t length = strlen(text);
    char inner[MUSTER_ALGORITHM_NAME_SIZE];
    if (row->variants == NULL) {
        return muster_error_set(MUSTER_INVALID, "algorithm %s takes nothing in brackets",
                                row->name);
    }
    if (text[length - 1] != ')' || length - 1 > sizeof inner) {
        return muster_error_set(MUSTER_INVALID, "algorithm %s%.64s: the closing bracket is missing",
                                row->name, text);
    }
    (void)snprintf(inner, sizeof inner, "%.*s", (int)length - 2, text + 1);
    muster_status status = row->variants->parse(inner, ret_variant);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "algorithm %s", row->name);
}

muster_status muster_algorithm_find(enum muster_collective collective, const char *name,
                                    size_t *ret_algorithm)
{
    size_t length = strcspn(name, "(");
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        if (row->collective != collective || !muster_algorithm_is_named(row, name)) {
            continue;
        }
        uint32_t variant = 0;
        if (name[length] != '\0') {
            TRY(find_variant(row, name + length, &variant));
        }
        *ret_algorithm = i | (size_t)variant << ROW_BITS;
        return MUSTER_OK;
    }
    char names[512];
    list_names(collective, NULL, names, sizeof names);
    return muster_error_set(MUSTER_INVALID, "%s has no algorithm \"%.64s\"; it has %s",
                            muster_collective_name(collective), name, names);
}

const char *muster_algorithm_rounds_text(const struct muster_algorithm *row)
{
    return row->rounds_text != NULL ? row->rounds_text : row->generator->rounds_text;
}

const char *muster_algorithm_elements_text(const struct muster_algorithm *row)
{
    return row->elements_text != NULL ? row->elements_text : row->generator->elements_text;
}

/* Plans --------------------------------------------------------------------------------------- */

muster_status muster_plan_check(size_t algorithm, const struct muster_plan *plan)
{
    const struct muster_algorithm *row = row_of(algorithm);
    if (row == NULL) {
        return muster_error_set(MUSTER_INVALID, "no algorithm has the number %zu", algorithm);
    }
    if (row->collective != plan->collective) {
        return muster_error_set(MUSTER_INVALID, "algorithm %s does %s, not %s", row->name,
                                muster_collective_name(row->collective),
                                muster_collective_name(plan->collective));
    }
    const struct muster_shape shape = muster_plan_shape(plan);
    TRY(muster_shape_check(&shape));
    char why[MUSTER_ERROR_MAX];
    if (!muster_algorithm_fits(algorithm, plan, why, sizeof why)) {
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        char names[512];
        muster_algorithm_print(algorithm, name, sizeof name);
        list_names(plan->collective, plan, names, sizeof names);
        return muster_error_set(MUSTER_INVALID, "algorithm %s does not fit: %s; these fit: %s",
                                name, why, names);
    }
    return MUSTER_OK;
}

static muster_status add_steps(const struct muster_generator *generator,
                               const struct muster_plan *plan, struct muster_builder *builder)
{
    if (generator->generate != NULL) {
        return generator->generate(plan, builder);
    }
    const struct muster_group all = muster_group_all(plan);
    generator->part(builder, &all, MUSTER_INPUT, (struct muster_span){.count = plan->count});
    return MUSTER_OK;
}

muster_status muster_schedule_generate(size_t algorithm, const struct muster_plan *plan,
                                       struct muster_schedule *ret_schedule)
{
    TRY(muster_plan_check(algorithm, plan));
    const struct muster_plan varied = vary(algorithm, plan);
    const struct muster_plan bare = muster_promise_plan(&varied);
    struct muster_builder builder;
    muster_builder_init(&varied, &builder);
    bool on_device = muster_device_group_fits(algorithm, &varied);
    bool group = on_device || (row_of(algorithm)->memory && muster_whole_group_fits(&varied));
    muster_status status = MUSTER_OK;
    if (on_device) { /* here and below the device keeps the plan's promises */
        row_of(algorithm)->on_device(&varied, &builder);
    } else if (group) {
        muster_whole_group_generate(&varied, &builder);
    } else {
        muster_promise_begin(&varied, &builder);
        status = add_steps(row_of(algorithm)->generator, &bare, &builder);
        muster_promise_end(&varied, &builder);
    }
    if (status != MUSTER_OK && builder.status == MUSTER_OK) {
        builder.status = status;
    }
    struct muster_schedule schedule;
    TRY(muster_builder_finish(&builder, &schedule));
    status = group ? MUSTER_OK : muster_promise_keep(&varied, &schedule);
    if (status != MUSTER_OK) {
        muster_schedule_finish(&schedule);
        return status;
    }
    *ret_schedule = schedule;
    return MUSTER_OK;
}
