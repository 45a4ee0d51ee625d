/* Members of one job as threads of a test: each has a session of its own. Checks that fail in a
 * member are recorded, and told to cmocka when all threads are back. */
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
    char failure[768];       /* "": all is well */
    pthread_t thread;
};

typedef void (*crew_function)(struct crew_member *member);

struct crew {
    const char *url;
    const char *job;
    uint32_t count;
    uint32_t hosts;         /* pretended ones: member i is on host i * hosts / count */
    crew_function function; /* with the session open; it is closed afterwards */
    void (*prepare)(struct crew_member *member); /* may change the options; or NULL */
    void *user;
    struct crew_member members[CREW_MAX];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t present; /* of the meetings so far */
    bool failed;      /* nobody waits for those who have given up */
};

/* Runs function in count threads, all in one job of exactly that size; returns the number of
 * members that failed, after printing why. */
int crew_run(struct crew *crew);

/* The members that are in crew_run() meet here: outside of Muster, for the test's own order. */
void crew_meet(struct crew_member *member);

void crew_fail(struct crew_member *member, const char *file, int line, const char *what);

/* In a member's function: records and returns. */
#define MEMBER_CHECK(member, condition)                          \
    do {                                                         \
        if (!(condition)) {                                      \
            crew_fail((member), __FILE__, __LINE__, #condition); \
            return;                                              \
        }                                                        \
    } while (0)

#define MEMBER_OK(member, call) MEMBER_CHECK((member), (call) == MUSTER_OK)

#endif
