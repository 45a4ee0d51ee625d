/* The pretended devices' queue pairs and completion queues, and the thread that is their network.
 */
#include "tests/support/verbs_pretend.h"

#include "tests/support/verbs_pretend_parts.h"
#include "worker/base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

enum {
    WORKS_MAX = 32,
    PARTS_MAX = VERBS_PRETEND_GATHERS,
    INLINE_MAX = 512,
    QUEUE_MAX = VERBS_PRETEND_ENTRIES,
    LOST_STEPS = 5000
};

struct work {
    struct ibv_send_wr send;
    uint64_t id;
    struct ibv_sge parts[PARTS_MAX];
    int part_count;
    unsigned char bytes[INLINE_MAX]; /* the data of an inline send */
};

struct works {
    struct work all[WORKS_MAX];
    uint32_t first, next; /* counters, used modulo WORKS_MAX */
};

struct pair {
    struct ibv_qp pair; /* first */
    enum ibv_qp_state state;
    uint32_t peer; /* its number */
    struct works sends, receives;
    uint32_t delivered; /* counter of the sends: those before it may be acknowledged */
    uint32_t retries;   /* turns with unacknowledged sends and no peer */
    struct pair *prev, *next;
};

struct queue {
    struct ibv_cq queue; /* first */
    struct ibv_wc all[QUEUE_MAX];
    uint32_t first, next;
    bool armed;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t news;
    pthread_t network;
    bool over;
    unsigned seed;
    uint32_t last; /* the last number of a queue pair */
    uint32_t violations;
    uint32_t roughness; /* of verbs_pretend_roughness() */
    uint32_t live;      /* of verbs_pretend_live(): connections that may still deliver */
    uint32_t refusals;  /* of verbs_pretend_refuse() */
    uint64_t steps;
    struct pair *pairs;
} pretend = {
    .mutex = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER, .live = UINT32_MAX};

void verbs_pretend_lock(void)
{
    (void)pthread_mutex_lock(&pretend.mutex);
}

void verbs_pretend_unlock(void)
{
    (void)pthread_mutex_unlock(&pretend.mutex);
}

static uint32_t chance(uint32_t of)
{
    return (uint32_t)rand_r(&pretend.seed) % of;
}

/* Memory --------------------------------------------------------------------------------------- */

/* As verbs_pretend_touch(); NULL counts as a violation. */
static unsigned char *touch(uint64_t address, uint64_t size, uint32_t key, bool remote)
{
    unsigned char *found = verbs_pretend_touch(address, size, key, remote);
    pretend.violations += found == NULL;
    return found;
}

static uint32_t size_of(const struct work *work)
{
    uint32_t size = 0;
    for (int i = 0; i < work->part_count; i++) {
        size += work->parts[i].length;
    }
    return size;
}

static bool may_read(const struct work *work)
{
    bool may = true;
    for (int i = 0; i < work->part_count && (work->send.send_flags & IBV_SEND_INLINE) == 0; i++) {
        may = may &&
              touch(work->parts[i].addr, work->parts[i].length, work->parts[i].lkey, false) != NULL;
    }
    return may;
}

static void gather(const struct work *work, unsigned char *to)
{
    if ((work->send.send_flags & IBV_SEND_INLINE) != 0) {
        memcpy(to, work->bytes, size_of(work));
        return;
    }
    for (int i = 0; i < work->part_count; i++) {
        const struct ibv_sge *part = &work->parts[i];
        memcpy(to, verbs_pretend_touch(part->addr, part->length, part->lkey, false), part->length);
        to += part->length;
    }
}

/* Completions ---------------------------------------------------------------------------------- */

static void ring(struct queue *queue)
{
    uint64_t one = 1;
    if (queue->armed) {
        queue->armed = false;
        (void)!write(queue->queue.channel->fd, &one, sizeof one);
    }
}

static void complete(struct ibv_cq *to, const struct ibv_wc *completion)
{
    struct queue *queue = (struct queue *)to;
    queue->all[queue->next++ % QUEUE_MAX] = *completion;
    ring(queue);
}

static void end_send(struct pair *pair, enum ibv_wc_status status)
{
    const struct work *work = &pair->sends.all[pair->sends.first++ % WORKS_MAX];
    complete(pair->pair.send_cq,
             &(struct ibv_wc){.wr_id = work->id, .status = status, .opcode = IBV_WC_SEND});
}

