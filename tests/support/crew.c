/* Runs the members of a job as threads. */
#include "tests/support/crew.h"

#include <stdio.h>
#include <string.h>

void crew_fail(struct crew_member *member, const char *file, int line, const char *what)
{
    (void)snprintf(member->failure, sizeof member->failure, "%s:%d: %s (last error: %s)", file,
                   line, what, muster_last_error());
    struct crew *crew = member->crew;
    (void)pthread_mutex_lock(&crew->mutex);
    crew->failed = true;
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->mutex);
}

void crew_barrier(struct crew_member *member)
{
    struct crew *crew = member->crew;
    (void)pthread_mutex_lock(&crew->mutex);
    uint32_t until = (crew->present / crew->count + 1) * crew->count;
    crew->present++;
    (void)pthread_cond_broadcast(&crew->changed);
    while (crew->present < until && !crew->failed) {
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    }
    (void)pthread_mutex_unlock(&crew->mutex);
}

static void *run_member(void *argument)
{
    struct crew_member *member = argument;
    if (muster_open(&member->options, &member->session) != MUSTER_OK) {
        crew_fail(member, __FILE__, __LINE__, "muster_open()");
        return NULL;
    }
    member->crew->function(member);
    muster_close(member->session);
    return NULL;
}

int crew_run(struct crew *crew)
{
    static const char *const hosts[] = {"host-a", "host-b", "host-c", "host-d"};
    int failed = 0;
    crew->present = 0;
    crew->failed = false;
    (void)pthread_mutex_init(&crew->mutex, NULL);
    (void)pthread_cond_init(&crew->changed, NULL);
    for (uint32_t i = 0; i < crew->count; i++) {
        struct crew_member *member = &crew->members[i];
        *member = (struct crew_member){.crew = crew, .index = i};
        muster_options_init(&member->options);
        member->options.rendezvous = crew->url;
        member->options.job = crew->job;
        member->options.host = hosts[i * crew->hosts / crew->count];
        member->options.min_size = crew->count;
        member->options.target_size = crew->count;
        member->options.order = i;
        member->options.join_timeout_ms = 30000;
        member->options.call_timeout_ms = 30000;
        if (crew->prepare != NULL) {
            crew->prepare(member);
        }
    }
    for (uint32_t i = 0; i < crew->count; i++) {
        if (pthread_create(&crew->members[i].thread, NULL, run_member, &crew->members[i]) != 0) {
            (void)fprintf(stderr, "member %u has no thread\n", i);
            crew->count = i;
            failed++;
        }
    }
    for (uint32_t i = 0; i < crew->count; i++) {
        (void)pthread_join(crew->members[i].thread, NULL);
        if (crew->members[i].failure[0] != '\0') {
            (void)fprintf(stderr, "member %u: %s\n", i, crew->members[i].failure);
            failed++;
        }
    }
    (void)pthread_cond_destroy(&crew->changed);
    (void)pthread_mutex_destroy(&crew->mutex);
    return failed;
}

void crew_expect_invalid(struct crew_member *member, muster_status status, const char *text)
{
    MEMBER_CHECK(member, status == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), text) != NULL);
}

int crew_run_job(const char *url, const char *job, uint32_t count, uint32_t hosts,
                 crew_function function)
{
    struct crew crew = {
        .url = url, .job = job, .count = count, .hosts = hosts, .function = function};
    return crew_run(&crew);
}
