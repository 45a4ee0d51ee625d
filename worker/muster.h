/*
 * Muster: collectives for jobs whose processes come and go.
 *
 * A process opens a session, which joins a job, and then calls collectives with the other members
 * of the job. When the membership changes, calls return MUSTER_REJOIN; muster_run() hides that.
 *
 * Programs include this header only. It includes muster_collectives.h, which declares the
 * collectives, muster_messages.h, for point to point, muster_operations.h, for operations in
 * flight, muster_data.h, for each member's part of the data, muster_values.h, for values that
 * members exchange through the service, and muster_engine.h, for named tensors. Every other file of
 * the source tree may include it for its types: statuses, element types, reduce operations, scopes.
 *
 * Errors: a function that can fail returns a muster_status, which says what the caller should do.
 * muster_last_error() says in one line what happened and names the rank, host or argument. Outputs
 * come last, are named ret_*, and are untouched on failure.
 *
 * Threads: any function may be called from any thread. Several threads may use one session, if each
 * scope runs one collective at a time, and if all members call the collectives of one scope in the
 * same order.
 *
 * Fork: a child made by fork() has none of its parent's connections, so it does not hide its
 * parent's death from the other members. It must not use the session: calls that return a status
 * return MUSTER_INVALID, muster_close() does nothing. SIGTERM has its default action again. The
 * child may exec.
 *
 * Blocking: a function blocks only if its comment says so. Strings and arrays that a caller passes
 * are borrowed until the call returns.
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
/* Opens the declaration of a function whose status the caller must use. */
#define MUSTER_STATUS MUSTER_API MUSTER_CHECKED muster_status

/* What the caller should do next. */
typedef enum muster_status {
    MUSTER_OK = 0,
    MUSTER_INVALID = 1, /* fix the call: an argument is wrong, or the members' calls differ */
    MUSTER_RETRY = 2,   /* try again later or with more time: nothing is broken, nothing was done */
    MUSTER_REJOIN = 3,  /* the membership has changed: restore the state, call muster_rejoin() */
    MUSTER_ENDED = 4,   /* this member is out of the job, or the job is over: clean up and exit */
    MUSTER_FATAL = 5,   /* give up: this process cannot go on (no memory, no descriptors, a bug) */
} muster_status;

/* The status as a word, for example "rejoin". Never NULL. */
MUSTER_API const char *muster_status_name(muster_status status);

/* The error of this thread's last failed call: one line without a newline, never NULL, valid until
 * this thread's next call. */
MUSTER_API const char *muster_last_error(void);

/* The version of the library, for example "0.1.0". */
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
    MUSTER_BOOL = 12,     /* one byte; anything but 0 is true, results are 0 or 1 */
} muster_type;

/* Reduce operations.
 *   numbers   SUM, AVERAGE, PROD, MIN, MAX
 *   integers  also the BITWISE and LOGICAL operations
 *   BOOL      MIN, MAX, the BITWISE and LOGICAL operations
 * Any other combination is MUSTER_INVALID, and the error names the operations that fit.
 *
 * Integers wrap around. 16-bit floats are reduced in float32 and rounded to nearest even. AVERAGE
 * is the sum divided by the number of ranks; for integers the quotient is truncated toward zero.
 * LOGICAL operations treat anything but 0 as true and give 0 or 1. */
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

/* A user-defined reduction: out[i] = left[i] op right[i] for i in [0, count). `out` may be the same
 * address as `left` or `right`, and overlaps them in no other way. All three are aligned for the
 * type and no further. The function must be associative and commutative, bit for bit, for all
 * members to get the same result: which input is left and which is right is not specified.
 *
 * It is called from any thread that is in a call of Muster, for parts of any count, and from
 * several threads at once; the library holds no lock during the call. It must not call Muster, and
 * must not leave by longjmp() or an exception. */
typedef void (*muster_user_function)(void *out, const void *left, const void *right, size_t count,
                                     muster_type type, void *user_data);

/* How float32 elements travel between members. Fewer bits take less time on a slow network, and
 * each encoding loses some precision. See muster_call_options. */
