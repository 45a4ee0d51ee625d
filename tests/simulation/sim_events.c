/* The events that are still to come, in a heap by time. */
#include "tests/simulation/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sim_message *sim_message_copy(const struct sim_message *message)
{
    struct sim_message *copy = malloc(sizeof *copy);
    assert(copy != NULL);
    *copy = *message;
    if (message->body != NULL) {
        copy->body = malloc(message->size_bytes + 1);
        assert(copy->body != NULL);
        memcpy(copy->body, message->body, message->size_bytes);
        copy->body[message->size_bytes] = '\0';
    }
    return copy;
}

void sim_message_free(struct sim_message *message)
{
    if (message != NULL) {
        free(message->body);
        free(message);
    }
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

void sim_push(struct sim *sim, int64_t at_ns, struct sim_event event)
{
    if (sim->count == sim->capacity) {
        sim->capacity = sim->capacity > 0 ? 2 * sim->capacity : 256;
        sim->heap = reallocarray(sim->heap, sim->capacity, sizeof *sim->heap);
        assert(sim->heap != NULL);
    }
    event.at_ns = at_ns > sim->now_ns ? at_ns : sim->now_ns;
    event.sequence = ++sim->sequence;
    size_t at = sim->count++;
    while (at > 0 && is_before(&event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = event;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event first = sim->heap[0];
    struct sim_event last = sim->heap[--sim->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < sim->count && is_before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (child >= sim->count || is_before(&last, &sim->heap[child])) {
            break;
        }
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (sim->count > 0) {
        sim->heap[at] = last;
    }
    return first;
}

/* The handler may take the message. */
bool sim_step(struct sim *sim)
{
    if (sim->count == 0) {
        return false;
    }
    struct sim_event event = pop(sim);
    sim->now_ns = event.at_ns;
    sim_clock_set(sim->now_ns);
    sim->steps++;
    sim->totals->events++;
    event.run(sim, &event);
    sim_message_free(event.message);
    return true;
}
