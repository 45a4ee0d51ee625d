/* The texts of a generation. A peer is encoded once, and every list of peers is put together from
 * these texts: a generation of thousands has as many lists. */
#include "rendezvous/service/formed.h"

#include "rendezvous/service/job_shape.h"
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
        (void)snprintf(peer.host, sizeof peer.host, "%s", view.info->host);
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
                             const struct muster_formed_settings *settings, bool has_shape)
{
    static const char *const own[] = {"generation", "member",    "rank", "localRank", "localSize",
                                      "crossRank",  "crossSize", "slot", "peers",     "near"};
    struct muster_generation_view generation = muster_membership_generation(membership);
    struct muster_join_response response = {
        .formed = true,
        .has_shape = has_shape,
        .generation = generation.number,
        .state_version = generation.state_version,
        .state_source = generation.state_source,
        .hold_ms = settings->hold_ms,
        .lease_ms = muster_membership_settings(membership).lease_ms,
    };
    (void)snprintf(response.link_token, sizeof response.link_token, "%s", settings->link_token);
    json_t *formed = NULL;
    if (has_shape ? muster_job_shape_fill(membership, &generation, &response.shape)
                  : fill_hosts(membership, &generation, &response) &&
                        fill_stale(&generation, &response)) {
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
    json_t *common = encode_common(membership, settings, false);
    json_t *shape = encode_common(membership, settings, true);
    if (common != NULL && shape != NULL && formed->host_sizes != NULL &&
        formed->peer_ends != NULL && make_peers(formed, membership)) {
        memcpy(formed->host_sizes, generation.host_sizes,
               generation.hosts * sizeof *formed->host_sizes);
        formed->whole = make_whole(formed, common);
        formed->shape = close_object(shape, "", 0);
    }
    json_decref(common);
    json_decref(shape);
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
