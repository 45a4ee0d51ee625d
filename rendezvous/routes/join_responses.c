/* Builds the responses to Joins. The part of a formed response that all members share is built once
 * a generation (service/formed.h). */
#include "rendezvous/routes/join_responses.h"

#include "worker/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEIGHBOURS_MAX = 4 * 32 + 1, /* two directions, two rings, fewer than 32 powers of two */
};

uint32_t muster_join_responses_doubted(struct muster_transaction *transaction, const char *witness,
                                       struct muster_wire_peer **ret_peers)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view views[MUSTER_DOUBTS_ASKED_MAX];
    *ret_peers = NULL;
    if (!muster_doubts_need(&job->doubts, job->membership, witness)) {
        return 0;
    }
    struct muster_wire_peer *peers = calloc(MUSTER_DOUBTS_ASKED_MAX, sizeof *peers);
    uint32_t count =
        peers != NULL ? muster_doubts_ask(&job->doubts, job->membership, witness, views) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_member_info *info = views[i].info;
        peers[i].rank = views[i].rank != UINT32_MAX ? views[i].rank : 0;
        memcpy(peers[i].member, info->id, sizeof peers[i].member);
        memcpy(peers[i].host, info->host, sizeof peers[i].host);
        peers[i].order = info->order;
        peers[i].address_count = info->address_count;
        memcpy(peers[i].addresses, info->addresses, sizeof peers[i].addresses);
    }
    muster_job_schedule(transaction->service, job, muster_doubts_next_ns(&job->doubts));
    *ret_peers = peers;
    return count;
}

struct muster_rpc_response muster_join_responses_waiting(struct muster_transaction *transaction,
                                                         const char *member)
{
    struct muster_job *job = transaction->job;
    struct muster_job_settings settings = muster_membership_settings(job->membership);
    struct muster_join_response response = {
        .members = muster_membership_arrived(job->membership),
        .min_size = settings.min_size,
        .target_size = settings.target_size,
    };
    struct muster_member_view view;
    uint32_t awaited = muster_membership_awaited(job->membership);
    uint32_t missing = awaited < MUSTER_MISSING_MAX ? awaited : MUSTER_MISSING_MAX;
    for (uint32_t i = 0;
         response.missing_count < missing && muster_membership_member(job->membership, i, &view);
         i++) {
        if (view.phase == MUSTER_MEMBER_AWAITED) {
            (void)snprintf(response.missing[response.missing_count++], MUSTER_MISSING_SIZE,
                           "rank %u (host %s, pid %u)", view.rank, view.info->host, view.info->pid);
        }
    }
    response.doubted_count = muster_join_responses_doubted(transaction, member, &response.doubted);
    struct muster_rpc_response encoded =
        muster_rpc_response_json(muster_join_response_encode(&response));
    free(response.doubted);
    return encoded;
}

/* Formed -------------------------------------------------------------------------------------- */

const struct muster_formed *muster_join_responses_shared(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    uint64_t number = muster_membership_generation(job->membership).number;
    if (job->formed == NULL || job->formed->generation != number) {
        const struct muster_formed_settings settings = {
            .link_token = job->link_token, .hold_ms = transaction->service->config.watch_ms};
        muster_formed_destroy(job->formed);
        job->formed = muster_formed_create(job->membership, &settings);
    }
    return job->formed;
}

struct member_ranks {
    uint32_t rank, local_rank, local_size, cross_rank, cross_size, slot;
    uint32_t *cross; /* owned [cross_size]: the ranks with the same local rank, by host */
};

/* False: no memory. */
static bool find_ranks(const struct muster_formed *formed, uint32_t rank,
                       struct member_ranks *ret_ranks)
{
    struct member_ranks ranks = {.rank = rank, .cross = calloc(formed->hosts, sizeof *ranks.cross)};
    uint32_t first = 0;
    uint32_t host = 0;
    if (ranks.cross == NULL) {
        return false;
    }
    while (rank - first >= formed->host_sizes[host]) {
        first += formed->host_sizes[host++];
    }
    ranks.local_rank = rank - first;
    ranks.local_size = formed->host_sizes[host];
    first = 0;
    for (uint32_t i = 0; i < formed->hosts; i++) {
        if (i == host) {
            ranks.cross_rank = ranks.cross_size;
        }
        if (formed->host_sizes[i] > ranks.local_rank) {
            ranks.cross[ranks.cross_size++] = first + ranks.local_rank;
        }
        first += formed->host_sizes[i];
    }
    *ret_ranks = ranks;
    return true;
}

