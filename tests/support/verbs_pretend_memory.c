/* What is registered with the pretended devices. */
#include "tests/support/verbs_pretend_parts.h"

#include <stdlib.h>
#include <utlist.h>

struct region {
    struct ibv_mr region; /* first */
    bool remote;
    struct region *prev, *next;
};

static uint32_t last_key;
static struct region *regions;

unsigned char *verbs_pretend_touch(uint64_t address, uint64_t size, uint32_t key, bool remote)
{
    const struct region *each = NULL;
    DL_FOREACH(regions, each)
    {
        uint64_t base = (uintptr_t)each->region.addr;
        if (each->region.lkey == key && address >= base &&
            address + size <= base + each->region.length && (each->remote || !remote)) {
            return (unsigned char *)each->region.addr + (address - base);
        }
    }
    return NULL;
}

static struct ibv_mr *register_memory(struct ibv_pd *domain, void *address, size_t size, int access)
{
    struct region *made = calloc(1, sizeof *made);
    verbs_pretend_lock();
    uint32_t key = ++last_key;
    made->region = (struct ibv_mr){.context = domain->context,
                                   .pd = domain,
                                   .addr = address,
                                   .length = size,
                                   .lkey = key,
                                   .rkey = key};
    made->remote = (access & IBV_ACCESS_REMOTE_WRITE) != 0;
    DL_APPEND(regions, made);
    verbs_pretend_unlock();
    return &made->region;
}

static int deregister_memory(struct ibv_mr *region)
{
    struct region *gone = (struct region *)region;
    verbs_pretend_lock();
    DL_DELETE(regions, gone);
    verbs_pretend_unlock();
    free(gone);
    return 0;
}

void verbs_pretend_memory(struct muster_verbs_library *table)
{
    table->reg_mr = register_memory;
    table->dereg_mr = deregister_memory;
}
