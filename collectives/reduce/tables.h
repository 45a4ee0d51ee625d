/* The same kernels for each instruction set. Private to the folder and its tests. */
#ifndef MUSTER_COLLECTIVES_REDUCE_TABLES_H
#define MUSTER_COLLECTIVES_REDUCE_TABLES_H

#include "collectives/reduce/reduce.h"

/* Every processor that the compiler was told to build for. NULL: the operation does not fit. */
extern const muster_reduce_function muster_kernels_plain[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];

#ifdef __x86_64__
extern const muster_reduce_function muster_kernels_avx2[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];
extern const muster_reduce_function muster_kernels_avx512[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];
#endif

/* True if this processor can run the table. */
bool muster_kernels_avx2_usable(void);
bool muster_kernels_avx512_usable(void);

#endif
