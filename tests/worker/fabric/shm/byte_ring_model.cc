/*
 * The ring under a memory model: byte_ring.c itself, between two threads that sleep when there is
 * nothing to do, as those of the transport do. Relacy tries the orders of the threads' steps, and for
 * every load all values that C11 allows, which processors with weak ordering can return. It finds
 * data that is read before it is written or overwritten before it is read, and lost wake-ups.
 *
 * In C++, because Relacy is. ACQUIRE, RELEASE and NO_FENCE weaken what the ring relies on, to check
 * that the model finds the fault.
 */
#include <relacy/relacy.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#ifndef ACQUIRE
#define ACQUIRE rl::mo_acquire
#endif
#ifndef RELEASE
#define RELEASE rl::mo_release
#endif

/* What "_Atomic uint64_t" is here: Relacy's. */
namespace modelled {
struct uint64_t : rl::atomic<std::uint64_t> {};
} // namespace modelled
#define _Atomic struct modelled::
#define memory_order_acquire ACQUIRE
#define memory_order_release RELEASE
#define memory_order_seq_cst rl::mo_seq_cst
#define atomic_load_explicit(word, order) (word)->load(order, $)
#define atomic_store_explicit(word, value, order) (word)->store(value, order, $)
#ifdef NO_FENCE
#define atomic_thread_fence(order) ((void)0)
#else
#define atomic_thread_fence(order) rl::atomic_thread_fence(order, $)
#endif
#include "worker/fabric/shm/byte_ring.c" // NOLINT

namespace {

enum { RING_BYTES = 4, ITERATIONS = 300000, SWITCHES = 4 };

/* Messages that leave room, wrap, and fill the ring. */
const size_t sizes[] = {3, 2, 4};

struct ring_model : rl::test_suite<ring_model, 2> {
    struct end {
        muster_ring ring;
        rl::atomic<int> sleeping;
        rl::generic_event wake;
    };

    muster_ring_count written, read;
    unsigned char place[2 * RING_BYTES]; /* never read: the bytes are in data */
    rl::var<int> data[RING_BYTES];
    end writer, reader;

    void before()
    {
        written.bytes.store(0, rl::mo_relaxed, $);
        read.bytes.store(0, rl::mo_relaxed, $);
        muster_ring_init(&writer.ring, &written, &read, place, RING_BYTES);
        muster_ring_init(&reader.ring, &read, &written, place, RING_BYTES);
        for (end *each : {&writer, &reader}) {
            each->sleeping.store(0, rl::mo_relaxed, $);
            each->wake.init(false, false, $);
        }
    }

    void after()
    {
        writer.wake.deinit($);
        reader.wake.deinit($);
    }

    rl::var<int> &byte(const unsigned char *at)
    {
        return data[static_cast<size_t>(at - place) % RING_BYTES];
    }

    static void tell(end &other)
    {
        muster_ring_fence();
        if (other.sleeping.load(rl::mo_relaxed, $) != 0 && other.sleeping.exchange(0, rl::mo_seq_cst, $) != 0) {
            other.wake.set($);
        }
    }

    static void sleep_until_news(end &mine)
    {
        mine.sleeping.store(1, rl::mo_relaxed, $);
        muster_ring_fence();
        if (!muster_ring_has_changed(&mine.ring)) {
            mine.wake.wait(false, false, $);
        }
        mine.sleeping.store(0, rl::mo_relaxed, $);
    }

    void write()
    {
        int next = 0;
        for (size_t size : sizes) {
            size_t room;
            unsigned char *to;
            while ((to = muster_ring_reserve(&writer.ring, size, &room)) == nullptr) {
                RL_ASSERT(room < size);
                sleep_until_news(writer);
            }
            for (size_t i = 0; i < size; i++) {
                byte(to + i)($) = next++;
            }
            muster_ring_advance(&writer.ring, size);
            tell(reader);
        }
    }

    void take()
    {
        int next = 0;
        int total = 0;
        for (size_t size : sizes) {
            total += static_cast<int>(size);
        }
        while (next < total) {
            size_t there = muster_ring_available(&reader.ring);
            RL_ASSERT(there <= RING_BYTES);
            if (there == 0) {
                sleep_until_news(reader);
                continue;
            }
            const unsigned char *from = muster_ring_front(&reader.ring);
            for (size_t i = 0; i < there; i++) {
                RL_ASSERT(byte(from + i)($) == next);
                next++;
            }
            muster_ring_advance(&reader.ring, there);
            tell(writer);
        }
    }

    void thread(unsigned index)
    {
        if (index == 0) {
            write();
        } else {
            take();
        }
    }
};

bool holds(rl::test_params &params, const char *what)
{
    bool ok = rl::simulate<ring_model>(params);
    std::printf("%s: %s after %llu executions\n", what, ok ? "nothing found" : rl::test_result_str(params.test_result),
                static_cast<unsigned long long>(params.stop_iteration));
    return ok;
}

} // namespace

int main()
{
    rl::test_params bound;
    bound.search_type = rl::fair_context_bound_scheduler_type;
    bound.context_bound = SWITCHES;
    rl::test_params random;
    random.search_type = rl::random_scheduler_type;
    random.iteration_count = ITERATIONS;
    return holds(bound, "every execution of up to 4 switches") && holds(random, "random executions") ? 0 : 1;
}
