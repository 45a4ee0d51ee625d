/* Messages through slots: a frame is copied into one of ours, the device carries it into one of the
 * peer's, and there it is reduced, or copied to where it belongs. */
#include "worker/fabric/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { FRAMES_MAX = 16 }; /* taken in one go, then other links have their turn */

enum taken {
    TAKEN_NOTHING = 0,
    TAKEN_FRAME = 1,
    TAKEN_LAST = 2, /* the link is over */
};

/* Going out ---------------------------------------------------------------------------------- */

/* So many bytes of the slot, or none: then it returns credits only. */
static bool post(struct verbs_path *path, uint32_t slot, uint32_t size, uint32_t flags)
{
    struct ibv_sge part = {.addr = (uintptr_t)muster_verbs_send_slot(path, slot),
                           .length = size,
                           .lkey = path->registered->lkey};
    struct ibv_send_wr work = {
        .wr_id = muster_verbs_work(path, size > 0 ? VERBS_WORK_FRAME : VERBS_WORK_EMPTY, slot),
        .sg_list = &part,
        .num_sge = size > 0,
        .opcode = IBV_WR_SEND_WITH_IMM,
        .send_flags = size > 0 && size <= VERBS_INLINE_BYTES ? IBV_SEND_INLINE : 0,
        .imm_data = htonl(path->owed | flags)};
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(path->pair, &work, &bad);
    if (error != 0) {
        if (path->failure[0] == '\0') {
            (void)snprintf(path->failure, sizeof path->failure, "a send cannot be posted: %s",
                           strerror(error));
        }
        muster_link_mark(path->link->link);
        return false;
    }
    path->owed = 0;
    path->sends++;
    path->credit_sends += size == 0;
    return true;
}

/* The slot stays taken until its send is complete. */
static uint32_t take_slot(struct verbs_path *path)
{
    uint32_t slot = (uint32_t)__builtin_ctz(path->free_slots);
    path->free_slots &= path->free_slots - 1;
    return slot;
}

static bool put(struct verbs_path *path, const unsigned char *header, const unsigned char *data,
                uint32_t size)
{
    if (path->credits == 0 || path->free_slots == 0 || path->failure[0] != '\0') {
        return false;
    }
    uint32_t slot = take_slot(path);
    unsigned char *to = muster_verbs_send_slot(path, slot);
    memcpy(to, header, MUSTER_FRAME_SIZE);
    if (size > 0) {
        memcpy(to + MUSTER_FRAME_SIZE, data, size);
    }
    path->credits--;
    return post(path, slot, MUSTER_FRAME_SIZE + size, 0);
}

static bool put_control(struct verbs_link *link)
{
    struct muster_frame_queue *control = &link->match.control;
    while (control->start < control->end) {
        const unsigned char *header = control->bytes + control->start;
        uint32_t size = muster_frame_length(header);
        if (!put(link->path, header, header + MUSTER_FRAME_SIZE, size)) {
            return false;
        }
        control->start += MUSTER_FRAME_SIZE + size;
    }
    return true;
}

static bool put_data(struct verbs_link *link)
{
    struct muster_match *match = &link->match;
    link->has_next = link->has_next || muster_match_next(match, &link->next_out);
    if (!link->has_next ||
        !put(link->path, link->next_out.header, link->next_out.data, link->next_out.size)) {
        return false;
    }
    const struct muster_outgoing out = link->next_out;
    link->has_next = false; /* the done function may post the next message, and so come back here */
    muster_match_sent(match, &out);
    return true;
}

/* The peer may be waiting for them, and there was nothing to send that they could go with. At most
 * two are on their way: for each the peer has used up what the one before gave it. */
static void return_credits(struct verbs_path *path)
{
    if (path->owed >= VERBS_CREDITS_HELD && path->credit_sends < VERBS_CREDIT_SENDS &&
        path->failure[0] == '\0') {
        (void)post(path, 0, 0, 0);
    }
}

void muster_verbs_flush(struct verbs_link *link)
{
    struct verbs_path *path = link->path;
    if (put_control(link)) {
        while (put_data(link)) {
        }
    }
    if (link->path == path) {
        return_credits(path);
    }
}

void muster_verbs_send_proof(struct verbs_path *path)
{
    uint32_t mtu =
        path->theirs.mtu < path->verbs->device.mtu ? path->theirs.mtu : path->verbs->device.mtu;
    (void)post(path, take_slot(path), 128U << mtu, VERBS_PROOF);
}

