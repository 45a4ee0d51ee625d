/* What members of a large job get: all peers, or, if they ask for it, their neighbours, the shape
 * of the job, and the others by Peers. */
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

/* Hosts of four, and the last of two: ragged. */
enum { SIZE = 70, PER_HOST = 4, HOSTS = 18, LARGE = 66 };

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    struct test_call calls[SIZE];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.settings.lease_ms = 3600000;
    assert_non_null(fixture);
    fixture->service = test_local_service_open(&config, NULL, &fixture->store);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    test_local_service_close(fixture->service, fixture->store);
    free(fixture);
    return 0;
}

static void join_all(struct fixture *fixture, unsigned size, bool neighbours)
{
    for (unsigned i = 0; i < size; i++) {
        test_call_start(&fixture->calls[i], fixture->service, MUSTER_RPC_JOIN, NULL,
                        "{'job': 'j', 'member': '%s', 'host': 'h%u', 'minSize': %u, 'maxSize': %u, "
                        "'order': %u, 'addresses': ['tcp://10.0.0.%u:1'], 'neighbours': %s}",
                        test_member(i), i / PER_HOST, size, size, i, i,
                        neighbours ? "true" : "false");
    }
    for (unsigned i = 0; i < size; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_int_equal(fixture->calls[i].code, MUSTER_RPC_OK);
    }
}

static void finish_all(struct fixture *fixture, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        test_call_finish(&fixture->calls[i]);
    }
}

static json_int_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* The peer is the worker of this rank: order, addresses and ranks are all given by the index. */
static void assert_peer(const json_t *peer, unsigned rank)
{
    char address[64];
    (void)snprintf(address, sizeof address, "tcp://10.0.0.%u:1", rank);
    assert_int_equal(number_of(peer, "rank"), rank);
    assert_int_equal(number_of(peer, "order"), rank);
    assert_string_equal(json_string_value(json_object_get(peer, "member")), test_member(rank));
    assert_string_equal(json_string_value(json_array_get(json_object_get(peer, "addresses"), 0)),
                        address);
}

static bool is_distance(unsigned far, unsigned size)
{
    unsigned other = size - far;
    return (far & (far - 1)) == 0 || (other & (other - 1)) == 0;
}

/* True if the two are at distance 2^k among all, or among those with the same local rank. */
static bool are_neighbours(unsigned a, unsigned b)
{
    unsigned cross_size = a % PER_HOST < SIZE % PER_HOST ? HOSTS : HOSTS - 1;
    return is_distance((a + SIZE - b) % SIZE, SIZE) ||
           (a % PER_HOST == b % PER_HOST &&
            is_distance((a / PER_HOST + cross_size - b / PER_HOST) % cross_size, cross_size));
}

static void who_asks_for_neighbours_gets_these_and_the_shape(void **state)
{
    struct fixture *fixture = *state;
    join_all(fixture, SIZE, true);
    for (unsigned rank = 0; rank < SIZE; rank++) {
        const json_t *formed = json_object_get(fixture->calls[rank].json, "formed");
        const json_t *near = json_object_get(formed, "near");
        bool listed[SIZE] = {false};
        assert_int_equal(number_of(formed, "rank"), rank);
        assert_int_equal(number_of(formed, "size"), SIZE);
        assert_int_equal(number_of(formed, "localRank"), rank % PER_HOST);
        assert_int_equal(number_of(formed, "crossRank"), rank / PER_HOST);
        assert_null(json_object_get(formed, "peers"));
        assert_null(json_object_get(formed, "hosts"));
        for (size_t i = 0; i < json_array_size(near); i++) {
            unsigned peer = (unsigned)number_of(json_array_get(near, i), "rank");
            assert_peer(json_array_get(near, i), peer);
            assert_false(listed[peer]);
            listed[peer] = true;
        }
        for (unsigned peer = 0; peer < SIZE; peer++) {
            assert_int_equal(listed[peer], peer != rank && are_neighbours(rank, peer));
        }
        char *shape = json_dumps(json_object_get(formed, "shape"), JSON_COMPACT);
        assert_string_equal(shape, "[{\"hosts\":17,\"size\":4},{\"hosts\":1,\"size\":2}]");
        free(shape);
        char *stale = json_dumps(json_object_get(formed, "state"), JSON_COMPACT);
        assert_string_equal(stale,
                            "{\"version\":\"0\",\"source\":0,\"staleRanges\":[{\"first\":1,"
                            "\"count\":69}]}");
        free(stale);
    }
    finish_all(fixture, SIZE);
}

