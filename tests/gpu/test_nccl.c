/* Group steps by NCCL among processes, each with memory of the first GPU of this machine: all
 * collectives, their times beside NCCL's own, and the death of a process. With MUSTER_TEST_GPU set
 * it needs a GPU and NCCL; else it runs with those of the tests that are pretended.
 *
 * NCCL takes several processes for one GPU only if they say that they are on different hosts. Then
 * they exchange data over sockets, and the GPU's time is sliced among them, so that the times say
 * what Muster adds, and nothing about NCCL. */
#include "tests/support/gpu_pretend.h"
#include "tests/support/nccl_pretend.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/statistics.h"
#include "worker/context/context.h"
#include "worker/device/cuda/cuda_library.h"
#include "worker/device/cuda/nccl_library.h"
#include "worker/session/session_parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RANKS_MAX = 4,
    BLOB_MAX = 4096,
    ROUNDS_MAX = 3, /* communicators that are opened one after the other */
    CALL_MS = 60 * 1000,
    TEXT_SIZE = 512,
    ROOM_BYTES = 1 << 20,
    TIMED_BYTES = 64 << 20,
    PRETENDED_BYTES = 1 << 20, /* with a pretended GPU, whose times mean nothing */
    TIMED_CALLS = 5,
    ROOT = 1,
};

/* Functions of libcuda; each returns 0 on success. */
static struct {
    int (*init)(unsigned flags);
    int (*device_get)(int *ret_device, int ordinal);
    int (*primary_ctx_retain)(void **ret_context, int device);
    int (*ctx_set_current)(void *context);
    int (*mem_alloc)(uint64_t *ret_address, size_t size_bytes);
    int (*mem_free)(uint64_t address);
    int (*to_device)(uint64_t to, const void *from, size_t size_bytes);
    int (*to_host)(void *to, uint64_t from, size_t size_bytes);
} cuda;

/* In memory that all processes share. */
struct board {
    atomic_uint arrived[ROUNDS_MAX];
    unsigned char blobs[ROUNDS_MAX][RANKS_MAX][BLOB_MAX];
    atomic_llong killed_ns, failed_ns[RANKS_MAX];
    double us[RANKS_MAX][6];
    struct muster_nccl_id id;
    char fault[32];                  /* of rank 1 */
    char text[RANKS_MAX][TEXT_SIZE]; /* what went wrong */
};

struct member {
    struct board *board;
    uint32_t rank, size, round;
    uint32_t ranks; /* of this round */
    muster_session *session;
    uint64_t in, out;
};

typedef void (*member_work)(struct member *member);

static bool is_real(void)
{
    return getenv("MUSTER_TEST_GPU") != NULL;
}

static uint64_t timed_count(void)
{
    return (is_real() ? TIMED_BYTES : PRETENDED_BYTES) / sizeof(float);
}

static _Noreturn void give_up(const struct member *member, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(member->board->text[member->rank], TEXT_SIZE, format, arguments);
    va_end(arguments);
    _exit(1);
}

#define CHECK(member, condition)                                                          \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            give_up(member, "%d: %s: %.380s", __LINE__, #condition, muster_last_error()); \
        }                                                                                 \
    } while (0)

static void *as_pointer(uint64_t address)
{
    void *pointer = NULL;
    memcpy(&pointer, &address, sizeof pointer);
    return pointer;
}

static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load_cuda(const struct member *member)
{
    void *context = NULL;
    int device = 0;
    void *library = dlopen(is_real() ? "libcuda.so.1" : gpu_pretend_path(), RTLD_NOW);
    CHECK(member, find(library, "cuInit", &cuda.init) &&
                      find(library, "cuDeviceGet", &cuda.device_get) &&
                      find(library, "cuDevicePrimaryCtxRetain", &cuda.primary_ctx_retain) &&
                      find(library, "cuCtxSetCurrent", &cuda.ctx_set_current) &&
                      find(library, "cuMemAlloc_v2", &cuda.mem_alloc) &&
                      find(library, "cuMemFree_v2", &cuda.mem_free) &&
                      find(library, "cuMemcpyHtoD_v2", &cuda.to_device) &&
                      find(library, "cuMemcpyDtoH_v2", &cuda.to_host));
    CHECK(member, cuda.init(0) == 0);
    CHECK(member, cuda.device_get(&device, 0) == 0);
    CHECK(member, cuda.primary_ctx_retain(&context, device) == 0);
    CHECK(member, cuda.ctx_set_current(context) == 0);
}

