/*
 * muster bench: what its files share.
 *
 * The parent process (the bench leader) leads N ranks through phases (bench_ranks.h). Each rank has
 * a fabric and a context of its own. Ranks are threads (inproc) or forked processes (all other
 * transports). Leader and ranks share memory.
 *
 * Phase 0 ends when the address of each rank is in the shared memory. Each size then has two
 * phases: the first ends when the result is checked and the calls are warm, the second when all
 * calls are measured.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_PARTS_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_PARTS_H

#include "collectives/call/compression.h"
#include "worker/cli/bench/bench_network.h"
#include "worker/cli/bench/bench_ranks.h"
#include "worker/context/context.h"
#include "worker/session/stored_figures.h"

enum {
    MUSTER_BENCH_SIZES_MAX = 64,
    MUSTER_BENCH_ALGORITHMS_MAX = 64,
    MUSTER_BENCH_ITERATIONS_MAX = 100000,
    MUSTER_BENCH_WARM_UP = 5,
};

#define MUSTER_BENCH_TUNED "tuned" /* the algorithm that the first calls of a job find out */

enum muster_bench_transport {
    MUSTER_BENCH_INPROC,
    MUSTER_BENCH_TCP,   /* between all ranks */
    MUSTER_BENCH_SHM,   /* between ranks of one host; tcp between hosts */
    MUSTER_BENCH_VERBS, /* RDMA between all ranks */
};

struct muster_bench_options {
    enum muster_collective collective;
    enum muster_bench_transport transport;
    uint32_t ranks;
    uint32_t hosts;
    const char *shape; /* the rate of the hosts' links; NULL: hosts are pretended */
    size_t size_count;
    uint64_t sizes_bytes[MUSTER_BENCH_SIZES_MAX]; /* as defined by muster_bench_count() */
    size_t algorithm_count;                       /* at least 1; they are measured in turns */
    /* A name; "": the one with the lowest predicted cost; or MUSTER_BENCH_TUNED. */
    char algorithms[MUSTER_BENCH_ALGORITHMS_MAX][MUSTER_ALGORITHM_NAME_SIZE];
    bool all_algorithms; /* of the collective, except those that do not fit the request */
    const char *svg;     /* the file for the picture; NULL: none */
    muster_type type;
    muster_op op;
    muster_compression compression;
    uint32_t connections; /* of each link: TCP connections, or queue pairs; 0: the default */
    uint32_t device_count;
    char *devices[MUSTER_BENCH_RANKS_MAX]; /* RDMA: rank i uses device i modulo device_count */
    uint32_t iterations;                   /* 0: as many as fit into `seconds` */
    uint32_t seconds;
    bool in_place;
    bool alloc;     /* buffers come from muster_alloc() */
    bool on_device; /* buffers are memory of a GPU */
    bool on_stream; /* and calls are made on a stream of it */
    bool figures;
    bool reproducible;
    bool keep_input, finish_together;
    bool json;
};

/* The part of the shared memory that one rank writes. */
struct muster_bench_rank_slot {
    struct muster_peer peer;
    uint64_t memory_bytes; /* its peak memory without its buffers; 0: not known */
    /* Of the size being measured: the first call of each algorithm, before the warm-up; all times
     * of the first algorithm, then those of the next. */
    double first_us[MUSTER_BENCH_ALGORITHMS_MAX];
    double times_us[MUSTER_BENCH_ITERATIONS_MAX];
};

/* One of the algorithms, at the size being measured. Rank 0 writes all but `iterations`. */
struct muster_bench_candidate {
    bool fits;                                  /* the request */
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE]; /* the one that runs */
    double warm_us;                             /* mean time of the warm-up calls */
    double predicted_us;                        /* from the link figures */
    uint32_t iterations;                        /* written by the leader; 0: it does not fit */
};

/* The result of one algorithm at one size. */
struct muster_bench_result {
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE];
    uint64_t bytes;
    uint32_t iterations; /* 0: it did not fit, and nothing below is set */
    double p50_us, p99_us, min_us, max_us;
    double spread;   /* (p90 - p10) / p50 */
    double first_us; /* of the first call, which makes the schedule and its buffers */
    double algbw_GBps, busbw_GBps;
    double predicted_us;
    uint64_t memory_bytes; /* the largest of all ranks; 0: not known */
};

/* The memory that the leader and all ranks share. Each part has one writer, and the others read it
 * only in a later phase. */
