/* Where the bytes of a payload go: into a receive's data, to its consume function in whole
 * elements, or into a buffer. */
#include "worker/fabric/link_trace.h"
#include "worker/fabric/wire/match.h"

#include <stdlib.h>
#include <string.h>

enum { QUICK_BYTES = 4096 }; /* are reduced in less time than the lock changes hands */

/* Of a message without ranges, all that is left is in one piece. */
static unsigned char *data_buffer(const struct muster_arrival *arrival, uint32_t *ret_size)
{
    const struct muster_transfer *receive = arrival->receive;
    if (receive->ranges == NULL || arrival->remaining == 0) {
        return (unsigned char *)receive->data + receive->moved_bytes;
    }
    uint64_t there = 0;
    unsigned char *data = muster_transfer_at(receive, receive->moved_bytes, &there);
    *ret_size = there < arrival->remaining ? (uint32_t)there : arrival->remaining;
    return data;
}

unsigned char *muster_arrival_buffer(struct muster_arrival *arrival, uint32_t *ret_size)
{
    uint32_t done = arrival->frame.length - arrival->remaining;
    *ret_size = arrival->remaining;
    switch (arrival->place) {
    case MUSTER_PLACE_DATA:
        return data_buffer(arrival, ret_size);
    case MUSTER_PLACE_UNEXPECTED:
        return arrival->unexpected->data + done;
    case MUSTER_PLACE_TEXT:
        return (unsigned char *)arrival->text + done;
    case MUSTER_PLACE_CONSUME:
    case MUSTER_PLACE_NOWHERE:
        break;
    }
    uint32_t room = MUSTER_PIECE_BYTES - arrival->carried;
    *ret_size = arrival->remaining < room ? arrival->remaining : room;
    return arrival->piece + arrival->carried;
}

int muster_arrival_parts(struct muster_arrival *arrival, struct iovec *parts, int most,
                         uint32_t *ret_size)
{
    const struct muster_transfer *receive = arrival->receive;
    int count = 0;
    if (arrival->place == MUSTER_PLACE_DATA && receive->ranges != NULL) {
        *ret_size =
            (uint32_t)muster_place_add_parts(muster_transfer_place(receive, receive->moved_bytes),
                                             arrival->remaining, parts, most, &count);
        return count;
    }
    parts[0].iov_base = muster_arrival_buffer(arrival, ret_size);
    parts[0].iov_len = *ret_size;
    return 1;
}

/* Releases the lock meanwhile, because reducing may take long. */
static void call_consume(struct muster_match *match, struct muster_transfer *receive,
                         uint64_t offset, const unsigned char *data, uint32_t size)
{
    if (receive->quick && size <= QUICK_BYTES && match->link->fabric->timeline == NULL) {
        receive->consume(receive, offset, data, size);
        return;
    }
    int64_t started_ns = muster_link_clock(match->link);
    muster_fabric_unlock(match->link->fabric);
    receive->consume(receive, offset, data, size);
    enum muster_timeline_stage stage =
        receive->to_device ? MUSTER_TIMELINE_DEVICE_COPY : MUSTER_TIMELINE_REDUCE;
    muster_link_add_part(match->link, receive,
                         (struct muster_link_part){stage, started_ns, offset, size});
    muster_fabric_lock(match->link->fabric);
}

/* Passes on whole elements. The bytes of an element that has arrived in part are carried over to
 * the next call. */
static void consume(struct muster_match *match, struct muster_arrival *arrival, uint32_t size)
{
    struct muster_transfer *receive = arrival->receive;
    uint64_t offset = receive->moved_bytes - arrival->carried;
    uint32_t there = arrival->carried + size;
    uint32_t whole = there / receive->element_size_bytes * receive->element_size_bytes;
    memcpy(arrival->piece, arrival->carry, arrival->carried);
    if (whole > 0) {
        call_consume(match, receive, offset, arrival->piece, whole);
    }
    arrival->carried = there - whole;
    memcpy(arrival->carry, arrival->piece + whole, arrival->carried);
    receive->moved_bytes += size;
}

void muster_arrival_filled(struct muster_match *match, struct muster_arrival *arrival,
                           uint32_t size)
{
    arrival->remaining -= size;
    if (arrival->place == MUSTER_PLACE_DATA) {
        arrival->receive->moved_bytes += size;
    } else if (arrival->place == MUSTER_PLACE_CONSUME) {
        consume(match, arrival, size);
    }
}

void muster_arrival_consume(struct muster_match *match, struct muster_arrival *arrival,
                            const unsigned char *data, uint32_t size)
{
    struct muster_transfer *receive = arrival->receive;
    if (arrival->place == MUSTER_PLACE_CONSUME && arrival->carried == 0 &&
        size % receive->element_size_bytes == 0 && size > 0) {
        call_consume(match, receive, receive->moved_bytes, data, size);
        receive->moved_bytes += size;
        arrival->remaining -= size;
        return;
    }
    while (size > 0 && arrival->place != MUSTER_PLACE_NOWHERE) {
        uint32_t room = 0;
        unsigned char *to = muster_arrival_buffer(arrival, &room);
        uint32_t copied = size < room ? size : room;
        memcpy(to, data, copied);
        data += copied;
        size -= copied;
        muster_arrival_filled(match, arrival, copied);
    }
}

void muster_arrival_withdraw(struct muster_arrival *arrival,
                             const struct muster_operation_id *operation)
{
    if (!muster_operation_has(operation, &arrival->frame.key) ||
        arrival->place == MUSTER_PLACE_TEXT) {
        return;
    }
    muster_arrival_finish(arrival);
}

void muster_arrival_finish(struct muster_arrival *arrival)
{
    arrival->receive = NULL;
    free(arrival->unexpected);
    arrival->unexpected = NULL;
    arrival->place = MUSTER_PLACE_NOWHERE;
    arrival->carried = 0;
}
