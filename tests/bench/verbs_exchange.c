/*
 * The time of an exchange over RDMA without Muster: two processes with one queue pair each both
 * post a send and wait for the other's message, as two ranks do in a small allreduce. They do
 * nothing else: data is inline, and a waiting process polls the completion queue without a pause.
 * Built by tests/bench/verbs, not by CMake.
 *
 *     verbs_exchange DEVICE DEVICE BYTES ITERATIONS     prints one line of JSON
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/peer.h"

enum {
    PORT = 1,
    BYTES_MOST = 512,     /* of inline data with Soft-RoCE */
    SENDS_MOST = 16,      /* that are not completed yet */
    RECEIVES = 4,         /* the other end is at most one message ahead */
    WAIT_S = 5,           /* limit for any step of the other end */
    POLLS_A_CHECK = 1000, /* how often the queue is polled before the clock is read */
};

/* What the other end needs to connect. */
struct address {
    uint32_t pair;
    uint16_t lid; /* InfiniBand's; 0 with RoCE */
    union ibv_gid gid;
};

/* The state of one process. */
struct end {
    const char *device;
    int other; /* a socket */
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *queue;
    struct ibv_mr *region; /* the slots */
    struct ibv_qp *pair;
    uint8_t gid_index;
    uint32_t bytes;
    uint32_t in_flight; /* sends that are not completed */
    uint32_t arrived;   /* messages */
    unsigned char slots[RECEIVES][BYTES_MOST];
};

static _Noreturn void die(const char *device, const char *what, const char *why)
{
    (void)fprintf(stderr, "verbs_exchange: %s: %s: %s\n", device, what, why);
    exit(1);
}

/* `error` is 0 or an errno. */
static void check(const struct end *end, int error, const char *what)
{
    if (error != 0) {
        die(end->device, what, strerror(error));
    }
}

/* Exchanges data with the other end over the socket. Both ends do so at the same points of the
 * program. */
static void swap(const struct end *end, const void *mine, void *ret_its, size_t size)
{
    if (send(end->other, mine, size, MSG_NOSIGNAL) != (ssize_t)size ||
        recv(end->other, ret_its, size, MSG_WAITALL) != (ssize_t)size) {
        die(end->device, "waiting for the other end", "it has ended, or took too long");
    }
}

static struct ibv_context *open_device(const char *name)
{
    struct ibv_context *context = NULL;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (int i = 0; devices != NULL && devices[i] != NULL && context == NULL; i++) {
        if (strcmp(ibv_get_device_name(devices[i]), name) == 0) {
            context = ibv_open_device(devices[i]);
        }
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    if (context == NULL) {
        die(name, "opening the device", "there is no device of this name, or it may not be used");
    }
    return context;
}

/* The first entry of RoCE v2 with an IPv4 address; else the first one of the port. */
static uint8_t choose_gid(const struct end *end, int table_size, union ibv_gid *ret_gid)
{
    static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */
    for (int i = 0; i < table_size && i <= UINT8_MAX; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(end->context, PORT, (uint32_t)i, &entry, 0) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
            memcmp(entry.gid.raw, ipv4, sizeof ipv4) == 0) {
            *ret_gid = entry.gid;
            return (uint8_t)i;
        }
    }
    check(end, ibv_query_gid(end->context, PORT, 0, ret_gid) != 0 ? EADDRNOTAVAIL : 0,
          "its first address");
    return 0;
}

static void make_pair(struct end *end)
{
    end->context = open_device(end->device);
    end->domain = ibv_alloc_pd(end->context);
    check(end, end->domain == NULL ? errno : 0, "protection domain");
    end->queue = ibv_create_cq(end->context, SENDS_MOST + RECEIVES, NULL, NULL, 0);
    check(end, end->queue == NULL ? errno : 0, "completion queue");
    end->region = ibv_reg_mr(end->domain, end->slots, sizeof end->slots, IBV_ACCESS_LOCAL_WRITE);
    check(end, end->region == NULL ? errno : 0, "registering memory");
    struct ibv_qp_init_attr wish = {.send_cq = end->queue,
                                    .recv_cq = end->queue,
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1,
                                    .cap = {.max_send_wr = SENDS_MOST,
                                            .max_recv_wr = RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = end->bytes}};
    end->pair = ibv_create_qp(end->domain, &wish);
    check(end, end->pair == NULL ? errno : 0, "queue pair");
}

static void post_receive(struct end *end, uint64_t slot)
{
    struct ibv_sge place = {
        .addr = (uintptr_t)end->slots[slot], .length = BYTES_MOST, .lkey = end->region->lkey};
    struct ibv_recv_wr request = {.wr_id = slot, .sg_list = &place, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    check(end, ibv_post_recv(end->pair, &request, &bad), "posting a receive");
}

static void get_ready_to_receive(struct end *end, const struct address *from)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = from->pair,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .dlid = from->lid,
                    .port_num = PORT,
                    .grh = {.dgid = from->gid, .sgid_index = end->gid_index, .hop_limit = 64}}};
    check(end,
          ibv_modify_qp(end->pair, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "getting ready to receive");
}