/* As the contract has it: names and racks, each with its end. */
static uint32_t digest_of_hosts(void)
{
    uLong digest = crc32(0, NULL, 0);
    for (unsigned i = 0; i < HOSTS; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "h%u", i);
        digest = crc32(digest, (const Bytef *)name, (uInt)length + 1);
        digest = crc32(digest, (const Bytef *)"", 1);
    }
    return (uint32_t)digest;
}

static void what_a_worker_reads_of_a_large_job_is_whole(void **state)
{
    struct fixture *fixture = *state;
    join_all(fixture, SIZE, true);
    for (unsigned rank = 0; rank < SIZE; rank++) {
        struct muster_join_response formed;
        assert_int_equal(muster_join_response_decode(fixture->calls[rank].json, &formed),
                         MUSTER_OK);
        assert_true(formed.has_shape);
        assert_string_equal(formed.shape.member, test_member(rank));
        assert_int_equal(formed.shape.host_count, HOSTS);
        assert_int_equal(formed.shape.host_run_count, 2);
        assert_int_equal(formed.shape.rack_run_count, 1);
        assert_int_equal(formed.shape.racks[0].racks, 1);
        assert_int_equal(formed.shape.racks[0].hosts, HOSTS);
        assert_int_equal(formed.shape.order_run_count, 1);
        assert_int_equal(formed.shape.orders[0].count, SIZE);
        assert_int_equal(formed.shape.orders[0].step, 1);
        assert_int_equal(formed.shape.hosts_digest, digest_of_hosts());
        char host[16];
        (void)snprintf(host, sizeof host, "h%u", formed.shape.near[0].rank / PER_HOST);
        assert_string_equal(formed.shape.near[0].host, host);
        muster_join_response_finish(&formed);
    }
    finish_all(fixture, SIZE);
}

/* One number of a good response is another one: the error names its field. */
static void a_response_that_contradicts_itself_is_refused(void **state)
{
    static const struct {
        const char *list;
        unsigned item;
        const char *field;
        json_int_t value;
        const char *error;
    } changes[] = {
        {"shape", 0, "hosts", 16, "formed.shape: 66 in all, not 70"},
        {"shape", 0, "hosts", 4294967295, "formed.shape: 17179869180 in all, not 70"},
        {"shape", 1, "size", 0, "formed.shape[1]: is 0"},
        {"rackShape", 0, "hosts", 19, "formed.rackShape: 19 in all, not 18"},
        {"orders", 0, "count", 71, "formed.orders: 71 in all, not 70"},
        {"near", 2, "rank", 70, "formed.near.rank: 70 is not below 70"},
        {"staleRanges", 0, "count", 70, "formed.state.staleRanges[0]: ranks 1 and 70 more, of 70"},
    };
    struct fixture *fixture = *state;
    join_all(fixture, SIZE, true);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct muster_join_response decoded;
        json_t *json = json_deep_copy(fixture->calls[0].json);
        json_t *formed = json_object_get(json, "formed");
        json_t *list = json_object_get(formed, changes[i].list);
        list = list != NULL ? list
                            : json_object_get(json_object_get(formed, "state"), changes[i].list);
        assert_int_equal(json_object_set_new(json_array_get(list, changes[i].item),
                                             changes[i].field, json_integer(changes[i].value)),
                         0);
        assert_int_equal(muster_join_response_decode(json, &decoded), MUSTER_INVALID);
        assert_string_equal(muster_last_error(), changes[i].error);
        json_decref(json);
    }
    finish_all(fixture, SIZE);
}

