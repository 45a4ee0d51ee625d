#include "worker/base/thread.h"

#include <assert.h>

void muster_mutex_init(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_init(mutex, NULL);
    assert(failed == 0);
    (void)failed;
}

void muster_mutex_lock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_lock(mutex);
    assert(failed == 0);
    (void)failed;
}

void muster_mutex_unlock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_unlock(mutex);
    assert(failed == 0);
    (void)failed;
}
