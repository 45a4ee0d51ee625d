/* Makes, checks and maps a sealed memfd. */
#include "worker/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* The limit of the size of files holds for a memfd, too: the kernel kills a process that exceeds it
 * (SIGXFSZ). */
static muster_status check_limit(size_t size_bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size_bytes > limit.rlim_cur) {
        return muster_error_set(MUSTER_FATAL,
                                "%zu bytes of shared memory are more than the limit of the size of "
                                "files, %llu bytes (ulimit -f), which counts for it, too",
                                size_bytes, (unsigned long long)limit.rlim_cur);
    }
    return MUSTER_OK;
}

muster_status muster_shared_memory_create(const char *name, size_t size_bytes, int *ret_fd)
{
    TRY(check_limit(size_bytes));
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "shared memory");
    }
    if (ftruncate(fd, (off_t)size_bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        muster_status status =
            muster_error_errno(MUSTER_FATAL, "%zu bytes of shared memory", size_bytes);
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return MUSTER_OK;
}

muster_status muster_shared_memory_check(int fd, size_t size_bytes)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || stat.st_size < 0 || (size_t)stat.st_size != size_bytes) {
        return muster_error_set(MUSTER_INVALID, "the descriptor is not of %zu bytes of memory",
                                size_bytes);
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) {
        return muster_error_set(MUSTER_INVALID,
                                "the memory is not sealed: its owner could truncate it");
    }
    return MUSTER_OK;
}

muster_status muster_shared_memory_map(int fd, size_t size_bytes, void **ret_base)
{
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return muster_error_errno(MUSTER_FATAL, "mapping %zu bytes of shared memory", size_bytes);
    }
    *ret_base = base;
    return MUSTER_OK;
}
