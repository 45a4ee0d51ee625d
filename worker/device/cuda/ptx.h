/* The kernels for GPUs, as text in PTX. Private to the folder and its tests. */
#ifndef MUSTER_WORKER_DEVICE_CUDA_PTX_H
#define MUSTER_WORKER_DEVICE_CUDA_PTX_H

#include <stdbool.h>

/* Whether the library was built with them. */
bool muster_ptx_exists(void);

/* The kernels of one element type (muster_type_name()), whose names begin with it. The caller frees
 * the text. NULL: no memory. */
char *muster_ptx_of_type(const char *type_name);

#endif
