/*
 * Muster: collectives for jobs whose processes come and go.
 *
 * This is the only installed header. It is also the floor of the source tree: it includes nothing
 * of ours, and every other file may include it for the words it defines (statuses, element types,
 * reduce operations, scopes).
 *
 * Every function that can fail returns a muster_status, which says what the caller should do;
 * muster_last_error() says in one line what happened and names the rank, host or argument.
 * Outputs come last, are named ret_*, and are left untouched on failure.
 *
 * Threads: one session may be used from several threads, but each scope runs one collective at a
 * time, and all members must call the collectives of one scope in the same order. A child made by
 * fork() may exec, and must not use the session.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MUSTER_API __attribute__((visibility("default")))
#define MUSTER_CHECKED __attribute__((warn_unused_result))

/* What the caller should do next. */
typedef enum muster_status {
    MUSTER_OK = 0,
    MUSTER_INVALID = 1, /* fix the call: an argument is wrong, or the members' calls disagree */
    MUSTER_RETRY = 2,   /* try again later or with more time: nothing is broken, nothing was done */
    MUSTER_REJOIN = 3,  /* the membership changed: restore the state and call muster_rejoin() */
    MUSTER_ENDED = 4,   /* this member is out of the job, or the job is over: clean up and exit */
    MUSTER_FATAL = 5,   /* give up: this process cannot go on (no memory, no descriptors, a bug) */
} muster_status;

/* The status as a word, "rejoin" for example. Never NULL. */
MUSTER_API const char *muster_status_name(muster_status status);

/* What went wrong in this thread's last failed call: one line without a newline, never NULL,
 * borrowed until this thread's next call. */
MUSTER_API const char *muster_last_error(void);

/* The version of the library, "0.1.0" for example. */
MUSTER_API const char *muster_version(void);

typedef enum muster_type {
    MUSTER_FLOAT32 = 0,
    MUSTER_FLOAT64 = 1,
    MUSTER_INT32 = 2,
    MUSTER_INT64 = 3,
    MUSTER_UINT8 = 4,
    MUSTER_INT8 = 5,
    MUSTER_INT16 = 6,
    MUSTER_UINT16 = 7,
    MUSTER_UINT32 = 8,
    MUSTER_UINT64 = 9,
    MUSTER_FLOAT16 = 10,  /* IEEE 754 binary16 */
    MUSTER_BFLOAT16 = 11, /* the upper half of a float32 */
    MUSTER_BOOL = 12,     /* a byte; anything but 0 is true, results are 0 or 1 */
} muster_type;

/* Numbers are reduced by SUM, AVERAGE, PROD, MIN and MAX; integers also by the bitwise and logical
 * operations, which with MIN and MAX are the ones for BOOL. Everything else is MUSTER_INVALID, and
 * the text says what would fit.
 *
 * Integers wrap around. 16-bit floats are reduced in float32 and rounded to nearest even. AVERAGE
 * is the sum divided by the number of ranks; for integers the quotient is truncated toward zero.
 * LOGICAL operations take anything but 0 for true and give 0 or 1. */
typedef enum muster_op {
    MUSTER_SUM = 0,
    MUSTER_AVERAGE = 1,
    MUSTER_PROD = 2,
    MUSTER_MIN = 3,
    MUSTER_MAX = 4,
    MUSTER_BITWISE_AND = 5,
    MUSTER_BITWISE_OR = 6,
    MUSTER_BITWISE_XOR = 7,
    MUSTER_LOGICAL_AND = 8,
    MUSTER_LOGICAL_OR = 9,
    MUSTER_USER = 10, /* the function in muster_call_options; for all types */
} muster_op;

/* An operation of the user's: out[i] = left[i] op right[i] for i in [0, count). out may be left or
 * right, the very same address, and overlaps them in no other way; all three are aligned for the
 * type and nothing more. It must be associative and commutative, bit for bit, for all members to
 * get the same result: who is left and who is right is not said.
 *
 * Called with no lock of the fabric's held, by any thread that is in a call of Muster at that
 * moment, for pieces of any count and from several threads at once. It must not call Muster, nor
 * leave by a jump or an exception. */
typedef void (*muster_user_function)(void *out, const void *left, const void *right, size_t count,
                                     muster_type type, void *user_data);

