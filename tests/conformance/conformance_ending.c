/* The suite: operations that fail, by mismatch, abort, withdrawal, deadline or revocation. */
#include "tests/conformance/suite.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xEE };

static bool poisoned(const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != POISON) {
            return false;
        }
    }
    return true;
}

/* Sends a byte from one rank to the other: the receiver's next steps happen after the sender's last
 * ones. */
static char *pass_note(struct rig *rig, uint32_t rank, uint32_t from, uint64_t sequence)
{
    char note = 1;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer = rank == from ? rig_send(rig, 1 - from, sequence, &note, 1)
                                                   : rig_receive(rig, from, sequence, &note, 1);
    transfer.key.context = 1000;
    rig_post(rig, rank, &counter, &transfer);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    return NULL;
}

#define PASS_NOTE(rig, rank, from, sequence)                 \
    do {                                                     \
        char *error_ = pass_note(rig, rank, from, sequence); \
        if (error_ != NULL) {                                \
            return error_;                                   \
        }                                                    \
    } while (0)

/* Mismatch ----------------------------------------------------------------------------------- */

struct mismatch {
    uint64_t sent, awaited;
    struct muster_call there, here;
    bool sender_first;
    uint64_t sequence;
    const char *words[2][2]; /* in the error text of rank 0, of rank 1 */
};

/* A completed send is not counted: the test waits for the receive. */
static void note_failure(struct muster_transfer *transfer)
{
    struct rig_counter *counter = transfer->owner;
    if (transfer->status != MUSTER_OK && counter->status == MUSTER_OK) {
        counter->status = transfer->status;
        (void)snprintf(counter->reason, sizeof counter->reason, "%s", muster_last_error());
        counter->finished = true;
    }
}

/* If the sender finds the mismatch first it aborts the operation at the receiver, as every user of
 * a fabric does. `counter` is the send's. */
static char *await_verdict(struct rig *rig, const struct mismatch *m, struct rig_counter *counter)
{
    char note = 0;
    struct muster_transfer transfer = rig_receive(rig, 1, m->sequence, &note, 1);
    transfer.key.context = 1000;
    muster_status before = counter->status;
    rig_post(rig, 0, counter, &transfer);
    muster_status status = rig_wait(rig, 0, counter);
    if (before != MUSTER_OK || transfer.state != MUSTER_TRANSFER_DONE) {
        char reason[MUSTER_REASON_SIZE];
        RIG_EXPECT(status == MUSTER_INVALID);
        (void)snprintf(reason, sizeof reason, "rank 0 says: %.200s", counter->reason);
        muster_fabric_abort(rig->fabrics[0], 1, rig->generation, 0, m->sequence, reason);
        *counter =
            (struct rig_counter){.left = 1, .finished = transfer.state == MUSTER_TRANSFER_DONE};
        RIG_EXPECT(rig_wait(rig, 0, counter) == MUSTER_OK);
    }
    RIG_EXPECT(note == 1);
    return NULL;
}

static char *expect_verdict(struct rig *rig, const struct mismatch *m, struct rig_counter *counter)
{
    RIG_EXPECT(rig_wait(rig, 1, counter) == MUSTER_INVALID);
    uint32_t finder =
        strncmp(counter->reason, "rank 0 says: ", strlen("rank 0 says: ")) == 0 ? 0 : 1;
    RIG_EXPECT(strstr(counter->reason, "rank 0") != NULL);
    RIG_EXPECT(strstr(counter->reason, m->words[finder][0]) != NULL);
    RIG_EXPECT(strstr(counter->reason, m->words[finder][1]) != NULL);
    return pass_note(rig, 1, 1, m->sequence);
}

static char *disagree(struct rig *rig, uint32_t rank, void *user)
{
    const struct mismatch *m = user;
    unsigned char *data = calloc(1, m->sent + m->awaited + 1);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer = rank == 0
                                          ? rig_send(rig, 1, m->sequence, data, m->sent)
                                          : rig_receive(rig, 0, m->sequence, data, m->awaited);
    transfer.call = rank == 0 ? &m->there : &m->here;
    transfer.done = rank == 0 ? note_failure : transfer.done;
    if (rank == 0 && m->sender_first) {
        rig_post(rig, rank, &counter, &transfer);
        PASS_NOTE(rig, rank, 0, m->sequence);
    } else {
        PASS_NOTE(rig, rank, 0, m->sequence);
        rig_post(rig, rank, &counter, &transfer);
    }
    char *error = rank == 0 ? await_verdict(rig, m, &counter) : expect_verdict(rig, m, &counter);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, m->sequence);
    free(data);
    return error;
}

