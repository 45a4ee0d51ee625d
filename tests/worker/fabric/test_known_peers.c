/* Generations in which members do not know all others: what is posted to a member that is not known
 * waits until it has been added, or has dialled, or has told its rank over a kept link. */
#include "tests/conformance/rig.h"
#include "tests/support/schedules.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 6, GENERATIONS = 12 };

static const struct rig_transport transports[] = {
    {.name = "inproc", .transports = "inproc"},
    {.name = "tcp", .transports = "tcp"},
    {.name = "tcp x 3", .transports = "tcp", .options.tcp_connections = 3},
    {.name = "shm", .transports = "shm"},
    {.name = "shm and tcp", .transports = "shm,tcp"},
};
enum { TRANSPORTS = sizeof transports / sizeof transports[0] };

/* A finder with a thread, which adds what is sought, out of the rig's list. */
struct finder {
    struct muster_peer_finder slots;
    struct rig *rig;
    struct muster_fabric *fabric;
    uint64_t generation;
    pthread_t thread;
    sem_t wanted;
    uint32_t least;
    bool answers; /* else it finds nobody */
    bool ends;
};

static void note_wanted(struct muster_peer_finder *slots)
{
    struct finder *finder = (struct finder *)slots;
    (void)sem_post(&finder->wanted);
}

static void *find(void *argument)
{
    struct finder *finder = argument;
    uint32_t ranks[RANKS];
    struct muster_peer peers[RANKS];
    for (;;) {
        while (sem_wait(&finder->wanted) != 0) {
        }
        if (finder->ends) {
            return NULL;
        }
        uint32_t count = muster_fabric_list_sought(finder->fabric, finder->generation,
                                                   finder->least, RANKS, ranks);
        for (uint32_t i = 0; i < count; i++) {
            peers[i] = finder->rig->peers[ranks[i]];
        }
        if (finder->answers && muster_fabric_add_peers(finder->fabric, finder->generation, peers,
                                                       ranks, count) != MUSTER_OK) {
            print_error("%s\n", muster_last_error());
            abort();
        }
    }
}

static void start_finders(struct rig *rig, struct finder *finders, bool answer, uint32_t least)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        finders[i] = (struct finder){.slots.wanted = note_wanted,
                                     .rig = rig,
                                     .fabric = rig->fabrics[i],
                                     .generation = rig->generation,
                                     .least = least,
                                     .answers = answer};
        assert_int_equal(sem_init(&finders[i].wanted, 0, 0), 0);
        assert_int_equal(pthread_create(&finders[i].thread, NULL, find, &finders[i]), 0);
    }
}

static void end_finders(struct finder *finders)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        muster_fabric_forget_finder(finders[i].fabric);
        finders[i].ends = true;
        (void)sem_post(&finders[i].wanted);
        (void)pthread_join(finders[i].thread, NULL);
        (void)sem_destroy(&finders[i].wanted);
    }
}

/* known[i]: whether this member knows rank i. */
static muster_status begin_one(struct rig *rig, uint32_t rank, const bool known[RANKS],
                               struct muster_peer_finder *finder)
{
    struct muster_peer peers[RANKS];
    uint32_t ranks[RANKS];
    struct muster_fabric_generation generation = {.number = rig->generation,
                                                  .rank = rank,
                                                  .size = RANKS,
                                                  .host = rig->peers[rank].host,
                                                  .local_size = 1,
                                                  .peers = peers,
                                                  .ranks = ranks,
                                                  .finder = finder};
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != rank && known[i]) {
            peers[generation.peer_count] = rig->peers[i];
            ranks[generation.peer_count++] = i;
        }
    }
    return muster_fabric_begin_partly_known(rig->fabrics[rank], &generation);
}

/* All transfers with all peers at once. */
static char *exchange_with_all(struct rig *rig, uint32_t rank, void *user)
{
    struct rig_counter counter = {.left = 2 * (RANKS - 1)};
    struct muster_transfer *sends = calloc(2 * RANKS, sizeof *sends);
    struct muster_transfer *receives = sends + RANKS;
    unsigned char sent = (unsigned char)(rank + rig->generation);
    unsigned char received[RANKS];
    (void)user;
    RIG_EXPECT(sends != NULL);
    for (uint32_t k = 1; k < RANKS; k++) {
        uint32_t peer = (rank + k) % RANKS;
        sends[peer] = rig_send(rig, peer, 1, &sent, 1);
        receives[peer] = rig_receive(rig, peer, 1, &received[peer], 1);
        rig_post(rig, rank, &counter, &receives[peer]);
        rig_post(rig, rank, &counter, &sends[peer]);
    }
    muster_status status = rig_wait(rig, rank, &counter);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 1);
    free(sends);
    if (status != MUSTER_OK) {
        return rig_error("generation %d: %s", (int)rig->generation, counter.reason);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        RIG_EXPECT(i == rank || received[i] == (unsigned char)(i + rig->generation));
    }
    return NULL;
}