typedef enum muster_compression {
    MUSTER_COMPRESSION_DEFAULT = 0, /* what the session's option says */
    MUSTER_COMPRESSION_NONE = 1,
    MUSTER_COMPRESSION_BFLOAT16 = 2,
    MUSTER_COMPRESSION_FLOAT16 = 3, /* beyond 65,504 is infinity */
    MUSTER_COMPRESSION_INT8 = 4,    /* 240 elements that follow each other share a scale */
} muster_compression;

/* In C++ an enumeration has only the values of its enumerators, unless its type is named. */
#ifdef __cplusplus
#define MUSTER_SCOPE_TYPE : int32_t
#else
#define MUSTER_SCOPE_TYPE
#endif

/* Which members take part in a call. Further scopes are process sets (muster_process_set()): their
 * numbers are positive, and none of these. */
typedef enum muster_scope MUSTER_SCOPE_TYPE {
    MUSTER_GLOBAL = 0, /* all members */
    MUSTER_LOCAL = 1,  /* the members on this host */
    MUSTER_CROSS = 2,  /* the members with this local rank, one on each host that has this rank */
} muster_scope;

/* No scope: what muster_split() gives to members that are to be in no set. */
#define MUSTER_NO_SCOPE ((muster_scope)-1)

/* Sessions ------------------------------------------------------------------------------------ */

/* One process's place in a job. Opened by muster_open(), freed by muster_close(). */
typedef struct muster_session muster_session;

/* How to find the job, and how to take part in it. Each option has an environment variable, named
 * first. Switches are 0 or 1. Strings may be NULL, which means the default.
 *
 * Fields are appended only, and `size` says which ones the caller's header has. So a program runs
 * with a newer library, where the fields that it lacks have their defaults, and with an older one
 * as long as it leaves those that the library lacks at 0. */
