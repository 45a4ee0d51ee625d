/*
 * The real musterd is killed (kill -9) at random points while clients keep it busy, and started
 * again with the same store. What was answered is there each time, generations only rise, and a
 * request that is sent again counts once. MUSTER_SEED runs one seed; the argument "all" kills it
 * 1,000 times.
 */
#include "tests/support/part.h"
#include "tests/support/service.h"
#include "tests/support/web.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    KILLS = 40,
    KILLS_ALL = 1000,
    CLIENTS = 6,
    LOAD_MAX_US = 30000, /* from a start to the kill */
    RESTART_MS = 60000,
};

static unsigned kill_count = KILLS;
static struct test_service service;

/* The lives of the server, for clients whose connection broke. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* muster_condition_init() sets its clock */
static unsigned life;          /* odd: it serves; even: it is being started */
static bool ending;

/* One client with a job of its own, of which it is the only member. Numbers are those of the last
 * calls that were answered. */
struct client {
    pthread_t thread;
    unsigned index, seed, seen_life;
    int fd;
    uint64_t generation, generations, value, sum, swapped, calls;
    char error[512]; /* what is wrong; empty: nothing */
};

static void set_life(bool serves, bool ends)
{
    muster_mutex_lock(&mutex);
    life += serves != (life % 2 == 1);
    ending = ends;
    (void)pthread_cond_broadcast(&changed);
    muster_mutex_unlock(&mutex);
}

static void set_error(struct client *client, const char *what, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    (void)snprintf(client->error, sizeof client->error, "client %u, call %llu: %s: %.300s",
                   client->index, (unsigned long long)client->calls, what,
                   text != NULL ? text : "no JSON");
    free(text);
}

/* Connects to a server that lives. False: the test is ending, or there is none for a minute. */
static bool connect_again(struct client *client)
{
    int64_t deadline_ns = muster_clock_after_ms(RESTART_MS);
    if (client->fd >= 0) {
        (void)close(client->fd);
        client->fd = -1;
    }
    muster_mutex_lock(&mutex);
    while (!ending && (life % 2 == 0 || life == client->seen_life) &&
           muster_clock_left_ms(deadline_ns) > 0) {
        (void)muster_condition_wait(&changed, &mutex, deadline_ns);
    }
    client->seen_life = life;
    bool over = ending;
    unsigned port = service.port;
    muster_mutex_unlock(&mutex);
    if (!over && muster_clock_left_ms(deadline_ns) == 0) {
        set_error(client, "no server came back", NULL);
    }
    client->fd = over || client->error[0] != '\0' ? -1 : web_open((uint16_t)port);
    return !over && client->error[0] == '\0';
}

/* Sends the same request until it is answered, over as many servers as that takes. NULL: the test
 * is ending. */
static json_t *call(struct client *client, const char *method, const char *body)
{
    for (;;) {
        if (client->fd >= 0 && web_post(client->fd, method, "", body)) {
            struct web_response response = web_read(client->fd);
            if (response.status == 200 && response.json != NULL) {
                client->calls++;
                return response.json;
            }
            if (response.json != NULL) { /* else the server was killed before the last byte */
                set_error(client, method, response.json);
                web_response_finish(&response);
                return NULL;
            }
        }
        if (!connect_again(client)) {
            return NULL;
        }
    }
}

static void expect_number(struct client *client, const char *what, json_t *json, const char *path,
                          uint64_t least, uint64_t most)
{
    uint64_t number = (uint64_t)test_part_number(json, path);
    if (json != NULL && (number < least || number > most)) {
        set_error(client, what, json);
    }
}

/* The same member joins with its last generation: the next one forms. */
static void form(struct client *client)
{
    char body[512];
    (void)snprintf(body, sizeof body,
                   "{'job':'j%u','member':'00000000-0000-4000-8000-%012u','host':'h','maxSize':1,"
                   "'generation':'%llu'}",
                   client->index, client->index, (unsigned long long)client->generation);
    json_t *json = call(client, "Join", body);
    expect_number(client, "a generation that is no new one", json, "formed.generation",
                  client->generation + 1, INT64_MAX);
    if (json != NULL) {
        client->generation = (uint64_t)test_part_number(json, "formed.generation");
        client->generations++;
    }
    json_decref(json);
}

