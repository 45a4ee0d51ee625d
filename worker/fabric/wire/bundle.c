/* Numbering, window, striping, failover and reordering of the frames of a link with several paths;
 * see bundle.h. */
#include "worker/fabric/wire/bundle.h"

#include <assert.h>
#include <string.h>

enum {
    UNACKNOWLEDGED_FRAMES_MAX = MUSTER_BUNDLE_WINDOW / 4,
    UNACKNOWLEDGED_PART = 8, /* of the window's bytes */
    ALL_PATHS = (1 << MUSTER_BUNDLE_PATHS_MAX) - 1,
};

void muster_bundle_init(struct muster_bundle *bundle, const struct muster_bundle_limits *limits)
{
    assert(limits->ahead_max >= MUSTER_BUNDLE_WINDOW &&
           limits->ahead_max <= MUSTER_BUNDLE_AHEAD_MAX);
    memset(bundle, 0, sizeof *bundle);
    bundle->limits = *limits;
    bundle->first_out = limits->first_number;
    bundle->next_out = limits->first_number;
    bundle->next_in = limits->first_number;
}

/* Sending ------------------------------------------------------------------------------------ */

static bool is_out(const struct muster_bundle *bundle, uint64_t number)
{
    return number >= bundle->first_out && number < bundle->next_out;
}

static bool is_waiting(const struct muster_bundle *bundle, uint64_t number)
{
    uint32_t index = muster_bundle_index(number);
    return bundle->out[index].path == MUSTER_BUNDLE_NO_PATH && !bundle->out[index].acknowledged;
}

bool muster_bundle_has_room(const struct muster_bundle *bundle)
{
    return bundle->next_out - bundle->first_out < MUSTER_BUNDLE_WINDOW &&
           bundle->out_bytes < bundle->limits.window_bytes;
}

uint64_t muster_bundle_add(struct muster_bundle *bundle, uint32_t payload_size)
{
    assert(muster_bundle_has_room(bundle));
    uint64_t number = bundle->next_out++;
    uint32_t index = muster_bundle_index(number);
    bundle->out[index].payload_size = payload_size;
    bundle->out[index].path = MUSTER_BUNDLE_NO_PATH;
    bundle->out[index].acknowledged = false;
    bundle->out_bytes += payload_size;
    bundle->waiting_count++;
    return number;
}

void muster_bundle_carry(struct muster_bundle *bundle, uint64_t number, uint32_t path)
{
    assert(is_out(bundle, number) && is_waiting(bundle, number) && path < MUSTER_BUNDLE_PATHS_MAX);
    bundle->out[muster_bundle_index(number)].path = (uint8_t)path;
    bundle->waiting_count--;
}

uint32_t muster_bundle_carrier(const struct muster_bundle *bundle, uint64_t number)
{
    return bundle->out[muster_bundle_index(number)].path;
}

void muster_bundle_put_back(struct muster_bundle *bundle, uint64_t number)
{
    assert(is_out(bundle, number) &&
           muster_bundle_carrier(bundle, number) != MUSTER_BUNDLE_NO_PATH);
    bundle->out[muster_bundle_index(number)].path = MUSTER_BUNDLE_NO_PATH;
    bundle->waiting_count++;
}

void muster_bundle_abandon(struct muster_bundle *bundle, uint32_t path)
{
    for (uint64_t number = bundle->first_out; number != bundle->next_out; number++) {
        if (muster_bundle_carrier(bundle, number) == path) {
            muster_bundle_put_back(bundle, number);
        }
    }
}

uint64_t muster_bundle_next_waiting(const struct muster_bundle *bundle, uint64_t from)
{
    if (bundle->waiting_count == 0) {
        return bundle->next_out;
    }
    uint64_t number = from > bundle->first_out ? from : bundle->first_out;
    while (number != bundle->next_out && !is_waiting(bundle, number)) {
        number++;
    }
    return number;
}

uint32_t muster_bundle_choose(struct muster_bundle *bundle, uint32_t ready_paths)
{
    uint32_t from_turn = ready_paths & (uint32_t)ALL_PATHS << bundle->turn;
    uint32_t candidates = from_turn != 0 ? from_turn : ready_paths;
    if (candidates == 0) {
        return MUSTER_BUNDLE_NO_PATH;
    }
    uint32_t path = (uint32_t)__builtin_ctz(candidates);
    bundle->turn = (path + 1) % MUSTER_BUNDLE_PATHS_MAX;
    return path;
}

