/*
 * The functions of libnccl that are used, from 2.18 on, found at run time. Their types are written
 * out here, so that no header of NCCL is needed.
 *
 * Private to this folder.
 */
#ifndef MUSTER_WORKER_DEVICE_CUDA_NCCL_LIBRARY_H
#define MUSTER_WORKER_DEVICE_CUDA_NCCL_LIBRARY_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Values of nccl.h. */
enum {
    MUSTER_NCCL_VERSION_MIN = 21800, /* 2.18.0 */
    MUSTER_NCCL_ID_BYTES = 128,
    MUSTER_NCCL_IN_PROGRESS = 7, /* ncclResult_t; 0 is success */
};

/* ncclDataType_t */
enum muster_nccl_type {
    MUSTER_NCCL_INT8 = 0,
    MUSTER_NCCL_UINT8 = 1,
    MUSTER_NCCL_INT32 = 2,
    MUSTER_NCCL_UINT32 = 3,
    MUSTER_NCCL_INT64 = 4,
    MUSTER_NCCL_UINT64 = 5,
    MUSTER_NCCL_FLOAT16 = 6,
    MUSTER_NCCL_FLOAT32 = 7,
    MUSTER_NCCL_FLOAT64 = 8,
    MUSTER_NCCL_BFLOAT16 = 9,
};

/* ncclRedOp_t */
enum muster_nccl_op {
    MUSTER_NCCL_SUM = 0,
    MUSTER_NCCL_PROD = 1,
    MUSTER_NCCL_MAX = 2,
    MUSTER_NCCL_MIN = 3,
};

struct muster_nccl_id {
    char bytes[MUSTER_NCCL_ID_BYTES];
};

/* ncclConfig_t as in 2.18. Newer libraries take it, too: it says its size and version. */
struct muster_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, ctas_min, ctas_max;
    const char *net_name;
    int split_share;
};

/* All members that the user does not set. */
struct muster_nccl_config muster_nccl_config_default(void);

/* Each returns an ncclResult_t. A communicator and a stream are pointers; a stream is libcuda's. */
struct muster_nccl {
    int (*get_version)(int *ret_version);
    int (*get_unique_id)(struct muster_nccl_id *ret_id);
    int (*comm_init_rank_config)(void **ret_comm, int ranks, struct muster_nccl_id id, int rank,
                                 struct muster_nccl_config *config);
    int (*comm_finalize)(void *comm);
    int (*comm_abort)(void *comm);
    int (*comm_get_async_error)(void *comm, int *ret_error);
    const char *(*get_error_string)(int error);
    const char *(*get_last_error)(void *comm);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op, void *comm,
                      void *stream);
    int (*reduce_scatter)(const void *in, void *out, size_t out_count, int type, int op, void *comm,
                          void *stream);
    int (*all_gather)(const void *in, void *out, size_t in_count, int type, void *comm,
                      void *stream);
    int (*reduce)(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
                  void *stream);
    int (*broadcast)(const void *in, void *out, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int version; /* 22809 for 2.28.9 */
};

/* Finds the library that the program has loaded, else loads it: libnccl.so.2, or what MUSTER_NCCL
 * names. Once it is there it stays. MUSTER_INVALID: it is off, and the text says why. Any thread.
 */
MUSTER_CHECKED muster_status muster_nccl_library(const struct muster_nccl **ret_nccl);

/* "2.28.9" */
enum { MUSTER_NCCL_VERSION_SIZE = 40 };
void muster_nccl_print_version(int version, char ret_text[MUSTER_NCCL_VERSION_SIZE]);

#endif
