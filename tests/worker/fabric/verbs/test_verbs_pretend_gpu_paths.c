/* Messages from GPU memory, while paths that carry them break, and while some are withdrawn and
 * their memory is freed. GPU and RDMA devices are simulated. */
#include "tests/conformance/conformance.h"
#include "tests/support/verbs_pretend.h"
#include "worker/base/log.h"
#include "worker/device/devices.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CONNECTIONS = 4,
    ROUNDS = 16,
    LARGE_BYTES = 3 << 20,
    SMALL = 12,
    STEPS = 150,
    PLACE_BYTES = 20000,
    SKIPPED = 77
};

static const struct rig_transport two_devices = {
    .name = "verbs, 4 paths by two devices",
    .transports = "verbs",
    .options = {.verbs_device = "pretend0,pretend1", .verbs_connections = CONNECTIONS}};
static const struct gpu_pretend *gpu;
static pthread_barrier_t both;
static uint32_t broken; /* of paths */

/* Whether each lost path is open again, at both ends. */
static bool all_are_open(const struct rig *rig)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct muster_fabric_figures figures = muster_fabric_figures(rig->fabrics[i]);
        if (figures.connections_lost != broken ||
            figures.connections_opened != CONNECTIONS - 1 + broken) {
            return false;
        }
    }
    return true;
}

/* The messages of a round: the first is withdrawn, the others arrive. */
struct messages {
    struct muster_device_memory memory[2]; /* of the withdrawn one, and of the others */
    unsigned char *data[2];                /* where the transfers have it */
    struct rig_counter withdrawn, kept;
    struct muster_transfer transfers[2 + SMALL];
};

/* Small ones are parts of the large one, of 1 byte to a little over 16 KiB. */
static uint64_t size_of(uint32_t index)
{
    return index < 2 ? LARGE_BYTES : 1 + (uint64_t)(index - 2) * 1500;
}

static void post_all(struct rig *rig, uint32_t rank, uint64_t round, struct messages *messages)
{
    messages->withdrawn = (struct rig_counter){.left = 1};
    messages->kept = (struct rig_counter){.left = 1 + SMALL};
    for (uint32_t i = 0; i < 2 + SMALL; i++) {
        unsigned char *data = messages->data[i > 0];
        struct muster_transfer *transfer = &messages->transfers[i];
        uint64_t sequence = 2 * round + (i > 0);
        data += i < 2 ? 0 : LARGE_BYTES + (uint64_t)(i - 2) * PLACE_BYTES;
        *transfer = rank == 1 ? rig_send(rig, 0, sequence, data, size_of(i))
                              : rig_receive(rig, 1, sequence, data, size_of(i));
        transfer->memory = rank == 1 ? &messages->memory[i > 0] : NULL;
        transfer->key.ordinal = i;
        rig_post(rig, rank, i > 0 ? &messages->kept : &messages->withdrawn, transfer);
    }
}

static bool have_come(const struct messages *messages, uint64_t round)
{
    for (uint32_t i = 1; i < 2 + SMALL; i++) {
        const struct muster_transfer *transfer = &messages->transfers[i];
        if (!rig_filled(transfer->data, transfer->size_bytes, round + i)) {
            return false;
        }
    }
    return true;
}

static void fill_all(const struct messages *messages, uint64_t round)
{
    unsigned char *here = gpu->alias(messages->data[1]);
    for (uint32_t i = 1; i < 2 + SMALL; i++) {
        rig_fill(here + (i < 2 ? 0 : LARGE_BYTES + (uint64_t)(i - 2) * PLACE_BYTES), size_of(i),
                 round + i);
    }
}

static char *send_round(struct rig *rig, uint64_t round, unsigned *seed, struct messages *messages)
{
    for (uint32_t i = 0; i < 2; i++) {
        RIG_EXPECT(muster_device_find(messages->data[i], &messages->memory[i]));
    }
    while (round % 4 == 0 && !all_are_open(rig)) {
        rig_progress(rig, 1, 1);
    }
    fill_all(messages, round);
    post_all(rig, 1, round, messages);
    uint64_t until = verbs_pretend_steps() + (uint64_t)rand_r(seed) % STEPS;
    while (verbs_pretend_steps() < until && !messages->kept.finished) {
        rig_progress(rig, 1, 1);
    }
    broken += verbs_pretend_break(all_are_open(rig) ? 1 : 0);
    muster_fabric_withdraw(rig->fabrics[1], rig->generation, 0, 2 * round);
    gpu->replace(messages->data[0]);
    RIG_EXPECT(rig_wait(rig, 1, &messages->kept) == MUSTER_OK);
    return NULL;
}

static char *play(struct rig *rig, uint32_t rank, void *user)
{
    const size_t room = LARGE_BYTES + SMALL * PLACE_BYTES;
    struct messages messages = {0};
    char *error = NULL;
    messages.data[0] = rank == 1 ? gpu->allocate(LARGE_BYTES, 0) : malloc(LARGE_BYTES);
    messages.data[1] = rank == 1 ? gpu->allocate(room, 0) : malloc(room);
    for (uint64_t round = 1; round <= ROUNDS && error == NULL; round++) {
        if (rank == 1) {
            error = send_round(rig, round, user, &messages);
        } else {
            post_all(rig, 0, round, &messages);
            RIG_EXPECT(rig_wait(rig, 0, &messages.kept) == MUSTER_OK);
            RIG_EXPECT(have_come(&messages, round));
        }
        (void)pthread_barrier_wait(&both);
        if (rank == 0) {
            muster_fabric_withdraw(rig->fabrics[0], rig->generation, 0, 2 * round);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == 1) {
            gpu->release(messages.data[i]);
        } else {
            free(messages.data[i]);
        }
    }
    return error;
}

static void what_broken_paths_carried_goes_again_however_it_is_read(void **state)
{
    static const unsigned ways[] = {VERBS_PRETEND_DMABUF, VERBS_PRETEND_PEERMEM, 0};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct rig rig;
        broken = 0;
        assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
        verbs_pretend_gpu(gpu, ways[i]);
        rig_init(&rig, &two_devices, 2);
        rig_run(&rig, play, *state);
        assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
        rig_finish(&rig);
        (void)pthread_barrier_destroy(&both);
        assert_int_equal(verbs_pretend_violations(), 0);
        assert_int_equal(verbs_pretend_gpu_figures().held, 0);
        print_message("%u paths were broken\n", broken);
    }
}

int main(void)
{
    unsigned seed = (unsigned)muster_clock_ns();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(what_broken_paths_carried_goes_again_however_it_is_read, &seed),
    };
    print_message("seed %u\n", seed);
    if (!verbs_pretend_start(seed)) {
        print_message("libibverbs cannot be loaded\n");
        return SKIPPED;
    }
    gpu = gpu_pretend_load(false);
    muster_log_set_level(MUSTER_LOG_ERROR);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    verbs_pretend_stop();
    return failed;
}