static void run_mismatch(struct mismatch mismatch)
{
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        mismatch.sequence = sequence;
        mismatch.sender_first = sequence == 1;
        rig_run(&rig, disagree, &mismatch);
    }
    rig_finish(&rig);
}

static void a_size_mismatch_is_invalid_and_names_both_sizes(void **state)
{
    (void)state;
    static const unsigned long long sizes[][2] = {
        {10, 20}, {20, 0}, {100, 1000000}, {1000000, 100}, {1000000, 2000000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char here[2][32];
        char there[2][32];
        for (int rank = 0; rank < 2; rank++) {
            (void)snprintf(here[rank], sizeof here[rank], "%llu bytes here", sizes[i][rank]);
            (void)snprintf(there[rank], sizeof there[rank], "%llu there", sizes[i][1 - rank]);
        }
        run_mismatch((struct mismatch){.sent = sizes[i][0],
                                       .awaited = sizes[i][1],
                                       .there = rig_call,
                                       .here = rig_call,
                                       .words = {{here[0], there[0]}, {here[1], there[1]}}});
    }
}

static void a_call_mismatch_is_invalid_and_names_both_calls(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {8, 1000000};
    for (size_t i = 0; i < 2; i++) {
        struct muster_call other = rig_call;
        other.count = 4711;
        struct mismatch count = {.sent = sizes[i],
                                 .awaited = sizes[i],
                                 .there = other,
                                 .here = rig_call,
                                 .words = {{"4711", "count"}, {"4711", "count"}}};
        run_mismatch(count);
        other = rig_call;
        other.type = MUSTER_FLOAT64;
        struct mismatch type = {.sent = sizes[i],
                                .awaited = sizes[i],
                                .there = other,
                                .here = rig_call,
                                .words = {{"float64", "uint8"}, {"float64", "uint8"}}};
        run_mismatch(type);
    }
}

/* Abort -------------------------------------------------------------------------------------- */

/* Rank 0 aborts two operations at rank 1, whose transfers are posted before the abort of the first
 * one, and after that of the second. */
static char *abort_operations(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    static char data[1000000];
    char small = 0;
    struct rig_counter tallies[3] = {{.left = 1}, {.left = 1}, {.left = 1}};
    struct muster_transfer transfers[3] = {rig_receive(rig, 0, 1, &small, 1),
                                           rig_send(rig, 0, 1, data, sizeof data),
                                           rig_receive(rig, 0, 2, &small, 1)};
    struct muster_fabric *fabric = rig->fabrics[rank];
    if (rank == 0) {
        PASS_NOTE(rig, rank, 1, 1);
        muster_fabric_abort(fabric, 1, rig->generation, 0, 1, "the first went wrong");
        muster_fabric_abort(fabric, 1, rig->generation, 0, 2, "the second too");
        PASS_NOTE(rig, rank, 0, 2);
        PASS_NOTE(rig, rank, 1, 3);
        return NULL;
    }
    rig_post(rig, rank, &tallies[0], &transfers[0]);
    rig_post(rig, rank, &tallies[1], &transfers[1]);
    PASS_NOTE(rig, rank, 1, 1);
    RIG_EXPECT(rig_wait(rig, rank, &tallies[0]) == MUSTER_INVALID);
    RIG_EXPECT(strstr(tallies[0].reason, "the first went wrong") != NULL);
    RIG_EXPECT(rig_wait(rig, rank, &tallies[1]) == MUSTER_INVALID);
    PASS_NOTE(rig, rank, 0, 2);
    rig_post(rig, rank, &tallies[2], &transfers[2]);
    RIG_EXPECT(rig_wait(rig, rank, &tallies[2]) == MUSTER_INVALID);
    RIG_EXPECT(strstr(tallies[2].reason, "the second too") != NULL);
    muster_fabric_withdraw(fabric, rig->generation, 0, 1);
    muster_fabric_withdraw(fabric, rig->generation, 0, 2);
    PASS_NOTE(rig, rank, 1, 3);
    return NULL;
}

static void an_abort_ends_transfers_posted_before_and_after_it(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, abort_operations, NULL);
    rig_finish(&rig);
}

