/* A job of threads without a service: fabrics, contexts, and a thread for each member's work. */
#include "tests/support/group.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/fabrics.h"
#include "worker/base/clock.h"

struct started {
    struct group_member *member;
    group_work work;
    void *argument;
};

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        fail_msg("%s: %s", muster_status_name(status), muster_last_error());
    }
}

int64_t group_deadline(void)
{
    return muster_clock_after_ms(GROUP_DEADLINE_MS);
}

static const char *const transports[] = {
    [GROUP_INPROC] = "inproc", [GROUP_TCP] = "tcp",     [GROUP_SHM] = "shm",
    [GROUP_MEMORY] = "shm",    [GROUP_VERBS] = "verbs", [GROUP_BETWEEN_DEVICES] = "verbs"};

static void start_fabrics(struct group *group, enum group_transport transport)
{
    for (uint32_t i = 0; i < group->size; i++) {
        struct group_member *member = &group->members[group->callers[i]];
        struct muster_peer *peer = &member->peer;
        *member = (struct group_member){.group = group, .rank = group->callers[i]};
        muster_random_uuid(peer->member);
        (void)snprintf(peer->host, sizeof peer->host, "host%u",
                       muster_topology_locate(&group->topology, i).host);
        struct fabric_wish wish = {.transports = transports[transport],
                                   .fabric = {.member = peer->member,
                                              .link_token = GROUP_TOKEN,
                                              .segment_bytes = group->segment_bytes}};
        if (transport == GROUP_BETWEEN_DEVICES) {
            wish.options.verbs_device = i % 2 == 0 ? "rxe0" : "rxe1";
        }
        must(fabrics_make(&wish, &member->fabric));
        peer->address_count = muster_fabric_address_count(member->fabric);
        for (uint32_t j = 0; j < peer->address_count; j++) {
            (void)snprintf(peer->addresses[j], sizeof peer->addresses[j], "%s",
                           muster_fabric_address(member->fabric, j));
        }
    }
}

static void create_communicators(struct group *group, const char *algorithm)
{
    struct muster_peer peers[GROUP_SIZE_MAX];
    for (uint32_t i = 0; i < group->size; i++) {
        peers[i] = group->members[i].peer;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        struct group_member *member = &group->members[i];
        const struct muster_communicator_options options = {.fabric = member->fabric,
                                                            .generation = group->generation,
                                                            .topology = &group->topology,
                                                            .callers = group->callers,
                                                            .peers = peers,
                                                            .rank = i,
                                                            .contribution_numbers = group->orders,
                                                            .algorithm = algorithm,
                                                            .timeout_ms = GROUP_DEADLINE_MS};
        must(muster_communicator_create(&options, &member->communicator));
        member->contexts = member->communicator->contexts;
    }
}

