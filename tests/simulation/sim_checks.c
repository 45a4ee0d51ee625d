/* What must hold after every event, and in the end. */
#include "tests/simulation/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EVERY_MEMBER_MAX = 64 };

static double seconds(const struct sim *sim)
{
    return (double)sim->now_ns / 1e9;
}

static void dump(struct sim *sim)
{
    const struct muster_membership *m = sim_server_membership(sim);
    if (m != NULL) {
        struct muster_generation_view g = muster_membership_generation(m);
        print_error("server: phase %d generation %llu size %u members %u arrived %u: %s\n",
                    muster_membership_phase(m), (unsigned long long)g.number, g.size,
                    muster_membership_count(m), muster_membership_arrived(m),
                    muster_membership_why(m));
    }
    for (unsigned i = 0; i < sim->plan.workers && i < 20; i++) {
        const struct sim_worker *w = &sim->workers[i];
        print_error(
            "w%u %.8s alive %d stage %d generation %llu rank %u version %llu barrier %u "
            "waits %d rejoin %d calls %d %d\n",
            i, w->member, w->alive, w->stage, (unsigned long long)w->generation, w->rank,
            (unsigned long long)w->version, w->barrier, w->waits, w->rejoin_due,
            w->calls[0].request != NULL, w->calls[1].request != NULL);
    }
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!sim->failed) {
        sim->failed = true; /* what is printed may fail, too */
        dump(sim);
    }
    print_error("MUSTER_SEED=%llu, at %.6f s, event %llu: %s\n", (unsigned long long)sim->seed,
                seconds(sim), (unsigned long long)sim->steps, text);
    exit(EXIT_FAILURE); /* the services of a run that failed are not put away */
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    if (!sim->traced) {
        return;
    }
    (void)printf("%12.6f ", seconds(sim));
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)printf("\n");
}

/* The server ------------------------------------------------------------------------------------
 */

static const struct sim_worker *find_worker(const struct sim *sim, const char *member)
{
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        if (strcmp(sim->workers[i].member, member) == 0) {
            return &sim->workers[i];
        }
    }
    return NULL;
}

/* Every member that is not waiting for its first generation has its rank in the last one. */
static void check_members(struct sim *sim, const struct muster_membership *m)
{
    struct muster_generation_view g = muster_membership_generation(m);
    enum muster_job_phase phase = muster_membership_phase(m);
    struct muster_member_view view;
    for (uint32_t i = 0; muster_membership_member(m, i, &view); i++) {
        bool in = view.phase != MUSTER_MEMBER_ARRIVED;
        if (in && (view.rank >= g.size || strcmp(g.members[view.rank], view.info->id) != 0)) {
            sim_fail(sim, "member %s has rank %u, which is another's", view.info->id, view.rank);
        }
        if ((view.phase == MUSTER_MEMBER_ACTIVE) != (in && phase == MUSTER_JOB_RUNNING)) {
            sim_fail(sim, "member %s has phase %d in phase %d of the job", view.info->id,
                     view.phase, phase);
        }
    }
}

static void check_deaths(struct sim *sim, const struct muster_membership *m)
{
    struct muster_departure_record record;
    uint64_t died = 0;
    for (uint32_t i = 0; muster_membership_departure_record(m, i, &record); i++) {
        died += record.reason == 0;
        if (record.reason != 0) {
            continue;
        }
        const struct sim_worker *worker = find_worker(sim, record.member);
        if (worker != NULL && worker->alive && sim->plan.nobody_dies) {
            sim_fail(sim, "a living member: %s", record.why);
        }
        bool wrong = worker != NULL && worker->alive && died > sim->departures;
        sim->totals->wrong_deaths += wrong;
        sim->two_histories = sim->two_histories || wrong;
    }
    if (died > sim->departures) {
        sim->totals->deaths += died - sim->departures;
        sim->departures = died;
    }
}