typedef struct muster_options {
    /* sizeof(muster_options); muster_options_init() sets it. */
    size_t size;
    /* MUSTER_RENDEZVOUS: the service, "http://HOST:PORT"; several servers with commas between.
     * Required. */
    const char *rendezvous;
    /* MUSTER_JOB: letters, digits, '.', '_', '-'. Default: "default". */
    const char *job;
    /* MUSTER_TOKEN: the job's shared secret. Default: none. */
    const char *token;
    /* MUSTER_HOST: members that give the same name share a host. Default: the host name. */
    const char *host;
    /* MUSTER_RACK: hosts that give the same name share a rack, that is, a faster network among
     * themselves. The same on all members of a host. Default: none. */
    const char *rack;
    /* MUSTER_LISTEN: the address that this member publishes to its peers, or "*" for all addresses
     * of this host; optionally with a port or a range of ports: "10.0.0.1:7000-7015", "[::1]:7000",
     * "*:7000-7015". Default: loopback if the service is reached there and no interface is named,
     * otherwise "*". */
    const char *listen;
    /* MUSTER_INTERFACE: which addresses "*" stands for, as a list with commas: interfaces ("eth0",
     * or a prefix of their names, "eth"; "=eth0" for that one only), networks ("10.0.0.0/8",
     * "fd00::/8") and addresses. A "^" before the list means all but these: "^docker,virbr". Each
     * pair of members finds an address that works. Default: all but loopback. */
    const char *interface;
    /* MUSTER_TCP_CONNECTIONS: connections to each peer that this member dials, 1 to 16. With more
     * than one, a link survives as long as one of them does. Default: 1. */
    uint32_t tcp_connections;

    /* TLS between members of different hosts: PEM files, all three or none, on all members or on
     * none. A member proves its identity by its certificate; its peers are those whose certificates
     * the authority has signed. worker/SETTINGS.md says how to choose them. */

    /* MUSTER_TLS_CERTIFICATE: this member's certificate; intermediate ones may follow it. */
    const char *tls_certificate;
    /* MUSTER_TLS_KEY: the key of the certificate, without a pass phrase. */
    const char *tls_key;
    /* MUSTER_TLS_AUTHORITY: the certificates of one or more authorities. */
    const char *tls_authority;
    /* MUSTER_TLS_NAME: a DNS name that every member's certificate must contain. Default: any. */
    const char *tls_name;

    /* MUSTER_MIN: the job waits for at least this many members. Default: 1. */
    uint32_t min_size;
    /* MUSTER_MAX: the job never has more members. Default: 1024. */
    uint32_t max_size;
    /* MUSTER_TARGET: the job starts as soon as it has this many members. Default: 0, none. */
    uint32_t target_size;
    /* MUSTER_ORDER: the number of this member's contributions, see `reproducible` in
     * muster_call_options. Newcomers of a host are also ranked by it. Default: 0. */
    uint32_t order;
    /* MUSTER_ALGORITHM: the algorithm of all collectives that have one of this name and that it
     * fits ("ring"), or of single collectives ("allreduce=ring,broadcast=binomial"). Names, and
     * Gloo's and NCCL's for the same algorithms: `muster plan --list`. The same on all members.
     * Default: chosen by predicted cost, then by measured time (see `tune`). */
    const char *algorithm;
    /* MUSTER_JOIN_TIMEOUT_MS: how long joining may take. Default: 60,000. */
    uint32_t join_timeout_ms;
    /* MUSTER_CALL_TIMEOUT_MS: how long a collective may keep its caller waiting while the members
     * that it waits for are there: they run, compute or are stopped. One that takes longer reports
     * the member that it waits for to the service, and returns MUSTER_REJOIN (MUSTER_ENDED without
     * a service). A member whose process is gone or that is cut off ends it within seconds, at most
     * a minute, whatever this says. Default: 600,000. */
    uint32_t call_timeout_ms;
    /* MUSTER_LEAVE_ON_SIGTERM: SIGTERM, if it has its default action, becomes a planned leave at
     * the next commit. Default: 1. */
    int leave_on_sigterm;
    /* MUSTER_MEASURE: measure the links, for some tens of milliseconds, when the job begins and, at
     * a commit, when its members have changed. 0: predict costs with the figures
     * of an ordinary machine. Default: 1. */
    int measure;
    /* MUSTER_TUNE: autotune: the first calls of each collective and size (some tens of them, or a
     * few if they are long) try the algorithms that are predicted to be fast, and later calls use
     * the fastest. Without `reproducible`, sums of floats may differ in their last bits until then.
     * 0: use the prediction. Rank 0's value counts for all members. Default: 1. */
    int tune;
    /* MUSTER_REPRODUCIBLE: 1: every call is `reproducible`, see muster_call_options. Default: 0. */
    int reproducible;
    /* MUSTER_SHARED_MEMORY: use shared memory with members on this host, if a handshake proves that
     * memory can be shared. 0: use TCP with them, too. Default: 1. */
    int shared_memory;

    /* RDMA (InfiniBand, RoCE) between members that both have it. All other links are TCP. A device
     * that cannot be used is logged with the reason, and its links are TCP, too. */

    /* MUSTER_VERBS: 1: use RDMA where it exists. Default: 0. */
    int verbs;
    /* MUSTER_VERBS_DEVICE: "mlx5_0", or several that share the work: "mlx5_0,mlx5_1". Default: the
     * first that is active. */
    const char *verbs_device;
    /* MUSTER_VERBS_CONNECTIONS: queue pairs between two members, 1 to 8. Default: 0, one for each
     * device. */
    uint32_t verbs_connections;
    /* MUSTER_VERBS_PORT: the port of the device, from 1. Default: 0, any. */
    uint32_t verbs_port;
    /* MUSTER_VERBS_GID: the index into the port's table of addresses. Default: RoCE v2 before v1,
     * IPv4 before IPv6. */
    const char *verbs_gid;

    /* MUSTER_TIMELINE: a prefix. What this member does is recorded in the file
     * PREFIX.GENERATION.RANK.json, named by its first generation and rank, for chrome://tracing,
     * Perfetto and `muster timeline`. Default: nothing is recorded. */
    const char *timeline;
    /* MUSTER_COMPRESSION: "bfloat16", "float16" or "int8": calls that can be compressed are, see
     * muster_call_options. The same on all members. Default: "none". */
    const char *compression;

    /* How the service recognises this member, and the member the service. A job's token (above)
     * protects a job from others of the same service; these protect the service. */

    /* MUSTER_SERVER_TOKEN: a worker's token of the service, if it asks for one. Default: none. */
    const char *server_token;
    /* MUSTER_RENDEZVOUS_AUTHORITY: a PEM file. The certificate of a service at https://HOST:PORT
     * must be signed by one of these authorities, and have that host's name. Default: the
     * authorities of the system. */
    const char *rendezvous_authority;
    /* MUSTER_RENDEZVOUS_CERTIFICATE and MUSTER_RENDEZVOUS_KEY: PEM files, for a service that asks
     * its callers for a certificate. Both or neither. Default: none. */
    const char *rendezvous_certificate;
    const char *rendezvous_key;

    /* MUSTER_SPILL: a folder. Rank 0 writes committed states there as files, in the background; a
     * job whose members have all died goes on from the newest one that is whole, also with another
     * number of members. Other members need the folder only if they may become rank 0; a job that
     * begins looks at the folder of each host. Default: none. */
    const char *spill;
    /* MUSTER_SPILL_KEEP: the newest files of a job that are kept, at least 1. Default: 3. */
    uint32_t spill_keep;
    /* MUSTER_SPILL_EVERY_MS: the least time from the beginning of one file to that of the next.
     * Default: 10,000. */
    uint32_t spill_every_ms;
} muster_options;

