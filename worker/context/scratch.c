/* Memory that is kept from launch to launch. */
#include "worker/context/scratch.h"

#include <stdlib.h>

muster_status muster_scratch_reserve(struct muster_scratch *scratch, uint64_t size_bytes)
{
    void *memory = NULL;
    if (size_bytes <= scratch->size_bytes) {
        return MUSTER_OK;
    }
    if (posix_memalign(&memory, MUSTER_SCRATCH_ALIGNMENT, size_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory for %llu bytes of scratch",
                                (unsigned long long)size_bytes);
    }
    free(scratch->memory);
    *scratch = (struct muster_scratch){.memory = memory, .size_bytes = size_bytes};
    return MUSTER_OK;
}
