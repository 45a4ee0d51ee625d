/* The suite: messages of all sizes, orders, directions and pieces. */
#include "tests/conformance/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t sizes[] = {0,     1,      7,      4096,   16383,         16384,   16385,
                                 65536, 262143, 262144, 262145, (1 << 20) - 1, 1 << 20, 3000001};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Both ranks first wait for a message in the other direction, so that one of them is late only by
 * the order of its own posts. */
struct order {
    bool sender_first;
    uint64_t size;
    uint64_t sequence;
};

/* Rank 0 sends one message to rank 1. The rank that is late posts its transfer only after a note
 * from the other one. */
static char *one_message(struct rig *rig, uint32_t rank, void *user)
{
    const struct order *order = user;
    char *data = malloc(order->size + 1);
    char token = 0;
    struct rig_counter first = {.left = 1};
    struct rig_counter second = {.left = 1};
    bool sender = rank == 0;
    rig_fill(data, order->size + 1, sender ? order->size : 999);
    struct muster_transfer message = sender
                                         ? rig_send(rig, 1, order->sequence, data, order->size)
                                         : rig_receive(rig, 0, order->sequence, data, order->size);
    bool early = sender == order->sender_first;
    struct muster_transfer note = early
                                      ? rig_send(rig, 1 - rank, order->sequence + 1, &token, 1)
                                      : rig_receive(rig, 1 - rank, order->sequence + 1, &token, 1);
    if (early) {
        rig_post(rig, rank, &first, &message);
    }
    rig_post(rig, rank, &second, &note);
    RIG_EXPECT(rig_wait(rig, rank, &second) == MUSTER_OK);
    if (!early) {
        rig_post(rig, rank, &first, &message);
    }
    RIG_EXPECT(rig_wait(rig, rank, &first) == MUSTER_OK);
    RIG_EXPECT(message.state == MUSTER_TRANSFER_DONE && message.moved_bytes == order->size);
    RIG_EXPECT(rig_filled(data, order->size, order->size));
    free(data);
    return NULL;
}

static void run_order(bool sender_first)
{
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    for (uint32_t i = 0; i < SIZES; i++) {
        struct order order = {
            .sender_first = sender_first, .size = sizes[i], .sequence = 1 + 2 * i};
        rig_run(&rig, one_message, &order);
    }
    rig_finish(&rig);
}

static void a_message_whose_send_is_posted_first_arrives(void **state)
{
    (void)state;
    run_order(true);
}

static void a_message_whose_receive_is_posted_first_arrives(void **state)
{
    (void)state;
    run_order(false);
}

static char *exchange_large(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t size = *(const uint64_t *)user;
    char *out = malloc(size);
    char *in = malloc(size);
    rig_fill(out, size, rank);
    struct rig_counter counter = {.left = 2};
    struct muster_transfer send = rig_send(rig, 1 - rank, 1, out, size);
    struct muster_transfer receive = rig_receive(rig, 1 - rank, 1, in, size);
    rig_post(rig, rank, &counter, &send);
    rig_post(rig, rank, &counter, &receive);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    RIG_EXPECT(rig_filled(in, size, 1 - rank));
    free(out);
    free(in);
    return NULL;
}

static void large_messages_cross_without_deadlock(void **state)
{
    (void)state;
    uint64_t size = 64 << 20;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, exchange_large, &size);
    rig_finish(&rig);
}

/* Many at once ------------------------------------------------------------------------------- */

enum {
    LANES = 5,
    CONTEXTS = 3,
    ORDINALS = 12,
    MANY = LANES * CONTEXTS * ORDINALS,
    MANY_SIZE = 40000
};

static void set_key(struct muster_transfer *transfer, uint32_t i)
{
    transfer->key.lane = (uint16_t)(i % LANES);
    transfer->key.context = i / LANES % CONTEXTS;
    transfer->key.ordinal = i / LANES / CONTEXTS;
    transfer->size_bytes = i % 7 == 0 ? 0 : (i * 997u) % MANY_SIZE;
}

