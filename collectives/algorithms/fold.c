/* Folding: reduces a group to a number of members that an algorithm can handle (generators.h). */
#include "collectives/algorithms/generators.h"

struct muster_fold muster_fold_of(uint32_t size, uint32_t active)
{
    return (struct muster_fold){.size = size, .active = active, .extras = size - active};
}

bool muster_fold_is_extra(const struct muster_fold *fold, uint32_t index)
{
    return index < 2 * fold->extras && index % 2 == 0;
}

uint32_t muster_fold_place(const struct muster_fold *fold, uint32_t index)
{
    return index < 2 * fold->extras ? index / 2 : index - fold->extras;
}

uint32_t muster_fold_index(const struct muster_fold *fold, uint32_t place)
{
    return place < fold->extras ? 2 * place + 1 : place + fold->extras;
}

void muster_fold_extra(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span)
{
    uint32_t neighbour = muster_group_rank(group, (uint64_t)group->index + 1);
    muster_builder_send(builder, neighbour, source, span);
    muster_builder_next_round(builder);
    muster_builder_recv(builder, neighbour, MUSTER_OUTPUT, span);
}