/* muster_options_init(muster_options *options) fills in the size, the values of the environment
 * variables, and defaults for the others. Strings point into the environment: do not change it
 * before muster_open() returns. Cannot fail; a variable with a bad value makes muster_open() fail.
 * The function fills in `size` bytes, at least those of the field `size`. */
MUSTER_API void muster_options_init_sized(muster_options *options, size_t size);
#define muster_options_init(options) muster_options_init_sized((options), sizeof(muster_options))

/* Joins the job. Blocks until a generation that includes this process has formed. options may be
 * NULL: the environment then decides. The session belongs to the caller, who closes it with
 * muster_close().
 *
 * Errors: MUSTER_INVALID (an option is wrong, the token is refused, members disagree on min or
 * max), MUSTER_RETRY (no service, or too few members within join_timeout_ms; the error says who is
 * there), MUSTER_ENDED (the job is over), MUSTER_FATAL. */
MUSTER_STATUS muster_open(const muster_options *options, muster_session **ret_session);

/* Without a service -------------------------------------------------------------------------- */

/* A blocking allgather of equal blobs among the members, by means of the program: MPI, PMI, Slurm,
 * torch's Store, files. It writes the blob of rank i to `all` at i * size_bytes, for every rank,
 * this one included, and returns 0; any other value means that it has failed. It is called once, by
 * muster_open_with(), on the caller's thread. It should give up after a while: nothing else limits
 * the time that it waits for a member that never comes. The blobs hold the secret that links are
 * opened with, so they are for the members' eyes only. */
typedef int (*muster_exchange_function)(const void *mine, void *all, size_t size_bytes,
                                        void *user_data);

/* Opens a session among `size` members whose ranks the caller knows, without a service: a
 * communicator. All collectives, blocking and in flight, work in it, with these ranks in
 * MUSTER_GLOBAL. The members of a host (the option `host`) need not have consecutive ranks; where
 * they have not, collectives with a block for each rank may copy it once more. MUSTER_LOCAL and
 * MUSTER_CROSS have the order of the ranks, and hosts that of their lowest ranks.
 *
 * All members call it, with the same size and the same options `algorithm` and `reproducible`.
 * options may be NULL. The options rendezvous, job, token, min_size, max_size, target_size and
 * leave_on_sigterm are not used. Blocks until all members are there, and are linked; for that it
 * waits at most join_timeout_ms after the exchange.
 *
 * The membership never changes. If a member is lost, or a call takes longer than its timeout, the
 * communicator has ended: every call of every member returns MUSTER_ENDED, whose text names the
 * member, and only muster_close() is left. What
 * to do then (to open another communicator among the survivors, to exit) is the program's decision.
 *   muster_rejoin()       does nothing while all is well, and is MUSTER_ENDED afterwards
 *   muster_commit()       copies the state; MUSTER_ENDED on all members if one wants to leave
 *   muster_leave()        the next commit is the end for all members
 *   muster_sync()         all get the state of rank 0
 *   muster_restore()      as with a service
 *   muster_run()          calls the function once
 *   muster_generation()   1
 *
 * Errors: MUSTER_INVALID (a bad argument or option; members that differ in size, options or
 * version; a rank that is given twice; an exchange that returns something else than what was sent),
 * MUSTER_RETRY (the exchange function has failed, a member has given up, or some were missing
 * within join_timeout_ms: the error names them), MUSTER_FATAL. Other members wait in their exchange
 * for one whose rank or size is wrong; any other error of one member is told to all. */
