/* Links of several connections under traffic, some of which are cut. */
#include "tests/conformance/fault_injector.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

enum {
    NUMBERS = 1 << 18, /* in a large message */
    SMALL = 64,        /* small messages beside it */
    MESSAGES = 2 * SMALL + 4,
    ENDS_MAX = 64,
};

/* The process's own connections -------------------------------------------------------------- */

/* One end of an established connection. Both ends are this process's. */
struct end {
    int fd;
    in_port_t low, high; /* the connection's ports */
};

static bool read_end(int fd, struct end *ret_end)
{
    struct sockaddr_in here;
    struct sockaddr_in there;
    struct tcp_info info;
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    socklen_t info_size = sizeof info;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    if (getsockname(fd, (struct sockaddr *)&here, &here_size) != 0 || here.sin_family != AF_INET ||
        getpeername(fd, (struct sockaddr *)&there, &there_size) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size) != 0 ||
        info.tcpi_state != TCP_ESTABLISHED) {
        return false;
    }
    bool ordered = here.sin_port < there.sin_port;
    *ret_end = (struct end){.fd = fd,
                            .low = ordered ? here.sin_port : there.sin_port,
                            .high = ordered ? there.sin_port : here.sin_port};
    return true;
}

/* One end of each connection. */
static uint32_t list_connections(struct end *ends)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry = NULL;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct end end;
        bool known = entry->d_name[0] == '.' || count == ENDS_MAX ||
                     !read_end((int)strtol(entry->d_name, NULL, 10), &end);
        for (uint32_t i = 0; !known && i < count; i++) {
            known = ends[i].low == end.low && ends[i].high == end.high;
        }
        if (!known) {
            ends[count++] = end;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

/* Rounds ------------------------------------------------------------------------------------- */

struct game {
    atomic_bool over;   /* rank 0 ends the game after this round */
    atomic_uint rounds; /* that rank 0 has finished */
};

/* The thread that cuts connections meanwhile. */
struct fault_injector {
    const struct fault_injection *injection;
    struct rig *rig;
    struct game game;
    unsigned seed;
    uint32_t times;  /* faults so far */
    uint32_t cut;    /* connections, in all */
    unsigned rounds; /* that have to pass before the next fault */
};

static void add_up(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                   size_t size_bytes)
{
    uint32_t *sum = (uint32_t *)transfer->data + offset_bytes / sizeof *sum;
    const uint32_t *numbers = data;
    for (size_t i = 0; i < size_bytes / sizeof *sum; i++) {
        sum[i] += numbers[i];
    }
}

/* A round of one rank, each way: two large messages, one of which is added up, and many small ones.
 */
struct round {
    uint32_t *out, *in, *sum;
    uint32_t small_out[SMALL], small_in[SMALL];
    struct muster_transfer transfers[MESSAGES];
    struct rig_counter counter;
};

static void prepare(struct rig *rig, uint32_t rank, struct round *round, uint64_t sequence)
{
    const uint64_t bytes = NUMBERS * sizeof(uint32_t);
    struct muster_transfer *next = round->transfers;
    uint32_t peer = 1 - rank;
    *next++ = rig_send(rig, peer, sequence, round->out, bytes);
    *next = rig_receive(rig, peer, sequence, round->sum, bytes);
    next->consume = add_up;
    next++->element_size_bytes = sizeof(uint32_t);
    *next = rig_send(rig, peer, sequence, round->out, bytes);
    next++->key.ordinal = 1;
    *next = rig_receive(rig, peer, sequence, round->in, bytes);
    next++->key.ordinal = 1;
    for (uint32_t i = 0; i < SMALL; i++) {
        *next = rig_send(rig, peer, sequence, &round->small_out[i], sizeof(uint32_t));
        next++->key.ordinal = 2 + i;
        *next = rig_receive(rig, peer, sequence, &round->small_in[i], sizeof(uint32_t));
        next++->key.ordinal = 2 + i;
    }
}

static uint32_t number(uint64_t sequence, uint32_t rank, uint32_t index)
{
    return (uint32_t)sequence * 7919 + index * (rank + 1);
}

static char *exchange(struct rig *rig, uint32_t rank, struct round *round, uint64_t sequence)
{
    for (uint32_t i = 0; i < NUMBERS; i++) {
        round->out[i] = number(sequence, rank, i);
        round->sum[i] = 1;
        round->in[i] = 0;
    }
    for (uint32_t i = 0; i < SMALL; i++) {
        round->small_out[i] = number(sequence, rank, i);
    }
    round->counter = (struct rig_counter){.left = MESSAGES};
    prepare(rig, rank, round, sequence);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        rig_post(rig, rank, &round->counter, &round->transfers[i]);
    }
    RIG_EXPECT(rig_wait(rig, rank, &round->counter) == MUSTER_OK);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        RIG_EXPECT(round->in[i] == number(sequence, 1 - rank, i));
        RIG_EXPECT(round->sum[i] == number(sequence, 1 - rank, i) + 1);
    }
    for (uint32_t i = 0; i < SMALL; i++) {
        RIG_EXPECT(round->small_in[i] == number(sequence, 1 - rank, i));
    }
    return NULL;
}

