/* A path: its record, its registered memory, its queue pair, and the greetings that describe it. */
#include "worker/base/bytes.h"
#include "worker/base/log.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SLOTS_BYTES = (VERBS_SEND_SLOTS + VERBS_RECEIVE_SLOTS) * VERBS_SLOT_BYTES,
    SEGMENTS_BYTES = VERBS_SEGMENTS * VERBS_SEGMENT_BYTES,
    PACKET_MASK = 0xffffff,
    /* A packet without acknowledgement is retransmitted after 4.096 us x 2^17, six times: 3.8 s.
     * (With seven retries Soft-RoCE never gives up.) */
    TIMEOUT = 17,
    RETRIES = 6,
    NOT_READY_TIMER = 12, /* 0.64 ms; does not happen while the peer keeps to its credits */
    HOPS_MAX = 64,
};

/* A greeting: magic (8 bytes), queue pair (4), first packet sequence number (4), MTU as enum
 * ibv_mtu (4), LID (4), type of the GID (4), segments (4), GID (16), address of the first segment
 * (8), key of the segments (4), zero (4). Numbers are little-endian. */
static const unsigned char magic[8] = {'M', 'U', 'S', 'T', 'E', 'R', 'r', '2'};

/* Greetings ------------------------------------------------------------------------------------ */

void muster_verbs_greeting_encode(const struct muster_verbs_greeting *greeting,
                                  unsigned char ret_bytes[VERBS_GREETING_SIZE])
{
    const uint32_t words[5] = {greeting->number, greeting->first_psn, greeting->mtu, greeting->lid,
                               greeting->gid.type};
    memset(ret_bytes, 0, VERBS_GREETING_SIZE);
    memcpy(ret_bytes, magic, sizeof magic);
    for (size_t i = 0; i < 5; i++) {
        muster_bytes_put(ret_bytes + 8 + 4 * i, words[i], 4);
    }
    muster_bytes_put(ret_bytes + 28, greeting->segments, 4);
    memcpy(ret_bytes + 32, greeting->gid.bytes, sizeof greeting->gid.bytes);
    muster_bytes_put(ret_bytes + 48, greeting->address, 8);
    muster_bytes_put(ret_bytes + 56, greeting->key, 4);
}

muster_status muster_verbs_greeting_decode(const unsigned char bytes[VERBS_GREETING_SIZE],
                                           struct muster_verbs_greeting *ret_greeting)
{
    struct muster_verbs_greeting greeting = {.number = (uint32_t)muster_bytes_get(bytes + 8, 4),
                                             .first_psn = (uint32_t)muster_bytes_get(bytes + 12, 4),
                                             .mtu = (uint32_t)muster_bytes_get(bytes + 16, 4),
                                             .lid = (uint32_t)muster_bytes_get(bytes + 20, 4),
                                             .segments = (uint32_t)muster_bytes_get(bytes + 28, 4),
                                             .address = muster_bytes_get(bytes + 48, 8),
                                             .key = (uint32_t)muster_bytes_get(bytes + 56, 4)};
    uint32_t type = (uint32_t)muster_bytes_get(bytes + 24, 4);
    if (memcmp(bytes, magic, sizeof magic) != 0 || greeting.number > PACKET_MASK ||
        greeting.first_psn > PACKET_MASK || greeting.mtu < IBV_MTU_256 ||
        greeting.mtu > IBV_MTU_4096 || greeting.lid > UINT16_MAX || type > MUSTER_VERBS_ROCE_2 ||
        (greeting.segments != 0 && greeting.segments != VERBS_SEGMENTS)) {
        return muster_error_set(MUSTER_INVALID, "its queue pair has attributes out of bounds");
    }
    greeting.gid.type = (enum muster_verbs_gid_type)type;
    memcpy(greeting.gid.bytes, bytes + 32, sizeof greeting.gid.bytes);
    *ret_greeting = greeting;
    return MUSTER_OK;
}

void muster_verbs_greeting_of(const struct muster_verbs_path *path,
                              struct muster_verbs_greeting *ret_greeting)
{
    const struct muster_verbs_device *device = path->device;
    const struct muster_verbs_memory *segments = &path->segments;
    *ret_greeting = (struct muster_verbs_greeting){
        .number = path->pair->qp_num,
        .first_psn = path->first_psn,
        .mtu = device->mtu,
        .lid = device->lid,
        .gid = device->gid,
        .segments = segments->base != NULL ? VERBS_SEGMENTS : 0,
        .key = segments->base != NULL ? segments->registered->rkey : 0,
        .address = (uintptr_t)segments->base};
}

uint32_t muster_verbs_path_mtu(const struct muster_verbs_path *path)
{
    uint32_t mtu = path->peer.mtu < path->device->mtu ? path->peer.mtu : path->device->mtu;
    return 128U << mtu;
}

void muster_verbs_note_failure(struct muster_verbs_path *path, const char *what)
{
    if (path->failure[0] == '\0') {
        (void)snprintf(path->failure, sizeof path->failure, "RDMA device %s: %.160s",
                       path->device->name, what);
    }
}

