/* Agreements of up to 64 ranks against each other, from seeds: programs that submit the same
 * tensors in random orders at random times, with rare names, descriptions that change or differ,
 * and steps that lack a tensor. All ranks perform the same operations in the same order, each
 * tensor once for each submission, and nobody waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/engine/agree/agreement.h"

enum { RANKS_MAX = 64, NAMES_MAX = 48, STEPS = 14, SUBMISSIONS_MAX = 2 * NAMES_MAX };

/* What one step of the program submits; the same on all ranks. */
struct program_step {
    uint32_t names[SUBMISSIONS_MAX];
    uint64_t counts[SUBMISSIONS_MAX];
    uint32_t count;
    uint32_t first;  /* so many are waited for before the others are submitted, on some ranks */
    int32_t differs; /* this one has another count on the last rank; -1: none */
};

struct world_rank {
    struct muster_agreement *agreement;
    uint32_t order[SUBMISSIONS_MAX]; /* of this step's submissions */
    uint32_t step, submitted, ended; /* of this step */
    bool waits_for_first;
    bool in_step; /* of the agreement: an operation is under way */
    struct muster_agreement_step begun;
    uint64_t submitted_at[NAMES_MAX]; /* how often each name was submitted */
    uint64_t log;                     /* checksum of what was performed and ended, in order */
    uint32_t log_count;
};

struct world {
    unsigned seed;
    uint32_t ranks;
    int64_t now_ns;
    struct program_step steps[STEPS];
    struct world_rank each[RANKS_MAX];
    uint32_t errors, ordered_runs, deviations;
};

static uint32_t draw(struct world *world, uint32_t bound)
{
    return bound == 0 ? 0 : (uint32_t)rand_r(&world->seed) % bound;
}

