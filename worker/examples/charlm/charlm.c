/*
 * charlm: a character-level language model, trained by all workers of a job together.
 *
 *     muster run -n 4 -- charlm
 *
 * What makes it elastic: trainer.c registers the state; train() below commits it now and then,
 * returns every status that is not MUSTER_OK, and reads rank and size anew in each call.
 */
#include <locale.h>
#include <math.h>
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker/examples/charlm/charlm_options.h"
#include "worker/examples/charlm/data.h"
#include "worker/examples/charlm/invent.h"
#include "worker/examples/charlm/trainer.h"

#define INVENTIONS 10

struct run {
    struct charlm_trainer trainer;
    /* For this call of train(): */
    bool speaks; /* it prints; true on rank 0 */
    struct timespec reported_at;
    uint64_t reported_step;
    /* For the end: */
    const char *problem; /* why train() failed, if the library did not fail */
    double held_out_loss;
    uint64_t digest;
    uint32_t size;
};

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + 1e-9 * (double)(now.tv_nsec - then->tv_nsec);
}

static void mark(struct run *run)
{
    clock_gettime(CLOCK_MONOTONIC, &run->reported_at);
    run->reported_step = run->trainer.progress.steps_done;
}

static uint64_t generation(const struct run *run)
{
    return run->trainer.session == NULL ? 0 : muster_generation(run->trainer.session);
}

static void introduce(const struct run *run)
{
    const struct charlm_trainer *trainer = &run->trainer;
    if (trainer->progress.steps_done == 0) {
        printf("%zu words to learn from, %zu held out, %zu characters, %zu parameters\n",
               trainer->data->training.lines, trainer->data->held_out.lines,
               trainer->data->vocabulary, trainer->model.parameter_count);
    } else {
        printf("going on from step %llu with %u worker%s\n",
               (unsigned long long)trainer->progress.steps_done, run->size,
               run->size == 1 ? "" : "s");
    }
}

static void report(struct run *run)
{
    const struct charlm_trainer *trainer = &run->trainer;
    uint64_t step = trainer->progress.steps_done;
    double samples = (double)((step - run->reported_step) * trainer->options->batch);
    printf("step %5llu of %llu  loss %.4f  size %u  generation %llu  %6.0f samples/s\n",
           (unsigned long long)step, (unsigned long long)trainer->options->steps,
           trainer->progress.loss, run->size, (unsigned long long)(uint32_t)generation(run),
           samples / seconds_since(&run->reported_at));
    mark(run);
}

static void keep_pace(const struct timespec *begin, uint64_t pace_ms)
{
    double left = (double)pace_ms / 1e3 - seconds_since(begin);
    if (left > 0) {
        struct timespec rest = {(time_t)left, (long)((left - floor(left)) * 1e9)};
        nanosleep(&rest, NULL);
    }
}

static muster_status fail(struct run *run, muster_status status, const char *problem)
{
    run->problem = problem;
    return status;
}

/* The end of the training: all members together compute the held-out loss and compare weights. */
static muster_status conclude(struct run *run)
{
    bool same = false;
    muster_status status = charlm_trainer_held_out(&run->trainer, &run->held_out_loss);
    if (status == MUSTER_OK) {
        status = charlm_trainer_digest(&run->trainer, &run->digest, &same);
    }
    if (status == MUSTER_OK && !same) {
        return fail(run, MUSTER_FATAL, "the workers' weights differ");
    }
    return status;
}

/* One step, and what is due after it. */
static muster_status advance(struct run *run)
{
    struct charlm_trainer *trainer = &run->trainer;
    const struct charlm_options *options = trainer->options;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    muster_status status = charlm_trainer_step(trainer);
    if (status != MUSTER_OK) {
        return status;
    }
    if (!isfinite(trainer->progress.loss)) {
        return fail(run, MUSTER_FATAL,
                    "the loss is no longer a number: try a lower --learning-rate");
    }
    uint64_t step = trainer->progress.steps_done;
    bool last = step == options->steps;
    if (run->speaks && (step % options->report_every == 0 || last)) {
        report(run);
    }
    keep_pace(&begin, options->pace_ms);
    if (trainer->session != NULL && (step % options->commit_every == 0 || last)) {
        return muster_commit(trainer->session);
    }
    return MUSTER_OK;
}