/* What makes NCCL take several processes for one GPU. */
static void pretend_hosts(uint32_t rank)
{
    char host[16];
    (void)snprintf(host, sizeof host, "h%u", rank);
    (void)setenv("NCCL_HOSTID", host, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    (void)setenv("NCCL_NET", "Socket", 1);
    (void)setenv("NCCL_IB_DISABLE", "1", 1);
    (void)setenv("NCCL_RAS_ENABLE", "0", 1);
    (void)setenv("NCCL_MAX_CTAS", "2", 1);
}

static void pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    struct member *member = user_data;
    struct board *board = member->board;
    if (size_bytes > BLOB_MAX) {
        return 1;
    }
    memcpy(board->blobs[member->round][member->rank], mine, size_bytes);
    atomic_fetch_add(&board->arrived[member->round], 1);
    while (atomic_load(&board->arrived[member->round]) < member->size) {
        pause_ms(1);
    }
    for (uint32_t i = 0; i < member->size; i++) {
        memcpy((char *)all + i * size_bytes, board->blobs[member->round][i], size_bytes);
    }
    return 0;
}

/* The ranks below `size` open a communicator. */
static void open_session(struct member *member)
{
    muster_options options;
    muster_options_init(&options);
    options.host = "here";
    options.listen = "127.0.0.1";
    options.measure = 0;
    options.call_timeout_ms = CALL_MS;
    CHECK(member, muster_open_with(&options, member->rank, member->size, exchange, member,
                                   &member->session) == MUSTER_OK);
}

static void close_session(struct member *member)
{
    muster_close(member->session);
    member->session = NULL;
    member->round++;
}

/* Runs the work in so many processes. A process that is killed is no failure. */
static void run(struct board *board, uint32_t size, member_work work)
{
    pid_t processes[RANKS_MAX] = {0};
    for (uint32_t i = 0; i < size; i++) {
        processes[i] = fork();
        if (processes[i] == 0) {
            struct member member = {.board = board, .rank = i, .size = size};
            pretend_hosts(i);
            load_cuda(&member);
            CHECK(&member, cuda.mem_alloc(&member.in, TIMED_BYTES) == 0);
            CHECK(&member, cuda.mem_alloc(&member.out, TIMED_BYTES) == 0);
            work(&member);
            _exit(0);
        }
        assert_true(processes[i] > 0);
    }
    bool failed = false;
    for (uint32_t i = 0; i < size; i++) {
        int status = 0;
        assert_int_equal(waitpid(processes[i], &status, 0), processes[i]);
        bool good = WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL;
        if (!good) {
            print_error("rank %u: %s (status %x)\n", i, board->text[i], (unsigned)status);
        }
        failed = failed || !good;
    }
    assert_false(failed);
}

static struct board *make_board(void)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    return board;
}

static struct muster_context *context_of(const struct member *member)
{
    return member->session->generation.communicator->contexts[MUSTER_GLOBAL];
}

static const muster_call_options by_nccl = {.size = sizeof by_nccl, .algorithm = "nccl"};

/* Sums ---------------------------------------------------------------------------------------- */

static muster_status add_up(const struct member *member, uint64_t count)
{
    return muster_allreduce(member->session, MUSTER_GLOBAL, as_pointer(member->in),
                            as_pointer(member->out), count, MUSTER_FLOAT32, MUSTER_SUM, &by_nccl);
}

static void expect_sum(const struct member *member, uint64_t count)
{
    float *values = malloc(count * sizeof *values);
    for (uint64_t i = 0; i < count; i++) {
        values[i] = (float)(member->rank + 1);
    }
    CHECK(member, cuda.to_device(member->in, values, count * sizeof *values) == 0);
    CHECK(member, add_up(member, count) == MUSTER_OK);
    CHECK(member, cuda.to_host(values, member->out, count * sizeof *values) == 0);
    float expected = (float)(member->size * (member->size + 1)) / 2;
    CHECK(member, values[0] == expected && values[count - 1] == expected);
    free(values);
}