struct muster_bench_shared {
    struct muster_bench_options options;
    const struct muster_bench_network *network; /* of the hosts; NULL: hosts are pretended */
    char link_token[33];
    struct muster_figures link_figures; /* that algorithms are chosen by; rank 0's */
    struct muster_bench_candidate candidates[MUSTER_BENCH_ALGORITHMS_MAX];
    struct muster_bench_outcome outcomes[MUSTER_BENCH_RANKS_MAX];
    struct muster_bench_rank_slot rank_slots[]; /* [ranks] */
};

/* --transport, its name, and the transports of the fabric that ranks then have. */
MUSTER_CHECKED muster_status
muster_bench_parse_transport(const char *text, enum muster_bench_transport *ret_transport);
const char *muster_bench_transport_name(enum muster_bench_transport transport);
const char *muster_bench_transport_list(enum muster_bench_transport transport);

/* --bytes: sizes and ranges of sizes. --algorithm: names, "tuned", "chosen" and "all". Names are
 * checked, and "all" is expanded, by muster_bench_resolve_algorithms(), when the collective is
 * known. */
MUSTER_CHECKED muster_status muster_bench_parse_sizes(const char *text,
                                                      struct muster_bench_options *options);
MUSTER_CHECKED muster_status muster_bench_parse_algorithms(const char *text,
                                                           struct muster_bench_options *options);
/* --devices. Splits the text in place and borrows it. */
MUSTER_CHECKED muster_status muster_bench_parse_devices(char *text,
                                                        struct muster_bench_options *options);
MUSTER_CHECKED muster_status muster_bench_resolve_algorithms(struct muster_bench_options *options);

/* The element count of a call for this many bytes. ret_size_bytes is the size of the largest buffer
 * of a rank: the bytes rounded up to whole elements, in whole blocks if there are any. */
uint64_t muster_bench_count(const struct muster_bench_options *options, uint64_t size_bytes,
                            uint64_t *ret_size_bytes);

/* MUSTER_FATAL: the buffers of the ranks do not fit into the available memory. */
MUSTER_CHECKED muster_status muster_bench_check_memory(const struct muster_bench_options *options);

/* The largest of the sizes, as muster_bench_count() rounds it. */
uint64_t muster_bench_largest_bytes(const struct muster_bench_options *options);

/* Runs all phases of one rank, in its own thread or process. `channel` is its end of the stream to
 * the leader. */
muster_status muster_bench_rank_main(struct muster_bench_shared *shared, uint32_t rank,
                                     int channel);

/* The function of operation USER: the maximum. */
void muster_bench_user_function(void *out, const void *left, const void *right, size_t count,
                                muster_type type, void *user_data);

/* Fills the input of a rank, and checks its output. MUSTER_FATAL names the first wrong element. */
void muster_bench_fill(const struct muster_request *request, void *in, uint32_t rank,
                       uint32_t ranks);
MUSTER_CHECKED muster_status muster_bench_check(const struct muster_request *request, uint32_t rank,
                                                uint32_t ranks);

/* Starts the ranks, leads them through the phases, and prints each size when it is measured.
 * Returns the exit status of the program. No rank is running when it returns. */
int muster_bench_run(struct muster_bench_shared *shared);

/* One line for people: "allreduce, 4 ranks on 2 hosts over shm, float32 sum". */
void muster_bench_describe(const struct muster_bench_options *options, char *ret_text, size_t size);

/* The results of all algorithms at the size that was measured last: [algorithm_count]. */
MUSTER_CHECKED muster_status muster_bench_compute_results(const struct muster_bench_shared *shared,
                                                          size_t size_index,
                                                          struct muster_bench_result *ret_results);

/* Print the head and the rows of the results on standard output. */
MUSTER_CHECKED muster_status muster_bench_print_head(const struct muster_bench_shared *shared);
MUSTER_CHECKED muster_status muster_bench_print(const struct muster_bench_shared *shared,
                                                const struct muster_bench_result *results);

/* Checks before anything is measured. MUSTER_FATAL: the file cannot be written. path may be NULL.
 */
MUSTER_CHECKED muster_status muster_bench_check_svg(const char *path);
/* Draws results[size_count][algorithm_count] into the file that the options name. */
MUSTER_CHECKED muster_status muster_bench_draw(const struct muster_bench_options *options,
                                               const struct muster_bench_result *results);

#endif