static void end_receive(struct pair *pair, enum ibv_wc_status status, const struct work *of)
{
    const struct work *work = &pair->receives.all[pair->receives.first++ % WORKS_MAX];
    struct ibv_wc completion = {.wr_id = work->id, .status = status, .opcode = IBV_WC_RECV};
    if (of != NULL) {
        completion.byte_len = size_of(of);
        completion.imm_data = of->send.imm_data;
        completion.wc_flags = IBV_WC_WITH_IMM;
        completion.opcode =
            of->send.opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    }
    complete(pair->pair.recv_cq, &completion);
}

/* The network ---------------------------------------------------------------------------------- */

static struct pair *find_pair(uint32_t number)
{
    struct pair *each = NULL;
    DL_FOREACH(pretend.pairs, each)
    {
        if (each->pair.qp_num == number) {
            return each;
        }
    }
    return NULL;
}

/* The other end; NULL unless the connection is established at both ends. */
static struct pair *peer_of(const struct pair *pair)
{
    struct pair *peer = find_pair(pair->peer);
    bool stands = peer != NULL && peer->peer == pair->pair.qp_num &&
                  (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS);
    return stands ? peer : NULL;
}

static void deliver(struct pair *pair, struct pair *peer)
{
    const struct work *work = &pair->sends.all[pair->delivered % WORKS_MAX];
    const struct work *into = &peer->receives.all[peer->receives.first % WORKS_MAX];
    bool writes = work->send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    uint64_t to = writes ? work->send.wr.rdma.remote_addr : into->parts[0].addr;
    uint32_t key = writes ? work->send.wr.rdma.rkey : into->parts[0].lkey;
    uint32_t size = size_of(work);
    unsigned char *place = NULL;
    if (peer->receives.first == peer->receives.next) {
        pretend.violations++; /* flow control by credits must prevent it */
        pair->state = IBV_QPS_ERR;
    } else if (!may_read(work) || (!writes && size > into->parts[0].length) ||
               (size > 0 && (place = touch(to, size, key, writes)) == NULL)) {
        pair->state = IBV_QPS_ERR;
    } else {
        gather(work, place);
        end_receive(peer, IBV_WC_SUCCESS, work);
        pair->delivered++;
    }
}

/* Completes one pending send or receive of a failed pair with an error. False: none is left. */
static bool flush(struct pair *pair)
{
    bool sends = pair->sends.first != pair->sends.next;
    bool receives = pair->receives.first != pair->receives.next;
    if (sends && (!receives || chance(2) == 0)) {
        end_send(pair, IBV_WC_WR_FLUSH_ERR);
    } else if (receives) {
        end_receive(pair, IBV_WC_WR_FLUSH_ERR, NULL);
    }
    return sends || receives;
}

/* A pair without a peer: after LOST_STEPS turns its first send fails, as after too many
 * retransmissions without an acknowledgement. */
static bool retry_in_vain(struct pair *pair)
{
    if (pair->sends.first != pair->sends.next && ++pair->retries > LOST_STEPS) {
        end_send(pair, IBV_WC_RETRY_EXC_ERR);
        pair->state = IBV_QPS_ERR;
    }
    return pair->sends.first != pair->sends.next;
}

/* How a connection can fail. Silently: nothing is delivered any more, and an end that sends nothing
 * does not detect it. */
enum failure { AT_THE_PEER, AT_THIS_END, AT_BOTH, SILENTLY, FAILURES };

static void fail_connection(struct pair *pair, struct pair *peer, enum failure how)
{
    if (how == SILENTLY) {
        pair->peer = 0;
        peer->peer = 0;
        return;
    }
    pair->state = how != AT_THE_PEER ? IBV_QPS_ERR : pair->state;
    peer->state = how != AT_THIS_END ? IBV_QPS_ERR : peer->state;
}

/* Nothing was delivered yet from this end, which is the accepting one: its pair was made later. */
static bool is_new(const struct pair *pair)
{
    return pair->delivered == 0 && pair->pair.qp_num > pair->peer;
}

static bool may_live(void)
{
    bool may = pretend.live > 0;
    pretend.live -= may && pretend.live != UINT32_MAX;
    return may;
}

/* Serves one pair: makes its connection fail if that is drawn, acknowledges its oldest delivered
 * send, or delivers its next one. False: it has nothing to do. */
