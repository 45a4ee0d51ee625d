/* The memory that is registered with the pretended devices. */
#include "tests/support/verbs_pretend.h"
#include "tests/support/verbs_pretend_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

struct region {
    struct ibv_mr region; /* first */
    bool remote;
    unsigned char *bytes; /* where the devices access it */
    bool of_gpu, mapped;
    struct region *prev, *next;
};

static uint32_t last_key;
static struct region *regions;
static const struct gpu_pretend *gpu; /* or NULL */
static unsigned gpu_ways;
static struct verbs_pretend_gpu_figures figures;

unsigned char *verbs_pretend_touch(uint64_t address, uint64_t size, uint32_t key, bool remote)
{
    const struct region *each = NULL;
    DL_FOREACH(regions, each)
    {
        uint64_t base = (uintptr_t)each->region.addr;
        if (each->region.lkey == key && address >= base &&
            address + size <= base + each->region.length && (each->remote || !remote)) {
            return each->bytes + (address - base);
        }
    }
    return NULL;
}

static struct ibv_mr *add_region(struct ibv_pd *domain, const struct region *wanted)
{
    struct region *made = calloc(1, sizeof *made);
    verbs_pretend_lock();
    uint32_t key = ++last_key;
    *made = *wanted;
    made->region.context = domain->context;
    made->region.pd = domain;
    made->region.lkey = key;
    made->region.rkey = key;
    DL_APPEND(regions, made);
    figures.held += made->of_gpu;
    figures.by_dmabuf += made->mapped;
    figures.by_peermem += made->of_gpu && !made->mapped;
    verbs_pretend_unlock();
    return &made->region;
}

/* Counts an attempt to register memory of the GPU by this way. False: the way is off; errno is then
 * `error`. */
static bool may_register(unsigned way, int error)
{
    verbs_pretend_lock();
    figures.attempts++;
    bool may = (gpu_ways & way) != 0;
    verbs_pretend_unlock();
    errno = error;
    return may;
}

/* Memory of the GPU is registered by its alias: the registration stays with these bytes even if
 * other memory gets the same address later. */
static struct ibv_mr *register_memory(struct ibv_pd *domain, void *address, size_t size, int access)
{
    struct region wanted = {.region = {.addr = address, .length = size},
                            .remote = (access & IBV_ACCESS_REMOTE_WRITE) != 0,
                            .bytes = address};
    void *alias = gpu != NULL ? gpu->alias(address) : NULL;
    if (alias != NULL) {
        if (!may_register(VERBS_PRETEND_PEERMEM, EFAULT)) {
            return NULL;
        }
        wanted.bytes = alias;
        wanted.of_gpu = true;
    }
    return add_region(domain, &wanted);
}

/* The position of the descriptor is where the buffer begins in the file. */
static struct ibv_mr *register_dmabuf(struct ibv_pd *domain, uint64_t offset, size_t length,
                                      uint64_t address, int fd, int access)
{
    (void)access;
    if (!may_register(VERBS_PRETEND_DMABUF, EOPNOTSUPP)) {
        return NULL;
    }
    void *bytes =
        mmap(NULL, length, PROT_READ, MAP_SHARED, fd, lseek(fd, 0, SEEK_CUR) + (off_t)offset);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    return add_region(
        domain,
        &(struct region){
            .region = {.addr = (void *)(uintptr_t)address, /* NOLINT(performance-no-int-to-ptr) */
                       .length = length},
            .bytes = bytes,
            .of_gpu = true,
            .mapped = true});
}

static int deregister_memory(struct ibv_mr *region)
{
    struct region *gone = (struct region *)region;
    verbs_pretend_lock();
    DL_DELETE(regions, gone);
    figures.held -= gone->of_gpu;
    verbs_pretend_unlock();
    if (gone->mapped) {
        (void)munmap(gone->bytes, gone->region.length);
    }
    free(gone);
    return 0;
}

void verbs_pretend_gpu(const struct gpu_pretend *of, unsigned ways)
{
    verbs_pretend_lock();
    gpu = of;
    gpu_ways = ways;
    verbs_pretend_unlock();
}

struct verbs_pretend_gpu_figures verbs_pretend_gpu_figures(void)
{
    verbs_pretend_lock();
    struct verbs_pretend_gpu_figures now = figures;
    verbs_pretend_unlock();
    return now;
}

void verbs_pretend_memory(struct muster_verbs_library *table)
{
    table->reg_mr = register_memory;
    table->reg_dmabuf_mr = register_dmabuf;
    table->dereg_mr = deregister_memory;
}
