/*
 * What two processes of one host need at least for an allreduce of float32, without Muster: the
 * bars that its shared memory is measured against.
 *
 *     cc -O3 -march=native -o /tmp/bare_memory tests/bench/bare_memory.c && /tmp/bare_memory
 *
 * "exchange": each writes 4 bytes and a number into a line of its own and polls the other's line.
 * "readv halves": 64 MiB from malloc(). Each reduces its half with the peer's, which it reads by
 * process_vm_readv() in pieces that stay in the cache, and reads the other half of the result.
 * "readv twice": each reads all of the peer's input and reduces everything. "mapped": the same as
 * the second in memory that both have mapped, without a copy; outputs are written past the caches.
 * Medians in us; the times of large calls are those of the slower process.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/peer.h"

enum {
    EXCHANGES = 20, /* between two readings of the clock */
    SAMPLES = 5000,
    COUNT = 16 << 20, /* elements: 64 MiB */
    PIECE = 32 << 10,
    CALLS = 21,
};

struct line {
    _Alignas(128) _Atomic uint64_t number;
    float value;
    pid_t pid;
    float *in, *out; /* as this process knows them */
    double us;
};

static struct line (*lines)[2]; /* [2] used in turn, of both processes */
static uint64_t turn;

static const struct line *meet(int self)
{
    turn++;
    atomic_store_explicit(&lines[turn % 2][self].number, turn, memory_order_release);
    const struct line *peer = &lines[turn % 2][1 - self];
    while (atomic_load_explicit(&peer->number, memory_order_acquire) < turn) {
        _mm_pause();
    }
    return peer;
}

static void exchange(int self)
{
    static double us[SAMPLES];
    volatile float sum = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double start = peer_now_us();
        for (int k = 0; k < EXCHANGES; k++) {
            lines[(turn + 1) % 2][self].value = (float)k;
            sum = (float)k + meet(self)->value;
        }
        us[i] = (peer_now_us() - start) / EXCHANGES;
    }
    (void)sum;
    if (self == 0) {
        printf("%-14s %10.3f\n", "exchange", peer_median(us, SAMPLES));
    }
}

static void add(float *out, const float *left, const float *right, size_t count, bool past_caches)
{
    for (size_t i = 0; i < count; i += 8) {
        __m256 sum = _mm256_add_ps(_mm256_load_ps(left + i), _mm256_load_ps(right + i));
        if (past_caches) {
            _mm256_stream_ps(out + i, sum);
        } else {
            _mm256_store_ps(out + i, sum);
        }
    }
}

static void read_peer(pid_t pid, void *to, const float *from, size_t count)
{
    struct iovec here = {.iov_base = to, .iov_len = count * sizeof *from};
    struct iovec there = {.iov_base = (void *)from, .iov_len = count * sizeof *from};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)(count * sizeof *from)) {
        perror("process_vm_readv");
        _exit(1);
    }
}

/* Elements [first, first + count) of the sum. */
static void reduce_read(const struct line *mine, const struct line *peer, size_t first,
                        size_t count, bool past_caches)
{
    static _Alignas(64) float piece[PIECE];
    for (size_t at = first; at < first + count; at += PIECE) {
        read_peer(peer->pid, piece, peer->in + at, PIECE);
        add(mine->out + at, mine->in + at, piece, PIECE, past_caches);
    }
}

static void readv_halves(int self, const struct line *mine, const struct line *peer)
{
    size_t half = COUNT / 2;
    size_t own = self * half;
    size_t other = half - own;
    reduce_read(mine, peer, own, half, false);
    (void)meet(self);
    read_peer(peer->pid, mine->out + other, peer->out + other, half);
}

static void readv_twice(int self, const struct line *mine, const struct line *peer)
{
    (void)self;
    reduce_read(mine, peer, 0, COUNT, true);
}

static void mapped(int self, const struct line *mine, const struct line *peer)
{
    (void)self;
    add(mine->out, mine->in, peer->in, COUNT, true);
}

static void measure(int self, const char *name, const struct line *mine, const struct line *peer,
                    void (*call)(int self, const struct line *mine, const struct line *peer))
{
    double us[CALLS];
    for (int i = 0; i < CALLS; i++) {
        (void)meet(self);
        double start = peer_now_us();
        call(self, mine, peer);
        (void)meet(self);
        us[i] = peer_now_us() - start;
    }
    if (self == 0) {
        printf("%-14s %10.1f\n", name, peer_median(us, CALLS));
    }
}

static float *buffer(bool shared)
{
    size_t size = COUNT * sizeof(float);
    float *data = shared
                      ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                      : aligned_alloc(64, size);
    memset(data, 0, shared ? 0 : size);
    return data;
}

int main(void)
{
    lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    float *maps[4];
    for (int i = 0; i < 4; i++) {
        maps[i] = buffer(true);
    }
    pid_t parent = getpid();
    pid_t child = fork();
    int self = child == 0;
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    exchange(self);
    struct line mine = {.pid = getpid(), .in = buffer(false), .out = buffer(false)};
    struct line *told = &lines[(turn + 1) % 2][self];
    told->in = mine.in;
    told->out = mine.out;
    const struct line *peer = meet(self);
    struct line theirs = {.pid = self == 0 ? child : parent, .in = peer->in, .out = peer->out};
    measure(self, "readv halves", &mine, &theirs, readv_halves);
    measure(self, "readv twice", &mine, &theirs, readv_twice);
    mine = (struct line){.in = maps[self], .out = maps[2 + self]};
    theirs = (struct line){.in = maps[1 - self], .out = maps[3 - self]};
    memset(mine.in, 0, COUNT * sizeof(float));
    measure(self, "mapped", &mine, &theirs, mapped);
    if (self == 0) {
        (void)waitpid(child, NULL, 0);
    }
    return 0;
}
