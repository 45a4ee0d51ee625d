/* The service's messages: encoded and decoded they are the same. */
#include "elastic/messages/messages.h"
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 200 };

static uint64_t seed = 1;

static uint64_t any(void)
{
    return test_random(&seed);
}

static uint32_t below(uint32_t bound)
{
    return test_random_below(&seed, bound);
}

static uint32_t any32(void)
{
    static const uint32_t edges[] = {0, 1, INT32_MAX, UINT32_MAX};
    return below(2) == 0 ? edges[below(4)] : (uint32_t)any();
}

static uint64_t any64(void)
{
    static const uint64_t edges[] = {0, 1, INT64_MAX, UINT64_MAX};
    return below(2) == 0 ? edges[below(4)] : any();
}

/* Printable text of least..size - 1 bytes, with the characters that JSON has to escape. */
static void fill_text(char *text, size_t size, uint32_t least)
{
    uint32_t length = least + below((uint32_t)size - least);
    for (uint32_t i = 0; i < length; i++) {
        text[i] = (char)(' ' + below(95));
    }
}
#define FILL(text, least) fill_text(text, sizeof(text), least)

static void fill_job(char *name)
{
    static const char letters[] = "abcXYZ019._-";
    uint32_t length = 1 + below(MUSTER_JOB_NAME_SIZE - 1);
    for (uint32_t i = 0; i < length; i++) {
        name[i] = letters[below(sizeof letters - 1)];
    }
}

static void fill_uuid(char *id)
{
    (void)snprintf(id, MUSTER_UUID_SIZE, "%08x-%04x-4%03x-a%03x-%012llx", (uint32_t)any(),
                   below(65536), below(4096), below(4096),
                   (unsigned long long)(any() & 0xffffffffffff));
}

static void fill_addresses(char (*addresses)[MUSTER_MEMBER_ADDRESS_SIZE], uint32_t *count)
{
    *count = below(MUSTER_MEMBER_ADDRESSES_MAX + 1);
    for (uint32_t i = 0; i < *count; i++) {
        fill_text(addresses[i], MUSTER_MEMBER_ADDRESS_SIZE, 1);
    }
}

static void fill_info(struct muster_member_info *info)
{
    fill_uuid(info->id);
    static const char letters[] = "abcXYZ019._-:";
    uint32_t length = 1 + below(MUSTER_HOST_SIZE - 1);
    for (uint32_t i = 0; i < length; i++) {
        info->host[i] = letters[below(sizeof letters - 1)];
    }
    FILL(info->rack, 0);
    fill_addresses(info->addresses, &info->address_count);
    info->state_version = any64();
    info->generation = any64();
    info->order = any32();
    info->pid = any32();
    info->has_slot = below(2) == 0;
    info->slot_any = below(2) == 0;
    info->done = below(2) == 0;
    info->slot = below(MUSTER_MEMBERS_MAX);
    FILL(info->slot_lock, 0);
    FILL(info->library, 0);
    (void)snprintf(info->capabilities, sizeof info->capabilities, "%s",
                   below(2) == 0 ? "" : "a.b=\nnccl=2.19.3\ntransports=shm, tcp = 1\n");
}

