/* The kernels with 512-bit vectors that also compute with float16 (see CMakeLists.txt). */
#ifdef MUSTER_AVX512FP16
#define MUSTER_KERNELS muster_kernels_avx512fp16
#define MUSTER_LANES 16
#include "collectives/reduce/kernels.h"
#else
typedef int muster_no_kernels_avx512fp16; /* a file must not be empty */
#endif