/* The muster_function: called again after each change of the membership. */
static muster_status train(muster_session *session, void *user)
{
    struct run *run = user;
    (void)session;
    run->size = charlm_trainer_size(&run->trainer);
    run->speaks = charlm_trainer_rank(&run->trainer) == 0;
    if (!charlm_trainer_agrees(&run->trainer)) {
        return fail(run, MUSTER_INVALID,
                    "this worker's data or options are not those that the job trains with");
    }
    if (run->speaks) {
        introduce(run);
    }
    mark(run);
    while (run->trainer.progress.steps_done < run->trainer.options->steps) {
        muster_status status = advance(run);
        if (status != MUSTER_OK) {
            return status;
        }
    }
    return conclude(run);
}

static void print_outcome(struct run *run)
{
    struct charlm_trainer *trainer = &run->trainer;
    struct charlm_word words[INVENTIONS];
    printf("held-out loss %.4f nats a character\n", run->held_out_loss);
    printf("digest %016llx, the same on every worker (%u)\n", (unsigned long long)run->digest,
           run->size);
    size_t count =
        charlm_invent(&trainer->model, trainer->data, trainer->options->seed, INVENTIONS, words);
    printf("invented:");
    for (size_t i = 0; i < count; i++) {
        printf("%s %s%s", i == 0 ? "" : ",", words[i].text, words[i].known ? " (known)" : "");
    }
    printf("\n");
}

static int explain(const struct run *run, muster_status status)
{
    if (status == MUSTER_ENDED) {
        fprintf(stderr, "charlm: left at step %llu: %s\n",
                (unsigned long long)run->trainer.progress.steps_done, muster_last_error());
        return EXIT_SUCCESS;
    }
    fprintf(stderr, "charlm: %s: %s\n", muster_status_name(status),
            run->problem != NULL ? run->problem : muster_last_error());
    return EXIT_FAILURE;
}

static int train_in_job(struct run *run)
{
    muster_session *session = NULL;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = charlm_trainer_register(&run->trainer, session);
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, train, run);
    }
    int exit_status = status == MUSTER_OK ? EXIT_SUCCESS : explain(run, status);
    if (status == MUSTER_OK && run->speaks) {
        print_outcome(run);
    }
    muster_close(session);
    return exit_status;
}

static int train_alone(struct run *run)
{
    muster_status status = train(NULL, run);
    if (status != MUSTER_OK) {
        return explain(run, status);
    }
    print_outcome(run);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct charlm_options options;
    struct charlm_data data;
    struct run run = {0};
    /* LC_CTYPE only: it decides which characters are printable; numbers keep their decimal points.
     */
    setlocale(LC_CTYPE, "C.UTF-8");
    setvbuf(stdout, NULL, _IOLBF, 0);
    charlm_options_parse(&options, argc, argv);
    if (!options.alone && getenv("MUSTER_RENDEZVOUS") == NULL) {
        fprintf(stderr,
                "charlm: there is no job to join (MUSTER_RENDEZVOUS is not set): start it "
                "with `muster run -n 4 -- charlm`, or train in this process: --alone\n");
        return CHARLM_USAGE;
    }
    if (!charlm_data_load(&data, options.data)) {
        return EXIT_FAILURE;
    }
    int exit_status = EXIT_FAILURE;
    if (charlm_trainer_init(&run.trainer, &options, &data)) {
        exit_status = options.alone ? train_alone(&run) : train_in_job(&run);
        charlm_trainer_finish(&run.trainer);
    }
    charlm_data_finish(&data);
    return exit_status;
}
