/* Wraps libibverbs' functions: counts what they create, and injects failures. */
#include "tests/support/verbs_spy.h"

#include "worker/base/cleanup.h"
#include "worker/fabric/verbs/verbs_library.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAIRS_MAX = 1024 };

static struct {
    pthread_mutex_t mutex;
    struct muster_verbs_library real;
    struct ibv_qp *pairs[PAIRS_MAX];
    uint32_t pair_count, regions, shared, pairs_left;
    size_t region_bytes;
    bool fatal, never_give_up;
} spy = {.mutex = PTHREAD_MUTEX_INITIALIZER, .pairs_left = UINT32_MAX};

static void count(uint32_t *counter, int change)
{
    (void)pthread_mutex_lock(&spy.mutex);
    *counter += (uint32_t)change;
    (void)pthread_mutex_unlock(&spy.mutex);
}

/* Wrapped functions --------------------------------------------------------------------------- */

static struct ibv_qp *create_pair(struct ibv_pd *domain, struct ibv_qp_init_attr *wanted)
{
    (void)pthread_mutex_lock(&spy.mutex);
    bool allowed = spy.pairs_left > 0;
    spy.pairs_left -= allowed && spy.pairs_left != UINT32_MAX;
    struct ibv_qp *pair = allowed ? spy.real.create_qp(domain, wanted) : NULL;
    int error = allowed ? errno : ENOMEM;
    if (pair != NULL && spy.pair_count < PAIRS_MAX) {
        spy.pairs[spy.pair_count++] = pair;
    }
    (void)pthread_mutex_unlock(&spy.mutex);
    errno = error;
    return pair;
}

static int destroy_pair(struct ibv_qp *pair)
{
    (void)pthread_mutex_lock(&spy.mutex);
    uint32_t left = 0;
    for (uint32_t i = 0; i < spy.pair_count; i++) {
        if (spy.pairs[i] != pair) {
            spy.pairs[left++] = spy.pairs[i];
        }
    }
    spy.pair_count = left;
    int status = spy.real.destroy_qp(pair);
    (void)pthread_mutex_unlock(&spy.mutex);
    return status;
}

static int modify_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    struct ibv_qp_attr changed = *attributes;
    (void)pthread_mutex_lock(&spy.mutex);
    if ((mask & IBV_QP_RETRY_CNT) != 0 && spy.never_give_up) {
        changed.retry_cnt = 7;
    }
    (void)pthread_mutex_unlock(&spy.mutex);
    return spy.real.modify_qp(pair, &changed, mask);
}

static struct ibv_mr *register_memory(struct ibv_pd *domain, void *address, size_t size, int access)
{
    struct ibv_mr *region = spy.real.reg_mr(domain, address, size, access);
    int error = errno;
    if (region != NULL) {
        (void)pthread_mutex_lock(&spy.mutex);
        spy.regions++;
        spy.region_bytes += size;
        (void)pthread_mutex_unlock(&spy.mutex);
    }
    errno = error;
    return region;
}

static int deregister_memory(struct ibv_mr *region)
{
    (void)pthread_mutex_lock(&spy.mutex);
    spy.regions--;
    spy.region_bytes -= region->length;
    (void)pthread_mutex_unlock(&spy.mutex);
    return spy.real.dereg_mr(region);
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context = spy.real.open_device(device);
    count(&spy.shared, context != NULL);
    return context;
}

static int close_device(struct ibv_context *context)
{
    count(&spy.shared, -1);
    return spy.real.close_device(context);
}

static struct ibv_pd *make_domain(struct ibv_context *context)
{
    struct ibv_pd *domain = spy.real.alloc_pd(context);
    count(&spy.shared, domain != NULL);
    return domain;
}

static int free_domain(struct ibv_pd *domain)
{
    int status = spy.real.dealloc_pd(domain);
    count(&spy.shared, status == 0 ? -1 : 0); /* EBUSY: it is in use */
    return status;
}

static struct ibv_comp_channel *create_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = spy.real.create_comp_channel(context);
    count(&spy.shared, channel != NULL);
    return channel;
}

