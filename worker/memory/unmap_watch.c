#include "worker/memory/unmap_watch.h"

#include "worker/base/log.h"
#include "worker/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    STACK_BYTES = 256 * 1024,
    EVENTS_AT_ONCE = 16,
    SETTLE_TRIES = 32, /* some 20 us */
    PAGES_AT_ONCE = 64,
};

/* Of an entry of /proc/self/pagemap. */
static const uint64_t page_present = UINT64_C(1) << 63;
static const uint64_t page_swapped = UINT64_C(1) << 62;
static const uint64_t page_of_file = UINT64_C(1) << 61;

static struct {
    /* Who starts and stops the monitor. */
    pthread_mutex_t starting;
    uint32_t users;
    bool running;
    bool refused;      /* could not be started; it is tried again when others come */
    bool fork_handled; /* at most once a process */
    pthread_t monitor;
    int wake; /* ends the monitor */

    /* What follows. The monitor needs it to let a munmap() return, which somebody may do who is in
     * the midst of malloc() or free(): who holds it neither allocates, frees, nor unmaps. */
    pthread_mutex_t mutex;
    int fd; /* -1: no watch */
    int pagemap;
    struct muster_range_set watched;
    struct muster_range log[MUSTER_UNMAP_LOG_MAX];
    uint64_t next;   /* position of the next to be logged */
    uint64_t oldest; /* that is still known */
} state = {
    .starting = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .fd = -1,
    .pagemap = -1,
    .wake = -1,
};

static void note_locked(struct muster_range gone)
{
    state.log[state.next++ % MUSTER_UNMAP_LOG_MAX] = gone;
    if (state.next - state.oldest > MUSTER_UNMAP_LOG_MAX) {
        state.oldest = state.next - MUSTER_UNMAP_LOG_MAX;
    }
}

static void heed_locked(const struct uffd_msg *event)
{
    struct muster_range gone = {0};
    if (event->event == UFFD_EVENT_REMAP) {
        gone.begin = (uintptr_t)event->arg.remap.from;
        gone.end = gone.begin + (uintptr_t)event->arg.remap.len;
    } else if (event->event == UFFD_EVENT_UNMAP || event->event == UFFD_EVENT_REMOVE) {
        gone.begin = (uintptr_t)event->arg.remove.start;
        gone.end = (uintptr_t)event->arg.remove.end;
    } else {
        return;
    }
    note_locked(gone);
    if (event->event != UFFD_EVENT_REMOVE) { /* its pages have gone, it is still watched */
        muster_range_set_remove(&state.watched, gone);
    }
}

/* Lets those return whose events are read. */
static void read_events_locked(void)
{
    struct uffd_msg events[EVENTS_AT_ONCE];
    ssize_t got = 0;
    while ((got = read(state.fd, events, sizeof events)) > 0) {
        for (size_t i = 0; i < (size_t)got / sizeof *events; i++) {
            heed_locked(&events[i]);
        }
    }
}

/*
 * Whether all that has gone is in the log. Memory is unmapped first and its event comes a moment
 * later; in between, another thread may have been given the same addresses. But from before the one
 * until after the other the kernel refuses with EAGAIN to change the protection of anything, even
 * of nothing, which is otherwise EINVAL.
 */
static bool settle_locked(void)
{
    for (int i = 0; i < SETTLE_TRIES && state.watched.count > 0; i++) {
        struct uffdio_writeprotect nothing = {.range = {.len = 0}};
        if (ioctl(state.fd, UFFDIO_WRITEPROTECT, &nothing) == 0 || errno != EAGAIN) {
            return true;
        }
        read_events_locked();
    }
    return state.watched.count == 0;
}

/* Watches nothing any more; whoever asks is told that all has gone. */
static void forget_locked(void)
{
    close(state.fd); /* who waited for an event to be read returns */
    close(state.pagemap);
    state.fd = -1;
    state.pagemap = -1;
    state.watched.count = 0;
    state.oldest = ++state.next;
}

static void *watch_events(void *unused)
{
    struct pollfd looked_at[] = {{.fd = state.fd, .events = POLLIN},
                                 {.fd = state.wake, .events = POLLIN}};
    do {
        (void)poll(looked_at, 2, -1);
        AUTO_LOCK(&state.mutex);
        read_events_locked();
    } while (looked_at[1].revents == 0);
    AUTO_LOCK(&state.mutex);
    forget_locked();
    return unused;
}

/* The child has the descriptors, which mean its parent's memory, and not the monitor. Whoever held
 * the locks is not there either. */
static void begin_child(void)
{
    muster_mutex_init(&state.starting);
    muster_mutex_init(&state.mutex);
    if (state.running) {
        close(state.wake);
        state.wake = -1;
        forget_locked();
    }
    state.running = false;
    state.refused = false;
}