/* Which members act together: all; those of this host; those that have this local rank on the
 * other hosts (the cross size is the number of hosts that have it). */
typedef enum muster_scope {
    MUSTER_GLOBAL = 0,
    MUSTER_LOCAL = 1,
    MUSTER_CROSS = 2,
} muster_scope;

/* Sessions ------------------------------------------------------------------------------------ */

typedef struct muster_session muster_session;

/* How to find the job. muster_options_init() fills it from the environment, then from defaults;
 * strings are borrowed until muster_open() returns. */
typedef struct muster_options {
    const char *rendezvous; /* MUSTER_RENDEZVOUS: "http://HOST:PORT"; required */
    const char *job;        /* MUSTER_JOB: letters, digits, '.', '_', '-'; default "default" */
    const char *token;      /* MUSTER_TOKEN: the job's shared secret; default none */
    const char *host;       /* MUSTER_HOST: members of one name share a host; default host name */
    const char *rack;      /* MUSTER_RACK: hosts of one name share a rack, that is, a faster network
                              among themselves; alike on all members of a host; default none */
    const char *listen;    /* MUSTER_LISTEN: one address that is published to the peers, or "*" for
                              all of this host; alone, or with a port or a range of ports:
                              "10.0.0.1:7000-7015", "[::1]:7000", "*:7000-7015". Default: loopback
                              when the rendezvous is on it and no interface is named, else "*" */
    const char *interface; /* MUSTER_INTERFACE: which addresses "*" stands for, a list with commas:
                              interfaces ("eth0", or what begins so: "eth"; "=eth0" is that one
                              only), networks ("10.0.0.0/8", "fd00::/8") and addresses; with "^"
                              before the list all but these ("^docker,virbr"). Each pair of
                              members finds an address that works. Default: all but loopback */
    uint32_t tcp_connections; /* MUSTER_TCP_CONNECTIONS: so many to each peer that this member
                                 dials, up to 16; with more than one, a link goes on as long as
                                 one of them lives; default 1 */
    /* TLS between members of different hosts: PEM files, all three or none. Each member proves who
     * it is by its certificate, and its peers are those whose certificates the authority has
     * signed; worker/README.md says how to choose them. On all members or on none. */
    const char *tls_certificate; /* MUSTER_TLS_CERTIFICATE: this member's; intermediate ones may
                                    follow */
    const char *tls_key;         /* MUSTER_TLS_KEY: belongs to it; without pass phrase */
    const char *tls_authority;   /* MUSTER_TLS_AUTHORITY: certificates of one or more */
    const char *tls_name;  /* MUSTER_TLS_NAME: a DNS name that every member's certificate has to
                              carry; default: any will do */
    uint32_t min_size;     /* MUSTER_MIN: the job waits for at least so many members; default 1 */
    uint32_t max_size;     /* MUSTER_MAX: never more than so many; default 1024 */
    uint32_t target_size;  /* MUSTER_TARGET: start as soon as so many are there; 0: none */
    uint32_t order;        /* MUSTER_ORDER: newcomers of a host are ranked by it, and it is the
                              logical number of what this member contributes; default 0 */
    const char *algorithm; /* MUSTER_ALGORITHM: the algorithm for all collectives that have one of
                              this name and that it fits ("ring"), or one for some collectives
                              ("allreduce=ring,broadcast=binomial"); alike on all members; default:
                              predicted, then found out, see tune */
    uint32_t join_timeout_ms; /* MUSTER_JOIN_TIMEOUT_MS: give up joining after; default 60,000 */
    uint32_t call_timeout_ms; /* MUSTER_CALL_TIMEOUT_MS: a collective that has not finished by
                                 then reports who it waits for, and ends with MUSTER_REJOIN;
                                 default 60,000 */
    int leave_on_sigterm;     /* MUSTER_LEAVE_ON_SIGTERM: if SIGTERM has its default action, make it
                                 a planned leave at the next commit; default 1 */
    int measure;              /* MUSTER_MEASURE: measure the links when the job begins and when its
                                 hosts change (after a death at the next commit), for some tens of
                                 milliseconds; 0: predict with figures of an ordinary machine;
                                 default 1 */
    int tune;          /* MUSTER_TUNE: let the first calls of each kind (some tens of them, or a few
                          where they are long) try the algorithms that are predicted to be fast,
                          and keep to the fastest: without `reproducible` the sums of floats may
                          have other last bits meanwhile; 0: keep to the prediction; rank 0's word
                          counts; default 1 */
    int reproducible;  /* MUSTER_REPRODUCIBLE: 1: reproducible in every call; default 0 */
    int shared_memory; /* MUSTER_SHARED_MEMORY: with members of this host that it proves to share
                          memory with; 0: TCP with them, too; default 1 */
    /* Links over RDMA (InfiniBand, RoCE) between members that both have it; with others TCP, as
     * where a device cannot be used: a line in the log says why. */
    int verbs;                  /* MUSTER_VERBS: 1: RDMA where it is there; default 0 */
    const char *verbs_device;   /* MUSTER_VERBS_DEVICE: "mlx5_0", or several, "mlx5_0,mlx5_1", which
                                   share the work; default: the first that is up */
    uint32_t verbs_connections; /* MUSTER_VERBS_CONNECTIONS: queue pairs between two members, 1 to
                                   8; default 0: one for each device */
    uint32_t verbs_port;        /* MUSTER_VERBS_PORT: of the device, from 1; default 0: any */
    const char *verbs_gid; /* MUSTER_VERBS_GID: index of the address in the port's table; default:
                              RoCE v2 rather than v1, IPv4 rather than IPv6 */
    const char *timeline;  /* MUSTER_TIMELINE: what this member does is recorded in the file
                              PREFIX.GENERATION.RANK.json, by those that it begins with, for
                              chrome://tracing, Perfetto and `muster timeline`; default: nowhere */
} muster_options;