/* Posts sends and receives with many different keys in unrelated orders, and checks that each
 * message is in the buffer of its own key. */
static char *many_out_of_order(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct rig_counter counter = {.left = 2 * MANY};
    struct muster_transfer *transfers = calloc(2 * MANY, sizeof *transfers);
    char *data = calloc(2 * MANY, MANY_SIZE);
    for (uint32_t k = 0; k < MANY; k++) {
        uint32_t i = (k * 7 + 5) % MANY;                         /* the order of the sends */
        uint32_t j = rank == 0 ? MANY - 1 - k : (k * 11) % MANY; /* of the receives */
        char *out = data + (size_t)i * MANY_SIZE;
        rig_fill(out, MANY_SIZE, i + 1000 * rank);
        transfers[i] = rig_send(rig, 1 - rank, 1, out, 0);
        set_key(&transfers[i], i);
        rig_post(rig, rank, &counter, &transfers[i]);
        transfers[MANY + j] =
            rig_receive(rig, 1 - rank, 1, data + (size_t)(MANY + j) * MANY_SIZE, 0);
        set_key(&transfers[MANY + j], j);
        rig_post(rig, rank, &counter, &transfers[MANY + j]);
    }
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        RIG_EXPECT(rig_filled(data + (size_t)(MANY + i) * MANY_SIZE, transfers[MANY + i].size_bytes,
                              i + 1000 * (1 - rank)));
    }
    free(data);
    free(transfers);
    return NULL;
}

static void many_messages_find_their_places_in_any_order(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, many_out_of_order, NULL);
    rig_finish(&rig);
}

/* More small messages than the eager window holds, all sent before the first receive is posted. */
enum { FLOOD = 3000, FLOOD_SIZE = 1000 };

/* Rank 0 posts all sends and then a note; rank 1 posts its receives only when the note has come. */
static char *flood(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct muster_transfer *transfers = calloc(FLOOD + 1, sizeof *transfers);
    char *data = malloc((size_t)FLOOD * FLOOD_SIZE);
    char token = 0;
    struct rig_counter counter = {.left = FLOOD};
    struct rig_counter go = {.left = 1};
    rig_fill(data, (uint64_t)FLOOD * FLOOD_SIZE, rank == 0 ? 7 : 8);
    for (uint32_t i = 0; i < FLOOD; i++) {
        /* The receiver posts the last one first. */
        uint32_t n = rank == 0 ? i : FLOOD - 1 - i;
        char *place = data + (size_t)n * FLOOD_SIZE;
        transfers[i] = rank == 0 ? rig_send(rig, 1, 1, place, FLOOD_SIZE)
                                 : rig_receive(rig, 0, 1, place, FLOOD_SIZE);
        transfers[i].key.ordinal = n;
    }
    transfers[FLOOD] =
        rank == 0 ? rig_send(rig, 1, 2, &token, 1) : rig_receive(rig, 0, 2, &token, 1);
    if (rank == 1) {
        rig_post(rig, rank, &go, &transfers[FLOOD]);
        RIG_EXPECT(rig_wait(rig, rank, &go) == MUSTER_OK);
    }
    for (uint32_t i = 0; i < FLOOD; i++) {
        rig_post(rig, rank, &counter, &transfers[i]);
    }
    if (rank == 0) {
        rig_post(rig, rank, &go, &transfers[FLOOD]);
    }
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    RIG_EXPECT(rig_wait(rig, rank, &go) == MUSTER_OK);
    RIG_EXPECT(rig_filled(data, (uint64_t)FLOOD * FLOOD_SIZE, 7));
    free(data);
    free(transfers);
    return NULL;
}

static void a_flood_of_unexpected_messages_is_bounded_and_arrives(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, flood, NULL);
    rig_finish(&rig);
}

/* Pieces ------------------------------------------------------------------------------------- */

