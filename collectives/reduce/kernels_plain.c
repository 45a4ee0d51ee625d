/* The kernels for any processor, with vectors of 128 bits where the compiler knows such. */
#define MUSTER_KERNELS muster_kernels_plain
#define MUSTER_LANES 4
#include "collectives/reduce/kernels.h"
