/* Runs a program again in a guest, and changes the guest's network. */
#include "tests/support/guest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/fabrics.h"

static bool has_device(void)
{
    const struct fabric_wish wish = {.transports = "verbs",
                                     .fabric.member = "00000000-0000-4000-8000-000000000001"};
    struct muster_fabric *fabric = NULL;
    if (fabrics_make(&wish, &fabric) != MUSTER_OK) {
        printf("%s\n", muster_last_error());
        return false;
    }
    muster_fabric_destroy(fabric, 0);
    return true;
}

void guest_enter(const char *program, uint32_t devices)
{
    const char *source = getenv("MUSTER_SOURCE");
    char script[512];
    char count[16];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("MUSTER_VERBS_GUEST") != NULL) {
        return;
    }
    (void)snprintf(script, sizeof script, "%s/tests/verbs/run", source != NULL ? source : ".");
    (void)snprintf(count, sizeof count, "%u", devices);
    (void)execl(script, script, "--devices", count, "--", program, (char *)NULL);
    perror(script);
    _exit(EXIT_FAILURE);
}

void guest_need_rdma(const char *program)
{
    if (!has_device()) {
        guest_enter(program, 2);
    }
}

/* The network --------------------------------------------------------------------------------- */

void guest_shell(const char *format, ...)
{
    char command[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (system(command) != 0) { /* NOLINT(cert-env33-c): text of the tests */
        (void)fprintf(stderr, "\"%s\" failed\n", command); /* also in a thread of the rig's */
        abort();
    }
}

/* Waits for the port's state, which the kernel updates in the background. */
static void await_port(uint32_t index, bool active)
{
    guest_shell(
        "for i in $(seq 600); do"
        " if [ \"$(cut -c1 /sys/class/infiniband/rxe%u/ports/1/state)\" %s 4 ]; then"
        " exit 0; fi; sleep 0.05; done; exit 1",
        index, active ? "=" : "!=");
}

void guest_plug(uint32_t index, bool in)
{
    guest_shell("ip link set sw%u %s", index, in ? "up" : "down");
    await_port(index, in);
}

/* The routes of tests/verbs/guest_main, which the kernel deletes when the interface goes down. */
static void restore_routes(uint32_t index)
{
    guest_shell("ip route replace local 10.99.0.%u dev eth%u table %u", index + 1, index,
                1000 + index);
    guest_shell("ip route replace 10.99.0.0/24 dev eth%u src 10.99.0.%u table %u", index, index + 1,
                1000 + index);
}

void guest_switch(uint32_t index, bool on)
{
    guest_shell("ip link set eth%u %s", index, on ? "up" : "down");
    if (on) {
        restore_routes(index);
    }
    await_port(index, on);
}
