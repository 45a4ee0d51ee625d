/* The record of a connection: its memory and its queue pair. */
#include "worker/base/clock.h"
#include "worker/fabric/bytes.h"
#include "worker/fabric/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MEMORY_BYTES = (VERBS_SEND_SLOTS + VERBS_RECEIVE_SLOTS) * VERBS_SLOT_BYTES,
    PACKET_MASK = 0xffffff,
    /* An unanswered packet is sent again after 4.096 us x 2^17, six times: 3.8 s. (With seven,
     * Soft-RoCE never gives up.) */
    TIMEOUT = 17,
    RETRIES = 6,
    NOT_READY_TIMER = 12, /* 0.64 ms; cannot happen as long as the peer keeps to its credits */
    HOPS_MAX = 64,
};

static const unsigned char magic[8] = {'M', 'U', 'S', 'T', 'E', 'R', 'r', 'c'};

/* Greetings ------------------------------------------------------------------------------------ */

void muster_verbs_greeting_encode(const struct verbs_greeting *greeting,
                                  unsigned char ret_bytes[VERBS_GREETING_SIZE])
{
    const uint32_t words[5] = {greeting->number, greeting->packet, greeting->mtu, greeting->lid,
                               greeting->gid.type};
    memset(ret_bytes, 0, VERBS_GREETING_SIZE);
    memcpy(ret_bytes, magic, sizeof magic);
    for (size_t i = 0; i < 5; i++) {
        muster_bytes_put(ret_bytes + 8 + 4 * i, words[i], 4);
    }
    memcpy(ret_bytes + 32, greeting->gid.bytes, sizeof greeting->gid.bytes);
}

muster_status muster_verbs_greeting_decode(const unsigned char bytes[VERBS_GREETING_SIZE],
                                           struct verbs_greeting *ret_greeting)
{
    struct verbs_greeting greeting = {.number = (uint32_t)muster_bytes_get(bytes + 8, 4),
                                      .packet = (uint32_t)muster_bytes_get(bytes + 12, 4),
                                      .mtu = (uint32_t)muster_bytes_get(bytes + 16, 4),
                                      .lid = (uint32_t)muster_bytes_get(bytes + 20, 4)};
    uint32_t type = (uint32_t)muster_bytes_get(bytes + 24, 4);
    if (memcmp(bytes, magic, sizeof magic) != 0 || greeting.number > PACKET_MASK ||
        greeting.packet > PACKET_MASK || greeting.mtu < IBV_MTU_256 ||
        greeting.mtu > IBV_MTU_4096 || greeting.lid > UINT16_MAX || type > MUSTER_VERBS_ROCE_2) {
        return muster_error_set(MUSTER_INVALID, "it says nonsense about its queue pair");
    }
    greeting.gid.type = (enum muster_verbs_gid_type)type;
    memcpy(greeting.gid.bytes, bytes + 32, sizeof greeting.gid.bytes);
    *ret_greeting = greeting;
    return MUSTER_OK;
}

void muster_verbs_greeting_of(const struct verbs_path *path, struct verbs_greeting *ret_greeting)
{
    const struct muster_verbs_device *device = &path->verbs->device;
    *ret_greeting = (struct verbs_greeting){.number = path->pair->qp_num,
                                            .packet = path->packet,
                                            .mtu = device->mtu,
                                            .lid = device->lid,
                                            .gid = device->gid};
}

/* Memory --------------------------------------------------------------------------------------- */

unsigned char *muster_verbs_send_slot(const struct verbs_path *path, uint32_t slot)
{
    return path->memory + (size_t)slot * VERBS_SLOT_BYTES;
}

unsigned char *muster_verbs_receive_slot(const struct verbs_path *path, uint32_t slot)
{
    return muster_verbs_send_slot(path, VERBS_SEND_SLOTS + slot);
}

/* A child of fork() does not get it: the device goes on writing where the parent is. */
static muster_status make_memory(struct verbs_path *path)
{
    void *memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return muster_error_errno(MUSTER_FATAL, "%d bytes for a link", MEMORY_BYTES);
    }
    path->memory = memory;
    (void)madvise(memory, MEMORY_BYTES, MADV_DONTFORK);
    return muster_verbs_register(&path->verbs->device, memory, MEMORY_BYTES, &path->registered);
}

muster_status muster_verbs_try_memory(const struct muster_verbs_device *device)
{
    struct ibv_mr *registered = NULL;
    void *memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return muster_error_errno(MUSTER_FATAL, "%d bytes for a link", MEMORY_BYTES);
    }
    muster_status status = muster_verbs_register(device, memory, MEMORY_BYTES, &registered);
    if (status == MUSTER_OK) {
        (void)device->library->dereg_mr(registered);
    }
    munmap(memory, MEMORY_BYTES);
    return status;
}

void muster_verbs_post_receive(struct verbs_path *path, uint32_t slot)
{
    struct ibv_sge part = {.addr = (uintptr_t)muster_verbs_receive_slot(path, slot),
                           .length = VERBS_SLOT_BYTES,
                           .lkey = path->registered->lkey};
    struct ibv_recv_wr work = {
        .wr_id = muster_verbs_work(path, VERBS_WORK_RECEIVE, slot), .sg_list = &part, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(path->pair, &work, &bad);
    if (error != 0 && path->failure[0] == '\0') {
        (void)snprintf(path->failure, sizeof path->failure, "a receive cannot be posted: %s",
                       strerror(error));
    }
}

/* The queue pair ------------------------------------------------------------------------------- */

static muster_status make_pair(struct verbs_path *path)
{
    struct verbs *verbs = path->verbs;
    const struct muster_verbs_library *library = verbs->device.library;
    if ((verbs->links + 1) * VERBS_COMPLETIONS_MAX > verbs->device.queue_entries) {
        return muster_error_set(MUSTER_INVALID, "%s: its completion queue is for %u links",
                                verbs->device.name, verbs->links);
    }
    struct ibv_qp_init_attr wanted = {
        .send_cq = verbs->device.queue,
        .recv_cq = verbs->device.queue,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS + 1,
                .max_recv_wr = VERBS_RECEIVE_SLOTS,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = VERBS_INLINE_BYTES}};
    path->pair = library->create_qp(verbs->device.domain, &wanted);
    if (path->pair == NULL) {
        return muster_error_errno(MUSTER_INVALID, "a queue pair of %s", verbs->device.name);
    }
    verbs->links++;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = verbs->device.port};
    int error =
        library->modify_qp(path->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID, "a queue pair of %s: %s",
                                         verbs->device.name, strerror(error));
}

