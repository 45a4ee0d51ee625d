/* Spilled states: files that are whole, or are refused by name, and jobs that go on from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/session/spill_file.h"

enum { WEIGHTS = 40, NAME_SIZE = 300 };

static char folder[64];
static struct muster_spill_place place;

/* A state of two buffers, and its copy. */
struct model {
    int64_t step;
    float weights[WEIGHTS];
    struct muster_state state;
};

static void model_init(struct model *model, int64_t step)
{
    *model = (struct model){.step = step};
    for (int i = 0; i < WEIGHTS; i++) {
        model->weights[i] = (float)(step * 100 + i);
    }
    muster_state_init(&model->state);
    assert_int_equal(muster_state_register(&model->state, "step", &model->step, 8), MUSTER_OK);
    assert_int_equal(
        muster_state_register(&model->state, "weights", model->weights, sizeof model->weights),
        MUSTER_OK);
    assert_int_equal(muster_state_reserve(&model->state), MUSTER_OK);
    muster_state_copy_commit(&model->state, 1, 1);
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/muster-test-XXXXXX");
    place = (struct muster_spill_place){.folder = folder, .job = "train"};
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    for (struct dirent *entry = readdir(open_folder); entry != NULL; entry = readdir(open_folder)) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(open_folder);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry = readdir(open_folder); entry != NULL; entry = readdir(open_folder)) {
        (void)unlinkat(dirfd(open_folder), entry->d_name, 0);
    }
    (void)closedir(open_folder);
    return rmdir(folder);
}

static muster_status spill(int64_t step, uint64_t generation, uint64_t version)
{
    struct model model;
    model_init(&model, step);
    const struct muster_spill_key key = {.generation = generation, .version = version};
    muster_status status = muster_spill_file_write(&place, &model.state, model.state.copy, key);
    muster_state_finish(&model.state);
    return status;
}

/* The step in the file of this key; -1: it is refused. */
static int64_t read_step(uint64_t generation, uint64_t version)
{
    struct model model;
    model_init(&model, 0);
    const struct muster_spill_key key = {.generation = generation, .version = version};
    muster_status status = muster_spill_file_read(&place, &model.state, key, model.state.copy);
    muster_state_restore_commit(&model.state);
    int64_t step = model.step;
    if (status == MUSTER_OK) {
        assert_true(model.weights[WEIGHTS - 1] == (float)(step * 100 + WEIGHTS - 1));
    }
    muster_state_finish(&model.state);
    return status == MUSTER_OK ? step : -1;
}

static void path_of(uint64_t generation, uint64_t version, char path[NAME_SIZE])
{
    (void)snprintf(path, NAME_SIZE, "%s/train.%016llx.%016llx.state", folder,
                   (unsigned long long)generation, (unsigned long long)version);
}

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t size_bytes = fread(bytes, 1, room, file);
    assert_true(size_bytes < room);
    (void)fclose(file);
    return size_bytes;
}

static void write_file(const char *path, const unsigned char *bytes, size_t size_bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

static void the_newest_is_that_of_the_highest_generation_then_of_the_highest_version(void **state)
{
    (void)state;
    struct muster_spill_key keys[MUSTER_SPILL_FILES_MAX];
    uint32_t count = 0;
    assert_int_equal(spill(1, 7, 40), MUSTER_OK);
    assert_int_equal(spill(2, 8, 30), MUSTER_OK);
    assert_int_equal(spill(3, 8, 31), MUSTER_OK);
    assert_int_equal(spill(4, 7, 41), MUSTER_OK); /* of one that was cut off and goes on */
    assert_int_equal(spill(9, 8, 31), MUSTER_OK); /* a file is never written again */
    char other[NAME_SIZE];
    (void)snprintf(other, sizeof other, "%s/trainer.%016x.%016x.state", folder, 9, 9);
    write_file(other, (const unsigned char *)"", 0);
    (void)snprintf(other, sizeof other, "%s/train.9.9.state", folder);
    write_file(other, (const unsigned char *)"", 0);
    assert_int_equal(muster_spill_file_list(&place, keys, &count), MUSTER_OK);
    assert_int_equal(count, 4);
    const struct muster_spill_key expected[] = {{8, 31}, {8, 30}, {7, 41}, {7, 40}};
    assert_memory_equal(keys, expected, sizeof expected);
    assert_int_equal(read_step(8, 31), 3);
    muster_spill_file_prune(&place, 2);
    assert_int_equal(count_files(), 4); /* the files of others stay */
    assert_int_equal(read_step(8, 30), 2);
    assert_int_equal(read_step(7, 41), -1);
}

static void a_file_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[1024];
    char path[NAME_SIZE];
    assert_int_equal(spill(5, 1, 2), MUSTER_OK);
    path_of(1, 2, path);
    size_t size_bytes = read_file(path, bytes, sizeof bytes);
    for (size_t left = 0; left < size_bytes; left++) {
        write_file(path, bytes, left);
        assert_int_equal(read_step(1, 2), -1);
        assert_non_null(strstr(muster_last_error(), path));
        assert_non_null(strstr(muster_last_error(), "it is truncated"));
    }
    write_file(path, bytes, size_bytes + 1);
    assert_int_equal(read_step(1, 2), -1);
    assert_non_null(strstr(muster_last_error(), "something follows the state"));
    write_file(path, bytes, size_bytes);
    assert_int_equal(read_step(1, 2), 5);
}

