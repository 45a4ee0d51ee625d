/*
 * Random sequences of events, by seed. After each event the invariants are checked; in the end the
 * stored events are replayed, and a generation must form. From time to time a membership restored
 * from a snapshot replaces the membership. MUSTER_SEED=N runs that seed alone.
 */
#include "elastic/membership/liveness.h"
#include "elastic/messages/messages.h"
#include "tests/elastic/membership/drive.h"

enum {
    SEEDS = 60,
    STEPS = 400,
    WORKERS = 9,
    TEXT_SIZE = 64 * 1024,
};

struct walk {
    struct drive d;
    uint64_t random;
    unsigned incarnation[WORKERS];
    uint64_t version;
    /* The state before the current event. */
    char before[TEXT_SIZE];
    enum muster_job_phase phase;
    uint64_t number;
    uint32_t size;
    char members[64][MUSTER_UUID_SIZE];
    char arrived[64][MUSTER_UUID_SIZE];
    uint32_t arrived_count;
    bool arrived_doubted;
    /* How often these happened, over all seeds. */
    unsigned *formed, *ended, *died, *refused;
};

static uint64_t next_random(struct walk *w)
{
    uint64_t z = (w->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t below(struct walk *w, uint32_t bound)
{
    return (uint32_t)(next_random(w) % bound);
}

static bool chance(struct walk *w, uint32_t percent)
{
    return below(w, 100) < percent;
}

/* What the views show, as text. signs: also the signs of life, which are not stored. */
struct text {
    char *at;
    size_t left;
};

static void MUSTER_PRINTF(2, 3) print(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    assert_true(written >= 0 && (size_t)written < text->left);
    text->at += written;
    text->left -= (size_t)written;
}

static void print_members(struct text *text, const struct muster_membership *m, bool signs)
{
    struct muster_member_view v;
    for (uint32_t i = 0; muster_membership_member(m, i, &v); i++) {
        print(text, "%s on %s v%llu g%llu o%u phase %d leave %d rank %u\n", v.info->id,
              v.info->host, (unsigned long long)v.info->state_version,
              (unsigned long long)v.info->generation, v.info->order, v.phase, v.leave_asked,
              v.rank);
        if (signs) {
            print(text, "suspected %d progress %llu last seen %lld\n", v.suspected,
                  (unsigned long long)v.progress, (long long)v.last_seen_ms);
        }
    }
}

static void print_records(struct text *text, const struct muster_membership *m)
{
    struct muster_generation_record g;
    struct muster_departure_record p;
    for (uint32_t i = 0; muster_membership_generation_record(m, i, &g); i++) {
        print(text, "g%llu %u on %u %lld..%lld %s\n", (unsigned long long)g.number, g.size, g.hosts,
              (long long)g.formed_ms, (long long)g.revoked_ms, g.why);
    }
    for (uint32_t i = 0; muster_membership_departure_record(m, i, &p); i++) {
        print(text, "%s %s %u %u g%llu %d %lld %s\n", p.member, p.host, p.pid, p.rank,
              (unsigned long long)p.generation, (int)p.reason, (long long)p.at_ms, p.why);
    }
}

static void describe(const struct muster_membership *m, bool signs, char ret_text[TEXT_SIZE])
{
    struct text text = {.at = ret_text, .left = TEXT_SIZE};
    struct muster_generation_view g = muster_membership_generation(m);
    struct muster_job_settings s = muster_membership_settings(m);
    print(&text, "phase %d pending %d why %s\n", muster_membership_phase(m),
          muster_membership_pending(m), muster_membership_why(m));
    print(&text, "%u..%u target %u resizes %llu\n", s.min_size, s.max_size, s.target_size,
          (unsigned long long)muster_membership_resizes(m));
    print(&text, "g%llu v%llu of %u:", (unsigned long long)g.number,
          (unsigned long long)g.state_version, g.state_source);
    for (uint32_t rank = 0; rank < g.size; rank++) {
        print(&text, " %s%s", g.members[rank], g.stale[rank] ? "*" : "");
    }
    print(&text, "\n");
    print_members(&text, m, signs);
    print_records(&text, m);
}

/* Invariants ---------------------------------------------------------------------------------- */

static void remember(struct walk *w)
{
    struct muster_generation_view g = muster_membership_generation(w->d.membership);
    struct muster_member_view v;
    w->phase = drive_phase(&w->d);
    w->number = g.number;
    w->size = g.size;
    for (uint32_t rank = 0; rank < g.size; rank++) {
        memcpy(w->members[rank], g.members[rank], MUSTER_UUID_SIZE);
    }
    w->arrived_count = 0;
    w->arrived_doubted = false;
    for (uint32_t i = 0; muster_membership_member(w->d.membership, i, &v); i++) {
        if (v.phase == MUSTER_MEMBER_ARRIVED) {
            memcpy(w->arrived[w->arrived_count++], v.info->id, MUSTER_UUID_SIZE);
            w->arrived_doubted = w->arrived_doubted || v.doubted;
        }
    }
}

static bool is_among(const char (*ids)[MUSTER_UUID_SIZE], uint32_t count, const char *id,
                     uint32_t *ret_index)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(ids[i], id) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

static const char *host_of(const struct walk *w, const char *id)
{
    return drive_member(&w->d, id).info->host;
}

static void check_hosts(const struct walk *w, const struct muster_generation_view *g)
{
    uint32_t first = 0;
    for (uint32_t host = 0; host < g->hosts; host++) {
        uint32_t end = first + g->host_sizes[host];
        assert_true(end > first && end <= g->size);
        const char *name = host_of(w, g->members[first]);
        for (uint32_t rank = 0; rank < g->size; rank++) {
            bool here = strcmp(host_of(w, g->members[rank]), name) == 0;
            assert_int_equal(here, rank >= first && rank < end);
        }
        first = end;
    }
    assert_int_equal(first, g->size);
}

/* The hosts of a rack are next to each other. */
static void check_racks(const struct walk *w, const struct muster_generation_view *g)
{
    bool left = false; /* the rack of rank 0 */
    for (uint32_t rank = 1; rank < g->size; rank++) {
        const char *first = drive_member(&w->d, g->members[0]).info->rack;
        bool same = strcmp(drive_member(&w->d, g->members[rank]).info->rack, first) == 0;
        assert_false(left && same);
        left = left || !same;
    }
}

/* On each host; except for rank 0, which may have moved there with the newest state. */
static void check_survivors_keep_their_order(const struct walk *w,
                                             const struct muster_generation_view *g)
{
    uint32_t before_a = 0;
    uint32_t before_b = 0;
    for (uint32_t a = 1; a < g->size; a++) {
        for (uint32_t b = a + 1; b < g->size; b++) {
            bool both = is_among(w->members, w->size, g->members[a], &before_a) &&
                        is_among(w->members, w->size, g->members[b], &before_b);
            bool same_host = strcmp(host_of(w, g->members[a]), host_of(w, g->members[b])) == 0;
            /* A member that changed its host was not ordered among the members of this one before.
             */
            if (both && same_host && before_a != 0 && before_b != 0) {
                assert_true(before_a < before_b);
            }
        }
    }
}

/* The invariants of a generation that has just formed: its members have arrived, rank 0 has the
 * newest state, and ranks are ordered by racks, hosts and seniority. */
static void check_formed(struct walk *w, const char *joiner)
{
    struct muster_generation_view g = muster_membership_generation(w->d.membership);
    struct muster_job_settings s = muster_membership_settings(w->d.membership);
    uint64_t newest = 0;
    uint32_t index = 0;
    assert_int_equal(drive_phase(&w->d), MUSTER_JOB_RUNNING);
    assert_true(g.size >= s.min_size && g.size <= s.max_size);
    assert_int_equal(g.state_source, 0);
    for (uint32_t rank = 0; rank < g.size; rank++) {
        struct muster_member_view v = drive_member(&w->d, g.members[rank]);
        assert_int_equal(v.rank, rank);
        assert_int_equal(v.phase, MUSTER_MEMBER_ACTIVE);
        assert_true(strcmp(joiner, g.members[rank]) == 0 ||
                    is_among(w->arrived, w->arrived_count, g.members[rank], &index));
        newest = v.info->state_version > newest ? v.info->state_version : newest;
    }
    assert_int_equal(g.state_version, newest);
    for (uint32_t rank = 0; rank < g.size; rank++) {
        uint64_t version = drive_member(&w->d, g.members[rank]).info->state_version;
        assert_int_equal(g.stale[rank], newest == 0 ? rank != 0 : version < newest);
    }
    assert_int_equal(g.stale[0], 0);
    check_hosts(w, &g);
    check_racks(w, &g);
    check_survivors_keep_their_order(w, &g);
    ++*w->formed;
}

static void check_always(struct walk *w)
{
    const struct muster_membership *m = w->d.membership;
    struct muster_generation_view g = muster_membership_generation(m);
    struct muster_member_view v;
    uint32_t index = 0;
    enum muster_job_phase phase = muster_membership_phase(m);
    for (uint32_t i = 0; muster_membership_member(m, i, &v); i++) {
        assert_int_equal(muster_membership_check_member(m, v.info->id), MUSTER_OK);
        bool seated = is_among(g.members, g.size, v.info->id, &index);
        if (v.phase != MUSTER_MEMBER_ARRIVED) {
            assert_true(seated);
            assert_int_equal(v.rank, index);
            assert_int_equal(v.phase, phase == MUSTER_JOB_RUNNING ? MUSTER_MEMBER_ACTIVE
                                                                  : MUSTER_MEMBER_AWAITED);
        }
        assert_true(!v.leave_asked || seated);
    }
    assert_true(phase == MUSTER_JOB_RUNNING || !muster_membership_pending(m));
    assert_true(phase != MUSTER_JOB_ENDED || muster_membership_count(m) == 0);
    for (size_t i = 0; i < w->d.gone_count; i++) {
        assert_false(muster_membership_find(m, w->d.gone[i], &v));
        assert_int_not_equal(muster_membership_check_member(m, w->d.gone[i]), MUSTER_OK);
    }
}

/* Events -------------------------------------------------------------------------------------- */

/* Applies one event. A check must leave the state as it is and predict the status, a refused event
 * must change nothing, and the invariants must hold afterwards. */
static muster_status step_once(struct walk *w, const struct muster_event *event)
{
    static char after[TEXT_SIZE];
    describe(w->d.membership, true, w->before);
    muster_status checked = muster_membership_check(w->d.membership, event);
    describe(w->d.membership, true, after);
    assert_string_equal(w->before, after);
    remember(w);
    drive_clear_actions(&w->d);
    muster_status status = drive_once(&w->d, event);
    assert_int_equal(status, checked);
    if (status != MUSTER_OK) {
        describe(w->d.membership, true, after);
        assert_string_equal(w->before, after);
    }
    uint64_t number = drive_generation(&w->d);
    bool began = w->phase != MUSTER_JOB_RUNNING && drive_phase(&w->d) == MUSTER_JOB_RUNNING;
    assert_true(number > w->number || (number == w->number && !began));
    if (number != w->number) {
        assert_false(w->arrived_doubted);
        assert_true(w->d.answered);
        check_formed(w, event->info.id);
    }
    check_always(w);
    *w->ended += w->d.ended ? 1 : 0;
    *w->died += event->kind == MUSTER_EVENT_DEATH ? 1 : 0;
    return status;
}

static void step_due(struct walk *w)
{
    struct muster_event event;
    static char after[TEXT_SIZE];
    for (int limit = 100;; limit--) {
        assert_true(limit > 0);
        describe(w->d.membership, true, w->before);
        bool due = muster_membership_due(w->d.membership, w->d.now_ms, &event);
        describe(w->d.membership, true, after);
        assert_string_equal(w->before, after);
        assert_true(!due || event.kind != MUSTER_EVENT_DEATH ||
                    !drive_member(&w->d, event.member).held ||
                    muster_liveness_verdict_of(event.why) != MUSTER_LIVENESS_LEASE);
        if (!due) {
            break;
        }
        assert_int_equal(step_once(w, &event), MUSTER_OK);
    }
    assert_true(muster_membership_next_ms(w->d.membership) > w->d.now_ms);
}

static muster_status step(struct walk *w, const struct muster_event *event)
{
    muster_status status = step_once(w, event);
    step_due(w);
    return status;
}

static const char *name_worker(const struct walk *w, unsigned worker, char id[MUSTER_UUID_SIZE])
{
    (void)snprintf(id, MUSTER_UUID_SIZE, "w%u.%u", worker, w->incarnation[worker]);
    return id;
}

static uint64_t some_generation(struct walk *w)
{
    uint64_t number = drive_generation(&w->d);
    if (chance(w, 85)) {
        return number;
    }
    return chance(w, 50) ? 0 : number == 0 ? 0 : number - 1;
}

static void do_join(struct walk *w, unsigned worker, uint64_t generation)
{
    char id[MUSTER_UUID_SIZE];
    struct muster_event event = drive_make(&w->d, MUSTER_EVENT_JOIN, name_worker(w, worker, id));
    event.settings = w->d.settings;
    bool disagrees = drive_phase(&w->d) == MUSTER_JOB_RUNNING && chance(w, 2);
    event.settings.max_size += disagrees ? 1 : 0;
    memcpy(event.info.id, id, sizeof event.info.id);
    (void)snprintf(event.info.host, sizeof event.info.host, "h%u", worker % 3);
    (void)snprintf(event.info.rack, sizeof event.info.rack, "%s", worker % 3 == 1 ? "r" : "");
    w->version += chance(w, 20) ? 1 : 0;
    event.info.state_version = chance(w, 30) ? 0 : w->version - (chance(w, 20) && w->version > 0);
    event.info.generation = generation;
    event.info.order = below(w, 4);
    event.info.pid = worker;
    if (step(w, &event) == MUSTER_ENDED && chance(w, 70)) {
        w->incarnation[worker]++;
    }
}

static void do_leave(struct walk *w, unsigned worker)
{
    char id[MUSTER_UUID_SIZE];
    struct muster_event event = drive_make(&w->d, MUSTER_EVENT_LEAVE, name_worker(w, worker, id));
    event.generation = some_generation(w);
    event.leave_reason = (enum muster_leave_reason)(1 + below(w, 3));
    (void)step(w, &event);
}

static void do_report(struct walk *w, unsigned worker)
{
    char id[MUSTER_UUID_SIZE];
    struct muster_event event = drive_make(&w->d, MUSTER_EVENT_REPORT, name_worker(w, worker, id));
    event.generation = some_generation(w);
    (void)name_worker(w, below(w, WORKERS), event.suspect);
    (void)snprintf(event.why, sizeof event.why, "reset");
    (void)step(w, &event);
}

static void do_simple(struct walk *w, enum muster_event_kind kind, unsigned worker)
{
    char id[MUSTER_UUID_SIZE];
    struct muster_event event = drive_make(&w->d, kind, name_worker(w, worker, id));
    event.target_size = below(w, w->d.settings.max_size + 2);
    (void)step(w, &event);
}

/* A refusal is a death only of a member that is doubted. */
static void do_doubt(struct walk *w, unsigned worker)
{
    char id[MUSTER_UUID_SIZE];
    char reporter[MUSTER_UUID_SIZE];
    struct muster_member_view v;
    uint32_t dice = below(w, 3);
    (void)name_worker(w, worker, id);
    if (dice == 0) {
        muster_membership_doubt(w->d.membership, id);
    } else if (dice == 1) {
        muster_membership_expect(w->d.membership, id);
    } else {
        (void)name_worker(w, below(w, WORKERS), reporter);
        bool listed = muster_membership_find(w->d.membership, id, &v);
        bool dies = listed && v.doubted && strcmp(reporter, id) != 0 &&
                    muster_membership_find(w->d.membership, reporter, &v);
        *w->refused += dies ? 1 : 0;
        muster_membership_refused(w->d.membership, id, reporter, w->d.now_ms);
        step_due(w);
        assert_true(!listed || dies != muster_membership_find(w->d.membership, id, &v));
    }
}

static void do_wait(struct walk *w)
{
    char id[MUSTER_UUID_SIZE];
    w->d.now_ms += below(w, 10) == 0 ? below(w, 40000) : below(w, 700);
    for (unsigned worker = 0; worker < WORKERS; worker++) {
        if (chance(w, 80)) {
            drive_heartbeat(&w->d, name_worker(w, worker, id));
        }
        if (chance(w, 20)) {
            drive_hold(&w->d, name_worker(w, worker, id), chance(w, 50));
        }
    }
    step_due(w);
}

static void all_join(struct walk *w)
{
    for (unsigned worker = 0; worker < WORKERS; worker++) {
        char id[MUSTER_UUID_SIZE];
        struct muster_member_view v;
        bool listed = muster_membership_find(w->d.membership, name_worker(w, worker, id), &v);
        if (listed && v.phase != MUSTER_MEMBER_ACTIVE) {
            do_join(w, worker, drive_generation(&w->d));
        }
    }
}

/* Draws one event: joins and the passing of time are the most frequent. */
static void random_step(struct walk *w)
{
    unsigned worker = below(w, WORKERS);
    uint32_t dice = below(w, 1000);
    if (dice < 250) {
        do_join(w, worker, some_generation(w));
    } else if (dice < 550) {
        do_wait(w);
    } else if (dice < 700) {
        all_join(w);
    } else if (dice < 760) {
        do_leave(w, worker);
    } else if (dice < 840) {
        do_report(w, worker);
    } else if (dice < 920) {
        do_simple(w, MUSTER_EVENT_DISCONNECT, worker);
    } else if (dice < 960) {
        do_simple(w, MUSTER_EVENT_RESIZE, worker);
    } else if (dice < 975) {
        do_doubt(w, worker);
    } else if (dice < 985) {
        do_simple(w, MUSTER_EVENT_TICK, worker);
    } else if (dice < 995) {
        do_simple(w, MUSTER_EVENT_RESTART, worker);
    } else {
        do_simple(w, MUSTER_EVENT_END, worker);
    }
}

/* Snapshots ----------------------------------------------------------------------------------- */

static muster_status restore(void *user, const struct muster_snapshot_record *record)
{
    struct muster_snapshot_record again;
    json_t *json = muster_snapshot_record_encode(record);
    assert_non_null(json);
    assert_true(muster_snapshot_record_is(json));
    assert_int_equal(muster_snapshot_record_decode(json, &again), MUSTER_OK);
    json_decref(json);
    return muster_membership_restore(user, &again);
}

/* Replaces the membership with one that is restored from its snapshot, written and read as JSON. */
static void snapshot_and_restore(struct walk *w)
{
    static char original[TEXT_SIZE];
    static char restored[TEXT_SIZE];
    struct muster_membership *m = NULL;
    assert_int_equal(muster_membership_create(&m), MUSTER_OK);
    assert_int_equal(muster_membership_snapshot(w->d.membership, restore, m), MUSTER_OK);
    assert_int_equal(muster_membership_check_restored(m), MUSTER_OK);
    describe(w->d.membership, true, original);
    describe(m, true, restored);
    assert_string_equal(original, restored);
    for (unsigned worker = 0; worker < WORKERS;
         worker++) { /* a member that is gone still gets the reason */
        char id[MUSTER_UUID_SIZE];
        char why[MUSTER_ERROR_MAX] = "";
        muster_status standing =
            muster_membership_check_member(w->d.membership, name_worker(w, worker, id));
        if (standing != MUSTER_OK) {
            (void)snprintf(why, sizeof why, "%s", muster_last_error());
        }
        assert_int_equal(muster_membership_check_member(m, id), standing);
        assert_true(standing == MUSTER_OK || strcmp(muster_last_error(), why) == 0);
    }
    muster_membership_destroy(w->d.membership);
    w->d.membership = m;
}

/* At the end ---------------------------------------------------------------------------------- */

/* All living members keep joining, and there are enough of them: a generation must form. */
static void must_form(struct walk *w)
{
    unsigned rounds = 0;
    while (drive_phase(&w->d) != MUSTER_JOB_RUNNING) {
        assert_true(rounds++ < 20);
        for (unsigned worker = 0; worker < WORKERS; worker++) {
            char id[MUSTER_UUID_SIZE];
            if (drive_phase(&w->d) == MUSTER_JOB_RUNNING) {
                return;
            }
            if (muster_membership_check_member(w->d.membership, name_worker(w, worker, id)) !=
                MUSTER_OK) {
                w->incarnation[worker]++;
            }
            do_join(w, worker, drive_generation(&w->d));
        }
        w->d.now_ms += 100;
        drive_heartbeat_all(&w->d);
        step_due(w);
    }
}

/* The stored events alone, without a heartbeat. */
static void must_replay(const struct walk *w)
{
    static char original[TEXT_SIZE];
    static char replayed[TEXT_SIZE];
    struct muster_membership *m = NULL;
    assert_int_equal(muster_membership_create(&m), MUSTER_OK);
    for (size_t i = 0; i < w->d.log_count; i++) {
        struct muster_actions actions;
        assert_int_equal(muster_membership_apply(m, &w->d.log[i], &actions), MUSTER_OK);
        muster_actions_finish(&actions);
    }
    describe(w->d.membership, false, original);
    describe(m, false, replayed);
    assert_string_equal(original, replayed);
    muster_membership_destroy(m);
}

static void run_seed(uint64_t seed, unsigned counts[4])
{
    static struct walk w;
    w = (struct walk){.random = seed,
                      .formed = &counts[0],
                      .ended = &counts[1],
                      .died = &counts[2],
                      .refused = &counts[3]};
    uint32_t min_size = 1 + below(&w, 3);
    uint32_t max_size = min_size + below(&w, 6);
    uint32_t target_size = chance(&w, 50) ? 0 : min_size + below(&w, max_size - min_size + 1);
    drive_init(&w.d, min_size, max_size, target_size);
    w.d.settings.settle_ms = chance(&w, 30) ? 0 : below(&w, 300);
    for (int i = 0; i < STEPS; i++) {
        random_step(&w);
        if (chance(&w, 5)) {
            snapshot_and_restore(&w);
        }
    }
    must_replay(&w);
    must_form(&w);
    must_replay(&w);
    drive_finish(&w.d);
}

static void every_random_sequence_keeps_the_invariants_replays_and_forms(void **state)
{
    (void)state;
    unsigned counts[4] = {0};
    const char *only = getenv("MUSTER_SEED");
    if (only != NULL) {
        print_message("MUSTER_SEED=%s\n", only);
        run_seed(strtoull(only, NULL, 10), counts);
        return;
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
        run_seed(seed, counts);
    }
    print_message("%u generations, %u ends, %u deaths, %u of them refused\n", counts[0], counts[1],
                  counts[2], counts[3]);
    assert_true(counts[0] > SEEDS && counts[1] > 0 && counts[2] > SEEDS && counts[3] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_sequence_keeps_the_invariants_replays_and_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
