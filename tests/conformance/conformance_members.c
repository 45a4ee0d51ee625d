/* The suite: members that join, leave and die; generations; several threads at a time. */
#include "tests/conformance/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 300000, DESCRIPTORS_MAX = 256 };

/* Drives the fabric for so long, or until the operation has finished. */
static void progress_for_ms(struct rig *rig, uint32_t rank, const struct rig_counter *counter,
                            uint32_t ms)
{
    muster_status status = muster_fabric_wait(rig->fabrics[rank], rig->generation,
                                              &counter->finished, muster_clock_after_ms(ms));
    (void)status;
}

/* Each rank sends one message to every other rank, in this context and with this sequence number.
 */
static char *exchange(struct rig *rig, uint32_t rank, uint32_t context, uint64_t sequence,
                      uint64_t size)
{
    char *data = malloc(2 * size + 1);
    struct muster_transfer *transfers = calloc(2 * (size_t)rig->count, sizeof *transfers);
    struct rig_counter counter = {.left = 2 * (rig->count - 1)};
    rig_fill(data, size, rank + sequence);
    char *error = NULL;
    for (uint32_t i = 0; i < rig->count && counter.status == MUSTER_OK; i++) {
        if (i != rank) {
            transfers[2 * i] = rig_send(rig, i, sequence, data, size);
            transfers[2 * i + 1] = rig_receive(rig, i, sequence, data + size, size);
            transfers[2 * i].key.context = context;
            transfers[2 * i + 1].key.context = context;
            rig_post(rig, rank, &counter, &transfers[2 * i]);
            rig_post(rig, rank, &counter, &transfers[2 * i + 1]);
        }
    }
    muster_status status = rig_wait(rig, rank, &counter);
    if (status != MUSTER_OK) {
        error = rig_error("%s: %s; %s", muster_status_name(status), counter.reason,
                          muster_last_error());
    }
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, context, sequence);
    free(transfers);
    free(data);
    return error;
}

static char *exchange_some(struct rig *rig, uint32_t rank, void *user)
{
    return exchange(rig, rank, 0, *(const uint64_t *)user, 1000);
}

static uint64_t links_opened(struct rig *rig, uint32_t rank)
{
    return muster_fabric_figures(rig->fabrics[rank]).links_opened;
}

/* Generations -------------------------------------------------------------------------------- */

static void links_between_members_that_stay_survive_a_generation_change(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t sequence = 1;
    rig_init(&rig, conformance_transport, 3);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(links_opened(&rig, 0), 2);
    rig_begin(&rig);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(links_opened(&rig, 0), 2);
    rig_replace(&rig, 2);
    rig_begin(&rig);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(links_opened(&rig, 0), 3);
    assert_int_equal(links_opened(&rig, 1), 3);
    assert_int_equal(links_opened(&rig, 2), 2);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
    rig_finish(&rig);
}

static void ranks_may_change_places(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t sequence = 1;
    rig_init(&rig, conformance_transport, 3);
    rig_run(&rig, exchange_some, &sequence);
    struct muster_peer peer = rig.peers[0];
    struct muster_fabric *fabric = rig.fabrics[0];
    rig.peers[0] = rig.peers[2];
    rig.fabrics[0] = rig.fabrics[2];
    rig.peers[2] = peer;
    rig.fabrics[2] = fabric;
    rig_begin(&rig);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(links_opened(&rig, 2), 2);
    rig_finish(&rig);
}

/* No progress between dropping and ending; the address sanitizer finds leaks. */
static void a_fabric_may_end_right_after_members_were_dropped(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t sequence = 1;
    rig_init(&rig, conformance_transport, 3);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(
        muster_fabric_begin_generation(rig.fabrics[0], rig.generation + 1, rig.peers, 1),
        MUSTER_OK);
    muster_fabric_destroy(rig.fabrics[0], 0);
    rig.fabrics[0] = NULL;
    rig_finish(&rig);
}

static uint32_t count_sockets(void)
{
    uint32_t count = 0;
    struct stat stat;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        count += fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode);
    }
    return count;
}

/* The child lives until the pipe ends. Its parent's links go on; when a member of its parent dies,
 * the peer sees the end of the connection. */
