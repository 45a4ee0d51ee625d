/*
 * A message from posting to arrival. Posting a send takes posting_us on the sender's core, and
 * completing a receive takes as much on the receiver's. The rest of latency_us is the flight, or,
 * where ranks share cores, the waking of a sleeping receiver. A small (eager) message leaves when
 * it is posted, and is buffered until its receive is posted. A larger one also waits until the
 * sender knows that the receive is posted, which takes one latency_us (rendezvous).
 */
#include "collectives/simulate/simulate_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/status.h"

/* As in the TCP transport: the largest piece that is reduced while the next one arrives; and the
 * largest message that is not cut into segments, so that no other message is sent in between. */
static const double piece_bytes = 128 << 10;
static const double segment_bytes = 256 << 10;

/* In place of a lane: the channel is a link's. */
enum { ANY_LANE = UINT8_MAX };

/* Channels ------------------------------------------------------------------------------------ */

static uint64_t key_of(uint32_t sender, uint32_t receiver, uint8_t lane)
{
    _Static_assert(MUSTER_RANKS_MAX <= 1 << 24, "three numbers share 64 bits");
    return UINT64_C(1) << 63 | (uint64_t)lane << 48 | (uint64_t)sender << 24 | receiver;
}

static struct muster_sim_channel *find_slot(struct muster_sim_channel *channels, size_t capacity,
                                            uint64_t key)
{
    /* A multiplicative hash with the golden ratio: every bit of the key changes the upper bits. */
    size_t slot = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - __builtin_ctzl(capacity)));
    while (channels[slot].key != 0 && channels[slot].key != key) {
        slot = (slot + 1) & (capacity - 1);
    }
    return &channels[slot];
}

static bool grow_channels(struct muster_simulation *sim)
{
    size_t capacity = sim->channel_capacity == 0 ? 256 : 2 * sim->channel_capacity;
    struct muster_sim_channel *channels = calloc(capacity, sizeof *channels);
    if (channels == NULL) {
        sim->status =
            muster_error_set(MUSTER_FATAL, "simulation: no memory for %zu channels", capacity);
        return false;
    }
    for (size_t i = 0; i < sim->channel_capacity; i++) {
        if (sim->channels[i].key != 0) {
            *find_slot(channels, capacity, sim->channels[i].key) = sim->channels[i];
        }
    }
    free(sim->channels);
    sim->channels = channels;
    sim->channel_capacity = capacity;
    return true;
}

/* Finds or adds the channel. NULL: no memory, the simulation has failed. */
static struct muster_sim_channel *channel_of(struct muster_simulation *sim, uint32_t sender,
                                             uint32_t receiver, uint8_t lane)
{
    if (2 * sim->channel_count >= sim->channel_capacity && !grow_channels(sim)) {
        return NULL;
    }
    uint64_t key = key_of(sender, receiver, lane);
    struct muster_sim_channel *channel = find_slot(sim->channels, sim->channel_capacity, key);
    if (channel->key == 0) {
        *channel = (struct muster_sim_channel){
            .key = key, .first = MUSTER_NOTHING, .last = MUSTER_NOTHING};
        sim->channel_count++;
    }
    return channel;
}

/* The message of this end. The n-th send of a channel and its n-th receive are one message, whose
 * node is made by the end that is posted first. NULL: no memory. */
static struct muster_sim_node *find_message(struct muster_simulation *sim, uint32_t sender,
                                            uint32_t receiver, uint8_t lane, bool sends,
                                            uint32_t *ret_node)
{
    struct muster_sim_channel *channel = channel_of(sim, sender, receiver, lane);
    if (channel == NULL) {
        return NULL;
    }
    uint32_t first = channel->first;
    bool posted = first != MUSTER_NOTHING && (sim->nodes[first].step == MUSTER_NOTHING) == sends;
    if (posted) {
        channel->first = sim->nodes[first].next;
        *ret_node = first;
        return &sim->nodes[first];
    }
    uint32_t node = muster_sim_node_allocate(sim);
    if (node == MUSTER_NOTHING) {
        return NULL;
    }
    struct muster_sim_node *made = &sim->nodes[node];
    made->rank = sender;
    made->peer = receiver;
    made->level = (uint8_t)muster_sim_level(sim, sender, receiver);
    made->factor = muster_sim_link_factor(sim, sender, receiver);
    if (first == MUSTER_NOTHING) {
        channel->first = node;
    } else {
        sim->nodes[channel->last].next = node;
    }
    channel->last = node;
    *ret_node = node;
    return made;
}