static uint64_t mix(uint64_t log, uint64_t value)
{
    return (log ^ value) * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

/* The program -----------------------------------------------------------------------------------
 */

static void make_program(struct world *world, uint32_t names, bool even)
{
    for (uint32_t s = 0; s < STEPS; s++) {
        struct program_step *step = &world->steps[s];
        uint32_t missing =
            !even && names > 1 && draw(world, 6) == 0 ? draw(world, names) : NAMES_MAX;
        step->count = 0;
        step->differs = -1;
        for (uint32_t n = 0; n < names; n++) {
            if (n != missing) {
                step->counts[step->count] = 10 + n + (!even && draw(world, 40) == 0);
                step->names[step->count++] = n;
            }
        }
        for (uint32_t n = names; !even && n < NAMES_MAX && draw(world, 4) == 0; n++) { /* rare */
            step->counts[step->count] = 7;
            step->names[step->count++] = n;
        }
        step->first = draw(world, 3) == 0 ? 1 + draw(world, step->count) : 0;
        step->first = step->first > step->count ? step->count : step->first;
        if (!even && world->ranks > 1 && draw(world, 5) == 0) {
            step->differs = (int32_t)draw(world, step->count);
        }
    }
}

/* The submissions that some ranks wait for come first, in any order. */
static void begin_program_step(struct world *world, struct world_rank *rank)
{
    const struct program_step *step = &world->steps[rank->step];
    rank->submitted = rank->ended = 0;
    rank->waits_for_first = step->first > 0 && draw(world, 2) == 0;
    for (uint32_t i = 0; i < step->count; i++) {
        rank->order[i] = i;
    }
    for (uint32_t i = 0; i + 1 < step->count; i++) {
        uint32_t end = rank->waits_for_first && i < step->first ? step->first : step->count;
        uint32_t other = i + draw(world, end - i);
        uint32_t held = rank->order[i];
        rank->order[i] = rank->order[other];
        rank->order[other] = held;
    }
}

static bool may_submit(const struct world *world, const struct world_rank *rank)
{
    const struct program_step *step = &world->steps[rank->step];
    return rank->step < STEPS && rank->submitted < step->count &&
           !(rank->waits_for_first && rank->submitted == step->first &&
             rank->ended < rank->submitted);
}

static void submit(struct world *world, uint32_t r)
{
    struct world_rank *rank = &world->each[r];
    const struct program_step *step = &world->steps[rank->step];
    uint32_t at = rank->order[rank->submitted++];
    char name[16];
    bool differs = (int32_t)at == step->differs && r == world->ranks - 1;
    struct muster_description description = {.count = step->counts[at] + (differs ? 1000 : 0),
                                             .prescale = 1,
                                             .postscale = 1,
                                             .type = step->names[at] % 5 == 0 ? MUSTER_FLOAT64
                                                                              : MUSTER_FLOAT32};
    (void)snprintf(name, sizeof name, "t%u", step->names[at]);
    rank->submitted_at[step->names[at]]++;
    assert_int_equal(muster_agreement_submit(rank->agreement, name, &description,
                                             step->names[at] + 1, world->now_ns),
                     MUSTER_OK);
}

static void end_one(struct world *world, struct world_rank *rank, uint64_t token)
{
    const struct program_step *step = &world->steps[rank->step];
    assert_in_range(token, 1, NAMES_MAX);
    assert_int_equal(rank->submitted_at[token - 1], 1);
    rank->submitted_at[token - 1] = 0;
    rank->ended++;
    if (rank->ended == step->count) {
        rank->step++;
        if (rank->step < STEPS) {
            begin_program_step(world, rank);
        }
    }
}

/* Operations ------------------------------------------------------------------------------------
 */

static uint64_t signature(const struct muster_agreement_step *step)
{
    uint64_t value = mix(step->action, step->word_count);
    for (uint32_t i = 0; i < step->tensor_count; i++) {
        value = mix(value, step->tensors[i]);
    }
    return value;
}

static void take_ended(struct world *world, struct world_rank *rank)
{
    uint64_t token = 0;
    const char *text = NULL;
    while (muster_agreement_take_ended(rank->agreement, &token, &text)) {
        assert_non_null(strstr(text, "count"));
        world->errors++;
        end_one(world, rank, token);
    }
}

static void perform(struct world *world, struct world_rank *rank)
{
    const struct muster_agreement_step *step = &rank->begun;
    uint64_t tokens[NAMES_MAX];
    for (uint32_t i = 0; i < step->tensor_count; i++) {
        tokens[i] = muster_agreement_token(rank->agreement, step->tensors[i]);
        rank->log = mix(rank->log, tokens[i]);
        rank->log_count++;
    }
    uint32_t count = step->tensor_count;
    world->ordered_runs += step->ordered;
    muster_agreement_run_done(rank->agreement, world->now_ns);
    for (uint32_t i = 0; i < count; i++) {
        end_one(world, rank, tokens[i]);
    }
}

static void describe(struct world *world)
{
    uint32_t first = world->each[0].begun.first_rank;
    for (int part = 0; part < 2; part++) {
        unsigned char *blobs[RANKS_MAX];
        size_t sizes[RANKS_MAX] = {0};
        for (uint32_t r = 0; r < world->ranks; r++) {
            const unsigned char *bytes = NULL;
            if (part == 1 || r == first) {
                assert_int_equal(
                    muster_agreement_describe(world->each[r].agreement, &bytes, &sizes[r]),
                    MUSTER_OK);
            }
            blobs[r] = malloc(sizes[r] + 1);
            assert_non_null(blobs[r]);
            if (sizes[r] > 0) {
                memcpy(blobs[r], bytes, sizes[r]);
            }
        }
        for (uint32_t r = 0; r < world->ranks; r++) {
            for (uint32_t i = 0; i < world->ranks; i++) {
                uint32_t from = (first + i) % world->ranks;
                assert_int_equal(muster_agreement_described(world->each[r].agreement, from,
                                                            blobs[from], sizes[from]),
                                 MUSTER_OK);
            }
        }
        for (uint32_t r = 0; r < world->ranks; r++) {
            free(blobs[r]);
        }
    }
    for (uint32_t r = 0; r < world->ranks; r++) {
        muster_agreement_describe_done(world->each[r].agreement);
    }
}

static void round_of_all(struct world *world)
{
    struct world_rank *each = world->each;
    for (size_t w = 0; w < each[0].begun.word_count; w++) {
        uint64_t all = UINT64_MAX;
        for (uint32_t r = 0; r < world->ranks; r++) {
            all &= each[r].begun.words[w];
        }
        for (uint32_t r = 0; r < world->ranks; r++) {
            each[r].begun.words[w] = all;
        }
    }
    for (uint32_t r = 0; r < world->ranks; r++) {
        assert_int_equal(muster_agreement_round_done(each[r].agreement, world->now_ns), MUSTER_OK);
        take_ended(world, &each[r]);
    }
}

/* All ranks have begun a step. */
static void make_step(struct world *world)
{
    struct world_rank *each = world->each;
    bool same = true;
    for (uint32_t r = 0; r < world->ranks; r++) {
        same = same && signature(&each[r].begun) == signature(&each[0].begun);
        each[r].in_step = false;
    }
    if (!same) {
        world->deviations++;
        for (uint32_t r = 0; r < world->ranks; r++) {
            assert_true(muster_agreement_deviated(each[r].agreement));
        }
    } else if (each[0].begun.action == MUSTER_AGREEMENT_DESCRIBE) {
        describe(world);
    } else if (each[0].begun.action == MUSTER_AGREEMENT_ROUND) {
        round_of_all(world);
    } else {
        for (uint32_t r = 0; r < world->ranks; r++) {
            perform(world, &each[r]);
        }
    }
}

/* Time ------------------------------------------------------------------------------------------
 */

static bool act(struct world *world, uint32_t r)
{
    struct world_rank *rank = &world->each[r];
    if (may_submit(world, rank) && draw(world, 2) == 0) {
        submit(world, r);
        return true;
    }
    if (!rank->in_step) {
        muster_agreement_next(rank->agreement, world->now_ns, &rank->begun);
        rank->in_step = rank->begun.action != MUSTER_AGREEMENT_SLEEP;
        if (rank->in_step) {
            return true;
        }
    }
    if (may_submit(world, rank)) {
        submit(world, r);
        return true;
    }
    return false;
}

static bool all_in_step(const struct world *world)
{
    for (uint32_t r = 0; r < world->ranks; r++) {
        if (!world->each[r].in_step) {
            return false;
        }
    }
    return true;
}

/* To the time when some rank has something to do. */
static void pass_time(struct world *world)
{
    int64_t next = INT64_MAX;
    for (uint32_t r = 0; r < world->ranks; r++) {
        if (!world->each[r].in_step && world->each[r].begun.until_ns < next) {
            next = world->each[r].begun.until_ns;
        }
    }
    if (next == INT64_MAX) {
        fail_msg("everybody waits for ever: %u ranks, step %u of rank 0, %u of %u ended",
                 world->ranks, world->each[0].step, world->each[0].ended,
                 world->steps[world->each[0].step].count);
    }
    world->now_ns = next;
}

static bool is_over(const struct world *world)
{
    for (uint32_t r = 0; r < world->ranks; r++) {
        if (world->each[r].step < STEPS) {
            return false;
        }
    }
    return true;
}

static void run_world(struct world *world)
{
    while (!is_over(world)) {
        bool acted = false;
        uint32_t start = draw(world, world->ranks);
        for (uint32_t i = 0; i < world->ranks; i++) {
            if (draw(world, 3) != 0) {
                acted = act(world, (start + i) % world->ranks) || acted;
            }
        }
        if (all_in_step(world)) {
            make_step(world);
        } else if (!acted) {
            for (uint32_t r = 0; r < world->ranks; r++) { /* nobody was left out by the draw */
                acted = act(world, r) || acted;
            }
            if (!acted) {
                pass_time(world);
            }
        }
        world->now_ns += 1000;
    }
}

static void start_world(struct world *world, unsigned seed, uint32_t ranks, uint32_t names_max)
{
    *world = (struct world){.seed = seed, .ranks = ranks};
    for (uint32_t r = 0; r < ranks; r++) {
        struct muster_agreement_options options = muster_agreement_defaults(r, ranks);
        options.names_max = names_max;
        options.limit_bytes = options.burst_bytes = 200;
        options.blob_bytes = 5 * MUSTER_DESCRIPTION_SIZE_MAX;
        assert_int_equal(muster_agreement_create(&options, &world->each[r].agreement), MUSTER_OK);
    }
}

static void end_world(struct world *world)
{
    for (uint32_t r = 0; r < world->ranks; r++) {
        assert_int_equal(muster_agreement_pending(world->each[r].agreement), 0);
        assert_int_equal(world->each[r].log_count, world->each[0].log_count);
        assert_true(world->each[r].log == world->each[0].log);
        muster_agreement_destroy(world->each[r].agreement);
    }
}

static void play(struct world *world, unsigned seed, uint32_t ranks, uint32_t names_max)
{
    start_world(world, seed, ranks, names_max);
    make_program(world, 1 + draw(world, 24), draw(world, 3) == 0);
    for (uint32_t r = 0; r < ranks; r++) {
        begin_program_step(world, &world->each[r]);
    }
    run_world(world);
    end_world(world);
}

/* Tests ----------------------------------------------------------------------------------------
 */

static void all_ranks_perform_the_same_in_the_same_order(void **state)
{
    (void)state;
    static struct world world;
    unsigned seed = (unsigned)time(NULL);
    uint32_t errors = 0;
    uint32_t deviations = 0;
    uint32_t ordered = 0;
    if (getenv("MUSTER_SEED") != NULL) {
        seed = (unsigned)strtoul(getenv("MUSTER_SEED"), NULL, 0);
    }
    print_message("MUSTER_SEED=%u\n", seed);
    for (unsigned i = 0; i < 300; i++) {
        uint32_t ranks = i % 20 == 0 ? 64 : 1 + i % 9;
        play(&world, seed + i, ranks, i % 4 == 0 ? 8 + i % 30 : 1000);
        errors += world.errors;
        deviations += world.deviations;
        ordered += world.ordered_runs;
    }
    assert_true(errors > 0 && deviations > 0 && ordered > 0); /* they did happen */
}

static void after_equal_steps_there_are_no_more_rounds(void **state)
{
    (void)state;
    static struct world world;
    for (unsigned seed = 1; seed < 20; seed++) {
        start_world(&world, seed, 4, 1000);
        make_program(&world, 20, true);
        for (uint32_t s = 0; s < STEPS; s++) {
            world.steps[s].first = 0;
        }
        for (uint32_t r = 0; r < world.ranks; r++) {
            begin_program_step(&world, &world.each[r]);
        }
        run_world(&world);
        /* Three steps are learned from; the others are performed in the agreed order. */
        assert_true(world.ordered_runs >= (STEPS - 4) * 4);
        assert_int_equal(world.deviations, 0);
        assert_int_equal(muster_agreement_count(world.each[0].agreement).orders, 1);
        end_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_perform_the_same_in_the_same_order),
        cmocka_unit_test(after_equal_steps_there_are_no_more_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