static void know_ring(bool known[RANKS], uint32_t rank)
{
    memset(known, 0, RANKS * sizeof *known);
    known[(rank + 1) % RANKS] = known[(rank + RANKS - 1) % RANKS] = true;
}

/* Fabrics move with their members' records. */
static void move_member(struct rig *rig, const struct rig *before, uint32_t from, uint32_t to)
{
    rig->fabrics[to] = before->fabrics[from];
    rig->peers[to] = before->peers[from];
}

static void rotate(struct rig *rig)
{
    const struct rig before = *rig;
    for (uint32_t i = 0; i < RANKS; i++) {
        move_member(rig, &before, i, (i + 2) % RANKS);
    }
}

static void shuffle(struct rig *rig, unsigned *seed)
{
    for (uint32_t i = RANKS - 1; i > 0; i--) {
        const struct rig before = *rig;
        uint32_t k = (uint32_t)rand_r(seed) % (i + 1);
        move_member(rig, &before, i, k);
        move_member(rig, &before, k, i);
    }
}

static void members_beyond_the_neighbours_are_found(void **state)
{
    (void)state;
    for (size_t t = 0; t < TRANSPORTS; t++) {
        struct rig rig;
        struct finder finders[RANKS];
        bool known[RANKS];
        rig_init(&rig, &transports[t], RANKS);
        rig.generation++;
        start_finders(&rig, finders, true, 1);
        for (uint32_t i = 0; i < RANKS; i++) {
            know_ring(known, i);
            assert_int_equal(begin_one(&rig, i, known, &finders[i].slots), MUSTER_OK);
        }
        rig_run(&rig, exchange_with_all, NULL);
        end_finders(finders);
        rig_finish(&rig);
    }
}

/* Rank 0 dials the others, which know nobody and whose finders find nobody. */
static char *exchange_with_first(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    for (uint32_t i = 1; i < RANKS && rank == 0; i++) {
        char *error = rig_exchange_with(rig, 0, i);
        if (error != NULL) {
            return error;
        }
    }
    return rank > 0 ? rig_exchange_with(rig, rank, 0) : NULL;
}

static void a_member_that_dials_becomes_known(void **state)
{
    (void)state;
    static const bool nobody[RANKS];
    static const bool all[RANKS] = {true, true, true, true, true, true};
    for (size_t t = 0; t < TRANSPORTS; t++) {
        struct rig rig;
        struct finder finders[RANKS];
        rig_init(&rig, &transports[t], RANKS);
        rig.generation++;
        start_finders(&rig, finders, false, 1);
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_int_equal(begin_one(&rig, i, i == 0 ? all : nobody, &finders[i].slots),
                             MUSTER_OK);
        }
        rig_run(&rig, exchange_with_first, NULL);
        end_finders(finders);
        rig_finish(&rig);
    }
}

/* The links of one generation serve the next, in which nobody knows anybody. */
static void kept_links_need_no_addresses(void **state)
{
    (void)state;
    static const bool nobody[RANKS];
    for (size_t t = 0; t < TRANSPORTS; t++) {
        struct rig rig;
        struct finder finders[RANKS];
        rig_init(&rig, &transports[t], RANKS);
        rig_run(&rig, exchange_with_all, NULL);
        for (int next = 0; next < 3; next++) {
            rotate(&rig);
            rig.generation++;
            start_finders(&rig, finders, false, 1);
            for (uint32_t i = 0; i < RANKS; i++) {
                assert_int_equal(begin_one(&rig, i, nobody, &finders[i].slots), MUSTER_OK);
            }
            rig_run(&rig, exchange_with_all, NULL);
            end_finders(finders);
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_opened, RANKS - 1);
            assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_lost, 0);
        }
        rig_finish(&rig);
    }
}