/* Kernels before 5.11 do not know the flag, with which no right is needed. */
static int open_events(void)
{
    int flags = O_CLOEXEC | O_NONBLOCK;
    long fd = syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
    if (fd < 0 && errno == EINVAL) {
        fd = syscall(SYS_userfaultfd, flags);
    }
    struct uffdio_api api = {
        .api = UFFD_API,
        .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
                    UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    };
    if (fd >= 0 && ioctl((int)fd, UFFDIO_API, &api) != 0) {
        int failed = errno;
        close((int)fd);
        errno = failed;
        return -1;
    }
    return (int)fd;
}

static int begin_monitor(void)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int failed = pthread_attr_init(&attributes);
    if (failed == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the user's threads */
        failed = pthread_create(&state.monitor, &attributes, watch_events, NULL);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)pthread_attr_destroy(&attributes);
    }
    return failed;
}

static int start(void)
{
    if (!state.fork_handled) {
        state.fork_handled = pthread_atfork(NULL, NULL, begin_child) == 0;
    }
    int fd = open_events();
    int failed = fd < 0 ? errno : 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    failed = failed == 0 && pagemap < 0 ? errno : failed;
    state.wake = eventfd(0, EFD_CLOEXEC);
    failed = failed == 0 && state.wake < 0 ? errno : failed;
    {
        AUTO_LOCK(&state.mutex);
        state.fd = fd;
        state.pagemap = pagemap;
    }
    failed = failed == 0 && !state.fork_handled ? ENOMEM : failed;
    failed = failed == 0 ? begin_monitor() : failed;
    if (failed != 0) {
        AUTO_LOCK(&state.mutex);
        forget_locked();
        close(state.wake);
        state.wake = -1;
    }
    return failed;
}

static bool started(void)
{
    AUTO_LOCK(&state.starting);
    if (!state.running && !state.refused && state.users > 0) {
        int failed = start();
        state.running = failed == 0;
        state.refused = failed != 0;
        if (failed != 0) {
            muster_log(MUSTER_LOG_DEBUG, "memory that is freed cannot be watched: %s",
                       strerror(failed));
        }
    }
    return state.running;
}

static uint64_t hold(void)
{
    {
        AUTO_LOCK(&state.starting);
        state.users++;
    }
    AUTO_LOCK(&state.mutex);
    return state.next;
}

static void release(void)
{
    AUTO_LOCK(&state.starting);
    if (--state.users > 0) {
        return;
    }
    if (state.running) {
        (void)eventfd_write(state.wake, 1);
        (void)pthread_join(state.monitor, NULL);
        close(state.wake);
        state.wake = -1;
        state.running = false;
    }
    state.refused = false;
}

/* Whether these pages are there, and none belongs to a file or is shared. */
static bool is_private(const void *base, size_t size_bytes)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t page = (uintptr_t)base / page_bytes;
    size_t page_end = page + size_bytes / page_bytes;
    uint64_t entries[PAGES_AT_ONCE];
    while (page < page_end) {
        size_t wanted = page_end - page < PAGES_AT_ONCE ? page_end - page : PAGES_AT_ONCE;
        ssize_t got = pread(state.pagemap, entries, wanted * sizeof *entries,
                            (off_t)(page * sizeof *entries));
        if (got != (ssize_t)(wanted * sizeof *entries)) {
            return false;
        }
        for (size_t i = 0; i < wanted; i++) {
            if ((entries[i] & (page_present | page_swapped)) == 0 ||
                (entries[i] & page_of_file) != 0) {
                return false;
            }
        }
        page += wanted;
    }
    return true;
}

static bool watch_locked(const void *base, size_t size_bytes)
{
    struct muster_range range = {(uintptr_t)base, (uintptr_t)base + size_bytes};
    if (state.fd < 0 || !settle_locked()) {
        return false;
    }
    if (muster_range_set_contains(&state.watched, range)) {
        return true;
    }
    struct uffdio_register watched = {
        .range = {.start = range.begin, .len = size_bytes},
        .mode = UFFDIO_REGISTER_MODE_WP, /* nothing is ever protected, so there are no faults */
    };
    return is_private(base, size_bytes) && ioctl(state.fd, UFFDIO_REGISTER, &watched) == 0 &&
           muster_range_set_add(&state.watched, range);
}

static bool watch(const void *base, size_t size_bytes)
{
    if (!started()) {
        return false;
    }
    AUTO_LOCK(&state.mutex);
    return watch_locked(base, size_bytes);
}

static bool collect(uint64_t *position, struct muster_unmap_report *ret_report)
{
    AUTO_LOCK(&state.mutex);
    if (state.fd >= 0 && !settle_locked()) {
        return false;
    }
    ret_report->everything = *position < state.oldest;
    ret_report->count = 0;
    if (ret_report->everything) {
        *position = state.next;
    }
    while (*position < state.next && ret_report->count < MUSTER_UNMAP_REPORT_MAX) {
        ret_report->gone[ret_report->count++] = state.log[(*position)++ % MUSTER_UNMAP_LOG_MAX];
    }
    ret_report->more = *position < state.next;
    return true;
}

const struct muster_unmap_watch_ops muster_unmap_watch_ops = {
    .hold = hold,
    .release = release,
    .watch = watch,
    .collect = collect,
};
