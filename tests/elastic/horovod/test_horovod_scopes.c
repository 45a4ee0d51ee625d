/* Scopes: what is put is there until every rank that has put its key has finished. */
#include "elastic/horovod/horovod_scopes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put(struct muster_horovod_scopes *scopes, const char *scope, const char *key,
                const char *value)
{
    assert_int_equal(muster_horovod_scopes_put(scopes, scope, key, value, strlen(value)),
                     MUSTER_OK);
}

/* NULL: it is not there. */
static void expect(const struct muster_horovod_scopes *scopes, const char *scope, const char *key,
                   const char *value)
{
    const void *bytes = NULL;
    size_t size_bytes = 0;
    bool found = muster_horovod_scopes_get(scopes, scope, key, &bytes, &size_bytes);
    assert_int_equal(found, value != NULL);
    if (value != NULL) {
        assert_int_equal(size_bytes, strlen(value));
        assert_memory_equal(bytes, value, size_bytes);
    }
}

static void a_value_is_there_until_it_is_replaced_or_removed(void **state)
{
    (void)state;
    struct muster_horovod_scopes scopes = {0};
    expect(&scopes, "global", "0", NULL);
    put(&scopes, "global", "a:0", "x");
    put(&scopes, "global", "a:0", "longer");
    put(&scopes, "global", "a:1", "stays");
    put(&scopes, "other", "a:0", "");
    expect(&scopes, "global", "a:0", "longer");
    expect(&scopes, "other", "a:0", "");
    assert_int_equal(scopes.key_count, 3);
    assert_int_equal(scopes.size_bytes, 6 + 5 + 3 * MUSTER_HOROVOD_KEY_COST_BYTES);
    muster_horovod_scopes_delete(&scopes, "global", "a:0");
    muster_horovod_scopes_delete(&scopes, "global", "a:0");
    muster_horovod_scopes_delete(&scopes, "never", "a:0");
    expect(&scopes, "global", "a:0", NULL);
    expect(&scopes, "global", "a:1", "stays");
    expect(&scopes, "other", "a:0", "");
    muster_horovod_scopes_finish(&scopes);
    assert_int_equal(scopes.key_count, 0);
    assert_int_equal(scopes.size_bytes, 0);
}

static void a_scope_is_cleared_when_every_rank_has_finished(void **state)
{
    (void)state;
    struct muster_horovod_scopes scopes = {0};
    put(&scopes, "local_a", "0", "other scope");
    muster_horovod_scopes_delete(&scopes, "local_a", "1");
    for (char rank[] = "0"; rank[0] < '3'; rank[0]++) {
        char name[] = "rank_x";
        name[5] = rank[0];
        put(&scopes, "global", name, "host");
        put(&scopes, "global", rank, rank);
    }
    muster_horovod_scopes_delete(&scopes, "global", "0");
    muster_horovod_scopes_delete(&scopes, "global", "0"); /* counts once */
    muster_horovod_scopes_delete(&scopes, "global", "0");
    muster_horovod_scopes_delete(&scopes, "global", "7"); /* of nobody */
    expect(&scopes, "global", "0", "0");                  /* slower ranks still read it */
    muster_horovod_scopes_delete(&scopes, "global", "2");
    expect(&scopes, "global", "2", "2");
    muster_horovod_scopes_delete(&scopes, "global", "1");
    expect(&scopes, "global", "0", NULL);
    expect(&scopes, "global", "rank_0", NULL); /* nothing leaks */
    expect(&scopes, "local_a", "0", "other scope");
    assert_int_equal(scopes.key_count, 1);
    muster_horovod_scopes_delete(&scopes, "local_a", "0");
    assert_null(scopes.first);
    assert_int_equal(scopes.size_bytes, 0);
}

static void a_rank_that_puts_again_has_not_finished(void **state)
{
    (void)state;
    struct muster_horovod_scopes scopes = {0};
    put(&scopes, "global", "0", "first");
    put(&scopes, "global", "1", "first");
    muster_horovod_scopes_delete(&scopes, "global", "0");
    put(&scopes, "global", "0", "second");
    muster_horovod_scopes_delete(&scopes, "global", "1");
    expect(&scopes, "global", "0", "second");
    muster_horovod_scopes_delete(&scopes, "global", "0");
    assert_null(scopes.first);
}

static void the_bounds_are_named_and_change_nothing(void **state)
{
    (void)state;
    struct muster_horovod_scopes scopes = {0};
    char key[32];
    for (unsigned i = 0; i < MUSTER_HOROVOD_KEYS_MAX; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        put(&scopes, "global", key, "v");
    }
    assert_int_equal(muster_horovod_scopes_put(&scopes, "new", "one", "v", 1), MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "16384 keys"));
    put(&scopes, "global", "k0", "replaced");
    muster_horovod_scopes_finish(&scopes);

    size_t large_bytes = 16 * 1024 * 1024;
    char *large = calloc(1, large_bytes);
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(key, sizeof key, "%u", i);
        assert_int_equal(muster_horovod_scopes_put(&scopes, "global", key, large, large_bytes),
                         MUSTER_OK);
    }
    assert_int_equal(muster_horovod_scopes_put(&scopes, "global", "3", large, large_bytes),
                     MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "bytes of 67108864"));
    assert_int_equal(muster_horovod_scopes_put(&scopes, "global", "2", large, large_bytes),
                     MUSTER_OK);
    assert_int_equal(scopes.key_count, 3);
    free(large);
    muster_horovod_scopes_finish(&scopes);
}

static void ranks_are_plain_numbers(void **state)
{
    (void)state;
    uint32_t rank = 7;
    assert_true(muster_horovod_parse_rank("0", &rank) && rank == 0);
    assert_true(muster_horovod_parse_rank("4294967295", &rank) && rank == UINT32_MAX);
    static const char *const wrong[] = {"",   "00",         "01",          "-1",
                                        "1 ", "4294967296", "99999999999", "rank_0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(muster_horovod_parse_rank(wrong[i], &rank));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_there_until_it_is_replaced_or_removed),
        cmocka_unit_test(a_scope_is_cleared_when_every_rank_has_finished),
        cmocka_unit_test(a_rank_that_puts_again_has_not_finished),
        cmocka_unit_test(the_bounds_are_named_and_change_nothing),
        cmocka_unit_test(ranks_are_plain_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
