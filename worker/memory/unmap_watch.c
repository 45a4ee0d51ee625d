/* The watch over unmapped memory: one userfaultfd, its monitor thread, and the log of events. */
#include "worker/memory/unmap_watch.h"

#include "worker/base/fork_guard.h"
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
    COMPLETE_TRIES = 32, /* then "not now"; some 20 us */
    PAGES_AT_ONCE = 64,
};

/* Bits of an entry of /proc/self/pagemap. */
static const uint64_t page_present = UINT64_C(1) << 63;
static const uint64_t page_swapped = UINT64_C(1) << 62;
static const uint64_t page_of_file = UINT64_C(1) << 61;

static struct {
    /* Held while the monitor is started or stopped. Guards what follows. */
    pthread_mutex_t start_mutex;
    uint32_t users;
    bool running;
    bool refused; /* it could not be started; tried again after the last release */
    pthread_t monitor;
    int wake; /* an eventfd that ends the monitor */

    /* Guards what follows. The monitor needs it so that a munmap() can return, which may be inside
     * malloc() or free(): a thread that holds it neither allocates, frees nor unmaps. */
    pthread_mutex_t mutex;
    int fd; /* -1: no watch */
    int pagemap;
    struct muster_range_set watched;
    struct muster_address_range log[MUSTER_UNMAP_LOG_MAX];
    uint64_t next;   /* position of the next entry */
    uint64_t oldest; /* position of the oldest entry that is still there */
} state = {
    .start_mutex = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .fd = -1,
    .pagemap = -1,
    .wake = -1,
};

static void add_to_log_locked(struct muster_address_range gone)
{
    state.log[state.next++ % MUSTER_UNMAP_LOG_MAX] = gone;
    if (state.next - state.oldest > MUSTER_UNMAP_LOG_MAX) {
        state.oldest = state.next - MUSTER_UNMAP_LOG_MAX;
    }
}

static void handle_event_locked(const struct uffd_msg *event)
{
    struct muster_address_range gone = {0};
    if (event->event == UFFD_EVENT_REMAP) {
        gone.begin = (uintptr_t)event->arg.remap.from;
        gone.end = gone.begin + (uintptr_t)event->arg.remap.len;
    } else if (event->event == UFFD_EVENT_UNMAP || event->event == UFFD_EVENT_REMOVE) {
        gone.begin = (uintptr_t)event->arg.remove.start;
        gone.end = (uintptr_t)event->arg.remove.end;
    } else {
        return;
    }
    add_to_log_locked(gone);
    if (event->event != UFFD_EVENT_REMOVE) { /* its pages are gone, but it is still watched */
        muster_range_set_remove(&state.watched, gone);
    }
}

/* Reads all pending events. A munmap() or other call returns when its event has been read. */
static void read_events_locked(void)
{
    struct uffd_msg events[EVENTS_AT_ONCE];
    ssize_t got = 0;
    while ((got = read(state.fd, events, sizeof events)) > 0) {
        for (size_t i = 0; i < (size_t)got / sizeof *events; i++) {
            handle_event_locked(&events[i]);
        }
    }
}

/*
 * Whether all memory that is gone is in the log. Memory is unmapped first and its event comes a
 * moment later; in between, another thread may get the same addresses. During this time, and a
 * little longer at both ends, the kernel refuses with EAGAIN to change the protection of any range,
 * even of an empty one, which is EINVAL at other times.
 */
static bool log_is_complete_locked(void)
{
    for (int i = 0; i < COMPLETE_TRIES && state.watched.count > 0; i++) {
        struct uffdio_writeprotect nothing = {.range = {.len = 0}};
        if (ioctl(state.fd, UFFDIO_WRITEPROTECT, &nothing) == 0 || errno != EAGAIN) {
            return true;
        }
        read_events_locked();
    }
    return state.watched.count == 0;
}

/* Ends the watch: from now on everything is reported as gone. */
static void end_watch_locked(void)
{
    close(state.fd); /* calls that wait until their event is read return */
    close(state.pagemap);
    state.fd = -1;
    state.pagemap = -1;
    state.watched.count = 0;
    state.oldest = ++state.next;
}

static void *watch_events(void *unused)
{
    struct pollfd polled[] = {{.fd = state.fd, .events = POLLIN},
                              {.fd = state.wake, .events = POLLIN}};
    do {
        (void)poll(polled, 2, -1);
        AUTO_LOCK(&state.mutex);
        read_events_locked();
    } while (polled[1].revents == 0);
    AUTO_LOCK(&state.mutex);
    end_watch_locked();
    return unused;
}

/* The child has inherited the descriptors, which are about its parent's memory, but not the
 * monitor, nor the threads that may hold the locks. */
static void reset_in_child(void)
{
    muster_mutex_init(&state.start_mutex);
    muster_mutex_init(&state.mutex);
    if (state.running) {
        close(state.wake);
        state.wake = -1;
        end_watch_locked();
    }
    state.running = false;
    state.refused = false;
}

/* With UFFD_USER_MODE_ONLY no privilege is needed; kernels before 5.11 do not know the flag. */
static int open_userfaultfd(void)
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

static int start_monitor(void)
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

/* Opens what the monitor needs, then starts it. All is tried before the first failure is returned
 * (an errno), so that one clean-up serves for all. */
static int start(void)
{
    int fd = open_userfaultfd();
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
    failed = failed == 0 && !muster_fork_guard_call_in_child(reset_in_child) ? ENOMEM : failed;
    failed = failed == 0 ? start_monitor() : failed;
    if (failed != 0) {
        AUTO_LOCK(&state.mutex);
        end_watch_locked();
        close(state.wake);
        state.wake = -1;
    }
    return failed;
}

static bool ensure_started(void)
{
    AUTO_LOCK(&state.start_mutex);
    if (!state.running && !state.refused && state.users > 0) {
        int failed = start();
        state.running = failed == 0;
        state.refused = failed != 0;
        if (failed != 0) {
            muster_log(MUSTER_LOG_DEBUG, "freed memory cannot be watched: %s", strerror(failed));
        }
    }
    return state.running;
}

static uint64_t hold(void)
{
    {
        AUTO_LOCK(&state.start_mutex);
        state.users++;
    }
    AUTO_LOCK(&state.mutex);
    return state.next;
}

static void release(void)
{
    AUTO_LOCK(&state.start_mutex);
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

/* Whether all of these pages exist, and none belongs to a file or is shared. */
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
    struct muster_address_range range = {(uintptr_t)base, (uintptr_t)base + size_bytes};
    if (state.fd < 0 || !log_is_complete_locked()) {
        return false;
    }
    if (muster_range_set_contains(&state.watched, range)) {
        return true;
    }
    struct uffdio_register watched = {
        .range = {.start = range.begin, .len = size_bytes},
        .mode = UFFDIO_REGISTER_MODE_WP, /* no page is ever protected, so there are no faults */
    };
    return is_private(base, size_bytes) && ioctl(state.fd, UFFDIO_REGISTER, &watched) == 0 &&
           muster_range_set_add(&state.watched, range);
}

static bool watch(const void *base, size_t size_bytes)
{
    if (!ensure_started()) {
        return false;
    }
    AUTO_LOCK(&state.mutex);
    return watch_locked(base, size_bytes);
}

static bool collect(uint64_t *position, struct muster_unmap_report *ret_report)
{
    AUTO_LOCK(&state.mutex);
    if (state.fd >= 0 && !log_is_complete_locked()) {
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
