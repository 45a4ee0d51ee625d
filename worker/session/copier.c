/* A thread that does one piece of work at a time. */
#include "worker/session/copier.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "worker/base/thread.h"

struct muster_copier {
    pthread_t thread;
    pthread_mutex_t mutex; /* the following */
    pthread_cond_t changed;
    void (*work)(void *argument); /* NULL: there is none */
    void *argument;
    bool stop;
};

static void *run(void *argument)
{
    struct muster_copier *copier = argument;
    muster_mutex_lock(&copier->mutex);
    while (!copier->stop) {
        if (copier->work == NULL) {
            (void)pthread_cond_wait(&copier->changed, &copier->mutex);
            continue;
        }
        muster_mutex_unlock(&copier->mutex);
        copier->work(copier->argument); /* both change only when there is no work */
        muster_mutex_lock(&copier->mutex);
        copier->work = NULL;
        (void)pthread_cond_broadcast(&copier->changed);
    }
    muster_mutex_unlock(&copier->mutex);
    return NULL;
}

muster_status muster_copier_create(struct muster_copier **ret_copier)
{
    struct muster_copier *copier = calloc(1, sizeof *copier);
    if (copier == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_mutex_init(&copier->mutex);
    muster_condition_init(&copier->changed);
    if (pthread_create(&copier->thread, NULL, run, copier) != 0) {
        free(copier);
        return muster_error_set(MUSTER_FATAL, "no thread to copy the state");
    }
    *ret_copier = copier;
    return MUSTER_OK;
}

void muster_copier_destroy(struct muster_copier *copier)
{
    if (copier == NULL) {
        return;
    }
    muster_mutex_lock(&copier->mutex);
    copier->stop = true;
    (void)pthread_cond_broadcast(&copier->changed);
    muster_mutex_unlock(&copier->mutex);
    (void)pthread_join(copier->thread, NULL);
    (void)pthread_cond_destroy(&copier->changed);
    (void)pthread_mutex_destroy(&copier->mutex);
    free(copier);
}

void muster_copier_start(struct muster_copier *copier, void (*work)(void *argument), void *argument)
{
    AUTO_LOCK(&copier->mutex);
    copier->work = work;
    copier->argument = argument;
    (void)pthread_cond_broadcast(&copier->changed);
}

void muster_copier_wait(struct muster_copier *copier)
{
    AUTO_LOCK(&copier->mutex);
    while (copier->work != NULL) {
        (void)pthread_cond_wait(&copier->changed, &copier->mutex);
    }
}
