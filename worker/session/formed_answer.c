/* Both forms of the answer to Join: lists, and the shape of a large job. Its numbers have been
 * checked against each other when it was decoded. */
#include "worker/session/formed_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "worker/base/cleanup.h"

/* Topology ------------------------------------------------------------------------------------- */

/* Consecutive hosts that name the same rack form one rack. Writes the sizes of the hosts; returns
 * the number of racks, whose sizes in hosts follow in `racks`. */
static uint32_t list_sizes(const struct muster_join_response *response, uint32_t *hosts,
                           uint32_t *racks)
{
    uint32_t rack_count = 0;
    for (uint32_t i = 0; i < response->host_count; i++) {
        hosts[i] = response->hosts[i].size;
        if (i == 0 || strcmp(response->hosts[i].rack, response->hosts[i - 1].rack) != 0) {
            racks[rack_count++] = 0;
        }
        racks[rack_count - 1]++;
    }
    return rack_count;
}

static uint32_t expand_sizes(const struct muster_wire_shape *shape, uint32_t *hosts,
                             uint32_t *racks)
{
    uint32_t host_count = 0;
    uint32_t rack_count = 0;
    for (uint32_t i = 0; i < shape->host_run_count; i++) {
        for (uint32_t k = 0; k < shape->hosts[i].hosts; k++) {
            hosts[host_count++] = shape->hosts[i].size;
        }
    }
    for (uint32_t i = 0; i < shape->rack_run_count; i++) {
        for (uint32_t k = 0; k < shape->racks[i].racks; k++) {
            racks[rack_count++] = shape->racks[i].hosts;
        }
    }
    return rack_count;
}

