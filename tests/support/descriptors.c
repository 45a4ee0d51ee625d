/* Lowers the limit on descriptors to those that are open, and restores it. */
#include "tests/support/descriptors.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

void descriptors_exhaust(struct rlimit *ret_before)
{
    int failed = getrlimit(RLIMIT_NOFILE, ret_before);
    assert(failed == 0);
    int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); /* all below it are in use */
    assert(lowest >= 0);
    close(lowest);
    struct rlimit none = {.rlim_cur = (rlim_t)lowest, .rlim_max = ret_before->rlim_max};
    failed = setrlimit(RLIMIT_NOFILE, &none);
    assert(failed == 0);
    (void)failed;
}

void descriptors_restore(const struct rlimit *before)
{
    int failed = setrlimit(RLIMIT_NOFILE, before);
    assert(failed == 0);
    (void)failed;
}