MUSTER_API void muster_options_init(muster_options *options);

/* Joins the job and blocks until a generation that includes this process has formed. options may
 * be NULL: the environment then says everything. The session is the caller's; muster_close() it.
 * Errors: MUSTER_INVALID (an option is wrong, the token is refused, members disagree on min or
 * max), MUSTER_RETRY (no server, or too few members before join_timeout_ms; the text says who is
 * there), MUSTER_ENDED (the job is over), MUSTER_FATAL. */
MUSTER_API MUSTER_CHECKED muster_status muster_open(const muster_options *options,
                                                    muster_session **ret_session);

/* Leaves the job in order and frees the session. Blocks at most two seconds. Accepts NULL. No other
 * call with this session may be going on. */
MUSTER_API void muster_close(muster_session *session);

/* Moves over to the next generation after MUSTER_REJOIN; muster_run() does this by itself. Blocks
 * like muster_open() and has its errors; MUSTER_FATAL also when more than ten generations in a row
 * ended before a collective did, as with members that cannot reach each other (those who reach more
 * than half of the members stay for twenty, as the others leave then). Afterwards ranks and
 * sizes may be others and muster_sync() must be called before the state is used. When no call has
 * returned MUSTER_REJOIN in this generation (another thread has moved over already) it does
 * nothing. */
MUSTER_API MUSTER_CHECKED muster_status muster_rejoin(muster_session *session);

/* Asks to leave the job at the next commit: that commit returns MUSTER_REJOIN to every member, and
 * muster_rejoin() then returns MUSTER_ENDED to this one. Async-signal-safe. */
MUSTER_API void muster_leave(muster_session *session);

/* This member's position among the members of the scope, and their number. */
MUSTER_API uint32_t muster_rank(const muster_session *session, muster_scope scope);
MUSTER_API uint32_t muster_size(const muster_session *session, muster_scope scope);

/* The generation's number: it grows whenever the membership changes. */
MUSTER_API uint64_t muster_generation(const muster_session *session);

/* Collectives --------------------------------------------------------------------------------- */

/* Options of one call; NULL means all defaults. */
typedef struct muster_call_options {
    const char *algorithm; /* NULL: chosen (or MUSTER_ALGORITHM); else a name that `muster plan
                              --list` prints. All members must name the same. */
    uint32_t timeout_ms;   /* 0: the session's call_timeout_ms */
    int reproducible;      /* 1: floats are added in the order of the members' `order` (ranks break
                              ties), so that the same members' data give the same bits, whoever
                              has which rank on which host, whatever the algorithm. Named
                              algorithms that cannot are refused. 0: as the session's option says.
                              All members must say the same. */
    double prescale;       /* 0 and 1: none. Reductions: out = postscale x op(prescale x in) */
    double postscale;      /* 0 and 1: none. All members must give the same factors */
    muster_user_function user_function; /* of MUSTER_USER; all members' must do the same */
    void *user_data;                    /* handed to user_function */
} muster_call_options;

