/* The pretended libnccl.so.2 of tests/support/nccl_pretend.h: what programs see, the thread of a
 * communicator, and faults. */
#include "tests/libnccl/nccl_pretended_parts.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/nccl_pretend.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { ID_BYTES = 128, LATE_US = 3000, FAULTS_SIZE = 256 };

struct id {
    char bytes[ID_BYTES];
};

/* ncclConfig_t, as far as every version has it. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

static struct {
    pthread_mutex_t mutex;
    bool has_faults;
    char faults[FAULTS_SIZE];
    unsigned ids;
    atomic_ullong collectives, communicators;
    struct pretended_step *kept; /* of communicators that are gone */
} pretended = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Faults --------------------------------------------------------------------------------------- */

static void set_faults(const char *words)
{
    (void)pthread_mutex_lock(&pretended.mutex);
    pretended.has_faults = true;
    (void)snprintf(pretended.faults, sizeof pretended.faults, "%s", words);
    (void)pthread_mutex_unlock(&pretended.mutex);
}

/* Whether this rank has the fault; -1: the process, of which no rank is known. */
static bool has_fault(int rank, const char *name)
{
    char words[FAULTS_SIZE];
    bool found = false;
    char *rest = NULL;
    const char *given = getenv("NCCL_PRETEND_FAULTS");
    (void)pthread_mutex_lock(&pretended.mutex);
    (void)snprintf(words, sizeof words, "%s",
                   pretended.has_faults ? pretended.faults
                   : given != NULL      ? given
                                        : "");
    (void)pthread_mutex_unlock(&pretended.mutex);
    for (char *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        char *at = strchr(word, '@');
        bool here = at == NULL || rank < 0 || strtol(at + 1, NULL, 10) == rank;
        if (at != NULL) {
            *at = '\0';
        }
        found = found || (here && strcmp(word, name) == 0);
    }
    return found;
}

static uint64_t count_collectives(void)
{
    return atomic_load(&pretended.collectives);
}

static uint64_t count_communicators(void)
{
    return atomic_load(&pretended.communicators);
}

EXPORTED const struct nccl_pretend *nccl_pretend_controls(void);
const struct nccl_pretend *nccl_pretend_controls(void)
{
    static const struct nccl_pretend controls = {.set_faults = set_faults,
                                                 .collectives = count_collectives,
                                                 .communicators = count_communicators};
    return &controls;
}

/* The pretended GPU ---------------------------------------------------------------------------- */

static struct {
    pthread_once_t once;
    const struct gpu_pretend *controls;
    int (*ctx_get_current)(void **ret_context);
    int (*ctx_push_current)(void *context);
    int (*ctx_pop_current)(void **ret_context);
    int (*stream_get_ctx)(uintptr_t stream, void **ret_context);
    int (*launch_host_func)(uintptr_t stream, void (*function)(void *), void *user);
    int (*stream_wait_value)(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
    int (*mem_host_alloc)(void **ret_memory, size_t size_bytes, unsigned flags);
} gpu = {.once = PTHREAD_ONCE_INIT};

static void find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        (void)fprintf(stderr, "the pretended NCCL: no %s\n", name);
        abort();
    }
    memcpy(ret_function, &symbol, sizeof symbol);
}

static void load_gpu(void)
{
    const struct gpu_pretend *(*get_controls)(void) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    find(library, "gpu_pretend_controls", &get_controls);
    find(library, "cuCtxGetCurrent", &gpu.ctx_get_current);
    find(library, "cuCtxPushCurrent_v2", &gpu.ctx_push_current);
    find(library, "cuCtxPopCurrent_v2", &gpu.ctx_pop_current);
    find(library, "cuStreamGetCtx", &gpu.stream_get_ctx);
    find(library, "cuLaunchHostFunc", &gpu.launch_host_func);
    find(library, "cuStreamWaitValue32_v2", &gpu.stream_wait_value);
    find(library, "cuMemHostAlloc", &gpu.mem_host_alloc);
    gpu.controls = get_controls();
}

/* Queues --------------------------------------------------------------------------------------- */

static void begin_step(void *user)
{
    struct pretended_step *step = user;
    atomic_store(&step->started, true);
}

/* With the context: the stream waits from here on until the step is done. */
static int put_on_stream(struct pretended_step *step)
{
    int error = gpu.launch_host_func(step->stream, begin_step, step);
    return error != 0 ? error
                      : gpu.stream_wait_value(step->stream, (uintptr_t)step->done, 1, 1 /* EQ */);
}

static struct pretended_step *first_step(struct pretended_comm *comm)
{
    (void)pthread_mutex_lock(&comm->mutex);
    struct pretended_step *step = comm->first;
    (void)pthread_mutex_unlock(&comm->mutex);
    return step;
}