static void put(struct client *client)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{'job':'j%u','key':'k','value':'%012llu'}", client->index,
                   (unsigned long long)client->value + 1);
    json_t *json = call(client, "Put", body);
    client->value += json != NULL;
    json_decref(json);
}

static void get(struct client *client)
{
    char body[256];
    if (client->value == 0) {
        return;
    }
    (void)snprintf(body, sizeof body, "{'job':'j%u','key':'k'}", client->index);
    json_t *json = call(client, "Get", body);
    expect_number(client, "not the last value", json, "value", client->value, client->value);
    json_decref(json);
}

/* Adds 1 with an id of its own: the sum is the number of Adds, however often each was sent. */
static void add(struct client *client)
{
    char body[256];
    uint64_t next = client->sum + 1;
    (void)snprintf(body, sizeof body,
                   "{'job':'j%u','key':'sum','amount':1,"
                   "'requestId':'aaaaaaaa-0000-4000-8000-%012llx'}",
                   client->index, (unsigned long long)next);
    json_t *json = call(client, "Add", body);
    expect_number(client, "an Add did not count once", json, "value", next, next);
    client->sum += json != NULL;
    json_decref(json);
}

static void swap(struct client *client)
{
    char body[384];
    char before[24] = "";
    uint64_t next = client->swapped + 1;
    if (client->swapped > 0) {
        (void)snprintf(before, sizeof before, "%012llu", (unsigned long long)client->swapped);
    }
    (void)snprintf(body, sizeof body,
                   "{'job':'j%u','key':'swapped','expected':'%s','value':'%012llu',"
                   "'requestId':'bbbbbbbb-0000-4000-8000-%012llx'}",
                   client->index, before, (unsigned long long)next, (unsigned long long)next);
    json_t *json = call(client, "CompareAndSwap", body);
    if (json != NULL && !json_is_true(test_part(json, "swapped"))) {
        set_error(client, "a swap was lost", json);
    }
    client->swapped += json != NULL;
    json_decref(json);
}

static bool goes_on(struct client *client)
{
    AUTO_LOCK(&mutex);
    return !ending && client->error[0] == '\0';
}

static void *run_client(void *user)
{
    static void (*const calls[])(struct client * client) = {form, put, get, add, swap};
    struct client *client = user;
    form(client);
    while (goes_on(client)) {
        calls[(unsigned)rand_r(&client->seed) % (sizeof calls / sizeof calls[0])](client);
    }
    if (client->fd >= 0) {
        (void)close(client->fd);
    }
    return NULL;
}

static void start_clients(struct client clients[CLIENTS], unsigned seed)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.index = i, .seed = seed + i, .fd = -1};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
}

static uint64_t join_clients(struct client clients[CLIENTS])
{
    uint64_t calls = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (clients[i].error[0] != '\0') {
            fail_msg("%s", clients[i].error);
        }
        calls += clients[i].calls;
    }
    return calls;
}

static void what_was_answered_survives_kill_9_at_any_point(void **state)
{
    (void)state;
    static const char *const options[] = {"--log=error", NULL};
    const char *given = getenv("MUSTER_SEED");
    unsigned seed =
        given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)muster_clock_ns();
    struct client clients[CLIENTS];
    print_message("seed %u\n", seed);
    muster_condition_init(&changed);
    assert_true(test_service_start(&service, options));
    set_life(true, false);
    start_clients(clients, seed);
    bool serves = true;
    unsigned kills = 0;
    while (kills < kill_count && serves) {
        (void)usleep((useconds_t)rand_r(&seed) % LOAD_MAX_US); /* the random point */
        set_life(false, false);
        test_service_kill(&service);
        serves = test_service_restart(&service, options);
        set_life(serves, false);
        kills++;
    }
    (void)usleep(LOAD_MAX_US);
    set_life(serves, true);
    uint64_t calls = join_clients(clients);
    assert_true(serves);
    print_message("%u kills, %llu calls\n", kills, (unsigned long long)calls);
    assert_true(calls > kills);
    assert_int_equal(test_service_stop(&service), 0);
}

int main(int argc, char **argv)
{
    if (!test_service_built()) {
        return 77;
    }
    kill_count = argc > 1 && strcmp(argv[1], "all") == 0 ? KILLS_ALL : KILLS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_answered_survives_kill_9_at_any_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
