/* Both forms of the answer to Join say the same of a generation; contradictions are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/session/formed_answer.h"

/* Hosts a, b, c in rack r, d in rack s: 3, 3, 3 and 2 members. */
enum { HOSTS = 4, SIZE = 11, OWN = 4 };

static const uint32_t host_sizes[HOSTS] = {3, 3, 3, 2};
static const char *const host_names[HOSTS] = {"a", "b", "c", "d"};

static uint32_t host_of(uint32_t rank)
{
    return rank / 3;
}

static struct muster_wire_peer peer_of(uint32_t rank)
{
    struct muster_wire_peer peer = {.rank = rank, .order = 100 + 5 * rank, .address_count = 1};
    (void)snprintf(peer.member, sizeof peer.member, "member-%u", rank);
    (void)snprintf(peer.host, sizeof peer.host, "%s", host_names[host_of(rank)]);
    (void)snprintf(peer.addresses[0], sizeof peer.addresses[0], "tcp://10.0.0.%u:1", rank);
    return peer;
}

static const struct muster_answer_reader reader = {.member = "member-4", .host = "b"};

/* The lists of both are the test's own. */
struct answers {
    struct muster_wire_host hosts[HOSTS];
    struct muster_wire_peer peers[SIZE];
    uint32_t stale[4];
    struct muster_wire_host_run host_runs[2];
    struct muster_wire_rack_run rack_runs[2];
    struct muster_wire_order_run order_runs[1];
    struct muster_wire_ranks stale_ranges[2];
    struct muster_wire_peer near[SIZE];
    struct muster_join_response lists, shape;
};

static struct answers *make_answers(void)
{
    struct answers *all = calloc(1, sizeof *all);
    assert_non_null(all);
    for (uint32_t i = 0; i < HOSTS; i++) {
        (void)snprintf(all->hosts[i].name, sizeof all->hosts[i].name, "%s", host_names[i]);
        (void)snprintf(all->hosts[i].rack, sizeof all->hosts[i].rack, "%s", i < 3 ? "r" : "s");
        all->hosts[i].size = host_sizes[i];
    }
    for (uint32_t i = 0; i < SIZE; i++) {
        all->peers[i] = peer_of(i);
    }
    const uint32_t stale[] = {1, 2, 3, 7};
    memcpy(all->stale, stale, sizeof stale);
    all->host_runs[0] = (struct muster_wire_host_run){.hosts = 3, .size = 3};
    all->host_runs[1] = (struct muster_wire_host_run){.hosts = 1, .size = 2};
    all->rack_runs[0] = (struct muster_wire_rack_run){.racks = 1, .hosts = 3};
    all->rack_runs[1] = (struct muster_wire_rack_run){.racks = 1, .hosts = 1};
    all->order_runs[0] = (struct muster_wire_order_run){.first = 100, .count = SIZE, .step = 5};
    all->stale_ranges[0] = (struct muster_wire_ranks){.first = 1, .count = 3};
    all->stale_ranges[1] = (struct muster_wire_ranks){.first = 7, .count = 1};
    const uint32_t near[] = {5, 3, 8};
    for (uint32_t i = 0; i < 3; i++) {
        all->near[i] = peer_of(near[i]);
    }
    all->lists = (struct muster_join_response){.formed = true,
                                               .generation = 1,
                                               .rank = OWN,
                                               .size = SIZE,
                                               .host_count = HOSTS,
                                               .hosts = all->hosts,
                                               .peers = all->peers,
                                               .stale_count = 4,
                                               .stale = all->stale};
    all->shape = (struct muster_join_response){.formed = true,
                                               .has_shape = true,
                                               .generation = 1,
                                               .rank = OWN,
                                               .size = SIZE,
                                               .shape = {.near_count = 3,
                                                         .host_run_count = 2,
                                                         .rack_run_count = 2,
                                                         .order_run_count = 1,
                                                         .stale_count = 2,
                                                         .host_count = HOSTS,
                                                         .member = "member-4",
                                                         .near = all->near,
                                                         .hosts = all->host_runs,
                                                         .racks = all->rack_runs,
                                                         .orders = all->order_runs,
                                                         .stale = all->stale_ranges}};
    uint32_t unused;
    muster_formed_answer_digest(&all->lists, &all->shape.shape.hosts_digest, &unused);
    return all;
}

