/*
 * A worker whose arithmetic detects every mistake. In each step all members reduce integers that
 * identify them, and each member checks that the result counts every member of its generation once
 * and nothing else. The state counts steps and mixes all results into a digest, so a step that is
 * lost, done twice, or done with a wrong member shows at the end.
 *
 * usage: contributions STOP-FILE   runs until the file exists; then prints one line and exits with
 * 0, or with 3 when it was asked to leave. A wrong sum makes it exit with 1 at once. With
 * CONTRIBUTIONS_SPARE=BYTES in the environment it registers one more buffer, of up to 64 bytes;
 * with CONTRIBUTIONS_CHILD=1 it forks a child after its first step, which sleeps until SIGTERM.
 *
 * With CONTRIBUTIONS_GPU=LIBCUDA, a pretended one, the first allreduce of a step is on memory of
 * its GPU; MUSTER_NCCL is then the pretended NCCL.
 *
 * Lines on stdout: "child P" with the child's number; "first generation=G size=S at_ns=T" after the
 * first step of a generation; "nccl generation=G" after the first that NCCL has carried out; "step
 * N" every 50 steps; "done steps=N digest=D" or "left steps=N digest=D" at the end.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/nccl_pretend.h"
#include "worker/muster.h"

enum {
    SLOTS = 64,      /* the most members */
    STOP = SLOTS,    /* element: the number of members that have seen the stop file */
    SUM = SLOTS + 1, /* element: sum of the members' numbers for this step */
    ELEMENTS = SLOTS + 2,
    COMMIT_STEPS = 3, /* between commits, so that a death undoes some steps */
    PRINT_STEPS = 50,
    CHILD_LIVES_S = 300,
    PACE_NS = 1000000, /* leaves time for other processes; nothing depends on it */
};

/* What the job must not lose. */
struct progress {
    int64_t step;
    int64_t step_sum; /* of all steps done: 0 + 1 + ... */
    uint64_t digest;
};

struct worker {
    const char *stop_file;
    int64_t id;
    struct progress progress;
    int64_t ids[SLOTS]; /* of this generation, by global rank */
    int64_t local_sum, cross_sum;
    pid_t child; /* 0: none */
    struct {
        int64_t *in, *out; /* NULL: none */
        int (*to_device)(uint64_t to, const void *from, size_t size_bytes);
        int (*to_host)(void *to, uint64_t from, size_t size_bytes);
        uint64_t collectives; /* by NCCL when this generation began */
        uint64_t generation;  /* of the last line about it */
    } gpu;
};

/* The GPU ------------------------------------------------------------------------------------- */

static void find(void *library, const char *name, void *ret_function)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "contributions: no %s: %s\n", name, dlerror());
        exit(2);
    }
    memcpy(ret_function, &symbol, sizeof symbol);
}

static void use_gpu(struct worker *worker, const char *path)
{
    int (*get_device)(int *, int) = NULL;
    int (*retain)(void **, int) = NULL;
    int (*set_current)(void *) = NULL;
    int (*allocate)(uint64_t *, size_t) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *context = NULL;
    int device = 0;
    uint64_t memory[2] = {0, 0};
    find(library, "cuDeviceGet", &get_device);
    find(library, "cuDevicePrimaryCtxRetain", &retain);
    find(library, "cuCtxSetCurrent", &set_current);
    find(library, "cuMemAlloc_v2", &allocate);
    find(library, "cuMemcpyHtoD_v2", &worker->gpu.to_device);
    find(library, "cuMemcpyDtoH_v2", &worker->gpu.to_host);
    if (get_device(&device, 0) != 0 || retain(&context, device) != 0 || set_current(context) != 0 ||
        allocate(&memory[0], ELEMENTS * sizeof(int64_t)) != 0 ||
        allocate(&memory[1], ELEMENTS * sizeof(int64_t)) != 0) {
        fprintf(stderr, "contributions: no memory of a GPU\n");
        exit(2);
    }
    memcpy(&worker->gpu.in, &memory[0], sizeof memory[0]);
    memcpy(&worker->gpu.out, &memory[1], sizeof memory[1]);
}

/* How many collectives NCCL has carried out. */
static uint64_t count_nccl(void)
{
    const struct nccl_pretend *(*get_controls)(void) = NULL;
    const char *path = getenv("MUSTER_NCCL");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (library == NULL) {
        return 0;
    }
    find(library, "nccl_pretend_controls", &get_controls);
    return get_controls()->collectives();
}