void sim_check_server(struct sim *sim)
{
    const struct sim_server *owner = sim_server_owner(sim);
    bool lost = sim->plan.servers > 1 ? !sim_etcd_has_job()
                                      : owner == NULL && sim->servers[0].service != NULL;
    if (lost && sim->answered > 0) {
        sim_fail(sim, "the job is lost, which had generation %llu",
                 (unsigned long long)sim->answered);
    }
    if (owner == NULL) {
        return;
    }
    uint64_t claim = sim_server_claim(owner);
    if (sim->owner != owner->index || sim->owner_life != owner->life || sim->claim != claim) {
        sim->totals->moves++;
        sim->server_highest = 0; /* what was not told when it was lost may have been undone */
        sim->owner = owner->index;
        sim->owner_life = owner->life;
        sim->claim = claim;
    }
    const struct muster_membership *m = sim_server_membership(sim);
    uint64_t number = muster_membership_generation(m).number;
    if (number < sim->answered || number < sim->server_highest) {
        sim_fail(sim, "generation %llu after %llu was told, and %llu formed",
                 (unsigned long long)number, (unsigned long long)sim->answered,
                 (unsigned long long)sim->server_highest);
    }
    bool formed = number != sim->server_highest;
    sim->server_highest = number;
    if (sim->plan.workers <= EVERY_MEMBER_MAX || formed) {
        check_members(sim, m);
    }
    check_deaths(sim, m);
}

/* What a worker was told ------------------------------------------------------------------------
 */

/* By the shape: hosts in rank order. */
static void check_ranks(struct sim *sim, const struct muster_join_response *formed)
{
    uint32_t first = 0;
    uint32_t cross_rank = 0;
    uint32_t cross_size = 0;
    bool found = false;
    for (uint32_t host = 0; host < formed->host_count; host++) {
        uint32_t size = formed->hosts[host].size;
        bool own = formed->rank >= first && formed->rank < first + size;
        if (own && (formed->local_rank != formed->rank - first || formed->local_size != size)) {
            sim_fail(sim, "rank %u is local rank %u of %u, and its host has %u from %u on",
                     formed->rank, formed->local_rank, formed->local_size, size, first);
        }
        cross_rank = own ? cross_size : cross_rank;
        cross_size += size > formed->local_rank;
        found = found || own;
        first += size;
    }
    if (!found || first != formed->size || formed->cross_rank != cross_rank ||
        formed->cross_size != cross_size) {
        sim_fail(sim, "rank %u of %u is cross rank %u of %u; the shape has %u, and there %u of %u",
                 formed->rank, formed->size, formed->cross_rank, formed->cross_size, first,
                 cross_rank, cross_size);
    }
    for (uint32_t i = 0; i < formed->host_count; i++) {
        for (uint32_t j = i + 1; j < formed->host_count; j++) {
            if (strcmp(formed->hosts[i].name, formed->hosts[j].name) == 0) {
                sim_fail(sim, "host %s stands twice in the shape", formed->hosts[i].name);
            }
        }
    }
}

static struct sim_generation *add_generation(struct sim *sim,
                                             const struct muster_join_response *formed)
{
    struct sim_generation *generation = calloc(1, sizeof *generation);
    generation->number = formed->generation;
    generation->size = formed->size;
    generation->workers = calloc(formed->size, sizeof *generation->workers);
    generation->members = calloc(formed->size, sizeof *generation->members);
    generation->begun = calloc(formed->size, sizeof *generation->begun);
    generation->stale = calloc(formed->size, sizeof *generation->stale);
    generation->state_version = formed->state_version;
    generation->source = formed->state_source;
    generation->barrier = 1;
    for (uint32_t rank = 0; rank < formed->size; rank++) {
        const struct muster_wire_peer *peer = &formed->peers[rank];
        generation->workers[rank] = peer->order;
        memcpy(generation->members[rank], peer->member, sizeof peer->member);
        for (uint32_t other = 0; other < rank; other++) {
            if (strcmp(generation->members[other], peer->member) == 0) {
                sim_fail(sim, "generation %llu has member %s twice",
                         (unsigned long long)formed->generation, peer->member);
            }
        }
    }
    for (uint32_t i = 0; i < formed->stale_count; i++) {
        generation->stale[formed->stale[i]] = true;
    }
    generation->next = sim->generations;
    sim->generations = generation;
    sim->totals->generations++;
    return generation;
}