static void a_child_of_fork_that_sleeps_does_not_hide_a_death(void **state)
{
    (void)state;
    struct rig rig;
    int pipe_ends[2];
    int how = -1;
    char byte = 0;
    uint64_t sequence = 1;
    uint32_t sockets = count_sockets();
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, exchange_some, &sequence);
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(pipe_ends[1]);
        bool none = count_sockets() == sockets;
        _exit(read(pipe_ends[0], &byte, 1) == 0 && none ? 0 : 1);
    }
    sequence++;
    rig_run(&rig, exchange_some, &sequence);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(&rig, 1, ++sequence, &byte, 1);
    rig_post(&rig, 0, &counter, &receive);
    muster_fabric_kill(rig.fabrics[1]);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    assert_non_null(strstr(counter.reason, "link to rank 1 (host host-1): "));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    rig_finish(&rig);
}

/* Each member is alone in the next generation. */
static void part_from_all(struct rig *rig)
{
    rig->generation++;
    for (uint32_t i = 0; i < rig->count; i++) {
        assert_int_equal(
            muster_fabric_begin_generation(rig->fabrics[i], rig->generation, &rig->peers[i], 1),
            MUSTER_OK);
    }
}

/* Another process may have copies of the descriptors, for example a child of clone() before
 * it calls exec. An event on such a connection must not reach a link that is closed. */
static void links_end_although_copies_of_their_descriptors_are_open(void **state)
{
    (void)state;
    struct rig rig;
    int copies[DESCRIPTORS_MAX];
    uint32_t count = 0;
    uint64_t sequence = 1;
    const struct rig_counter never = {.left = 1};
    rig_init(&rig, conformance_transport, 3);
    rig_run(&rig, exchange_some, &sequence);
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        if (count < DESCRIPTORS_MAX && getpeername(fd, (struct sockaddr *)&peer, &size) == 0) {
            copies[count++] = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTORS_MAX);
        }
    }
    part_from_all(&rig);
    for (uint32_t i = 0; i < rig.count; i++) {
        progress_for_ms(&rig, i, &never, 5); /* closed links are freed */
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)shutdown(copies[i], SHUT_RDWR); /* of the last copy: an event */
        close(copies[i]);
    }
    for (uint32_t i = 0; i < rig.count; i++) {
        progress_for_ms(&rig, i, &never, 5);
    }
    rig_begin(&rig);
    rig_run(&rig, exchange_some, &sequence);
    rig_finish(&rig);
}

/* Rank 0 begins the next generation first; its messages wait until rank 1 does. */
static void messages_that_arrive_before_their_generation_are_kept(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t sequence = 1;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, exchange_some, &sequence);
    struct muster_transfer old = rig_receive(&rig, 0, 9, NULL, 0);
    struct rig_counter never = {.left = 1};
    rig_post(&rig, 1, &never, &old);
    uint64_t old_generation = rig.generation++;
    rig_begin_one(&rig, 0);

    char *out = malloc(LARGE);
    char *in = calloc(1, LARGE);
    rig_fill(out, LARGE, 5);
    struct rig_counter sent = {.left = 2};
    struct rig_counter received = {.left = 2};
    struct muster_transfer sends[2] = {rig_send(&rig, 1, 1, out, 100),
                                       rig_send(&rig, 1, 2, out, LARGE)};
    struct muster_transfer receives[2] = {rig_receive(&rig, 0, 1, in, 100),
                                          rig_receive(&rig, 0, 2, in, LARGE)};
    for (int i = 0; i < 2; i++) {
        rig_post(&rig, 0, &sent, &sends[i]);
    }
    /* Progress at both ranks: rank 1 may have read them before its generation begins, or not. */
    progress_for_ms(&rig, 0, &sent, 20);
    assert_int_equal(muster_fabric_wait(rig.fabrics[1], old_generation, &never.finished,
                                        muster_clock_after_ms(20)),
                     MUSTER_RETRY);
    muster_fabric_withdraw(rig.fabrics[1], old_generation, 0, 9);
    rig_begin_one(&rig, 1);
    for (int i = 0; i < 2; i++) {
        rig_post(&rig, 1, &received, &receives[i]);
    }
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while ((!received.finished || !sent.finished) && muster_clock_ns() < deadline_ns) {
        progress_for_ms(&rig, 0, &sent, 5);
        progress_for_ms(&rig, 1, &received, 5);
    }
    assert_int_equal(received.left, 0);
    assert_int_equal(received.status, MUSTER_OK);
    assert_true(rig_filled(in, LARGE, 5));
    free(in);
    free(out);
    rig_finish(&rig);
}

