/* SIGTERM as a request to leave. The handler only counts: a session compares the count with the one
 * at its opening, so a signal handler never follows a pointer. */
#include "worker/session/sigterm.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

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

bool muster_sigterm_hold(void)
{
    AUTO_LOCK(&holders_mutex);
    struct sigaction present;
    if (holders == 0 && sigaction(SIGTERM, NULL, &present) == 0 &&
        (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL) {
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
    struct sigaction present;
    holders--;
    if (holders > 0) {
        return;
    }
    installed = false;
    if (sigaction(SIGTERM, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
        present.sa_handler == count_signal) { /* else the program has replaced it since */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        (void)sigemptyset(&standard.sa_mask);
        (void)sigaction(SIGTERM, &standard, NULL);
    }
}

unsigned muster_sigterm_count(void)
{
    return atomic_load(&received);
}
