/* The environment of a worker, with the variables by which it finds its job. */
#include "worker/cli/run/environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MS_PER_S = 1000, CAPACITY_STEP = 64 };

/* The index of the entry with this name; count: there is none. */
static size_t find(const struct muster_environment *environment, const char *entry)
{
    size_t name_bytes = strcspn(entry, "=") + 1;
    size_t i = 0;
    while (i < environment->count && strncmp(environment->entries[i], entry, name_bytes) != 0) {
        i++;
    }
    return i;
}

/* Takes the entry; NULL: it could not be allocated. */
static muster_status put(struct muster_environment *environment, char *entry)
{
    if (entry != NULL && environment->count + 1 >= environment->capacity) {
        size_t capacity = environment->capacity + CAPACITY_STEP;
        char **entries = realloc(environment->entries, capacity * sizeof *entries);
        if (entries == NULL) {
            free(entry);
            entry = NULL;
        } else {
            environment->entries = entries;
            environment->capacity = capacity;
        }
    }
    if (entry == NULL) {
        return muster_error_set(MUSTER_FATAL, "a worker's environment: out of memory");
    }
    size_t index = find(environment, entry);
    if (index < environment->count) {
        free(environment->entries[index]);
    } else {
        environment->count++;
    }
    environment->entries[index] = entry;
    environment->entries[environment->count] = NULL;
    return MUSTER_OK;
}

static muster_status set(struct muster_environment *environment, const char *format, ...)
    MUSTER_PRINTF(2, 3);

static muster_status set(struct muster_environment *environment, const char *format, ...)
{
    char *entry = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&entry, format, arguments);
    va_end(arguments);
    return put(environment, length < 0 ? NULL : entry);
}

static muster_status set_job(struct muster_environment *environment,
                             const struct muster_supervisor *supervisor,
                             const struct muster_worker *worker)
{
    const struct muster_run_options *options = supervisor->options;
    TRY(set(environment, "MUSTER_RENDEZVOUS=%s", supervisor->url));
    TRY(set(environment, "MUSTER_JOB=%s", options->job));
    TRY(set(environment, "MUSTER_MIN=%u", options->min_size));
    TRY(set(environment, "MUSTER_MAX=%u", options->max_size));
    TRY(set(environment, "MUSTER_TARGET=%u", options->target_size));
    TRY(set(environment, "MUSTER_ORDER=%u", worker->index));
    TRY(set(environment, "MUSTER_SLOT=%u", worker->slot));
    if (supervisor->token[0] != '\0') {
        TRY(set(environment, "MUSTER_TOKEN=%s", supervisor->token));
    }
    if (worker->host != NULL) {
        TRY(set(environment, "MUSTER_HOST=%s", worker->host->name));
    }
    if (options->timeout_s > 0) {
        TRY(set(environment, "MUSTER_JOIN_TIMEOUT_MS=%u", options->timeout_s * MS_PER_S));
    }
    return MUSTER_OK;
}

static muster_status fill(struct muster_environment *environment,
                          const struct muster_supervisor *supervisor,
                          const struct muster_worker *worker)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        TRY(put(environment, strdup(*entry)));
    }
    TRY(set_job(environment, supervisor, worker));
    for (uint32_t i = 0; i < supervisor->options->env_count; i++) {
        TRY(put(environment, strdup(supervisor->options->env[i])));
    }
    return MUSTER_OK;
}

muster_status muster_environment_init(const struct muster_supervisor *supervisor,
                                      const struct muster_worker *worker,
                                      struct muster_environment *ret_environment)
{
    struct muster_environment environment = {0};
    muster_status status = fill(&environment, supervisor, worker);
    if (status != MUSTER_OK) {
        muster_environment_finish(&environment);
        return status;
    }
    *ret_environment = environment;
    return MUSTER_OK;
}

void muster_environment_finish(struct muster_environment *environment)
{
    for (size_t i = 0; i < environment->count; i++) {
        free(environment->entries[i]);
    }
    free(environment->entries);
    *environment = (struct muster_environment){0};
}
