/* Runs of hosts of one size, of racks of as many hosts, of members with increasing orders, and of
 * stale ranks. */
#include "rendezvous/service/job_shape.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

static const struct muster_member_info *info_of(const struct muster_membership *membership,
                                                const char *member)
{
    struct muster_member_view view;
    return muster_membership_find(membership, member, &view) ? view.info : NULL;
}

/* As members digest the list of hosts, where they get that: names and racks with their ends. */
static uint32_t digest_text(uint32_t digest, const char *text)
{
    return (uint32_t)crc32(digest, (const Bytef *)text, (uInt)strlen(text) + 1);
}

static void add_host(struct muster_wire_shape *shape, uint32_t size)
{
    struct muster_wire_host_run *last =
        shape->host_run_count > 0 ? &shape->hosts[shape->host_run_count - 1] : NULL;
    if (last == NULL || last->size != size) {
        last = &shape->hosts[shape->host_run_count++];
        last->size = size;
    }
    last->hosts++;
}

static void add_rack(struct muster_wire_shape *shape, uint32_t hosts)
{
    struct muster_wire_rack_run *last =
        shape->rack_run_count > 0 ? &shape->racks[shape->rack_run_count - 1] : NULL;
    if (last == NULL || last->hosts != hosts) {
        last = &shape->racks[shape->rack_run_count++];
        last->hosts = hosts;
    }
    last->racks++;
}

/* Two members begin a run with any step; the third one has to fit. */
static void add_order(struct muster_wire_shape *shape, uint32_t order)
{
    struct muster_wire_order_run *last =
        shape->order_run_count > 0 ? &shape->orders[shape->order_run_count - 1] : NULL;
    if (last != NULL && last->count == 1) {
        last->step = order - last->first; /* modulo 2^32 */
    }
    if (last == NULL || last->first + last->count * last->step != order) {
        last = &shape->orders[shape->order_run_count++];
        last->first = order;
    }
    last->count++;
}

static void add_stale(struct muster_wire_shape *shape, uint32_t rank)
{
    struct muster_wire_ranks *last =
        shape->stale_count > 0 ? &shape->stale[shape->stale_count - 1] : NULL;
    if (last == NULL || last->first + last->count != rank) {
        last = &shape->stale[shape->stale_count++];
        last->first = rank;
    }
    last->count++;
}

static void fill_hosts(const struct muster_membership *membership,
                       const struct muster_generation_view *generation,
                       struct muster_wire_shape *shape)
{
    const char *rack = "";
    uint32_t in_rack = 0;
    uint32_t first = 0;
    shape->hosts_digest = (uint32_t)crc32(0, NULL, 0);
    for (uint32_t i = 0; i < generation->hosts; i++) {
        const struct muster_member_info *info = info_of(membership, generation->members[first]);
        const char *its_rack = info != NULL ? info->rack : "";
        shape->hosts_digest = digest_text(shape->hosts_digest, info != NULL ? info->host : "gone");
        shape->hosts_digest = digest_text(shape->hosts_digest, its_rack);
        add_host(shape, generation->host_sizes[i]);
        if (in_rack > 0 && strcmp(rack, its_rack) != 0) {
            add_rack(shape, in_rack);
            in_rack = 0;
        }
        rack = its_rack;
        in_rack++;
        first += generation->host_sizes[i];
    }
    if (in_rack > 0) {
        add_rack(shape, in_rack);
    }
}

bool muster_job_shape_fill(const struct muster_membership *membership,
                           const struct muster_generation_view *generation,
                           struct muster_wire_shape *ret_shape)
{
    struct muster_wire_shape *shape = ret_shape;
    *shape = (struct muster_wire_shape){
        .hosts = calloc(generation->hosts, sizeof *shape->hosts),
        .racks = calloc(generation->hosts, sizeof *shape->racks),
        .orders = calloc(generation->size, sizeof *shape->orders),
        .stale = calloc(generation->size, sizeof *shape->stale),
    };
    if (shape->hosts == NULL || shape->racks == NULL || shape->orders == NULL ||
        shape->stale == NULL) {
        return false;
    }
    fill_hosts(membership, generation, shape);
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        const struct muster_member_info *info = info_of(membership, generation->members[rank]);
        add_order(shape, info != NULL ? info->order : 0);
        if (generation->stale[rank] != 0) {
            add_stale(shape, rank);
        }
    }
    return true;
}
