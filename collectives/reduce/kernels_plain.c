/* The kernels for any processor, with 128-bit vectors where the compiler has them. */
#define MUSTER_KERNELS muster_kernels_plain
#define MUSTER_LANES 4
#include "collectives/reduce/kernels.h"