static char *send_second(struct rig *rig, uint32_t rank, void *user)
{
    char byte = rank == 0 ? 2 : 0;
    (void)user;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer =
        rank == 0 ? rig_send(rig, 1, 5, &byte, 1) : rig_receive(rig, 0, 5, &byte, 1);
    rig_post(rig, rank, &counter, &transfer);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    RIG_EXPECT(byte == 2);
    return NULL;
}

static void messages_of_an_older_generation_are_dropped(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t sequence = 1;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, exchange_some, &sequence);
    char byte = 1;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer stale = rig_send(&rig, 1, 5, &byte, 1);
    rig_post(&rig, 0, &counter, &stale);
    progress_for_ms(&rig, 0, &counter, 20);
    muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 5);
    rig_begin(&rig);
    rig_run(&rig, send_second, NULL);
    struct muster_transfer old = rig_send(&rig, 1, 6, &byte, 1);
    old.key.generation--;
    assert_int_equal(muster_fabric_post(rig.fabrics[0], &old), MUSTER_REJOIN);
    rig_finish(&rig);
}

/* Death -------------------------------------------------------------------------------------- */

enum { DYING = 3, ROUNDS = 8 };

struct death {
    uint32_t rounds;  /* before it dies */
    bool with_posted; /* in the middle of a round */
    uint64_t size;
};

static char *die(struct rig *rig, const struct death *death)
{
    char *data = calloc(2, death->size);
    struct muster_transfer transfers[2];
    struct rig_counter counter = {.left = 2};
    if (death->with_posted) {
        transfers[0] = rig_send(rig, 0, death->rounds + 1, data, death->size);
        transfers[1] = rig_receive(rig, 1, death->rounds + 1, data + death->size, death->size);
        rig_post(rig, DYING, &counter, &transfers[0]);
        rig_post(rig, DYING, &counter, &transfers[1]);
        progress_for_ms(rig, DYING, &counter, 1);
    }
    muster_fabric_kill(rig->fabrics[DYING]);
    free(data);
    return NULL;
}

/* The rank that sees the death first revokes the generation everywhere, as the service would: other
 * ranks may wait for it. */
static char *report(struct rig *rig, uint32_t rank, const char *error)
{
    uint32_t suspect = UINT32_MAX;
    char reason[MUSTER_REASON_SIZE] = "";
    if (strstr(error, "rejoin: ") == error && strstr(error, "reported") != NULL) {
        return NULL;
    }
    RIG_EXPECT(strstr(error, "rejoin: link to rank 3 (host host-3): ") == error);
    RIG_EXPECT(muster_fabric_lost_peer(rig->fabrics[rank], rig->generation, &suspect, reason));
    RIG_EXPECT(suspect == DYING && strstr(reason, "rank 3 (host host-3)") != NULL);
    for (uint32_t i = 0; i < DYING; i++) {
        muster_fabric_revoke(rig->fabrics[i], rig->generation, "reported");
    }
    return NULL;
}

static char *work_until_a_death(struct rig *rig, uint32_t rank, void *user)
{
    const struct death *death = user;
    for (uint64_t round = 1;; round++) {
        if (rank == DYING && round > death->rounds) {
            return die(rig, death);
        }
        char *error = exchange(rig, rank, 0, round, death->size);
        if (error != NULL) {
            char *wrong = report(rig, rank, error);
            if (wrong != NULL) {
                print_error("%s\n", error);
            }
            free(error);
            return wrong;
        }
    }
}

static void a_death_ends_all_transfers_with_its_member(void **state)
{
    (void)state;
    uint32_t seed = 0;
    muster_random_bytes(&seed, sizeof seed);
    print_message("seed %u\n", seed);
    for (int i = 0; i < ROUNDS; i++) {
        static const uint64_t sizes[] = {1, 5000, 100000, 1000000};
        struct rig rig;
        rig_init(&rig, conformance_transport, 4);
        struct death death = {.rounds = (uint32_t)rand_r(&seed) % 6,
                              .with_posted = rand_r(&seed) % 2 == 0,
                              .size = sizes[rand_r(&seed) % 4]};
        rig_run(&rig, work_until_a_death, &death);
        rig_finish(&rig);
    }
}

