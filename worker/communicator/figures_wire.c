/* Link figures as bytes: encoded, and decoded with checks. */
#include "worker/communicator/figures_wire.h"

#include <assert.h>
#include <string.h>

#include "worker/base/bytes.h"
#include "worker/base/status.h"

/* Places in a record; figures_wire.h has the tables. */
enum {
    AT_MACHINE = 0,
    AT_CORE_SET = 8,
    AT_USABLE = 16,
    AT_ONLINE = 24,

    AT_REDUCE = 0,
    AT_COPY = 8,
    AT_CORES = 16,
    AT_ONE_MACHINE = 20,
    AT_LINKS = 24,
    LINK_SIZE = 32,
    AT_LATENCY = 0, /* in a link */
    AT_POSTING = 8,
    AT_BANDWIDTH = 16,
    AT_SHARED = 24,
    AT_BURST = AT_LINKS + LINK_SIZE * MUSTER_LEVEL_COUNT,
    AT_EAGER = AT_BURST + 8,

    AT_MODEL = 0,
    AT_LEVELS = MUSTER_COST_MODEL_SIZE,
    AT_HOSTS_DIGEST = AT_LEVELS + 4,
    AT_SHAPE_DIGEST = AT_LEVELS + 8,
    AT_TUNED_COUNT = AT_LEVELS + 12,
    AT_TUNED = AT_LEVELS + 16,
    TUNED_SIZE = 12,
    AT_COLLECTIVE = 0, /* in a tuned algorithm */
    AT_ORDERED = 1,
    AT_SIZE_CLASS = 2,
    AT_ELEMENT_SIZE = 4,
    AT_ALGORITHM = 8,
    AT_FLAGS = AT_TUNED + TUNED_SIZE * MUSTER_TUNED_MAX,
};

_Static_assert(AT_EAGER + 8 == MUSTER_COST_MODEL_SIZE, "the record of a cost model");
_Static_assert(AT_FLAGS + 4 == MUSTER_FIGURES_CHOICE_SIZE, "the record of a choice");

enum { FLAG_MEASURE = 1, FLAG_AUTOTUNE = 2, FLAG_OUTDATED = 4, FLAGS_ALL = 7 };

/* Descriptions of cores ------------------------------------------------------------------------ */

void muster_core_description_encode(const struct muster_core_description *description,
                                    unsigned char ret_bytes[MUSTER_CORE_DESCRIPTION_SIZE])
{
    muster_bytes_put_double(ret_bytes + AT_MACHINE, description->machine);
    muster_bytes_put_double(ret_bytes + AT_CORE_SET, description->core_set);
    muster_bytes_put_double(ret_bytes + AT_USABLE, description->cores);
    muster_bytes_put_double(ret_bytes + AT_ONLINE, description->online);
}

struct muster_core_description
muster_core_description_decode(const unsigned char bytes[MUSTER_CORE_DESCRIPTION_SIZE])
{
    return (struct muster_core_description){
        .machine = muster_bytes_get_double(bytes + AT_MACHINE),
        .core_set = muster_bytes_get_double(bytes + AT_CORE_SET),
        .cores = muster_bytes_get_double(bytes + AT_USABLE),
        .online = muster_bytes_get_double(bytes + AT_ONLINE),
    };
}

/* Cost models ---------------------------------------------------------------------------------- */

static void encode_link(const struct muster_link_figures *link, unsigned char *bytes)
{
    muster_bytes_put_double(bytes + AT_LATENCY, link->latency_us);
    muster_bytes_put_double(bytes + AT_POSTING, link->posting_us);
    muster_bytes_put_double(bytes + AT_BANDWIDTH, link->bandwidth_GBps);
    muster_bytes_put_double(bytes + AT_SHARED, link->shared_GBps);
}

static struct muster_link_figures decode_link(const unsigned char *bytes)
{
    return (struct muster_link_figures){
        .latency_us = muster_bytes_get_double(bytes + AT_LATENCY),
        .posting_us = muster_bytes_get_double(bytes + AT_POSTING),
        .bandwidth_GBps = muster_bytes_get_double(bytes + AT_BANDWIDTH),
        .shared_GBps = muster_bytes_get_double(bytes + AT_SHARED),
    };
}

void muster_cost_model_encode(const struct muster_cost_model *model,
                              unsigned char ret_bytes[MUSTER_COST_MODEL_SIZE])
{
    muster_bytes_put_double(ret_bytes + AT_REDUCE, model->core.reduce_GBps);
    muster_bytes_put_double(ret_bytes + AT_COPY, model->core.copy_GBps);
    muster_bytes_put(ret_bytes + AT_CORES, model->core.cores, 4);
    muster_bytes_put(ret_bytes + AT_ONE_MACHINE, model->core.one_machine, 4);
    for (size_t level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        encode_link(&model->links[level], ret_bytes + AT_LINKS + level * LINK_SIZE);
    }
    muster_bytes_put(ret_bytes + AT_BURST, model->burst_bytes, 8);
    muster_bytes_put(ret_bytes + AT_EAGER, model->eager_bytes, 8);
}

