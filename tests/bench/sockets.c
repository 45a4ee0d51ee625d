/*
 * The cost of the kernel's two ways of moving bytes, without Muster: epoll with send() and recv(),
 * and io_uring. Two processes with one TCP connection over loopback, whose send buffer has the size
 * that Muster sets.
 *
 *     cc -O2 -o /tmp/sockets tests/bench/sockets.c -luring && /tmp/sockets
 *
 * "exchange": both processes send 100 bytes (a frame with 4 bytes of data) and receive as many, as
 * two ranks do in a small allreduce. "stream": one sends 16 MiB, the other receives them in pieces
 * of 128 KiB and answers with a byte. The ways are measured in turns, and medians are printed.
 * "sleeps": blocks in the kernel until there is an event; "polls": polls, and yields in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALL_BYTES = 100,
    PIECE_BYTES = 128 * 1024,
    STREAM_BYTES = 16 * 1024 * 1024,
    SEND_BUFFER_BYTES = 192 * 1024,
    EXCHANGES = 5000,
    STREAMS = 20,
    ROUNDS = 3,
    SLOTS = 64,  /* buffers of a multishot recv */
    GROUP = 1,   /* their name in the kernel */
    RECEIVE = 1, /* user data of a recv's completions; that of a send is 0 */
};

struct end {
    int fd, epoll;
    uint32_t events; /* that epoll reports */
    bool polls;
    struct io_uring ring;
    struct io_uring_buf_ring *slots;
    unsigned char *slot_bytes;
    size_t arrived; /* bytes of the multishot recv that are not consumed yet */
    bool armed;
};

struct way {
    const char *name;
    bool polls, ring;
    void (*send)(struct end *end, const void *data, size_t size);
    void (*receive)(struct end *end, void *data, size_t size);
};

static void check(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}

/* epoll, send, recv ---------------------------------------------------------------------------- */

static void wait_for(struct end *end, uint32_t events)
{
    struct epoll_event event = {.events = events};
    if (events != end->events) {
        check(epoll_ctl(end->epoll, EPOLL_CTL_MOD, end->fd, &event) == 0, "epoll_ctl");
        end->events = events;
    }
    while (epoll_wait(end->epoll, &event, 1, end->polls ? 0 : -1) == 0) {
        sched_yield();
    }
}

static void plain_send(struct end *end, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(end->fd, (const char *)data + done, size - done, 0);
        if (sent < 0 && errno == EAGAIN) {
            wait_for(end, EPOLLOUT);
            continue;
        }
        check(sent > 0, "send");
        done += (size_t)sent;
    }
}

static void receive_pieces(struct end *end, void *data, size_t size, bool waits_first)
{
    for (size_t done = 0; done < size;) {
        if (waits_first) {
            wait_for(end, EPOLLIN);
        }
        size_t piece = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
        ssize_t got = recv(end->fd, (char *)data + done, piece, 0);
        if (got < 0 && errno == EAGAIN) {
            sched_yield();
            continue;
        }
        check(got > 0, "recv");
        done += (size_t)got;
    }
}

static void epoll_receive(struct end *end, void *data, size_t size)
{
    receive_pieces(end, data, size, true);
}

static void direct_receive(struct end *end, void *data, size_t size)
{
    receive_pieces(end, data, size, false);
}

/* io_uring ------------------------------------------------------------------------------------- */

/* Waits for a completion. The same system call submits requests. */
static struct io_uring_cqe *next_completion(struct end *end)
{
    struct io_uring_cqe *cqe = NULL;
    if (!end->polls) {
        check(io_uring_submit_and_wait(&end->ring, 1) >= 0, "io_uring_enter");
    } else {
        (void)io_uring_submit_and_get_events(&end->ring);
    }
    while (io_uring_peek_cqe(&end->ring, &cqe) != 0) {
        if (!end->polls) {
            check(io_uring_submit_and_wait(&end->ring, 1) >= 0, "io_uring_enter");
            continue;
        }
        sched_yield();
        check(io_uring_submit_and_get_events(&end->ring) >= 0, "io_uring_enter");
    }
    check(cqe->res >= 0 || cqe->res == -ENOBUFS, "a completion");
    return cqe;
}

