/*
 * muster bench: what its files share.
 *
 * The parent (the command) and N ranks, each with a fabric and a context of its own. Ranks are
 * threads (inproc) or forked processes (shm, tcp). They share a board in memory; each has a stream
 * socket to the parent, over which it says that it has finished a phase and hears that it may go
 * on. The stream's end tells either side that the other is gone.
 *
 * Phases: number 0 is "my address is on the board"; then two for each size, "checked and warm" and
 * "measured".
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_PARTS_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_PARTS_H

#include "worker/cli/bench/bench_network.h"
#include "worker/context/context.h"
#include "worker/session/stored_figures.h"

enum {
    MUSTER_BENCH_RANKS_MAX = MUSTER_BENCH_HOSTS_MAX,
    MUSTER_BENCH_SIZES_MAX = 64,
    MUSTER_BENCH_ALGORITHMS_MAX = 64,
    MUSTER_BENCH_ITERATIONS_MAX = 100000,
    MUSTER_BENCH_WARM_UP = 5,
};

#define MUSTER_BENCH_TUNED "tuned" /* the one that calls without a name come to */

enum muster_bench_transport {
    MUSTER_BENCH_INPROC,
    MUSTER_BENCH_TCP,   /* between all ranks */
    MUSTER_BENCH_SHM,   /* on one host; tcp between hosts */
    MUSTER_BENCH_VERBS, /* RDMA between all ranks */
};

struct muster_bench_options {
    enum muster_collective collective;
    enum muster_bench_transport transport;
    uint32_t ranks;
    uint32_t hosts;
    const char *shape; /* NULL: hosts are pretended; else their links' rate */
    size_t size_count;
    uint64_t sizes_bytes[MUSTER_BENCH_SIZES_MAX]; /* as defined by muster_bench_count() */
    size_t algorithm_count;                       /* that take turns; at least 1 */
    /* "": the one that is chosen by cost; MUSTER_BENCH_TUNED */
    char algorithms[MUSTER_BENCH_ALGORITHMS_MAX][MUSTER_ALGORITHM_NAME_SIZE];
    bool all_algorithms; /* of the collective: those that do not fit are left out */
    const char *svg;     /* a file for the picture; or NULL */
    muster_type type;
    muster_op op;
    uint32_t connections; /* TCP: of each link */
    uint32_t device_count;
    char *devices[MUSTER_BENCH_RANKS_MAX]; /* RDMA: rank i has device i modulo their count */
    uint32_t iterations;                   /* 0: as many as fit into `seconds` */
    uint32_t seconds;
    bool in_place;
    bool alloc; /* buffers of muster_alloc() */
    bool figures;
    bool reproducible;
    bool json;
};

/* One rank's corner of the board. */
struct muster_bench_rank_slot {
    struct muster_peer peer;
    muster_status status;
    char error[512];
    uint64_t memory_bytes; /* the most that it ever had, beyond its buffers; 0: not known */
    /* Of the size being measured: those of the first algorithm, then those of the next. */
    double times_us[MUSTER_BENCH_ITERATIONS_MAX];
};

/* One of the algorithms, at the size being measured. */
struct muster_bench_candidate {
    bool fits;                                  /* rank 0's */
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE]; /* that it runs with; rank 0's */
    double warm_us;                             /* time of a warm iteration; rank 0's */
    double predicted_us;                        /* by the link figures; rank 0's */
    uint32_t iterations;                        /* the parent's; 0 if it does not fit */
};

/* What is said of an algorithm at a size. */
struct muster_bench_result {
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE];
    uint64_t bytes;
    uint32_t iterations; /* 0: it did not fit, and nothing else is known */
    double p50_us, p99_us, min_us;
    double algbw_GBps, busbw_GBps;
    double predicted_us;
    uint64_t memory_bytes; /* of the rank that had most; 0: not known */
};

/* In memory that all ranks and the parent share. Each part has one writer, and is read by others
 * only in a later phase. */
