/* The kernels for any processor. */
#define MUSTER_KERNELS muster_kernels_plain
#include "collectives/reduce/kernels.h"