static void ring_send(struct end *end, const void *data, size_t size)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&end->ring);
    io_uring_prep_send(sqe, end->fd, data, size, MSG_WAITALL);
    sqe->user_data = 0;
    if (size <= SMALL_BYTES) { /* is sent with the next wait, in the same system call */
        sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
        return;
    }
    for (bool sent = false; !sent;) {
        struct io_uring_cqe *cqe = next_completion(end);
        sent = cqe->user_data == 0;
        io_uring_cqe_seen(&end->ring, cqe);
    }
}

static void ring_receive(struct end *end, void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t piece = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
        struct io_uring_sqe *sqe = io_uring_get_sqe(&end->ring);
        io_uring_prep_recv(sqe, end->fd, (char *)data + done, piece, MSG_WAITALL);
        sqe->user_data = RECEIVE;
        for (bool here = false; !here;) {
            struct io_uring_cqe *cqe = next_completion(end);
            here = cqe->user_data == RECEIVE;
            done += here ? (size_t)cqe->res : 0;
            io_uring_cqe_seen(&end->ring, cqe);
        }
    }
}

static void release_slot(struct end *end, unsigned short slot)
{
    io_uring_buf_ring_add(end->slots, end->slot_bytes + (size_t)slot * PIECE_BYTES, PIECE_BYTES,
                          slot, io_uring_buf_ring_mask(SLOTS), 0);
    io_uring_buf_ring_advance(end->slots, 1);
}

/* One request receives everything that arrives, into buffers that the kernel chooses. Muster would
 * have to copy out of them what it does not reduce. */
static void multishot_receive(struct end *end, void *data, size_t size)
{
    (void)data;
    while (end->arrived < size) {
        if (!end->armed) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&end->ring);
            io_uring_prep_recv_multishot(sqe, end->fd, NULL, 0, 0);
            sqe->flags |= IOSQE_BUFFER_SELECT;
            sqe->buf_group = GROUP;
            sqe->user_data = RECEIVE;
            end->armed = true;
        }
        struct io_uring_cqe *cqe = next_completion(end);
        if (cqe->user_data == RECEIVE) {
            end->arrived +=
                cqe->res > 0 ? (size_t)cqe->res : 0; /* an error if all slots were full */
            end->armed = (cqe->flags & IORING_CQE_F_MORE) != 0;
            if ((cqe->flags & IORING_CQE_F_BUFFER) != 0) {
                release_slot(end, (unsigned short)(cqe->flags >> IORING_CQE_BUFFER_SHIFT));
            }
        }
        io_uring_cqe_seen(&end->ring, cqe);
    }
    end->arrived -= size;
}