/* Factors are for SUM, AVERAGE, PROD, MIN, MAX and USER of numbers, and must be finite. The result
 * is that of these steps, each of which rounds to the element type:
 *   1. this member's input times prescale, and if it has several buffers, their reduction;
 *   2. the reduction of all members' results;
 *   3. for AVERAGE the quotient by the number of inputs, and in any case times postscale.
 * 16-bit floats are in float32 within a step, and rounded at its end. Floats are multiplied by the
 * factor rounded to float32 (float64: by the factor as it is). Integers are multiplied in float64
 * (those of 64 bits beyond 2^53 are rounded to it before) and truncated toward zero; what is beyond
 * the type becomes its nearest end. AVERAGE of integers truncates the quotient before postscale.
 * SUM of 16-bit floats may overflow where the average would not: scale by 1/size before, then. */

/* All block until this member's part is done. Buffers are the caller's and need only the alignment
 * of their type. Each call says where input and output may share memory: that is in place; other
 * overlaps are MUSTER_INVALID. A buffer that holds nothing on this member may be NULL. On failure
 * out is undefined, and in is intact unless the call was in place.
 *
 * Each buffer may be memory of the host or of a GPU (CUDA), on each member as it likes; a user's
 * function always gets memory of the host. The input must be there when the call is made: what was
 * put on CUDA's default stream is waited for, work on other streams is the caller's to wait for.
 * When the call returns the output is there. MUSTER_FATAL: a copy failed, and how CUDA calls
 * that.
 *
 * Counts are elements, may be 0, and must be the same on every member. An array of counts has one
 * for each member of the scope, in the order of ranks (muster_size() of them), is borrowed until
 * the call returns, and must be the same on every member too, except in muster_alltoallv(). The
 * blocks that it measures stand one after the other without gaps, and hold 2^60 elements at most.
 *
 * Errors: MUSTER_INVALID (bad argument; or the members disagree on collective, counts, type,
 * operation, root or algorithm: the text names the rank and both values, or the checksums of both
 * arrays of counts, and every member that takes part gets it), MUSTER_REJOIN (a member died, left,
 * or stalled for longer than the timeout), MUSTER_ENDED, MUSTER_FATAL.
 *
 * Where there is a root the data flows one way, and members that only send (the root of a broadcast
 * or scatter, the others in a reduce or gather) may return MUSTER_OK before another member notices
 * that their calls disagree. Two members that each take themselves, or each other, for the root of
 * little data may go unnoticed. */

/* out[0..count) = op over all members of in[0..count). The result has the same bits everywhere. In
 * place: out == in. */
MUSTER_API MUSTER_CHECKED muster_status muster_allreduce(muster_session *session,
                                                         muster_scope scope, const void *in,
                                                         void *out, size_t count, muster_type type,
                                                         muster_op op,
                                                         const muster_call_options *options);

/* The same, for the root only: the others' out is not used. In place: out == in, at the root. */
MUSTER_API MUSTER_CHECKED muster_status muster_reduce(muster_session *session, muster_scope scope,
                                                      const void *in, void *out, size_t count,
                                                      muster_type type, muster_op op, uint32_t root,
                                                      const muster_call_options *options);

/* in has size x count elements; out[0..count) = op over all members of in's block number rank. In
 * place: out == in + this rank's block. */
MUSTER_API MUSTER_CHECKED muster_status muster_reduce_scatter(muster_session *session,
                                                              muster_scope scope, const void *in,
                                                              void *out, size_t count,
                                                              muster_type type, muster_op op,
                                                              const muster_call_options *options);

/* The same with a distribution of the caller's: block i has counts[i] elements, out those of this
 * rank's. */
MUSTER_API MUSTER_CHECKED muster_status muster_reduce_scatterv(muster_session *session,
                                                               muster_scope scope, const void *in,
                                                               void *out, const size_t *counts,
                                                               muster_type type, muster_op op,
                                                               const muster_call_options *options);

/* out has size x count elements; block i = member i's in[0..count). In place: in == out + this
 * rank's block. */