enum { ELEMENT = 12 }; /* no power of two: segments are cut to whole elements */

struct collector {
    struct rig_counter counter; /* first: the transfer's owner */
    uint64_t next;
    bool wrong;
    unsigned char *data;
};

static void collect(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                    size_t size_bytes)
{
    struct collector *collector = transfer->owner;
    collector->wrong = collector->wrong || offset_bytes != collector->next || size_bytes == 0 ||
                       size_bytes % ELEMENT != 0 ||
                       offset_bytes + size_bytes > transfer->size_bytes;
    if (!collector->wrong) {
        memcpy(collector->data + offset_bytes, data, size_bytes);
        collector->next += size_bytes;
    }
}

static char *consume_pieces(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t size = *(const uint64_t *)user;
    struct collector collector = {.counter = {.left = 1}, .data = malloc(size + 1)};
    rig_fill(collector.data, size, rank);
    struct muster_transfer transfer = rank == 0 ? rig_send(rig, 1, size + 1, collector.data, size)
                                                : rig_receive(rig, 0, size + 1, NULL, size);
    transfer.element_size_bytes = ELEMENT;
    transfer.consume = rank == 0 ? NULL : collect;
    rig_post(rig, rank, &collector.counter, &transfer);
    RIG_EXPECT(rig_wait(rig, rank, &collector.counter) == MUSTER_OK);
    RIG_EXPECT(!collector.wrong && (rank == 0 || collector.next == size));
    RIG_EXPECT(rig_filled(collector.data, size, 0));
    free(collector.data);
    return NULL;
}

static void pieces_are_whole_elements_in_order(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 85, 1365, 1366, 21845, 21846, 300001};
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t size = counts[i] * ELEMENT;
        rig_run(&rig, consume_pieces, &size);
    }
    rig_finish(&rig);
}

/* All to all --------------------------------------------------------------------------------- */

static char *all_to_all(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t size = *(const uint64_t *)user;
    struct muster_transfer transfers[2 * RIG_MAX];
    char *data = malloc(2 * RIG_MAX * size);
    struct rig_counter counter = {.left = 2 * (rig->count - 1)};
    for (uint32_t i = 0; i < rig->count; i++) {
        if (i == rank) {
            continue;
        }
        char *out = data + i * size;
        char *in = data + (RIG_MAX + i) * size;
        rig_fill(out, size, 100 * rank + i);
        transfers[i] = rig_send(rig, i, size, out, size);
        transfers[RIG_MAX + i] = rig_receive(rig, i, size, in, size);
        rig_post(rig, rank, &counter, &transfers[RIG_MAX + i]);
        rig_post(rig, rank, &counter, &transfers[i]);
    }
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    for (uint32_t i = 0; i < rig->count; i++) {
        RIG_EXPECT(i == rank || rig_filled(data + (RIG_MAX + i) * size, size, 100 * i + rank));
    }
    free(data);
    return NULL;
}

static void eight_fabrics_exchange_all_to_all(void **state)
{
    (void)state;
    static const uint64_t all[] = {1, 4000, 500000};
    struct rig rig;
    rig_init(&rig, conformance_transport, RIG_MAX);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t size = all[i];
        rig_run(&rig, all_to_all, &size);
    }
    rig_finish(&rig);
}

const struct CMUnitTest conformance_moving[] = {
    cmocka_unit_test(a_message_whose_send_is_posted_first_arrives),
    cmocka_unit_test(a_message_whose_receive_is_posted_first_arrives),
    cmocka_unit_test(large_messages_cross_without_deadlock),
    cmocka_unit_test(many_messages_find_their_places_in_any_order),
    cmocka_unit_test(a_flood_of_unexpected_messages_is_bounded_and_arrives),
    cmocka_unit_test(pieces_are_whole_elements_in_order),
    cmocka_unit_test(eight_fabrics_exchange_all_to_all),
};
const size_t conformance_moving_count = sizeof conformance_moving / sizeof conformance_moving[0];