/* Encode, print, parse, decode: the same value, byte by byte. For messages without pointers. */
#define SAME_AFTER_A_TRIP(name, type, value)                                \
    do {                                                                    \
        struct type back_;                                                  \
        memset(&back_, 0x5a, sizeof back_);                                 \
        json_t *json_ = trip(muster_##name##_encode(&(value)));             \
        assert_int_equal(muster_##name##_decode(json_, &back_), MUSTER_OK); \
        assert_memory_equal(&back_, &(value), sizeof back_);                \
        json_decref(json_);                                                 \
    } while (0)

static json_t *trip(json_t *json)
{
    assert_non_null(json);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    json_decref(json);
    json_t *back = NULL;
    assert_int_equal(muster_json_parse(text, strlen(text), &back), MUSTER_OK);
    free(text);
    return back;
}

static void requests_survive_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_join_request join = {.min_size = any32(), .max_size = any32()};
        fill_job(join.job);
        fill_info(&join.info);
        join.target_size = any32();
        join.wire_version = any32();
        SAME_AFTER_A_TRIP(join_request, muster_join_request, join);

        struct muster_watch_request watch = {.generation = any64(), .progress = any64()};
        fill_job(watch.job);
        FILL(watch.member, 1);
        watch.pending_known = below(2) == 0;
        watch.leave_known = below(2) == 0;
        SAME_AFTER_A_TRIP(watch_request, muster_watch_request, watch);

        struct muster_leave_request leave = {.generation = any64()};
        fill_job(leave.job);
        FILL(leave.member, 1);
        FILL(leave.why, 0);
        leave.reason = (enum muster_leave_reason)below(4);
        SAME_AFTER_A_TRIP(leave_request, muster_leave_request, leave);

        struct muster_report_request report = {
            .generation = any64(), .suspect = any32(), .kind = (enum muster_report_kind)below(4)};
        fill_job(report.job);
        FILL(report.member, 1);
        FILL(report.why, 0);
        if (below(2) == 0) {
            fill_uuid(report.suspect_member);
        }
        SAME_AFTER_A_TRIP(report_request, muster_report_request, report);

        struct muster_resize_request resize = {.target_size = any32()};
        fill_job(resize.job);
        SAME_AFTER_A_TRIP(resize_request, muster_resize_request, resize);

        struct muster_job_request job = {0};
        fill_job(job.job);
        FILL(job.why, 0);
        SAME_AFTER_A_TRIP(job_request, muster_job_request, job);
    }
}

static struct muster_wire_peer *any_peers(uint32_t count)
{
    struct muster_wire_peer *peers = calloc(count + 1, sizeof *peers);
    assert_non_null(peers);
    for (uint32_t i = 0; i < count; i++) {
        peers[i].rank = any32();
        fill_uuid(peers[i].member);
        FILL(peers[i].host, 0);
        peers[i].order = any32();
        peers[i].address_count = below(MUSTER_MEMBER_ADDRESSES_MAX + 1);
        for (uint32_t k = 0; k < peers[i].address_count; k++) {
            FILL(peers[i].addresses[k], 1);
        }
    }
    return peers;
}

/* Frees both lists; the messages are then compared as those without pointers are. */
static void expect_same_peers(struct muster_wire_peer **back, struct muster_wire_peer **peers,
                              uint32_t count)
{
    assert_memory_equal(*back, *peers, count * sizeof **peers);
    free(*back);
    free(*peers);
    *back = *peers = NULL;
}

static void answers_with_doubted_members_survive_the_trip(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 9; count++) {
        struct muster_watch_response watch = {.revoked = below(2) == 0,
                                              .pending = below(2) == 0,
                                              .leave = below(2) == 0,
                                              .doubted_count = count};
        FILL(watch.reason, 0);
        struct muster_watch_response watch_back;
        watch.doubted = any_peers(count);
        json_t *json = trip(muster_watch_response_encode(&watch));
        assert_int_equal(muster_watch_response_decode(json, &watch_back), MUSTER_OK);
        expect_same_peers(&watch_back.doubted, &watch.doubted, count);
        assert_memory_equal(&watch_back, &watch, sizeof watch);
        json_decref(json);

        struct muster_join_response waiting = {.members = any32(),
                                               .min_size = any32(),
                                               .target_size = any32(),
                                               .doubted_count = count};
        struct muster_join_response waiting_back;
        waiting.doubted = any_peers(count);
        waiting.missing_count = below(MUSTER_MISSING_MAX + 1);
        for (uint32_t k = 0; k < waiting.missing_count; k++) {
            FILL(waiting.missing[k], 0);
        }
        json = trip(muster_join_response_encode(&waiting));
        assert_int_equal(muster_join_response_decode(json, &waiting_back), MUSTER_OK);
        expect_same_peers(&waiting_back.doubted, &waiting.doubted, count);
        assert_memory_equal(&waiting_back, &waiting, sizeof waiting);
        json_decref(json);
    }
}