MUSTER_API MUSTER_CHECKED muster_status muster_allgather(muster_session *session,
                                                         muster_scope scope, const void *in,
                                                         void *out, size_t count, muster_type type,
                                                         const muster_call_options *options);

/* The same with blocks of different sizes: block i has counts[i] elements, in those of this
 * rank's. */
MUSTER_API MUSTER_CHECKED muster_status muster_allgatherv(muster_session *session,
                                                          muster_scope scope, const void *in,
                                                          void *out, const size_t *counts,
                                                          muster_type type,
                                                          const muster_call_options *options);

/* An allgather for the root only: the others' out is not used. In place: in == out + the root's
 * block, at the root. */
MUSTER_API MUSTER_CHECKED muster_status muster_gather(muster_session *session, muster_scope scope,
                                                      const void *in, void *out, size_t count,
                                                      muster_type type, uint32_t root,
                                                      const muster_call_options *options);

/* The same with blocks of different sizes: block i has counts[i] elements, in those of this rank's.
 * All members need all counts. */
MUSTER_API MUSTER_CHECKED muster_status muster_gatherv(muster_session *session, muster_scope scope,
                                                       const void *in, void *out,
                                                       const size_t *counts, muster_type type,
                                                       uint32_t root,
                                                       const muster_call_options *options);

/* The root's in has size x count elements; member i's out[0..count) = its block i. The others' in
 * is not used. In place: out == in + the root's block, at the root. */
MUSTER_API MUSTER_CHECKED muster_status muster_scatter(muster_session *session, muster_scope scope,
                                                       const void *in, void *out, size_t count,
                                                       muster_type type, uint32_t root,
                                                       const muster_call_options *options);

/* data[0..count) of the root is copied to every member. */
MUSTER_API MUSTER_CHECKED muster_status muster_broadcast(muster_session *session,
                                                         muster_scope scope, void *data,
                                                         size_t count, muster_type type,
                                                         uint32_t root,
                                                         const muster_call_options *options);

/* in and out have size x count elements; out's block i = member i's block number rank. In place:
 * out == in, which takes a copy of the input within the library. */
MUSTER_API MUSTER_CHECKED muster_status muster_alltoall(muster_session *session, muster_scope scope,
                                                        const void *in, void *out, size_t count,
                                                        muster_type type,
                                                        const muster_call_options *options);

/* The same with blocks of different sizes: in's block i has in_counts[i] elements and goes to
 * member i, out's block i has out_counts[i] elements and comes from member i. What one member sends
 * another must be what that one takes from it; else the call is MUSTER_INVALID, and the text says
 * how many bytes each has in mind; members that were done by then return MUSTER_OK. In place:
 * out == in, memory for the larger of both. */
MUSTER_API MUSTER_CHECKED muster_status muster_alltoallv(muster_session *session,
                                                         muster_scope scope, const void *in,
                                                         const size_t *in_counts, void *out,
                                                         const size_t *out_counts, muster_type type,
                                                         const muster_call_options *options);

/* An allreduce for members that have several buffers each, as one for each device: outs[i] = op
 * over all buffers of all members, for each i < buffer_count, which is 1 to 64 and the same on
 * every member. A member's buffers are reduced to one first, in their order, then those of the
 * members, and the result is copied to all of outs. AVERAGE divides by the number of all buffers.
 *
 * In place: outs[i] == ins[i] for every i. Otherwise no output may overlap another buffer; an input
 * may be given several times. */
MUSTER_API MUSTER_CHECKED muster_status
muster_allreduce_buffers(muster_session *session, muster_scope scope, const void *const *ins,
                         void *const *outs, size_t buffer_count, size_t count, muster_type type,
                         muster_op op, const muster_call_options *options);

/* A reduce_scatter for members that have several buffers each: outs[i][0..count) = op over block
 * `rank` of all buffers of all members, for each i < buffer_count; each of ins has size x count
 * elements. A member's buffers are reduced to one first, as in muster_allreduce_buffers(), which
 * takes memory for a copy of one of ins within the library.
 *
 * In place: outs[i] == ins[i] + rank x count for every i, the members' ranks being those of the
 * scope. Otherwise no output may overlap another buffer; an input may be given several times. */