MUSTER_STATUS muster_open_with(const muster_options *options, uint32_t rank, uint32_t size,
                               muster_exchange_function exchange, void *user_data,
                               muster_session **ret_session);

/* The session of either function ------------------------------------------------------------- */

/* Leaves the job and frees the session. Blocks for at most two seconds. Accepts NULL. No other call
 * with this session may be running. */
MUSTER_API void muster_close(muster_session *session);

/* Joins the next generation after MUSTER_REJOIN; muster_run() calls it by itself. Afterwards ranks
 * and sizes may be different, and muster_sync() must be called before the state is used. If no call
 * has returned MUSTER_REJOIN in this generation, as when another thread has already rejoined, it
 * does nothing.
 *
 * Blocks, and has the errors of muster_open(). MUSTER_FATAL also after more than ten generations in
 * a row that ended before any collective did: these members cannot reach each other. A member that
 * reaches more than half of the others tries twenty generations, so that the others leave first. */
MUSTER_STATUS muster_rejoin(muster_session *session);

/* Requests to leave the job. The next commit returns MUSTER_REJOIN to every member, and
 * muster_rejoin() then returns MUSTER_ENDED to this one. Async-signal-safe. */
MUSTER_API void muster_leave(muster_session *session);

/* This member's rank among the members of the scope, and their number. They change only in
 * muster_rejoin(). An unknown scope has rank UINT32_MAX and size 0. */
MUSTER_API uint32_t muster_rank(const muster_session *session, muster_scope scope);
MUSTER_API uint32_t muster_size(const muster_session *session, muster_scope scope);

/* This worker's slot: its place on its host, the lowest that was free when it joined. It does not
 * change while the worker lives, as local ranks do when others come and go, and no other living
 * worker of the job has it on this host. Choose devices by it: `device = slot % devices`. The
 * variable MUSTER_SLOT gives a worker its slot, as `muster run` does; a slot that another living
 * process holds is refused by muster_open(). Without a service: MUSTER_SLOT, else the local rank.
 */
MUSTER_API uint32_t muster_slot(const muster_session *session);

/* The number of the generation, below 2^63. It grows whenever the membership changes, also when the
 * service was started anew or has lost its store. Logs and commands show its lower 32 bits, which
 * count the job's generations from 1. */
MUSTER_API uint64_t muster_generation(const muster_session *session);

/* A timeline of a part of the run: records this member's work from the start on in the file
 * PREFIX.GENERATION.RANK.json, named by the present generation and rank; it goes on in the
 * generations that follow. Recorded are the named tensors, and with the option `timeline` (which
 * starts one when the session opens) also the messages of all collectives; then a stop and another
 * start divide the run into several files. muster_trace_stop() returns when all that was recorded
 * is in the file. The file can be read at any time. Any thread; the members need not agree.
 *
 * Errors: MUSTER_INVALID (started already, or not started; or the file cannot be made),
 * MUSTER_FATAL. */
MUSTER_STATUS muster_trace_start(muster_session *session, const char *prefix);
MUSTER_STATUS muster_trace_stop(muster_session *session);

/* Process sets -------------------------------------------------------------------------------- */