/* Posting ------------------------------------------------------------------------------------- */

static const struct muster_link_figures *link_of(const struct muster_simulation *sim,
                                                 const struct muster_sim_node *message)
{
    return &sim->model.links[message->level];
}

static double size_bytes(const struct muster_simulation *sim, uint64_t count)
{
    return (double)count * (double)sim->element_size_bytes;
}

/* The latency without the postings: the flight, and the waking of a sleeping receiver. */
static double flight_us(const struct muster_simulation *sim, enum muster_link_level level)
{
    const struct muster_link_figures *link = &sim->model.links[level];
    double left_us = link->latency_us - 2 * link->posting_us;
    return left_us > 0 ? left_us : 0;
}

/* How long waking keeps a core busy. Ranks that share cores sleep while they wait. On one machine
 * nothing flies, so all of it is waking; else it is as much as for messages within a host. */
static double wake_us(const struct muster_simulation *sim, const struct muster_sim_node *message)
{
    if (!muster_sim_is_crowded(sim, message->peer)) {
        return 0;
    }
    double flight = flight_us(sim, message->level);
    double within = flight_us(sim, MUSTER_LEVEL_HOST);
    return sim->model.core.one_machine != 0 || flight < within ? flight : within;
}

static void check_sizes(struct muster_simulation *sim, const struct muster_sim_node *message)
{
    const struct muster_sim_step *send = &sim->ranks[message->rank].steps[message->step];
    const struct muster_sim_step *receive = &sim->ranks[message->peer].steps[message->peer_step];
    if (send->count != receive->count && sim->status == MUSTER_OK) {
        sim->status =
            muster_error_set(MUSTER_INVALID,
                             "rank %" PRIu32 " lane %u: sends %" PRIu64 " elements to rank %" PRIu32
                             ", which receives %" PRIu64,
                             message->rank, send->lane, send->count, message->peer, receive->count);
    }
}

/* Both ends of a large message are posted; the message leaves when both are ready. The earlier
 * end's time is in ready_us. */
static void start_when_ready(struct muster_simulation *sim, uint32_t node, double ready_us)
{
    double other_us = sim->nodes[node].ready_us;
    muster_sim_schedule(sim, node, MUSTER_SIM_FLOW_START,
                        ready_us > other_us ? ready_us : other_us);
}

void muster_sim_post_send(struct muster_simulation *sim, uint32_t rank, uint32_t step)
{
    const struct muster_sim_step *send = &sim->ranks[rank].steps[step];
    uint32_t node;
    struct muster_sim_node *message = find_message(sim, rank, send->peer, send->lane, true, &node);
    if (message == NULL) {
        return;
    }
    message->step = step;
    double bytes = size_bytes(sim, send->count);
    message->left_bytes = bytes;
    message->eager = bytes <= (double)sim->model.eager_bytes;
    double ready_us = muster_sim_work(sim, rank, sim->now_us, link_of(sim, message)->posting_us);
    if (message->peer_step != MUSTER_NOTHING) {
        check_sizes(sim, message);
    }
    if (message->eager) {
        muster_sim_schedule(sim, node, MUSTER_SIM_FLOW_START, ready_us);
        muster_sim_finish_step(sim, rank, step, ready_us);
    } else if (message->peer_step != MUSTER_NOTHING) {
        start_when_ready(sim, node, ready_us);
    } else {
        message->ready_us = ready_us;
    }
}

/* The work that is left when the last byte has arrived. All pieces but the last could be reduced
 * while the rest was arriving, if the core had time. */
static double reduce_us(struct muster_simulation *sim, const struct muster_sim_node *message,
                        double bytes)
{
    double piece = bytes < piece_bytes ? bytes : piece_bytes;
    double byte_us = 1 / (sim->model.core.reduce_GBps * 1e3);
    double wire_us = sim->now_us - message->flow_us; /* from the first byte to the last */
    double span_us = bytes > 0 ? wire_us * (bytes - piece) / bytes : 0;
    double before_us = muster_sim_work_before(sim, message->peer, span_us, &message->busy,
                                              (bytes - piece) * byte_us);
    return bytes * byte_us - before_us;
}

