/* The time from kill -9 of one member to the error of the last survivor, in milliseconds.
 *
 *     build/release/tests/death 8                                           without a service
 *     MUSTER_RENDEZVOUS=http://127.0.0.1:7070 build/release/tests/death 8   by musterd
 *
 * The members are processes that call small ring allreduces in a row; each has links to two
 * neighbours then. Prints the median, least and most of the rounds. The arguments: how many
 * members, how many rounds, how long each computes between two calls (ms), and how many named
 * tensors it submits instead of a call: then the time is that to the end of the last handle. */
#include "tests/bench/peer.h"
#include "worker/muster.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS_MAX = 1024, MEMBERS_MAX = 64, ROUNDS_MAX = 1001, BLOB_MAX = 4096, RUN_MS = 150 };

/* In memory that all processes share. */
struct round {
    pthread_barrier_t barrier;
    unsigned char blobs[MEMBERS_MAX][BLOB_MAX];
    double failed_ms[MEMBERS_MAX];
    volatile int opened[MEMBERS_MAX];
};

struct member {
    struct round *round;
    unsigned rank, size, compute_ms, tensors;
    char job[64];
};

static double now_ms(void)
{
    return peer_now_us() / 1e3;
}

static void pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    const struct member *member = user_data;
    if (size_bytes > BLOB_MAX) {
        return 1;
    }
    memcpy(member->round->blobs[member->rank], mine, size_bytes);
    (void)pthread_barrier_wait(&member->round->barrier);
    for (unsigned i = 0; i < member->size; i++) {
        memcpy((char *)all + i * size_bytes, member->round->blobs[i], size_bytes);
    }
    return 0;
}

static muster_status open_session(struct member *member, muster_session **ret_session)
{
    muster_options options;
    muster_options_init(&options);
    options.algorithm = "ring";
    options.shared_memory = 0;
    options.measure = 0;
    if (options.rendezvous == NULL) {
        return muster_open_with(&options, member->rank, member->size, exchange, member,
                                ret_session);
    }
    options.job = member->job;
    options.min_size = member->size;
    options.target_size = member->size;
    return muster_open(&options, ret_session);
}

static float data[64];

static muster_status call(muster_session *session)
{
    return muster_allreduce(session, MUSTER_GLOBAL, data, data, 64, MUSTER_FLOAT32, MUSTER_MAX,
                            NULL);
}

/* Every handle is waited for, also after an error. */
static muster_status submit(muster_session *session, unsigned count)
{
    static float tensors[TENSORS_MAX][64];
    static muster_operation operations[TENSORS_MAX];
    muster_status status = MUSTER_OK;
    unsigned submitted = 0;
    while (status == MUSTER_OK && submitted < count) {
        char name[32];
        (void)snprintf(name, sizeof name, "tensor %u", submitted);
        status = muster_submit_allreduce(session, MUSTER_GLOBAL, name, tensors[submitted],
                                         tensors[submitted], 64, MUSTER_FLOAT32, MUSTER_MAX,
                                         &operations[submitted]);
        submitted += status == MUSTER_OK;
    }
    for (unsigned i = 0; i < submitted; i++) {
        muster_status one = muster_wait(operations[i]);
        status = status == MUSTER_OK ? one : status;
    }
    return status;
}

static void be_member(struct member *member)
{
    muster_session *session = NULL;
    muster_status status = open_session(member, &session);
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "death: %s\n", muster_last_error());
        _exit(1);
    }
    member->round->opened[member->rank] = 1;
    while (status == MUSTER_OK) {
        status = member->tensors > 0 ? submit(session, member->tensors) : call(session);
        if (status == MUSTER_OK && member->compute_ms > 0) {
            pause_ms(member->compute_ms);
        }
    }
    member->round->failed_ms[member->rank] = now_ms();
    _exit(0);
}

/* Returns how long the last survivor took. */
static double run_round(const struct member *like, unsigned number)
{
    unsigned size = like->size;
    struct round *round =
        mmap(NULL, sizeof *round, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (round == MAP_FAILED) {
        perror("death");
        exit(EXIT_FAILURE);
    }
    pid_t pids[MEMBERS_MAX] = {0};
    pthread_barrierattr_t shared;
    (void)pthread_barrierattr_init(&shared);
    (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&round->barrier, &shared, size);
    for (unsigned rank = 0; rank < size; rank++) {
        struct member member = *like;
        member.round = round;
        member.rank = rank;
        (void)snprintf(member.job, sizeof member.job, "death-%d-%u", (int)getpid(), number);
        pids[rank] = fork();
        if (pids[rank] == 0) {
            be_member(&member);
        }
    }
    for (unsigned rank = 0; rank < size; rank++) {
        while (!round->opened[rank]) {
            pause_ms(1);
        }
    }
    pause_ms(RUN_MS + number % 7);
    double killed_ms = now_ms();
    (void)kill(pids[size / 2], SIGKILL);
    double last_ms = 0;
    for (unsigned rank = 0; rank < size; rank++) {
        (void)waitpid(pids[rank], NULL, 0);
        double took_ms = round->failed_ms[rank] - killed_ms;
        last_ms = rank != size / 2 && took_ms > last_ms ? took_ms : last_ms;
    }
    (void)munmap(round, sizeof *round);
    return last_ms;
}

static unsigned argument(int argc, char **argv, int index, unsigned otherwise, unsigned most)
{
    unsigned long value = index < argc ? strtoul(argv[index], NULL, 10) : otherwise;
    return value <= most ? (unsigned)value : most;
}

int main(int argc, char **argv)
{
    static double took_ms[ROUNDS_MAX];
    unsigned size = argument(argc, argv, 1, 4, MEMBERS_MAX);
    unsigned rounds = argument(argc, argv, 2, 11, ROUNDS_MAX);
    unsigned compute_ms = argument(argc, argv, 3, 0, 1000);
    const struct member like = {
        .size = size, .compute_ms = compute_ms, .tensors = argument(argc, argv, 4, 0, TENSORS_MAX)};
    if (size < 3 || rounds == 0) {
        (void)fprintf(
            stderr, "usage: death [MEMBERS [ROUNDS [COMPUTE_MS [TENSORS]]]], 3 members or more\n");
        return 2;
    }
    for (unsigned i = 0; i < rounds; i++) {
        took_ms[i] = run_round(&like, i);
    }
    double median_ms = peer_median(took_ms, rounds);
    printf(
        "%u members, %u rounds, computing %u ms, %u tensors: last error %.2f ms after the kill "
        "(%.2f to %.2f)\n",
        size, rounds, compute_ms, like.tensors, median_ms, took_ms[0], took_ms[rounds - 1]);
    return 0;
}