static const struct way ways[] = {
    {"epoll, sleeps", false, false, plain_send, epoll_receive},
    {"epoll, polls", true, false, plain_send, epoll_receive},
    {"recv alone, polls", true, false, plain_send, direct_receive},
    {"io_uring, sleeps", false, true, ring_send, ring_receive},
    {"io_uring, polls", true, true, ring_send, ring_receive},
    {"io_uring multishot, sleeps", false, true, ring_send, multishot_receive},
    {"io_uring multishot, polls", true, true, ring_send, multishot_receive},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* Measuring ------------------------------------------------------------------------------------ */

static void make_ring(struct end *end)
{
    int failed = io_uring_queue_init(SLOTS, &end->ring,
                                     IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                         IORING_SETUP_COOP_TASKRUN);
    if (failed != 0) {
        printf("io_uring cannot be used here: %s\n", strerror(-failed));
        exit(EXIT_FAILURE);
    }
    end->slot_bytes = malloc((size_t)SLOTS * PIECE_BYTES);
    check(end->slot_bytes != NULL &&
              posix_memalign((void **)&end->slots, 4096, SLOTS * sizeof(struct io_uring_buf)) == 0,
          "memory");
    io_uring_buf_ring_init(end->slots);
    struct io_uring_buf_reg about = {
        .ring_addr = (uintptr_t)end->slots, .ring_entries = SLOTS, .bgid = GROUP};
    check(io_uring_register_buf_ring(&end->ring, &about, 0) == 0, "io_uring_register");
    for (unsigned short slot = 0; slot < SLOTS; slot++) {
        release_slot(end, slot);
    }
}

static void prepare(struct end *end, const struct way *way)
{
    const int one = 1;
    const int size = SEND_BUFFER_BYTES;
    (void)setsockopt(end->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(end->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    end->polls = way->polls;
    if (way->ring) {
        make_ring(end);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN};
    end->events = EPOLLIN;
    end->epoll = epoll_create1(0);
    check(fcntl(end->fd, F_SETFL, O_NONBLOCK) == 0 && end->epoll >= 0 &&
              epoll_ctl(end->epoll, EPOLL_CTL_ADD, end->fd, &event) == 0,
          "epoll");
}

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one;
    double b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* Runs one end of the connection. Returns the medians of an exchange and of a stream. */
static void run(int fd, const struct way *way, bool sends, double *ret_us)
{
    static double times[EXCHANGES];
    struct end end = {.fd = fd};
    unsigned char *data = malloc(STREAM_BYTES);
    check(data != NULL, "memory");
    memset(data, 1, STREAM_BYTES);
    prepare(&end, way);
    for (int i = 0; i < EXCHANGES; i++) {
        double before_us = now_us();
        way->send(&end, data, SMALL_BYTES);
        way->receive(&end, data + SMALL_BYTES, SMALL_BYTES);
        times[i] = now_us() - before_us;
    }
    ret_us[0] = median(times, EXCHANGES);
    for (int i = 0; i < STREAMS; i++) {
        double before_us = now_us();
        if (sends) {
            way->send(&end, data, STREAM_BYTES);
            way->receive(&end, data, 1);
        } else {
            way->receive(&end, data, STREAM_BYTES);
            way->send(&end, data, 1);
            if (way->ring) {
                check(io_uring_submit(&end.ring) >= 0, "io_uring_enter");
            }
        }
        times[i] = now_us() - before_us;
    }
    ret_us[1] = median(times, STREAMS);
    close(fd);
}

static void connect_two(int ret_fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ret_fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
              connect(ret_fds[0], (struct sockaddr *)&address, size) == 0,
          "loopback");
    ret_fds[1] = accept(listener, NULL, NULL);
    check(ret_fds[1] >= 0, "accept");
    close(listener);
}

static void measure(const struct way *way, double *ret_us)
{
    int fds[2];
    connect_two(fds);
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        double ignored[2];
        close(fds[0]);
        run(fds[1], way, false, ignored);
        _exit(EXIT_SUCCESS);
    }
    close(fds[1]);
    run(fds[0], way, true, ret_us);
    int status = 0;
    check(waitpid(child, &status, 0) == child && status == 0, "the other process");
}

int main(void)
{
    static double exchange[WAYS][ROUNDS];
    static double stream[WAYS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WAYS; i++) {
            double us[2];
            measure(&ways[i], us);
            exchange[i][round] = us[0];
            stream[i][round] = us[1];
        }
    }
    printf("%-28s %12s %12s\n", "", "exchange us", "stream us");
    for (int i = 0; i < WAYS; i++) {
        printf("%-28s %12.1f %12.0f\n", ways[i].name, median(exchange[i], ROUNDS),
               median(stream[i], ROUNDS));
    }
    return EXIT_SUCCESS;
}