static void small_answers_survive_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_rpc_error error = {.code = (enum muster_rpc_code)below(17)};
        FILL(error.message, 0);
        SAME_AFTER_A_TRIP(rpc_error, muster_rpc_error, error);
    }
}

static void events_survive_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_event event = {.kind = (enum muster_event_kind)(1 + below(9))};
        event.now_ms = (int64_t)any64();
        fill_text(event.member, sizeof event.member, 0);
        fill_text(event.suspect, sizeof event.suspect, 0);
        event.generation = any64();
        event.leave_reason = (enum muster_leave_reason)below(4);
        event.target_size = any32();
        FILL(event.why, 0);
        if (event.kind == MUSTER_EVENT_JOIN) {
            fill_info(&event.info);
            event.settings = (struct muster_job_settings){
                .min_size = any32(),
                .max_size = any32(),
                .target_size = any32(),
                .wire_version = any32(),
                .settle_ms = any32(),
                .lease_ms = any32(),
                .arrive_ms = any32(),
                .suspect_ms = any32(),
            };
        }
        SAME_AFTER_A_TRIP(event, muster_event, event);
    }
}

static void values_survive_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char bytes[64];
        for (size_t k = 0; k < sizeof bytes; k++) {
            bytes[k] = (unsigned char)any();
        }
        struct muster_value_request value = {.generation = any64(), .value = bytes};
        fill_job(value.job);
        FILL(value.key, 1);
        value.timeout_ms = below(MUSTER_WAIT_MAX_MS + 1);
        value.value_size = below(sizeof bytes + 1);
        value.expected = bytes;
        value.expected_size = below(sizeof bytes + 1);
        value.amount = (int64_t)any64();
        char keys[3][MUSTER_KEY_MAX_BYTES + 1] = {0};
        value.keys = keys;
        value.key_count = below(4);
        for (uint32_t k = 0; k < value.key_count; k++) {
            FILL(keys[k], 1);
        }
        (void)snprintf(value.request_id, sizeof value.request_id, "%s",
                       i % 2 == 0 ? "" : "01234567-89ab-4def-8123-456789abcdef");

        struct muster_value_request back;
        json_t *json = trip(muster_value_request_encode(&value));
        assert_int_equal(muster_value_request_decode(json, &back), MUSTER_OK);
        json_decref(json);
        assert_string_equal(back.job, value.job);
        assert_string_equal(back.key, value.key);
        assert_true(back.generation == value.generation && back.timeout_ms == value.timeout_ms);
        assert_int_equal(back.value_size, value.value_size);
        assert_true(back.value_size == 0 || memcmp(back.value, bytes, back.value_size) == 0);
        assert_int_equal(back.expected_size, value.expected_size);
        assert_true(back.expected_size == 0 ||
                    memcmp(back.expected, bytes, back.expected_size) == 0);
        assert_true(back.amount == value.amount);
        assert_string_equal(back.request_id, value.request_id);
        assert_int_equal(back.key_count, value.key_count);
        for (uint32_t k = 0; k < back.key_count; k++) {
            assert_string_equal(back.keys[k], keys[k]);
        }

        struct muster_value_response answer = {.value_size = value.value_size, .value = bytes};
        struct muster_value_response answer_back;
        json = trip(muster_value_response_encode(&answer));
        assert_int_equal(muster_value_response_decode(json, &answer_back), MUSTER_OK);
        json_decref(json);
        assert_int_equal(answer_back.value_size, answer.value_size);
        assert_true(answer.value_size == 0 ||
                    memcmp(answer_back.value, bytes, answer.value_size) == 0);
        muster_value_request_finish(&back);
        muster_value_response_finish(&answer_back);
    }
}

