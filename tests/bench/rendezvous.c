/*
 * Load for musterd: simulated workers over loopback (plain HTTP/1.1, a keepalive connection each,
 * one thread with epoll). They join, watch, lose one of them, and join again; a second job beside
 * them measures what they do to others. Prints a table; --json one object.
 *
 *   build/release/tests/rendezvous build/release/bin/musterd 1000 [--per-host N] [--store PLACE]
 *       [--watch-s N] [--neighbours] [--cpu N] [--json] [-- MUSTERD_OPTION ...]
 *
 * musterd runs on the cores of --cpu (default: core 0, which is one core), the load on the others.
 */
#include "tests/bench/load_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum {
    WORKERS_MAX = 16384,
    PROBE_EVERY_MS = 2, /* between two requests of the job beside */
    HEAD_BYTES = 2048,  /* of a response: so much is kept, the rest counted */
    EVENTS = 512,
    PHASE_MS = 120000, /* no phase takes longer, or the program ends with an error */
    SAMPLES_MAX = 1 << 20,
};

enum asked { NOTHING, JOIN, WATCH, REPORT };

struct bench_worker {
    int fd;
    uint32_t index, rank;
    enum asked asked;
    bool formed, revoked, lost, refused;
    uint64_t generation;
    double sent_ms, done_ms;
    char out[1024];
    size_t out_size, out_sent;
    char head[HEAD_BYTES + 1];
    size_t head_size;
    size_t body_at;   /* 0: the head of the response is not complete */
    size_t body_size; /* its Content-Length */
    size_t received;  /* bytes of this response */
};

static struct {
    const char *musterd, *store, *cpus;
    uint32_t count, per_host, watch_s;
    bool neighbours, json;
    char **options;
} arguments = {.store = "memory", .cpus = "0", .per_host = 8, .watch_s = 5};

static struct bench_worker *workers; /* [count + PROBES] */
static int epoll_fd;
static struct sockaddr_in server;
static double started_ms;
static double probe_samples[SAMPLES_MAX];
static atomic_bool finished;
static size_t probe_count; /* both under the lock */
static pthread_mutex_t probe_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t bytes_received, answers_refused, connections_closed;
static char refusal_text[256];

static double now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Requests and responses -------------------------------------------------------------------------
 */

static void dial(struct bench_worker *worker)
{
    const int on = 1;
    worker->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (worker->fd < 0 || (connect(worker->fd, (struct sockaddr *)&server, sizeof server) != 0 &&
                           errno != EINPROGRESS)) {
        load_fail(strerror(errno));
    }
    (void)setsockopt(worker->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = worker};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, worker->fd, &event) != 0) {
        load_fail(strerror(errno));
    }
}

static void flush_out(struct bench_worker *worker)
{
    while (worker->out_sent < worker->out_size) {
        ssize_t sent = send(worker->fd, worker->out + worker->out_sent,
                            worker->out_size - worker->out_sent, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* EPOLLOUT comes, or EPOLLIN with the end of the connection */
        }
        worker->out_sent += (size_t)sent;
    }
}

