/* The ring: every order of the steps of its two sides, two threads, and wrong counts. */
#include "worker/fabric/shm/byte_ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The transport maps the ring twice. Here the second mapping is a copy, which the writer updates.
 */
enum { RING_BYTES = 64, MESSAGES = 200000 };

struct both {
    struct muster_ring_count written, read;
    unsigned char data[2 * RING_BYTES];
    struct muster_ring writer, reader;
};

static void init(struct both *both)
{
    memset(both, 0, sizeof *both);
    muster_ring_init(&both->writer, &both->written, &both->read, both->data, RING_BYTES);
    muster_ring_init(&both->reader, &both->read, &both->written, both->data, RING_BYTES);
}

/* Writes the next bytes of a sequence, if they fit. */
static bool write_some(struct both *both, size_t size, unsigned char *next)
{
    size_t room;
    size_t at = both->writer.done & (RING_BYTES - 1);
    unsigned char *to = muster_ring_reserve(&both->writer, size, &room);
    if (to == NULL) {
        assert_true(room < size);
        return false;
    }
    assert_true(room >= size && room <= RING_BYTES);
    for (size_t i = 0; i < size; i++) {
        both->data[(at + i) & (RING_BYTES - 1)] = *next;
        both->data[((at + i) & (RING_BYTES - 1)) + RING_BYTES] = *next;
        (*next)++;
    }
    muster_ring_advance(&both->writer, size);
    return true;
}

/* Reads at most `most` bytes; returns how many it has read. */
static size_t read_some(struct both *both, size_t most, unsigned char *next)
{
    size_t there = muster_ring_available(&both->reader);
    assert_true(there <= RING_BYTES);
    size_t size = there < most ? there : most;
    const unsigned char *from = muster_ring_front(&both->reader);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(from[i], (*next)++);
    }
    if (size > 0) {
        muster_ring_advance(&both->reader, size);
    }
    return size;
}

/* The steps of one side in each order with those of the other, for sizes that fill the ring, fit
 * exactly, or wrap. */
static void test_all_orders_of_twelve_calls_deliver_what_was_written(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 24, 40, 64};
    for (unsigned order = 0; order < 1u << 12; order++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct both both;
            unsigned char out = 0;
            unsigned char in = 0;
            size_t there = 0;
            init(&both);
            for (unsigned call = 0; call < 12; call++) {
                if ((order >> call & 1) != 0) {
                    bool fits = there + sizes[s] <= RING_BYTES;
                    assert_int_equal(write_some(&both, sizes[s], &out), fits);
                    there += fits ? sizes[s] : 0;
                } else {
                    /* The reader sees the rest when it loads the count again. */
                    there -= read_some(&both, RING_BYTES, &in);
                }
            }
            while (there > 0) {
                there -= read_some(&both, RING_BYTES, &in);
            }
            assert_int_equal(in, out);
        }
    }
}

/* The other side's count may be stale when it is used. With every age of both counts, no byte is
 * overwritten before it was read, or read before it was written. */
static void test_stale_counts_lose_and_repeat_nothing(void **state)
{
    (void)state;
    for (uint64_t written = 0; written <= RING_BYTES; written++) {
        for (uint64_t read = 0; read <= written; read++) {
            for (uint64_t late = 0; late <= read; late++) {
                struct both both;
                size_t room = 0;
                init(&both);
                both.writer.done = written;
                atomic_store(&both.written.bytes, written);
                atomic_store(&both.read.bytes, late);
                (void)muster_ring_reserve(&both.writer, RING_BYTES, &room);
                assert_true(room <= RING_BYTES - (written - read));
                both.reader.done = late;
                both.reader.seen = late;
                atomic_store(&both.written.bytes, read);
                assert_int_equal(muster_ring_available(&both.reader), read - late);
            }
        }
    }
}

static void *write_all(void *argument)
{
    struct both *both = argument;
    unsigned char next = 0;
    unsigned seed = 1;
    for (int i = 0; i < MESSAGES; i++) {
        size_t size = (size_t)rand_r(&seed) % 16 + 1;
        while (!write_some(both, size, &next)) {
            sched_yield();
        }
    }
    return NULL;
}

static void test_two_threads_need_no_lock(void **state)
{
    (void)state;
    struct both both;
    pthread_t thread;
    unsigned char next = 0;
    uint64_t total = 0;
    uint64_t got = 0;
    unsigned seed = 1;
    for (int i = 0; i < MESSAGES; i++) {
        total += (unsigned)rand_r(&seed) % 16 + 1;
    }
    init(&both);
    assert_int_equal(pthread_create(&thread, NULL, write_all, &both), 0);
    while (got < total) {
        size_t size = read_some(&both, RING_BYTES, &next);
        got += size;
        if (size == 0) {
            sched_yield();
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(muster_ring_available(&both.reader), 0);
}

static void test_impossible_counts_are_detected(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (int i = 0; i < 100000; i++) {
        struct both both;
        size_t room = 0;
        init(&both);
        uint64_t done = (uint64_t)rand_r(&seed) % 1000;
        uint64_t lie = ((uint64_t)rand_r(&seed) << 33) ^ (uint64_t)rand_r(&seed);
        lie = i % 2 == 0 ? lie : done + lie % 200;
        both.reader.done = done;
        both.reader.seen = done;
        atomic_store(&both.written.bytes, lie);
        size_t there = muster_ring_available(&both.reader);
        assert_true(lie - done <= RING_BYTES ? there == lie - done : there == MUSTER_RING_BROKEN);
        both.writer.done = done;
        both.writer.seen = done - (done < RING_BYTES ? done : RING_BYTES);
        atomic_store(&both.read.bytes, lie);
        const unsigned char *to = muster_ring_reserve(&both.writer, RING_BYTES + 1, &room);
        assert_null(to);
        assert_true(done - lie <= RING_BYTES ? room <= RING_BYTES : room == MUSTER_RING_BROKEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_orders_of_twelve_calls_deliver_what_was_written),
        cmocka_unit_test(test_stale_counts_lose_and_repeat_nothing),
        cmocka_unit_test(test_two_threads_need_no_lock),
        cmocka_unit_test(test_impossible_counts_are_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
