/*
 * Muster: values, small pieces of data that the members of a job exchange through the service.
 * muster.h includes this header; programs include muster.h.
 *
 * What muster.h says of errors, threads and blocking holds here, too.
 */
#ifndef MUSTER_VALUES_H
#define MUSTER_VALUES_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* How long a value is kept. */
typedef enum muster_value_lifetime {
    MUSTER_VALUE_OF_JOB = 0,        /* as long as the job */
    MUSTER_VALUE_OF_GENERATION = 1, /* as long as the present generation */
} muster_value_lifetime;

/* Options of a call. New fields are added at the end, as in muster_options. */
typedef struct muster_value_options {
    /* sizeof(muster_value_options); muster_value_options_init() sets it. */
    size_t size;
    /* Default: the job's. */
    muster_value_lifetime lifetime;
    /* How long the call may block. Default: 0, which means 30,000. */
    uint32_t timeout_ms;
    /* For muster_value_put(), muster_value_add() and muster_value_compare_and_swap(): a UUID that
     * names the change. A change with the name of one that was made is made no second time, and has
     * its result: so a program can repeat a call that returned MUSTER_RETRY. The service remembers
     * the last 128 names of each key. Default: NULL, a new name for each call. */
    const char *request_id;
} muster_value_options;

/* muster_value_options_init(muster_value_options *options) fills in the size and all defaults. */
MUSTER_API void muster_value_options_init_sized(muster_value_options *options, size_t size);
#define muster_value_options_init(options) \
    muster_value_options_init_sized((options), sizeof(muster_value_options))

/* The bytes of a value. They belong to the caller, who frees them with muster_value_finish(). A
 * zero byte that is not counted follows them. */
typedef struct muster_value {
    void *data; /* NULL: there is no such value */
    size_t size_bytes;
} muster_value;

/* Frees the bytes, and clears *value. Accepts a cleared one. */
MUSTER_API void muster_value_finish(muster_value *value);

enum {
    MUSTER_VALUE_KEY_MAX_BYTES = 255,
    MUSTER_VALUE_BYTES_MAX = 64 * 1024,
    MUSTER_VALUE_KEYS_MAX = 4096,
};

/* A value has a key: 1 to MUSTER_VALUE_KEY_MAX_BYTES bytes of UTF-8 without control characters. The
 * values of the job and those of the generation have keys of their own. A value has at most
 * MUSTER_VALUE_BYTES_MAX bytes, may be empty, and is in the service's store once the call has
 * returned: it survives a restart of the service. A job has at most MUSTER_VALUE_KEYS_MAX values,
 * of 4 MiB together.
 *
 * The calls are for what is exchanged now and then; each is a request to the service of about a
 * millisecond. They use connections of their own: collectives, commits and the membership go on
 * while a call waits, also if the service is slow or away. All calls block, for timeout_ms at most,
 * and may be made by any number of threads; 64 at the same time are under way, of which 48 wait for
 * keys, and further ones wait for their turn. options may be NULL.
 *
 * Errors: MUSTER_INVALID (a bad key, size or option; the service refuses the job's token; a session
 * without a service), MUSTER_RETRY (the service could not be reached in time, or has no room; with
 * a request_id it is known after a repetition whether the change was made), MUSTER_REJOIN (the
 * generation, whose value it is, has ended), MUSTER_ENDED (the job is over), MUSTER_FATAL (no
 * memory, or what answers is no such service).
 *
 * A call that changes a value is repeated by itself until an answer has come, and the change is
 * made once. If none has come in time, it may have been made, or not; a service that was away or
 * frozen meanwhile does not make it later. One exception: where an answer is lost during
 * muster_value_delete(), the repetition may delete a value that another member has put meanwhile.
 */

/* Sets a value. data may be NULL if size_bytes is 0. */
MUSTER_STATUS muster_value_put(muster_session *session, const char *key, const void *data,
                               size_t size_bytes, const muster_value_options *options);

/* Reads a value. MUSTER_OK with ret_value->data NULL: there is none. */
MUSTER_STATUS muster_value_get(muster_session *session, const char *key,
                               const muster_value_options *options, muster_value *ret_value);

/* Reads a value, for which it waits if there is none yet. MUSTER_RETRY also if there is none within
 * the time. */
MUSTER_STATUS muster_value_wait(muster_session *session, const char *key,
                                const muster_value_options *options, muster_value *ret_value);

/* Waits until each of these keys has a value. MUSTER_RETRY also if one has none within the time;
 * the error names one of these. */
MUSTER_STATUS muster_value_wait_all(muster_session *session, const char *const *keys, size_t count,
                                    const muster_value_options *options);

/* Adds to a value that is a decimal number, or not there, which is 0. *ret_sum is the new value.
 * Additions of several members at once all count. MUSTER_INVALID also if the value is something
 * else, or the sum needs more than 64 bits. */
MUSTER_STATUS muster_value_add(muster_session *session, const char *key, int64_t amount,
                               const muster_value_options *options, int64_t *ret_sum);

/* What a value must be for a swap, and what it is then. */
typedef struct muster_value_swap {
    const void *expected; /* of 0 bytes: the value is empty, or there is none */
    size_t expected_size_bytes;
    const void *desired;
    size_t desired_size_bytes;
} muster_value_swap;

/* Sets the value to the desired one if it is the expected one. *ret_swapped: 1 if so, otherwise 0.
 * *ret_value is the value after the call; empty if there is none. Either may be NULL. */
MUSTER_STATUS muster_value_compare_and_swap(muster_session *session, const char *key,
                                            const muster_value_swap *swap,
                                            const muster_value_options *options, int *ret_swapped,
                                            muster_value *ret_value);

/* Deletes a value. *ret_deleted (may be NULL): 1, or 0 if there was none. */
MUSTER_STATUS muster_value_delete(muster_session *session, const char *key,
                                  const muster_value_options *options, int *ret_deleted);

/* Counts the keys that begin with the prefix; "" or NULL: all. */
MUSTER_STATUS muster_value_count(muster_session *session, const char *prefix,
                                 const muster_value_options *options, uint32_t *ret_count);

#ifdef __cplusplus
}
#endif

#endif
