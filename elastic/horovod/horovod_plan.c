/* A plan from its text, and the ranks that follow from it. */
#include "elastic/horovod/horovod_plan.h"

#include "worker/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SLOT_DIGITS_MAX = 4, SHOWN_BYTES = 80 };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool muster_horovod_host_valid(const char *name, size_t size_bytes)
{
    if (size_bytes == 0 || size_bytes >= MUSTER_HOROVOD_HOST_SIZE) {
        return false;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '_') {
            return false;
        }
    }
    return true;
}

uint32_t muster_horovod_plan_find(const struct muster_horovod_plan *plan, const char *host)
{
    for (uint32_t i = 0; i < plan->host_count; i++) {
        if (strcmp(plan->hosts[i].name, host) == 0) {
            return i;
        }
    }
    return MUSTER_HOROVOD_NONE;
}

/* 0: not a number, or one of too many digits. */
static uint32_t parse_slots(const char *text, size_t digits)
{
    uint32_t slots = 0;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9' || i == SLOT_DIGITS_MAX) {
            return 0;
        }
        slots = 10 * slots + (uint32_t)(text[i] - '0');
    }
    return slots;
}

/* One "HOST:SLOTS". */
static muster_status parse_host(const char *text, size_t size_bytes,
                                struct muster_horovod_host *ret_host)
{
    int shown = (int)(size_bytes < SHOWN_BYTES ? size_bytes : SHOWN_BYTES);
    const char *colon = memchr(text, ':', size_bytes);
    size_t name_bytes = colon != NULL ? (size_t)(colon - text) : size_bytes;
    if (colon == NULL || !muster_horovod_host_valid(text, name_bytes)) {
        return muster_error_set(MUSTER_INVALID, "plan: \"%.*s\" is not HOST:SLOTS", shown, text);
    }
    uint32_t slots = parse_slots(colon + 1, size_bytes - name_bytes - 1);
    if (slots == 0 || slots > MUSTER_HOROVOD_SLOTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "plan: \"%.*s\": slots must be 1 to %d", shown,
                                text, MUSTER_HOROVOD_SLOTS_MAX);
    }
    memcpy(ret_host->name, text, name_bytes);
    ret_host->name[name_bytes] = '\0';
    ret_host->slot_count = slots;
    return MUSTER_OK;
}

static muster_status add_host(struct muster_horovod_plan *plan,
                              const struct muster_horovod_host *host)
{
    if (plan->host_count == MUSTER_HOROVOD_HOSTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "plan: more than %d hosts",
                                MUSTER_HOROVOD_HOSTS_MAX);
    }
    if (muster_horovod_plan_find(plan, host->name) != MUSTER_HOROVOD_NONE) {
        return muster_error_set(MUSTER_INVALID, "plan: host %s comes twice", host->name);
    }
    if (plan->size + host->slot_count > MUSTER_HOROVOD_SLOTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "plan: more than %d slots",
                                MUSTER_HOROVOD_SLOTS_MAX);
    }
    plan->hosts[plan->host_count++] = *host;
    plan->size += host->slot_count;
    return MUSTER_OK;
}

muster_status muster_horovod_plan_parse(const char *text, size_t size_bytes,
                                        struct muster_horovod_plan *ret_plan)
{
    while (size_bytes > 0 && is_space(text[size_bytes - 1])) {
        size_bytes--;
    }
    while (size_bytes > 0 && is_space(text[0])) {
        text++;
        size_bytes--;
    }
    AUTO_FREE struct muster_horovod_host *hosts = calloc(MUSTER_HOROVOD_HOSTS_MAX, sizeof *hosts);
    if (hosts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    struct muster_horovod_plan plan = {.hosts = hosts};
    const char *end = text + size_bytes;
    for (;;) {
        struct muster_horovod_host host = {0};
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *until = comma != NULL ? comma : end;
        TRY(parse_host(text, (size_t)(until - text), &host));
        TRY(add_host(&plan, &host));
        if (comma == NULL) {
            break;
        }
        text = comma + 1;
    }
    return muster_horovod_plan_copy(&plan, ret_plan);
}

muster_status muster_horovod_plan_copy(const struct muster_horovod_plan *plan,
                                       struct muster_horovod_plan *ret_plan)
{
    size_t size_bytes = plan->host_count * sizeof *plan->hosts;
    struct muster_horovod_host *hosts = malloc(size_bytes > 0 ? size_bytes : 1);
    if (hosts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (size_bytes > 0) {
        memcpy(hosts, plan->hosts, size_bytes);
    }
    *ret_plan = *plan;
    ret_plan->hosts = hosts;
    return MUSTER_OK;
}

void muster_horovod_plan_finish(struct muster_horovod_plan *plan)
{
    free(plan->hosts);
    *plan = (struct muster_horovod_plan){0};
}

struct muster_horovod_ranks muster_horovod_plan_ranks(const struct muster_horovod_plan *plan,
                                                      uint32_t host_index, uint32_t local_rank)
{
    struct muster_horovod_ranks ranks = {.rank = local_rank,
                                         .size = plan->size,
                                         .local_rank = local_rank,
                                         .local_size = plan->hosts[host_index].slot_count};
    for (uint32_t i = 0; i < plan->host_count; i++) {
        bool has_it = plan->hosts[i].slot_count > local_rank;
        ranks.cross_size += has_it ? 1 : 0;
        if (i < host_index) {
            ranks.rank += plan->hosts[i].slot_count;
            ranks.cross_rank += has_it ? 1 : 0;
        }
    }
    return ranks;
}

void muster_horovod_ranks_format(const struct muster_horovod_ranks *ranks,
                                 char ret_text[MUSTER_HOROVOD_RANKS_SIZE])
{
    if (ranks->rank == MUSTER_HOROVOD_NONE) {
        (void)snprintf(ret_text, MUSTER_HOROVOD_RANKS_SIZE, "-1,-1,-1,-1,-1,-1");
        return;
    }
    (void)snprintf(ret_text, MUSTER_HOROVOD_RANKS_SIZE,
                   "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32,
                   ranks->rank, ranks->size, ranks->local_rank, ranks->local_size,
                   ranks->cross_rank, ranks->cross_size);
}
