/* The texts of a generation. A peer is encoded once, and every list of peers is put together from
 * these texts: a generation of thousands has as many lists. */
#include "rendezvous/service/formed.h"

#include "worker/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Peers --------------------------------------------------------------------------------------- */

static json_t *encode_peer(const struct muster_membership *membership, const char *member,
                           uint32_t rank)
{
    struct muster_member_view view;
    struct muster_wire_peer peer = {.rank = rank};
    (void)snprintf(peer.member, sizeof peer.member, "%s", member);
    if (muster_membership_find(membership, member, &view)) {
        peer.order = view.info->order;
        peer.address_count = view.info->address_count;
        memcpy(peer.addresses, view.info->addresses, sizeof peer.addresses);
    }
    return muster_wire_peer_encode(&peer);
}

static int append_text(const char *text, size_t size_bytes, void *user)
{
    return fwrite(text, 1, size_bytes, user) == size_bytes ? 0 : -1;
}

static bool write_peer(const struct muster_membership *membership, const char *member,
                       uint32_t rank, FILE *file)
{
    json_t *json = encode_peer(membership, member, rank);
    bool written = json != NULL && json_dump_callback(json, append_text, file, JSON_COMPACT) == 0 &&
                   fputc(',', file) != EOF;
    json_decref(json);
    return written;
}

static bool make_peers(struct muster_formed *formed, const struct muster_membership *membership)
{
    struct muster_generation_view generation = muster_membership_generation(membership);
    size_t size_bytes = 0;
    FILE *file = open_memstream(&formed->peers, &size_bytes);
    bool written = file != NULL;
    for (uint32_t rank = 0; rank < generation.size && written; rank++) {
        written = write_peer(membership, generation.members[rank], rank, file);
        formed->peer_ends[rank] = written ? (size_t)ftello(file) : 0;
    }
    return file != NULL && fclose(file) == 0 && written;
}

const char *muster_formed_peer(const struct muster_formed *formed, uint32_t rank,
                               size_t *ret_size_bytes)
{
    size_t begin = rank == 0 ? 0 : formed->peer_ends[rank - 1];
    *ret_size_bytes = formed->peer_ends[rank] - begin - 1;
    return formed->peers + begin;
}

/* The rest ------------------------------------------------------------------------------------- */

static bool fill_hosts(const struct muster_membership *membership,
                       const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    struct muster_member_view view;
    uint32_t first = 0;
    response->hosts = calloc(generation->hosts, sizeof *response->hosts);
    if (response->hosts == NULL) {
        return false;
    }
    response->host_count = generation->hosts;
    for (uint32_t i = 0; i < generation->hosts; i++) {
        struct muster_wire_host *host = &response->hosts[i];
        bool there = muster_membership_find(membership, generation->members[first], &view);
        (void)snprintf(host->name, sizeof host->name, "%s", there ? view.info->host : "gone");
        (void)snprintf(host->rack, sizeof host->rack, "%s", there ? view.info->rack : "");
        host->size = generation->host_sizes[i];
        first += host->size;
    }
    return true;
}

static bool fill_stale(const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    response->stale = calloc(generation->size, sizeof *response->stale);
    for (uint32_t rank = 0; rank < generation->size && response->stale != NULL; rank++) {
        if (generation->stale[rank] != 0) {
            response->stale[response->stale_count++] = rank;
        }
    }
    return response->stale != NULL;
}

/* The object "formed" without peers and without what is a member's own; new. NULL: no memory. */
static json_t *encode_common(const struct muster_membership *membership,
                             const struct muster_formed_settings *settings)
{
    static const char *const own[] = {"generation", "rank",      "localRank", "localSize",
                                      "crossRank",  "crossSize", "peers"};
    struct muster_generation_view generation = muster_membership_generation(membership);
    struct muster_join_response response = {
        .formed = true,
        .generation = generation.number,
        .state_version = generation.state_version,
        .state_source = generation.state_source,
        .hold_ms = settings->hold_ms,
        .lease_ms = muster_membership_settings(membership).lease_ms,
    };
    (void)snprintf(response.link_token, sizeof response.link_token, "%s", settings->link_token);
    json_t *formed = NULL;
    if (fill_hosts(membership, &generation, &response) && fill_stale(&generation, &response)) {
        json_t *json = muster_join_response_encode(&response);
        formed = json_incref(json_object_get(json, "formed"));
        json_decref(json);
    }
    muster_join_response_finish(&response);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        (void)json_object_del(formed, own[i]);
    }
    if (formed != NULL && json_object_set_new(formed, "size", json_integer(generation.size)) != 0) {
        json_decref(formed);
        return NULL;
    }
    return formed;
}