/* The GPUs are connected in the background, while calls go on. All ranks see it at the same call.
 */
static void await_group(const struct member *member)
{
    int64_t until_ns = muster_clock_after_ms(CALL_MS);
    while (!muster_context_has_device_group(context_of(member))) {
        expect_sum(member, 1000);
        CHECK(member, muster_clock_ns() < until_ns);
    }
}

/* Collectives ---------------------------------------------------------------------------------- */

static muster_status call(const struct member *member, const struct muster_request *request)
{
    muster_session *session = member->session;
    void *out = request->out;
    switch (request->collective) {
    case MUSTER_ALLREDUCE:
        return muster_allreduce(session, MUSTER_GLOBAL, request->in, out, request->count,
                                request->type, request->op, &by_nccl);
    case MUSTER_REDUCE_SCATTER:
        return muster_reduce_scatter(session, MUSTER_GLOBAL, request->in, out, request->count,
                                     request->type, request->op, &by_nccl);
    case MUSTER_ALLGATHER:
        return muster_allgather(session, MUSTER_GLOBAL, request->in, out, request->count,
                                request->type, &by_nccl);
    case MUSTER_BROADCAST:
        return muster_broadcast(session, MUSTER_GLOBAL, out, request->count, request->type, ROOT,
                                &by_nccl);
    default:
        return muster_reduce(session, MUSTER_GLOBAL, request->in, out, request->count,
                             request->type, request->op, ROOT, &by_nccl);
    }
}

static void check_call(const struct member *member, struct muster_request *request)
{
    char text[256] = "";
    char *in = calloc(2, ROOM_BYTES);
    char *out = in + ROOM_BYTES;
    bool broadcasts = request->collective == MUSTER_BROADCAST;
    request->in = broadcasts ? NULL : in;
    request->out = out;
    pattern_fill(request, broadcasts ? out : in, member->rank, member->size);
    CHECK(member, cuda.to_device(member->in, in, ROOM_BYTES) == 0);
    CHECK(member, cuda.to_device(member->out, out, ROOM_BYTES) == 0);
    struct muster_request on_gpu = *request;
    on_gpu.in = broadcasts ? NULL : as_pointer(member->in);
    on_gpu.out = as_pointer(member->out);
    muster_status status = call(member, &on_gpu);
    CHECK(member, cuda.to_host(out, member->out, ROOM_BYTES) == 0);
    if (status != MUSTER_OK ||
        pattern_check(request, member->rank, member->size, text, sizeof text) > 0) {
        give_up(member, "%s of %llu %s: %s", muster_collective_name(request->collective),
                (unsigned long long)request->count, muster_type_name(request->type),
                status == MUSTER_OK ? text : muster_last_error());
    }
    free(in);
}

static void use_collectives(struct member *member)
{
    static const enum muster_collective collectives[] = {
        MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER, MUSTER_BROADCAST, MUSTER_REDUCE};
    static const uint64_t counts[] = {1, 1000, 20000};
    static const muster_type types[] = {MUSTER_FLOAT32, MUSTER_FLOAT64, MUSTER_INT32, MUSTER_UINT8};
    open_session(member);
    await_group(member);
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
                struct muster_request request = {.collective = collectives[i],
                                                 .count = counts[j],
                                                 .type = types[k],
                                                 .op = MUSTER_SUM};
                request.root = muster_collective_has_root(request.collective) ? ROOT : 0;
                check_call(member, &request);
            }
        }
    }
    close_session(member);
}

static void every_collective_of_nccl_gives_the_right_values(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 3; size++) {
        struct board *board = make_board();
        run(board, size, use_collectives);
        (void)munmap(board, sizeof *board);
    }
}

/* Death ---------------------------------------------------------------------------------------- */

static void *die_soon(void *user)
{
    struct board *board = user;
    pause_ms(100);
    atomic_store(&board->killed_ns, muster_clock_ns());
    (void)raise(SIGKILL);
    return NULL;
}

/* The last rank dies in the middle of a call, most likely while the GPUs are at work; the others
 * then go on without it. */
