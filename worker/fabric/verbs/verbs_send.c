/*
 * Sends frames. A small frame is copied into a send slot, and the device sends it into a receive
 * slot of the peer. Of a large frame only the header is copied: the device reads the payload from
 * the user's memory, which is registered for that, and writes both into a segment of the peer.
 * Memory of another device is sent like large frames, whatever the size; if it cannot be
 * registered, that device copies it into slots.
 *
 * wire/bundle.h numbers the frames and finds those that another path has to retransmit; the peer
 * drops duplicates.
 */
#include "worker/base/clock.h"
#include "worker/fabric/link_trace.h"
#include "worker/fabric/verbs/verbs_parts.h"
#include "worker/fabric/wire/whole_frames.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGE_MAX = 2, /* large frames posted before what has arrived is handled */
};

/* Posting -------------------------------------------------------------------------------------- */

/* Every send returns the credits that are owed. */
static bool post_send(struct muster_verbs_path *path, struct ibv_send_wr *work, uint32_t word)
{
    struct ibv_send_wr *bad = NULL;
    work->imm_data = htonl(word | path->credits_owed << VERBS_CREDITS_SHIFT |
                           path->segment_credits_owed << VERBS_SEGMENTS_SHIFT);
    int error = ibv_post_send(path->pair, work, &bad);
    if (error != 0) {
        char what[128];
        (void)snprintf(what, sizeof what, "a send cannot be posted: %s", strerror(error));
        muster_verbs_note_failure(path, what);
        muster_link_mark(path->end->link);
        return false;
    }
    path->credits_owed = 0;
    path->segment_credits_owed = 0;
    return true;
}

/* Sends the first bytes of a slot. */
static bool post_slot(struct muster_verbs_path *path, uint32_t slot, uint32_t size, uint32_t word)
{
    struct ibv_sge part = {.addr = (uintptr_t)muster_verbs_send_slot(path, slot),
                           .length = size,
                           .lkey = path->slots.registered->lkey};
    struct ibv_send_wr work = {.wr_id = muster_verbs_work(path, VERBS_WORK_FRAME, slot),
                               .sg_list = &part,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND_WITH_IMM,
                               .send_flags = size <= VERBS_INLINE_BYTES ? IBV_SEND_INLINE : 0};
    return post_send(path, &work, word);
}

static void post_credits(struct muster_verbs_path *path)
{
    struct ibv_send_wr work = {.wr_id = muster_verbs_work(path, VERBS_WORK_EMPTY, 0),
                               .opcode = IBV_WR_SEND_WITH_IMM};
    path->credit_sends += post_send(path, &work, 0);
}

/* A part of the payload, which begins at this byte of it. What is copied goes to `copy`. */
static struct ibv_sge gather_part(const struct muster_verbs_path *path,
                                  const struct muster_verbs_out_frame *out,
                                  const struct muster_verbs_part *part, uint32_t at,
                                  unsigned char *copy)
{
    uint32_t left = out->frame.size - at;
    uint32_t size = part->size < left ? part->size : left;
    if (part->data != NULL) {
        const struct ibv_mr *registered = muster_registration_handle(part->held);
        return (struct ibv_sge){
            .addr = (uintptr_t)part->data, .length = size, .lkey = registered->lkey};
    }
    muster_place_copy((struct muster_place){.base = (char *)copy},
                      muster_outgoing_place(&out->frame, at), size);
    return (struct ibv_sge){
        .addr = (uintptr_t)copy, .length = size, .lkey = path->slots.registered->lkey};
}

/* Writes a frame into the peer's next segment: the header and small ranges from the slot, the rest
 * of the payload from registered memory. */
static bool post_segment(struct muster_verbs_path *path, uint32_t slot,
                         const struct muster_verbs_out_frame *out, uint32_t word)
{
    struct ibv_sge parts[VERBS_PARTS_MAX] = {{.addr = (uintptr_t)muster_verbs_send_slot(path, slot),
                                              .length = MUSTER_FRAME_SIZE,
                                              .lkey = path->slots.registered->lkey}};
    struct ibv_send_wr work = {
        .wr_id = muster_verbs_work(path, VERBS_WORK_FRAME, slot),
        .sg_list = parts,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .wr.rdma = {.remote_addr = path->peer.address +
                                   (uint64_t)path->segment_out * VERBS_SEGMENT_BYTES +
                                   VERBS_HEADER_AT,
                    .rkey = path->peer.key}};
    unsigned char *copy = muster_verbs_send_slot(path, slot) + MUSTER_FRAME_SIZE;
    uint32_t done = 0;
    for (const struct muster_verbs_part *part = out->parts; done < out->frame.size; part++) {
        const struct ibv_sge gathered = gather_part(path, out, part, done, copy);
        parts[work.num_sge++] = gathered;
        copy += part->data == NULL ? gathered.length : 0;
        done += gathered.length;
    }
    path->segment_out = (path->segment_out + 1) % VERBS_SEGMENTS;
    path->segment_credits--;
    return post_send(path, &work, word);
}

