/*
 * A pretended NCCL: a library named libnccl.so.2 that works with the pretended GPU
 * (gpu_pretend.h), among processes and threads, over a file of shared memory. Like NCCL it does not
 * notice that a peer has died, waits in the stream until all ranks have come, and ends such a wait
 * only when its communicator is aborted.
 *
 * Faults are words with commas between them, each for all ranks or for one ("abort_hangs@1"). They
 * are read from the variable NCCL_PRETEND_FAULTS when the library is first used, and can be set
 * later.
 */
#ifndef MUSTER_TESTS_SUPPORT_NCCL_PRETEND_H
#define MUSTER_TESTS_SUPPORT_NCCL_PRETEND_H

#include <stdint.h>

/*
 *   old              version 2.17.1, without the functions of later ones
 *   newer            version 2.28.9 in place of 2.27.5
 *   id_fails         ncclGetUniqueId fails
 *   out_of_memory    a communicator cannot be opened
 *   init_in_progress its opening never ends
 *   call_in_progress a collective is never put on its stream
 *   late             each is put there after some milliseconds, "in progress" meanwhile
 *   remote_error     a collective ends with an asynchronous error once all have come
 *   abort_hangs      ncclCommAbort never returns
 */

struct nccl_pretend {
    void (*set_faults)(const char *words); /* in place of those before */
    uint64_t (*collectives)(void);         /* of this process, that are done */
    uint64_t (*communicators)(void);       /* of this process, that are open */
};

/* The path of the library. */
const char *nccl_pretend_path(void);

/* Loads it; aborts the program on failure. The library of the program then finds it by
 * MUSTER_NCCL, which is set. */
const struct nccl_pretend *nccl_pretend_load(void);

#endif
