/*
 * The loops of the kernels on a GPU, in place of those of kernels.h, which includes this file where
 * clang makes PTX of it (worker/device/cuda). Each kernel is called by many threads, thread number
 * `gpu_thread()` of `gpu_threads()`, and each thread handles a part of the elements:
 *
 *   elements   0 .. head | pack | pack | pack | ...  | rest         a pack is 16 bytes
 *   threads    0 1 2 ... | 0    | 1    | 2    | ...  | head ...     each goes on by gpu_threads()
 *
 * There are packs if all operands are equally far from a multiple of 16 bytes.
 *
 * The tests compile the same file for the CPU, with MUSTER_GPU_PRETENDED.
 */
#ifndef MUSTER_COLLECTIVES_REDUCE_KERNELS_GPU_H
#define MUSTER_COLLECTIVES_REDUCE_KERNELS_GPU_H

#ifdef __NVPTX__
#define GLOBAL __attribute__((address_space(1))) /* memory of the GPU, or of the host */
#define NAN __builtin_nanf("")

static inline size_t gpu_thread(void)
{
    return (size_t)__nvvm_read_ptx_sreg_ctaid_x() * (size_t)__nvvm_read_ptx_sreg_ntid_x() +
           (size_t)__nvvm_read_ptx_sreg_tid_x();
}

static inline size_t gpu_threads(void)
{
    return (size_t)__nvvm_read_ptx_sreg_nctaid_x() * (size_t)__nvvm_read_ptx_sreg_ntid_x();
}
#else
#include <math.h>
#define GLOBAL
size_t gpu_thread(void);
size_t gpu_threads(void);
#endif

enum { GPU_PACK_BYTES = 16 };

typedef uint32_t gpu_pack __attribute__((vector_size(GPU_PACK_BYTES)));

/* How `count` elements are divided. */
struct gpu_parts {
    size_t head, packs, rest; /* elements, packs, elements */
};

static inline struct gpu_parts gpu_divide(size_t count, size_t element_bytes, size_t address,
                                          size_t differences)
{
    struct gpu_parts parts = {.rest = count};
    size_t head = (0 - address) % GPU_PACK_BYTES / element_bytes;
    if (differences % GPU_PACK_BYTES == 0 && head < count) {
        parts.head = head;
        parts.packs = (count - head) / (GPU_PACK_BYTES / element_bytes);
        parts.rest = count - head - parts.packs * (GPU_PACK_BYTES / element_bytes);
    }
    return parts;
}

/* Elements of a pack, whose bytes are in the order of their addresses. They are taken out of words
 * by shifts: the compiler keeps no array in registers whose elements are smaller. */
static inline uint64_t gpu_pack_get(gpu_pack pack, size_t k, size_t element_bytes)
{
    return element_bytes == 8 ? pack[2 * k] | (uint64_t)pack[2 * k + 1] << 32
                              : pack[k * element_bytes / 4] >> (k * element_bytes % 4 * 8);
}

static inline void gpu_pack_add(gpu_pack *pack, size_t k, size_t element_bytes, uint64_t bits)
{
    if (element_bytes == 8) {
        (*pack)[2 * k] = (uint32_t)bits;
        (*pack)[2 * k + 1] = (uint32_t)(bits >> 32);
    } else {
        (*pack)[k * element_bytes / 4] |= (uint32_t)bits << (k * element_bytes % 4 * 8);
    }
}

#define GPU_GET(type, pack, k)                                          \
    __extension__({                                                     \
        const uint64_t bits_ = gpu_pack_get((pack), (k), sizeof(type)); \
        type element_;                                                  \
        __builtin_memcpy(&element_, &bits_, sizeof element_);           \
        element_;                                                       \
    })

#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED
#endif

/* The loops over all elements: `for_each` element of a pack, number k of pack number `at`, and
 * `for_one` element, number i. */
#define GPU_LOOPS(type, parts, load, for_each, for_one)                                     \
    GLOBAL type *out = (GLOBAL type *)target;                                               \
    for (size_t at = gpu_thread(); at < (parts).packs; at += gpu_threads()) {               \
        gpu_pack result = {0};                                                              \
        load;                                                                               \
        UNROLLED                                                                            \
        for (size_t k = 0; k < GPU_PACK_BYTES / sizeof(type); k++) {                        \
            const type element = (for_each);                                                \
            uint64_t bits = 0;                                                              \
            __builtin_memcpy(&bits, &element, sizeof element);                              \
            gpu_pack_add(&result, k, sizeof element, bits);                                 \
        }                                                                                   \
        ((GLOBAL gpu_pack *)(out + (parts).head))[at] = result;                             \
    }                                                                                       \
    for (size_t at = gpu_thread(); at < (parts).head + (parts).rest; at += gpu_threads()) { \
        size_t packed = (parts).packs * (GPU_PACK_BYTES / sizeof(type));                    \
        size_t i = at < (parts).head ? at : at + packed;                                    \
        out[i] = for_one;                                                                   \
    }

