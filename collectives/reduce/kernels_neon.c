/* The kernels with 128-bit vectors for 64-bit ARM. */
#ifdef __aarch64__
#define MUSTER_KERNELS muster_kernels_neon
#define MUSTER_LANES 4
#include "collectives/reduce/kernels.h"
#else
typedef int muster_no_kernels_neon; /* a file must not be empty */
#endif
