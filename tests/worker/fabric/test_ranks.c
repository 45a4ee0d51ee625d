/* Members whose lists of a generation differ, so that one of them has another rank than its peer
 * thinks: found at the hello of a new link, and over links that are kept, whoever is ahead; the
 * error names both ranks. Members that agree keep their links, whatever ranks they get. */
#include "tests/conformance/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3 };

/* How the members come to the generation in which they differ. */
struct road {
    struct rig_transport transport;
    bool kept;   /* with links of the generation before */
    bool behind; /* rank 0 begins it when the others have told their ranks */
};

static const struct road roads[] = {
    {{.name = "tcp", .transports = "tcp"}, false, false},
    {{.name = "tcp", .transports = "tcp"}, true, false},
    {{.name = "tcp", .transports = "tcp"}, true, true},
    {{.name = "tcp", .transports = "tcp", .options.tcp_connections = 3}, true, false},
    {{.name = "tcp", .transports = "tcp", .options.tcp_connections = 3}, true, true},
    {{.name = "shm", .transports = "shm"}, false, false},
    {{.name = "shm", .transports = "shm"}, true, false},
    {{.name = "shm", .transports = "shm"}, true, true},
};

static char *exchange_with_all(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    for (uint32_t i = 0; i < RANKS; i++) {
        char *error = i != rank ? rig_exchange_with(rig, rank, i) : NULL;
        if (error != NULL) {
            return error;
        }
    }
    return NULL;
}

/* Rank 1 of rank 0's list is rank 2 of the others'. */
static void begin_with_another_list(struct rig *rig, uint32_t rank)
{
    struct muster_peer peers[RANKS] = {rig->peers[0], rig->peers[2], rig->peers[1]};
    assert_int_equal(muster_fabric_begin_generation(rig->fabrics[rank], rig->generation,
                                                    rank == 0 ? rig->peers : peers, RANKS),
                     MUSTER_OK);
}

/* Drives all until rank 0 has lost a link, which it opens to rank 1 of its own list. */
static void await_loss(struct rig *rig, char *ret_reason)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    uint32_t lost = UINT32_MAX;
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(rig, 1, 1, &byte, 1);
    rig_post(rig, 0, &counter, &receive);
    while (!muster_fabric_lost_peer(rig->fabrics[0], rig->generation, &lost, ret_reason) &&
           muster_clock_ns() < deadline_ns) {
        for (uint32_t i = 0; i < RANKS; i++) {
            rig_progress(rig, i, 1);
        }
    }
    muster_fabric_withdraw(rig->fabrics[0], rig->generation, 0, 1);
}

static void take_road(const struct road *road)
{
    struct rig rig;
    char reason[MUSTER_REASON_SIZE] = "";
    char wanted[MUSTER_REASON_SIZE];
    char other[MUSTER_REASON_SIZE];
    rig_init(&rig, &road->transport, RANKS);
    if (road->kept) {
        rig_run(&rig, exchange_with_all, NULL);
    }
    rig.generation++;
    for (uint32_t i = 1; i < RANKS; i++) {
        begin_with_another_list(&rig, i);
    }
    for (int i = 0; i < 20 && road->behind; i++) {
        for (uint32_t k = 0; k < RANKS; k++) {
            rig_progress(&rig, k, 1);
        }
    }
    begin_with_another_list(&rig, 0);
    await_loss(&rig, reason);
    (void)snprintf(wanted, sizeof wanted,
                   "says that it is rank 2 in generation %llu, where this member, rank 0, has it "
                   "as rank 1",
                   (unsigned long long)rig.generation);
    (void)snprintf(other, sizeof other,
                   "says that it is rank 1 in generation %llu, where this member, rank 0, has it "
                   "as rank 2",
                   (unsigned long long)rig.generation);
    if (strstr(reason, wanted) == NULL && strstr(reason, other) == NULL) {
        fail_msg("%s, kept %d, behind %d: %s", road->transport.name, road->kept, road->behind,
                 reason);
    }
    rig_finish(&rig);
}

static void members_with_different_lists_find_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof roads / sizeof roads[0]; i++) {
        if (roads[i].kept) {
            take_road(&roads[i]);
        }
    }
}

/* Who dials is refused, and finds out by the answer; or it is dialled, and names the ranks. */
static char *reach_the_first(struct rig *rig, uint32_t rank, void *user)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 0, 1, &byte, 1);
    (void)user;
    if (rank == 0) {
        rig_progress(rig, 0, 200);
        return NULL;
    }
    rig_post(rig, rank, &counter, &send);
    muster_status status = rig_wait(rig, rank, &counter);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 1);
    RIG_EXPECT(status == MUSTER_REJOIN);
    RIG_EXPECT(strstr(counter.reason, "refused: it knows this member by another rank") != NULL ||
               strstr(counter.reason, "it has lost this link before") != NULL);
    return NULL;
}

static void a_hello_with_another_rank_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof roads / sizeof roads[0]; i++) {
        struct rig rig;
        char reason[MUSTER_REASON_SIZE] = "";
        uint32_t lost = 0;
        if (roads[i].kept) {
            continue;
        }
        rig_init(&rig, &roads[i].transport, RANKS);
        rig.generation++;
        for (uint32_t k = 0; k < RANKS; k++) {
            begin_with_another_list(&rig, k);
        }
        rig_run(&rig, reach_the_first, NULL);
        assert_true(muster_fabric_lost_peer(rig.fabrics[0], rig.generation, &lost, reason));
        assert_non_null(strstr(reason, "says that it is rank "));
        assert_non_null(strstr(reason, ", where this member, rank 0, has it as rank "));
        assert_true(muster_fabric_figures(rig.fabrics[0]).connections_rejected > 0);
        rig_finish(&rig);
    }
}

static void members_that_agree_keep_their_links(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof roads / sizeof roads[0]; i++) {
        struct rig rig;
        uint64_t opened = 0;
        rig_init(&rig, &roads[i].transport, RANKS);
        rig_run(&rig, exchange_with_all, NULL);
        opened = muster_fabric_figures(rig.fabrics[0]).links_opened;
        for (int turn = 0; turn < 5; turn++) {
            struct muster_peer first = rig.peers[0];
            struct muster_fabric *fabric = rig.fabrics[0];
            memmove(rig.peers, rig.peers + 1, (RANKS - 1) * sizeof first);
            memmove(rig.fabrics, rig.fabrics + 1, (RANKS - 1) * sizeof(struct muster_fabric *));
            rig.peers[RANKS - 1] = first;
            rig.fabrics[RANKS - 1] = fabric;
            rig_begin(&rig);
            rig_run(&rig, exchange_with_all, NULL);
        }
        for (uint32_t k = 0; k < RANKS; k++) {
            assert_int_equal(muster_fabric_figures(rig.fabrics[k]).links_opened, opened);
            assert_int_equal(muster_fabric_figures(rig.fabrics[k]).links_lost, 0);
        }
        rig_finish(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_with_different_lists_find_out),
        cmocka_unit_test(a_hello_with_another_rank_is_refused),
        cmocka_unit_test(members_that_agree_keep_their_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