/* Coming in ---------------------------------------------------------------------------------- */

static enum taken lose(struct verbs_link *end, const char *what)
{
    struct muster_link *link = end->link;
    muster_link_fail(link, end->parting ? MUSTER_LINK_LEFT : MUSTER_LINK_LOST, what);
    return TAKEN_LAST;
}

static enum taken lose_by_rule(struct verbs_link *end)
{
    char what[MUSTER_REASON_SIZE];
    (void)snprintf(what, sizeof what, "what it sends breaks the rules: %.160s",
                   muster_last_error());
    return lose(end, what);
}

static bool is_same(const struct verbs_link *end, const struct muster_link *link, uint64_t opened)
{
    return link->end == end && link->opened == opened && link->state == MUSTER_LINK_OPEN;
}

static enum taken taken_goodbye(struct verbs_link *end)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    if (muster_match_progress(&end->match, end->verbs->piece) && is_same(end, link, opened)) {
        muster_link_fail(link, MUSTER_LINK_LEFT, NULL);
    }
    return TAKEN_LAST;
}

/* The device writes into no slot that is not posted: what stands in this one stays. */
static enum taken take_frame(struct verbs_link *end)
{
    struct muster_link *link = end->link;
    struct verbs_path *path = end->path;
    uint64_t opened = link->opened;
    struct muster_frame frame;
    if (path->arrived_count == 0) {
        return TAKEN_NOTHING;
    }
    uint32_t slot = path->arrived[path->arrived_first].slot;
    uint32_t size = path->arrived[path->arrived_first].size;
    path->arrived_first = (path->arrived_first + 1) % VERBS_RECEIVE_SLOTS;
    path->arrived_count--;
    const unsigned char *bytes = muster_verbs_receive_slot(path, slot);
    if (size < MUSTER_FRAME_SIZE) {
        return lose(end, "a frame that it sends is too short");
    }
    if (muster_frame_decode(bytes, &frame) != MUSTER_OK) {
        return lose_by_rule(end);
    }
    if (size != MUSTER_FRAME_SIZE + frame.length) {
        return lose(end, "a frame that it sends has another size than it says");
    }
    if (muster_match_header(&end->match, &frame, &end->arrival) != MUSTER_OK) {
        return lose_by_rule(end);
    }
    muster_arrival_take(&end->match, &end->arrival, bytes + MUSTER_FRAME_SIZE, frame.length);
    muster_verbs_post_receive(path, slot);
    path->owed++;
    if (frame.kind == MUSTER_FRAME_GOODBYE) {
        return taken_goodbye(end);
    }
    if (muster_match_arrived(&end->match, &end->arrival) != MUSTER_OK) {
        return lose_by_rule(end);
    }
    return is_same(end, link, opened) ? TAKEN_FRAME : TAKEN_LAST;
}

static enum taken take_frames(struct verbs_link *end, int most)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    enum taken taken = TAKEN_FRAME;
    for (int i = 0; i < most && taken == TAKEN_FRAME; i++) {
        muster_fabric_yield(link->fabric);
        if (!is_same(end, link, opened)) {
            return TAKEN_LAST;
        }
        taken = take_frame(end);
    }
    return taken;
}

bool muster_verbs_receive(struct verbs_link *end)
{
    enum taken taken = take_frames(end, FRAMES_MAX);
    if (taken == TAKEN_FRAME) {
        muster_link_mark(end->link);
    } else if (taken == TAKEN_NOTHING && end->path->failure[0] != '\0') {
        taken = lose(end, end->path->failure);
    }
    return taken != TAKEN_LAST;
}

void muster_verbs_ended(struct verbs_link *end, const char *what)
{
    struct verbs_path *path = end->path;
    enum taken taken = TAKEN_FRAME;
    while (taken == TAKEN_FRAME) {
        muster_verbs_take(end->verbs);
        taken = take_frames(end, FRAMES_MAX);
    }
    if (taken == TAKEN_NOTHING) {
        muster_link_fail(end->link,
                         end->parting || path->leaving ? MUSTER_LINK_LEFT : MUSTER_LINK_LOST,
                         path->failure[0] != '\0' && what == NULL ? path->failure : what);
    }
}