void muster_bundle_acknowledge(struct muster_bundle *bundle, uint64_t number)
{
    assert(is_out(bundle, number));
    uint32_t index = muster_bundle_index(number);
    bundle->waiting_count -= is_waiting(bundle, number);
    bundle->out[index].path = MUSTER_BUNDLE_NO_PATH;
    bundle->out[index].acknowledged = true;
}

bool muster_bundle_acknowledge_before(struct muster_bundle *bundle, uint64_t number)
{
    if (number > bundle->next_out) {
        return false;
    }
    for (uint64_t each = bundle->first_out; each < number; each++) {
        muster_bundle_acknowledge(bundle, each);
    }
    return true;
}

bool muster_bundle_is_acknowledged(const struct muster_bundle *bundle, uint64_t number)
{
    return bundle->out[muster_bundle_index(number)].acknowledged;
}

bool muster_bundle_retire(struct muster_bundle *bundle, uint64_t *ret_number)
{
    if (bundle->first_out == bundle->next_out ||
        !muster_bundle_is_acknowledged(bundle, bundle->first_out)) {
        return false;
    }
    *ret_number = bundle->first_out++;
    bundle->out_bytes -= bundle->out[muster_bundle_index(*ret_number)].payload_size;
    return true;
}

/* Receiving ---------------------------------------------------------------------------------- */

static uint64_t *word_of(struct muster_bundle *bundle, uint64_t number)
{
    return &bundle->arrived[number % MUSTER_BUNDLE_AHEAD_MAX / 64];
}

static uint64_t bit_of(uint64_t number)
{
    return UINT64_C(1) << number % 64;
}

static bool has_arrived(const struct muster_bundle *bundle, uint64_t number)
{
    return (bundle->arrived[number % MUSTER_BUNDLE_AHEAD_MAX / 64] & bit_of(number)) != 0;
}

enum muster_bundle_arrival muster_bundle_classify(const struct muster_bundle *bundle,
                                                  uint64_t number)
{
    if (number < bundle->next_in) {
        return MUSTER_BUNDLE_DUPLICATE;
    }
    if (number - bundle->next_in >= bundle->limits.ahead_max) {
        return MUSTER_BUNDLE_TOO_FAR;
    }
    return has_arrived(bundle, number) ? MUSTER_BUNDLE_DUPLICATE : MUSTER_BUNDLE_NEW;
}

enum muster_bundle_arrival muster_bundle_arrive(struct muster_bundle *bundle, uint64_t number)
{
    enum muster_bundle_arrival arrival = muster_bundle_classify(bundle, number);
    if (arrival == MUSTER_BUNDLE_NEW) {
        *word_of(bundle, number) |= bit_of(number);
    }
    bundle->acknowledgement_due = bundle->acknowledgement_due || arrival == MUSTER_BUNDLE_DUPLICATE;
    return arrival;
}

bool muster_bundle_has_next(const struct muster_bundle *bundle)
{
    return has_arrived(bundle, bundle->next_in);
}

void muster_bundle_deliver(struct muster_bundle *bundle, uint32_t payload_size)
{
    assert(muster_bundle_has_next(bundle));
    *word_of(bundle, bundle->next_in) &= ~bit_of(bundle->next_in);
    bundle->next_in++;
    bundle->unacknowledged_frames++;
    bundle->unacknowledged_bytes += payload_size;
    bundle->acknowledgement_due =
        bundle->acknowledgement_due || bundle->unacknowledged_frames >= UNACKNOWLEDGED_FRAMES_MAX ||
        bundle->unacknowledged_bytes >= bundle->limits.window_bytes / UNACKNOWLEDGED_PART;
}

uint64_t muster_bundle_acknowledgement(struct muster_bundle *bundle)
{
    bundle->acknowledgement_due = false;
    bundle->unacknowledged_frames = 0;
    bundle->unacknowledged_bytes = 0;
    return bundle->next_in;
}

uint64_t muster_bundle_number_of(const struct muster_bundle *bundle, uint16_t lowest_bits)
{
    int16_t distance = (int16_t)(uint16_t)(lowest_bits - (uint16_t)bundle->next_in);
    return bundle->next_in + (uint64_t)(int64_t)distance;
}