MUSTER_API MUSTER_CHECKED muster_status
muster_reduce_scatter_buffers(muster_session *session, muster_scope scope, const void *const *ins,
                              void *const *outs, size_t buffer_count, size_t count,
                              muster_type type, muster_op op, const muster_call_options *options);

/* A broadcast for members that have several buffers each: buffers[0] of the root is copied to all
 * buffers of all members, those of the root too. buffer_count is 1 to 64, each member's own. The
 * buffers must not overlap. */
MUSTER_API MUSTER_CHECKED muster_status muster_broadcast_buffers(
    muster_session *session, muster_scope scope, void *const *buffers, size_t buffer_count,
    size_t count, muster_type type, uint32_t root, const muster_call_options *options);

/* Returns when every member has called it. */
MUSTER_API MUSTER_CHECKED muster_status muster_barrier(muster_session *session, muster_scope scope,
                                                       const muster_call_options *options);

/* Memory -------------------------------------------------------------------------------------- */

/* Memory for buffers of collectives, page-aligned and zeroed: like any other, but that the members
 * of this host map it when they first meet it, and then reduce and copy straight out of it. For
 * buffers that are used again and again. It is shared with children made by fork(), as no other
 * memory is. *ret_memory is the caller's; muster_free() it. Needs no session. At most 1024 pieces
 * at a time, each of which takes a descriptor. MUSTER_INVALID: more, or too many bytes;
 * MUSTER_FATAL: no memory or descriptors. */
MUSTER_API MUSTER_CHECKED muster_status muster_alloc(size_t size_bytes, void **ret_memory);

/* No collective may be using it. Accepts NULL. */
MUSTER_API void muster_free(void *memory);

/* State --------------------------------------------------------------------------------------- */

/* Names memory that the job must not lose (weights, optimizer, step count). All members register
 * the same names with the same sizes in the same order before the first muster_sync(). The memory
 * stays the caller's and must stay valid until muster_close(). MUSTER_INVALID: a name twice,
 * empty or over 63 bytes, more than 1024 regions, memory of a GPU, or registered after the first
 * commit. */
MUSTER_API MUSTER_CHECKED muster_status muster_register(muster_session *session, const char *name,
                                                        void *data, size_t size_bytes);

/* Keeps a copy of the registered memory as the state to return to, then asks all members whether
 * the membership is to change (a small allreduce). Blocks. MUSTER_REJOIN: it is, or a member died;
 * the copy has been made, nothing is lost. Without registered memory it is only the question. */
MUSTER_API MUSTER_CHECKED muster_status muster_commit(muster_session *session);

/* Copies the last commit back. MUSTER_INVALID: nothing was ever committed or synced. */
MUSTER_API MUSTER_CHECKED muster_status muster_restore(muster_session *session);

/* Gives every member that lacks it the newest committed state. Collective: all members call it
 * after muster_open() and muster_rejoin(), before using the state. Blocks. In the first
 * generation the state of rank 0 is given to all. MUSTER_INVALID: this member's regions differ in
 * name or size from those that the job has committed; the text names the first and both sizes: it
 * cannot take part, and is to close. In the first generation, where nothing has been committed,
 * every member gets it. MUSTER_REJOIN: a member died meanwhile, or another one's regions differ;
 * the next generation forms when that one has left. */
MUSTER_API MUSTER_CHECKED muster_status muster_sync(muster_session *session);

/* The number of commits behind the state in memory, the first sync being the first; 0 before. */
MUSTER_API uint64_t muster_version_of_state(const muster_session *session);

/* The user's work. It trains until it is done, calls muster_commit() now and then, and returns any
 * status other than MUSTER_OK as soon as it gets one. It is called again after each change of
 * membership, with the state as last committed; it reads ranks and sizes anew each time. */
typedef muster_status (*muster_function)(muster_session *session, void *user);

/* Calls function until all members' calls have returned MUSTER_OK, moving over to new generations
 * as members come, leave and die. Returns MUSTER_OK when the work is done on every member,
 * MUSTER_ENDED when this member has left as asked or the job was ended, and otherwise the error
 * that function, muster_rejoin() or muster_sync() gave. */
MUSTER_API MUSTER_CHECKED muster_status muster_run(muster_session *session,
                                                   muster_function function, void *user);

#ifdef __cplusplus
}
#endif

#endif