/* Memory --------------------------------------------------------------------------------------- */

unsigned char *muster_verbs_send_slot(const struct muster_verbs_path *path, uint32_t slot)
{
    return path->slots.base + (size_t)slot * VERBS_SLOT_BYTES + VERBS_HEADER_AT;
}

unsigned char *muster_verbs_receive_slot(const struct muster_verbs_path *path, uint32_t slot)
{
    return muster_verbs_send_slot(path, VERBS_SEND_SLOTS + slot);
}

unsigned char *muster_verbs_segment(const struct muster_verbs_path *path, uint32_t segment)
{
    return path->segments.base + (size_t)segment * VERBS_SEGMENT_BYTES + VERBS_HEADER_AT;
}

static void free_memory(const struct muster_verbs_device *device,
                        struct muster_verbs_memory *memory)
{
    if (memory->registered != NULL) {
        (void)device->library->dereg_mr(memory->registered);
    }
    if (memory->base != NULL) {
        munmap(memory->base, memory->size_bytes);
    }
    *memory = (struct muster_verbs_memory){0};
}

/* Not inherited by fork(): the device writes to the parent's pages. */
static muster_status create_memory(const struct muster_verbs_device *device, size_t size_bytes,
                                   bool remote, struct muster_verbs_memory *ret_memory)
{
    struct muster_verbs_memory memory = {.size_bytes = size_bytes};
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return muster_error_errno(MUSTER_FATAL, "%zu bytes for a link", size_bytes);
    }
    memory.base = base;
    (void)madvise(base, size_bytes, MADV_DONTFORK);
    muster_status status =
        muster_verbs_register(device, base, size_bytes, remote, &memory.registered);
    if (status != MUSTER_OK) {
        free_memory(device, &memory);
        return status;
    }
    *ret_memory = memory;
    return MUSTER_OK;
}

muster_status muster_verbs_try_memory(const struct muster_verbs_device *device)
{
    struct muster_verbs_memory memory = {0};
    TRY(create_memory(device, SLOTS_BYTES, false, &memory));
    free_memory(device, &memory);
    return MUSTER_OK;
}

void muster_verbs_post_receive(struct muster_verbs_path *path, uint32_t slot)
{
    struct ibv_sge part = {.addr = (uintptr_t)muster_verbs_receive_slot(path, slot),
                           .length = VERBS_SLOT_BYTES - VERBS_HEADER_AT,
                           .lkey = path->slots.registered->lkey};
    struct ibv_recv_wr work = {
        .wr_id = muster_verbs_work(path, VERBS_WORK_RECEIVE, slot), .sg_list = &part, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    if (path->pair == NULL || path->failure[0] != '\0') {
        return;
    }
    int error = ibv_post_recv(path->pair, &work, &bad);
    path->receives += error == 0;
    if (error != 0) {
        char what[128];
        (void)snprintf(what, sizeof what, "a receive cannot be posted: %s", strerror(error));
        muster_verbs_note_failure(path, what);
    }
}

/* The queue pair ------------------------------------------------------------------------------- */

/* Creates the queue pair in state INIT, if the completion queue has room for all of its
 * completions. */
static muster_status create_pair(struct muster_verbs_path *path)
{
    struct muster_verbs_device *device = path->device;
    const struct muster_verbs_library *library = device->library;
    if ((device->pairs + 1) * VERBS_COMPLETIONS_MAX > device->queue_entries) {
        return muster_error_set(MUSTER_INVALID, "%s: its completion queue is for %u links",
                                device->name, device->pairs);
    }
    struct ibv_qp_init_attr wanted = {
        .send_cq = device->queue,
        .recv_cq = device->queue,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS + 1,
                .max_recv_wr = VERBS_RECEIVE_SLOTS,
                .max_send_sge = path->device->gathers_max,
                .max_recv_sge = 1,
                .max_inline_data = VERBS_INLINE_BYTES}};
    path->pair = library->create_qp(device->domain, &wanted);
    if (path->pair == NULL) {
        return muster_error_errno(MUSTER_INVALID, "a queue pair of %s", device->name);
    }
    device->pairs++;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = device->port,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int error =
        library->modify_qp(path->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID, "a queue pair of %s: %s", device->name,
                                         strerror(error));
}

muster_status muster_verbs_pair_create(struct muster_verbs_path *path)
{
    path->completion_id = ++path->verbs->last_completion_id;
    TRY(create_memory(path->device, SLOTS_BYTES, false, &path->slots));
    if (create_memory(path->device, SEGMENTS_BYTES, true, &path->segments) != MUSTER_OK) {
        muster_log(MUSTER_LOG_DEBUG, "large messages are copied: %s", muster_last_error());
    }
    TRY(create_pair(path));
    HASH_ADD(hh, path->verbs->by_completion_id, completion_id, sizeof path->completion_id, path);
    muster_random_bytes(&path->first_psn, sizeof path->first_psn);
    path->first_psn &= PACKET_MASK;
    path->free_slots = VERBS_ALL_SLOTS;
    path->credits = VERBS_SEND_SLOTS;
    for (uint32_t slot = 0; slot < VERBS_RECEIVE_SLOTS; slot++) {
        muster_verbs_post_receive(path, slot);
    }
    return MUSTER_OK;
}