muster_status muster_cost_model_decode(const unsigned char *bytes, size_t size_bytes,
                                       struct muster_cost_model *ret_model)
{
    TRY(muster_bytes_check_size("link figures", size_bytes, MUSTER_COST_MODEL_SIZE));
    uint32_t one_machine = (uint32_t)muster_bytes_get(bytes + AT_ONE_MACHINE, 4);
    if (one_machine > 1) {
        return muster_error_set(MUSTER_FATAL, "link figures: \"one machine\" is %u, not 0 or 1",
                                one_machine);
    }
    struct muster_cost_model model = {
        .core = {.reduce_GBps = muster_bytes_get_double(bytes + AT_REDUCE),
                 .copy_GBps = muster_bytes_get_double(bytes + AT_COPY),
                 .cores = (uint32_t)muster_bytes_get(bytes + AT_CORES, 4),
                 .one_machine = one_machine},
        .burst_bytes = muster_bytes_get(bytes + AT_BURST, 8),
        .eager_bytes = muster_bytes_get(bytes + AT_EAGER, 8),
    };
    for (size_t level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        model.links[level] = decode_link(bytes + AT_LINKS + level * LINK_SIZE);
    }
    *ret_model = model;
    return MUSTER_OK;
}

/* Choices -------------------------------------------------------------------------------------- */

static void encode_tuned(const struct muster_tuned *tuned, unsigned char *bytes)
{
    bytes[AT_COLLECTIVE] = tuned->collective;
    bytes[AT_ORDERED] = tuned->ordered;
    muster_bytes_put(bytes + AT_SIZE_CLASS, tuned->size_class, 2);
    muster_bytes_put(bytes + AT_ELEMENT_SIZE, tuned->element_size_bytes, 4);
    muster_bytes_put(bytes + AT_ALGORITHM, tuned->algorithm, 4);
}

void muster_figures_choice_encode(const struct muster_figures_choice *choice,
                                  unsigned char ret_bytes[MUSTER_FIGURES_CHOICE_SIZE])
{
    const struct muster_figures *figures = &choice->figures;
    unsigned flags = (choice->measure ? FLAG_MEASURE : 0U) |
                     (choice->autotune ? FLAG_AUTOTUNE : 0U) |
                     (choice->outdated ? FLAG_OUTDATED : 0U);
    assert(figures->tuned.count <= MUSTER_TUNED_MAX);
    memset(ret_bytes, 0, MUSTER_FIGURES_CHOICE_SIZE);
    muster_cost_model_encode(&figures->model, ret_bytes + AT_MODEL);
    muster_bytes_put(ret_bytes + AT_LEVELS, figures->levels, 4);
    muster_bytes_put(ret_bytes + AT_HOSTS_DIGEST, figures->hosts_digest, 4);
    muster_bytes_put(ret_bytes + AT_SHAPE_DIGEST, figures->shape_digest, 4);
    muster_bytes_put(ret_bytes + AT_TUNED_COUNT, figures->tuned.count, 4);
    for (size_t i = 0; i < figures->tuned.count; i++) {
        encode_tuned(&figures->tuned.items[i], ret_bytes + AT_TUNED + i * TUNED_SIZE);
    }
    muster_bytes_put(ret_bytes + AT_FLAGS, flags, 4);
}

static muster_status decode_tuned(const unsigned char *bytes, struct muster_tuned *ret_tuned)
{
    const struct muster_tuned tuned = {
        .collective = bytes[AT_COLLECTIVE],
        .ordered = bytes[AT_ORDERED],
        .size_class = (uint16_t)muster_bytes_get(bytes + AT_SIZE_CLASS, 2),
        .element_size_bytes = (uint32_t)muster_bytes_get(bytes + AT_ELEMENT_SIZE, 4),
        .algorithm = (uint32_t)muster_bytes_get(bytes + AT_ALGORITHM, 4),
    };
    if (tuned.collective >= MUSTER_COLLECTIVE_END || tuned.ordered > 1) {
        return muster_error_set(MUSTER_FATAL,
                                "link figures: a tuned algorithm of collective %u, ordered %u",
                                tuned.collective, tuned.ordered);
    }
    *ret_tuned = tuned;
    return MUSTER_OK;
}

static muster_status decode_tuned_list(const unsigned char *bytes,
                                       struct muster_tuned_list *ret_list)
{
    uint32_t count = (uint32_t)muster_bytes_get(bytes + AT_TUNED_COUNT, 4);
    if (count > MUSTER_TUNED_MAX) {
        return muster_error_set(MUSTER_FATAL, "link figures: %u tuned algorithms, at most %d",
                                count, MUSTER_TUNED_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        TRY(decode_tuned(bytes + AT_TUNED + i * TUNED_SIZE, &ret_list->items[i]));
    }
    ret_list->count = count;
    return MUSTER_OK;
}

muster_status muster_figures_choice_decode(const unsigned char *bytes, size_t size_bytes,
                                           struct muster_figures_choice *ret_choice)
{
    TRY(muster_bytes_check_size("choice of link figures", size_bytes, MUSTER_FIGURES_CHOICE_SIZE));
    uint32_t flags = (uint32_t)muster_bytes_get(bytes + AT_FLAGS, 4);
    if (flags > FLAGS_ALL) {
        return muster_error_set(MUSTER_FATAL, "choice of link figures: unknown flags %x", flags);
    }
    struct muster_figures_choice choice = {
        .figures = {.levels = (uint32_t)muster_bytes_get(bytes + AT_LEVELS, 4),
                    .hosts_digest = (uint32_t)muster_bytes_get(bytes + AT_HOSTS_DIGEST, 4),
                    .shape_digest = (uint32_t)muster_bytes_get(bytes + AT_SHAPE_DIGEST, 4)},
        .measure = (flags & FLAG_MEASURE) != 0,
        .autotune = (flags & FLAG_AUTOTUNE) != 0,
        .outdated = (flags & FLAG_OUTDATED) != 0,
    };
    TRY(muster_cost_model_decode(bytes + AT_MODEL, MUSTER_COST_MODEL_SIZE, &choice.figures.model));
    TRY(decode_tuned_list(bytes, &choice.figures.tuned));
    *ret_choice = choice;
    return MUSTER_OK;
}
