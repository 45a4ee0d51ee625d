/* SIGTERM as a request to leave. The handler only counts: a session compares the count with the one
 * at its opening, so a signal handler never follows a pointer. */
#include "worker/session/sigterm.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"

static atomic_uint received; /* lock-free, hence safe in a handler */
static pthread_mutex_t holders_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned holders;
static bool installed;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&received, 1);
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == count_signal;
}

static void restore_default(void)
{
    struct sigaction present;
    if (sigaction(SIGTERM, NULL, &present) == 0 && is_ours(&present)) { /* else it was replaced */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        (void)sigemptyset(&standard.sa_mask);
        (void)sigaction(SIGTERM, &standard, NULL);
    }
}

/* A child has no session that would leave, and SIGTERM is to end it. */
static void reset_in_child(void)
{
    muster_mutex_init(&holders_mutex);
    holders = 0;
    installed = false;
    restore_default();
}

bool muster_sigterm_hold(void)
{
    AUTO_LOCK(&holders_mutex);
    struct sigaction present;
    if (holders == 0 && muster_fork_guard_call_in_child(reset_in_child) &&
        sigaction(SIGTERM, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
        present.sa_handler == SIG_DFL) {
        struct sigaction ours = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
        (void)sigemptyset(&ours.sa_mask);
        installed = sigaction(SIGTERM, &ours, NULL) == 0;
    }
    if (!installed) {
        return false;
    }
    holders++;
    return true;
}

void muster_sigterm_release(void)
{
    AUTO_LOCK(&holders_mutex);
    holders--;
    if (holders == 0) {
        installed = false;
        restore_default();
    }
}

unsigned muster_sigterm_count(void)
{
    return atomic_load(&received);
}
