/* Builds the responses to Joins. The part of a formed response that all members share is built once
 * a generation. */
#include "rendezvous/routes/join_responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct muster_rpc_response muster_join_responses_waiting(const struct muster_job *job)
{
    struct muster_job_settings settings = muster_membership_settings(job->membership);
    struct muster_join_response response = {.min_size = settings.min_size,
                                            .target_size = settings.target_size};
    struct muster_member_view view;
    for (uint32_t i = 0; muster_membership_member(job->membership, i, &view); i++) {
        response.members += view.phase == MUSTER_MEMBER_ARRIVED;
        if (view.phase == MUSTER_MEMBER_AWAITED && response.missing_count < MUSTER_MISSING_MAX) {
            (void)snprintf(response.missing[response.missing_count++], MUSTER_MISSING_SIZE,
                           "rank %u (host %s, pid %u)", view.rank, view.info->host, view.info->pid);
        }
    }
    return muster_rpc_response_json(muster_join_response_encode(&response));
}

/* Formed -------------------------------------------------------------------------------------- */

static void fill_hosts(const struct muster_job *job,
                       const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    struct muster_member_view view;
    uint32_t first = 0;
    for (uint32_t i = 0; i < generation->hosts; i++) {
        struct muster_wire_host *host = &response->hosts[i];
        bool there = muster_membership_find(job->membership, generation->members[first], &view);
        (void)snprintf(host->name, sizeof host->name, "%s", there ? view.info->host : "gone");
        (void)snprintf(host->rack, sizeof host->rack, "%s", there ? view.info->rack : "");
        host->size = generation->host_sizes[i];
        first += host->size;
    }
}

static void fill_peers(const struct muster_job *job,
                       const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    struct muster_member_view view;
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        struct muster_wire_peer *peer = &response->peers[rank];
        (void)snprintf(peer->member, sizeof peer->member, "%s", generation->members[rank]);
        if (muster_membership_find(job->membership, peer->member, &view)) {
            peer->order = view.info->order;
            peer->address_count = view.info->address_count;
            memcpy(peer->addresses, view.info->addresses, sizeof peer->addresses);
        }
        if (generation->stale[rank] != 0) {
            response->stale[response->stale_count++] = rank;
        }
    }
}

/* The part that is the same for all members, built for the first of them; borrowed until the next
 * generation. NULL: no memory. */
static json_t *shared_response(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    struct muster_generation_view generation = muster_membership_generation(job->membership);
    if (job->formed != NULL && job->formed_generation == generation.number) {
        return job->formed;
    }
    json_decref(job->formed);
    job->formed = NULL;
    struct muster_join_response response = {
        .formed = true,
        .generation = generation.number,
        .size = generation.size,
        .host_count = generation.hosts,
        .state_version = generation.state_version,
        .state_source = generation.state_source,
        .hold_ms = transaction->service->config.hold_ms,
        .lease_ms = muster_membership_settings(job->membership).lease_ms,
        .hosts = calloc(generation.hosts, sizeof *response.hosts),
        .peers = calloc(generation.size, sizeof *response.peers),
        .stale = calloc(generation.size, sizeof *response.stale),
    };
    (void)snprintf(response.link_token, sizeof response.link_token, "%s", job->link_token);
    if (response.hosts != NULL && response.peers != NULL && response.stale != NULL) {
        fill_hosts(job, &generation, &response);
        fill_peers(job, &generation, &response);
        job->formed = muster_join_response_encode(&response);
        job->formed_generation = generation.number;
    }
    muster_join_response_finish(&response);
    return job->formed;
}

struct member_ranks {
    uint32_t local_rank, local_size, cross_rank, cross_size;
};

static struct member_ranks ranks_of(const struct muster_generation_view *generation, uint32_t rank)
{
    struct member_ranks ranks = {0};
    uint32_t first = 0;
    uint32_t host = 0;
    while (rank - first >= generation->host_sizes[host]) {
        first += generation->host_sizes[host++];
    }
    ranks.local_rank = rank - first;
    ranks.local_size = generation->host_sizes[host];
    for (uint32_t i = 0; i < generation->hosts; i++) {
        bool has_it = generation->host_sizes[i] > ranks.local_rank;
        ranks.cross_rank += has_it && i < host;
        ranks.cross_size += has_it;
    }
    return ranks;
}

struct muster_rpc_response muster_join_responses_formed(struct muster_transaction *transaction,
                                                        uint32_t rank)
{
    struct muster_generation_view generation =
        muster_membership_generation(transaction->job->membership);
    struct member_ranks ranks = ranks_of(&generation, rank);
    json_t *formed = json_copy(json_object_get(shared_response(transaction), "formed"));
    json_t *own = json_pack("{sIsIsIsIsI}", "rank", (json_int_t)rank, "localRank",
                            (json_int_t)ranks.local_rank, "localSize", (json_int_t)ranks.local_size,
                            "crossRank", (json_int_t)ranks.cross_rank, "crossSize",
                            (json_int_t)ranks.cross_size);
    if (formed == NULL || own == NULL || json_object_update(formed, own) != 0) {
        json_decref(formed);
        json_decref(own);
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    json_decref(own);
    return muster_rpc_response_json(json_pack("{so}", "formed", formed));
}
