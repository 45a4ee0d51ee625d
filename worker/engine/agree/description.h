/*
 * Describes a named tensor to other ranks: what all of them must give alike, and how that is sent.
 * Pure.
 */
#ifndef MUSTER_WORKER_ENGINE_AGREE_DESCRIPTION_H
#define MUSTER_WORKER_ENGINE_AGREE_DESCRIPTION_H

#include <stdbool.h>

#include "collectives/call/collective.h"
#include "worker/base/status.h"

enum {
    MUSTER_TENSOR_NAME_MAX = 255, /* bytes */
    MUSTER_DESCRIPTION_VERSION = 1,
    MUSTER_DESCRIPTION_HEAD_SIZE = 56, /* of an encoded description, without its name */
    MUSTER_DESCRIPTION_SIZE_MAX = MUSTER_DESCRIPTION_HEAD_SIZE + MUSTER_TENSOR_NAME_MAX,
};

enum muster_description_flag {
    MUSTER_TENSOR_REPRODUCIBLE = 1,
    MUSTER_TENSOR_ALONE = 2, /* fused only with tensors of its group */
};

struct muster_description {
    uint64_t count;   /* elements; 0 where ranks may differ in it */
    double prescale;  /* 1: none */
    double postscale; /* 1: none */
    uint64_t group;   /* the same number in all tensors of a group; 0: in none */
    uint32_t root;
    int32_t priority; /* of rank 0, or of who described the tensor first: not compared */
    uint8_t kind;     /* muster_tensor_kind */
    uint8_t type;     /* muster_type */
    uint8_t op;       /* muster_op */
    uint8_t flags;    /* enum muster_description_flag */
};

/* "allreduce", "barrier"; "unknown" for values out of range. */
const char *muster_tensor_kind_name(uint32_t kind);

/* Whether two ranks that give these submit the same tensor. */
bool muster_descriptions_match(const struct muster_description *one,
                               const struct muster_description *other);

/* The first thing in which they differ, and both values: "count 10", "count 12". */
void muster_descriptions_differ(const struct muster_description *one,
                                const struct muster_description *other, char ret_one[64],
                                char ret_other[64]);

/* Bytes of all elements; UINT64_MAX if that overflows. */
uint64_t muster_description_bytes(const struct muster_description *description);

/* Writes it to `bytes`, which has room for MUSTER_DESCRIPTION_SIZE_MAX; returns the size. The name
 * has 1 to MUSTER_TENSOR_NAME_MAX bytes. */
size_t muster_description_encode(const char *name, const struct muster_description *description,
                                 unsigned char *bytes);

/* Reads one from the first of `size` bytes. *ret_used: how many it has. MUSTER_FATAL: these bytes
 * are no description of this version. */
MUSTER_CHECKED muster_status muster_description_decode(const unsigned char *bytes, size_t size,
                                                       char ret_name[MUSTER_TENSOR_NAME_MAX + 1],
                                                       struct muster_description *ret_description,
                                                       size_t *ret_used);

#endif
