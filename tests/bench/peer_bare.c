/*
 * What two processes of one host need at least for a small allreduce of float32, without any
 * library: the loop, the timing and the output of peer_mpi. Built and run by tests/bench/peers.
 *
 *     cc -O2 -I . -o peer_bare tests/bench/peer_bare.c
 *     peer_bare tcp|shm BYTES ITERATIONS LIMIT_S     prints one line of JSON
 *
 * tcp: each sends its numbers over one connection, polls it with recv(), and adds. shm: each copies
 * its numbers and a turn into memory that both have mapped, polls the turn of the other, and adds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/peer.h"

enum { LINE_BYTES = 128, POLLS = 1000 /* between two yields: the peer may have no core */ };

/* What a rank writes and the other one reads; two of each rank are used in turn. */
struct slot {
    _Alignas(LINE_BYTES) _Atomic uint64_t turn;
    float numbers[];
};

struct run {
    void (*call)(struct run *run);
    int rank;
    size_t count; /* elements */
    float *in, *out, *theirs;
    int fd;
    unsigned char *slots; /* [turn % 2][rank] */
    size_t slot_bytes;
    uint64_t turn;
};

/* What the ranks tell each other besides. */
struct shared {
    double memory_bytes[2];
    int iterations;
    double times_us[]; /* [rank][iterations] */
};

static void check(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    return memory;
}

static void add(const struct run *run, const float *theirs)
{
    for (size_t i = 0; i < run->count; i++) {
        run->out[i] = run->in[i] + theirs[i];
    }
}

/* Both directions at once: large messages of both ranks do not fit into the socket. */
static void call_tcp(struct run *run)
{
    size_t bytes = run->count * sizeof(float);
    size_t sent = 0;
    size_t got = 0;
    for (unsigned polls = 1; sent < bytes || got < bytes; polls++) {
        ssize_t moved = 0;
        if (sent < bytes) {
            moved = send(run->fd, (char *)run->in + sent, bytes - sent, MSG_DONTWAIT);
            check(moved > 0 || errno == EAGAIN, "send");
            sent += moved > 0 ? (size_t)moved : 0;
        }
        if (got < bytes) {
            moved = recv(run->fd, (char *)run->theirs + got, bytes - got, MSG_DONTWAIT);
            check(moved > 0 || (moved < 0 && errno == EAGAIN), "recv");
            got += moved > 0 ? (size_t)moved : 0;
        }
        if (polls % POLLS == 0) {
            sched_yield();
        }
    }
    add(run, run->theirs);
}

static struct slot *slot_of(const struct run *run, int rank)
{
    return (struct slot *)(run->slots + (run->turn % 2 * 2 + (unsigned)rank) * run->slot_bytes);
}

static void call_shm(struct run *run)
{
    run->turn++;
    struct slot *mine = slot_of(run, run->rank);
    struct slot *theirs = slot_of(run, 1 - run->rank);
    memcpy(mine->numbers, run->in, run->count * sizeof(float));
    atomic_store_explicit(&mine->turn, run->turn, memory_order_release);
    for (unsigned polls = 1; atomic_load_explicit(&theirs->turn, memory_order_acquire) < run->turn;
         polls++) {
        if (polls % POLLS == 0) {
            sched_yield();
        }
    }
    add(run, theirs->numbers);
}

static void connect_two(int ret_fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ret_fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
              connect(ret_fds[0], (struct sockaddr *)&address, size) == 0,
          "loopback");
    ret_fds[1] = accept(listener, NULL, NULL);
    check(ret_fds[1] >= 0, "accept");
    for (int i = 0; i < 2; i++) {
        check(setsockopt(ret_fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "nodelay");
    }
    close(listener);
}

/* Each rank on a core of its own, as Open MPI binds two. */
static void bind_to_core(int rank)
{
    cpu_set_t allowed;
    cpu_set_t one;
    check(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "affinity");
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && rank-- == 0) {
            CPU_SET(core, &one);
            check(sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
        }
    }
}

static float *fill(size_t count)
{
    float *memory = malloc(count * sizeof *memory);
    check(memory != NULL, "memory");
    for (size_t i = 0; i < count; i++) {
        memory[i] = (float)(i % 2);
    }
    return memory;
}

/* Rank 0 says how many calls follow, and the calls of the exchange carry the number. */
static int warm_up(struct run *run, struct shared *shared, int wanted, double limit_s)
{
    double start_us = 0;
    for (int i = 0; i < PEER_WARM_UP; i++) {
        start_us = i == 1 ? peer_now_us() : start_us;
        run->call(run);
    }
    double warm_us = (peer_now_us() - start_us) / (PEER_WARM_UP - 1);
    if (run->rank == 0) {
        shared->iterations = peer_iterations(wanted, warm_us, limit_s);
    }
    run->call(run);
    return shared->iterations;
}

static void run_rank(struct run *run, struct shared *shared, int wanted, double limit_s)
{
    run->in = fill(run->count);
    run->out = fill(run->count);
    run->theirs = fill(run->count);
    int iterations = warm_up(run, shared, wanted, limit_s);
    double *times_us = shared->times_us + (size_t)run->rank * (size_t)wanted;
    for (int i = 0; i < iterations; i++) {
        double start_us = peer_now_us();
        run->call(run);
        times_us[i] = peer_now_us() - start_us;
    }
    double buffers_bytes = 2 * (double)(run->count * sizeof(float));
    shared->memory_bytes[run->rank] = peer_memory_bytes(buffers_bytes);
}

int main(int argc, char **argv)
{
    bool tcp = argc == 5 && strcmp(argv[1], "tcp") == 0;
    if (argc != 5 || (!tcp && strcmp(argv[1], "shm") != 0) || atof(argv[2]) < 0 ||
        atoi(argv[3]) < 1) {
        (void)fprintf(stderr, "usage: peer_bare tcp|shm BYTES ITERATIONS LIMIT_S\n");
        return 2;
    }
    int wanted = atoi(argv[3]);
    struct run run = {.call = tcp ? call_tcp : call_shm, .count = (size_t)(atof(argv[2]) + 3) / 4};
    struct shared *shared = map(sizeof *shared + 2 * (size_t)wanted * sizeof(double));
    run.slot_bytes = (sizeof(struct slot) + run.count * sizeof(float) + LINE_BYTES - 1) /
                     LINE_BYTES * LINE_BYTES;
    run.slots = map(4 * run.slot_bytes);
    int fds[2];
    connect_two(fds);
    pid_t child = fork();
    check(child >= 0, "fork");
    run.rank = child == 0;
    run.fd = fds[run.rank];
    close(fds[1 - run.rank]);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    bind_to_core(run.rank);
    run_rank(&run, shared, wanted, atof(argv[4]));
    if (child == 0) {
        return 0;
    }
    int status = 0;
    check(waitpid(child, &status, 0) == child && status == 0, "the other process");
    double *slowest_us = shared->times_us;
    for (int i = 0; i < shared->iterations; i++) {
        double other_us = shared->times_us[wanted + i];
        slowest_us[i] = slowest_us[i] > other_us ? slowest_us[i] : other_us;
    }
    double *memory = shared->memory_bytes;
    peer_print(slowest_us, shared->iterations, memory[0] > memory[1] ? memory[0] : memory[1]);
    return 0;
}