/* The slot of the next frame. */
static uint32_t next_slot(const struct muster_verbs_path *path)
{
    return (uint32_t)__builtin_ctz(path->free_slots);
}

/* Takes the slot of the next frame. It is in use until its send is complete. */
static uint32_t take_slot(struct muster_verbs_path *path)
{
    uint32_t slot = next_slot(path);
    path->free_slots &= path->free_slots - 1;
    return slot;
}

static void post_frame(struct muster_verbs_path *path, uint64_t number)
{
    struct muster_verbs_out_frame *out = muster_verbs_out(path->end, number);
    uint32_t slot = take_slot(path);
    unsigned char *header = muster_verbs_send_slot(path, slot);
    memcpy(header, out->frame.header, MUSTER_FRAME_SIZE);
    muster_bundle_carry(&path->end->bundle, number, path->place);
    path->slot_frames[slot] = number;
    path->credits--;
    out->posted_ns = muster_link_clock(path->end->link);
    if (!out->copied) {
        (void)post_segment(path, slot, out, number & VERBS_NUMBER_MASK);
        return;
    }
    unsigned char *data = header + MUSTER_FRAME_SIZE;
    if (out->frame.data != data) {
        muster_outgoing_copy(&out->frame, data);
    }
    out->frame.data = data;
    out->frame.ranges = NULL;
    (void)post_slot(path, slot, MUSTER_FRAME_SIZE + out->frame.size, number & VERBS_NUMBER_MASK);
}

void muster_verbs_send_proof(struct muster_verbs_path *path)
{
    uint32_t slot = take_slot(path);
    path->slot_frames[slot] = 0;
    (void)post_slot(path, slot, muster_verbs_path_mtu(path), VERBS_PROOF);
}

/* Registered memory ---------------------------------------------------------------------------- */

/* The memory of the transfer around this byte of it: all of it, or the part in one range. */
static struct muster_usable_range usable_range_at(const struct muster_transfer *transfer,
                                                  uint64_t offset)
{
    const struct muster_range_list *list = transfer->ranges;
    if (list == NULL) {
        return (struct muster_usable_range){
            .base = transfer->data, .size_bytes = transfer->size_bytes, .memory = transfer->memory};
    }
    uint64_t first = transfer->ranges_at_bytes;
    uint64_t end = first + transfer->size_bytes;
    const struct muster_range_run *run =
        &list->runs[muster_range_find(list->runs, list->count, first + offset)];
    uint64_t from = run->begin_bytes > first ? run->begin_bytes : first;
    uint64_t to = run[1].begin_bytes < end ? run[1].begin_bytes : end;
    return (struct muster_usable_range){.base = run->address + (from - run->begin_bytes),
                                        .size_bytes = to - from};
}

void muster_verbs_release_registrations(struct muster_verbs_out_frame *out)
{
    for (uint32_t i = 0; i < out->part_count; i++) {
        if (out->parts[i].held != NULL) {
            muster_registrations_release(out->holder->registrations, TAKE(out->parts[i].held));
        }
    }
    out->part_count = 0;
}

/* Whether the device is to read the payload from this byte of the message on, of which so many
 * bytes follow there, where it is: the end of a large range, too, which is registered anyway. */
static bool is_read_in_place(const struct muster_transfer *transfer, uint64_t offset,
                             uint64_t there)
{
    uint64_t size = transfer->ranges != NULL ? usable_range_at(transfer, offset).size_bytes : there;
    return size > VERBS_SLOT_PAYLOAD || transfer->memory != NULL;
}

/* The bytes there are small: they are to be copied to the slot, behind those that are already. */
static uint32_t add_copied_part(struct muster_verbs_out_frame *out, uint32_t parts_max,
                                uint32_t size)
{
    struct muster_verbs_part *last = &out->parts[out->part_count - 1];
    uint32_t room = VERBS_SLOT_PAYLOAD;
    for (uint32_t i = 0; i < out->part_count; i++) {
        room -= out->parts[i].data == NULL ? out->parts[i].size : 0;
    }
    size = size < room ? size : room;
    if (last->data == NULL) {
        last->size += size;
    } else if (size > 0 && out->part_count < parts_max) {
        out->parts[out->part_count++] = (struct muster_verbs_part){.size = size};
    } else {
        return 0;
    }
    return size;
}

