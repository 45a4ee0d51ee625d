/* Links over RDMA whose paths break all the time: both ends learn of every loss. */
#include "tests/conformance/fault_injector.h"
#include "tests/support/verbs_pretend.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ROUNDS = 40,
    STILLBORN_ROUNDS = 5,
    NOBODY = 2,
    BATCHES_MAX = 60,
    MESSAGES = 32, /* of a batch, each way */
    BYTES_MAX = 600000,
    RUNS_MAX = 40,
    CONNECTIONS_MAX = 4,
    ACTS_MAX = 12,
    SKIPPED = 77,
};

/* The random choices of a round. */
struct draw {
    unsigned seed;
    uint32_t connections[2]; /* that each end asks for if it dials */
    const char *devices[2];
    bool tcp; /* is there, too */
    uint32_t batches;
    uint32_t roughness;
    uint32_t acts;   /* of the injector */
    uint32_t victim; /* of the ranks: is killed; NOBODY, or more: none is */
    bool leaves;     /* no more faults after the loss, while the link opens */
};

struct round {
    struct draw draw;
    struct rig rig;
    atomic_uint opened, ended; /* of the ranks */
    muster_status status[2];
    char reason[2][MUSTER_ERROR_MAX];
    unsigned char *data[2];
};

static struct draw drawn; /* for prepare() */

static uint32_t chance(unsigned *seed, uint32_t of)
{
    return (uint32_t)rand_r(seed) % of;
}

static const char *draw_devices(unsigned *seed)
{
    static const char *const devices[] = {"pretend0", "pretend1", "pretend0,pretend1"};
    return devices[chance(seed, 3)];
}

static struct draw draw_round(unsigned seed)
{
    static const uint32_t roughnesses[] = {0, 30, 100, 300, 1000, 1000, 3000, 10000};
    unsigned state = seed;
    struct draw draw = {.seed = seed};
    for (uint32_t i = 0; i < 2; i++) {
        draw.connections[i] = 1 + chance(&state, CONNECTIONS_MAX);
        draw.devices[i] = draw_devices(&state);
    }
    draw.tcp = chance(&state, 4) == 0;
    draw.batches = 1 + chance(&state, BATCHES_MAX);
    draw.roughness = roughnesses[chance(&state, sizeof roughnesses / sizeof roughnesses[0])];
    draw.acts = chance(&state, ACTS_MAX);
    draw.victim = chance(&state, 12);
    draw.leaves = chance(&state, 2) == 0;
    return draw;
}

static void prepare(uint32_t rank, struct fabric_wish *wish)
{
    if (wish != NULL) {
        wish->options.verbs_connections = drawn.connections[rank];
        wish->options.verbs_device = drawn.devices[rank];
        wish->transports = drawn.tcp ? "verbs,tcp" : "verbs";
    }
}

/* The ranks ------------------------------------------------------------------------------------ */

static uint64_t size_of(const struct draw *draw, uint32_t from, uint64_t sequence, uint32_t i)
{
    unsigned state = draw->seed * 2654435761U + (unsigned)sequence * 128 + from * 64 + i;
    (void)rand_r(&state);
    switch (chance(&state, 10)) {
    case 0:
        return chance(&state, BYTES_MAX);
    case 1:
        return chance(&state, 20000);
    default:
        return chance(&state, 400);
    }
}

static unsigned char *place_of(struct round *round, uint32_t rank, bool out, uint32_t i)
{
    return round->data[rank] + (size_t)(2 * i + out) * BYTES_MAX;
}

static uint64_t pattern_of(uint32_t from, uint64_t sequence, uint32_t i)
{
    return sequence * 100 + from * 50 + i;
}

/* A message in ranges, which lie in memory in the opposite order. */
struct scattered {
    struct muster_range_run runs[RUNS_MAX + 1];
    struct muster_range_list list;
};

/* Scatters the message's bytes over its own memory: tiny, small and large ranges. */
static void scatter(struct scattered *scattered, unsigned char *data, uint64_t size, unsigned *seed)
{
    static const uint32_t most[] = {60, 3000, 30000, 100000};
    unsigned char *copy = malloc(size);
    size_t count = 0;
    for (uint64_t at = 0; at < size; count++) {
        uint64_t run = count + 1 == RUNS_MAX ? size - at : 1 + chance(seed, most[chance(seed, 4)]);
        scattered->runs[count].begin_bytes = at;
        at = run < size - at ? at + run : size;
        scattered->runs[count].address = (char *)data + (size - at);
    }
    scattered->runs[count].begin_bytes = size;
    scattered->list = (struct muster_range_list){.runs = scattered->runs, .count = count};
    memcpy(copy, data, size);
    muster_place_copy((struct muster_place){.ranges = &scattered->list},
                      (struct muster_place){.base = (char *)copy}, size);
    free(copy);
}

