/*
 * The floor: what a child of fork() does not keep of its parent.
 *
 * A peer or the service learns of the death of a process by the end of its connections, which the
 * kernel closes with their last descriptor. A child of fork(), for example a data loader's worker
 * that sleeps, has copies of all descriptors: while it lives, its dead parent's connections stay
 * open. So descriptors are registered here, and the first thing that a child does is to close its
 * copies. That sends nothing to a peer: the parent's descriptors stay open. Close-on-exec is set,
 * too: a child of posix_spawn(), vfork() or clone() runs no handler of fork().
 *
 *   registered      listening and connected sockets; epoll and eventfd; the timeline's file
 *   not registered  memory (memfd): nobody waits for its end, a child has it mapped anyway, and
 *                   locks of its bytes belong to the parent alone. Memory of muster_alloc() is
 *                   shared with children by contract. Descriptors of libibverbs: what a device has
 *                   mapped keeps its file open, and a link over RDMA ends with its TCP connection.
 *
 * Mappings stay in the child. Ordinary memory is copied when one of both writes. Memory that links
 * and groups share with members of this host stays shared; a child that calls nothing of the
 * library does not touch it.
 *
 * Threads: any. fork() waits while a descriptor is opened or closed here, so a child never has one
 * that is not registered yet, nor closes a number that has been used again since. The lock is the
 * last in the order of thread.h; a thread that holds it makes one system call.
 */
#ifndef MUSTER_WORKER_BASE_FORK_GUARD_H
#define MUSTER_WORKER_BASE_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_GUARDED_MAX = 1 << 20, /* the kernel's default for fs.nr_open; children keep others */
    MUSTER_FORK_FUNCTIONS_MAX = 4,
};

/* Opens and registers a descriptor: `MUSTER_GUARDED(socket(AF_UNIX, SOCK_STREAM, 0))`. The value is
 * that of the call; errno, too. Close it with muster_fork_guard_close() only. */
#define MUSTER_GUARDED(open_call) (muster_fork_guard_begin(), muster_fork_guard_end(open_call))
void muster_fork_guard_begin(void);
int muster_fork_guard_end(int fd);

/* Closes a descriptor, which need not be registered. */
void muster_fork_guard_close(int fd);

/* Like AUTO_CLOSE, for a registered descriptor. TAKE_FD moves it out. */
#define AUTO_CLOSE_GUARDED __attribute__((cleanup(muster_cleanup_close_guarded)))
static inline void muster_cleanup_close_guarded(const int *fd)
{
    if (*fd >= 0) {
        muster_fork_guard_close(*fd);
    }
}

/* From now on each child calls this function, after its descriptors are closed; once is enough for
 * a process and its children. Only the thread that forks exists in the child, and the others may
 * have held any lock: the function makes async-signal-safe calls only, and initialises locks again.
 * Signals are blocked until all have returned.
 * False: out of memory. */
bool muster_fork_guard_call_in_child(void (*function)(void));

/* Which process this is: the number grows in each child. So what was made under another number
 * belongs to a parent. */
uint32_t muster_fork_guard_forks(void);

#endif