static void both_forms_say_the_same(void **state)
{
    struct answers *all = make_answers();
    struct muster_formed_answer lists;
    struct muster_formed_answer shape;
    (void)state;
    assert_int_equal(muster_formed_answer_read(&all->lists, &reader, &lists), MUSTER_OK);
    assert_int_equal(muster_formed_answer_read(&all->shape, &reader, &shape), MUSTER_OK);
    assert_int_equal(lists.topology.hosts, shape.topology.hosts);
    assert_memory_equal(lists.topology.host_sizes, shape.topology.host_sizes,
                        HOSTS * sizeof *lists.topology.host_sizes);
    assert_int_equal(lists.topology.racks, 2);
    assert_int_equal(shape.topology.racks, 2);
    assert_memory_equal(lists.topology.rack_sizes, shape.topology.rack_sizes,
                        2 * sizeof *lists.topology.rack_sizes);
    assert_memory_equal(lists.orders, shape.orders, SIZE * sizeof *lists.orders);
    assert_int_equal(lists.stale_count, shape.stale_count);
    assert_memory_equal(lists.stale, shape.stale, lists.stale_count * sizeof *lists.stale);
    assert_int_equal(lists.hosts_digest, shape.hosts_digest);
    assert_int_equal(lists.shape_digest, shape.shape_digest);
    assert_int_equal(lists.peer_count, SIZE);
    assert_null(lists.peer_ranks);
    assert_int_equal(shape.peer_count, 3);
    for (uint32_t i = 0; i < shape.peer_count; i++) {
        assert_memory_equal(&shape.peers[i], &lists.peers[shape.peer_ranks[i]],
                            sizeof shape.peers[i]);
    }
    assert_false(lists.peers[3].other_host);
    assert_true(lists.peers[8].other_host);
    muster_formed_answer_finish(&lists);
    muster_formed_answer_finish(&shape);
    free(all);
}

static void expect_refused(const struct muster_join_response *response, const char *text)
{
    struct muster_formed_answer answer;
    assert_int_equal(muster_formed_answer_read(response, &reader, &answer), MUSTER_FATAL);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, muster_last_error());
    }
}

static void answers_that_are_another_member_s_are_refused(void **state)
{
    struct answers *all = make_answers();
    (void)state;
    all->lists.rank = 5;
    expect_refused(&all->lists, "the answer to Join: rank 5 is another member");
    (void)snprintf(all->shape.shape.member, sizeof all->shape.shape.member, "member-5");
    expect_refused(&all->shape, "the answer to Join: rank 4 is another member");
    free(all);
}

static void a_generation_that_has_ended_is_refused(void **state)
{
    (void)state;
    struct answers *all = make_answers();
    struct muster_formed_answer answer;
    struct muster_answer_reader later = reader;
    all->lists.generation = 7;
    later.last_generation = 6;
    assert_int_equal(muster_formed_answer_read(&all->lists, &later, &answer), MUSTER_OK);
    muster_formed_answer_finish(&answer);
    later.last_generation = 7;
    assert_int_equal(muster_formed_answer_read(&all->lists, &later, &answer), MUSTER_FATAL);
    assert_string_equal(muster_last_error(),
                        "the answer to Join: generation 7 is not after 7, which has ended");
    free(all);
}

static void peers_that_do_not_fit_the_shape_are_refused(void **state)
{
    struct answers *all = make_answers();
    (void)state;
    all->near[2].rank = 4; /* on this host, with the name of another one */
    expect_refused(&all->shape,
                   "rank 4 is on host c, and rank 4 on host b: the job's shape says "
                   "that these are one");
    all->near[2] = peer_of(8);
    (void)snprintf(all->near[2].host, sizeof all->near[2].host, "b");
    expect_refused(&all->shape,
                   "rank 8 is on host b, and rank 4 on host b: the job's shape says "
                   "that these are two");
    all->near[2].rank = SIZE;
    expect_refused(&all->shape, "rank 11 of 11 does not exist");
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_say_the_same),
        cmocka_unit_test(answers_that_are_another_member_s_are_refused),
        cmocka_unit_test(a_generation_that_has_ended_is_refused),
        cmocka_unit_test(peers_that_do_not_fit_the_shape_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