static void a_file_that_is_changed_anywhere_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[1024];
    char path[NAME_SIZE];
    assert_int_equal(spill(5, 1, 2), MUSTER_OK);
    path_of(1, 2, path);
    size_t size_bytes = read_file(path, bytes, sizeof bytes);
    for (size_t at = 0; at < size_bytes; at++) {
        bytes[at] ^= 0x10;
        write_file(path, bytes, size_bytes);
        bytes[at] ^= 0x10;
        assert_int_equal(read_step(1, 2), -1);
        assert_non_null(strstr(muster_last_error(), path));
    }
    write_file(path, (const unsigned char *)"#!/bin/sh\necho this is no state of anything at all\n",
               50);
    assert_int_equal(read_step(1, 2), -1);
    assert_non_null(strstr(muster_last_error(), "it is no state of Muster"));
    char renamed[NAME_SIZE];
    path_of(1, 3, renamed);
    write_file(renamed, bytes, size_bytes);
    assert_int_equal(read_step(1, 3), -1);
    assert_non_null(strstr(muster_last_error(), "another generation or version than its name"));
    assert_int_equal(read_step(1, 4), -1);
    assert_non_null(strstr(muster_last_error(), "No such file"));
}

static void a_state_of_other_buffers_is_refused_and_the_first_difference_named(void **state)
{
    (void)state;
    struct muster_state other = {0};
    int64_t step = 0;
    float weights[WEIGHTS + 1] = {0};
    const struct muster_spill_key key = {.generation = 1, .version = 2};
    assert_int_equal(spill(5, 1, 2), MUSTER_OK);
    muster_state_init(&other);
    assert_int_equal(muster_state_register(&other, "step", &step, 8), MUSTER_OK);
    assert_int_equal(muster_state_reserve(&other), MUSTER_OK);
    assert_int_equal(muster_spill_file_read(&place, &other, key, other.copy), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "it holds 2 buffers, and 1 are registered"));
    muster_state_finish(&other);
    other = (struct muster_state){0};
    muster_state_init(&other);
    assert_int_equal(muster_state_register(&other, "step", &step, 8), MUSTER_OK);
    assert_int_equal(muster_state_register(&other, "weights", weights, sizeof weights), MUSTER_OK);
    assert_int_equal(muster_state_reserve(&other), MUSTER_OK);
    assert_int_equal(muster_spill_file_read(&place, &other, key, other.copy), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(),
                           "its buffer 1 is \"weights\" with 160 bytes, the "
                           "registered one is \"weights\" with 164"));
    muster_state_finish(&other);
}

/* As on a full disk: a write fails in the middle. */
static void a_file_that_cannot_be_written_leaves_nothing_behind(void **state)
{
    (void)state;
    struct rlimit before;
    char path[NAME_SIZE];
    path_of(1, 2, path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 200, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(spill(5, 1, 2), MUSTER_RETRY);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(muster_last_error(), path));
    assert_non_null(strstr(muster_last_error(), "File too large"));
    assert_int_equal(count_files(), 0);
    place.folder = "/nonexistent";
    assert_int_equal(spill(5, 1, 2), MUSTER_RETRY);
    place.folder = folder;
}

/* Jobs ------------------------------------------------------------------------------------------
 */

static void use_folder(struct crew_member *member)
{
    member->options.spill = folder;
    member->options.spill_every_ms = 0;
    member->options.spill_keep = 2;
}

struct job_state {
    int64_t step;
    float weights[1000];
};

static void set_state(struct job_state *job, int64_t step)
{
    job->step = step;
    for (int i = 0; i < 1000; i++) {
        job->weights[i] = (float)(step + i);
    }
}

/* Expects the step in crew->user, and commits ten more. */
static void work_on(struct crew_member *member)
{
    struct job_state job;
    struct job_state expected;
    int64_t begin = *(const int64_t *)member->crew->user;
    set_state(&job, begin > 0 ? -7 : 0); /* what is registered does not count then */
    set_state(&expected, begin);
    MEMBER_OK(member, muster_register(member->session, "state", &job, sizeof job));
    MEMBER_OK(member, muster_sync(member->session));
    MEMBER_CHECK(member, memcmp(&job, &expected, sizeof job) == 0);
    MEMBER_CHECK(member, muster_version_of_state(member->session) == (uint64_t)begin + 1);
    for (int64_t step = begin + 1; step <= begin + 10; step++) {
        set_state(&job, step);
        if (step % 2 == 0) {
            MEMBER_OK(member, muster_commit(member->session));
        } else {
            MEMBER_OK(member, muster_commit_begin(member->session));
            MEMBER_OK(member, muster_commit_end(member->session));
        }
    }
}

static void run_job(uint32_t count, int64_t begin)
{
    struct crew crew = {.url = group_service.url,
                        .job = "train",
                        .count = count,
                        .hosts = 1,
                        .function = work_on,
                        .prepare = use_folder,
                        .user = &begin};
    assert_int_equal(crew_run(&crew), 0);
}

static void a_job_goes_on_from_its_newest_whole_file_at_any_size(void **state)
{
    (void)state;
    struct muster_spill_key keys[MUSTER_SPILL_FILES_MAX];
    uint32_t count = 0;
    run_job(3, 0);
    assert_int_equal(count_files() <= 2, 1);
    run_job(1, 10);
    run_job(4, 20);
    assert_int_equal(muster_spill_file_list(&place, keys, &count), MUSTER_OK);
    assert_int_equal(count, 2);
    assert_int_equal(keys[0].version, 31);
    char path[NAME_SIZE];
    path_of(keys[0].generation, keys[0].version, path);
    assert_int_equal(truncate(path, 100), 0);
    run_job(2, (int64_t)keys[1].version - 1); /* the one before; the torn one is named in the log */
}

int main(void)
{
    if (!test_service_built()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            the_newest_is_that_of_the_highest_generation_then_of_the_highest_version, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_cut_anywhere_is_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_changed_anywhere_is_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(
            a_state_of_other_buffers_is_refused_and_the_first_difference_named, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_written_leaves_nothing_behind,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_job_goes_on_from_its_newest_whole_file_at_any_size,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