static muster_status batch(struct round *round, uint32_t rank, uint64_t sequence, bool *ret_wrong)
{
    struct rig *rig = &round->rig;
    struct muster_transfer transfers[2 * MESSAGES];
    struct scattered scattered[MESSAGES];
    unsigned cuts = round->draw.seed + (unsigned)sequence * 2 + rank;
    struct rig_counter counter = {.left = 2 * MESSAGES};
    uint32_t peer = 1 - rank;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint64_t size = size_of(&round->draw, rank, sequence, i);
        rig_fill(place_of(round, rank, true, i), size, pattern_of(rank, sequence, i));
        transfers[2 * i] = rig_send(rig, peer, sequence, place_of(round, rank, true, i), size);
        transfers[2 * i + 1] = rig_receive(rig, peer, sequence, place_of(round, rank, false, i),
                                           size_of(&round->draw, peer, sequence, i));
        if (size > 0 && chance(&cuts, 2) == 0) {
            scatter(&scattered[i], place_of(round, rank, true, i), size, &cuts);
            transfers[2 * i].data = NULL;
            transfers[2 * i].ranges = &scattered[i].list;
        }
        transfers[2 * i].key.ordinal = i;
        transfers[2 * i + 1].key.ordinal = i;
    }
    for (uint32_t i = 0; i < 2 * MESSAGES; i++) {
        rig_post(rig, rank, &counter, &transfers[i]);
    }
    muster_status status = rig_wait(rig, rank, &counter);
    (void)snprintf(round->reason[rank], MUSTER_ERROR_MAX, "%s",
                   counter.finished ? counter.reason : muster_last_error());
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, sequence);
    for (uint32_t i = 0; i < MESSAGES && status == MUSTER_OK; i++) {
        *ret_wrong = *ret_wrong || !rig_filled(place_of(round, rank, false, i),
                                               size_of(&round->draw, peer, sequence, i),
                                               pattern_of(peer, sequence, i));
    }
    return status;
}

/* A member that computes makes no progress; this one waits as well, so that what its peer waits for
 * is sent again. */
static char *play(struct rig *rig, uint32_t rank, void *user)
{
    struct round *round = user;
    bool wrong = false;
    muster_status status = MUSTER_OK;
    for (uint64_t sequence = 1; status == MUSTER_OK && sequence <= round->draw.batches;
         sequence++) {
        status = batch(round, rank, sequence, &wrong);
        if (sequence == 1) {
            atomic_fetch_add(&round->opened, 1);
            while (round->draw.leaves && atomic_load(&round->opened) < 2) {
                rig_progress(rig, rank, 1);
            }
            verbs_pretend_roughness(round->draw.roughness);
        }
    }
    round->status[rank] = status;
    atomic_fetch_add(&round->ended, 1);
    while (atomic_load(&round->ended) < 2) {
        if (status != MUSTER_OK && round->draw.leaves) {
            (void)sched_yield();
        } else {
            rig_progress(rig, rank, 1);
        }
    }
    return wrong ? rig_error("rank %u: wrong data", rank) : NULL;
}

/* What breaks links -----------------------------------------------------------------------------
 */

static void act(struct round *round, unsigned *seed, bool last)
{
    if (last && round->draw.victim < NOBODY) {
        muster_fabric_kill(round->rig.fabrics[round->draw.victim]);
        return;
    }
    switch (chance(seed, 5)) {
    case 0:
        (void)verbs_pretend_break(1 + chance(seed, CONNECTIONS_MAX));
        break;
    case 1:
        (void)fault_injector_shut_down(1 + chance(seed, CONNECTIONS_MAX), seed);
        break;
    case 2:
        verbs_pretend_refuse(chance(seed, 2) == 0 ? 100 : chance(seed, 6));
        break;
    case 3:
        verbs_pretend_live(0);
        break;
    default:
        verbs_pretend_roughness(chance(seed, 2) == 0 ? 0 : round->draw.roughness);
        break;
    }
}