/* Also after an abort: the stream goes on. */
static void finish_step(struct pretended_comm *comm, struct pretended_step *step)
{
    (void)pthread_mutex_lock(&comm->mutex);
    comm->first = step->next;
    comm->last = comm->first == NULL ? &comm->first : comm->last;
    step->next = comm->done;
    comm->done = step;
    (void)pthread_mutex_unlock(&comm->mutex);
    __atomic_store_n(step->done, 1, __ATOMIC_RELEASE);
}

/* Puts what is not there yet, with the context. */
static int put_all_locked(struct pretended_comm *comm)
{
    int error = 0;
    for (struct pretended_step *each = comm->first; each != NULL; each = each->next) {
        error = error == 0 && !each->on_stream ? put_on_stream(each) : error;
        each->on_stream = true;
    }
    return error;
}

static void put_late(struct pretended_comm *comm)
{
    void *unused = NULL;
    pretended_sleep_us(LATE_US);
    if (gpu.ctx_push_current(comm->context) == 0) {
        (void)pthread_mutex_lock(&comm->mutex);
        int error = put_all_locked(comm);
        (void)pthread_mutex_unlock(&comm->mutex);
        (void)gpu.ctx_pop_current(&unused);
        atomic_store(&comm->late, false);
        atomic_store(&comm->state, error == 0 ? SUCCESS : UNHANDLED_CUDA_ERROR);
    }
}

static void run_step(struct pretended_comm *comm, struct pretended_step *step)
{
    if (atomic_load(&comm->late)) {
        put_late(comm);
    }
    if (!atomic_load(&step->started)) {
        pretended_sleep_us(20);
        return;
    }
    if (has_fault((int)comm->rank, "remote_error")) {
        (void)pretended_meet(comm);
        atomic_store(&comm->state, REMOTE_ERROR);
        while (!atomic_load(&comm->aborted)) {
            pretended_sleep_us(20);
        }
        return;
    }
    if (pretended_perform(comm, step)) {
        atomic_fetch_add(&pretended.collectives, 1);
        finish_step(comm, step);
    }
}

/* Joins the others, then carries out what is in the queue. */
static void *run(void *user)
{
    struct pretended_comm *comm = user;
    struct pretended_step *step = NULL;
    bool stuck = has_fault((int)comm->rank, "init_in_progress");
    if (stuck || !pretended_meet(comm)) {
        while (!atomic_load(&comm->aborted)) {
            pretended_sleep_us(20);
        }
    }
    if (atomic_fetch_add(&comm->room->joined, 1) + 1 == comm->ranks) {
        (void)unlink(comm->path);
    }
    if (!atomic_load(&comm->aborted)) {
        atomic_store(&comm->state, SUCCESS);
    }
    while (!atomic_load(&comm->aborted)) {
        step = first_step(comm);
        if (step != NULL) {
            run_step(comm, step);
        } else {
            pretended_sleep_us(20);
        }
    }
    while ((step = first_step(comm)) != NULL) {
        finish_step(comm, step);
    }
    return NULL;
}

/* Communicators -------------------------------------------------------------------------------- */

EXPORTED int ncclGetVersion(int *ret_version);
int ncclGetVersion(int *ret_version)
{
    *ret_version = has_fault(-1, "old") ? 21701 : has_fault(-1, "newer") ? 22809 : 22705;
    return SUCCESS;
}

EXPORTED int ncclGetUniqueId(struct id *ret_id);
int ncclGetUniqueId(struct id *ret_id)
{
    if (has_fault(-1, "id_fails")) {
        return SYSTEM_ERROR;
    }
    (void)pthread_mutex_lock(&pretended.mutex);
    unsigned number = ++pretended.ids;
    (void)pthread_mutex_unlock(&pretended.mutex);
    memset(ret_id, 0, sizeof *ret_id);
    (void)snprintf(ret_id->bytes, sizeof ret_id->bytes, "/dev/shm/nccl-pretend-%ld-%u",
                   (long)getpid(), number);
    int file = open(ret_id->bytes, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = file < 0 ? 1 : ftruncate(file, sizeof(struct pretended_room));
    (void)(file >= 0 ? close(file) : 0);
    return failed == 0 ? SUCCESS : SYSTEM_ERROR;
}

static int open_room(struct pretended_comm *comm)
{
    int file = open(comm->path, O_RDWR | O_CLOEXEC);
    void *memory = file < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof(struct pretended_room), PROT_READ | PROT_WRITE,
                                   MAP_SHARED, file, 0);
    (void)(file >= 0 ? close(file) : 0);
    if (memory == MAP_FAILED) {
        return SYSTEM_ERROR;
    }
    comm->room = memory;
    return SUCCESS;
}