static muster_status check_compatible(const struct muster_verbs_path *path)
{
    const struct muster_verbs_gid *own = &path->device->gid;
    const struct muster_verbs_gid *peer = &path->peer.gid;
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    if (own->type != peer->type) {
        return muster_error_set(MUSTER_INVALID,
                                "this member's RDMA address is of %s, the peer's of %s "
                                "(MUSTER_VERBS_GID chooses)",
                                types[own->type], types[peer->type]);
    }
    if (muster_verbs_gid_is_ipv4(own) != muster_verbs_gid_is_ipv4(peer)) {
        return muster_error_set(MUSTER_INVALID,
                                "this member's RDMA address is of %s, the peer's "
                                "is not (MUSTER_VERBS_GID chooses)",
                                muster_verbs_gid_is_ipv4(own) ? "IPv4" : "IPv6");
    }
    return MUSTER_OK;
}

static void set_route(const struct muster_verbs_path *path, struct ibv_qp_attr *attributes)
{
    const struct muster_verbs_device *device = path->device;
    struct ibv_ah_attr *way = &attributes->ah_attr;
    way->port_num = device->port;
    way->dlid = (uint16_t)path->peer.lid;
    way->is_global = device->ethernet;
    way->grh.sgid_index = (uint8_t)device->gid.index;
    way->grh.hop_limit = HOPS_MAX;
    memcpy(way->grh.dgid.raw, path->peer.gid.bytes, sizeof way->grh.dgid.raw);
}

static int move_to_rtr(const struct muster_verbs_path *path)
{
    const struct muster_verbs_library *library = path->device->library;
    uint32_t mtu = path->device->mtu < path->peer.mtu ? path->device->mtu : path->peer.mtu;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR,
                                     .path_mtu = (enum ibv_mtu)mtu,
                                     .dest_qp_num = path->peer.number,
                                     .rq_psn = path->peer.first_psn,
                                     .min_rnr_timer = NOT_READY_TIMER};
    set_route(path, &attributes);
    return library->modify_qp(path->pair, &attributes,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int move_to_rts(const struct muster_verbs_path *path)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTS,
                                     .sq_psn = path->first_psn,
                                     .timeout = TIMEOUT,
                                     .retry_cnt = RETRIES,
                                     .rnr_retry = RETRIES};
    return path->device->library->modify_qp(path->pair, &attributes,
                                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                                IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The kernel may resolve the peer's address, which may take a second: without the lock, so that
 * other threads may post meanwhile. */
muster_status muster_verbs_pair_connect(struct muster_verbs_path *path)
{
    struct muster_fabric *fabric = path->verbs->pending_list.fabric;
    TRY(check_compatible(path));
    muster_fabric_unlock(fabric);
    int error = move_to_rtr(path);
    muster_fabric_lock(fabric);
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "%s finds no route to the peer's: %s",
                                path->device->name, strerror(error));
    }
    path->segment_credits = path->peer.segments;
    error = move_to_rts(path);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID, "%s cannot send: %s", path->device->name,
                                         strerror(error));
}

bool muster_verbs_path_is_usable(const struct muster_verbs_path *path)
{
    return path->pending.phase == MUSTER_PHASE_OPEN && path->pair != NULL &&
           path->failure[0] == '\0';
}

/* Records -------------------------------------------------------------------------------------- */

static void free_path(struct muster_watch *watch)
{
    free(watch);
}

struct muster_verbs_path *muster_verbs_path_create(struct muster_verbs *verbs, int fd,
                                                   enum muster_phase phase, uint32_t events)
{
    const struct muster_watch watch = {.fd = fd, .events = events, .free = free_path};
    struct muster_verbs_path *path =
        muster_pending_create(&verbs->pending_list, sizeof *path, phase, &watch);
    if (path != NULL) {
        path->verbs = verbs;
        path->device = &verbs->devices[0];
    }
    return path;
}

void muster_verbs_pair_destroy(struct muster_verbs_path *path)
{
    if (path->hh.tbl != NULL) {
        HASH_DEL(path->verbs->by_completion_id, path);
        path->hh.tbl = NULL; /* once only: the path of an abandoned pair is closed later */
        path->verbs->last_completed = NULL;
    }
    if (path->pair != NULL) {
        (void)path->device->library->destroy_qp(path->pair);
        path->device->pairs--;
    }
    path->pair = NULL;
}

/* The queue pair goes first, then the memory that its device used, and the record when no thread
 * can see it any more. */
void muster_verbs_path_close(struct muster_verbs_path *path)
{
    muster_pending_remove(&path->pending);
    if (path->end != NULL && path->end->paths[path->place] == path) {
        path->end->paths[path->place] = NULL;
    }
    path->end = NULL;
    muster_verbs_pair_destroy(path);
    free_memory(path->device, &path->slots);
    free_memory(path->device, &path->segments);
    muster_watch_retire(path->verbs->pending_list.fabric, &path->pending.watch);
}