/* Any ranks, any knowledge, some members new, some generations without a message. */
static void follow_generations(const struct rig_transport *transport, unsigned seed)
{
    struct rig rig;
    struct finder finders[RANKS];
    rig_init(&rig, transport, RANKS);
    for (int next = 0; next < GENERATIONS; next++) {
        if (rand_r(&seed) % 2 == 0) {
            rig_replace(&rig, (uint32_t)rand_r(&seed) % RANKS);
        }
        shuffle(&rig, &seed);
        rig.generation++;
        start_finders(&rig, finders, true, 1 + (uint32_t)rand_r(&seed) % RANKS);
        for (uint32_t i = 0; i < RANKS; i++) {
            bool known[RANKS];
            for (uint32_t k = 0; k < RANKS; k++) {
                known[k] = rand_r(&seed) % 3 == 0;
            }
            assert_int_equal(begin_one(&rig, i, known, &finders[i].slots), MUSTER_OK);
        }
        if (rand_r(&seed) % 4 != 0) {
            rig_run(&rig, exchange_with_all, NULL);
        }
        end_finders(finders);
    }
    rig_finish(&rig);
}

static void generations_with_any_knowledge_work(void **state)
{
    (void)state;
    unsigned seed = (unsigned)test_seed();
    for (size_t t = 0; t < TRANSPORTS; t++) {
        follow_generations(&transports[t], seed);
    }
}

static void what_contradicts_is_refused(void **state)
{
    (void)state;
    static const bool nobody[RANKS];
    struct rig rig;
    const uint32_t rank = 3;
    const uint32_t other = 4;
    char byte = 0;
    rig_init(&rig, &transports[0], RANKS);
    rig.generation++;
    assert_int_equal(begin_one(&rig, 0, nobody, NULL), MUSTER_OK);
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation, &rig.peers[3], &rank, 1),
        MUSTER_OK);
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation, &rig.peers[3], &rank, 1),
        MUSTER_OK); /* once more */
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation, &rig.peers[3], &other, 1),
        MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "as rank 4 of 6"));
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation, &rig.peers[4], &rank, 1),
        MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), rig.peers[3].member));
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation, &rig.peers[0], &other, 1),
        MUSTER_INVALID); /* this member's own id, as another rank */
    assert_int_equal(
        muster_fabric_add_peers(rig.fabrics[0], rig.generation - 1, &rig.peers[4], &other, 1),
        MUSTER_REJOIN);
    /* Nobody finds the others. */
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &counter, &send);
    assert_int_equal(counter.status, MUSTER_REJOIN);
    assert_non_null(strstr(counter.reason, "its addresses are not known"));
    rig_finish(&rig);
}

/* Both the operation that is withdrawn and the generation that ends leave nothing posted. */
static void what_waits_for_a_member_can_be_withdrawn(void **state)
{
    (void)state;
    static const bool nobody[RANKS];
    for (size_t t = 0; t < TRANSPORTS; t++) {
        struct rig rig;
        struct finder finders[RANKS];
        char byte = 0;
        rig_init(&rig, &transports[t], RANKS);
        rig.generation++;
        start_finders(&rig, finders, false, 1);
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_int_equal(begin_one(&rig, i, nobody, &finders[i].slots), MUSTER_OK);
        }
        struct rig_counter counter = {.left = 2};
        struct muster_transfer send = rig_send(&rig, 1, 1, &byte, 1);
        struct muster_transfer receive = rig_receive(&rig, 2, 1, &byte, 1);
        rig_post(&rig, 0, &counter, &send);
        rig_post(&rig, 0, &counter, &receive);
        rig_progress(&rig, 0, 2);
        assert_int_equal(send.state, MUSTER_TRANSFER_POSTED);
        muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
        assert_int_equal(send.state, MUSTER_TRANSFER_IDLE);
        assert_int_equal(receive.state, MUSTER_TRANSFER_IDLE);
        end_finders(finders);
        rig_begin(&rig); /* all know all again */
        rig_run(&rig, exchange_with_all, NULL);
        rig_finish(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_beyond_the_neighbours_are_found),
        cmocka_unit_test(a_member_that_dials_becomes_known),
        cmocka_unit_test(kept_links_need_no_addresses),
        cmocka_unit_test(generations_with_any_knowledge_work),
        cmocka_unit_test(what_contradicts_is_refused),
        cmocka_unit_test(what_waits_for_a_member_can_be_withdrawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