static bool take_turn(struct pair *pair)
{
    if (pair->state == IBV_QPS_ERR) {
        return flush(pair);
    }
    if (pair->state != IBV_QPS_RTS) {
        return false;
    }
    struct pair *peer = peer_of(pair);
    bool out = pair->delivered != pair->sends.next;
    bool back = pair->sends.first != pair->delivered;
    if (peer == NULL) {
        return retry_in_vain(pair);
    }
    if (out && is_new(pair) && !may_live()) {
        fail_connection(pair, peer, SILENTLY);
        return true;
    }
    if (pretend.roughness > 0 && (out || back) && chance(pretend.roughness) == 0) {
        fail_connection(pair, peer, (enum failure)chance(FAILURES));
        return true;
    }
    if (back && (!out || chance(3) == 0)) {
        /* Until the acknowledgement a retransmission could read the data. */
        (void)may_read(&pair->sends.all[pair->sends.first % WORKS_MAX]);
        end_send(pair, IBV_WC_SUCCESS);
    } else if (out) {
        deliver(pair, peer);
    }
    return out || back;
}

/* Serves one pair: the first one with something to do, from a random one on. False: none has. */
static bool step(void)
{
    struct pair *each = NULL;
    uint32_t count = 0;
    DL_COUNT(pretend.pairs, each, count);
    uint32_t skip = count > 0 ? chance(count) : 0;
    struct pair *start = pretend.pairs;
    while (skip-- > 0) {
        start = start->next;
    }
    each = start;
    for (uint32_t i = 0; i < count; i++) {
        if (take_turn(each)) {
            pretend.steps++;
            return true;
        }
        each = each->next != NULL ? each->next : pretend.pairs;
    }
    return false;
}

static void *run_network(void *unused)
{
    (void)unused;
    verbs_pretend_lock();
    while (!pretend.over) {
        if (!step()) {
            (void)pthread_cond_wait(&pretend.news, &pretend.mutex);
        } else if (chance(8) == 0) { /* other threads get the lock */
            verbs_pretend_unlock();
            verbs_pretend_lock();
        }
    }
    verbs_pretend_unlock();
    return NULL;
}

/* Posting and polling -------------------------------------------------------------------------- */

static void add_work(struct works *works, const struct work *work)
{
    works->all[works->next++ % WORKS_MAX] = *work;
    (void)pthread_cond_signal(&pretend.news);
}

static void copy_parts(struct work *work, const struct ibv_sge *parts, int count)
{
    if (count > PARTS_MAX) {
        abort(); /* more than the device has said it takes */
    }
    work->part_count = count;
    for (int i = 0; i < count; i++) {
        work->parts[i] = parts[i];
    }
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *wanted, struct ibv_send_wr **bad)
{
    struct work work = {.id = wanted->wr_id, .send = *wanted};
    (void)bad;
    copy_parts(&work, wanted->sg_list, wanted->num_sge);
    if ((wanted->send_flags & IBV_SEND_INLINE) != 0) {
        memcpy(work.bytes,
               (const void *)(uintptr_t)work.parts[0].addr, /* NOLINT(performance-no-int-to-ptr) */
               work.parts[0].length);
    }
    verbs_pretend_lock();
    add_work(&((struct pair *)pair)->sends, &work);
    verbs_pretend_unlock();
    return 0;
}

static int post_receive(struct ibv_qp *pair, struct ibv_recv_wr *wanted, struct ibv_recv_wr **bad)
{
    struct work work = {.id = wanted->wr_id};
    (void)bad;
    copy_parts(&work, wanted->sg_list, wanted->num_sge);
    verbs_pretend_lock();
    add_work(&((struct pair *)pair)->receives, &work);
    verbs_pretend_unlock();
    return 0;
}

static int poll_queue(struct ibv_cq *of, int most, struct ibv_wc *ret_completions)
{
    struct queue *queue = (struct queue *)of;
    int count = 0;
    verbs_pretend_lock();
    /* Sometimes fewer than there are, as if the others completed a little later. */
    int some = most > 1 && chance(2) == 0 ? 1 + (int)chance((uint32_t)most) : most;
    while (count < some && queue->first != queue->next) {
        ret_completions[count++] = queue->all[queue->first++ % QUEUE_MAX];
    }
    verbs_pretend_unlock();
    return count;
}

static int notify(struct ibv_cq *of, int solicited)
{
    struct queue *queue = (struct queue *)of;
    (void)solicited;
    verbs_pretend_lock();
    queue->armed = true;
    verbs_pretend_unlock();
    return 0;
}

const struct ibv_context_ops verbs_pretend_ops = {.poll_cq = poll_queue,
                                                  .req_notify_cq = notify,
                                                  .post_send = post_send,
                                                  .post_recv = post_receive};

/* Queues and pairs ----------------------------------------------------------------------------- */