/* After each round rank 0 tells rank 1 whether there is another one. */
static char *agree_on_more(struct rig *rig, uint32_t rank, uint64_t sequence, bool *more)
{
    unsigned char word = *more;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer =
        rank == 0 ? rig_send(rig, 1, sequence, &word, 1) : rig_receive(rig, 0, sequence, &word, 1);
    rig_post(rig, rank, &counter, &transfer);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    *more = word != 0;
    return NULL;
}

static char *run_rounds(struct rig *rig, uint32_t rank, void *user)
{
    struct game *game = user;
    struct round *round = calloc(1, sizeof *round);
    uint32_t *numbers = calloc(3 * (size_t)NUMBERS, sizeof *numbers);
    RIG_EXPECT(round != NULL && numbers != NULL);
    round->out = numbers;
    round->in = numbers + NUMBERS;
    round->sum = numbers + 2 * (size_t)NUMBERS;
    char *error = NULL;
    bool more = true;
    for (uint64_t sequence = 1; more && error == NULL; sequence += 2) {
        error = exchange(rig, rank, round, sequence);
        more = !atomic_load(&game->over);
        if (error == NULL) {
            error = agree_on_more(rig, rank, sequence + 1, &more);
        }
        atomic_fetch_add(&game->rounds, rank == 0);
    }
    atomic_store(&game->over, true);
    free(numbers);
    free(round);
    return error;
}

/* Cutting ------------------------------------------------------------------------------------ */

/* Waits until the condition is true. False: the test is over, or it takes too long. */
static bool wait_until(struct fault_injector *injector, const char *what,
                       bool (*condition)(struct fault_injector *injector))
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (!condition(injector)) {
        if (atomic_load(&injector->game.over) || muster_clock_ns() > deadline_ns) {
            print_error("%u connections are cut; timed out waiting: %s\n", injector->cut, what);
            return false;
        }
        (void)sched_yield();
    }
    return true;
}

/* Both ends have opened `count` connections in all. */
static bool have_both_opened(const struct rig *rig, uint64_t count)
{
    return muster_fabric_figures(rig->fabrics[0]).connections_opened == count &&
           muster_fabric_figures(rig->fabrics[1]).connections_opened == count;
}

/* All connections are open again, and those that crossed are closed, which their ends see a little
 * later. */
static bool are_all_open(struct fault_injector *injector)
{
    struct end ends[ENDS_MAX];
    uint32_t connections = injector->injection->connections;
    return list_connections(ends) == connections &&
           have_both_opened(injector->rig, connections - 1 + injector->cut);
}

static bool have_both_lost_connections(struct fault_injector *injector)
{
    struct rig *rig = injector->rig;
    return muster_fabric_figures(rig->fabrics[0]).connections_lost == injector->cut &&
           muster_fabric_figures(rig->fabrics[1]).connections_lost == injector->cut;
}

static bool has_round_passed(struct fault_injector *injector)
{
    return atomic_load(&injector->game.rounds) > injector->rounds;
}

uint32_t fault_injector_shut_down(uint32_t count, unsigned *seed)
{
    struct end ends[ENDS_MAX];
    uint32_t left = list_connections(ends);
    uint32_t cut = 0;
    for (; cut < count && left > 0; cut++) {
        uint32_t chosen = (uint32_t)rand_r(seed) % left;
        (void)shutdown(ends[chosen].fd, SHUT_RDWR);
        ends[chosen] = ends[--left];
    }
    return cut;
}

/* Cuts at least one connection, and not all. */
static void cut_some(struct fault_injector *injector)
{
    uint32_t some = 1 + (uint32_t)rand_r(&injector->seed) % (injector->injection->connections - 1);
    injector->cut += injector->injection->cut(some, &injector->seed);
    injector->rounds = atomic_load(&injector->game.rounds) + 1;
}

static void *inject_faults(void *argument)
{
    struct fault_injector *injector = argument;
    while (wait_until(injector, "all are open", are_all_open) &&
           injector->times < injector->injection->times) {
        cut_some(injector);
        if (!wait_until(injector, "both have noticed", have_both_lost_connections) ||
            !wait_until(injector, "a round has passed", has_round_passed)) {
            break;
        }
        if (injector->injection->repair != NULL) {
            injector->injection->repair();
        }
        injector->times++;
    }
    atomic_store(&injector->game.over, true);
    return NULL;
}

void fault_injector_run(const struct fault_injection *injection)
{
    struct rig rig;
    struct fault_injector injector = {
        .injection = injection, .rig = &rig, .seed = (unsigned)muster_clock_ns()};
    print_message("seed %u\n", injector.seed);
    pthread_t thread;
    rig_init(&rig, injection->transport, 2);
    assert_int_equal(pthread_create(&thread, NULL, inject_faults, &injector), 0);
    rig_run(&rig, run_rounds, &injector.game);
    (void)pthread_join(thread, NULL);
    assert_int_equal(injector.times, injection->times);
    assert_true(have_both_opened(&rig, injection->connections - 1 + injector.cut));
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
    rig_finish(&rig);
}