/* Pack or element of memory. */
#define GPU_PACK_AT(memory, type, head, at) \
    (((const GLOBAL gpu_pack *)((const GLOBAL type *)(memory) + (head)))[at])
#define GPU_ELEMENT_AT(memory, type, at) (((const GLOBAL type *)(memory))[at])

/* target[i] = expression of a = left[i] and b = right[i] */
#define GPU_KERNEL(name, type, expression)                                                   \
    static inline type name##_one(type a, type b)                                            \
    {                                                                                        \
        return (type)(expression);                                                           \
    }                                                                                        \
    void name(void *target, const void *left, const void *right, size_t count);              \
    void name(void *target, const void *left, const void *right, size_t count)               \
    {                                                                                        \
        const struct gpu_parts parts =                                                       \
            gpu_divide(count, sizeof(type), (size_t)target,                                  \
                       ((size_t)target ^ (size_t)left) | ((size_t)target ^ (size_t)right));  \
        GPU_LOOPS(type, parts, const gpu_pack a = GPU_PACK_AT(left, type, parts.head, at);   \
                  const gpu_pack b = GPU_PACK_AT(right, type, parts.head, at),               \
                  name##_one(GPU_GET(type, a, k), GPU_GET(type, b, k)),                      \
                  name##_one(GPU_ELEMENT_AT(left, type, i), GPU_ELEMENT_AT(right, type, i))) \
    }

/* What scaling and dividing do with one element. */
#define GPU_SCALE_KERNEL(name, type, factor_type, expression)  \
    static inline type name##_scale_one(type value, double by) \
    {                                                          \
        const factor_type factor = (factor_type)by;            \
        return (type)(expression);                             \
    }
#define GPU_DIVIDE_KERNEL(name, type, divisor_type, expression)   \
    static inline type name##_divide_one(type value, uint64_t by) \
    {                                                             \
        const divisor_type divisor = (divisor_type)by;            \
        return (type)(expression);                                \
    }

/* target[i] = source[i] / divisor x factor, where neither step is done with a 1. */
#define FINISH_LOOPS(name, type)                                                                  \
    void name##_finish(void *target, const void *source, size_t count, uint64_t divisor,          \
                       double factor);                                                            \
    void name##_finish(void *target, const void *source, size_t count, uint64_t divisor,          \
                       double factor)                                                             \
    {                                                                                             \
        const struct gpu_parts parts =                                                            \
            gpu_divide(count, sizeof(type), (size_t)target, (size_t)target ^ (size_t)source);     \
        GPU_LOOPS(type, parts, const gpu_pack values = GPU_PACK_AT(source, type, parts.head, at), \
                  name##_finish_one(GPU_GET(type, values, k), divisor, factor),                   \
                  name##_finish_one(GPU_ELEMENT_AT(source, type, i), divisor, factor))            \
    }

#define FINISH_KERNEL(name, type)                                                     \
    static inline type name##_finish_one(type value, uint64_t divisor, double factor) \
    {                                                                                 \
        value = divisor != 1 ? name##_divide_one(value, divisor) : value;             \
        return factor != 1 ? name##_scale_one(value, factor) : value;                 \
    }                                                                                 \
    FINISH_LOOPS(name, type)

/* 16-bit floats are computed as float32 and rounded once. */
#define SHORT_FLOAT_KERNELS(name)                                                             \
    GPU_KERNEL(name##_sum, uint16_t,                                                          \
               muster_##name##_narrow(muster_##name##_widen(a) + muster_##name##_widen(b)))   \
    GPU_KERNEL(name##_prod, uint16_t,                                                         \
               muster_##name##_narrow(muster_##name##_widen(a) * muster_##name##_widen(b)))   \
    static inline uint16_t name##_finish_one(uint16_t value, uint64_t divisor, double factor) \
    {                                                                                         \
        float wide = muster_##name##_widen(value);                                            \
        wide = divisor != 1 ? float32_divide_one(wide, divisor) : wide;                       \
        wide = factor != 1 ? float32_scale_one(wide, factor) : wide;                          \
        return muster_##name##_narrow(wide);                                                  \
    }                                                                                         \
    FINISH_LOOPS(name, uint16_t)

#endif
