/*
 * The frames of a link with several paths, without the paths: two ends are simulated, whose paths
 * lose what is on them at any moment, and come back or not. Every sequence of a few events, then
 * random ones by seed; MUSTER_SEED=N begins with that seed.
 *
 * Two kinds of paths. Streams (TCP): each frame carries an acknowledgement of all before a number.
 * Devices (RDMA): the device acknowledges each frame once the peer's device has it, only the lowest
 * 16 bits of a number travel, and a path has room for 12 frames that are not delivered.
 */
#include "tests/support/schedules.h"
#include "worker/fabric/wire/bundle.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    PATHS_MAX = 4,
    QUEUE_MAX = 96, /* a window of frames, and acknowledgements alone */
    ALONE_MAX = 64, /* with so many entries in a queue, no acknowledgement is sent alone */
    CREDITS = 12,
    WINDOW_BYTES = 1000,
    FIRST_NUMBER = 1 << 16,
    FEW_FRAMES = 3,
    DEPTH = 7,
    SEEDS = 300,
    EVENTS = 4000,
    FRAMES = 600, /* in each direction */
};

/* A frame on its way, or an acknowledgement alone. */
struct item {
    uint32_t number; /* 0: no frame */
    uint32_t acknowledged;
    uint32_t path;
};

struct queue {
    struct item items[QUEUE_MAX];
    uint32_t count;
};

struct end {
    struct muster_bundle bundle;
    uint32_t to_add;              /* frames that are still to be sent */
    uint64_t delivered;           /* the number of the last one */
    bool open[PATHS_MAX];         /* this end has not noticed a loss of the path */
    struct queue wire[PATHS_MAX]; /* from here to the peer */

    /* Devices. */
    struct queue completions;                /* frames that have arrived, of all paths */
    struct queue acks[PATHS_MAX];            /* of frames sent from here */
    uint32_t credits[PATHS_MAX];             /* to send with */
    uint32_t owner[MUSTER_BUNDLE_AHEAD_MAX]; /* the path whose room an arrived frame takes */
    uint64_t room_until;                     /* frames before this number take no room */
};

static struct world {
    struct end ends[2];
    uint32_t path_count;
    bool devices;
    bool cut[PATHS_MAX]; /* nothing more arrives */
    bool ended;          /* an end has lost its last path, and so the link */
} world;

/* How often the random events led to each case. */
static struct {
    uint64_t duplicates, full, ended, ahead;
} met;

static struct end *peer_of(struct end *end)
{
    return end == &world.ends[0] ? &world.ends[1] : &world.ends[0];
}

static void put(struct queue *queue, const struct item *item)
{
    assert_true(queue->count < QUEUE_MAX);
    queue->items[queue->count++] = *item;
}

static bool get(struct queue *queue, struct item *ret_item)
{
    if (queue->count == 0) {
        return false;
    }
    *ret_item = queue->items[0];
    queue->count--;
    memmove(queue->items, queue->items + 1, queue->count * sizeof queue->items[0]);
    return true;
}

static void truncate(struct queue *queue, uint32_t count)
{
    queue->count = count < queue->count ? count : queue->count;
}

static uint32_t size_of(uint64_t number)
{
    return number % 7 == 0 ? 100 : (uint32_t)(number % 7);
}

static void begin(uint32_t path_count, bool devices, uint64_t first_number)
{
    const struct muster_bundle_limits limits = {.first_number = first_number,
                                                .window_bytes = devices ? UINT64_MAX : WINDOW_BYTES,
                                                .ahead_max = devices ? MUSTER_BUNDLE_AHEAD_MAX
                                                                     : MUSTER_BUNDLE_WINDOW};
    memset(&world, 0, sizeof world);
    world.path_count = path_count;
    world.devices = devices;
    for (int i = 0; i < 2; i++) {
        struct end *end = &world.ends[i];
        muster_bundle_init(&end->bundle, &limits);
        end->delivered = first_number - 1;
        for (uint32_t path = 0; path < path_count; path++) {
            end->open[path] = true;
            end->credits[path] = CREDITS;
        }
    }
}

/* Going out ---------------------------------------------------------------------------------- */