/* Adds a part of the payload from this byte of the message on. Returns its size; 0: it does not fit
 * any more, or its memory cannot be registered. */
static uint32_t add_part(const struct muster_verbs_path *path,
                         const struct muster_transfer *transfer, uint64_t offset, uint32_t limit,
                         struct muster_verbs_out_frame *out)
{
    uint32_t parts_max = path->device->gathers_max - 1;
    uint64_t there = 0;
    const unsigned char *data = muster_transfer_at(transfer, offset, &there);
    uint32_t size = there < limit ? (uint32_t)there : limit;
    if (!is_read_in_place(transfer, offset, there) && out->part_count > 0) {
        return add_copied_part(out, parts_max, size);
    }
    size_t covered = 0;
    struct muster_registration *held =
        out->part_count < parts_max
            ? muster_registrations_hold(path->device->registrations, data, size,
                                        usable_range_at(transfer, offset), &covered)
            : NULL;
    if (held == NULL) {
        return 0;
    }
    out->parts[out->part_count++] =
        (struct muster_verbs_part){.data = data, .size = (uint32_t)covered, .held = held};
    return (uint32_t)covered;
}

/* Finds the parts of a payload from this byte of the message on, the first of which is large, and
 * holds their registrations. Returns how many bytes they are; 0: the payload is to be copied. */
static uint32_t hold_parts(const struct muster_verbs_path *path,
                           const struct muster_transfer *transfer, uint64_t offset, uint32_t limit,
                           struct muster_verbs_out_frame *out)
{
    uint32_t done = 0;
    uint32_t size = 0;
    out->holder = path->device;
    out->part_count = 0;
    do {
        size = add_part(path, transfer, offset + done, limit - done, out);
        done += size;
    } while (size > 0 && done < limit);
    return done;
}

void muster_verbs_end_registrations(struct muster_verbs *verbs,
                                    const struct muster_transfer *transfer)
{
    struct muster_usable_range range;
    for (uint64_t offset = 0; offset < transfer->size_bytes; offset += range.size_bytes) {
        range = usable_range_at(transfer, offset);
        bool registered = range.size_bytes > VERBS_SLOT_PAYLOAD || transfer->memory != NULL;
        for (uint32_t i = 0; i < verbs->device_count && registered; i++) {
            muster_registrations_end(verbs->devices[i].registrations, range);
        }
    }
}

/* Sending -------------------------------------------------------------------------------------- */

/* Whether the path has room for one more frame. */
static bool has_room(const struct muster_verbs_path *path)
{
    return path->credits > 0 && path->free_slots != 0;
}

static struct muster_verbs_path *choose_path(struct muster_verbs_link *end, bool large)
{
    uint32_t ready = 0;
    for (uint32_t place = 0; place < end->path_end; place++) {
        const struct muster_verbs_path *path = end->paths[place];
        bool can_send = path != NULL && muster_verbs_path_is_usable(path) && has_room(path) &&
                        (!large || path->peer.segments == 0 || path->segment_credits > 0);
        ready |= (uint32_t)can_send << place;
    }
    uint32_t place = muster_bundle_choose(&end->bundle, ready);
    return place != MUSTER_BUNDLE_NO_PATH ? end->paths[place] : NULL;
}

/* The record of the next frame; there is room in the window. */
static struct muster_verbs_out_frame *next_record(struct muster_verbs_link *end)
{
    struct muster_verbs_out_frame *out = muster_verbs_out(end, end->bundle.next_out);
    memset(out, 0, sizeof *out);
    return out;
}

static bool send_control(struct muster_verbs_link *end)
{
    struct muster_frame_queue *control = &end->match.control;
    while (control->start < control->end) {
        struct muster_verbs_path *path =
            muster_bundle_has_room(&end->bundle) ? choose_path(end, false) : NULL;
        if (path == NULL) {
            return false;
        }
        struct muster_verbs_out_frame *out = next_record(end);
        (void)muster_whole_frame_next_control(&end->match, &out->frame);
        out->copied = true;
        post_frame(path, muster_bundle_add(&end->bundle, out->frame.size));
    }
    return true;
}

/* Whether a device is still reading an earlier segment of the message. */
static bool is_being_read(struct muster_verbs_link *end, const struct muster_transfer *transfer,
                          uint64_t until)
{
    for (uint64_t number = end->bundle.first_out; number != until; number++) {
        const struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        if (out->frame.transfer == transfer && !out->copied &&
            !muster_bundle_is_acknowledged(&end->bundle, number)) {
            return true;
        }
    }
    return false;
}

