/*
 * libibverbs, loaded at the first use: one build of Muster serves machines with and without it.
 * Inline functions of its header (posting, polling) call the device's driver and need no symbol;
 * everything else is called through this table.
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_LIBRARY_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_LIBRARY_H

#include "worker/base/status.h"

#include <infiniband/verbs.h>

/* Macros of the same names hide the symbols. */
#undef ibv_query_port
#undef ibv_reg_mr

/* Every symbol that is used, except the two below. */
#define MUSTER_VERBS_SYMBOLS(X) \
    X(fork_init)                \
    X(get_device_list)          \
    X(free_device_list)         \
    X(get_device_name)          \
    X(open_device)              \
    X(close_device)             \
    X(query_device)             \
    X(query_port)               \
    X(port_state_str)           \
    X(alloc_pd)                 \
    X(dealloc_pd)               \
    X(reg_mr)                   \
    X(dereg_mr)                 \
    X(create_comp_channel)      \
    X(destroy_comp_channel)     \
    X(create_cq)                \
    X(destroy_cq)               \
    X(get_cq_event)             \
    X(ack_cq_events)            \
    X(create_qp)                \
    X(modify_qp)                \
    X(destroy_qp)               \
    X(wc_status_str)            \
    X(get_async_event)          \
    X(ack_async_event)          \
    X(event_type_str)

struct muster_verbs_library {
#define MUSTER_VERBS_MEMBER(name) __typeof__ (&ibv_##name)(name);
    MUSTER_VERBS_SYMBOLS(MUSTER_VERBS_MEMBER)
#undef MUSTER_VERBS_MEMBER
    __typeof__(&_ibv_query_gid_ex) query_gid_ex;
    /* NULL before rdma-core 34. */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *domain, uint64_t offset, size_t length,
                                    uint64_t address, int fd, int access);
};

/* Any thread. MUSTER_INVALID: the library is missing or too old; the text says what to do. */
MUSTER_CHECKED muster_status
muster_verbs_library_load(const struct muster_verbs_library **ret_library);

#endif