static struct ibv_cq *make_queue(struct ibv_context *context, int entries, void *user,
                                 struct ibv_comp_channel *channel, int vector)
{
    struct queue *queue = calloc(1, sizeof *queue);
    (void)entries;
    (void)user;
    (void)vector;
    queue->queue.context = context;
    queue->queue.channel = channel;
    return &queue->queue;
}

static int free_queue(struct ibv_cq *queue)
{
    free(queue);
    return 0;
}

static struct ibv_qp *make_pair(struct ibv_pd *domain, struct ibv_qp_init_attr *wanted)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pair->pair.context = domain->context;
    pair->pair.send_cq = wanted->send_cq;
    pair->pair.recv_cq = wanted->recv_cq;
    verbs_pretend_lock();
    pair->pair.qp_num = ++pretend.last;
    DL_APPEND(pretend.pairs, pair);
    verbs_pretend_unlock();
    return &pair->pair;
}

static int change_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    struct pair *changed = (struct pair *)pair;
    verbs_pretend_lock();
    bool refused = attributes->qp_state == IBV_QPS_RTR && pretend.refusals > 0;
    pretend.refusals -= refused;
    if (!refused) {
        changed->state = attributes->qp_state;
        changed->peer = (mask & IBV_QP_DEST_QPN) != 0 ? attributes->dest_qp_num : changed->peer;
    }
    (void)pthread_cond_signal(&pretend.news);
    verbs_pretend_unlock();
    return refused ? EHOSTUNREACH : 0;
}

/* Its completions stay in the queue, as those of Soft-RoCE do. */
static int free_pair(struct ibv_qp *pair)
{
    struct pair *gone = (struct pair *)pair;
    verbs_pretend_lock();
    DL_DELETE(pretend.pairs, gone);
    (void)pthread_cond_signal(&pretend.news);
    verbs_pretend_unlock();
    free(gone);
    return 0;
}

/* What tests call ------------------------------------------------------------------------------ */

bool verbs_pretend_start(unsigned seed)
{
    const struct muster_verbs_library *library = NULL;
    if (muster_verbs_library_load(&library) != MUSTER_OK) {
        return false;
    }
    struct muster_verbs_library *table = (struct muster_verbs_library *)library;
    table->create_cq = make_queue;
    table->destroy_cq = free_queue;
    table->create_qp = make_pair;
    table->modify_qp = change_pair;
    table->destroy_qp = free_pair;
    verbs_pretend_objects(table);
    verbs_pretend_memory(table);
    pretend.seed = seed;
    return pthread_create(&pretend.network, NULL, run_network, NULL) == 0;
}

void verbs_pretend_stop(void)
{
    verbs_pretend_lock();
    pretend.over = true;
    (void)pthread_cond_signal(&pretend.news);
    verbs_pretend_unlock();
    (void)pthread_join(pretend.network, NULL);
}

/* A random established connection, by its end with the smaller number; NULL: there is none. */
static struct pair *choose(void)
{
    struct pair *each = NULL;
    struct pair *chosen = NULL;
    uint32_t seen = 0;
    DL_FOREACH(pretend.pairs, each)
    {
        if (each->state == IBV_QPS_RTS && each->pair.qp_num < each->peer && peer_of(each) != NULL &&
            chance(++seen) == 0) {
            chosen = each;
        }
    }
    return chosen;
}

uint32_t verbs_pretend_break(uint32_t count)
{
    uint32_t broken = 0;
    struct pair *pair = NULL;
    verbs_pretend_lock();
    for (; broken < count && (pair = choose()) != NULL; broken++) {
        fail_connection(pair, peer_of(pair), (enum failure)chance(SILENTLY));
    }
    (void)pthread_cond_signal(&pretend.news);
    verbs_pretend_unlock();
    return broken;
}

void verbs_pretend_roughness(uint32_t one_of)
{
    verbs_pretend_lock();
    pretend.roughness = one_of;
    verbs_pretend_unlock();
}

void verbs_pretend_live(uint32_t count)
{
    verbs_pretend_lock();
    pretend.live = count;
    verbs_pretend_unlock();
}

void verbs_pretend_refuse(uint32_t count)
{
    verbs_pretend_lock();
    pretend.refusals = count;
    verbs_pretend_unlock();
}

uint32_t verbs_pretend_violations(void)
{
    verbs_pretend_lock();
    uint32_t violations = pretend.violations;
    verbs_pretend_unlock();
    return violations;
}

uint64_t verbs_pretend_steps(void)
{
    verbs_pretend_lock();
    uint64_t steps = pretend.steps;
    verbs_pretend_unlock();
    return steps;
}
