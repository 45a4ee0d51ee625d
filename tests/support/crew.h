/* Members of one job as threads of a test, each with a session of its own. A check that fails in a
 * member is recorded there; crew_run() returns the number of failed members to the test. */
#ifndef MUSTER_TESTS_SUPPORT_CREW_H
#define MUSTER_TESTS_SUPPORT_CREW_H

#include "worker/muster.h"

#include <pthread.h>
#include <stdbool.h>

enum { CREW_MAX = 16 };

struct crew;

struct crew_member {
    struct crew *crew;
    uint32_t index;
    muster_options options;
    muster_session *session; /* NULL until opened */
    char failure[768];       /* "": none */
    pthread_t thread;
};

typedef void (*crew_function)(struct crew_member *member);

struct crew {
    const char *url;
    const char *job;
    uint32_t count;
    uint32_t hosts;         /* host names: member i is on host i * hosts / count */
    crew_function function; /* called with the session open, which is closed afterwards */
    void (*prepare)(struct crew_member *member); /* may change the options; or NULL */
    void *user;
    struct crew_member members[CREW_MAX];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t present; /* arrivals at barriers so far */
    bool failed;      /* a member has failed: barriers no longer wait */
};

/* Runs the function in `count` threads, in a job of exactly that size. Returns the number of
 * members that failed, after printing why. */
int crew_run(struct crew *crew);

/* The same with nothing else to set. */
int crew_run_job(const char *url, const char *job, uint32_t count, uint32_t hosts,
                 crew_function function);

/* A barrier of the members in crew_run(), without Muster. */
void crew_barrier(struct crew_member *member);

void crew_fail(struct crew_member *member, const char *file, int line, const char *what);

/* The call was refused, and the error text has this in it. */
void crew_expect_invalid(struct crew_member *member, muster_status status, const char *text);

/* In a member's function: a check that fails is recorded and the function returns. */
#define MEMBER_CHECK(member, condition)                          \
    do {                                                         \
        if (!(condition)) {                                      \
            crew_fail((member), __FILE__, __LINE__, #condition); \
            return;                                              \
        }                                                        \
    } while (0)

#define MEMBER_OK(member, call) MEMBER_CHECK((member), (call) == MUSTER_OK)

#endif
