/* Checks of records that are byte strings. */
#include "worker/base/bytes.h"

muster_status muster_bytes_check_size(const char *what, size_t size_bytes, size_t expected_bytes)
{
    return size_bytes == expected_bytes
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "%s of %zu bytes, expected %zu", what, size_bytes,
                                  expected_bytes);
}
