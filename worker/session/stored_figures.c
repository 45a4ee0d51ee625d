/* Link figures as JSON, and stored as values of the job on the service. */
#include "worker/session/stored_figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elastic/messages/messages.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"

void muster_figures_key(uint32_t hosts_digest, char ret_key[MUSTER_FIGURES_KEY_SIZE])
{
    (void)snprintf(ret_key, MUSTER_FIGURES_KEY_SIZE, "figures.%08x", hosts_digest);
}

/* Writing -------------------------------------------------------------------------------------- */

static json_t *encode_link(const struct muster_link_figures *link)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "latency_us", link->latency_us, "posting_us",
                     link->posting_us, "bandwidth_GBps", link->bandwidth_GBps, "shared_GBps",
                     link->shared_GBps);
}

/* Algorithms and collectives are stored by name, as their numbers differ between versions. NULL: no
 * memory.
 */
static json_t *encode_tuned(const struct muster_tuned_list *list)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct muster_tuned *tuned = &list->items[i];
        enum muster_collective collective = (enum muster_collective)tuned->collective;
        json_t *item =
            json_pack("{s:s, s:s, s:i, s:I, s:b}", "collective", muster_collective_name(collective),
                      "algorithm", muster_algorithms[tuned->algorithm].name, "size_class",
                      (int)tuned->size_class, "element_size_bytes",
                      (json_int_t)tuned->element_size_bytes, "ordered", (int)tuned->ordered);
        if (json_array_append_new(array, item) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *muster_figures_encode(const struct muster_figures *figures)
{
    const struct muster_cost_model *model = &figures->model;
    json_t *object = json_pack(
        "{s:{s:f, s:f, s:I, s:b}, s:I, s:I, s:I}", "core", "reduce_GBps", model->core.reduce_GBps,
        "copy_GBps", model->core.copy_GBps, "cores", (json_int_t)model->core.cores, "one_machine",
        (int)model->core.one_machine, "eager_bytes", (json_int_t)model->eager_bytes, "hosts",
        (json_int_t)figures->hosts_digest, "shape", (json_int_t)figures->shape_digest);
    for (unsigned level = 0; object != NULL && level < MUSTER_LEVEL_COUNT; level++) {
        if ((figures->levels & 1U << level) != 0 &&
            json_object_set_new(object, muster_level_name(level),
                                encode_link(&model->links[level])) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    if (object != NULL && figures->tuned.count > 0 &&
        json_object_set_new(object, "tuned", encode_tuned(&figures->tuned)) != 0) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

/* Reading -------------------------------------------------------------------------------------- */

static muster_status malformed(const json_error_t *error)
{
    return muster_error_set(MUSTER_INVALID, "link figures: %s", error->text);
}

static muster_status decode_link(json_t *object, struct muster_link_figures *link)
{
    json_error_t error;
    return json_unpack_ex(object, &error, JSON_STRICT, "{s:F, s:F, s:F, s:F}", "latency_us",
                          &link->latency_us, "posting_us", &link->posting_us, "bandwidth_GBps",
                          &link->bandwidth_GBps, "shared_GBps", &link->shared_GBps) == 0
               ? MUSTER_OK
               : malformed(&error);
}

/* An algorithm or collective that this version does not know is left out. */
static muster_status decode_tuned_item(json_t *item, struct muster_tuned_list *list)
{
    const char *collective_name;
    const char *algorithm_name;
    json_int_t size_class;
    json_int_t size_bytes;
    int ordered;
    json_error_t error;
    enum muster_collective collective;
    size_t algorithm;
    if (json_unpack_ex(item, &error, 0, "{s:s, s:s, s:I, s:I, s:b}", "collective", &collective_name,
                       "algorithm", &algorithm_name, "size_class", &size_class,
                       "element_size_bytes", &size_bytes, "ordered", &ordered) != 0) {
        return malformed(&error);
    }
    if (size_class < 0 || size_class > UINT16_MAX || size_bytes < 0 || size_bytes > UINT32_MAX) {
        return muster_error_set(MUSTER_INVALID, "tuned: a number is out of range");
    }
    if (muster_collective_parse(collective_name, &collective) != MUSTER_OK ||
        muster_algorithm_find(collective, algorithm_name, &algorithm) != MUSTER_OK) {
        return MUSTER_OK;
    }
    list->items[list->count++] = (struct muster_tuned){.collective = (uint8_t)collective,
                                                       .ordered = ordered != 0,
                                                       .size_class = (uint16_t)size_class,
                                                       .element_size_bytes = (uint32_t)size_bytes,
                                                       .algorithm = (uint32_t)algorithm};
    return MUSTER_OK;
}

/* NULL, from an older version: the list is empty. */
static muster_status decode_tuned(json_t *array, struct muster_tuned_list *list)
{
    size_t count = json_array_size(array);
    if (count > MUSTER_TUNED_MAX) {
        return muster_error_set(MUSTER_INVALID, "tuned: %zu are more than %d", count,
                                MUSTER_TUNED_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        TRY(decode_tuned_item(json_array_get(array, i), list));
    }
    return MUSTER_OK;
}

static muster_status decode_object(json_t *object, struct muster_figures *figures)
{
    struct muster_cost_model *model = &figures->model;
    json_error_t error;
    json_int_t cores = 0;
    int one_machine = 0;
    json_int_t eager_bytes = 0;
    json_int_t hosts = 0;
    json_int_t shape = 0;
    if (json_unpack_ex(object, &error, 0, "{s:{s:F, s:F, s:I, s:b}, s:I, s:I, s:I}", "core",
                       "reduce_GBps", &model->core.reduce_GBps, "copy_GBps", &model->core.copy_GBps,
                       "cores", &cores, "one_machine", &one_machine, "eager_bytes", &eager_bytes,
                       "hosts", &hosts, "shape", &shape) != 0) {
        return malformed(&error);
    }
    if (cores < 0 || cores > UINT32_MAX || eager_bytes < 0 || hosts < 0 || hosts > UINT32_MAX ||
        shape < 0 || shape > UINT32_MAX) {
        return muster_error_set(MUSTER_INVALID, "link figures: a number is out of range");
    }
    model->core.cores = (uint32_t)cores;
    model->core.one_machine = one_machine != 0 ? 1 : 0;
    model->eager_bytes = (uint64_t)eager_bytes;
    figures->hosts_digest = (uint32_t)hosts;
    figures->shape_digest = (uint32_t)shape;
    TRY(decode_tuned(json_object_get(object, "tuned"), &figures->tuned));
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        json_t *link = json_object_get(object, muster_level_name(level));
        if (link != NULL) {
            TRY(decode_link(link, &model->links[level]));
            figures->levels |= 1U << level;
        }
    }
    return muster_figures_check(figures);
}

muster_status muster_figures_decode(const void *text, size_t size_bytes,
                                    struct muster_figures *ret_figures)
{
    struct muster_figures figures;
    json_t *object = NULL;
    muster_figures_init(&figures);
    TRY(muster_json_parse(text, size_bytes, &object));
    muster_status status = decode_object(object, &figures);
    json_decref(object);
    TRY(status);
    *ret_figures = figures;
    return MUSTER_OK;
}

/* On the service ------------------------------------------------------------------------------- */

static muster_status call(struct muster_client *client, enum muster_rpc_method method,
                          const struct muster_value_request *request, uint32_t timeout_ms,
                          json_t **ret_answer, enum muster_rpc_code *ret_code)
{
    const struct muster_retry_policy retry_policy = {
        .attempt_ms = timeout_ms, .deadline_ns = muster_clock_after_ms(timeout_ms), .attempts = 1};
    return muster_client_call(client, method, muster_value_request_encode(request), &retry_policy,
                              ret_answer, ret_code);
}

/* The fields that Get and Put have in common. */
static struct muster_value_request make_request(const char *job, const char *key)
{
    struct muster_value_request request = {0};
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    (void)snprintf(request.key, sizeof request.key, "%s", key);
    return request;
}

muster_status muster_figures_get(struct muster_client *client, const char *job, const char *key,
                                 uint32_t timeout_ms, struct muster_figures *ret_figures)
{
    const struct muster_value_request request = make_request(job, key);
    struct muster_value_response response = {0};
    json_t *answer = NULL;
    enum muster_rpc_code code = MUSTER_RPC_OK;
    muster_status status = call(client, MUSTER_RPC_GET, &request, timeout_ms, &answer, &code);
    if (code == MUSTER_RPC_NOT_FOUND) {
        muster_figures_init(ret_figures);
        return MUSTER_OK;
    }
    TRY(status);
    status = muster_value_response_decode(answer, &response);
    json_decref(answer);
    TRY(status);
    status = muster_figures_decode(response.value, response.value_size, ret_figures);
    muster_value_response_finish(&response);
    return status;
}

muster_status muster_figures_put(struct muster_client *client, const char *job, const char *key,
                                 uint32_t timeout_ms, const struct muster_figures *figures)
{
    struct muster_value_request request = make_request(job, key);
    json_t *json = muster_figures_encode(figures);
    json_t *answer = NULL;
    request.value = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (request.value == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for link figures");
    }
    request.value_size = strlen(request.value);
    muster_status status = call(client, MUSTER_RPC_PUT, &request, timeout_ms, &answer, NULL);
    free(request.value);
    TRY(status);
    json_decref(answer);
    return MUSTER_OK;
}
