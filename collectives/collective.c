#include "collectives/collective.h"

size_t muster_type_size_bytes(muster_type type)
{
    static const size_t sizes[MUSTER_TYPE_COUNT] = {4, 8, 4, 8, 1};
    return (unsigned)type < MUSTER_TYPE_COUNT ? sizes[type] : 0;
}