/* Completes the receive of a message that has arrived: posting, waking and reducing on its core. */
static void complete_receive(struct muster_simulation *sim, uint32_t node, double waking_us)
{
    const struct muster_sim_node *message = &sim->nodes[node];
    const struct muster_sim_step *receive = &sim->ranks[message->peer].steps[message->peer_step];
    double work_us = link_of(sim, message)->posting_us + waking_us;
    if (receive->kind == MUSTER_STEP_RECV_REDUCE) {
        work_us += reduce_us(sim, message, size_bytes(sim, receive->count));
    }
    muster_sim_finish_step(sim, message->peer, message->peer_step,
                           muster_sim_work(sim, message->peer, sim->now_us, work_us));
    muster_sim_node_free(sim, node);
}

void muster_sim_post_receive(struct muster_simulation *sim, uint32_t rank, uint32_t step)
{
    const struct muster_sim_step *receive = &sim->ranks[rank].steps[step];
    uint32_t node;
    struct muster_sim_node *message =
        find_message(sim, receive->peer, rank, receive->lane, false, &node);
    if (message == NULL) {
        return;
    }
    message->peer_step = step;
    /* When the sender learns of it. */
    double ready_us = sim->now_us + link_of(sim, message)->latency_us * message->factor;
    if (message->step == MUSTER_NOTHING) {
        message->ready_us = ready_us;
        return;
    }
    check_sizes(sim, message);
    if (message->arrived) {
        complete_receive(sim, node, 0);
    } else if (!message->eager) {
        start_when_ready(sim, node, ready_us);
    }
}

/* Events -------------------------------------------------------------------------------------- */

static void begin_flow(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    message->flow_us = sim->now_us;
    message->busy = muster_sim_busy(sim, message->peer);
    if (message->left_bytes > 0) {
        muster_sim_flow_begin(sim, node);
    } else {
        muster_sim_schedule(sim, node, MUSTER_SIM_FLOW_END, sim->now_us);
    }
}

static bool is_whole(const struct muster_sim_node *message)
{
    return message->left_bytes <= segment_bytes;
}

/* Messages that are not cut leave over a link one after the other. True: it is this one's turn. */
static bool queue_on_link(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    struct muster_sim_channel *link = channel_of(sim, message->rank, message->peer, ANY_LANE);
    if (link == NULL) {
        return false;
    }
    message->whole = true;
    message->link_next = MUSTER_NOTHING;
    bool first = link->first == MUSTER_NOTHING;
    if (first) {
        link->first = node;
    } else {
        sim->nodes[link->last].link_next = node;
    }
    link->last = node;
    return first;
}

/* Removes the message, which has left, from its link's queue, and starts the next one. */
static void start_next(struct muster_simulation *sim, const struct muster_sim_node *message)
{
    struct muster_sim_channel *link = channel_of(sim, message->rank, message->peer, ANY_LANE);
    if (link == NULL) {
        return;
    }
    link->first = sim->nodes[link->first].link_next;
    if (link->first != MUSTER_NOTHING) {
        begin_flow(sim, link->first);
    }
}

void muster_sim_start_flow(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    if (muster_sim_link_dead_us(sim, message->rank, message->peer) <= sim->now_us) {
        return; /* it never arrives; muster_sim_explain() finds the ranks that wait for it */
    }
    sim->messages[message->level]++;
    sim->bytes[message->level] += (uint64_t)message->left_bytes;
    if (!is_whole(message) || queue_on_link(sim, node)) {
        begin_flow(sim, node);
    }
}

void muster_sim_end_flow(struct muster_simulation *sim, uint32_t node)
{
    muster_sim_flow_end(sim, node);
    struct muster_sim_node *message = &sim->nodes[node];
    if (message->whole) {
        start_next(sim, message);
    }
    double left_us = (flight_us(sim, message->level) - wake_us(sim, message)) * message->factor;
    if (!message->eager) {
        muster_sim_step_done(sim, message->rank, message->step);
        message = &sim->nodes[node]; /* the messages of the next round may have moved it */
    }
    message->flow_us += left_us; /* from here on: when the first byte arrives */
    muster_sim_schedule(sim, node, MUSTER_SIM_ARRIVAL, sim->now_us + left_us);
}

void muster_sim_arrive(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    message->arrived = true;
    if (sim->ranks[message->peer].dead_us <= sim->now_us) {
        return;
    }
    if (message->peer_step != MUSTER_NOTHING) {
        bool sleeps = sim->ranks[message->peer].core_free_us <= sim->now_us;
        complete_receive(sim, node, sleeps ? wake_us(sim, message) : 0);
    }
}