/* A response for a formed generation, with random values in all fields. */
static struct muster_join_response any_formed(void)
{
    struct muster_join_response formed = {.formed = true, .generation = 1 + below(1000)};
    formed.host_count = 1 + below(5);
    formed.hosts = calloc(formed.host_count, sizeof *formed.hosts);
    for (uint32_t i = 0; i < formed.host_count; i++) {
        FILL(formed.hosts[i].name, 1);
        FILL(formed.hosts[i].rack, 0);
        formed.hosts[i].size = 1 + below(4);
        formed.size += formed.hosts[i].size;
    }
    formed.peers = calloc(formed.size, sizeof *formed.peers);
    formed.stale = calloc(formed.size, sizeof *formed.stale);
    for (uint32_t i = 0; i < formed.size; i++) {
        fill_uuid(formed.peers[i].member);
        formed.peers[i].order = any32();
        fill_addresses(formed.peers[i].addresses, &formed.peers[i].address_count);
        if (below(2) == 0) {
            formed.stale[formed.stale_count++] = i;
        }
    }
    formed.rank = below(formed.size);
    formed.local_size = 1 + below(4);
    formed.local_rank = below(formed.local_size);
    formed.cross_size = 1 + below(4);
    formed.cross_rank = below(formed.cross_size);
    formed.state_version = any64();
    formed.state_source = below(formed.size);
    FILL(formed.link_token, 0);
    formed.hold_ms = any32();
    formed.lease_ms = any32();
    return formed;
}

static void a_formed_generation_survives_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_join_response formed = any_formed();
        struct muster_join_response back;
        json_t *json = trip(muster_join_response_encode(&formed));
        assert_int_equal(muster_join_response_decode(json, &back), MUSTER_OK);
        json_decref(json);
        assert_int_equal(back.size, formed.size);
        assert_int_equal(back.host_count, formed.host_count);
        assert_int_equal(back.stale_count, formed.stale_count);
        assert_memory_equal(back.hosts, formed.hosts, formed.host_count * sizeof *formed.hosts);
        assert_memory_equal(back.peers, formed.peers, formed.size * sizeof *formed.peers);
        assert_true(formed.stale_count == 0 ||
                    memcmp(back.stale, formed.stale, formed.stale_count * sizeof *formed.stale) ==
                        0);
        struct muster_join_response shallow = back;
        shallow.hosts = formed.hosts;
        shallow.peers = formed.peers;
        shallow.stale = formed.stale;
        assert_memory_equal(&shallow, &formed, sizeof formed);
        muster_join_response_finish(&back);
        muster_join_response_finish(&formed);
        assert_null(formed.peers);
    }
}

/* A job with random values in all fields. */
static struct muster_job_response any_job(void)
{
    struct muster_job_response job = {.phase = (enum muster_job_phase)below(4)};
    fill_job(job.name);
    FILL(job.why, 0);
    job.generation = any64();
    job.min_size = any32();
    job.max_size = any32();
    job.target_size = any32();
    job.now_ms = (int64_t)any64();
    job.resizes = any64();
    job.wire_version = any32();
    job.pending = below(2) == 0;
    job.member_count = below(4);
    job.generation_count = below(4);
    job.departure_count = below(4);
    job.members = calloc(job.member_count + 1, sizeof *job.members);
    job.generations = calloc(job.generation_count + 1, sizeof *job.generations);
    job.departures = calloc(job.departure_count + 1, sizeof *job.departures);
    for (uint32_t i = 0; i < job.member_count; i++) {
        struct muster_job_member *member = &job.members[i];
        fill_uuid(member->info.id);
        FILL(member->info.host, 0);
        FILL(member->info.rack, 0);
        member->info.pid = any32();
        member->info.state_version = any64();
        member->phase = (enum muster_member_phase)(1 + below(3));
        member->rank = (int32_t)any32();
        member->local_rank = (int32_t)any32();
        member->cross_rank = (int32_t)any32();
        member->joined_ms = (int64_t)any64();
        member->progress = any64();
        member->silent_ms = any64();
        member->suspected = below(2) == 0;
        member->leave_asked = below(2) == 0;
    }
    for (uint32_t i = 0; i < job.generation_count; i++) {
        struct muster_generation_record *record = &job.generations[i];
        record->number = any64();
        record->size = any32();
        record->hosts = any32();
        record->formed_ms = (int64_t)any64();
        record->revoked_ms = (int64_t)any64();
        FILL(record->why, 0);
    }
    for (uint32_t i = 0; i < job.departure_count; i++) {
        struct muster_departure_record *record = &job.departures[i];
        fill_uuid(record->member);
        FILL(record->host, 0);
        record->pid = any32();
        record->rank = below(2) == 0 ? UINT32_MAX : below(INT32_MAX);
        record->generation = any64();
        record->reason = (enum muster_leave_reason)below(4);
        record->at_ms = (int64_t)any64();
        FILL(record->why, 0);
    }
    return job;
}