/* The members of each host as runs of hosts of one size: [{"hosts": 1250, "size": 8}]. */
static json_t *encode_shape(const struct muster_generation_view *generation)
{
    json_t *runs = json_array();
    for (uint32_t i = 0; i < generation->hosts;) {
        uint32_t size = generation->host_sizes[i];
        uint32_t first = i;
        while (i < generation->hosts && generation->host_sizes[i] == size) {
            i++;
        }
        if (json_array_append_new(runs, json_pack("{sIsI}", "hosts", (json_int_t)(i - first),
                                                  "size", (json_int_t)size)) != 0) {
            json_decref(runs);
            return NULL;
        }
    }
    return runs;
}

/* The stale ranks as ranges: [{"first": 1, "count": 9999}]. */
static json_t *encode_stale_ranges(const struct muster_generation_view *generation)
{
    json_t *ranges = json_array();
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        uint32_t first = rank;
        while (rank < generation->size && generation->stale[rank] != 0) {
            rank++;
        }
        if (rank > first &&
            json_array_append_new(ranges, json_pack("{sIsI}", "first", (json_int_t)first, "count",
                                                    (json_int_t)(rank - first))) != 0) {
            json_decref(ranges);
            return NULL;
        }
    }
    return ranges;
}

/* An object's text goes on after "{", with more fields before its end, and the end of "formed". */
static struct muster_shared_text *close_object(const json_t *common, const char *more,
                                               size_t more_bytes)
{
    AUTO_FREE char *text = json_dumps(common, JSON_COMPACT);
    size_t size_bytes = 0;
    AUTO_FREE char *whole = NULL;
    FILE *file = text != NULL ? open_memstream(&whole, &size_bytes) : NULL;
    if (file == NULL) {
        return NULL;
    }
    bool written = fwrite(text + 1, 1, strlen(text) - 2, file) == strlen(text) - 2 &&
                   fwrite(more, 1, more_bytes, file) == more_bytes && fputs("}}", file) >= 0;
    return fclose(file) == 0 && written ? muster_shared_text_create(whole, size_bytes) : NULL;
}

static struct muster_shared_text *make_whole(const struct muster_formed *formed,
                                             const json_t *common)
{
    static const char before[] = ",\"peers\":[";
    size_t peers_bytes = formed->peer_ends[formed->size - 1] - 1;
    size_t size_bytes = sizeof before - 1 + peers_bytes + 1;
    AUTO_FREE char *more = malloc(size_bytes);
    if (more == NULL) {
        return NULL;
    }
    memcpy(more, before, sizeof before - 1);
    memcpy(more + sizeof before - 1, formed->peers, peers_bytes);
    more[size_bytes - 1] = ']';
    return close_object(common, more, size_bytes);
}

static struct muster_shared_text *make_shape(const struct muster_generation_view *generation,
                                             json_t *common)
{
    json_t *state = json_object_get(common, "state");
    (void)json_object_del(common, "hosts");
    (void)json_object_del(state, "stale");
    if (json_object_set_new(common, "shape", encode_shape(generation)) != 0 ||
        json_object_set_new(state, "staleRanges", encode_stale_ranges(generation)) != 0) {
        return NULL;
    }
    return close_object(common, "", 0);
}

struct muster_formed *muster_formed_create(const struct muster_membership *membership,
                                           const struct muster_formed_settings *settings)
{
    struct muster_generation_view generation = muster_membership_generation(membership);
    struct muster_formed *formed = calloc(1, sizeof *formed);
    if (formed == NULL) {
        return NULL;
    }
    formed->generation = generation.number;
    formed->size = generation.size;
    formed->hosts = generation.hosts;
    formed->host_sizes = calloc(generation.hosts, sizeof *formed->host_sizes);
    formed->peer_ends = calloc(generation.size, sizeof *formed->peer_ends);
    json_t *common = encode_common(membership, settings);
    if (common != NULL && formed->host_sizes != NULL && formed->peer_ends != NULL &&
        make_peers(formed, membership)) {
        memcpy(formed->host_sizes, generation.host_sizes,
               generation.hosts * sizeof *formed->host_sizes);
        formed->whole = make_whole(formed, common);
        formed->shape = make_shape(&generation, common); /* last: it takes hosts from common */
    }
    json_decref(common);
    if (formed->whole == NULL || formed->shape == NULL) {
        muster_formed_destroy(formed);
        return NULL;
    }
    return formed;
}

void muster_formed_destroy(struct muster_formed *formed)
{
    if (formed != NULL) {
        muster_shared_text_release(formed->whole);
        muster_shared_text_release(formed->shape);
        free(formed->peers);
        free(formed->peer_ends);
        free(formed->host_sizes);
        free(formed);
    }
}
