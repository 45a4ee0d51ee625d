/*
 * BCube allreduce: ranks are written as numbers with several digits, and in each round the ranks
 * that differ in one digit only exchange parts, each with each. With base B this is
 * halving-doubling with B - 1 partners at a time: fewer rounds, and messages that overlap.
 *
 * Each digit has the largest base, at most B, that divides what is left of P. Where P has prime
 * factors over B, the algorithm runs on the largest smaller number of ranks that has none, and the
 * other ranks are folded in (see generators.h). The default B is 4: with a larger base there are
 * fewer rounds, but each takes longer.
 *
 * Source: C. Guo et al.: BCube: a high performance, server-centric network architecture for modular
 * data centers. SIGCOMM 2009; the allreduce as in Gloo's allreduce_bcube, with a base for each
 * digit as in L. Bhuyan, D. Agrawal: Generalized hypercube and hyperbus structures for a computer
 * network. IEEE Transactions on Computers 33 (1984).
 *
 * Four ranks, one digit of base 4; the data are quarters abcd:
 *
 *   round 0        0 receives a from 1, 2 and 3; 1 receives b, 2 c and 3 d from all others
 *   rounds 1, 2    0 reduces its a, ...
 *   round 3        0 sends a to 1, 2 and 3; ...
 *
 * The first message of a round is reduced as it arrives, the others wait in scratch. Where parts
 * are large, so that bandwidth matters more than latency, each message has a round of its own and
 * all are reduced as they arrive. In each of these rounds the members are paired by a permutation,
 * so every link is full in both directions and carries one message. Exchanges with all partners at
 * once send as many bytes over each link, and several senders then compete for each receiver: they
 * were slower between hosts and no faster within one (tests/bench/FIGURES_bcube.md). On the way
 * back nothing is reduced, and all partners exchange at once. Each part is reduced at one rank and
 * then copied, so all ranks end with the same bits.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/level.h"

#include <stdio.h>

enum {
    BASE_DEFAULT = 4,
    BASE_MAX = 16,
    DIGITS_MAX = 32,
    OVERLAPPED_MAX = 16384, /* elements: only parts up to this size share a round */
};

/* The largest divisor of the value up to `most`. */
static uint32_t digit_base(uint32_t value, uint32_t most)
{
    uint32_t base = most;
    while (base > 1 && value % base != 0) {
        base--;
    }
    return base;
}

/* The largest number up to the limit whose prime factors are 2 and some of `primes`. */
static uint32_t largest_product(uint32_t limit, const uint32_t *primes, size_t count)
{
    if (count == 0) {
        return UINT32_C(1) << muster_log2_down(limit);
    }
    uint32_t best = 0;
    for (uint64_t power = 1; power <= limit; power *= primes[0]) {
        uint32_t rest = largest_product((uint32_t)(limit / power), primes + 1, count - 1);
        uint32_t product = (uint32_t)power * rest;
        best = product > best ? product : best;
    }
    return best;
}

/* Which members run the exchanges, and which are folded in. */
static struct muster_fold fold_of(uint32_t size, uint32_t base)
{
    static const uint32_t primes[] = {3, 5, 7, 11, 13};
    size_t count = 0;
    while (count < sizeof primes / sizeof primes[0] && primes[count] <= base) {
        count++;
    }
    return muster_fold_of(size, largest_product(size, primes, count));
}

/* A digit's exchange: the members whose places differ in this digit only each keep a part of the
 * span. */
struct digit {
    uint32_t base;
    uint32_t stride; /* between places that differ by one in this digit */
    uint32_t value;  /* this rank's */
    struct muster_span span;
    struct muster_span kept;
};

/* Lists the digits from the lowest on, the largest base first. Returns their number. */
static uint32_t find_digits(uint32_t kept, uint32_t most, uint32_t place, struct muster_span span,
                            struct digit digits[DIGITS_MAX])
{
    uint32_t count = 0;
    uint32_t stride = 1;
    while (stride < kept) {
        uint32_t base = digit_base(kept / stride, most);
        uint32_t value = place / stride % base;
        struct muster_span part = muster_span_part(span, base, value);
        digits[count++] = (struct digit){
            .base = base, .stride = stride, .value = value, .span = span, .kept = part};
        span = part;
        stride *= base;
    }
    return count;
}

/* One rank's view while its steps are generated. */
struct cube {
    struct muster_builder *builder;
    const struct muster_group *group;
    struct muster_fold fold;
    uint32_t base; /* of a digit, at most */
    uint32_t place;
    uint64_t area; /* of scratch */
};