static void a_job_survives_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_job_response job = any_job();
        struct muster_job_response back;
        json_t *json = trip(muster_job_response_encode(&job));
        assert_int_equal(muster_job_response_decode(json, &back), MUSTER_OK);
        json_decref(json);
        assert_int_equal(back.member_count, job.member_count);
        assert_int_equal(back.generation_count, job.generation_count);
        assert_int_equal(back.departure_count, job.departure_count);
        assert_memory_equal(back.members, job.members, job.member_count * sizeof *job.members);
        assert_memory_equal(back.generations, job.generations,
                            job.generation_count * sizeof *job.generations);
        assert_memory_equal(back.departures, job.departures,
                            job.departure_count * sizeof *job.departures);
        struct muster_job_response shallow = back;
        shallow.members = job.members;
        shallow.generations = job.generations;
        shallow.departures = job.departures;
        assert_memory_equal(&shallow, &job, sizeof job);
        muster_job_response_finish(&back);
        muster_job_response_finish(&job);
    }
}

static void a_list_of_jobs_survives_the_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct muster_jobs_response jobs = {.count = below(5)};
        jobs.jobs = calloc(jobs.count + 1, sizeof *jobs.jobs);
        for (uint32_t k = 0; k < jobs.count; k++) {
            fill_job(jobs.jobs[k].name);
            jobs.jobs[k].phase = (enum muster_job_phase)below(4);
            jobs.jobs[k].generation = any64();
            jobs.jobs[k].size = any32();
            jobs.jobs[k].members = any32();
        }
        struct muster_jobs_response back;
        json_t *json = trip(muster_jobs_response_encode(&jobs));
        assert_int_equal(muster_jobs_response_decode(json, &back), MUSTER_OK);
        json_decref(json);
        assert_int_equal(back.count, jobs.count);
        assert_memory_equal(back.jobs, jobs.jobs, jobs.count * sizeof *jobs.jobs);
        muster_jobs_response_finish(&back);
        muster_jobs_response_finish(&jobs);
    }
}

static void a_join_that_was_stored_before_there_were_racks_is_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"kind\":\"join\",\"nowMs\":\"5\",\"info\":{\"member\":\"m\","
        "\"host\":\"h\",\"pid\":7}}";
    json_t *json = NULL;
    struct muster_event event;
    assert_int_equal(muster_json_parse(text, sizeof text - 1, &json), MUSTER_OK);
    assert_int_equal(muster_event_decode(json, &event), MUSTER_OK);
    assert_string_equal(event.info.host, "h");
    assert_string_equal(event.info.rack, "");
    json_decref(json);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? (uint64_t)strtoull(argv[1], NULL, 0) : (uint64_t)getpid();
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_survive_the_trip),
        cmocka_unit_test(small_answers_survive_the_trip),
        cmocka_unit_test(answers_with_doubted_members_survive_the_trip),
        cmocka_unit_test(events_survive_the_trip),
        cmocka_unit_test(values_survive_the_trip),
        cmocka_unit_test(a_join_that_was_stored_before_there_were_racks_is_read),
        cmocka_unit_test(a_formed_generation_survives_the_trip),
        cmocka_unit_test(a_job_survives_the_trip),
        cmocka_unit_test(a_list_of_jobs_survives_the_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