static void ask(struct bench_worker *worker, enum asked what, const char *method, const char *body)
{
    int size = snprintf(worker->out, sizeof worker->out,
                        "POST /muster.v1.Rendezvous/%s HTTP/1.1\r\nHost: bench\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        method, strlen(body), body);
    worker->out_size = (size_t)size;
    worker->out_sent = 0;
    worker->asked = what;
    worker->head_size = worker->body_at = worker->body_size = worker->received = 0;
    worker->sent_ms = now_ms();
    flush_out(worker);
}

#define MEMBER "00000000-0000-4000-8000-0000%08x"

static void ask_join(struct bench_worker *worker)
{
    char body[600];
    (void)snprintf(body, sizeof body,
                   "{\"job\":\"bench\",\"member\":\"" MEMBER
                   "\",\"host\":\"host-%05u\","
                   "\"addresses\":[\"tcp://10.%u.%u.%u:%u\"],\"generation\":\"%llu\",\"pid\":%u,"
                   "\"minSize\":%u,\"maxSize\":%u,\"targetSize\":%u%s}",
                   worker->index, worker->index / arguments.per_host, worker->index >> 16,
                   worker->index >> 8 & 255, worker->index & 255, 40000 + worker->index % 8,
                   (unsigned long long)worker->generation, 1000 + worker->index,
                   arguments.count > 1 ? arguments.count - 1 : 1, arguments.count, arguments.count,
                   arguments.neighbours ? ",\"neighbours\":true" : "");
    worker->formed = false;
    ask(worker, JOIN, "Join", body);
}

static void ask_watch(struct bench_worker *worker)
{
    char body[200];
    (void)snprintf(body, sizeof body,
                   "{\"job\":\"bench\",\"member\":\"" MEMBER "\",\"generation\":\"%llu\"}",
                   worker->index, (unsigned long long)worker->generation);
    ask(worker, WATCH, "Watch", body);
}

static void ask_report(struct bench_worker *worker, uint32_t suspect)
{
    char body[300];
    (void)snprintf(body, sizeof body,
                   "{\"job\":\"bench\",\"member\":\"" MEMBER
                   "\",\"generation\":\"%llu\","
                   "\"suspect\":%u,\"why\":\"reset\"}",
                   worker->index, (unsigned long long)worker->generation, suspect);
    ask(worker, REPORT, "Report", body);
}

static void refused(struct bench_worker *worker)
{
    worker->refused = true;
    worker->done_ms = now_ms();
    answers_refused++;
    (void)snprintf(refusal_text, sizeof refusal_text, "%.200s", worker->head + worker->body_at);
}

/* What a worker does with a complete response. */
static void answered(struct bench_worker *worker)
{
    const char *body = worker->head + worker->body_at;
    enum asked asked = worker->asked;
    worker->asked = NOTHING;
    bool ok = strncmp(worker->head, "HTTP/1.1 200", 12) == 0;
    if (!ok) {
        refused(worker);
    } else if (asked == JOIN && strncmp(body, "{\"formed\"", 9) == 0) {
        const char *generation = strstr(body, "\"generation\":\"");
        worker->generation = generation != NULL ? strtoull(generation + 14, NULL, 10) : 0;
        const char *rank = strstr(body, "\"rank\":");
        worker->rank = rank != NULL ? (uint32_t)strtoul(rank + 7, NULL, 10) : 0;
        worker->formed = true;
        worker->revoked = false;
        worker->done_ms = now_ms();
    } else if (asked == JOIN) {
        ask_join(worker);
    } else if (asked == WATCH && strstr(body, "\"revoked\":true") != NULL) {
        worker->revoked = true;
        worker->done_ms = now_ms();
    } else if (asked == WATCH) {
        ask_watch(worker);
    }
}

/* Keeps the first bytes of a response, and counts the rest. */
static void take_bytes(struct bench_worker *worker, const char *bytes, size_t size)
{
    size_t room = HEAD_BYTES - worker->head_size;
    size_t kept = size < room ? size : room;
    memcpy(worker->head + worker->head_size, bytes, kept);
    worker->head_size += kept;
    worker->head[worker->head_size] = '\0';
    worker->received += size;
    bytes_received += size;
    if (worker->body_at == 0) {
        const char *end = strstr(worker->head, "\r\n\r\n");
        const char *length = strcasestr(worker->head, "content-length:");
        if (end == NULL || length == NULL) {
            return;
        }
        worker->body_at = (size_t)(end + 4 - worker->head);
        worker->body_size = strtoull(length + 15, NULL, 10);
    }
    if (worker->received >= worker->body_at + worker->body_size) {
        answered(worker);
    }
}

static void read_in(struct bench_worker *worker)
{
    static char buffer[1 << 18];
    while (!worker->lost) {
        ssize_t size = recv(worker->fd, buffer, sizeof buffer, 0);
        if (size < 0 && errno == EAGAIN) {
            return;
        }
        if (size <= 0) {
            worker->lost = true;
            connections_closed++;
            return;
        }
        take_bytes(worker, buffer, (size_t)size);
    }
}

static void poll_once(int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll_fd, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct bench_worker *worker = events[i].data.ptr;
        if ((events[i].events & EPOLLOUT) != 0) {
            flush_out(worker);
        }
        if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
            read_in(worker);
        }
    }
}

/* Phases -----------------------------------------------------------------------------------------
 */

static bool is_formed(const struct bench_worker *worker)
{
    return worker->formed || worker->refused || worker->lost;
}

static bool is_revoked(const struct bench_worker *worker)
{
    return worker->revoked || worker->refused || worker->lost;
}

/* Says what the first worker waits for that keeps a phase from its end. */
__attribute__((noreturn)) static void fail_phase(uint32_t at)
{
    static const char *const asked[] = {"nothing", "Join", "Watch", "Report"};
    char text[400];
    const struct bench_worker *worker = &workers[at < arguments.count ? at : 0];
    (void)snprintf(
        text, sizeof text,
        "a phase takes longer than two minutes: worker %u waits for the answer to %s for "
        "%.0f ms; %zu of %zu bytes are sent, %zu received; %llu answers were refused %s",
        worker->index, asked[worker->asked], now_ms() - worker->sent_ms, worker->out_sent,
        worker->out_size, worker->received, (unsigned long long)answers_refused, refusal_text);
    load_fail(text);
}

/* Polls until done() of all workers, or for so long.
 */