struct muster_bench_shared {
    struct muster_bench_options options;
    const struct muster_bench_network *network; /* of the hosts; NULL: they are pretended */
    char link_token[33];
    struct muster_figures link_figures; /* that algorithms are chosen by; rank 0's */
    struct muster_bench_candidate candidates[MUSTER_BENCH_ALGORITHMS_MAX];
    struct muster_bench_rank_slot rank_slots[]; /* [ranks] */
};

/* --bytes: sizes, and ranges of them. --algorithm: names, "tuned", "chosen", "all"; whether they
 * are names of the collective's can only be said, and what all are, when it is known: that is
 * find's.
 */
MUSTER_CHECKED muster_status muster_bench_parse_sizes(const char *text,
                                                      struct muster_bench_options *options);
MUSTER_CHECKED muster_status muster_bench_parse_algorithms(const char *text,
                                                           struct muster_bench_options *options);
/* --devices; cuts the text at the commas and borrows it. */
MUSTER_CHECKED muster_status muster_bench_parse_devices(char *text,
                                                        struct muster_bench_options *options);
MUSTER_CHECKED muster_status muster_bench_resolve_algorithms(struct muster_bench_options *options);

/* The element count to call with for this many bytes, and the bytes that are then counted: those of
 * the largest buffer of a rank, rounded up to what divides. */
uint64_t muster_bench_count(const struct muster_bench_options *options, uint64_t size_bytes,
                            uint64_t *ret_size_bytes);

/* MUSTER_FATAL: the ranks' buffers do not fit into the memory that is available. */
MUSTER_CHECKED muster_status muster_bench_check_memory(const struct muster_bench_options *options);

/* The bytes of the largest size, as they are counted. */
uint64_t muster_bench_largest_bytes(const struct muster_bench_options *options);
/* The most resident memory that this process has had; 0: not known. */
uint64_t muster_bench_peak_bytes(void);

/* The work of one rank, in its own thread or process: goes through all phases. `channel` is its
 * end of the stream to the parent. */
muster_status muster_bench_rank_main(struct muster_bench_shared *shared, uint32_t rank,
                                     int channel);

/* The function of operation USER: the larger one. */
void muster_bench_user_function(void *out, const void *left, const void *right, size_t count,
                                muster_type type, void *user_data);

/* Fills a rank's input; and checks what came out. MUSTER_FATAL names the first wrong element. */
void muster_bench_fill(const struct muster_request *request, void *in, uint32_t rank,
                       uint32_t ranks);
MUSTER_CHECKED muster_status muster_bench_check(const struct muster_request *request, uint32_t rank,
                                                uint32_t ranks);

/* Starts the ranks and leads them through the phases; prints each size when it is measured. The
 * program's exit status. No rank is left when it returns. */
int muster_bench_run(struct muster_bench_shared *shared);

/* What is measured, in a line for people: "allreduce, 4 ranks on 2 hosts ...". */
void muster_bench_describe(const struct muster_bench_options *options, char *ret_text, size_t size);

/* Figures of all algorithms at the size that was measured: [algorithm_count]. */
MUSTER_CHECKED muster_status muster_bench_compute_results(const struct muster_bench_shared *shared,
                                                          size_t size_index,
                                                          struct muster_bench_result *ret_results);

/* What was measured, on standard output. */
MUSTER_CHECKED muster_status muster_bench_print_head(const struct muster_bench_shared *shared);
MUSTER_CHECKED muster_status muster_bench_print(const struct muster_bench_shared *shared,
                                                const struct muster_bench_result *results);

/* MUSTER_FATAL: nothing could be written there. NULL is no file, which is well. */
MUSTER_CHECKED muster_status muster_bench_check_svg(const char *path);
/* Draws [size_count][algorithm_count] figures into the file of the options. */
MUSTER_CHECKED muster_status muster_bench_draw(const struct muster_bench_options *options,
                                               const struct muster_bench_result *results);

#endif