static void send_item(struct end *end, uint32_t path, uint64_t number)
{
    struct item item = {.number = (uint32_t)number, .path = path};
    if (!world.devices) {
        item.acknowledged = (uint32_t)muster_bundle_acknowledgement(&end->bundle);
    }
    if (!world.cut[path]) {
        put(&end->wire[path], &item);
    }
}

/* The lowest number that waits, or a new one; false if there is none, or the window is full. */
static bool next_frame(struct end *end, uint64_t *ret_number)
{
    struct muster_bundle *bundle = &end->bundle;
    *ret_number = muster_bundle_next_waiting(bundle, 0);
    if (*ret_number != bundle->next_out) {
        return true;
    }
    if (end->to_add == 0 || !muster_bundle_has_room(bundle)) {
        met.full += end->to_add > 0;
        return false;
    }
    end->to_add--;
    assert_int_equal(muster_bundle_add(bundle, size_of(*ret_number)), *ret_number);
    assert_true(bundle->next_out - bundle->first_out <= MUSTER_BUNDLE_WINDOW);
    return true;
}

static bool send_frame(struct end *end, uint32_t path)
{
    uint64_t number = 0;
    if (!end->open[path] || (world.devices && end->credits[path] == 0) ||
        !next_frame(end, &number)) {
        return false;
    }
    muster_bundle_carry(&end->bundle, number, path);
    assert_int_equal(muster_bundle_carrier(&end->bundle, number), path);
    end->credits[path]--;
    send_item(end, path, number);
    return true;
}

/* A path has taken the frame, and then had no room for it. */
static bool try_frame(struct end *end, uint32_t path)
{
    uint64_t number = 0;
    if (!end->open[path] || !next_frame(end, &number)) {
        return false;
    }
    muster_bundle_carry(&end->bundle, number, path);
    muster_bundle_put_back(&end->bundle, number);
    return true;
}

static bool acknowledge_alone(struct end *end, uint32_t path)
{
    if (world.devices || !end->open[path] || !end->bundle.acknowledgement_due ||
        end->wire[path].count >= ALONE_MAX) {
        return false;
    }
    send_item(end, path, 0);
    return true;
}

static void retire(struct end *end)
{
    uint64_t number = 0;
    uint64_t expected = end->bundle.first_out;
    while (muster_bundle_retire(&end->bundle, &number)) {
        assert_int_equal(number, expected++);
    }
}

/* Coming in ---------------------------------------------------------------------------------- */

/* The frame takes no room any more. */
static void free_room(struct end *end, uint64_t number)
{
    uint32_t *owner = &end->owner[number % MUSTER_BUNDLE_AHEAD_MAX];
    if (*owner != PATHS_MAX) {
        peer_of(end)->credits[*owner]++;
        *owner = PATHS_MAX;
    }
}

static void deliver(struct end *end)
{
    struct muster_bundle *bundle = &end->bundle;
    while (muster_bundle_has_next(bundle)) {
        end->delivered++;
        assert_int_equal(end->delivered, bundle->next_in);
        free_room(end, end->delivered);
        muster_bundle_deliver(bundle, size_of(end->delivered));
    }
}

static void arrive(struct end *end, const struct item *item)
{
    struct muster_bundle *bundle = &end->bundle;
    uint64_t number = item->number;
    if (world.devices) {
        assert_int_equal(muster_bundle_number_of(bundle, (uint16_t)number), number);
    }
    enum muster_bundle_arrival arrival = muster_bundle_classify(bundle, number);
    assert_int_equal(muster_bundle_arrive(bundle, number), arrival);
    assert_int_not_equal(arrival, MUSTER_BUNDLE_TOO_FAR);
    met.ahead += number > bundle->next_in;
    if (arrival == MUSTER_BUNDLE_DUPLICATE) {
        met.duplicates++;
        peer_of(end)->credits[item->path]++;
        return;
    }
    end->owner[number % MUSTER_BUNDLE_AHEAD_MAX] = item->path;
    if (number < end->room_until) {
        free_room(end, number);
    }
    deliver(end);
}