/* All members that exchange this digit have the same span, so they agree. */
static bool is_overlapped(const struct digit *digit)
{
    return digit->span.count / digit->base <= OVERLAPPED_MAX;
}

static uint32_t peer_at(const struct cube *cube, const struct digit *digit, uint32_t value)
{
    uint32_t place = cube->place - digit->value * digit->stride + value * digit->stride;
    return muster_group_rank(cube->group, muster_fold_index(&cube->fold, place));
}

/* The value of the digit at this distance above this rank's, modulo the base. */
static uint32_t value_at(const struct digit *digit, uint32_t distance)
{
    return (digit->value + distance) % digit->base;
}

static struct muster_span area_at(const struct cube *cube, const struct digit *digit,
                                  uint32_t number)
{
    return (struct muster_span){.offset = cube->area + number * digit->kept.count,
                                .count = digit->kept.count};
}

/* Reduce-scatter among the members of a digit: each sends every other one its part. */
static void scatter(const struct cube *cube, const struct digit *digit, enum muster_buffer source)
{
    struct muster_builder *builder = cube->builder;
    bool overlapped = is_overlapped(digit);
    for (uint32_t distance = 1; distance < digit->base; distance++) {
        uint32_t to = value_at(digit, distance);
        uint32_t from = peer_at(cube, digit, value_at(digit, digit->base - distance));
        muster_builder_send(builder, peer_at(cube, digit, to), source,
                            muster_span_part(digit->span, digit->base, to));
        if (distance == 1 || !overlapped) {
            muster_builder_recv_reduce(builder, from, distance == 1 ? source : MUSTER_OUTPUT,
                                       digit->kept, MUSTER_OUTPUT, digit->kept.offset);
        } else {
            muster_builder_recv(builder, from, MUSTER_SCRATCH, area_at(cube, digit, distance - 2));
        }
        if (!overlapped) {
            muster_builder_next_round(builder);
        }
    }
    muster_builder_next_round(builder);
    for (uint32_t number = 0; overlapped && number + 2 < digit->base; number++) {
        muster_builder_reduce(builder, MUSTER_SCRATCH, area_at(cube, digit, number), MUSTER_OUTPUT,
                              digit->kept.offset);
        muster_builder_next_round(builder);
    }
}

/* Allgather among the members of a digit, on the way back. */
static void gather(const struct cube *cube, const struct digit *digit)
{
    for (uint32_t distance = 1; distance < digit->base; distance++) {
        uint32_t from = value_at(digit, digit->base - distance);
        muster_builder_send(cube->builder, peer_at(cube, digit, value_at(digit, distance)),
                            MUSTER_OUTPUT, digit->kept);
        muster_builder_recv(cube->builder, peer_at(cube, digit, from), MUSTER_OUTPUT,
                            muster_span_part(digit->span, digit->base, from));
    }
    muster_builder_next_round(cube->builder);
}

/* A member with an extra first reduces the extra's data with its own, and sends it the result at
 * the end. In between come the digits up, and back. */
static void exchange(struct cube *cube, enum muster_buffer source, struct muster_span span)
{
    struct digit digits[DIGITS_MAX];
    uint32_t count = find_digits(cube->fold.active, cube->base, cube->place, span, digits);
    uint32_t extra =
        muster_group_rank(cube->group, (uint64_t)cube->group->index + cube->group->size - 1);
    bool folds = cube->place < cube->fold.extras;
    if (folds) {
        muster_builder_recv_reduce(cube->builder, extra, source, span, MUSTER_OUTPUT, span.offset);
        muster_builder_next_round(cube->builder);
        source = MUSTER_OUTPUT;
    }
    uint64_t scratch = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t waiting = is_overlapped(&digits[i]) ? digits[i].base - 2 : 0;
        uint64_t needed = waiting * digits[i].kept.count;
        scratch = needed > scratch ? needed : scratch;
    }
    cube->area = muster_builder_reserve(cube->builder, scratch);
    for (uint32_t i = 0; i < count; i++) {
        scatter(cube, &digits[i], i == 0 ? source : MUSTER_OUTPUT);
    }
    for (uint32_t i = count; i-- > 0;) {
        gather(cube, &digits[i]);
    }
    if (folds) {
        muster_builder_send(cube->builder, extra, MUSTER_OUTPUT, span);
    }
}