EXPORTED int ncclCommInitRankConfig(void **ret_comm, int ranks, struct id id, int rank,
                                    const struct config *config);
int ncclCommInitRankConfig(void **ret_comm, int ranks, struct id id, int rank,
                           const struct config *config)
{
    (void)pthread_once(&gpu.once, load_gpu);
    if (ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks || config == NULL ||
        config->magic != 0xcafebeef || config->size < sizeof(struct config)) {
        return INVALID_ARGUMENT;
    }
    if (has_fault(rank, "out_of_memory")) {
        return UNHANDLED_CUDA_ERROR;
    }
    struct pretended_comm *comm = calloc(1, sizeof *comm);
    (void)snprintf(comm->path, sizeof comm->path, "%s", id.bytes);
    comm->rank = (uint32_t)rank;
    comm->ranks = (uint32_t)ranks;
    comm->blocks = config->blocking != 0; /* INT_MIN: the default, which is 1 */
    comm->state = IN_PROGRESS;
    comm->last = &comm->first;
    (void)pthread_mutex_init(&comm->mutex, NULL);
    int error = gpu.ctx_get_current(&comm->context) != 0 || comm->context == NULL
                    ? UNHANDLED_CUDA_ERROR
                    : open_room(comm);
    if (error != SUCCESS || pthread_create(&comm->thread, NULL, run, comm) != 0) {
        free(comm);
        return error != SUCCESS ? error : SYSTEM_ERROR;
    }
    atomic_fetch_add(&pretended.communicators, 1);
    *ret_comm = comm;
    while (comm->blocks && atomic_load(&comm->state) == IN_PROGRESS) {
        pretended_sleep_us(20);
    }
    return comm->blocks ? SUCCESS : IN_PROGRESS;
}

EXPORTED int ncclCommGetAsyncError(struct pretended_comm *comm, int *ret_error);
int ncclCommGetAsyncError(struct pretended_comm *comm, int *ret_error)
{
    *ret_error = atomic_load(&comm->state);
    return SUCCESS;
}

EXPORTED int ncclCommFinalize(struct pretended_comm *comm);
int ncclCommFinalize(struct pretended_comm *comm)
{
    return comm->blocks ? SUCCESS : IN_PROGRESS;
}

/* Streams may still come to the steps, or look whether they are done. */
static void keep_steps(struct pretended_step *steps)
{
    (void)pthread_mutex_lock(&pretended.mutex);
    while (steps != NULL) {
        struct pretended_step *next = steps->next;
        steps->next = pretended.kept;
        pretended.kept = steps;
        steps = next;
    }
    (void)pthread_mutex_unlock(&pretended.mutex);
}

EXPORTED int ncclCommAbort(struct pretended_comm *comm);
int ncclCommAbort(struct pretended_comm *comm)
{
    while (has_fault((int)comm->rank, "abort_hangs")) {
        pretended_sleep_us(1000);
    }
    atomic_store(&comm->aborted, true);
    (void)pthread_join(comm->thread, NULL);
    keep_steps(comm->done);
    (void)unlink(comm->path); /* where not all have joined */
    (void)munmap(comm->room, sizeof *comm->room);
    atomic_fetch_sub(&pretended.communicators, 1);
    (void)pthread_mutex_destroy(&comm->mutex);
    free(comm);
    return SUCCESS;
}

EXPORTED const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "operation in progress"};
    return texts[error & 7];
}

EXPORTED const char *ncclGetLastError(const struct pretended_comm *comm);
const char *ncclGetLastError(const struct pretended_comm *comm)
{
    (void)comm;
    return has_fault(-1, "out_of_memory") ? "Cuda failure 2 'out of memory'" : "";
}

/* Collectives ---------------------------------------------------------------------------------- */

/* Memory of the GPU by its alias; what is neither is refused. */
static char *touchable(const void *memory)
{
    return memory != NULL ? gpu.controls->alias(memory) : NULL;
}

static int refuse(const struct pretended_comm *comm, const struct pretended_step *step)
{
    void *context = NULL;
    bool writes = step->collective != REDUCE || comm->rank == (uint32_t)step->root;
    bool reads = step->collective != BROADCAST || comm->rank == (uint32_t)step->root;
    if (step->type < 0 || step->type >= TYPES || step->op < 0 || step->op >= OPS ||
        step->root < 0 || (uint32_t)step->root >= comm->ranks) {
        return INVALID_ARGUMENT;
    }
    if (gpu.stream_get_ctx(step->stream, &context) != 0 || context != comm->context) {
        return INVALID_USAGE;
    }
    return (reads && step->in == NULL) || (writes && step->out == NULL) ? INVALID_ARGUMENT
                                                                        : SUCCESS;
}

