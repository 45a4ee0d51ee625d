/* The suite: messages that lie in several ranges, at the sender, the receiver or both. */
#include "tests/conformance/suite.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/schedules.h"

enum { ROUNDS = 60, SMALL_MAX = 20000, LARGE_MAX = 1500000, RUNS_MAX = 300, ELEMENT = 4, GAP = 8 };

static uint64_t seed;

/* Bytes of memory as ranges: tiny, middle and large ones, in an order of their own. */
struct scattered {
    char *memory;
    struct muster_range_run runs[RUNS_MAX + 1];
    struct muster_range_list list;
};

static void cut_runs(struct scattered *data, uint64_t size, uint64_t *random)
{
    size_t most = 2 + test_random(random) % (RUNS_MAX - 2);
    uint64_t at = 0;
    size_t count = 0;
    while (at < size) {
        uint32_t kind = test_random(random) % 8;
        uint64_t room = kind < 2 ? size - at : kind < 4 ? 40000 : 64 * ELEMENT;
        uint64_t run = (1 + test_random(random) % (room / ELEMENT + 1)) * ELEMENT;
        data->runs[count++].begin_bytes = at;
        at = count + 1 >= most || run > size - at ? size : at + run;
    }
    data->runs[count].begin_bytes = size;
    data->list = (struct muster_range_list){.runs = data->runs, .count = count};
    data->memory = malloc(size + (uint64_t)RUNS_MAX * GAP + 1);
    char *next = data->memory;
    for (size_t i = count; i > 0; i--) { /* the last one first */
        data->runs[i - 1].address = next;
        next += data->runs[i].begin_bytes - data->runs[i - 1].begin_bytes + GAP;
    }
}

/* What both ranks draw alike; how a rank holds its data is its own affair. */
struct drawn {
    uint64_t size, begin; /* the message, and where in the ranges it begins */
    bool sender_first;
    bool consumed;
};

struct consumed {
    struct rig_counter counter; /* first: the owner of the transfer */
    char *data;
    bool wrong;
};

static void take(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                 size_t size_bytes)
{
    struct consumed *consumed = transfer->owner;
    consumed->wrong = consumed->wrong || size_bytes % ELEMENT != 0;
    memcpy(consumed->data + offset_bytes, data, size_bytes);
}

static void put_in_ranges(struct muster_transfer *transfer, const struct scattered *data,
                          uint64_t begin)
{
    transfer->data = NULL;
    transfer->ranges = &data->list;
    transfer->ranges_at_bytes = begin;
}

static char *pass(struct rig *rig, uint32_t rank, const struct drawn *drawn, uint64_t sequence,
                  uint64_t *own)
{
    uint64_t size = drawn->size;
    char *flat = calloc(size + 1, 1);
    struct scattered data;
    struct consumed receiver = {.counter = {.left = 1}, .data = flat};
    bool sender = rank == 0;
    bool in_ranges = size > 0 && test_random(own) % 4 != 0;
    cut_runs(&data, drawn->begin + size + ELEMENT, own);
    const struct muster_place place = {.ranges = &data.list, .at_bytes = drawn->begin};
    struct muster_transfer message =
        sender ? rig_send(rig, 1, sequence, flat, size) : rig_receive(rig, 0, sequence, flat, size);
    message.element_size_bytes = ELEMENT;
    if (sender) {
        rig_fill(flat, size, sequence);
        muster_place_copy(place, (struct muster_place){.base = flat}, size);
    }
    if (!sender && drawn->consumed) {
        message.consume = take;
    } else if (in_ranges) {
        put_in_ranges(&message, &data, drawn->begin);
    }
    if (sender != drawn->sender_first) { /* the other one's post is there, or on its way */
        rig_progress(rig, rank, 1);
    }
    rig_post(rig, rank, &receiver.counter, &message);
    RIG_EXPECT(rig_wait(rig, rank, &receiver.counter) == MUSTER_OK);
    if (message.ranges != NULL) {
        muster_place_copy((struct muster_place){.base = flat}, place, size);
    }
    RIG_EXPECT(!receiver.wrong && rig_filled(flat, size, sequence));
    free(data.memory);
    free(flat);
    return NULL;
}

static char *pass_many(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t common = seed;
    uint64_t own = seed + 1 + rank;
    (void)user;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        uint64_t most = test_random(&common) % 2 == 0 ? SMALL_MAX : LARGE_MAX;
        const struct drawn drawn = {.size = test_random(&common) % (most / ELEMENT) * ELEMENT,
                                    .begin = test_random(&common) % 1000 * ELEMENT,
                                    .sender_first = test_random(&common) % 2 == 0,
                                    .consumed = test_random(&common) % 3 == 0};
        char *error = pass(rig, rank, &drawn, i, &own);
        if (error != NULL) {
            return error;
        }
    }
    return NULL;
}

static void messages_go_from_ranges_to_ranges(void **state)
{
    struct rig rig;
    (void)state;
    seed = test_seed();
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, pass_many, NULL);
    rig_finish(&rig);
}

const struct CMUnitTest conformance_ranges[] = {
    cmocka_unit_test(messages_go_from_ranges_to_ranges),
};
const size_t conformance_ranges_count = sizeof conformance_ranges / sizeof conformance_ranges[0];