static void run(struct muster_builder *builder, const struct muster_group *group,
                enum muster_buffer source, struct muster_span span, uint32_t base)
{
    struct cube cube = {
        .builder = builder, .group = group, .fold = fold_of(group->size, base), .base = base};
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
    } else if (muster_fold_is_extra(&cube.fold, group->index)) {
        muster_fold_extra(builder, group, source, span);
    } else {
        cube.place = muster_fold_place(&cube.fold, group->index);
        exchange(&cube, source, span);
    }
}

/* The totals of one member. Every digit has the rounds and elements of scatter() and gather(); a
 * member with an extra also receives its data and sends it the result. */
static struct muster_step_totals totals_of(uint64_t count, uint32_t size, uint32_t index,
                                           uint32_t base)
{
    struct muster_fold fold = fold_of(size, base);
    if (size == 1 || muster_fold_is_extra(&fold, index)) {
        return (struct muster_step_totals){.rounds = size == 1 ? 0 : 2,
                                           .elements = size == 1 ? 0 : count};
    }
    struct digit digits[DIGITS_MAX];
    uint32_t place = muster_fold_place(&fold, index);
    uint32_t digit_count =
        find_digits(fold.active, base, place, (struct muster_span){.count = count}, digits);
    bool folds = place < fold.extras;
    struct muster_step_totals totals = {.rounds = folds ? 2 : 0, .elements = folds ? count : 0};
    for (uint32_t i = 0; i < digit_count; i++) {
        uint64_t kept = digits[i].kept.count;
        totals.rounds += 2 + (kept > 0 ? digits[i].base - 2 : 0); /* overlapped or not */
        totals.elements += digits[i].span.count - kept + (digits[i].base - 1) * kept;
    }
    return totals;
}

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    run(builder, group, source, span, BASE_DEFAULT);
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    return totals_of(count, size, index, BASE_DEFAULT).elements;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    return totals_of(count, size, index, BASE_DEFAULT).rounds;
}

static uint32_t base_of(const struct muster_plan *plan)
{
    return plan->variant != 0 ? plan->variant : BASE_DEFAULT;
}

bool muster_bcube_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    if (base_of(plan) >= 2 && base_of(plan) <= BASE_MAX) {
        return true;
    }
    (void)snprintf(ret_why, size, "its base must be from 2 to %d", BASE_MAX);
    return false;
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct muster_group all = muster_group_all(plan);
    run(builder, &all, MUSTER_INPUT, (struct muster_span){.count = plan->count}, base_of(plan));
    return MUSTER_OK;
}

/* The busiest member is at place 0: it has the largest part of each digit, and an extra if there is
 * any. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = plan->topology;
    uint32_t base = base_of(plan);
    struct muster_fold fold = fold_of(topology->ranks, base);
    uint32_t busiest = muster_fold_index(&fold, 0);
    uint64_t count = plan->count;
    const struct muster_step_totals totals = totals_of(count, topology->ranks, busiest, base);
    *ret_formula = (struct muster_formula){
        .rounds = topology->ranks == 1 ? count > 0 : totals.rounds, .elements = totals.elements};
    struct digit digits[DIGITS_MAX];
    uint32_t digit_count =
        find_digits(fold.active, base, 0, (struct muster_span){.count = count}, digits);
    for (uint32_t i = 0; i < digit_count; i++) {
        const struct digit *digit = &digits[i];
        uint64_t elements = (digit->base - 1) * digit->kept.count;
        uint64_t reach = (uint64_t)digit->stride * digit->base;
        muster_formula_add(ret_formula, topology, reach, digit->base, 2 * elements);
        ret_formula->reduced += elements;
    }
    if (fold.extras > 0) {
        muster_formula_add(ret_formula, topology, 1, 2, 2 * count);
        ret_formula->reduced += count;
    }
}

/* Variants: the number of "base=8" is 8. */

static muster_status parse(const char *text, uint32_t *ret_variant)
{
    return muster_variant_parse(text, "base", 2, BASE_MAX, ret_variant);
}

static void print(uint32_t variant, char *ret_text, size_t size)
{
    (void)snprintf(ret_text, size, "base=%u", variant);
}

const struct muster_variants muster_bcube_variants = {.parse = parse, .print = print};

const struct muster_generator muster_bcube_generator = {
    .rounds_text = "B for each digit of base B; with extras: 2 more",
    .elements_text = "2n(P-1)/P; with extras: up to 3n",
    .generate = generate,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_bcube = {
    .name = "bcube",
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