/* A process set is a further scope: a group of members that a program names and lists while the job
 * runs, with ranks and a size of its own. Every call that takes a scope takes its number. The
 * number is this process's own; the name is what the members have in common. Sets may overlap;
 * threads may use different sets at the same time.
 *
 * Creating a set is a collective of its members alone: all of them pass the same name and the same
 * list, and no other member of the job takes part. A message of a member that is ahead waits until
 * the others have created the set, too. Threads may create different sets at the same time, also in
 * different orders on different members, but one name in one thread at a time.
 *
 * A set belongs to its generation. After muster_rejoin() (muster_run() calls it) the set of a name
 * has the survivors in their order, under the same number: operations in flight have ended, ranks
 * and sizes are read anew. A newcomer is in none. Those who hold a set may create it again, with
 * any list: all members of the new list create it then, newcomers and survivors alike, and it
 * replaces the old one under the same number. A set of which some survivor knows nothing, as a
 * member died while it was created, ends everywhere: calls with its number are MUSTER_INVALID until
 * it is created again. A set without survivors is gone.
 *
 * Within one generation a name stands for one list: it cannot be created twice, and after
 * muster_process_set_free() only with the same list, by all its members. */

/* Creates a set of these members, of which this process is one. members[i], a global rank, has rank
 * i in the set. Names have 1 to 127 bytes, without control characters. At most 4096 names at a
 * time. Blocks until all members have created it.
 *
 * Errors: MUSTER_INVALID (a bad name or list; the name is in use; or the members disagree about the
 * list: the error names two of them, and a member that only one of the two lists has, or the first
 * place at which they differ; all members that take part get it, those with another list, too),
 * MUSTER_REJOIN (a member died, left, or did not create the set within call_timeout_ms),
 * MUSTER_ENDED, MUSTER_FATAL. */
MUSTER_STATUS muster_process_set(muster_session *session, const char *name, const uint32_t *members,
                                 size_t count, muster_scope *ret_scope);

/* The number of the set of this name. Does not block. MUSTER_INVALID: this process is in none. */
MUSTER_STATUS muster_process_set_find(muster_session *session, const char *name,
                                      muster_scope *ret_scope);

/* Gives the number up. The name may be created again by all who have freed it. Does not block:
 * operations in flight in the set finish, and can be waited for. A member that frees a set which
 * the others keep ends it for them in the next generation.
 *
 * Errors: MUSTER_INVALID (there is no such set), MUSTER_REJOIN (the membership is changing just
 * now), MUSTER_ENDED. */
MUSTER_STATUS muster_process_set_free(muster_session *session, muster_scope scope);

/* A colour for members that are to be in no set; any negative one does the same. */
#define MUSTER_UNDEFINED (-1)

/* Splits a scope into sets: members of the parent that pass the same colour are one. Their ranks
 * are in the order of `key`; equal keys, in the order of their ranks in the parent. All members of
 * the parent call it, with the same name, as a collective of the parent. The set of colour 2 of
 * "rows" is named "rows/2", and if the parent is a set "grid", "grid/rows/2"; if it is MUSTER_LOCAL
 * or MUSTER_CROSS, "local/rows/2" or "cross/rows/2". *ret_scope: the caller's set, or
 * MUSTER_NO_SCOPE. Blocks.
 *
 * Errors: those of muster_allgather() and muster_process_set(). */
MUSTER_STATUS muster_split(muster_session *session, muster_scope parent, int colour, int key,
                           const char *name, muster_scope *ret_scope);

/* Memory -------------------------------------------------------------------------------------- */

/* Allocates memory for buffers of collectives, page-aligned and zeroed. Members of this host map it
 * at the first call that uses it; later calls reduce and copy directly out of it. So it pays for
 * buffers that are used again and again. Unlike other memory it is shared with children made by
 * fork(). Needs no session. The caller frees it with muster_free(). At most 1024 allocations at a
 * time; each takes a file descriptor.
 *
 * Errors: MUSTER_INVALID (more allocations, or too many bytes), MUSTER_FATAL (no memory, no
 * descriptors). */
MUSTER_STATUS muster_alloc(size_t size_bytes, void **ret_memory);

/* Accepts NULL. No collective may be using the memory. */
MUSTER_API void muster_free(void *memory);