static void *break_things(void *argument)
{
    struct round *round = argument;
    unsigned seed = round->draw.seed + 1;
    while (round->draw.leaves && atomic_load(&round->opened) < 2) {
        (void)sched_yield();
    }
    for (uint32_t i = 0; i < round->draw.acts; i++) {
        uint64_t until = verbs_pretend_steps() + chance(&seed, 2000);
        int64_t until_ns = muster_clock_after_ms(chance(&seed, 30));
        while (verbs_pretend_steps() < until && atomic_load(&round->ended) < 2 &&
               muster_clock_ns() < until_ns) {
            (void)sched_yield();
        }
        act(round, &seed, i == round->draw.acts - 1);
    }
    return NULL;
}

/* Rounds --------------------------------------------------------------------------------------- */

static void say(const struct round *round)
{
    const struct draw *draw = &round->draw;
    print_message(
        "MUSTER_SEED=%u: %u and %u paths by %s and %s, tcp %d, %u batches, roughness %u, "
        "%u acts, victim %u, leaves %d\n",
        draw->seed, draw->connections[0], draw->connections[1], draw->devices[0], draw->devices[1],
        draw->tcp, draw->batches, draw->roughness, draw->acts, draw->victim, draw->leaves);
    for (uint32_t i = 0; i < 2; i++) {
        print_message("rank %u: status %d: %s\n", i, (int)round->status[i], round->reason[i]);
    }
}

static bool is_end(muster_status status)
{
    return status == MUSTER_OK || status == MUSTER_REJOIN;
}

/* Returns how the ranks ended. */
static void run_round(const struct draw *draw, muster_status ret_status[2])
{
    static const struct rig_transport transport = {.name = "verbs, rough", .prepare = prepare};
    struct round *round = calloc(1, sizeof *round);
    pthread_t thread;
    assert_non_null(round);
    round->draw = drawn = *draw;
    for (uint32_t i = 0; i < 2; i++) {
        round->data[i] = malloc((size_t)2 * MESSAGES * BYTES_MAX);
        assert_non_null(round->data[i]);
    }
    rig_init(&round->rig, &transport, 2);
    verbs_pretend_roughness(draw->leaves ? 0 : draw->roughness);
    assert_int_equal(pthread_create(&thread, NULL, break_things, round), 0);
    rig_run(&round->rig, play, round);
    (void)pthread_join(thread, NULL);
    if (!is_end(round->status[0]) || !is_end(round->status[1])) {
        say(round);
        fail_msg("an end was not told");
    }
    verbs_pretend_roughness(0);
    verbs_pretend_refuse(0);
    verbs_pretend_live(UINT32_MAX);
    rig_finish(&round->rig);
    memcpy(ret_status, round->status, sizeof round->status);
    free(round->data[0]);
    free(round->data[1]);
    free(round);
    assert_int_equal(verbs_pretend_violations(), 0);
}

static unsigned first_seed;

static void both_ends_learn_of_every_loss(void **state)
{
    (void)state;
    const char *runs = getenv("MUSTER_RUNS");
    uint32_t rounds = runs != NULL ? (uint32_t)strtoul(runs, NULL, 10) : ROUNDS;
    uint32_t lost = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const struct draw draw = draw_round(first_seed + i);
        muster_status status[2];
        run_round(&draw, status);
        lost += status[0] != MUSTER_OK || status[1] != MUSTER_OK;
    }
    print_message("%u rounds, %u links lost\n", rounds, lost);
}

/* The further paths open at the acceptor, again and again, and it sends by them; at the dialler
 * they never open. */
static void frames_of_paths_that_never_opened_are_sent_by_the_first(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STILLBORN_ROUNDS; i++) {
        const struct draw draw = {.seed = first_seed + i,
                                  .connections = {CONNECTIONS_MAX, CONNECTIONS_MAX},
                                  .devices = {"pretend0,pretend1", "pretend0,pretend1"},
                                  .batches = BATCHES_MAX,
                                  .victim = NOBODY};
        muster_status status[2];
        verbs_pretend_live(1);
        run_round(&draw, status);
        assert_int_equal(status[0], MUSTER_OK);
        assert_int_equal(status[1], MUSTER_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_paths_that_never_opened_are_sent_by_the_first),
        cmocka_unit_test(both_ends_learn_of_every_loss),
    };
    const char *given = getenv("MUSTER_SEED");
    first_seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)muster_clock_ns();
    printf("MUSTER_SEED=%u\n", first_seed);
    if (!verbs_pretend_start(first_seed)) {
        printf("SKIP: %s\n", muster_last_error());
        return SKIPPED;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    verbs_pretend_stop();
    return failed;
}
