/*
 * Registers memory of another device, a GPU for example, with an RDMA device, which then reads it
 * directly: by a dma-buf that its device exports for the block (ibv_reg_dmabuf_mr: rdma-core 34,
 * Linux 5.12; with CUDA from 11.7 on), or else by ibv_reg_mr(), which works where a kernel module
 * knows the memory (nvidia-peermem). If neither works, the sender has the memory's device copy it
 * into its slots, 16 KiB at a time.
 *
 * A registration is valid as long as the allocation at its address has the same id; memory that was
 * freed and allocated again has another one. Where the device gives no id (CUDA for memory of pools
 * and mapped memory), it is valid for its transfer only. Run with simulated devices and a simulated
 * libcuda so far (worker/fabric/verbs/verbs_pretend_gpu), not with a GPU.
 */
#include "worker/fabric/verbs/verbs_device.h"

#include "worker/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    REFUSALS_MAX = 4, /* in a row; after these, only every 64th registration is tried */
    SELDOM = 64,
    WHY_SIZE = 160,
};

static struct ibv_mr *by_dmabuf(const struct muster_verbs_device *device,
                                const struct muster_device_memory *memory, void *base,
                                size_t size_bytes, char *ret_why)
{
    int fd = -1;
    if (device->library->reg_dmabuf_mr == NULL) {
        (void)snprintf(ret_why, WHY_SIZE, "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34)");
        errno = ENOSYS;
        return NULL;
    }
    if (memory->device->export_pages(memory, base, size_bytes, &fd) != MUSTER_OK) {
        (void)snprintf(ret_why, WHY_SIZE, "%.150s", muster_last_error());
        errno = ENOSYS;
        return NULL;
    }
    struct ibv_mr *registered =
        device->library->reg_dmabuf_mr(device->domain, 0, size_bytes, (uintptr_t)base, fd, 0);
    int error = errno;
    (void)snprintf(ret_why, WHY_SIZE, "%.150s", strerror(error));
    (void)close(fd); /* the registration keeps its own reference */
    errno = error;
    return registered;
}

static void warn(const struct muster_verbs_device *device,
                 const struct muster_device_memory *memory, const char *why, int error)
{
    muster_log(MUSTER_LOG_WARN,
               "RDMA device %s cannot read memory of %s, which is therefore copied through the "
               "host. By dma-buf: %s; by ibv_reg_mr: %s. %s",
               device->name, memory->device->name, why, strerror(error),
               memory->device->rdma_advice);
}

struct ibv_mr *muster_verbs_register_device_memory(struct muster_verbs_device *device,
                                                   const struct muster_device_memory *memory,
                                                   void *base, size_t size_bytes)
{
    char why[WHY_SIZE];
    bool seldom = device->memory_refusals >= REFUSALS_MAX;
    if (seldom && device->memory_refusals % SELDOM != 0) {
        device->memory_refusals++;
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_mr *registered = by_dmabuf(device, memory, base, size_bytes, why);
    if (registered == NULL && errno != ENOMEM) {
        registered = device->library->reg_mr(device->domain, base, size_bytes, 0);
    }
    int error = errno;
    if (registered != NULL) {
        device->memory_refusals = 0;
    } else if (error != ENOMEM && device->memory_refusals++ == 0) {
        warn(device, memory, why, error);
    }
    errno = error;
    return registered;
}
