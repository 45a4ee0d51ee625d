/* The shares of a level, and who owns them. */
#include "collectives/algorithms/level.h"

struct muster_span muster_level_share(const struct muster_level *level, uint32_t index)
{
    return muster_span_part(level->span, level->owners, index);
}

bool muster_level_owns(const struct muster_level *level, uint32_t index)
{
    return index < level->owners;
}