static char *leave_or_wait(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    char *error = exchange(rig, rank, 0, 1, 1000);
    RIG_EXPECT(error == NULL);
    if (rank == 1) {
        muster_fabric_destroy(rig->fabrics[1], 1000);
        rig->fabrics[1] = NULL;
        return NULL;
    }
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer = rig_receive(rig, 1, 2, &byte, 1);
    rig_post(rig, rank, &counter, &transfer);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_REJOIN);
    RIG_EXPECT(strcmp(counter.reason, "rank 1 (host host-1) has left") == 0);
    uint32_t suspect = 0;
    char reason[MUSTER_REASON_SIZE];
    RIG_EXPECT(!muster_fabric_lost_peer(rig->fabrics[0], rig->generation, &suspect, reason));
    RIG_EXPECT(muster_fabric_figures(rig->fabrics[0]).links_lost == 0);
    return NULL;
}

static void a_leave_is_not_a_death(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, leave_or_wait, NULL);
    rig_finish(&rig);
}

/* The last messages of the leaving rank are many small ones, whose receives are posted when it is
 * gone. */
enum { LAST = 20 };

static char *send_last_words(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct muster_transfer transfers[LAST];
    char data[LAST];
    struct rig_counter counter = {.left = LAST};
    for (uint32_t i = 0; i < LAST; i++) {
        uint32_t n = rank == 1 ? i : LAST - 1 - i;
        data[n] = (char)(rank == 1 ? n : 99);
        transfers[n] = rank == 1 ? rig_send(rig, 0, n + 1, &data[n], 1)
                                 : rig_receive(rig, 1, n + 1, &data[n], 1);
        struct rig_counter one = {.left = 1};
        rig_post(rig, rank, rank == 1 ? &counter : &one, &transfers[n]);
        RIG_EXPECT(rank == 1 || rig_wait(rig, rank, &one) == MUSTER_OK);
        RIG_EXPECT(data[n] == (char)n);
    }
    if (rank == 1) {
        RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
        muster_fabric_destroy(rig->fabrics[1], 1000);
        rig->fabrics[1] = NULL;
    }
    return NULL;
}

static void messages_of_a_member_that_has_left_still_arrive(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, send_last_words, NULL);
    rig_finish(&rig);
}

static char *call_the_dead(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    if (rank == 1) {
        return NULL;
    }
    char *error = exchange(rig, rank, 0, 1, 1000);
    RIG_EXPECT(error != NULL && strstr(error, "link to rank 1 (host host-1)") != NULL);
    free(error);
    return NULL;
}

static void a_member_that_died_before_its_link_opened_is_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    muster_fabric_kill(rig.fabrics[1]);
    rig_run(&rig, call_the_dead, NULL);
    rig_finish(&rig);
}

/* Threads ------------------------------------------------------------------------------------ */

enum { THREADS = 3, CALLS = 60 };

struct thread {
    struct rig *rig;
    uint32_t rank, context;
    char *error;
    pthread_t thread;
};

static void *exchange_often(void *argument)
{
    struct thread *thread = argument;
    for (uint64_t i = 1; i <= CALLS && thread->error == NULL; i++) {
        thread->error = exchange(thread->rig, thread->rank, thread->context, i, i * 700);
    }
    return NULL;
}

static char *many_threads(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct thread threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.rig = rig, .rank = rank, .context = i};
        RIG_EXPECT(pthread_create(&threads[i].thread, NULL, exchange_often, &threads[i]) == 0);
    }
    char *error = NULL;
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        if (threads[i].error != NULL) {
            free(error);
            error = threads[i].error;
        }
    }
    return error;
}

static void several_threads_wait_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 3);
    rig_run(&rig, many_threads, NULL);
    rig_finish(&rig);
}

const struct CMUnitTest conformance_members[] = {
    cmocka_unit_test(links_between_members_that_stay_survive_a_generation_change),
    cmocka_unit_test(ranks_may_change_places),
    cmocka_unit_test(a_fabric_may_end_right_after_members_were_dropped),
    cmocka_unit_test(links_end_although_copies_of_their_descriptors_are_open),
    cmocka_unit_test(a_child_of_fork_that_sleeps_does_not_hide_a_death),
    cmocka_unit_test(messages_that_arrive_before_their_generation_are_kept),
    cmocka_unit_test(messages_of_an_older_generation_are_dropped),
    cmocka_unit_test(a_death_ends_all_transfers_with_its_member),
    cmocka_unit_test(a_leave_is_not_a_death),
    cmocka_unit_test(messages_of_a_member_that_has_left_still_arrive),
    cmocka_unit_test(a_member_that_died_before_its_link_opened_is_lost),
    cmocka_unit_test(several_threads_wait_at_once),
};
const size_t conformance_members_count = sizeof conformance_members / sizeof conformance_members[0];