static uint32_t add_neighbour(uint32_t *neighbours, uint32_t count, uint32_t own, uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++) {
        if (neighbours[i] == rank) {
            return count;
        }
    }
    neighbours[count] = rank;
    return rank == own ? count : count + 1;
}

/* The ranks at distance 2^k, in both directions, among all and across hosts. Returns how many. */
static uint32_t find_neighbours(const struct muster_formed *formed,
                                const struct member_ranks *ranks,
                                uint32_t ret_neighbours[NEIGHBOURS_MAX])
{
    uint32_t count = 0;
    for (uint32_t far = 1; far < formed->size; far *= 2) {
        uint32_t up = (ranks->rank + far) % formed->size;
        uint32_t down = (ranks->rank + formed->size - far) % formed->size;
        count = add_neighbour(ret_neighbours, count, ranks->rank, up);
        count = add_neighbour(ret_neighbours, count, ranks->rank, down);
    }
    for (uint32_t far = 1; far < ranks->cross_size; far *= 2) {
        uint32_t up = (ranks->cross_rank + far) % ranks->cross_size;
        uint32_t down = (ranks->cross_rank + ranks->cross_size - far) % ranks->cross_size;
        count = add_neighbour(ret_neighbours, count, ranks->rank, ranks->cross[up]);
        count = add_neighbour(ret_neighbours, count, ranks->rank, ranks->cross[down]);
    }
    return count;
}

bool muster_join_responses_write_peers(const struct muster_formed *formed, const uint32_t *ranks,
                                       uint32_t count, FILE *file)
{
    bool written = fputc('[', file) != EOF;
    for (uint32_t i = 0; i < count && written; i++) {
        size_t size_bytes;
        const char *peer = muster_formed_peer(formed, ranks[i], &size_bytes);
        written =
            (i == 0 || fputc(',', file) != EOF) && fwrite(peer, 1, size_bytes, file) == size_bytes;
    }
    return written && fputc(']', file) != EOF;
}

/* The object "formed" up to the part that all share: the member's own ranks, and its neighbours. */
static bool write_own(const struct muster_formed *formed, const char *member,
                      const struct member_ranks *ranks, bool neighbours, FILE *file)
{
    uint32_t near[NEIGHBOURS_MAX];
    char generation[24];
    (void)snprintf(generation, sizeof generation, "%" PRIu64, formed->generation);
    json_t *own =
        json_pack("{sssIsIsIsIsIsI}", "generation", generation, "rank", (json_int_t)ranks->rank,
                  "localRank", (json_int_t)ranks->local_rank, "localSize",
                  (json_int_t)ranks->local_size, "crossRank", (json_int_t)ranks->cross_rank,
                  "crossSize", (json_int_t)ranks->cross_size, "slot", (json_int_t)ranks->slot);
    AUTO_FREE char *text = own != NULL ? json_dumps(own, JSON_COMPACT) : NULL;
    json_decref(own);
    bool written = text != NULL && fputs("{\"formed\":", file) >= 0 &&
                   fwrite(text, 1, strlen(text) - 1, file) == strlen(text) - 1 &&
                   fputc(',', file) != EOF;
    if (written && neighbours) {
        uint32_t count = find_neighbours(formed, ranks, near);
        written = fprintf(file, "\"member\":\"%s\",\"near\":", member) > 0 &&
                  muster_join_responses_write_peers(formed, near, count, file) &&
                  fputc(',', file) != EOF;
    }
    return written;
}

static uint32_t slot_of(const struct muster_transaction *transaction, const char *member)
{
    struct muster_member_view view;
    return muster_membership_find(transaction->job->membership, member, &view) ? view.info->slot
                                                                               : 0;
}

struct muster_rpc_response muster_join_responses_formed(struct muster_transaction *transaction,
                                                        const char *member, uint32_t rank,
                                                        uint32_t neighbours_above)
{
    struct muster_rpc_response response = {.code = MUSTER_RPC_INTERNAL};
    struct member_ranks ranks;
    const struct muster_formed *formed = muster_join_responses_shared(transaction);
    if (formed == NULL || !find_ranks(formed, rank, &ranks)) {
        return response;
    }
    ranks.slot = slot_of(transaction, member);
    bool short_form = formed->size > neighbours_above;
    FILE *file = open_memstream(&response.body, &response.size_bytes);
    bool written = file != NULL && write_own(formed, member, &ranks, short_form, file);
    written = file != NULL && fclose(file) == 0 && written;
    free(ranks.cross);
    if (!written) {
        free(response.body);
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    response.code = MUSTER_RPC_OK;
    response.rest = muster_shared_text_hold(short_form ? formed->shape : formed->whole);
    return response;
}