/* The sum over all members, in memory of the GPU if there is one. */
static muster_status add_up(muster_session *session, const struct worker *worker, const int64_t *in,
                            int64_t *out)
{
    if (worker->gpu.in == NULL) {
        return muster_allreduce(session, MUSTER_GLOBAL, in, out, ELEMENTS, MUSTER_INT64, MUSTER_SUM,
                                NULL);
    }
    bool copied = worker->gpu.to_device((uintptr_t)worker->gpu.in, in, ELEMENTS * sizeof *in) == 0;
    muster_status status = muster_allreduce(session, MUSTER_GLOBAL, worker->gpu.in, worker->gpu.out,
                                            ELEMENTS, MUSTER_INT64, MUSTER_SUM, NULL);
    copied =
        worker->gpu.to_host(out, (uintptr_t)worker->gpu.out, ELEMENTS * sizeof *out) == 0 && copied;
    if (!copied) {
        fprintf(stderr, "contributions: a copy to or from the GPU failed\n");
        exit(2);
    }
    return status;
}

/* Steps ---------------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void wrong(muster_session *session, const struct worker *worker, const char *what,
                  int64_t got, int64_t expected)
{
    printf("WRONG generation=%" PRIu64 " rank=%u step=%" PRId64 " %s: %" PRId64 " is not %" PRId64
           "\n",
           muster_generation(session), muster_rank(session, MUSTER_GLOBAL), worker->progress.step,
           what, got, expected);
    fflush(stdout);
    _Exit(1);
}

static muster_status sum_of_scope(muster_session *session, muster_scope scope, int64_t id,
                                  int64_t *ret_sum)
{
    int64_t ids[SLOTS] = {0};
    muster_status status = muster_allgather(session, scope, &id, ids, 1, MUSTER_INT64, NULL);
    *ret_sum = 0;
    for (uint32_t i = 0; i < muster_size(session, scope); i++) {
        *ret_sum += ids[i];
    }
    return status;
}

/* Exchanges the ids of the members of this generation. */
static muster_status learn_members(muster_session *session, struct worker *worker)
{
    memset(worker->ids, 0, sizeof worker->ids);
    muster_status status =
        muster_allgather(session, MUSTER_GLOBAL, &worker->id, worker->ids, 1, MUSTER_INT64, NULL);
    if (status == MUSTER_OK) {
        status = sum_of_scope(session, MUSTER_LOCAL, worker->id, &worker->local_sum);
    }
    if (status == MUSTER_OK) {
        status = sum_of_scope(session, MUSTER_CROSS, worker->id, &worker->cross_sum);
    }
    return status;
}

static void check_global(muster_session *session, const struct worker *worker, const int64_t *out)
{
    int64_t factor = worker->progress.step + 1;
    int64_t sum = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (out[i] != worker->ids[i] * factor) {
            wrong(session, worker, "a member's slot", out[i], worker->ids[i] * factor);
        }
        sum += worker->ids[i] + (worker->ids[i] != 0 ? worker->progress.step : 0);
    }
    if (out[SUM] != sum) {
        wrong(session, worker, "the global sum", out[SUM], sum);
    }
}

static muster_status check_scope(muster_session *session, struct worker *worker, muster_scope scope,
                                 int64_t expected)
{
    int64_t sum = 0;
    muster_status status =
        muster_allreduce(session, scope, &worker->id, &sum, 1, MUSTER_INT64, MUSTER_SUM, NULL);
    if (status == MUSTER_OK && sum != expected) {
        wrong(session, worker, scope == MUSTER_LOCAL ? "the local sum" : "the cross sum", sum,
              expected);
    }
    return status;
}

/* One step: an allreduce over all members that is checked element by element, then one over the
 * local or the cross scope. */
static muster_status step_once(muster_session *session, struct worker *worker, bool *ret_stop)
{
    int64_t in[ELEMENTS] = {0};
    int64_t out[ELEMENTS];
    struct progress *progress = &worker->progress;
    in[muster_rank(session, MUSTER_GLOBAL)] = worker->id * (progress->step + 1);
    in[STOP] = access(worker->stop_file, F_OK) == 0;
    in[SUM] = worker->id + progress->step;
    muster_status status = add_up(session, worker, in, out);
    if (status != MUSTER_OK) {
        return status;
    }
    check_global(session, worker, out);
    status = progress->step % 2 == 0
                 ? check_scope(session, worker, MUSTER_LOCAL, worker->local_sum)
                 : check_scope(session, worker, MUSTER_CROSS, worker->cross_sum);
    if (status != MUSTER_OK) {
        return status;
    }
    for (int i = 0; i < SLOTS; i++) {
        progress->digest = (progress->digest ^ (uint64_t)out[i]) * 1099511628211U;
    }
    progress->step_sum += progress->step;
    progress->step++;
    *ret_stop = out[STOP] > 0;
    return MUSTER_OK;
}