void sim_check_formed(struct sim *sim, struct sim_worker *worker,
                      const struct muster_join_response *formed)
{
    unsigned long long number = formed->generation;
    if (formed->generation <= worker->highest) {
        sim_fail(sim, "w%u is told generation %llu after %llu", worker->index, number,
                 (unsigned long long)worker->highest);
    }
    worker->highest = formed->generation;
    sim->answered = formed->generation > sim->answered ? formed->generation : sim->answered;
    if (strcmp(formed->peers[formed->rank].member, worker->member) != 0) {
        sim_fail(sim, "w%u is told rank %u, which is another's", worker->index, formed->rank);
    }
    check_ranks(sim, formed);
    struct sim_generation *generation = sim->generations;
    while (generation != NULL && generation->number != formed->generation) {
        generation = generation->next;
    }
    if (generation == NULL) {
        (void)add_generation(sim, formed);
        return;
    }
    bool same = generation->size == formed->size && generation->source == formed->state_source &&
                generation->state_version == formed->state_version;
    for (uint32_t rank = 0; rank < formed->size && same; rank++) {
        same = strcmp(generation->members[rank], formed->peers[rank].member) == 0;
    }
    if (!same || generation->begun[formed->rank]) {
        sim_fail(sim, "generation %llu has two memberships", number);
    }
}

/* The state -------------------------------------------------------------------------------------
 */

void sim_check_committed(struct sim *sim, const struct sim_worker *worker)
{
    if (worker->version > sim->best_version) {
        sim->best_version = worker->version;
        sim->best_content = worker->content;
        sim->totals->commits++;
    }
}

/* No member's state is newer than what all get now; and if one holds the newest that all of a
 * generation had committed, all get that or a newer one, unless a living member was declared dead:
 * then it may have gone on for a while, and there are two states of one version. */
void sim_check_sync(struct sim *sim, const struct sim_generation *generation)
{
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        const struct sim_worker *member = &sim->workers[generation->workers[rank]];
        if (member->version > generation->new_version) {
            sim_fail(sim, "generation %llu: w%u holds version %llu, and all get %llu of rank %u",
                     (unsigned long long)generation->number, member->index,
                     (unsigned long long)member->version,
                     (unsigned long long)generation->new_version, generation->source);
        }
        bool holds = member->version == sim->best_version && member->content == sim->best_content;
        if (!sim->two_histories && holds && member->version > 0 &&
            generation->new_version == sim->best_version &&
            generation->new_content != sim->best_content) {
            sim_fail(sim, "generation %llu: another state takes the place of the newest, %llu",
                     (unsigned long long)generation->number, (unsigned long long)sim->best_version);
        }
        if (!generation->stale[rank] && (member->version != generation->new_version ||
                                         member->content != generation->new_content)) {
            bool first = member->version == 0 && generation->new_version == 1;
            if (!first) {
                sim_fail(sim, "generation %llu: w%u is not stale, and has another state",
                         (unsigned long long)generation->number, member->index);
            }
        }
    }
}

/* The end ---------------------------------------------------------------------------------------
 */

/* Or so many that, once others have done the work, those that are left are too few to begin the job
 * anew. */
static bool all_have_left(const struct sim *sim)
{
    uint32_t alive = 0;
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        alive += sim->workers[i].alive;
    }
    return alive == 0 ||
           (sim->plan.work > 0 && sim->best_version >= sim->plan.work && alive < sim->plan.min);
}

/* All that live, up to the most, are in one generation, work, and have one state. */
bool sim_is_settled(struct sim *sim)
{
    const struct muster_membership *m = sim_server_membership(sim);
    const struct sim_worker *first = NULL;
    uint32_t alive = 0;
    uint32_t work = 0;
    if (all_have_left(sim)) {
        return true;
    }
    if (m == NULL || muster_membership_phase(m) != MUSTER_JOB_RUNNING || sim->plan.work > 0) {
        return false;
    }
    uint64_t number = muster_membership_generation(m).number;
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        const struct sim_worker *worker = &sim->workers[i];
        alive += worker->alive;
        if (worker->alive && worker->in != NULL && worker->in->number == number &&
            worker->progress >= 4 && !worker->rejoin_due) {
            first = first == NULL ? worker : first;
            bool next =
                worker->version == first->version + 1 || first->version == worker->version + 1;
            if (worker->version != first->version ? !next : worker->content != first->content) {
                sim_fail(sim, "w%u and w%u have different states in the end", worker->index,
                         first->index);
            }
            work++;
        }
    }
    uint32_t wanted = alive < sim->plan.max ? alive : sim->plan.max;
    return work == wanted && muster_membership_generation(m).size == wanted;
}