static void run_until(bool (*done)(const struct bench_worker *worker), double for_ms)
{
    double begin_ms = now_ms();
    uint32_t at = 0; /* all before it are done */
    for (;;) {
        double now = now_ms();
        while (done != NULL && at < arguments.count && done(&workers[at])) {
            at++;
        }
        if (done != NULL ? at == arguments.count : now - begin_ms >= for_ms) {
            return;
        }
        if (now - begin_ms > PHASE_MS) {
            fail_phase(at);
        }
        poll_once(1);
    }
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

struct quantiles {
    double p50, p99, most;
    size_t count;
};

static struct quantiles quantiles_of(double *samples, size_t count)
{
    if (count == 0) {
        return (struct quantiles){0};
    }
    qsort(samples, count, sizeof *samples, compare_doubles);
    return (struct quantiles){.p50 = samples[count / 2],
                              .p99 = samples[count * 99 / 100],
                              .most = samples[count - 1],
                              .count = count};
}

static void print_row(const char *name, double *samples, size_t count)
{
    struct quantiles q = quantiles_of(samples, count);
    if (arguments.json) {
        printf("\"%s\":{\"count\":%zu,\"p50_ms\":%.1f,\"p99_ms\":%.1f,\"max_ms\":%.1f},", name,
               q.count, q.p50, q.p99, q.most);
    } else {
        printf("%-28s %7zu  p50 %9.1f ms  p99 %9.1f ms  max %9.1f ms\n", name, q.count, q.p50,
               q.p99, q.most);
    }
}

static void print_number(const char *name, double value, const char *unit)
{
    if (arguments.json) {
        printf("\"%s_%s\":%.2f,", name, unit, value);
    } else {
        printf("%-28s %9.2f %s\n", name, value, unit);
    }
}

static void drop_probes(void)
{
    (void)pthread_mutex_lock(&probe_mutex);
    probe_count = 0;
    (void)pthread_mutex_unlock(&probe_mutex);
}

/* How long the requests of the job beside have taken since the last call. */
static void print_probes(const char *name)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s_beside", name);
    (void)pthread_mutex_lock(&probe_mutex);
    print_row(text, probe_samples, probe_count);
    probe_count = 0;
    (void)pthread_mutex_unlock(&probe_mutex);
}

/* Times of what the workers have done since begin_ms, and of the probes meanwhile. */
static void print_phase(const char *name, double begin_ms)
{
    static double samples[WORKERS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < arguments.count; i++) {
        if (!workers[i].lost && !workers[i].refused) {
            samples[count++] = workers[i].done_ms - begin_ms;
        }
    }
    print_row(name, samples, count);
    print_probes(name);
}

static void form(const char *name, bool dials)
{
    double cpu_s = load_cpu_s();
    drop_probes();
    double begin_ms = now_ms();
    for (uint32_t i = 0; i < arguments.count; i++) {
        if (dials) {
            dial(&workers[i]);
        }
        if (!workers[i].lost) {
            workers[i].refused = false;
            ask_join(&workers[i]);
        }
        if (i % 64 == 63) {
            poll_once(0);
        }
    }
    run_until(is_formed, 0);
    print_phase(name, begin_ms);
    print_number("cpu", load_cpu_s() - cpu_s, "s");
}

static void watch_all(void)
{
    for (uint32_t i = 0; i < arguments.count; i++) {
        if (!workers[i].lost && !workers[i].refused) {
            ask_watch(&workers[i]);
        }
    }
    run_until(NULL, 1000);
    drop_probes();
}

static void watch_quietly(double memory_before_mib)
{
    watch_all();
    print_number("memory_a_watch",
                 (load_memory_mib("VmRSS") - memory_before_mib) * 1024 / arguments.count, "kib");
    double cpu_s = load_cpu_s();
    run_until(NULL, arguments.watch_s * 1e3);
    print_number("watching_cpu", (load_cpu_s() - cpu_s) * 100 / arguments.watch_s, "percent");
    print_probes("watching");
}

/* The last worker dies: its connection is reset, and another reports it over a connection of its
 * own.
 */
static void lose_one(void)
{
    struct bench_worker *victim = &workers[arguments.count - 1];
    struct bench_worker *reporter = &workers[0];
    struct bench_worker line = *reporter;
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (uint32_t i = 0; i < arguments.count; i++) {
        workers[i].revoked = workers[i].refused = false;
    }
    dial(&line);
    run_until(NULL, 100);
    drop_probes();
    double begin_ms = now_ms();
    victim->lost = true;
    (void)setsockopt(victim->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)close(victim->fd);
    ask_report(&line, victim->rank);
    run_until(is_revoked, 0);
    print_phase("loss", begin_ms);
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, line.fd, NULL);
    (void)close(line.fd);
}