/* Like a data loader's worker. It does not outlive a test for long. */
static void fork_child(struct worker *worker)
{
    fflush(stdout);
    worker->child = fork();
    if (worker->child == 0) {
        (void)alarm(CHILD_LIVES_S);
        for (;;) {
            (void)pause();
        }
    }
    printf("child %d\n", (int)worker->child);
    fflush(stdout);
}

/* Hangs, if SIGTERM does not end the child. */
static void end_child(const struct worker *worker)
{
    if (worker->child > 0) {
        (void)kill(worker->child, SIGTERM);
        (void)waitpid(worker->child, NULL, 0);
    }
}

static void report_nccl(muster_session *session, struct worker *worker)
{
    uint64_t generation = muster_generation(session);
    if (worker->gpu.generation != generation && count_nccl() > worker->gpu.collectives) {
        worker->gpu.generation = generation;
        printf("nccl generation=%" PRIu64 "\n", generation);
        fflush(stdout);
    }
}

static void report(muster_session *session, struct worker *worker, bool first)
{
    if (worker->gpu.in != NULL) {
        report_nccl(session, worker);
    }
    if (first) {
        printf("first generation=%" PRIu64 " size=%u at_ns=%" PRId64 "\n",
               muster_generation(session), muster_size(session, MUSTER_GLOBAL), now_ns());
        fflush(stdout);
    } else if (worker->progress.step % PRINT_STEPS == 0) {
        printf("step %" PRId64 "\n", worker->progress.step);
        fflush(stdout);
    }
}

static muster_status work(muster_session *session, void *user)
{
    struct worker *worker = user;
    const struct timespec pace = {.tv_nsec = PACE_NS};
    muster_status status = learn_members(session, worker);
    bool stop = false;
    worker->gpu.collectives = count_nccl();
    for (bool first = true; status == MUSTER_OK && !stop; first = false) {
        status = step_once(session, worker, &stop);
        if (status != MUSTER_OK) {
            break;
        }
        report(session, worker, first);
        if (worker->child == 0 && getenv("CONTRIBUTIONS_CHILD") != NULL) {
            fork_child(worker);
        }
        if (stop || worker->progress.step % COMMIT_STEPS == 0) {
            status = muster_commit(session);
        }
        nanosleep(&pace, NULL);
    }
    return status;
}

static muster_status register_state(muster_session *session, struct worker *worker)
{
    static unsigned char spare[64];
    const char *text = getenv("CONTRIBUTIONS_SPARE");
    size_t size = text != NULL ? strtoul(text, NULL, 10) : 0;
    muster_status status =
        muster_register(session, "progress", &worker->progress, sizeof worker->progress);
    if (status == MUSTER_OK && size > 0 && size <= sizeof spare) {
        status = muster_register(session, "spare", spare, size);
    }
    return status;
}

static int run(muster_session *session, struct worker *worker)
{
    struct progress *progress = &worker->progress;
    muster_status status = register_state(session, worker);
    if (status == MUSTER_OK) {
        status = muster_run(session, work, worker);
    }
    if (status != MUSTER_OK && status != MUSTER_ENDED) {
        fprintf(stderr, "contributions: %s: %s\n", muster_status_name(status), muster_last_error());
        return 2;
    }
    if (progress->step_sum != progress->step * (progress->step - 1) / 2) {
        wrong(session, worker, "the sum of all steps", progress->step_sum,
              progress->step * (progress->step - 1) / 2);
    }
    printf("%s steps=%" PRId64 " digest=%016" PRIx64 "\n", status == MUSTER_OK ? "done" : "left",
           progress->step, progress->digest);
    fflush(stdout);
    return status == MUSTER_OK ? 0 : 3;
}

int main(int argc, char **argv)
{
    struct worker worker = {.id = getpid()};
    muster_session *session = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: contributions STOP-FILE\n");
        return 2;
    }
    worker.stop_file = argv[1];
    if (getenv("CONTRIBUTIONS_GPU") != NULL) {
        use_gpu(&worker, getenv("CONTRIBUTIONS_GPU"));
    }
    muster_status status = muster_open(NULL, &session);
    if (status != MUSTER_OK) {
        fprintf(stderr, "contributions: %s: %s\n", muster_status_name(status), muster_last_error());
        return status == MUSTER_ENDED ? 3 : 2;
    }
    int exit_status = run(session, &worker);
    end_child(&worker);
    muster_close(session);
    return exit_status;
}
