/* The kernels with 512-bit vectors; compiled with -mavx512{f,bw,dq,vl} (see CMakeLists.txt). */
#ifdef __x86_64__
#define MUSTER_KERNELS muster_kernels_avx512
#define MUSTER_LANES 16
#include "collectives/reduce/kernels.h"
#else
typedef int muster_no_kernels_avx512; /* a file must not be empty */
#endif
