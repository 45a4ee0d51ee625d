/* The cores that a process may use: affinity, and the quotas of control groups. */
#include "worker/base/cores.h"

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { FOLDERS_MAX = 8 }; /* open at once, while they are removed */

/* A folder in place of /. */
static char root[64];

static int make_root(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/muster_cores_XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, FOLDERS_MAX, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file under the root, and makes the folders that it needs. */
static void write_file(const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void without_groups_there_is_no_quota(void **state)
{
    (void)state;
    assert_true(muster_cores_quota_millis(root) == UINT64_MAX);
    write_file("/proc/self/cgroup", "nonsense\n:\n::\n0:\n\n7:cpu:relative\n");
    assert_true(muster_cores_quota_millis(root) == UINT64_MAX);
}

static void the_least_quota_of_a_group_and_those_above_counts(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "0::/job/worker\n");
    write_file("/sys/fs/cgroup/job/worker/cpu.max", "max 100000\n");
    assert_true(muster_cores_quota_millis(root) == UINT64_MAX);
    write_file("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    assert_int_equal(muster_cores_quota_millis(root), 2500);
    write_file("/sys/fs/cgroup/job/worker/cpu.max", "50000 100000\n");
    assert_int_equal(muster_cores_quota_millis(root), 500);
    write_file("/sys/fs/cgroup/cpu.max", "10000 100000\n"); /* as a container sees its own */
    assert_int_equal(muster_cores_quota_millis(root), 100);
}

static void a_group_that_is_not_there_has_the_quota_of_those_above(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "0::/outside/of/the/container\n");
    write_file("/sys/fs/cgroup/cpu.max", "300000 200000\n");
    assert_int_equal(muster_cores_quota_millis(root), 1500);
}

static void groups_of_version_1_are_known(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n2:cpuset:/\n0::/\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    assert_true(muster_cores_quota_millis(root) == UINT64_MAX);
    write_file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(muster_cores_quota_millis(root), 4000);
    write_file("/sys/fs/cgroup/memory/job/cpu.cfs_quota_us", "1000\n"); /* not the CPU's */
    assert_int_equal(muster_cores_quota_millis(root), 4000);
}

static void bad_numbers_are_no_quota(void **state)
{
    (void)state;
    static const char *const texts[] = {"",         "\n",          "0 0\n",
                                        "5 0\n",    "-5 100000\n", "max\n",
                                        "many few", "0 100000\n",  "9223372036854775807 1"};
    write_file("/proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file("/sys/fs/cgroup/cpu.max", texts[i]);
        assert_true(muster_cores_quota_millis(root) == UINT64_MAX);
    }
}

static void a_pinned_thread_may_use_one_core(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) {
        skip(); /* more processors than cpu_set_t names */
    }
    uint32_t all = muster_cores_usable();
    assert_in_range(all, 1, (uint32_t)CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(muster_cores_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(muster_cores_usable(), all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_there_is_no_quota, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_least_quota_of_a_group_and_those_above_counts,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_group_that_is_not_there_has_the_quota_of_those_above,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(groups_of_version_1_are_known, make_root, remove_root),
        cmocka_unit_test_setup_teardown(bad_numbers_are_no_quota, make_root, remove_root),
        cmocka_unit_test(a_pinned_thread_may_use_one_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