/* Withdrawal --------------------------------------------------------------------------------- */

/* Rank 1 posts a receive and withdraws it before rank 0 sends: neither buffer may be accessed after
 * its transfer has been withdrawn. */
static char *withdraw_before(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t size = *(const uint64_t *)user;
    unsigned char *data = malloc(size);
    memset(data, rank == 0 ? 1 : POISON, size);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer =
        rank == 0 ? rig_send(rig, 1, size, data, size) : rig_receive(rig, 0, size, data, size);
    if (rank == 1) {
        rig_post(rig, rank, &counter, &transfer);
        muster_fabric_withdraw(rig->fabrics[1], rig->generation, 0, size);
        RIG_EXPECT(transfer.state == MUSTER_TRANSFER_IDLE);
    }
    PASS_NOTE(rig, rank, 1, 2 * size);
    if (rank == 0) {
        rig_post(rig, rank, &counter, &transfer);
    }
    PASS_NOTE(rig, rank, 0, 2 * size);
    if (rank == 0) {
        muster_fabric_withdraw(rig->fabrics[0], rig->generation, 0, size);
        memset(data, POISON, size);
    }
    PASS_NOTE(rig, rank, 0, 2 * size + 1);
    RIG_EXPECT(poisoned(data, size) && counter.left == (rank == 1 || counter.left == 1 ? 1 : 0));
    free(data);
    return NULL;
}

static void a_withdrawn_receive_is_not_written(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {100, 1000000};
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    for (size_t i = 0; i < 2; i++) {
        uint64_t size = sizes[i];
        rig_run(&rig, withdraw_before, &size);
    }
    rig_finish(&rig);
}

enum { LONG_BYTES = 16 << 20, BEGUN_BYTES = 1 << 20, LONG_RUNS = 1024 };

/* A long message, and a thread that withdraws it once it has begun to arrive. */
struct interruption {
    uint32_t who;               /* the rank that withdraws */
    struct rig_counter counter; /* the receiver's; owner of its transfer */
    sem_t begun, called;
    uint64_t consumed; /* under `lock` */
    bool over;         /* the withdrawal has returned */
    bool wrong;        /* bytes came afterwards, or other bytes than were sent */
    pthread_mutex_t lock;
    struct rig *rig;
    unsigned char *data;
    struct muster_range_run runs[LONG_RUNS + 1]; /* of the data, the last one first */
    struct muster_range_list list;
    bool in_ranges; /* the message is sent out of these */
};

static void count_pieces(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                         size_t size_bytes)
{
    struct interruption *in =
        (struct interruption *)((char *)transfer->owner - offsetof(struct interruption, counter));
    pthread_mutex_lock(&in->lock);
    bool begun = in->consumed < BEGUN_BYTES && in->consumed + size_bytes >= BEGUN_BYTES;
    in->wrong = in->wrong || (in->over && in->who == 1) || offset_bytes != in->consumed;
    in->consumed += size_bytes;
    pthread_mutex_unlock(&in->lock);
    for (size_t i = 0; i < size_bytes; i++) {
        in->wrong = in->wrong || ((const unsigned char *)data)[i] != 7;
    }
    if (begun) {
        sem_post(&in->begun);
        while (sem_wait(&in->called) != 0) {
        }
    }
}

static void *interrupt(void *argument)
{
    struct interruption *in = argument;
    while (sem_wait(&in->begun) != 0) {
    }
    sem_post(&in->called);
    muster_fabric_withdraw(in->rig->fabrics[in->who], in->rig->generation, 0, 1);
    pthread_mutex_lock(&in->lock);
    in->over = true;
    pthread_mutex_unlock(&in->lock);
    if (in->who == 0) {
        memset(in->data, POISON, LONG_BYTES); /* must not be read any more */
    }
    return NULL;
}