/* On failure there is no topology. */
static muster_status make_topology(const struct muster_join_response *response,
                                   struct muster_topology *ret_topology)
{
    uint32_t hosts = response->has_shape ? response->shape.host_count : response->host_count;
    AUTO_FREE uint32_t *sizes = calloc(hosts + (size_t)1, 2 * sizeof *sizes);
    if (sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    uint32_t *racks = sizes + hosts;
    uint32_t rack_count = response->has_shape ? expand_sizes(&response->shape, sizes, racks)
                                              : list_sizes(response, sizes, racks);
    struct muster_topology topology = {0};
    TRY(muster_topology_init(hosts, sizes, &topology));
    muster_status status = muster_topology_set_racks(&topology, rack_count, racks);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

/* Digests -------------------------------------------------------------------------------------- */

/* In the order and the width of what the service digests (the contract's hosts_digest). */
void muster_formed_answer_digest(const struct muster_join_response *response, uint32_t *ret_hosts,
                                 uint32_t *ret_shape)
{
    uLong hosts = crc32(0, NULL, 0);
    uLong shape = hosts;
    for (uint32_t i = 0; i < response->host_count; i++) {
        const struct muster_wire_host *host = &response->hosts[i];
        hosts = crc32(hosts, (const Bytef *)host->name, (uInt)strlen(host->name) + 1);
        hosts = crc32(hosts, (const Bytef *)host->rack, (uInt)strlen(host->rack) + 1);
        shape = crc32(shape, (const Bytef *)&host->size, sizeof host->size);
    }
    *ret_hosts = (uint32_t)hosts;
    *ret_shape = (uint32_t)shape;
}

static void digest_shape(const struct muster_wire_shape *shape,
                         const struct muster_topology *topology, uint32_t *ret_hosts,
                         uint32_t *ret_shape)
{
    uLong digest = crc32(0, NULL, 0);
    for (uint32_t i = 0; i < topology->hosts; i++) {
        digest =
            crc32(digest, (const Bytef *)&topology->host_sizes[i], sizeof topology->host_sizes[i]);
    }
    *ret_hosts = shape->hosts_digest;
    *ret_shape = (uint32_t)digest;
}

/* Peers ---------------------------------------------------------------------------------------- */

void muster_formed_answer_copy_peer(const struct muster_wire_peer *wire, const char *host,
                                    bool other_host, struct muster_peer *ret_peer)
{
    *ret_peer = (struct muster_peer){.other_host = other_host};
    memcpy(ret_peer->member, wire->member, sizeof ret_peer->member);
    (void)snprintf(ret_peer->host, sizeof ret_peer->host, "%s", host);
    for (uint32_t i = 0; i < wire->address_count; i++) {
        (void)snprintf(ret_peer->addresses[i], sizeof ret_peer->addresses[0], "%s",
                       wire->addresses[i]);
    }
    ret_peer->address_count = wire->address_count;
}

muster_status muster_formed_answer_read_peer(const struct muster_wire_peer *wire,
                                             const struct muster_topology *topology, uint32_t own,
                                             const char *host, struct muster_peer *ret_peer)
{
    if (wire->rank >= topology->ranks) {
        return muster_error_set(MUSTER_FATAL, "rank %u of %u does not exist", wire->rank,
                                topology->ranks);
    }
    bool other = muster_topology_host(topology, wire->rank) != muster_topology_host(topology, own);
    if (other == (strcmp(wire->host, host) == 0)) {
        return muster_error_set(MUSTER_FATAL,
                                "rank %u is on host %s, and rank %u on host %s: the job's shape "
                                "says that these are %s",
                                wire->rank, wire->host, own, host, other ? "two" : "one");
    }
    muster_formed_answer_copy_peer(wire, wire->host, other, ret_peer);
    return MUSTER_OK;
}

/* Members whose hosts have different names do not use shared memory, even if they could. */
static muster_status list_peers(const struct muster_join_response *response,
                                const struct muster_answer_reader *reader,
                                struct muster_formed_answer *answer)
{
    uint32_t rank = 0;
    if (response->peers == NULL ||
        strcmp(response->peers[response->rank].member, reader->member) != 0) {
        return muster_error_set(MUSTER_FATAL, "rank %u is another member", response->rank);
    }
    for (uint32_t i = 0; i < response->host_count; i++) {
        const char *name = response->hosts[i].name;
        bool other = strcmp(name, reader->host) != 0;
        for (uint32_t k = 0; k < response->hosts[i].size; k++, rank++) {
            muster_formed_answer_copy_peer(&response->peers[rank], name, other,
                                           &answer->peers[rank]);
            answer->orders[rank] = response->peers[rank].order;
        }
    }
    return MUSTER_OK;
}

static muster_status list_neighbours(const struct muster_join_response *response,
                                     const struct muster_answer_reader *reader,
                                     struct muster_formed_answer *answer)
{
    const struct muster_wire_shape *shape = &response->shape;
    uint32_t rank = 0;
    if (strcmp(shape->member, reader->member) != 0) {
        return muster_error_set(MUSTER_FATAL, "rank %u is another member", response->rank);
    }
    for (uint32_t i = 0; i < shape->near_count; i++) {
        TRY(muster_formed_answer_read_peer(&shape->near[i], &answer->topology, response->rank,
                                           reader->host, &answer->peers[i]));
        answer->peer_ranks[i] = shape->near[i].rank;
    }
    for (uint32_t i = 0; i < shape->order_run_count; i++) {
        for (uint32_t k = 0; k < shape->orders[i].count; k++) {
            answer->orders[rank++] = shape->orders[i].first + k * shape->orders[i].step;
        }
    }
    return MUSTER_OK;
}

/* The whole ------------------------------------------------------------------------------------ */

static void list_stale(const struct muster_join_response *response,
                       struct muster_formed_answer *answer)
{
    for (uint32_t i = 0; i < response->stale_count; i++) {
        answer->stale[answer->stale_count++] = response->stale[i];
    }
    for (uint32_t i = 0; i < response->shape.stale_count; i++) {
        for (uint32_t k = 0; k < response->shape.stale[i].count; k++) {
            answer->stale[answer->stale_count++] = response->shape.stale[i].first + k;
        }
    }
}

static muster_status fill(const struct muster_join_response *response,
                          const struct muster_answer_reader *reader,
                          struct muster_formed_answer *answer)
{
    TRY(make_topology(response, &answer->topology));
    uint32_t ranks = answer->topology.ranks;
    if (ranks != response->size || response->rank >= ranks || response->state_source >= ranks) {
        return muster_error_set(MUSTER_FATAL,
                                "rank %u, size %u and source %u on hosts that hold %u do not fit",
                                response->rank, response->size, response->state_source, ranks);
    }
    answer->peer_count = response->has_shape ? response->shape.near_count : ranks;
    answer->orders = calloc(ranks, sizeof *answer->orders);
    answer->stale = calloc(ranks, sizeof *answer->stale);
    answer->peers = calloc(answer->peer_count + (size_t)1, sizeof *answer->peers);
    if (response->has_shape) {
        answer->peer_ranks = calloc(answer->peer_count + (size_t)1, sizeof *answer->peer_ranks);
    }
    if (answer->orders == NULL || answer->stale == NULL || answer->peers == NULL ||
        (response->has_shape && answer->peer_ranks == NULL)) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", ranks);
    }
    if (response->has_shape) {
        digest_shape(&response->shape, &answer->topology, &answer->hosts_digest,
                     &answer->shape_digest);
    } else {
        muster_formed_answer_digest(response, &answer->hosts_digest, &answer->shape_digest);
    }
    list_stale(response, answer);
    return response->has_shape ? list_neighbours(response, reader, answer)
                               : list_peers(response, reader, answer);
}

muster_status muster_formed_answer_read(const struct muster_join_response *response,
                                        const struct muster_answer_reader *reader,
                                        struct muster_formed_answer *ret_answer)
{
    struct muster_formed_answer answer = {0};
    if (response->generation <= reader->last_generation) {
        return muster_error_set(MUSTER_FATAL,
                                "the answer to Join: generation %" PRIu64 " is not after %" PRIu64
                                ", which has ended",
                                response->generation, reader->last_generation);
    }
    if (fill(response, reader, &answer) != MUSTER_OK) {
        muster_formed_answer_finish(&answer);
        return muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    *ret_answer = answer;
    return MUSTER_OK;
}

void muster_formed_answer_finish(struct muster_formed_answer *answer)
{
    muster_topology_finish(&answer->topology);
    free(answer->orders);
    free(answer->peers);
    free(answer->peer_ranks);
    free(answer->stale);
}
