/* Which ports of RDMA devices are listed as active, from folders arranged as in sysfs. */
#include "worker/fabric/verbs/verbs_unused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char top[64];

static void add_folder(const char *path)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", top, path);
    assert_int_equal(mkdir(full, 0700), 0);
}

static void add_port(const char *device, const char *port, const char *state)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/ports/%s", device, port);
    add_folder(path);
    (void)snprintf(path, sizeof path, "%s/%s/ports/%s/state", top, device, port);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    (void)fputs(state, file);
    assert_int_equal(fclose(file), 0);
}

static void add_device(const char *device)
{
    char path[128];
    add_folder(device);
    (void)snprintf(path, sizeof path, "%s/ports", device);
    add_folder(path);
}

static int make_top(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/muster_unused_XXXXXX");
    return mkdtemp(top) != NULL ? 0 : -1;
}

static int remove_top(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", top);
    return system(command); /* NOLINT(cert-env33-c): a name that mkdtemp() has made */
}

static void expect(const char *expected)
{
    char list[256] = "untouched";
    assert_int_equal(muster_verbs_list_active(top, list, sizeof list), expected != NULL);
    assert_string_equal(list, expected != NULL ? expected : "untouched");
}

static void no_folder_and_no_device_are_no_ports(void **state)
{
    char list[16] = "untouched";
    (void)state;
    assert_false(muster_verbs_list_active("/nowhere/class/infiniband", list, sizeof list));
    assert_string_equal(list, "untouched");
    expect(NULL);
    add_folder("mlx5_0"); /* without ports */
    expect(NULL);
}

static void ports_that_are_down_or_unreadable_are_left_out(void **state)
{
    (void)state;
    add_device("mlx5_0");
    add_port("mlx5_0", "1", "1: DOWN\n");
    add_folder("mlx5_0/ports/2");
    add_port("mlx5_0", "3", "");
    add_port("mlx5_0", "4", "2: INIT\n");
    expect(NULL);
}

static void active_ports_are_listed_by_name(void **state)
{
    (void)state;
    add_device("mlx5_1");
    add_port("mlx5_1", "1", "4: ACTIVE\n");
    add_port("mlx5_1", "2", "4: ACTIVE\n");
    add_device("mlx5_0");
    add_port("mlx5_0", "1", "4: ACTIVE\n");
    expect("mlx5_0 port 1, mlx5_1 port 1, mlx5_1 port 2");
}

static void a_list_that_does_not_fit_is_cut_after_a_whole_port(void **state)
{
    char list[20] = "";
    active_ports_are_listed_by_name(state);
    assert_true(muster_verbs_list_active(top, list, sizeof list));
    assert_string_equal(list, "mlx5_0 port 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_folder_and_no_device_are_no_ports, make_top, remove_top),
        cmocka_unit_test_setup_teardown(ports_that_are_down_or_unreadable_are_left_out, make_top,
                                        remove_top),
        cmocka_unit_test_setup_teardown(active_ports_are_listed_by_name, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_list_that_does_not_fit_is_cut_after_a_whole_port,
                                        make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
