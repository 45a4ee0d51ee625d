/*
 * How long compaction of a large job stops other jobs: a service without sockets, with a SQLite
 * store. A job of many members gets thousands of events, so that its log is compacted several
 * times; a job beside it stores one value after the other. Prints the slowest calls of both.
 *
 *   build/release/tests/compaction [MEMBERS [EVENTS [FOLDER]]]        default 10000 30000 /tmp
 */
#include "rendezvous/store/store.h"
#include "tests/support/caller.h"
#include "worker/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES_MAX = 1 << 20, US = 1000, BATCH = 16 };

static struct muster_service *service;
static atomic_bool ending;

struct samples {
    size_t count;
    double *ms;
};

static struct samples beside, own;

static void must(bool good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "compaction: %s: %s\n", what, muster_last_error());
        exit(EXIT_FAILURE);
    }
}

static void add_sample(struct samples *samples, int64_t began_ns)
{
    if (samples->count < SAMPLES_MAX) {
        samples->ms[samples->count++] = (double)(muster_clock_ns() - began_ns) / MUSTER_NS_PER_MS;
    }
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a;
    double other = *(const double *)b;
    return (one > other) - (one < other);
}

static void print(const char *name, struct samples *samples)
{
    size_t count = samples->count;
    qsort(samples->ms, count, sizeof *samples->ms, compare);
    (void)printf("%-34s %8zu calls, ms: median %7.3f  p99 %7.2f  p99.9 %7.2f  slowest %7.2f\n",
                 name, count, samples->ms[count / 2], samples->ms[count * 99 / 100],
                 samples->ms[count * 999 / 1000], samples->ms[count - 1]);
    samples->count = 0;
}

static void *store_values(void *user)
{
    (void)user;
    while (!atomic_load(&ending)) {
        struct test_call call;
        int64_t began_ns = muster_clock_ns();
        test_call_start(&call, service, MUSTER_RPC_PUT, NULL,
                        "{'job':'beside','key':'k','value':'AAEC'}");
        must(test_call_wait(&call) && call.code == MUSTER_RPC_OK, "a Put");
        add_sample(&beside, began_ns);
        test_call_finish(&call);
        (void)usleep(US / 2);
    }
    return NULL;
}

static void join(struct test_call *calls, const char *job, unsigned members)
{
    for (unsigned i = 0; i < members; i++) {
        test_call_start(&calls[i], service, MUSTER_RPC_JOIN, NULL,
                        "{'job':'%s','member':'00000000-0000-4000-8000-%012u','host':'host-%u',"
                        "'addresses':['tcp://10.0.0.1:4000'],'order':%u,'neighbours':true,"
                        "'minSize':%u,'maxSize':%u}",
                        job, i, i / 8, i, members, members);
    }
    for (unsigned i = 0; i < members; i++) {
        must(test_call_wait(&calls[i]) && calls[i].code == MUSTER_RPC_OK, "a Join");
        test_call_finish(&calls[i]);
    }
}

static void make_events(unsigned count, unsigned members)
{
    static struct test_call batch[BATCH];
    for (unsigned done = 0; done < count; done += BATCH) {
        int64_t began_ns = muster_clock_ns();
        for (unsigned i = 0; i < BATCH; i++) {
            test_call_start(&batch[i], service, MUSTER_RPC_RESIZE, NULL,
                            "{'job':'large','targetSize':%u}", members);
        }
        for (unsigned i = 0; i < BATCH; i++) {
            must(test_call_wait(&batch[i]) && batch[i].code == MUSTER_RPC_OK, "a Resize");
            test_call_finish(&batch[i]);
        }
        add_sample(&own, began_ns);
    }
}

int main(int argc, char **argv)
{
    unsigned members = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 10000;
    unsigned events = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 30000;
    char folder[256];
    char path[300];
    struct muster_store *store = NULL;
    struct muster_service_config config;
    struct test_call *calls = calloc(members + 1, sizeof *calls);
    pthread_t thread;
    beside.ms = calloc(SAMPLES_MAX, sizeof *beside.ms);
    own.ms = calloc(SAMPLES_MAX, sizeof *own.ms);
    (void)snprintf(folder, sizeof folder, "%s/muster-bench-XXXXXX", argc > 3 ? argv[3] : "/tmp");
    must(calls != NULL && beside.ms != NULL && own.ms != NULL && mkdtemp(folder) != NULL, folder);
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    muster_service_config_init(&config);
    config.hold_ms = MUSTER_HOLD_MAX_MS;
    config.settings.lease_ms = 3600000;
    config.settings.max_size = MUSTER_MEMBERS_MAX;
    must(muster_store_sqlite_open(path, &store) == MUSTER_OK, "the store");
    must(muster_service_create(&config, store, &service) == MUSTER_OK, "the service");
    join(calls, "beside", 1);
    must(pthread_create(&thread, NULL, store_values, NULL) == 0, "a thread");
    (void)usleep(1000 * US);
    print("Put of another job, by itself", &beside);
    join(calls, "large", members);
    print("Put of another job, many join", &beside);
    make_events(events, members);
    atomic_store(&ending, true);
    (void)pthread_join(thread, NULL);
    print("Put of another job, compactions", &beside);
    print("16 events of the large job", &own);
    muster_service_quiesce(service);
    muster_service_destroy(service);
    muster_store_close(store);
    (void)unlink(path);
    return rmdir(folder) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
