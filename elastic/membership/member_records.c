/* The members that are listed and gone, the history of generations and departures, and their texts.
 */
#include "elastic/membership/membership_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct muster_member *muster_records_find(const struct muster_membership *membership,
                                          const char *id)
{
    struct muster_member *member = NULL;
    size_t length = strnlen(id, MUSTER_UUID_SIZE);
    HASH_FIND(hh, membership->by_id, id, length, member);
    return member;
}

void muster_records_format(char ret_why[MUSTER_WHY_SIZE], const char *format, ...)
{
    char text[MUSTER_WHY_SIZE]; /* an argument may be ret_why itself */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' ';
        }
    }
    memcpy(ret_why, text, sizeof text);
}

const char *muster_records_describe(const struct muster_member *member, char text[MUSTER_WHY_SIZE])
{
    if (member->generation == 0) {
        muster_records_format(text, "newcomer (host %s, pid %" PRIu32 ")", member->info->host,
                              member->info->pid);
    } else {
        muster_records_format(text, "rank %" PRIu32 " (host %s, pid %" PRIu32 ")", member->rank,
                              member->info->host, member->info->pid);
    }
    return text;
}

/* Listing ------------------------------------------------------------------------------------- */

static bool grow_array(void **array, size_t count, size_t item_size_bytes)
{
    void *grown = reallocarray(*array, count, item_size_bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    return true;
}

muster_status muster_records_reserve(struct muster_membership *membership, uint32_t count)
{
    struct muster_membership *m = membership;
    if (count <= m->capacity) {
        return MUSTER_OK;
    }
    uint32_t capacity = m->capacity == 0 ? 8 : 2 * m->capacity;
    capacity = count > capacity ? count : capacity;
    if (!grow_array((void **)&m->listed, capacity, sizeof(struct muster_member *)) ||
        !grow_array((void **)&m->members, capacity, sizeof *m->members) ||
        !grow_array((void **)&m->host_sizes, capacity, sizeof *m->host_sizes) ||
        !grow_array((void **)&m->stale, capacity, sizeof *m->stale) ||
        !grow_array((void **)&m->candidates, capacity, sizeof *m->candidates)) {
        return muster_error_set(MUSTER_FATAL, "no memory for %" PRIu32 " members", capacity);
    }
    m->capacity = capacity;
    return MUSTER_OK;
}

static void free_member(struct muster_member *member)
{
    if (member != NULL) {
        free(member->info);
        free(member);
    }
}

static struct muster_member *new_member(const struct muster_member_info *info)
{
    struct muster_member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        return NULL;
    }
    member->info = malloc(sizeof *member->info);
    if (member->info == NULL) {
        free_member(member);
        return NULL;
    }
    *member->info = *info;
    memcpy(member->id, info->id, sizeof member->id);
    return member;
}

/* Hosts ---------------------------------------------------------------------------------------- */

const struct muster_listed_host *muster_records_host(const struct muster_membership *membership,
                                                     const char *name)
{
    struct muster_listed_host *host = NULL;
    HASH_FIND_STR(membership->hosts, name, host);
    return host;
}

/* Counts one more listed member of the host that info names. NULL: no memory. */
static struct muster_listed_host *hold_host(struct muster_membership *m,
                                            const struct muster_member_info *info)
{
    struct muster_listed_host *host = NULL;
    HASH_FIND_STR(m->hosts, info->host, host);
    if (host == NULL) {
        host = calloc(1, sizeof *host);
        if (host == NULL) {
            return NULL;
        }
        memcpy(host->name, info->host, sizeof host->name);
        HASH_ADD_STR(m->hosts, name, host);
        if (host->hh.tbl == NULL) {
            free(host);
            return NULL;
        }
    }
    if (host->members == 0 || strcmp(host->rack, info->rack) != 0) {
        memcpy(host->rack, info->rack, sizeof host->rack); /* the only member may change it */
    }
    host->members++;
    return host;
}

static void release_host(struct muster_membership *m, struct muster_listed_host *host)
{
    if (--host->members == 0) {
        HASH_DEL(m->hosts, host);
        free(host);
    }
}