static void get_ready_to_send(struct end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = 14, /* 4.096 us x 2^14 */
                               .retry_cnt = 6,
                               .rnr_retry = 6,
                               .max_rd_atomic = 1};
    check(end,
          ibv_modify_qp(end->pair, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          "getting ready to send");
}

/* Makes the queue pair and connects it to that of the other end. */
static void connect_pair(struct end *end)
{
    make_pair(end);
    struct ibv_port_attr port;
    check(end, ibv_query_port(end->context, PORT, &port), "its port");
    struct address mine = {.pair = end->pair->qp_num, .lid = port.lid};
    struct address its;
    end->gid_index = choose_gid(end, port.gid_tbl_len, &mine.gid);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    check(end,
          ibv_modify_qp(end->pair, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "the queue pair's port");
    for (uint64_t slot = 0; slot < RECEIVES; slot++) {
        post_receive(end, slot);
    }
    swap(end, &mine, &its, sizeof mine);
    get_ready_to_receive(end, &its);
    get_ready_to_send(end);
    bool ready = true;
    swap(end, &ready, &ready, sizeof ready);
}

static void post_message(struct end *end, uint32_t number)
{
    unsigned char message[BYTES_MOST] = {0};
    struct ibv_sge place = {.addr = (uintptr_t)message, .length = end->bytes};
    struct ibv_send_wr request = {.sg_list = &place,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND_WITH_IMM,
                                  .send_flags = IBV_SEND_INLINE,
                                  .imm_data = htonl(number)};
    struct ibv_send_wr *bad = NULL;
    check(end, ibv_post_send(end->pair, &request, &bad), "posting a message");
    end->in_flight++;
}

static void handle_completion(struct end *end, const struct ibv_wc *completion)
{
    if (completion->status != IBV_WC_SUCCESS) {
        die(end->device, "the queue pair failed", ibv_wc_status_str(completion->status));
    }
    if (completion->opcode == IBV_WC_SEND) {
        end->in_flight--;
        return;
    }
    if (completion->byte_len != end->bytes || ntohl(completion->imm_data) != end->arrived) {
        die(end->device, "a message has arrived", "it is not the expected one");
    }
    end->arrived++;
    post_receive(end, completion->wr_id);
}

/* Posts message `number` and waits for that of the other end. Returns the time of both. */
static double exchange_us(struct end *end, uint32_t number)
{
    double start_us = peer_now_us();
    post_message(end, number);
    for (int polls = 1; end->arrived <= number || end->in_flight == SENDS_MOST; polls++) {
        struct ibv_wc completion;
        int count = ibv_poll_cq(end->queue, 1, &completion);
        check(end, count < 0 ? EIO : 0, "the completion queue");
        if (count > 0) {
            handle_completion(end, &completion);
        } else if (polls % POLLS_A_CHECK == 0 && peer_now_us() - start_us > WAIT_S * 1e6) {
            die(end->device, "waiting for the other end", "no message has arrived in time");
        }
    }
    return peer_now_us() - start_us;
}

static void run(struct end *end, double *times_us, int iterations)
{
    connect_pair(end);
    for (int i = -PEER_WARM_UP; i < iterations; i++) {
        double us = exchange_us(end, (uint32_t)(i + PEER_WARM_UP));
        times_us[i < 0 ? 0 : i] = us;
    }
}

/* The time of an exchange is that of the slower end. */
static void merge(const struct end *end, double *times_us, int iterations)
{
    for (int i = 0; i < iterations; i++) {
        double its_us = 0;
        swap(end, &times_us[i], &its_us, sizeof its_us);
        times_us[i] = its_us > times_us[i] ? its_us : times_us[i];
    }
}

/* Forks. Returns which of the two processes this is, 0 or 1, and its socket to the other one. */
static int split(int *ret_other)
{
    struct timeval limit = {.tv_sec = WAIT_S};
    int sockets[2];
    pid_t child = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0) {
        child = fork();
    }
    if (child < 0) {
        die("two processes", "starting", strerror(errno));
    }
    int mine = child == 0;
    (void)close(sockets[!mine]); /* so that the end of the other process ends the socket */
    (void)setsockopt(sockets[mine], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    *ret_other = sockets[mine];
    return mine;
}

int main(int argc, char **argv)
{
    int bytes = argc == 5 ? atoi(argv[3]) : 0;
    int iterations = argc == 5 ? atoi(argv[4]) : 0;
    if (bytes < 1 || bytes > BYTES_MOST || iterations < 1) {
        (void)fprintf(stderr,
                      "usage: verbs_exchange DEVICE DEVICE BYTES ITERATIONS, %d bytes at most\n",
                      BYTES_MOST);
        return 2;
    }
    double *times_us = calloc((size_t)iterations, sizeof *times_us);
    if (times_us == NULL) {
        die("times", "starting", strerror(errno));
    }
    struct end end = {.bytes = (uint32_t)bytes};
    int mine = split(&end.other);
    end.device = argv[1 + mine];
    run(&end, times_us, iterations);
    merge(&end, times_us, iterations);
    if (mine == 0) {
        peer_print(times_us, iterations, peer_memory_bytes(0));
        (void)wait(NULL);
    }
    free(times_us);
    return 0;
}