static void a_small_job_and_who_does_not_ask_get_all_peers(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        unsigned size;
        bool neighbours;
    } jobs[] = {{LARGE, false}, {MUSTER_PEERS_INLINE_MAX, true}};
    for (size_t job = 0; job < sizeof jobs / sizeof jobs[0]; job++) {
        join_all(fixture, jobs[job].size, jobs[job].neighbours);
        for (unsigned rank = 0; rank < jobs[job].size; rank++) {
            struct muster_join_response formed;
            assert_int_equal(muster_join_response_decode(fixture->calls[rank].json, &formed),
                             MUSTER_OK);
            assert_int_equal(formed.rank, rank);
            assert_string_equal(formed.peers[jobs[job].size - 1].member,
                                test_member(jobs[job].size - 1));
            muster_join_response_finish(&formed);
        }
        finish_all(fixture, jobs[job].size);
        test_call_start(&fixture->calls[0], fixture->service, MUSTER_RPC_END_JOB, NULL,
                        "{'job': 'j'}");
        test_call_expect(&fixture->calls[0], MUSTER_RPC_OK, "");
        muster_service_destroy(fixture->service); /* the ids are used again */
        struct muster_service_config config;
        muster_service_config_init(&config);
        config.hold_ms = 15000;
        assert_int_equal(muster_service_create(&config, fixture->store, &fixture->service),
                         MUSTER_OK);
    }
}

/* A worker says itself which jobs are large. */
static void what_is_large_can_be_said(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned i = 0; i < 4; i++) {
        test_call_start(&fixture->calls[i], fixture->service, MUSTER_RPC_JOIN, NULL,
                        "{'job': 'j', 'member': '%s', 'host': 'h', 'minSize': 4, 'maxSize': 4, "
                        "'addresses': ['tcp://10.0.0.1:1'], 'neighbours': true, "
                        "'neighboursAbove': %u}",
                        test_member(i), 2 + i);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        const json_t *formed = json_object_get(fixture->calls[i].json, "formed");
        assert_int_equal(json_object_get(formed, "near") != NULL, 2 + i < 4);
        assert_int_equal(json_object_get(formed, "peers") != NULL, 2 + i >= 4);
        test_call_finish(&fixture->calls[i]);
    }
}

static void peers_of_the_last_generation_are_given_by_rank(void **state)
{
    struct fixture *fixture = *state;
    struct test_call *call = &fixture->calls[0];
    join_all(fixture, SIZE, true);
    finish_all(fixture, SIZE);
    test_call_start(call, fixture->service, MUSTER_RPC_PEERS, NULL,
                    "{'job': 'j', 'member': '%s', 'generation': '1', 'ranks': [69, 0, 33]}",
                    test_member(5));
    assert_true(test_call_wait(call));
    const json_t *peers = json_object_get(call->json, "peers");
    assert_int_equal(json_array_size(peers), 3);
    assert_peer(json_array_get(peers, 0), 69);
    assert_peer(json_array_get(peers, 1), 0);
    assert_peer(json_array_get(peers, 2), 33);
    struct muster_peers_response decoded;
    assert_int_equal(muster_peers_response_decode(call->json, &decoded), MUSTER_OK);
    assert_int_equal(decoded.peers[2].rank, 33);
    muster_peers_response_finish(&decoded);
    test_call_finish(call);
    static const struct {
        const char *request;
        enum muster_rpc_code code;
        const char *text;
    } refused[] = {
        {"'generation': '1', 'ranks': [70]", MUSTER_RPC_INVALID_ARGUMENT,
         "ranks[0]: rank 70 of 70"},
        {"'generation': '2', 'ranks': [0]", MUSTER_RPC_ABORTED, "generation 2 is not the last"},
        {"'generation': '1', 'ranks': 7", MUSTER_RPC_INVALID_ARGUMENT, "ranks: not an array"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_call_start(call, fixture->service, MUSTER_RPC_PEERS, NULL,
                        "{'job': 'j', 'member': '%s', %s}", test_member(5), refused[i].request);
        test_call_expect(call, refused[i].code, refused[i].text);
    }
    test_call_start(call, fixture->service, MUSTER_RPC_PEERS, NULL,
                    "{'job': 'j', 'member': '%s', 'generation': '1', 'ranks': [0]}",
                    test_member(SIZE));
    test_call_expect(call, MUSTER_RPC_ABORTED, "is not in this job");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_asks_for_neighbours_gets_these_and_the_shape, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_a_worker_reads_of_a_large_job_is_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_response_that_contradicts_itself_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_small_job_and_who_does_not_ask_get_all_peers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_large_can_be_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(peers_of_the_last_generation_are_given_by_rank, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