muster_status muster_records_set_info(struct muster_membership *membership,
                                      struct muster_member *member,
                                      const struct muster_member_info *info)
{
    struct muster_listed_host *host = hold_host(membership, info);
    if (host == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for host %s", info->host);
    }
    muster_slots_release(membership, member);
    release_host(membership, member->host);
    member->host = host;
    *member->info = *info;
    muster_slots_take(membership, member);
    return MUSTER_OK;
}

static bool add_to_hash(struct muster_membership *m, struct muster_member *member)
{
    HASH_ADD_KEYPTR(hh, m->by_id, member->id, strlen(member->id), member);
    return member->hh.tbl != NULL;
}

muster_status muster_records_add(struct muster_membership *membership,
                                 const struct muster_member_info *info,
                                 struct muster_member **ret_member)
{
    struct muster_membership *m = membership;
    TRY(muster_records_reserve(m, m->count + 1));
    struct muster_member *member = new_member(info);
    struct muster_listed_host *host = member != NULL ? hold_host(m, info) : NULL;
    if (host == NULL || !add_to_hash(m, member)) {
        if (host != NULL) {
            release_host(m, host);
        }
        free_member(member);
        return muster_error_set(MUSTER_FATAL, "no memory for member %s", info->id);
    }
    member->host = host;
    muster_slots_take(m, member);
    member->phase = MUSTER_MEMBER_ARRIVED;
    member->joined_ms = m->now_ms;
    member->arrival = m->arrivals++;
    member->seniority = MUSTER_NEWCOMER;
    m->listed[m->count++] = member;
    m->arrived++;
    *ret_member = member;
    return MUSTER_OK;
}

static uint32_t *phase_count(struct muster_membership *m, enum muster_member_phase phase)
{
    switch (phase) {
    case MUSTER_MEMBER_ARRIVED:
        return &m->arrived;
    case MUSTER_MEMBER_ACTIVE:
        return &m->active;
    case MUSTER_MEMBER_AWAITED:
        break;
    }
    return &m->awaited;
}

static bool is_survivor(const struct muster_member *member)
{
    return member->phase == MUSTER_MEMBER_ARRIVED && member->seniority != MUSTER_NEWCOMER;
}

void muster_records_set_phase(struct muster_membership *membership, struct muster_member *member,
                              enum muster_member_phase phase)
{
    membership->survivors -= is_survivor(member) ? 1 : 0;
    --*phase_count(membership, member->phase);
    member->phase = phase;
    ++*phase_count(membership, phase);
    membership->survivors += is_survivor(member) ? 1 : 0;
}

/* Departures ---------------------------------------------------------------------------------- */

static void unlist(struct muster_membership *m, const struct muster_member *member)
{
    uint32_t index = m->count - 1; /* from the end: so a job ends */
    while (m->listed[index] != member) {
        index--;
    }
    m->count--;
    memmove(&m->listed[index], &m->listed[index + 1],
            (m->count - index) * sizeof(struct muster_member *));
}

static void drop_oldest_gone(struct muster_membership *m)
{
    struct muster_member *oldest = m->gone_first;
    m->gone_first = oldest->next_gone;
    m->gone_count--;
    HASH_DEL(m->by_id, oldest);
    free_member(oldest);
}

void muster_records_mark_gone(struct muster_membership *membership, struct muster_member *member,
                              const char *why)
{
    struct muster_membership *m = membership;
    unlist(m, member);
    m->survivors -= is_survivor(member) ? 1 : 0;
    --*phase_count(m, member->phase);
    member->phase = MUSTER_MEMBER_GONE;
    muster_records_format(member->why, "%s", why);
    free(member->info);
    member->info = NULL;
    muster_slots_release(m, member);
    release_host(m, member->host);
    member->host = NULL;
    if (m->gone_count == 0) {
        m->gone_first = member;
    } else {
        m->gone_last->next_gone = member;
    }
    m->gone_last = member;
    if (++m->gone_count > MUSTER_GONE_MAX) {
        drop_oldest_gone(m);
    }
}