/* The steps of this thread's group, which are put into the queue at its end. */
static __thread struct {
    int depth;
    struct pretended_comm *comm;
    struct pretended_step *first, **last;
} grouped;

/* As NCCL: the next call may come only when the one before is no longer in progress. */
static int launch(struct pretended_comm *comm, struct pretended_step *first)
{
    int error = 0;
    if (has_fault((int)comm->rank, "call_in_progress")) {
        atomic_store(&comm->state, IN_PROGRESS);
        keep_steps(first);
        return IN_PROGRESS;
    }
    bool late = !comm->blocks && has_fault((int)comm->rank, "late");
    (void)pthread_mutex_lock(&comm->mutex);
    if (late) {
        atomic_store(&comm->state, IN_PROGRESS);
        atomic_store(&comm->late, true);
    }
    *comm->last = first;
    while (*comm->last != NULL) {
        comm->last = &(*comm->last)->next;
    }
    error = late ? 0 : put_all_locked(comm);
    (void)pthread_mutex_unlock(&comm->mutex);
    return error != 0 ? UNHANDLED_CUDA_ERROR : comm->blocks ? SUCCESS : IN_PROGRESS;
}

static int add(struct pretended_comm *comm, const struct pretended_step *wanted)
{
    void *done = NULL;
    int state = atomic_load(&comm->state);
    int error = state != SUCCESS ? INVALID_USAGE : refuse(comm, wanted);
    if (error != SUCCESS || gpu.mem_host_alloc(&done, sizeof(uint32_t), 0) != 0) {
        return error != SUCCESS ? error : UNHANDLED_CUDA_ERROR;
    }
    struct pretended_step *step = calloc(1, sizeof *step);
    *step = *wanted;
    step->done = done;
    if (grouped.depth == 0) {
        return launch(comm, step);
    }
    grouped.comm = comm;
    *grouped.last = step;
    grouped.last = &step->next;
    return SUCCESS;
}

EXPORTED int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                           struct pretended_comm *comm, uintptr_t stream);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                  struct pretended_comm *comm, uintptr_t stream)
{
    return add(comm, &(struct pretended_step){.collective = ALL_REDUCE,
                                              .in = touchable(in),
                                              .out = touchable(out),
                                              .count = count,
                                              .type = type,
                                              .op = op,
                                              .stream = stream});
}

EXPORTED int ncclReduceScatter(const void *in, void *out, size_t out_count, int type, int op,
                               struct pretended_comm *comm, uintptr_t stream);
int ncclReduceScatter(const void *in, void *out, size_t out_count, int type, int op,
                      struct pretended_comm *comm, uintptr_t stream)
{
    return add(comm, &(struct pretended_step){.collective = REDUCE_SCATTER,
                                              .in = touchable(in),
                                              .out = touchable(out),
                                              .count = out_count,
                                              .type = type,
                                              .op = op,
                                              .stream = stream});
}

EXPORTED int ncclAllGather(const void *in, void *out, size_t in_count, int type,
                           struct pretended_comm *comm, uintptr_t stream);
int ncclAllGather(const void *in, void *out, size_t in_count, int type, struct pretended_comm *comm,
                  uintptr_t stream)
{
    return add(comm, &(struct pretended_step){.collective = ALL_GATHER,
                                              .in = touchable(in),
                                              .out = touchable(out),
                                              .count = in_count,
                                              .type = type,
                                              .stream = stream});
}

EXPORTED int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
                        struct pretended_comm *comm, uintptr_t stream);
int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
               struct pretended_comm *comm, uintptr_t stream)
{
    return add(comm, &(struct pretended_step){.collective = REDUCE,
                                              .in = touchable(in),
                                              .out = touchable(out),
                                              .count = count,
                                              .type = type,
                                              .op = op,
                                              .root = root,
                                              .stream = stream});
}

EXPORTED int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                           struct pretended_comm *comm, uintptr_t stream);
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                  struct pretended_comm *comm, uintptr_t stream)
{
    return add(comm, &(struct pretended_step){.collective = BROADCAST,
                                              .in = touchable(in),
                                              .out = touchable(out),
                                              .count = count,
                                              .type = type,
                                              .root = root,
                                              .stream = stream});
}

EXPORTED int ncclGroupStart(void);
int ncclGroupStart(void)
{
    if (grouped.depth++ == 0) {
        grouped.first = NULL;
        grouped.last = &grouped.first;
    }
    return SUCCESS;
}

EXPORTED int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    if (grouped.depth == 0) {
        return INVALID_USAGE;
    }
    return --grouped.depth == 0 && grouped.first != NULL ? launch(grouped.comm, grouped.first)
                                                         : SUCCESS;
}
