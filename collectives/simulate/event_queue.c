/* Nodes, and the heap of their events: what happens next. */
#include "collectives/simulate/simulate_parts.h"

#include <stdlib.h>

#include "worker/base/status.h"

static const double grid_points = 1024; /* in a microsecond */

double muster_sim_grid_us(double time_us)
{
    double points = time_us * grid_points;
    if (!(points < 0x1p62)) {
        return time_us; /* too large for the grid, or not finite */
    }
    uint64_t whole = (uint64_t)points;
    return (double)((double)whole < points ? whole + 1 : whole) / grid_points;
}

static bool grow_nodes(struct muster_simulation *sim)
{
    uint32_t capacity = sim->node_capacity == 0 ? 64 : 2 * sim->node_capacity;
    struct muster_sim_node *nodes = NULL;
    /* The number of a use must fit into 32 bits. */
    if (capacity < UINT32_MAX / MUSTER_SIM_USES_MAX) {
        nodes = realloc(sim->nodes, capacity * sizeof *nodes);
    }
    if (nodes == NULL) {
        sim->status =
            muster_error_set(MUSTER_FATAL, "simulation: no memory for %u messages", capacity);
        return false;
    }
    sim->nodes = nodes;
    sim->node_capacity = capacity;
    return true;
}

uint32_t muster_sim_node_allocate(struct muster_simulation *sim)
{
    uint32_t node = sim->free_node;
    if (node != MUSTER_NOTHING) {
        sim->free_node = sim->nodes[node].next;
    } else if (sim->node_count < sim->node_capacity || grow_nodes(sim)) {
        node = sim->node_count++;
    } else {
        return MUSTER_NOTHING;
    }
    struct muster_sim_node *taken = &sim->nodes[node];
    taken->event = 0;
    taken->use_count = 0;
    taken->eager = false;
    taken->whole = false;
    taken->arrived = false;
    taken->step = taken->peer_step = MUSTER_NOTHING;
    taken->next = MUSTER_NOTHING;
    taken->place = MUSTER_NOTHING;
    taken->rated = 0;
    return node;
}

void muster_sim_node_free(struct muster_simulation *sim, uint32_t node)
{
    sim->nodes[node].event = 0;
    sim->nodes[node].next = sim->free_node;
    sim->free_node = node;
}

/* Events at the same time are handled lane by lane, and in the same order on all ranks, so that
 * ranks with the same steps stay in step. */
static uint64_t order_of(const struct muster_simulation *sim, const struct muster_sim_node *node)
{
    _Static_assert(MUSTER_RANKS_MAX <= 1 << 24, "three numbers share 64 bits");
    uint64_t lane =
        node->step == MUSTER_NOTHING ? 0 : sim->ranks[node->rank].steps[node->step].lane;
    return lane << 56 | (uint64_t)node->event << 48 | node->rank;
}

static bool earlier(const struct muster_sim_entry *one, const struct muster_sim_entry *other)
{
    return one->at_us < other->at_us || (one->at_us == other->at_us && one->order < other->order);
}

static void set(struct muster_simulation *sim, size_t place, struct muster_sim_entry entry)
{
    sim->queue[place] = entry;
    sim->nodes[entry.node].place = (uint32_t)place;
}

static void sift_up(struct muster_simulation *sim, size_t place, struct muster_sim_entry entry)
{
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        if (!earlier(&entry, &sim->queue[parent])) {
            break;
        }
        set(sim, place, sim->queue[parent]);
        place = parent;
    }
    set(sim, place, entry);
}

static void sift_down(struct muster_simulation *sim, size_t place, struct muster_sim_entry entry)
{
    while (true) {
        size_t child = 2 * place + 1;
        if (child >= sim->queue_count) {
            break;
        }
        if (child + 1 < sim->queue_count && earlier(&sim->queue[child + 1], &sim->queue[child])) {
            child++;
        }
        if (!earlier(&sim->queue[child], &entry)) {
            break;
        }
        set(sim, place, sim->queue[child]);
        place = child;
    }
    set(sim, place, entry);
}

/* Puts the last entry in its place, which may have to move in either direction. */
static void remove_at(struct muster_simulation *sim, size_t place)
{
    sim->nodes[sim->queue[place].node].place = MUSTER_NOTHING;
    struct muster_sim_entry last = sim->queue[--sim->queue_count];
    if (place == sim->queue_count) {
        return;
    }
    if (place > 0 && earlier(&last, &sim->queue[(place - 1) / 2])) {
        sift_up(sim, place, last);
    } else {
        sift_down(sim, place, last);
    }
}

static bool grow_queue(struct muster_simulation *sim)
{
    size_t capacity = sim->queue_capacity == 0 ? 64 : 2 * sim->queue_capacity;
    struct muster_sim_entry *queue = realloc(sim->queue, capacity * sizeof *queue);
    if (queue == NULL) {
        sim->status =
            muster_error_set(MUSTER_FATAL, "simulation: no memory for %zu events", capacity);
        return false;
    }
    sim->queue = queue;
    sim->queue_capacity = capacity;
    return true;
}

void muster_sim_schedule(struct muster_simulation *sim, uint32_t node, uint8_t event, double at_us)
{
    muster_sim_cancel(sim, node);
    if (sim->queue_count == sim->queue_capacity && !grow_queue(sim)) {
        return;
    }
    sim->nodes[node].event = event;
    struct muster_sim_entry entry = {.at_us = muster_sim_grid_us(at_us),
                                     .order = order_of(sim, &sim->nodes[node]),
                                     .node = node};
    sift_up(sim, sim->queue_count++, entry);
}

void muster_sim_cancel(struct muster_simulation *sim, uint32_t node)
{
    if (sim->nodes[node].place != MUSTER_NOTHING) {
        remove_at(sim, sim->nodes[node].place);
    }
}

uint32_t muster_sim_pop(struct muster_simulation *sim)
{
    uint32_t node = sim->queue[0].node;
    remove_at(sim, 0);
    return node;
}

void muster_sim_finish_step(struct muster_simulation *sim, uint32_t rank, uint32_t step,
                            double at_us)
{
    uint32_t node = muster_sim_node_allocate(sim);
    if (node != MUSTER_NOTHING) {
        sim->nodes[node].rank = rank;
        sim->nodes[node].step = step;
        muster_sim_schedule(sim, node, MUSTER_SIM_WORK_DONE, at_us);
    }
}