static void format_departure(const struct muster_member *member, enum muster_leave_reason reason,
                             const char *cause, char ret_why[MUSTER_WHY_SIZE])
{
    static const char *const verbs[] = {
        [0] = "died",
        [MUSTER_LEAVE_FINISHED] = "finished",
        [MUSTER_LEAVE_PLANNED] = "left",
        [MUSTER_LEAVE_FAILED] = "gave up",
    };
    char who[MUSTER_WHY_SIZE];
    muster_records_format(ret_why, "%s %s%s%s", muster_records_describe(member, who), verbs[reason],
                          cause[0] == '\0' ? "" : ": ", cause);
}

static struct muster_generation_record *last_generation(struct muster_membership *m)
{
    return m->generation_records == 0
               ? NULL
               : &m->generations[(m->generation_records - 1) % MUSTER_HISTORY_MAX];
}

/* At first the reason of a revocation may be only an effect: "rank 1 joined again", because rank 1
 * detected before the service that rank 2 had left. The departure of rank 2 then replaces it. */
static void explain_revocation(struct muster_membership *m, const struct muster_member *member,
                               const char *why)
{
    bool is_cause = m->blamed[0] == '\0' || strcmp(m->blamed, member->id) == 0;
    if (m->phase != MUSTER_JOB_FORMING || !m->why_open || !is_cause ||
        member->generation != m->generation.number) {
        return;
    }
    m->why_open = false;
    muster_records_format(last_generation(m)->why, "%s", why);
    muster_records_format(m->why, "%s", why);
}

void muster_records_depart(struct muster_membership *membership, struct muster_member *member,
                           enum muster_leave_reason reason, const char *cause)
{
    struct muster_membership *m = membership;
    struct muster_departure_record *record =
        &m->departures[m->departure_records++ % MUSTER_HISTORY_MAX];
    *record = (struct muster_departure_record){
        .pid = member->info->pid,
        .rank = member->generation == 0 ? UINT32_MAX : member->rank,
        .generation = member->generation,
        .reason = reason,
        .at_ms = m->now_ms,
    };
    memcpy(record->member, member->id, sizeof record->member);
    memcpy(record->host, member->info->host, sizeof record->host);
    format_departure(member, reason, cause, record->why);
    explain_revocation(m, member, record->why);
    member->died = reason == (enum muster_leave_reason)0;
    muster_records_mark_gone(m, member, record->why);
}

/* Generations --------------------------------------------------------------------------------- */

void muster_records_add_generation(struct muster_membership *membership)
{
    struct muster_membership *m = membership;
    m->generations[m->generation_records++ % MUSTER_HISTORY_MAX] =
        (struct muster_generation_record){
            .number = m->generation.number,
            .size = m->generation.size,
            .hosts = m->generation.hosts,
            .formed_ms = m->now_ms,
        };
}

void muster_records_end_generation(struct muster_membership *membership, const char *why)
{
    struct muster_generation_record *record = last_generation(membership);
    record->revoked_ms = membership->now_ms > 0 ? membership->now_ms : 1; /* 0: it runs */
    muster_records_format(record->why, "%s", why);
}

void muster_records_finish(struct muster_membership *membership)
{
    HASH_CLEAR(hh, membership->by_id);
    HASH_CLEAR(slot_hh, membership->by_slot);
    struct muster_listed_host *host;
    struct muster_listed_host *next_host;
    HASH_ITER(hh, membership->hosts, host, next_host)
    {
        HASH_DEL(membership->hosts, host);
        free(host);
    }
    for (uint32_t i = 0; i < membership->count; i++) {
        free_member(membership->listed[i]);
    }
    for (struct muster_member *next, *gone = membership->gone_first; gone != NULL; gone = next) {
        next = gone->next_gone;
        free_member(gone);
    }
    free(membership->listed);
    free(membership->members);
    free(membership->host_sizes);
    free(membership->stale);
    free(membership->candidates);
}