static void survive(struct member *member)
{
    uint64_t count = timed_count();
    struct board *board = member->board;
    char text[TEXT_SIZE];
    pthread_t thread;
    open_session(member);
    await_group(member);
    if (member->rank == member->size - 1) {
        CHECK(member, pthread_create(&thread, NULL, die_soon, board) == 0);
    }
    muster_status status = MUSTER_OK;
    while (status == MUSTER_OK) {
        status = add_up(member, count);
    }
    atomic_store(&board->failed_ns[member->rank], muster_clock_ns());
    CHECK(member, status == MUSTER_ENDED);
    int64_t closing_ns = muster_clock_ns();
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    close_session(member);
    board->us[member->rank][0] = (double)(muster_clock_ns() - closing_ns) / 1e3;
    member->size--;
    int64_t opening_ns = muster_clock_ns();
    open_session(member);
    await_group(member);
    board->us[member->rank][1] = (double)(muster_clock_ns() - opening_ns) / 1e3;
    expect_sum(member, count);
    close_session(member);
    (void)snprintf(board->text[member->rank], TEXT_SIZE, "%s", text);
}

static void survivors_of_a_death_get_an_error_and_go_on(void **state)
{
    struct board *board = make_board();
    (void)state;
    run(board, 3, survive);
    for (uint32_t i = 0; i < 2; i++) {
        double ms =
            (double)(atomic_load(&board->failed_ns[i]) - atomic_load(&board->killed_ns)) / 1e6;
        print_message(
            "rank %u: error %.0f ms after the kill, closed in %.0f ms, next communicator "
            "and first sum in %.0f ms: \"%s\"\n",
            i, ms, board->us[i][0] / 1e3, board->us[i][1] / 1e3, board->text[i]);
        assert_true(ms < 20000);
    }
    (void)munmap(board, sizeof *board);
}

/* Times ---------------------------------------------------------------------------------------- */

static double median_us(const struct member *member, uint64_t count, const muster_call_options *how)
{
    double took_us[TIMED_CALLS];
    for (int i = 0; i < TIMED_CALLS; i++) {
        CHECK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_OK);
        int64_t start_ns = muster_clock_ns();
        CHECK(member, muster_allreduce(member->session, MUSTER_GLOBAL, as_pointer(member->in),
                                       as_pointer(member->out), count, MUSTER_FLOAT32, MUSTER_SUM,
                                       how) == MUSTER_OK);
        took_us[i] = (double)(muster_clock_ns() - start_ns) / 1e3;
    }
    return muster_statistics_median_low(took_us, TIMED_CALLS);
}

/* NCCL itself, called as a program does: the times of so many elements. */
static void time_nccl(const struct member *member, double *ret_small_us, double *ret_large_us)
{
    const uint64_t counts[] = {256, timed_count()};
    double *const results[] = {ret_small_us, ret_large_us};
    const struct muster_cuda *library = muster_cuda_library();
    const struct muster_nccl *nccl = NULL;
    struct muster_nccl_config config = muster_nccl_config_default();
    struct board *board = member->board;
    void *comm = NULL;
    void *stream = NULL;
    CHECK(member, muster_nccl_library(&nccl) == MUSTER_OK);
    if (member->rank == 0) {
        CHECK(member, nccl->get_unique_id(&board->id) == 0);
    }
    CHECK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_OK);
    CHECK(member, nccl->comm_init_rank_config(&comm, (int)member->size, board->id,
                                              (int)member->rank, &config) == 0);
    CHECK(member, library->stream_create(&stream, MUSTER_CUDA_NON_BLOCKING) == 0);
    for (int i = 0; i < 2; i++) {
        double took_us[TIMED_CALLS + 1];
        for (int j = 0; j <= TIMED_CALLS; j++) { /* the first one connects */
            CHECK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_OK);
            int64_t start_ns = muster_clock_ns();
            CHECK(member,
                  nccl->all_reduce(as_pointer(member->in), as_pointer(member->out), counts[i],
                                   MUSTER_NCCL_FLOAT32, MUSTER_NCCL_SUM, comm, stream) == 0);
            CHECK(member, library->stream_synchronize((uintptr_t)stream) == 0);
            took_us[j] = (double)(muster_clock_ns() - start_ns) / 1e3;
        }
        *results[i] = muster_statistics_median_low(took_us + 1, TIMED_CALLS);
    }
    CHECK(member, nccl->comm_abort(comm) == 0);
}

