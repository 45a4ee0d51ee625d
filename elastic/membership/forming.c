/* When a generation forms, of which members, and which rank each of them has. */
#include "elastic/membership/membership_parts.h"
#include "worker/base/epoch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* When ---------------------------------------------------------------------------------------- */

int64_t muster_forming_form_ms(const struct muster_membership *membership)
{
    const struct muster_membership *m = membership;
    const struct muster_job_settings *settings = &m->settings;
    if (m->phase != MUSTER_JOB_FORMING || !m->begun || m->awaited > 0 ||
        m->arrived < settings->min_size) {
        return MUSTER_LIVENESS_NEVER;
    }
    uint32_t enough = settings->target_size != 0 ? settings->target_size : settings->max_size;
    if (m->arrived >= enough || m->survivors >= settings->min_size) {
        return INT64_MIN;
    }
    return muster_liveness_after(m->last_newcomer_ms, settings->settle_ms);
}

int64_t muster_forming_settle_ms(const struct muster_membership *membership)
{
    const struct muster_membership *m = membership;
    const struct muster_job_settings *settings = &m->settings;
    if (m->phase != MUSTER_JOB_RUNNING || m->finishing || m->newcomers_settled || m->arrived == 0 ||
        m->active >= settings->max_size) {
        return MUSTER_LIVENESS_NEVER;
    }
    uint32_t enough =
        settings->target_size > m->active ? settings->target_size : settings->max_size;
    if (m->active + m->arrived >= enough) {
        return INT64_MIN;
    }
    return muster_liveness_after(m->last_newcomer_ms, settings->settle_ms);
}

/* Of which members ---------------------------------------------------------------------------- */

/* Survivors first, then newcomers by arrival, up to max_size. Returns how many. */
static uint32_t choose_members(struct muster_membership *m)
{
    uint32_t chosen = 0;
    for (int newcomers = 0; newcomers <= 1; newcomers++) {
        for (uint32_t i = 0; i < m->count && chosen < m->settings.max_size; i++) {
            struct muster_member *member = m->listed[i];
            bool newcomer = member->seniority == MUSTER_NEWCOMER;
            if (member->phase == MUSTER_MEMBER_ARRIVED && newcomer == (newcomers == 1)) {
                m->candidates[chosen++] = (struct muster_candidate){.member = member};
            }
        }
    }
    return chosen;
}

/* In which order ------------------------------------------------------------------------------ */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_service(const void *left, const void *right)
{
    const struct muster_member *a = ((const struct muster_candidate *)left)->member;
    const struct muster_member *b = ((const struct muster_candidate *)right)->member;
    int order = compare_numbers(a->seniority, b->seniority);
    if (order == 0) { /* both are newcomers */
        order = compare_numbers(a->info->order, b->info->order);
    }
    return order != 0 ? order : compare_numbers(a->arrival, b->arrival);
}

static int compare_host_name(const void *left, const void *right)
{
    const struct muster_candidate *a = left;
    const struct muster_candidate *b = right;
    int order = strcmp(a->member->info->host, b->member->info->host);
    return order != 0 ? order : compare_numbers(a->place, b->place);
}

static int compare_rack_name(const void *left, const void *right)
{
    const struct muster_candidate *a = left;
    const struct muster_candidate *b = right;
    int order = strcmp(a->member->info->rack, b->member->info->rack);
    return order != 0 ? order : compare_numbers(a->place, b->place);
}

static int compare_rank(const void *left, const void *right)
{
    const struct muster_candidate *a = left;
    const struct muster_candidate *b = right;
    int order = compare_numbers(a->rack_place, b->rack_place);
    if (order == 0) {
        order = compare_numbers(a->host_place, b->host_place);
    }
    return order != 0 ? order : compare_numbers(a->place, b->place);
}

static bool same_host(const struct muster_candidate *a, const struct muster_candidate *b)
{
    return strcmp(a->member->info->host, b->member->info->host) == 0;
}

static bool same_rack(const struct muster_candidate *a, const struct muster_candidate *b)
{
    return strcmp(a->member->info->rack, b->member->info->rack) == 0;
}

/* Orders by service, then brings racks together, and in them hosts, each in the order of its
 * longest-serving member. Each candidate gets its own place by service, and the lowest place of its
 * host and rack; the last sort compares these three. */
