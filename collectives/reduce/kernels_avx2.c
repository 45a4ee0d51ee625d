/* The kernels with 256-bit vectors; compiled with -mavx2 and -mf16c (see CMakeLists.txt). */
#ifdef __x86_64__
#define MUSTER_KERNELS muster_kernels_avx2
#define MUSTER_LANES 8
#include "collectives/reduce/kernels.h"
#else
typedef int muster_no_kernels_avx2; /* a file must not be empty */
#endif