/* Drives progress until the other thread has withdrawn the transfer. */
static char *drive_until_over(struct rig *rig, uint32_t rank, struct interruption *in)
{
    char note = 0;
    struct rig_counter never = {.left = 1};
    struct muster_transfer nothing = rig_receive(rig, 1 - rank, 77, &note, 1);
    rig_post(rig, rank, &never, &nothing);
    bool over = false;
    while (!over) {
        muster_status status = muster_fabric_wait(rig->fabrics[rank], rig->generation,
                                                  &never.finished, muster_clock_after_ms(5));
        RIG_EXPECT(status == MUSTER_RETRY);
        pthread_mutex_lock(&in->lock);
        over = in->over;
        pthread_mutex_unlock(&in->lock);
    }
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 77);
    return NULL;
}

/* The rank whose transfer is withdrawn. */
static char *be_interrupted(struct rig *rig, uint32_t rank, struct interruption *in)
{
    pthread_t interrupter;
    RIG_EXPECT(pthread_create(&interrupter, NULL, interrupt, in) == 0);
    char *error = drive_until_over(rig, rank, in);
    pthread_join(interrupter, NULL);
    if (error != NULL) {
        return error;
    }
    if (rank == 0) {
        muster_fabric_abort(rig->fabrics[0], 1, rig->generation, 0, 1, "taken back");
    }
    PASS_NOTE(rig, rank, rank, 1);
    PASS_NOTE(rig, rank, 1 - rank, 2);
    return NULL;
}

static char *send_or_receive(struct rig *rig, uint32_t rank, void *user)
{
    struct interruption *in = user;
    struct rig_counter sent = {.left = 1};
    struct muster_transfer transfer = rank == 0 ? rig_send(rig, 1, 1, in->data, LONG_BYTES)
                                                : rig_receive(rig, 0, 1, NULL, LONG_BYTES);
    transfer.consume = rank == 0 ? NULL : count_pieces;
    transfer.ranges = rank == 0 && in->in_ranges ? &in->list : NULL;
    rig_post(rig, rank, rank == 0 ? &sent : &in->counter, &transfer);
    if (rank == in->who) {
        return be_interrupted(rig, rank, in);
    }
    PASS_NOTE(rig, rank, 1 - rank, 1);
    if (rank == 1 && rig_wait(rig, rank, &in->counter) != MUSTER_OK) {
        RIG_EXPECT(in->counter.status == MUSTER_INVALID);
        RIG_EXPECT(strcmp(in->counter.reason, "taken back") == 0);
    }
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 1);
    PASS_NOTE(rig, rank, rank, 2);
    return NULL;
}

/* Runs of two sizes. */
static void cut_data(struct interruption *in)
{
    const uint64_t one = LONG_BYTES / LONG_RUNS;
    for (uint64_t i = 0; i <= LONG_RUNS; i++) {
        in->runs[i].begin_bytes = i * one + (i % 2 == 1 ? one - 64 : 0);
    }
    for (uint64_t i = 0; i < LONG_RUNS; i++) {
        in->runs[i].address = (char *)in->data + LONG_BYTES - in->runs[i + 1].begin_bytes;
    }
    in->list = (struct muster_range_list){.runs = in->runs, .count = LONG_RUNS};
}

static void run_interruption(uint32_t who, bool in_ranges)
{
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    struct interruption in = {
        .who = who, .counter = {.left = 1}, .rig = &rig, .in_ranges = in_ranges};
    in.data = malloc(LONG_BYTES);
    cut_data(&in);
    memset(in.data, 7, LONG_BYTES);
    sem_init(&in.begun, 0, 0);
    sem_init(&in.called, 0, 0);
    pthread_mutex_init(&in.lock, NULL);
    rig_run(&rig, send_or_receive, &in);
    assert_false(in.wrong);
    assert_true(in.consumed >= BEGUN_BYTES);
    /* On a busy machine the message may be complete before the thread withdraws it. */
    assert_true(in.counter.status == MUSTER_OK ? in.consumed == LONG_BYTES || in.counter.left == 1
                                               : in.consumed < LONG_BYTES);
    rig_finish(&rig);
    sem_destroy(&in.begun);
    sem_destroy(&in.called);
    pthread_mutex_destroy(&in.lock);
    free(in.data);
}

static void a_receive_can_be_withdrawn_half_way(void **state)
{
    (void)state;
    run_interruption(1, false);
    run_interruption(1, true);
}