muster_status muster_verbs_pair_create(struct verbs_path *path)
{
    path->number = ++path->verbs->last_number;
    TRY(make_memory(path));
    TRY(make_pair(path));
    HASH_ADD(hh, path->verbs->by_number, number, sizeof path->number, path);
    muster_random_bytes(&path->packet, sizeof path->packet);
    path->packet &= PACKET_MASK;
    path->free_slots = (1U << VERBS_SEND_SLOTS) - 1;
    path->credits = VERBS_SEND_SLOTS;
    for (uint32_t slot = 0; slot < VERBS_RECEIVE_SLOTS; slot++) {
        muster_verbs_post_receive(path, slot);
    }
    return MUSTER_OK;
}

static muster_status check_fit(const struct verbs_path *path)
{
    const struct muster_verbs_gid *mine = &path->verbs->device.gid;
    const struct muster_verbs_gid *theirs = &path->theirs.gid;
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    if (mine->type != theirs->type) {
        return muster_error_set(MUSTER_INVALID,
                                "this member's RDMA address is of %s, the peer's of %s "
                                "(MUSTER_VERBS_GID chooses)",
                                types[mine->type], types[theirs->type]);
    }
    if (muster_verbs_gid_is_ipv4(mine) != muster_verbs_gid_is_ipv4(theirs)) {
        return muster_error_set(MUSTER_INVALID,
                                "this member's RDMA address is of %s, the peer's "
                                "is not (MUSTER_VERBS_GID chooses)",
                                muster_verbs_gid_is_ipv4(mine) ? "IPv4" : "IPv6");
    }
    return MUSTER_OK;
}

static void fill_way(const struct verbs_path *path, struct ibv_qp_attr *attributes)
{
    const struct muster_verbs_device *device = &path->verbs->device;
    struct ibv_ah_attr *way = &attributes->ah_attr;
    way->port_num = device->port;
    way->dlid = (uint16_t)path->theirs.lid;
    way->is_global = device->ethernet;
    way->grh.sgid_index = (uint8_t)device->gid.index;
    way->grh.hop_limit = HOPS_MAX;
    memcpy(way->grh.dgid.raw, path->theirs.gid.bytes, sizeof way->grh.dgid.raw);
}

muster_status muster_verbs_pair_connect(struct verbs_path *path)
{
    const struct muster_verbs_device *device = &path->verbs->device;
    TRY(check_fit(path));
    uint32_t mtu = device->mtu < path->theirs.mtu ? device->mtu : path->theirs.mtu;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR,
                                     .path_mtu = (enum ibv_mtu)mtu,
                                     .dest_qp_num = path->theirs.number,
                                     .rq_psn = path->theirs.packet,
                                     .min_rnr_timer = NOT_READY_TIMER};
    fill_way(path, &attributes);
    int error = device->library->modify_qp(path->pair, &attributes,
                                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                               IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "%s finds no way to the peer's: %s", device->name,
                                strerror(error));
    }
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                      .sq_psn = path->packet,
                                      .timeout = TIMEOUT,
                                      .retry_cnt = RETRIES,
                                      .rnr_retry = RETRIES};
    error = device->library->modify_qp(path->pair, &attributes,
                                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                           IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                           IBV_QP_MAX_QP_RD_ATOMIC);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID, "%s cannot send: %s", device->name,
                                         strerror(error));
}

/* Records -------------------------------------------------------------------------------------- */

static void free_path(struct muster_watch *watch)
{
    free(watch);
}

struct verbs_path *muster_verbs_path_create(struct verbs *verbs, int fd, enum muster_phase phase,
                                            uint32_t events)
{
    const struct muster_watch watch = {.fd = fd, .events = events, .free = free_path};
    struct verbs_path *path = muster_half_create(&verbs->halves, sizeof *path, phase, &watch);
    if (path != NULL) {
        path->verbs = verbs;
    }
    return path;
}

static void destroy_pair(struct verbs_path *path)
{
    const struct muster_verbs_library *library = path->verbs->device.library;
    if (path->hh.tbl != NULL) {
        HASH_DEL(path->verbs->by_number, path);
    }
    if (path->pair != NULL) {
        (void)library->destroy_qp(path->pair);
        path->verbs->links--;
    }
    if (path->registered != NULL) {
        (void)library->dereg_mr(path->registered);
    }
    if (path->memory != NULL) {
        munmap(path->memory, MEMORY_BYTES);
    }
    path->pair = NULL;
    path->registered = NULL;
    path->memory = NULL;
}

void muster_verbs_path_close(struct verbs_path *path)
{
    muster_half_leave(&path->half);
    if (path->link != NULL && path->link->path == path) {
        path->link->path = NULL;
    }
    path->link = NULL;
    destroy_pair(path);
    muster_watch_retire(path->verbs->halves.fabric, &path->half.watch);
}
