/* The choice of port and GID, and the error texts where there is none. */
#include "worker/fabric/verbs/verbs_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Devices ------------------------------------------------------------------------------------ */

static struct muster_verbs_port *add_port(struct muster_verbs_ports *ports, const char *device,
                                          uint32_t number, bool active)
{
    struct muster_verbs_port *port = &ports->all[ports->count++];
    memset(port, 0, sizeof *port);
    (void)snprintf(port->device, sizeof port->device, "%s", device);
    (void)snprintf(port->state, sizeof port->state, "%s", active ? "active" : "down");
    port->number = number;
    port->active = active;
    return port;
}

enum kind { OF_LINK, OF_IPV6, OF_IPV4 };

static void add_gid(struct muster_verbs_port *port, uint32_t index, enum muster_verbs_gid_type type,
                    enum kind kind)
{
    struct muster_verbs_gid *gid = &port->gids[port->gid_count++];
    memset(gid, 0, sizeof *gid);
    gid->index = index;
    gid->type = type;
    if (kind == OF_IPV4) {
        memset(gid->bytes + 10, 0xff, 2);
        memcpy(gid->bytes + 12, (unsigned char[]){10, 0, 0, 1}, 4);
    } else {
        gid->bytes[0] = kind == OF_LINK ? 0xfe : 0xfd;
        gid->bytes[1] = kind == OF_LINK ? 0x80 : 0x00;
        gid->bytes[15] = 1;
    }
}

/* An adapter with two ports, of which the first has no cable. */
static struct muster_verbs_ports *adapter(void)
{
    static struct muster_verbs_ports ports;
    ports.count = 0;
    (void)add_port(&ports, "mlx5_0", 1, false);
    struct muster_verbs_port *port = add_port(&ports, "mlx5_1", 1, true);
    add_gid(port, 0, MUSTER_VERBS_ROCE_1, OF_LINK);
    add_gid(port, 1, MUSTER_VERBS_ROCE_2, OF_LINK);
    add_gid(port, 2, MUSTER_VERBS_ROCE_1, OF_IPV4);
    add_gid(port, 4, MUSTER_VERBS_ROCE_2, OF_IPV6);
    add_gid(port, 3, MUSTER_VERBS_ROCE_2, OF_IPV4);
    return &ports;
}

static void expect_choice(const struct muster_verbs_ports *ports,
                          struct muster_verbs_selection selection, const char *device,
                          uint32_t gid_index)
{
    const struct muster_verbs_port *port = NULL;
    const struct muster_verbs_gid *gid = NULL;
    if (muster_verbs_choose(ports, &selection, &port, &gid) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    assert_string_equal(port->device, device);
    assert_int_equal(gid->index, gid_index);
}

static void expect_refusal(const struct muster_verbs_ports *ports,
                           struct muster_verbs_selection selection, const char *word,
                           const char *remedy)
{
    const struct muster_verbs_port *port = NULL;
    const struct muster_verbs_gid *gid = NULL;
    assert_int_equal(muster_verbs_choose(ports, &selection, &port, &gid), MUSTER_INVALID);
    if (strstr(muster_last_error(), word) == NULL || strstr(muster_last_error(), remedy) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", muster_last_error(), word, remedy);
    }
    assert_null(port);
    assert_null(gid);
}

static const struct muster_verbs_selection anything = {.gid = -1};

/* Tests --------------------------------------------------------------------------------------- */

static void the_port_that_is_up_is_used_by_its_routed_address(void **state)
{
    (void)state;
    expect_choice(adapter(), anything, "mlx5_1", 3);
}

static void the_gid_with_the_highest_score_is_used(void **state)
{
    (void)state;
    struct muster_verbs_ports *ports = adapter();
    struct muster_verbs_port *port = &ports->all[1];
    const uint32_t order[] = {3, 4, 1, 2, 0};
    for (uint32_t i = 0; i < 5; i++) {
        expect_choice(ports, anything, "mlx5_1", order[i]);
        for (uint32_t k = 0; k < port->gid_count; k++) {
            if (port->gids[k].index == order[i]) {
                port->gids[k] = port->gids[--port->gid_count];
            }
        }
    }
    expect_refusal(ports, anything, "mlx5_1 has no GID", "ip addr add");
}

static void a_selection_narrows_the_choice(void **state)
{
    (void)state;
    struct muster_verbs_ports *ports = adapter();
    expect_choice(ports, (struct muster_verbs_selection){.gid = 2}, "mlx5_1", 2);
    expect_choice(ports, (struct muster_verbs_selection){.device = "mlx5_1", .port = 1, .gid = -1},
                  "mlx5_1", 3);
    add_gid(add_port(ports, "mlx5_1", 2, true), 0, MUSTER_VERBS_INFINIBAND, OF_LINK);
    expect_choice(ports, (struct muster_verbs_selection){.port = 2, .gid = -1}, "mlx5_1", 0);
}

static void errors_name_what_is_missing_and_the_remedy(void **state)
{
    (void)state;
    struct muster_verbs_ports *ports = adapter();
    expect_refusal(ports, (struct muster_verbs_selection){.device = "mlx5_0", .gid = -1},
                   "port 1 of mlx5_0 is not up (down)", "ip link");
    expect_refusal(ports, (struct muster_verbs_selection){.device = "mlx4_0", .gid = -1},
                   "no mlx4_0 (MUSTER_VERBS_DEVICE", "only mlx5_0 port 1, mlx5_1 port 1");
    expect_refusal(ports, (struct muster_verbs_selection){.port = 7, .gid = -1}, "port 7",
                   "only mlx5_0");
    expect_refusal(ports, (struct muster_verbs_selection){.gid = 9}, "index 9 (MUSTER_VERBS_GID)",
                   "list them");
    ports->count = 0;
    expect_refusal(ports, anything, "has no RDMA device", "rdma link");
}

static void many_ports_are_listed_as_far_as_there_is_room(void **state)
{
    (void)state;
    struct muster_verbs_ports *ports = adapter();
    while (ports->count < MUSTER_VERBS_PORTS_MAX) {
        (void)add_port(ports, "a_device_with_a_long_name", ports->count, true);
    }
    expect_refusal(ports, (struct muster_verbs_selection){.device = "x", .gid = -1}, "no x",
                   "mlx5_1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_port_that_is_up_is_used_by_its_routed_address),
        cmocka_unit_test(the_gid_with_the_highest_score_is_used),
        cmocka_unit_test(a_selection_narrows_the_choice),
        cmocka_unit_test(errors_name_what_is_missing_and_the_remedy),
        cmocka_unit_test(many_ports_are_listed_as_far_as_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
