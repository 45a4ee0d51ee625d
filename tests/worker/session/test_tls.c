/* Jobs with TLS between their members, against a real musterd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/certificates.h"
#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { COUNT = 100000 };

static struct certificates certificates;

static void use_files(muster_options *options, const char *name)
{
    certificates_choose(&certificates, name, "authority", options);
    options->tls_name = "job.x";
}

static void have_files(struct crew_member *member)
{
    use_files(&member->options, "member");
}

static void add_up(struct crew_member *member)
{
    static float numbers[CREW_MAX][COUNT];
    float *mine = numbers[member->index];
    for (uint32_t i = 0; i < COUNT; i++) {
        mine[i] = (float)(i % 1000 + member->index);
    }
    MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, mine, mine, COUNT,
                                       MUSTER_FLOAT32, MUSTER_SUM, NULL));
    for (uint32_t i = 0; i < COUNT; i++) {
        MEMBER_CHECK(member, mine[i] == (float)(3 * (i % 1000) + 3));
    }
}

static void members_with_certificates_reduce(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "encrypted",
                        .count = 3,
                        .hosts = 3,
                        .prepare = have_files,
                        .function = add_up};
    /* Makes the strings that all members share, before there are threads. */
    muster_options options;
    use_files(&options, "member");
    assert_int_equal(crew_run(&crew), 0);
}

static void a_wrong_file_is_named_at_once(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options;
    muster_options_init(&options);
    options.rendezvous = group_service.url;
    options.job = "wrong";
    use_files(&options, "member");
    options.tls_key = certificates_path(&certificates, "authority", "key");
    assert_int_equal(muster_open(&options, &session), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "TLS key (MUSTER_TLS_KEY) "));
    assert_non_null(strstr(muster_last_error(), "does not belong to the certificate"));
    options.tls_key = NULL;
    assert_int_equal(muster_open(&options, &session), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "TLS key (MUSTER_TLS_KEY) is not given"));
    assert_null(session);
}

static int set_up(void **state)
{
    certificates_init(&certificates);
    certificates_make(&certificates, (struct certificate_wish){.name = "authority"});
    certificates_make(&certificates, (struct certificate_wish){
                                         .name = "member", .issuer = "authority", .dns = "job.x"});
    return test_service_setup(state);
}

static int tear_down(void **state)
{
    certificates_finish(&certificates);
    return test_service_teardown(state);
}

int main(void)
{
    if (!test_service_built()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_with_certificates_reduce),
        cmocka_unit_test(a_wrong_file_is_named_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