static int destroy_channel(struct ibv_comp_channel *channel)
{
    int status = spy.real.destroy_comp_channel(channel);
    count(&spy.shared, status == 0 ? -1 : 0);
    return status;
}

static struct ibv_cq *create_queue(struct ibv_context *context, int entries, void *user,
                                   struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *queue = spy.real.create_cq(context, entries, user, channel, vector);
    count(&spy.shared, queue != NULL);
    return queue;
}

static int destroy_queue(struct ibv_cq *queue)
{
    int status = spy.real.destroy_cq(queue);
    count(&spy.shared, status == 0 ? -1 : 0);
    return status;
}

static int get_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int status = spy.real.get_async_event(context, event);
    if (status == 0 && event->event_type == IBV_EVENT_PORT_ERR && spy.fatal) {
        event->event_type = IBV_EVENT_DEVICE_FATAL;
    }
    return status;
}

void verbs_spy_start(void)
{
    const struct muster_verbs_library *library = NULL;
    if (muster_verbs_library_load(&library) != MUSTER_OK) {
        (void)fprintf(stderr, "%s\n", muster_last_error());
        exit(EXIT_FAILURE);
    }
    spy.real = *library;
    struct muster_verbs_library *table = (struct muster_verbs_library *)library;
    table->create_qp = create_pair;
    table->destroy_qp = destroy_pair;
    table->modify_qp = modify_pair;
    table->reg_mr = register_memory;
    table->dereg_mr = deregister_memory;
    table->open_device = open_device;
    table->close_device = close_device;
    table->alloc_pd = make_domain;
    table->dealloc_pd = free_domain;
    table->create_comp_channel = create_channel;
    table->destroy_comp_channel = destroy_channel;
    table->create_cq = create_queue;
    table->destroy_cq = destroy_queue;
    table->get_async_event = get_event;
}

/* What tests call ----------------------------------------------------------------------------- */

static size_t read_locked(const size_t *wide, const uint32_t *narrow)
{
    (void)pthread_mutex_lock(&spy.mutex);
    size_t value = wide != NULL ? *wide : *narrow;
    (void)pthread_mutex_unlock(&spy.mutex);
    return value;
}

uint32_t verbs_spy_pairs(void)
{
    return (uint32_t)read_locked(NULL, &spy.pair_count);
}

uint32_t verbs_spy_regions(void)
{
    return (uint32_t)read_locked(NULL, &spy.regions);
}

size_t verbs_spy_region_bytes(void)
{
    return read_locked(&spy.region_bytes, NULL);
}

uint32_t verbs_spy_shared(void)
{
    return (uint32_t)read_locked(NULL, &spy.shared);
}

void verbs_spy_expect_nothing_held(void)
{
    assert_int_equal(verbs_spy_pairs(), 0);
    assert_int_equal(verbs_spy_regions(), 0);
    assert_int_equal(verbs_spy_region_bytes(), 0);
    assert_int_equal(verbs_spy_shared(), 0);
}

void verbs_spy_break_pair(uint32_t index)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    (void)pthread_mutex_lock(&spy.mutex);
    if (index < spy.pair_count) {
        (void)spy.real.modify_qp(spy.pairs[index], &attributes, IBV_QP_STATE);
    }
    (void)pthread_mutex_unlock(&spy.mutex);
}

void verbs_spy_limit_pairs(uint32_t more)
{
    (void)pthread_mutex_lock(&spy.mutex);
    spy.pairs_left = more;
    (void)pthread_mutex_unlock(&spy.mutex);
}

void verbs_spy_never_give_up(bool never)
{
    (void)pthread_mutex_lock(&spy.mutex);
    spy.never_give_up = never;
    (void)pthread_mutex_unlock(&spy.mutex);
}

void verbs_spy_make_fatal(bool fatal)
{
    (void)pthread_mutex_lock(&spy.mutex);
    spy.fatal = fatal;
    (void)pthread_mutex_unlock(&spy.mutex);
}