/* The next item of the path reaches this end, or its device. */
static bool receive(struct end *end, uint32_t path)
{
    struct end *peer = peer_of(end);
    struct item item;
    if (!get(&peer->wire[path], &item)) {
        return false;
    }
    if (world.devices) {
        put(&end->completions, &item);
        if (peer->open[path]) {
            put(&peer->acks[path], &item);
        }
        return true;
    }
    assert_true(muster_bundle_acknowledge_before(&end->bundle, item.acknowledged));
    retire(end);
    if (item.number != 0) {
        arrive(end, &item);
    }
    return true;
}

static bool poll_arrivals(struct end *end)
{
    struct item item;
    if (!get(&end->completions, &item)) {
        return false;
    }
    arrive(end, &item);
    return true;
}

static bool poll_acks(struct end *end, uint32_t path)
{
    struct item item;
    if (!get(&end->acks[path], &item)) {
        return false;
    }
    muster_bundle_acknowledge(&end->bundle, item.number);
    assert_true(muster_bundle_is_acknowledged(&end->bundle, item.number));
    retire(end);
    return true;
}

/* Losing paths ------------------------------------------------------------------------------- */

/* So many items of each direction still come through. */
static void cut(uint32_t path, uint32_t left)
{
    world.cut[path] = true;
    for (int i = 0; i < 2; i++) {
        truncate(&world.ends[i].wire[path], left);
        truncate(&world.ends[i].acks[path], left);
    }
}

static uint32_t open_paths(const struct end *end)
{
    uint32_t bits = 0;
    for (uint32_t path = 0; path < world.path_count; path++) {
        bits |= (uint32_t)end->open[path] << path;
    }
    return bits;
}

/* This end receives what was left on the path and continues without the path. */
static void notice(struct end *end, uint32_t path)
{
    while (receive(end, path) || poll_acks(end, path) || poll_arrivals(end)) {
    }
    muster_bundle_abandon(&end->bundle, path);
    end->bundle.acknowledgement_due = true; /* the last one may be lost */
    end->open[path] = false;
    end->room_until = end->bundle.next_in + MUSTER_BUNDLE_AHEAD_MAX;
    for (uint64_t number = end->bundle.next_in; number < end->room_until; number++) {
        if (muster_bundle_classify(&end->bundle, number) == MUSTER_BUNDLE_DUPLICATE) {
            free_room(end, number);
        }
    }
    world.ended = world.ended || open_paths(end) == 0;
}

static bool is_lost(uint32_t path)
{
    return !world.ends[0].open[path] && !world.ends[1].open[path];
}

static void reopen(uint32_t path)
{
    world.cut[path] = false;
    for (int i = 0; i < 2; i++) {
        world.ends[i].open[path] = true;
        world.ends[i].credits[path] = CREDITS;
        truncate(&world.ends[i].wire[path], 0);
        truncate(&world.ends[i].acks[path], 0);
    }
}

static bool move_all(struct end *end)
{
    bool moved = false;
    for (uint32_t path = 0; path < world.path_count && !world.ended; path++) {
        if (world.cut[path] && end->open[path]) {
            notice(end, path);
            moved = true;
        }
        moved = receive(end, path) || moved;
        moved = poll_acks(end, path) || moved;
        moved = send_frame(end, path) || acknowledge_alone(end, path) || moved;
    }
    return poll_arrivals(end) || moved;
}

/* Nothing more is lost, and all that is left arrives, unless the link has ended. */
static void run_out(void)
{
    while (!world.ended && (move_all(&world.ends[0]) || move_all(&world.ends[1]))) {
    }
    for (int i = 0; i < 2 && !world.ended; i++) {
        const struct end *end = &world.ends[i];
        const struct muster_bundle *sender = &peer_of(&world.ends[i])->bundle;
        assert_int_equal(end->to_add, 0);
        assert_int_equal(end->bundle.waiting_count, 0);
        assert_int_equal(end->delivered + 1, sender->next_out);
        uint64_t in_window = sender->next_out - sender->first_out;
        assert_true(in_window < (world.devices ? 1 : MUSTER_BUNDLE_WINDOW / 4));
    }
}

/* Every sequence of a few events ------------------------------------------------------------- */

/* Frames go from end 0 to end 1, over two paths of which one is lost. False: the event is
 * impossible now. */