static void share_memory(struct group_member *member, void *argument)
{
    uint32_t suspect = UINT32_MAX;
    (void)argument;
    muster_status status = muster_communicator_share_memory(member->communicator, &suspect);
    if (status != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void begin_generation(struct group *group, const char *algorithm)
{
    create_communicators(group, algorithm);
    if (group->transport == GROUP_MEMORY) {
        group_each(group, share_memory, NULL);
    }
}

static void start(struct group *group, enum group_transport transport, uint32_t hosts,
                  const uint32_t *host_sizes, const char *algorithm)
{
    group->transport = transport;
    must(muster_topology_init(hosts, host_sizes, &group->topology));
    group->size = group->topology.ranks;
    assert_in_range(group->size, 1, GROUP_SIZE_MAX);
    start_fabrics(group, transport);
    begin_generation(group, algorithm);
}

void group_start(struct group *group, enum group_transport transport, uint32_t hosts,
                 const uint32_t *host_sizes, const char *algorithm)
{
    uint32_t in_order[GROUP_SIZE_MAX];
    for (uint32_t i = 0; i < GROUP_SIZE_MAX; i++) {
        in_order[i] = i;
    }
    group_start_shuffled(group, transport, hosts, host_sizes, in_order, algorithm);
}

void group_start_shuffled(struct group *group, enum group_transport transport, uint32_t hosts,
                          const uint32_t *host_sizes, const uint32_t *callers,
                          const char *algorithm)
{
    *group = (struct group){.generation = 3};
    uint32_t rank = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        for (uint32_t i = 0; i < host_sizes[host]; i++, rank++) {
            group->callers[rank] = callers[rank];
            group->orders[rank] = rank;
        }
    }
    start(group, transport, hosts, host_sizes, algorithm);
}

void group_start_ordered(struct group *group, enum group_transport transport, uint32_t hosts,
                         const uint32_t *host_sizes, const uint32_t *orders, uint32_t segment_bytes)
{
    *group = (struct group){.generation = 3, .segment_bytes = segment_bytes};
    for (uint32_t host = 0, rank = 0; host < hosts; host++) {
        for (uint32_t i = 0; i < host_sizes[host]; i++, rank++) {
            group->orders[rank] = orders[rank];
            group->callers[rank] = rank;
        }
    }
    start(group, transport, hosts, host_sizes, NULL);
}

void group_start_flat(struct group *group, enum group_transport transport, uint32_t size)
{
    group_start(group, transport, 1, &size, NULL);
}

static void destroy_communicator(struct group_member *member)
{
    muster_communicator_destroy(member->communicator);
    member->communicator = NULL;
    member->contexts = NULL;
}

/* The topology without that rank, and without its host if that becomes empty. */
static void remove_rank(struct muster_topology *topology, uint32_t rank)
{
    uint32_t sizes[GROUP_SIZE_MAX];
    uint32_t hosts = 0;
    uint32_t host = muster_topology_locate(topology, rank).host;
    for (uint32_t i = 0; i < topology->hosts; i++) {
        uint32_t size = topology->host_sizes[i] - (i == host ? 1 : 0);
        if (size > 0) {
            sizes[hosts++] = size;
        }
    }
    muster_topology_finish(topology);
    must(muster_topology_init(hosts, sizes, topology));
}

void group_regroup(struct group *group, uint32_t leaver, const char *algorithm)
{
    for (uint32_t i = 0; i < group->size; i++) {
        destroy_communicator(&group->members[i]);
    }
    if (leaver < group->size) {
        muster_fabric_destroy(group->members[leaver].fabric, 0);
        remove_rank(&group->topology, leaver);
        group->size--;
        for (uint32_t i = leaver; i < group->size; i++) {
            group->members[i] = group->members[i + 1];
            group->members[i].rank = i;
            group->orders[i] = group->orders[i + 1];
        }
    }
    group->generation++;
    begin_generation(group, algorithm);
}

void group_finish(struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        destroy_communicator(&group->members[i]);
        muster_fabric_destroy(group->members[i].fabric, 0);
    }
    muster_topology_finish(&group->topology);
}

static void *run_member(void *argument)
{
    const struct started *started = argument;
    started->work(started->member, started->argument);
    return NULL;
}

void group_each(struct group *group, group_work work, void *argument)
{
    pthread_t threads[GROUP_SIZE_MAX];
    struct started started[GROUP_SIZE_MAX];
    for (uint32_t i = 0; i < group->size; i++) {
        group->members[i].failure[0] = '\0';
        started[i] = (struct started){&group->members[i], work, argument};
        assert_int_equal(pthread_create(&threads[i], NULL, run_member, &started[i]), 0);
    }
    for (uint32_t i = 0; i < group->size; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->members[i].failure[0] != '\0') {
            fail_msg("rank %u: %s", i, group->members[i].failure);
        }
    }
}

void group_over_links(uint32_t hosts, const uint32_t *host_sizes, group_work work, void *argument)
{
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start(&group, transport, hosts, host_sizes, NULL);
        group_each(&group, work, argument);
        group_finish(&group);
    }
}

void group_fail(struct group_member *member, const char *format, ...)
{
    if (member->failure[0] != '\0') {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(member->failure, sizeof member->failure, format, arguments);
    va_end(arguments);
}