static void a_send_can_be_withdrawn_half_way(void **state)
{
    (void)state;
    run_interruption(0, false);
    run_interruption(0, true);
}

static char *withdraw_after(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    for (uint64_t sequence = 1; sequence <= 200; sequence++) {
        PASS_NOTE(rig, rank, sequence % 2, sequence);
        muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 1000, sequence);
    }
    return NULL;
}

static void withdrawing_a_completed_operation_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, withdraw_after, NULL);
    rig_finish(&rig);
}

/* Time and revocation ------------------------------------------------------------------------ */

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer = rig_receive(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &counter, &transfer);
    assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &counter.finished,
                                        muster_clock_after_ms(30)),
                     MUSTER_RETRY);
    assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &counter.finished, 0),
                     MUSTER_RETRY);
    muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
    rig_finish(&rig);
}

/* A fabric accepts connections before its first generation, and may be waited on. */
static void a_wait_before_the_first_generation_ends_at_its_deadline(void **state)
{
    (void)state;
    const bool never = false;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_replace(&rig, 1);
    assert_int_equal(
        muster_fabric_wait(rig.fabrics[1], rig.generation, &never, muster_clock_after_ms(30)),
        MUSTER_RETRY);
    rig_finish(&rig);
}

enum { WAITERS = 4 };

struct waiting {
    struct rig *rig;
    uint32_t context;
    muster_status status;
    bool named;
    sem_t *posted;
};

static void *wait_in_vain(void *argument)
{
    struct waiting *waiting = argument;
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer = rig_receive(waiting->rig, 1, 1, &byte, 1);
    transfer.key.context = waiting->context;
    rig_post(waiting->rig, 0, &counter, &transfer);
    sem_post(waiting->posted);
    waiting->status = rig_wait(waiting->rig, 0, &counter);
    waiting->named = strstr(muster_last_error(), "a member died") != NULL;
    muster_fabric_withdraw(waiting->rig->fabrics[0], waiting->rig->generation, waiting->context, 1);
    return NULL;
}

static void a_revocation_wakes_all_waiting_threads(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    struct waiting waiting[WAITERS];
    pthread_t threads[WAITERS];
    sem_t posted;
    sem_init(&posted, 0, 0);
    for (uint32_t i = 0; i < WAITERS; i++) {
        waiting[i] = (struct waiting){.rig = &rig, .context = i, .posted = &posted};
        assert_int_equal(pthread_create(&threads[i], NULL, wait_in_vain, &waiting[i]), 0);
    }
    for (uint32_t i = 0; i < WAITERS; i++) {
        while (sem_wait(&posted) != 0) {
        }
    }
    muster_fabric_revoke(rig.fabrics[0], rig.generation, "a member died");
    for (uint32_t i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiting[i].status, MUSTER_REJOIN);
        assert_true(waiting[i].named);
    }
    char byte = 0;
    struct muster_transfer late = rig_receive(&rig, 1, 2, &byte, 1);
    assert_int_equal(muster_fabric_post(rig.fabrics[0], &late), MUSTER_REJOIN);
    assert_non_null(strstr(muster_last_error(), "a member died"));
    sem_destroy(&posted);
    rig_finish(&rig);
}

const struct CMUnitTest conformance_ending[] = {
    cmocka_unit_test(a_size_mismatch_is_invalid_and_names_both_sizes),
    cmocka_unit_test(a_call_mismatch_is_invalid_and_names_both_calls),
    cmocka_unit_test(an_abort_ends_transfers_posted_before_and_after_it),
    cmocka_unit_test(a_withdrawn_receive_is_not_written),
    cmocka_unit_test(a_receive_can_be_withdrawn_half_way),
    cmocka_unit_test(a_send_can_be_withdrawn_half_way),
    cmocka_unit_test(withdrawing_a_completed_operation_changes_nothing),
    cmocka_unit_test(a_wait_ends_at_its_deadline),
    cmocka_unit_test(a_wait_before_the_first_generation_ends_at_its_deadline),
    cmocka_unit_test(a_revocation_wakes_all_waiting_threads),
};
const size_t conformance_ending_count = sizeof conformance_ending / sizeof conformance_ending[0];