static bool do_event(uint32_t event)
{
    struct end *sender = &world.ends[0];
    struct end *receiver = &world.ends[1];
    uint32_t path = event % 2;
    switch (event / 2) {
    case 0:
        return send_frame(sender, path);
    case 1:
        return receive(receiver, path);
    case 2:
        return world.devices ? poll_acks(sender, path) : acknowledge_alone(receiver, path);
    case 3:
        return world.devices ? path == 0 && poll_arrivals(receiver) : receive(sender, path);
    case 4: /* one item more comes through, or none */
        if (world.cut[0]) {
            return false;
        }
        cut(0, path);
        return true;
    case 5:
        if (!world.cut[0] || !world.ends[path].open[0]) {
            return false;
        }
        notice(&world.ends[path], 0);
        return true;
    default:
        if (path != 0 || !is_lost(0)) {
            return false;
        }
        reopen(0);
        return true;
    }
}

enum { EVENT_KINDS = 14 };

static uint64_t explore(uint32_t depth)
{
    const struct world before = world;
    uint64_t count = 1;
    run_out();
    world = before;
    for (uint32_t event = 0; event < EVENT_KINDS && depth > 0; event++) {
        if (do_event(event)) {
            count += explore(depth - 1);
            world = before;
        }
    }
    return count;
}

static void after_every_sequence_of_a_few_events_all_frames_arrive(void **state)
{
    (void)state;
    for (int devices = 0; devices < 2; devices++) {
        begin(2, devices != 0, FIRST_NUMBER);
        world.ends[0].to_add = FEW_FRAMES;
        printf("%s: %" PRIu64 " sequences\n", devices != 0 ? "devices" : "streams", explore(DEPTH));
    }
}

/* Random sequences --------------------------------------------------------------------------- */

/* At one end. Path 0 lasts unless the link may end. */
static void random_event(uint64_t *random, bool may_end)
{
    struct end *end = &world.ends[test_random_below(random, 2)];
    uint32_t path = test_random_below(random, world.path_count);
    switch (test_random_below(random, 16)) {
    case 0:
    case 1:
    case 2:
        path = muster_bundle_choose(&end->bundle, open_paths(end));
        (void)send_frame(end, path);
        break;
    case 3:
        (void)try_frame(end, path);
        break;
    case 4:
        (void)acknowledge_alone(end, path);
        break;
    case 5:
    case 6:
        (void)poll_acks(end, path);
        break;
    case 7:
    case 8:
        (void)poll_arrivals(end);
        break;
    case 9: /* rarely: windows are to fill up */
        if (test_random_below(random, 10) == 0 && (may_end || path > 0) && !world.cut[path]) {
            cut(path, test_random_below(random, 8));
        }
        break;
    case 10:
        if (world.cut[path] && end->open[path]) {
            notice(end, path);
        }
        break;
    case 11:
        if (is_lost(path)) {
            reopen(path);
        }
        break;
    default:
        (void)receive(end, path);
    }
}

static void run_seed(uint64_t seed)
{
    uint64_t random = seed;
    uint32_t path_count = 1 + test_random_below(&random, PATHS_MAX);
    bool devices = test_random_below(&random, 2) == 1;
    bool may_end = test_random_below(&random, 4) == 0;
    begin(path_count, devices, FIRST_NUMBER + test_random_below(&random, FIRST_NUMBER));
    world.ends[0].to_add = FRAMES;
    world.ends[1].to_add = test_random_below(&random, FRAMES);
    for (uint32_t i = 0; i < EVENTS && !world.ended; i++) {
        random_event(&random, may_end);
    }
    for (uint32_t path = 0; path < path_count && !world.ended; path++) {
        if (is_lost(path)) {
            reopen(path);
        }
    }
    run_out();
    met.ended += world.ended;
}

static void under_random_losses_frames_arrive_once_and_in_order_or_the_link_ends(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < SEEDS; i++) {
        run_seed((seed + i) | UINT64_C(1) << 63);
    }
    printf("%" PRIu64 " duplicates, %" PRIu64 " ahead, %" PRIu64 " full windows, %" PRIu64
           " links ended\n",
           met.duplicates, met.ahead, met.full, met.ended);
    assert_true(met.duplicates > 0 && met.ahead > 0 && met.full > 0 && met.ended > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_every_sequence_of_a_few_events_all_frames_arrive),
        cmocka_unit_test(under_random_losses_frames_arrive_once_and_in_order_or_the_link_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