/* The device does not need the frame's memory any more. If this is the last frame of its transfer,
 * and no earlier segment is being read, completes the transfer. */
static void complete_frame(struct muster_verbs_link *end, uint64_t number)
{
    struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
    const struct muster_outgoing frame = out->frame;
    if (frame.transfer == NULL || (frame.last && is_being_read(end, frame.transfer, number))) {
        return;
    }
    out->frame.transfer = NULL; /* before the done function, which may post the next message */
    if (frame.last) {
        muster_verbs_end_registrations(end->verbs, frame.transfer);
    }
    muster_match_sent(&end->match, &frame);
}

/* The payload cannot be copied from its device: the transfer fails, and its operation will be
 * withdrawn. */
static bool fail_transfer(struct muster_verbs_link *end, struct muster_transfer *transfer)
{
    (void)muster_transfer_list_pop(&end->match.ready);
    muster_verbs_end_registrations(end->verbs, transfer);
    muster_transfer_complete(end->link, transfer, MUSTER_FATAL);
    muster_link_mark(end->link); /* there may be more to send */
    return false;
}

/* Copies the next bytes from their device into the next send slot. */
static bool copy_from_device(const struct muster_verbs_path *path,
                             const struct muster_transfer *transfer, const unsigned char *data,
                             uint32_t size)
{
    struct muster_link *link = path->end->link;
    int64_t started_ns = muster_link_clock(link);
    unsigned char *to = muster_verbs_send_slot(path, next_slot(path)) + MUSTER_FRAME_SIZE;
    if (transfer->memory->device->copy(transfer->memory, to, data, size) != MUSTER_OK) {
        return false;
    }
    muster_link_add_part(link, transfer,
                         (struct muster_link_part){MUSTER_TIMELINE_DEVICE_COPY, started_ns,
                                                   muster_match_taken(transfer), size});
    return true;
}

static uint32_t least(uint64_t size, uint32_t most)
{
    return size < most ? (uint32_t)size : most;
}

/* What of a ready send comes next. */
struct next_payload {
    unsigned char *data; /* or NULL, if nothing is left */
    uint64_t left;       /* of the message */
    uint64_t there;      /* of these, that follow each other in memory: the others are elsewhere */
};

static struct next_payload find_payload(const struct muster_transfer *transfer)
{
    struct next_payload next = {.data = NULL};
    uint64_t taken = muster_match_taken(transfer);
    next.left = transfer->size_bytes - taken;
    if (next.left > 0) {
        next.data = muster_transfer_at(transfer, taken, &next.there);
    }
    return next;
}

/* Sends a whole message, or a segment of one. The device reads the payload from registered memory
 * if it is large or on another device; a payload that is small, or cannot be registered, is copied
 * into a slot. Of a message that lies in ranges the device gathers those that follow a large one,
 * as many as fit; small ones before it are copied into one slot. *large_count counts the frames
 * that a device reads. False: there is nothing to send, or no room. */
static bool send_data(struct muster_verbs_link *end, uint32_t *large_count)
{
    struct muster_match *match = &end->match;
    struct muster_transfer *transfer = match->ready.first;
    if (transfer == NULL || !muster_bundle_has_room(&end->bundle)) {
        return false;
    }
    const struct next_payload next = find_payload(transfer);
    bool of_device = transfer->memory != NULL && next.left > 0;
    bool large =
        next.left > 0 && is_read_in_place(transfer, muster_match_taken(transfer), next.there);
    struct muster_verbs_path *path = choose_path(end, large);
    if (path == NULL) {
        return false;
    }
    struct muster_verbs_out_frame *out = next_record(end);
    uint32_t gathered = 0;
    if (large && path->peer.segments > 0) {
        gathered = hold_parts(path, transfer, muster_match_taken(transfer),
                              least(next.left, VERBS_SEGMENT_PAYLOAD), out);
    }
    bool direct = gathered > 0;
    match->payload_max = direct ? gathered : VERBS_SLOT_PAYLOAD;
    if (of_device && !direct &&
        !copy_from_device(path, transfer, next.data, least(next.there, VERBS_SLOT_PAYLOAD))) {
        return fail_transfer(end, transfer);
    }
    (void)muster_match_next(match, &out->frame);
    if (of_device && !direct) {
        out->frame.data = muster_verbs_send_slot(path, next_slot(path)) + MUSTER_FRAME_SIZE;
    }
    out->copied = !direct;
    *large_count += direct;
    uint64_t number = muster_bundle_add(&end->bundle, out->frame.size);
    post_frame(path, number);
    if (out->copied) {
        complete_frame(end, number);
    }
    return true;
}

