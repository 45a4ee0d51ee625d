/* The choice of port and GID, and the error texts where there is none. */
#include "worker/fabric/verbs/verbs_choice.h"

#include <stdio.h>
#include <string.h>

bool muster_verbs_gid_is_ipv4(const struct muster_verbs_gid *gid)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->bytes, mapped, sizeof mapped) == 0;
}

bool muster_verbs_gid_is_link_local(const struct muster_verbs_gid *gid)
{
    return gid->bytes[0] == 0xfe && (gid->bytes[1] & 0xc0) == 0x80;
}

/* Higher is better. */
static int score_of(const struct muster_verbs_gid *gid)
{
    int value = gid->type == MUSTER_VERBS_ROCE_1 ? 1 : 11;
    value += muster_verbs_gid_is_ipv4(gid) ? 2 : 0;
    value += muster_verbs_gid_is_link_local(gid) ? 0 : 1;
    return value;
}

static const struct muster_verbs_gid *choose_gid(const struct muster_verbs_port *port,
                                                 int32_t selection)
{
    const struct muster_verbs_gid *best = NULL;
    for (uint32_t i = 0; i < port->gid_count; i++) {
        const struct muster_verbs_gid *gid = &port->gids[i];
        if (selection >= 0 && gid->index != (uint32_t)selection) {
            continue;
        }
        if (best == NULL || score_of(gid) > score_of(best)) {
            best = gid;
        }
    }
    return best;
}

static bool matches_selection(const struct muster_verbs_port *port,
                              const struct muster_verbs_selection *selection)
{
    return (selection->device == NULL || strcmp(port->device, selection->device) == 0) &&
           (selection->port == 0 || port->number == selection->port);
}

/* "mlx5_0 port 1, mlx5_1 port 1". */
static void list_ports(const struct muster_verbs_ports *ports, size_t size, char *ret_text)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (uint32_t i = 0; i < ports->count && used < size; i++) {
        int printed = snprintf(ret_text + used, size - used, "%s%s port %u", i == 0 ? "" : ", ",
                               ports->all[i].device, ports->all[i].number);
        used += printed > 0 ? (size_t)printed : 0;
    }
}

static muster_status no_port_error(const struct muster_verbs_ports *ports,
                                   const struct muster_verbs_selection *selection)
{
    char there[128];
    char number[16];
    if (ports->count == 0) {
        return muster_error_set(
            MUSTER_INVALID,
            "this machine has no RDMA device (\"rdma link\" lists them; an "
            "adapter needs its kernel module, and in a container /dev/infiniband)");
    }
    list_ports(ports, sizeof there, there);
    (void)snprintf(number, sizeof number, " port %u", selection->port);
    return muster_error_set(MUSTER_INVALID,
                            "there is no %s%s (MUSTER_VERBS_DEVICE, MUSTER_VERBS_PORT), only %s",
                            selection->device != NULL ? selection->device : "device with",
                            selection->port > 0 ? number : "", there);
}

static muster_status port_error(const struct muster_verbs_port *port,
                                const struct muster_verbs_selection *selection)
{
    if (!port->active) {
        return muster_error_set(
            MUSTER_INVALID,
            "port %u of %s is not up (%s): check its cable, and that its network "
            "interface is up (\"ip link\")",
            port->number, port->device, port->state);
    }
    if (selection->gid >= 0) {
        return muster_error_set(MUSTER_INVALID,
                                "port %u of %s has no GID with the index %d (MUSTER_VERBS_GID); "
                                "\"rdma\" and \"show_gids\" list them",
                                port->number, port->device, selection->gid);
    }
    return muster_error_set(MUSTER_INVALID,
                            "port %u of %s has no GID: give its network interface an address "
                            "(\"ip addr add\")",
                            port->number, port->device);
}

muster_status muster_verbs_choose(const struct muster_verbs_ports *ports,
                                  const struct muster_verbs_selection *selection,
                                  const struct muster_verbs_port **ret_port,
                                  const struct muster_verbs_gid **ret_gid)
{
    const struct muster_verbs_port *closest = NULL;
    for (uint32_t i = 0; i < ports->count; i++) {
        const struct muster_verbs_port *port = &ports->all[i];
        const struct muster_verbs_gid *gid = choose_gid(port, selection->gid);
        if (!matches_selection(port, selection)) {
            continue;
        }
        if (port->active && gid != NULL) {
            *ret_port = port;
            *ret_gid = gid;
            return MUSTER_OK;
        }
        /* The error text is about the closest match. */
        closest = closest == NULL || (port->active && !closest->active) ? port : closest;
    }
    return closest == NULL ? no_port_error(ports, selection) : port_error(closest, selection);
}
