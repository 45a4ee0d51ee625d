/* Rendezvous by get: large messages arrive, are never torn, and go through the ring if their memory
 * cannot be read. */
#include "tests/conformance/rig.h"
#include "worker/base/cleanup.h"
#include "worker/fabric/shm/shm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { LARGE_BYTES = 1024 * 1024 + 4, ROUNDS = 6 };

static const struct rig_transport memory = {.name = "shared memory", .transports = "shm"};

/* The end of a rank's link, to be read while no thread drives progress. */
static struct muster_shm_link *end_of(const struct rig *rig, uint32_t rank)
{
    return rig->fabrics[rank]->links[1 - rank]->end;
}

struct buffers {
    bool allocated; /* by muster_alloc() */
    bool consume;
    bool unreadable; /* the peer's process: as if it were in another PID name space */
};

static void add_up(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                   size_t size_bytes)
{
    memcpy((char *)transfer->data + offset_bytes, data, size_bytes);
}

static char *get(const struct buffers *buffers, void **ret_memory)
{
    if (buffers->allocated) {
        RIG_EXPECT(muster_alloc(LARGE_BYTES, ret_memory) == MUSTER_OK);
    } else {
        *ret_memory = malloc(LARGE_BYTES);
    }
    return NULL;
}

static void put(const struct buffers *buffers, void *memory_of)
{
    if (buffers->allocated) {
        muster_free(memory_of);
    } else {
        free(memory_of);
    }
}

static char *exchange_once(struct rig *rig, uint32_t rank, const struct buffers *buffers,
                           uint64_t sequence, void *out, void *in)
{
    struct rig_counter counter = {.left = 2};
    rig_fill(out, LARGE_BYTES, sequence + rank);
    memset(in, 0, LARGE_BYTES);
    struct muster_transfer send = rig_send(rig, 1 - rank, sequence, out, LARGE_BYTES);
    struct muster_transfer receive = rig_receive(rig, 1 - rank, sequence, in, LARGE_BYTES);
    receive.element_size_bytes = 4;
    send.element_size_bytes = 4;
    receive.consume = buffers->consume ? add_up : NULL;
    rig_post(rig, rank, &counter, &send);
    rig_post(rig, rank, &counter, &receive);
    muster_status status = rig_wait(rig, rank, &counter);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, sequence);
    if (status != MUSTER_OK) {
        return rig_error("%s", counter.reason);
    }
    RIG_EXPECT(rig_filled(in, LARGE_BYTES, sequence + 1 - rank));
    return NULL;
}

static char *exchange(struct rig *rig, uint32_t rank, void *user)
{
    const struct buffers *buffers = user;
    char *error = NULL;
    for (uint64_t sequence = 1; sequence <= ROUNDS && error == NULL; sequence++) {
        void *out = NULL;
        void *in = NULL;
        error = get(buffers, &out);
        error = error == NULL ? get(buffers, &in) : error;
        error = error == NULL ? exchange_once(rig, rank, buffers, sequence, out, in) : error;
        put(buffers, out);
        put(buffers, in);
        if (buffers->unreadable && end_of(rig, rank) != NULL) {
            end_of(rig, rank)->path->pid = 0;
        }
    }
    return error;
}

static void expect_exchange(struct buffers buffers)
{
    struct rig rig;
    rig_init(&rig, &memory, 2);
    rig_run(&rig, exchange, &buffers);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct muster_shm_link *end = end_of(&rig, rank);
        assert_int_equal(end->in.done < ROUNDS * (uint64_t)LARGE_BYTES / 2, !buffers.unreadable);
        assert_int_equal(end->last_ticket, ROUNDS);
        assert_true(end->mapping_count <= SHM_MAPPINGS_MAX);
    }
    rig_finish(&rig);
}

static void test_messages_are_read_out_of_any_memory(void **state)
{
    (void)state;
    expect_exchange((struct buffers){.consume = false});
    expect_exchange((struct buffers){.consume = true});
}

static void test_messages_are_read_out_of_allocated_memory(void **state)
{
    (void)state;
    expect_exchange((struct buffers){.allocated = true});
    expect_exchange((struct buffers){.allocated = true, .consume = true});
}

static void test_where_reading_is_forbidden_messages_go_through_the_ring(void **state)
{
    (void)state;
    expect_exchange((struct buffers){.unreadable = true});
    expect_exchange((struct buffers){.unreadable = true, .consume = true});
}

/* Withdrawing ---------------------------------------------------------------------------------- */

/* The message that the receiver's consume function withdraws at the sender. */
struct torn {
    struct rig *rig;
    char *data;
    bool withdrawn;
};

static void withdraw_in_the_middle(struct muster_transfer *transfer, uint64_t offset_bytes,
                                   const void *data, size_t size_bytes)
{
    struct torn *torn = transfer->data;
    (void)data;
    (void)size_bytes;
    if (offset_bytes == 0 || torn->withdrawn) {
        return;
    }
    torn->withdrawn = true;
    muster_fabric_withdraw(torn->rig->fabrics[0], torn->rig->generation, 0, 1);
    munmap(torn->data, LARGE_BYTES); /* a get that still reads it must survive that */
}