static void order_candidates(struct muster_candidate *candidates, uint32_t size)
{
    qsort(candidates, size, sizeof *candidates, compare_service);
    for (uint32_t i = 0; i < size; i++) {
        candidates[i].place = i;
    }
    qsort(candidates, size, sizeof *candidates, compare_host_name);
    for (uint32_t i = 0; i < size; i++) {
        bool first = i == 0 || !same_host(&candidates[i - 1], &candidates[i]);
        candidates[i].host_place = first ? candidates[i].place : candidates[i - 1].host_place;
    }
    qsort(candidates, size, sizeof *candidates, compare_rack_name);
    for (uint32_t i = 0; i < size; i++) {
        bool first = i == 0 || !same_rack(&candidates[i - 1], &candidates[i]);
        candidates[i].rack_place = first ? candidates[i].place : candidates[i - 1].rack_place;
    }
    qsort(candidates, size, sizeof *candidates, compare_rank);
}

static uint64_t newest_version(const struct muster_candidate *candidates, uint32_t size)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint64_t version = candidates[i].member->info->state_version;
        newest = version > newest ? version : newest;
    }
    return newest;
}

/* The first candidate with the newest state becomes rank 0; its host and its rack move with it. */
static void put_newest_first(struct muster_candidate *candidates, uint32_t size, uint64_t newest)
{
    uint32_t source = 0;
    while (candidates[source].member->info->state_version < newest) {
        source++;
    }
    if (source == 0) {
        return;
    }
    uint32_t source_host = candidates[source].host_place;
    uint32_t source_rack = candidates[source].rack_place;
    for (uint32_t i = 0; i < size; i++) {
        candidates[i].rack_place =
            candidates[i].rack_place == source_rack ? 0 : candidates[i].rack_place + 1;
        candidates[i].host_place =
            candidates[i].host_place == source_host ? 0 : candidates[i].host_place + 1;
        candidates[i].place = i == source ? 0 : candidates[i].place + 1;
    }
    qsort(candidates, size, sizeof *candidates, compare_rank);
}

/* The generation ------------------------------------------------------------------------------ */

static void assign_rank(struct muster_membership *m, struct muster_member *member, uint32_t rank)
{
    muster_records_set_phase(m, member, MUSTER_MEMBER_ACTIVE);
    if (member->seniority == MUSTER_NEWCOMER) {
        member->seniority = m->seniorities++;
    }
    member->generation = m->generation.number;
    member->rank = rank;
    member->signs.progress = 0;
    memcpy(m->members[rank], member->id, sizeof m->members[rank]);
}

static uint32_t count_hosts(struct muster_membership *m, uint32_t size)
{
    uint32_t hosts = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (i == 0 || !same_host(&m->candidates[i - 1], &m->candidates[i])) {
            m->host_sizes[hosts++] = 0;
        }
        m->host_sizes[hosts - 1]++;
    }
    return hosts;
}

/* Chooses the members and orders them, which gives the ranks; then writes the generation. Nothing
 * here can fail: muster_records_reserve() has made the room. */
void muster_forming_form(struct muster_membership *membership)
{
    struct muster_membership *m = membership;
    uint32_t size = choose_members(m);
    order_candidates(m->candidates, size);
    uint64_t newest = newest_version(m->candidates, size);
    put_newest_first(m->candidates, size, newest);

    m->highest = muster_epoch_next(m->highest, m->epoch);
    m->generation = (struct muster_generation_view){
        .number = m->highest,
        .size = size,
        .hosts = count_hosts(m, size),
        .state_version = newest,
        .state_source = 0,
    };
    for (uint32_t rank = 0; rank < size; rank++) {
        struct muster_member *member = m->candidates[rank].member;
        m->stale[rank] = newest == 0 ? rank != 0 : member->info->state_version < newest;
        assign_rank(m, member, rank);
    }
    m->phase = MUSTER_JOB_RUNNING;
    m->newcomers_settled = false;
    m->why_open = false;
    muster_records_format(m->why, "generation %" PRIu64 " runs with %" PRIu32 " members",
                          muster_epoch_shown(m->generation.number), size);
    muster_records_add_generation(m);
    muster_forming_ask_leaves(m);
}

void muster_forming_ask_leaves(struct muster_membership *membership)
{
    struct muster_membership *m = membership;
    bool running = m->phase == MUSTER_JOB_RUNNING;
    if (running) {
        m->shrinking = m->shrinking && m->active > m->settings.target_size;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        struct muster_member *member = m->listed[i];
        member->leave_asked = running && m->shrinking && member->phase == MUSTER_MEMBER_ACTIVE &&
                              member->rank >= m->settings.target_size;
    }
}