/* Comes before new frames: the peer waits for the lowest number. */
bool muster_verbs_retransmit(struct muster_verbs_link *end)
{
    uint64_t number = 0;
    while ((number = muster_bundle_next_waiting(&end->bundle, number)) != end->bundle.next_out) {
        struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        struct muster_verbs_path *path = choose_path(end, !out->copied);
        if (path == NULL) {
            return false;
        }
        if (!out->copied && (path->peer.segments == 0 ||
                             hold_parts(path, out->frame.transfer, out->frame.offset_bytes,
                                        out->frame.size, out) < out->frame.size)) {
            muster_verbs_note_failure(
                path, "no registered memory to retransmit the frames of a lost path");
            muster_link_mark(end->link);
            return false;
        }
        unsigned char *copy = TAKE(out->copy);
        post_frame(path, number);
        free(copy);
    }
    return true;
}

/* Returns credits by a send of their own: the peer may be waiting for them, and no frame was there
 * to carry them. At most three such sends are under way: for each of them the peer has used at
 * least four of its twelve credits. */
static void return_credits(struct muster_verbs_path *path)
{
    if ((path->credits_owed >= VERBS_CREDITS_HELD ||
         path->segment_credits_owed >= VERBS_SEGMENTS_HELD) &&
        path->credit_sends < VERBS_CREDIT_SENDS && muster_verbs_path_is_usable(path)) {
        post_credits(path);
    }
}

void muster_verbs_flush(struct muster_verbs_link *end)
{
    uint32_t large_count = 0;
    bool more = muster_verbs_retransmit(end) && send_control(end);
    while (more && large_count < LARGE_MAX) {
        more = send_data(end, &large_count);
    }
    if (more) {
        muster_link_mark(end->link);
    }
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL) {
            return_credits(end->paths[i]);
        }
    }
}

/* Acknowledged --------------------------------------------------------------------------------- */

/* For frames whose memory the device has read. */
static void trace_write(const struct muster_verbs_link *end,
                        const struct muster_verbs_out_frame *out)
{
    const struct muster_transfer *transfer = out->frame.transfer;
    if (transfer != NULL && !out->copied) {
        muster_link_add_part(end->link, transfer,
                             (struct muster_link_part){MUSTER_TIMELINE_WRITE, out->posted_ns,
                                                       out->frame.offset_bytes, out->frame.size});
    }
}

void muster_verbs_acknowledged(struct muster_verbs_path *path, uint32_t slot)
{
    uint64_t number = path->slot_frames[slot];
    path->free_slots |= 1U << slot;
    if (number != 0) {
        struct muster_verbs_out_frame *out = muster_verbs_out(path->end, number);
        trace_write(path->end, out);
        muster_bundle_acknowledge(&path->end->bundle, number);
        muster_verbs_release_registrations(out);
    }
}

void muster_verbs_end_sends(struct muster_verbs_link *end)
{
    struct muster_bundle *bundle = &end->bundle;
    for (uint64_t number = bundle->first_out; number != bundle->next_out; number++) {
        if (muster_bundle_is_acknowledged(bundle, number)) {
            complete_frame(end, number);
        }
    }
    uint64_t oldest = 0;
    while (muster_bundle_retire(bundle, &oldest)) {
        assert(muster_verbs_out(end, oldest)->frame.transfer ==
               NULL); /* no earlier frame is being read any more */
    }
}

/* The end of a path, and of all --------------------------------------------------------------- */

bool muster_verbs_abandon_sends(struct muster_verbs_path *path)
{
    struct muster_verbs_link *end = path->end;
    for (uint64_t number = end->bundle.first_out; number != end->bundle.next_out; number++) {
        struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        if (muster_bundle_carrier(&end->bundle, number) != path->place) {
            continue;
        }
        muster_bundle_put_back(&end->bundle, number);
        muster_verbs_release_registrations(out);
        if (!out->copied || out->frame.size == 0) {
            continue;
        }
        out->copy = malloc(out->frame.size);
        if (out->copy == NULL) {
            return false;
        }
        memcpy(out->copy, out->frame.data, out->frame.size);
        out->frame.data = out->copy;
    }
    return true;
}

void muster_verbs_finish_sends(struct muster_verbs_link *end)
{
    for (uint64_t number = end->bundle.first_out; number != end->bundle.next_out; number++) {
        struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        muster_verbs_release_registrations(out);
        free(TAKE(out->copy));
        out->frame.transfer = NULL;
    }
}
