/*
 * The keys and leases of an etcd, in memory: what musterd asks through the JSON gateway, and the
 * answers that etcd gives. Whoever has it brings the requests to it and says what time it is.
 * Locks: the caller's.
 */
#ifndef MUSTER_TESTS_SUPPORT_PRETENDED_ETCD_H
#define MUSTER_TESTS_SUPPORT_PRETENDED_ETCD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pretended_etcd;

struct pretended_etcd *pretended_etcd_create(void);
/* Accepts NULL. */
void pretended_etcd_destroy(struct pretended_etcd *etcd);

/* POST /v3/METHOD: the answer, which the caller owns. *ret_http: 200, or that of an error. Fails
 * the test for a method or an operation that musterd does not use. */
json_t *pretended_etcd_call(struct pretended_etcd *etcd, const char *method, const json_t *request,
                            int64_t now_ns, int *ret_http);

/* Ends the leases whose time is over. A lease lasts up to this much longer than it was granted. */
void pretended_etcd_tick(struct pretended_etcd *etcd, int64_t now_ns);
void pretended_etcd_late_by(struct pretended_etcd *etcd, int64_t late_ns);
/* When the next lease ends; INT64_MAX: there is none. */
int64_t pretended_etcd_next_ns(const struct pretended_etcd *etcd);

/* How many keys that begin so have been deleted, ever. */
uint64_t pretended_etcd_deleted(const struct pretended_etcd *etcd);
/* The value of a key, as base64; NULL: there is none. */
const char *pretended_etcd_value(const struct pretended_etcd *etcd, const char *key);
/* The first key that begins so; NULL: there is none. */
const char *pretended_etcd_first(const struct pretended_etcd *etcd, const char *prefix);

#endif