static void take_times(struct member *member)
{
    static const muster_call_options staged = {.size = sizeof staged, .algorithm = "ring"};
    double *us = member->board->us[member->rank];
    open_session(member);
    await_group(member);
    us[0] = median_us(member, 256, &by_nccl);
    us[1] = median_us(member, timed_count(), &by_nccl);
    us[2] = median_us(member, 256, &staged);
    us[3] = median_us(member, timed_count(), &staged);
    time_nccl(member, &us[4], &us[5]);
    close_session(member);
}

static void times_are_printed(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 3; size++) {
        struct board *board = make_board();
        run(board, size, take_times);
        const double *us = board->us[0];
        print_message(
            "%u ranks, allreduce of 1 KiB: nccl %.0f us, ncclAllReduce itself %.0f us, "
            "through the host (ring) %.0f us\n",
            size, us[0], us[4], us[2]);
        print_message(
            "%u ranks, of %llu KiB: nccl %.2f ms, ncclAllReduce itself %.2f ms, through "
            "the host (ring) %.2f ms\n",
            size, (unsigned long long)timed_count() * sizeof(float) / 1024, us[1] / 1e3,
            us[5] / 1e3, us[3] / 1e3);
        (void)munmap(board, sizeof *board);
    }
}

/* Versions ------------------------------------------------------------------------------------- */

static struct board *logged;
static uint32_t logged_rank;

/* The first warning of a rank. */
static void keep_warning(enum muster_log_level level, const char *text)
{
    if (level == MUSTER_LOG_WARN && logged->text[logged_rank][0] == '\0') {
        (void)snprintf(logged->text[logged_rank], TEXT_SIZE, "%s", text);
    }
}

static void go_on_through_the_host(struct member *member)
{
    logged = member->board;
    logged_rank = member->rank;
    muster_log_set_writer(keep_warning);
    CHECK(member,
          setenv("NCCL_PRETEND_FAULTS", member->rank == 1 ? member->board->fault : "", 1) == 0);
    open_session(member);
    for (int i = 0; i < 50; i++) {
        expect_sum(member, 1000);
        pause_ms(2);
    }
    CHECK(member, !muster_context_has_device_group(context_of(member)));
    close_session(member);
}

/* Only of the pretended NCCL. */
static void other_and_old_versions_are_named_and_not_used(void **state)
{
    static const struct {
        const char *fault, *texts[2]; /* of the ranks */
    } cases[] = {
        {"newer",
         {"rank 0 has NCCL 2.27.5, rank 1 has NCCL 2.28.9",
          "rank 0 has NCCL 2.27.5, rank 1 has NCCL 2.28.9"}},
        {"old", {"", "NCCL is off: the library is version 2.17.1; 2.18 or newer is needed"}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && !is_real(); i++) {
        struct board *board = make_board();
        (void)snprintf(board->fault, sizeof board->fault, "%s", cases[i].fault);
        run(board, 2, go_on_through_the_host);
        for (int rank = 0; rank < 2; rank++) {
            if (strstr(board->text[rank], cases[i].texts[rank]) == NULL) {
                fail_msg("rank %d logs \"%s\", not \"%s\"", rank, board->text[rank],
                         cases[i].texts[rank]);
            }
        }
        (void)munmap(board, sizeof *board);
    }
}

/* In a process of its own: nothing of a GPU is loaded before the ranks begin. */
static bool is_there(void)
{
    int status = 0;
    pid_t process = fork();
    if (process == 0) {
        const struct muster_nccl *nccl = NULL;
        bool found = muster_nccl_library(&nccl) == MUSTER_OK;
        print_message("%s", found ? "" : muster_last_error());
        _exit(found ? 0 : 1);
    }
    return waitpid(process, &status, 0) == process && status == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_of_nccl_gives_the_right_values),
        cmocka_unit_test(survivors_of_a_death_get_an_error_and_go_on),
        cmocka_unit_test(times_are_printed),
        cmocka_unit_test(other_and_old_versions_are_named_and_not_used),
    };
    if (!is_real() && setenv("MUSTER_NCCL", nccl_pretend_path(), 1) != 0) {
        return 1;
    }
    if (is_real() && !is_there()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