/* Arguments --------------------------------------------------------------------------------------
 */

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end = NULL;
    unsigned long value = text != NULL ? strtoul(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "rendezvous: \"%s\" is not a number in %u..%u\n", text != NULL ? text : "",
                least, most);
        exit(EXIT_FAILURE);
    }
    return (uint32_t)value;
}

static void parse(char **argv)
{
    static char *none[] = {NULL};
    arguments.options = none;
    if (argv[1] == NULL || argv[2] == NULL) {
        load_fail("use: rendezvous MUSTERD WORKERS [options]; the head of rendezvous.c has them");
    }
    arguments.musterd = argv[1];
    arguments.count = number(argv[2], 2, WORKERS_MAX);
    for (char **at = argv + 3; *at != NULL; at++) {
        if (strcmp(*at, "--") == 0) {
            arguments.options = at + 1;
            return;
        }
        if (strcmp(*at, "--json") == 0) {
            arguments.json = true;
        } else if (strcmp(*at, "--neighbours") == 0) {
            arguments.neighbours = true;
        } else if (strcmp(*at, "--store") == 0 && at[1] != NULL) {
            arguments.store = *++at;
        } else if (strcmp(*at, "--cpu") == 0 && at[1] != NULL) {
            arguments.cpus = *++at;
        } else if (strcmp(*at, "--per-host") == 0) {
            arguments.per_host = number(*++at, 1, WORKERS_MAX);
        } else if (strcmp(*at, "--watch-s") == 0) {
            arguments.watch_s = number(*++at, 1, 3600);
        } else {
            load_fail(*at);
        }
    }
}

/* A job of its own beside the others: one request after the other over one connection, by a thread
 * that does nothing else. */
static void exchange(int fd, const char *method, const char *body)
{
    char text[1024];
    int size = snprintf(text, sizeof text,
                        "POST /muster.v1.Rendezvous/%s HTTP/1.1\r\nHost: bench\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        method, strlen(body), body);
    if ((send(fd, text, (size_t)size, MSG_NOSIGNAL) != size ||
         recv(fd, text, sizeof text, 0) <= 0) &&
        !atomic_load(&finished)) {
        load_fail("the job beside gets no answer");
    }
}

static void *probe(void *user)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)user;
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) != 0) {
        load_fail(strerror(errno));
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    exchange(fd, "Join",
             "{\"job\":\"beside\",\"member\":\"00000000-0000-4000-8000-ffffffffffff\","
             "\"host\":\"h\",\"minSize\":1,\"maxSize\":1}");
    while (!atomic_load(&finished)) {
        double sent_ms = now_ms();
        exchange(fd, "Put", "{\"job\":\"beside\",\"key\":\"k\",\"value\":\"AAAA\"}");
        (void)pthread_mutex_lock(&probe_mutex);
        if (probe_count < SAMPLES_MAX) {
            probe_samples[probe_count++] = now_ms() - sent_ms;
        }
        (void)pthread_mutex_unlock(&probe_mutex);
        (void)usleep(PROBE_EVERY_MS * 1000);
    }
    return NULL;
}

static void start_probe(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, probe, NULL) != 0) {
        load_fail("no thread");
    }
    run_until(NULL, 500);
    drop_probes();
    run_until(NULL, 1000);
    print_probes("alone");
}

int main(int argc, char **argv)
{
    (void)argc;
    parse(argv);
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    workers = calloc(arguments.count, sizeof *workers);
    if (workers == NULL || epoll_fd < 0) {
        load_fail("no memory");
    }
    for (uint32_t i = 0; i < arguments.count; i++) {
        workers[i].index = i;
    }
    unsigned port =
        load_start(arguments.musterd, arguments.store, arguments.cpus, arguments.options);
    server = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    load_pin(arguments.cpus, true);
    started_ms = now_ms();
    printf(arguments.json ? "{\"workers\":%u," : "%u workers\n", arguments.count);
    start_probe();
    double memory_mib = load_memory_mib("VmRSS");
    form("join", true);
    watch_quietly(memory_mib);
    lose_one();
    form("join_again", false);
    print_number("answers_refused", (double)answers_refused, "count");
    print_number("connections_closed", (double)connections_closed, "count");
    print_number("received", (double)bytes_received / (1 << 20), "mib");
    print_number("memory_most", load_memory_mib("VmHWM"), "mib");
    printf(arguments.json ? "\"seconds\":%.1f}\n" : "%.1f s in all\n",
           (now_ms() - started_ms) / 1e3);
    if (answers_refused > 0) {
        fprintf(stderr, "rendezvous: the last refusal: %s\n", refusal_text);
    }
    atomic_store(&finished, true);
    load_stop();
    return EXIT_SUCCESS;
}
