/* The cache of registrations with a simulated device, address space and watch: all sequences of a
 * few steps, then random ones by seed; MUSTER_SEED=N runs that seed alone. */
#include "tests/support/registrations_model.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEEDS = 40, STEPS = 4000, DEPTH = 6 };

static uint64_t state_of_random;

static uint64_t next_random(void)
{
    uint64_t z = (state_of_random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t bound)
{
    return (uint32_t)(next_random() % bound);
}

/* Two ranges that share a page, one that cannot be watched; a device and a bound that are soon
 * full. */
static bool small_step(int step)
{
    const struct muster_usable_range ranges[] = {model_memory(10, 5000),
                                                 model_memory(model.page + 1000, 6000),
                                                 model_memory(BLOCKS / 2 * (size_t)BLOCK, 8000)};
    if (step < 3) {
        if (model.hold_count == 4) {
            return false;
        }
        model.transfers[step] = ranges[step];
        (void)model_hold(&model.transfers[step], 0, ranges[step].size_bytes);
    } else if (step < 6) {
        if (model.transfers[step - 3].base == NULL) {
            return false;
        }
        model_end(&model.transfers[step - 3]);
    } else if (step == 6) {
        if (model.hold_count == 0) {
            return false;
        }
        model_release(0);
    } else if (step == 7) {
        model_unmap(0, PAGES_MAX);
    } else {
        model.busy = !model.busy;
    }
    return true;
}

static void test_all_sequences_of_a_few_steps(void **state)
{
    (void)state;
    enum { KINDS = 9 };
    int most = 1;
    for (int i = 0; i < DEPTH; i++) {
        most *= KINDS;
    }
    for (int sequence = 0; sequence < most; sequence++) {
        model_begin(5 * 4096, true);
        int rest = sequence;
        for (int i = 0; i < DEPTH && small_step(rest % KINDS); i++) {
            rest /= KINDS;
        }
        model_finish();
    }
}

static void begin_transfer(struct muster_usable_range *transfer)
{
    uint32_t slot = below(PIECES + 3);
    if (slot < PIECES && model.pieces[slot].memory != NULL) {
        size_t first = below(PIECE_BYTES);
        transfer->base = (char *)model.pieces[slot].memory + first;
        transfer->size_bytes = 1 + below(PIECE_BYTES - first);
        return;
    }
    size_t all = BLOCKS * (size_t)BLOCK;
    size_t first = below(all);
    size_t most = below(2) == 0 ? 20000 : all;
    *transfer = model_memory(first, 1 + below(all - first < most ? all - first : most));
}

static void replace_piece(uint32_t slot)
{
    uintptr_t memory = (uintptr_t)model.pieces[slot].memory;
    if (memory == 0) {
        assert_int_equal(muster_alloc(PIECE_BYTES, &model.pieces[slot].memory), MUSTER_OK);
        model.pieces[slot].version = ++model.last_version;
    } else if (!model_in_use(memory, memory + PIECE_BYTES)) {
        muster_free(model.pieces[slot].memory);
        model.pieces[slot].memory = NULL;
    }
}

static void change_surroundings(void)
{
    switch (below(6)) {
    case 0:
        model.busy = !model.busy && below(3) == 0;
        break;
    case 1:
        model.limit_bytes = below(3) == 0 ? below(model.bound) : UINT64_MAX;
        break;
    case 2:
        model.refusal = below(10) == 0 ? EFAULT : 0;
        break;
    case 3:
        model.forgets = true;
        break;
    default:
        replace_piece(below(PIECES));
        break;
    }
}

static void random_step(void)
{
    struct muster_usable_range *transfer = &model.transfers[below(TRANSFERS)];
    switch (below(8)) {
    case 0:
        if (transfer->base != NULL) {
            model_end(transfer);
        }
        break;
    case 1:
        model_unmap(below(PAGES_MAX), 1 + below(below(2) == 0 ? 4 : PAGES_MAX));
        break;
    case 2:
        if (below(4) == 0) {
            change_surroundings();
        }
        break;
    case 3:
    case 4:
        if (model.hold_count > 0) {
            model_release(below(model.hold_count));
        }
        break;
    default:
        if (transfer->base == NULL) {
            begin_transfer(transfer);
        }
        if (model.hold_count < HOLDS) {
            size_t offset = below(transfer->size_bytes);
            (void)model_hold(transfer, offset, 1 + below(transfer->size_bytes - offset));
        }
        break;
    }
}

static void run_seed(uint64_t seed)
{
    static const uint64_t bounds[] = {3 * 4096, BLOCK, 3 * BLOCK, 64 * (uint64_t)BLOCK};
    model_begin(bounds[seed % 4], seed % 5 != 0);
    state_of_random = seed;
    for (int i = 0; i < STEPS; i++) {
        random_step();
    }
    model_finish();
}

static void test_random_sequences(void **state)
{
    (void)state;
    const char *only = getenv("MUSTER_SEED");
    uint64_t seed = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t seed_end = only != NULL ? seed + 1 : seed + SEEDS;
    for (; seed < seed_end; seed++) {
        print_message("MUSTER_SEED=%" PRIu64 "\n", seed);
        run_seed(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sequences_of_a_few_steps),
        cmocka_unit_test(test_random_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