static void test_a_message_withdrawn_while_it_is_read_is_not_delivered(void **state)
{
    (void)state;
    struct rig rig;
    struct torn torn = {.rig = &rig};
    rig_init(&rig, &memory, 2);
    torn.data = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(torn.data, MAP_FAILED);
    struct rig_counter sent = {.left = 1};
    struct rig_counter received = {.left = 1};
    struct muster_transfer send = rig_send(&rig, 1, 1, torn.data, LARGE_BYTES);
    struct muster_transfer receive = rig_receive(&rig, 0, 1, &torn, LARGE_BYTES);
    receive.consume = withdraw_in_the_middle;
    rig_post(&rig, 0, &sent, &send);
    rig_post(&rig, 1, &received, &receive);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (!torn.withdrawn && muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 1);
        rig_progress(&rig, 1, 1);
    }
    assert_true(torn.withdrawn);
    rig_progress(&rig, 1, 20); /* it must not be delivered later either */
    assert_int_equal(received.left, 1);
    assert_int_equal(sent.left, 1);
    muster_fabric_withdraw(rig.fabrics[1], rig.generation, 0, 1);
    assert_int_equal(received.left, 1);
    rig_finish(&rig);
}

/* The sender changes its data while the receiver consumes a piece of it. */
struct changed {
    struct rig *rig;
    char *data;
    bool consumed, intact;
};

static void change_and_compare(struct muster_transfer *transfer, uint64_t offset_bytes,
                               const void *data, size_t size_bytes)
{
    struct changed *changed = transfer->data;
    if (changed->consumed) {
        return;
    }
    changed->consumed = true;
    muster_fabric_withdraw(changed->rig->fabrics[0], changed->rig->generation, 0, ROUNDS + 1);
    memset(changed->data, 7, LARGE_BYTES);
    changed->intact = offset_bytes == 0;
    for (size_t i = 0; i < size_bytes; i++) {
        changed->intact &= ((const char *)data)[i] == 5;
    }
}

/* Sends the data until the receiver has mapped them. */
static void warm_up(struct rig *rig, char *data)
{
    void *in = NULL;
    assert_int_equal(muster_alloc(LARGE_BYTES, &in), MUSTER_OK);
    for (uint64_t sequence = 1; sequence <= ROUNDS; sequence++) {
        struct rig_counter counter = {.left = 2};
        struct muster_transfer send = rig_send(rig, 1, sequence, data, LARGE_BYTES);
        struct muster_transfer receive = rig_receive(rig, 0, sequence, in, LARGE_BYTES);
        rig_post(rig, 0, &counter, &send);
        rig_post(rig, 1, &counter, &receive);
        int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
        while (counter.left > 0 && muster_clock_ns() < deadline_ns) {
            rig_progress(rig, 0, 1);
            rig_progress(rig, 1, 1);
        }
        assert_int_equal(counter.left, 0);
    }
    assert_true(end_of(rig, 1)->mapping_count > 0);
    muster_free(in);
}

/* Whether the first piece that is consumed is what was sent. */
static bool survives_a_change(bool checked)
{
    struct rig rig;
    struct changed changed = {.rig = &rig};
    void *data = NULL;
    rig_init(&rig, &memory, 2);
    assert_int_equal(muster_alloc(LARGE_BYTES, &data), MUSTER_OK);
    changed.data = memset(data, 5, LARGE_BYTES);
    warm_up(&rig, changed.data);
    struct rig_counter sent = {.left = 1};
    struct rig_counter received = {.left = 1};
    struct muster_transfer send = rig_send(&rig, 1, ROUNDS + 1, changed.data, LARGE_BYTES);
    struct muster_transfer receive = rig_receive(&rig, 0, ROUNDS + 1, &changed, LARGE_BYTES);
    receive.consume = change_and_compare;
    receive.checked = checked;
    rig_post(&rig, 0, &sent, &send);
    rig_post(&rig, 1, &received, &receive);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (!changed.consumed && muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 1);
        rig_progress(&rig, 1, 1);
    }
    assert_true(changed.consumed);
    muster_fabric_withdraw(rig.fabrics[1], rig.generation, 0, ROUNDS + 1);
    rig_finish(&rig);
    muster_free(data);
    return changed.intact;
}

static void test_a_checked_receive_consumes_no_data_that_may_change(void **state)
{
    (void)state;
    assert_true(survives_a_change(true));
    assert_false(survives_a_change(false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_read_out_of_any_memory),
        cmocka_unit_test(test_messages_are_read_out_of_allocated_memory),
        cmocka_unit_test(test_where_reading_is_forbidden_messages_go_through_the_ring),
        cmocka_unit_test(test_a_message_withdrawn_while_it_is_read_is_not_delivered),
        cmocka_unit_test(test_a_checked_receive_consumes_no_data_that_may_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
