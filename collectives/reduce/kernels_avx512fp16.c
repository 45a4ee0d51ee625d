/* The kernels with 512-bit vectors and arithmetic on float16; compiled also with -mavx512fp16. */
#include "collectives/reduce/tables.h"

#ifdef MUSTER_AVX512FP16
#define MUSTER_KERNELS muster_kernels_avx512fp16
#define MUSTER_LANES 16
#include "collectives/reduce/kernels.h"
#endif