/* State --------------------------------------------------------------------------------------- */

/* Registers memory that the job must not lose (weights, optimizer, step count). All members
 * register the same names with the same sizes in the same order, before the first muster_sync().
 * The memory belongs to the caller and must stay valid until muster_close().
 *
 * Errors: MUSTER_INVALID (a name that is used twice, empty or longer than 63 bytes; more than 1024
 * buffers; memory of a GPU; registered after the first commit or sync), MUSTER_FATAL. */
MUSTER_STATUS muster_register(muster_session *session, const char *name, void *data,
                              size_t size_bytes);

/* Copies the registered memory, as the state to return to; then checks, with a small allreduce
 * of all members, whether the membership is to change. All members call it. Blocks. Without
 * registered memory it makes no copy.
 *
 * Errors: MUSTER_REJOIN (the membership is to change, or a member died; the copy has been made,
 * nothing is lost), MUSTER_ENDED, MUSTER_FATAL. */
MUSTER_STATUS muster_commit(muster_session *session);

/* A commit in two parts, so that the caller computes while the copy is made. muster_commit_begin()
 * returns at once, and a thread of the library copies the registered memory, which must not change
 * until muster_commit_end(). That one waits for the copy, makes it the state to return to, and then
 * does the rest of muster_commit(), with the same errors. If the membership changes in between, the
 * state is that of the commit before. For example: begin after the optimizer's step, compute the
 * next gradient, end before the next optimizer's step. It takes memory for a second copy.
 *
 * All members call them, in this order. muster_commit_begin() does not block. Errors:
 * MUSTER_INVALID (end without begin, or begin twice), MUSTER_FATAL (no memory, no thread). */
MUSTER_STATUS muster_commit_begin(muster_session *session);
MUSTER_STATUS muster_commit_end(muster_session *session);

/* Copies the last commit back to the registered memory. MUSTER_INVALID: nothing was ever committed
 * or synced. */
MUSTER_STATUS muster_restore(muster_session *session);

/* Gives the newest committed state to every member that lacks it. All members call it after
 * muster_open() and muster_rejoin(), before they use the state. Blocks. In the first generation all
 * members get the state of rank 0, or, if the option `spill` names a folder with a state of this
 * job, the newest one there.
 *
 * Errors: MUSTER_INVALID (this member's buffers differ in name or size from those that the job has
 * committed: it cannot take part and has to close. The error names the first difference and both
 * sizes. In the first generation, where nothing is committed, every member gets it), MUSTER_REJOIN
 * (a member died during the call, or another member's buffers differ: the next generation forms
 * when that one has left), MUSTER_ENDED, MUSTER_FATAL. */
MUSTER_STATUS muster_sync(muster_session *session);

/* The version of the state in memory: the first sync is 1, or that of the file that the job goes on
 * from; each commit adds 1; 0 before. */
MUSTER_API uint64_t muster_version_of_state(const muster_session *session);

/* The user's function for muster_run(). It works until it is done, calls muster_commit() now and
 * then, and returns any status other than MUSTER_OK as soon as it gets one. It is called again
 * after each change of the membership, with the state of the last commit, and reads ranks and sizes
 * anew each time. */
typedef muster_status (*muster_function)(muster_session *session, void *user);

/* Calls the function until the calls of all members have returned MUSTER_OK, and joins new
 * generations as members come, leave and die. Blocks. `user` is passed to the function.
 *
 * Returns MUSTER_OK when the work is done on every member, MUSTER_ENDED when this member has left
 * as asked or the job was ended, and otherwise the error of the function, muster_rejoin() or
 * muster_sync(). */
MUSTER_STATUS muster_run(muster_session *session, muster_function function, void *user);

#ifdef __cplusplus
}
#endif

#include "muster_collectives.h" /* IWYU pragma: export */
#include "muster_data.h"        /* IWYU pragma: export */
#include "muster_messages.h"    /* IWYU pragma: export */
#include "muster_operations.h"  /* IWYU pragma: export */
#include "muster_values.h"      /* IWYU pragma: export */

#include "muster_engine.h" /* IWYU pragma: export */

#endif
