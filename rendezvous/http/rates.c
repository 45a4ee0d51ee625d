/* A bucket is the time at which it is full again: each request moves it on by 1 / rate. */
#include "rendezvous/http/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum { NS_PER_S = 1000 * 1000 * 1000, NS_PER_MS = 1000 * 1000 };
#define BURST_NS ((int64_t)MUSTER_RATES_BURST_S * NS_PER_S)

struct muster_rate {
    char address[MUSTER_ADDRESS_TEXT_SIZE];
    int64_t full_ns, failures_full_ns;
    UT_hash_handle hh;
    struct muster_rate *prev, *next;
};

static bool is_local(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Requests a second of one address; 0: no limit. */
static uint32_t limit_of(const struct muster_rates *rates, const char *address)
{
    if (rates->per_address != 0) {
        return rates->per_address;
    }
    return is_local(address) ? 0 : MUSTER_RATES_PER_ADDRESS;
}

static uint32_t failures_of(uint32_t limit)
{
    return limit > MUSTER_RATES_FAILURES_SHARE ? limit / MUSTER_RATES_FAILURES_SHARE : 1;
}

/* False: there is none. */
static bool forget_oldest(struct muster_rates *rates)
{
    struct muster_rate *rate = rates->oldest;
    if (rate == NULL || rates->table == NULL) { /* both are, or neither is */
        return false;
    }
    HASH_DEL(rates->table, rate);
    DL_DELETE(rates->oldest, rate);
    rates->count--;
    free(rate);
    return true;
}

void muster_rates_finish(struct muster_rates *rates)
{
    while (forget_oldest(rates)) {
    }
}

/* Whose buckets are both full is as one that never asked. */
static void make_room(struct muster_rates *rates, int64_t now_ns)
{
    while (rates->oldest != NULL && rates->oldest->full_ns <= now_ns &&
           rates->oldest->failures_full_ns <= now_ns && forget_oldest(rates)) {
    }
    if (rates->count >= MUSTER_RATES_ADDRESSES_MAX) {
        (void)forget_oldest(rates);
    }
}

static struct muster_rate *find(const struct muster_rates *rates, const char *address)
{
    struct muster_rate *rate = NULL;
    HASH_FIND_STR(rates->table, address, rate);
    return rate;
}

/* At the end of the list; NULL: no memory. */
static struct muster_rate *find_or_add(struct muster_rates *rates, const char *address,
                                       int64_t now_ns)
{
    struct muster_rate *rate = find(rates, address);
    if (rate != NULL) {
        DL_DELETE(rates->oldest, rate);
        DL_APPEND(rates->oldest, rate);
        return rate;
    }
    make_room(rates, now_ns);
    rate = calloc(1, sizeof *rate);
    if (rate == NULL) {
        return NULL;
    }
    (void)snprintf(rate->address, sizeof rate->address, "%s", address);
    HASH_ADD_STR(rates->table, address, rate);
    if (rate->hh.tbl == NULL) {
        free(rate);
        return NULL;
    }
    DL_APPEND(rates->oldest, rate);
    rates->count++;
    return rate;
}

/* How long until the bucket has one more; 0: it has. */
static int64_t wait_ns(int64_t full_ns, int64_t now_ns, int64_t each_ns)
{
    int64_t over_ns = full_ns + each_ns - now_ns - BURST_NS;
    return over_ns > 0 ? over_ns : 0;
}

static void take_one(int64_t *full_ns, int64_t now_ns, int64_t each_ns)
{
    *full_ns = (*full_ns > now_ns ? *full_ns : now_ns) + each_ns;
}

/* Rounded up, so that who waits for so long is let in. */
static uint32_t in_ms(int64_t ns)
{
    return (uint32_t)((ns + NS_PER_MS - 1) / NS_PER_MS);
}

bool muster_rates_take(struct muster_rates *rates, const char *address, int64_t now_ns,
                       uint32_t *ret_wait_ms)
{
    uint32_t limit = limit_of(rates, address);
    if (limit == 0) {
        return true;
    }
    struct muster_rate *rate = find_or_add(rates, address, now_ns);
    int64_t each_ns = NS_PER_S / limit;
    int64_t all_each_ns = each_ns / MUSTER_RATES_ALL_SHARE;
    int64_t own_ns = rate != NULL ? wait_ns(rate->full_ns, now_ns, each_ns) : 0;
    int64_t all_ns = wait_ns(rates->all_full_ns, now_ns, all_each_ns);
    if (own_ns > 0 || all_ns > 0) {
        *ret_wait_ms = in_ms(own_ns > all_ns ? own_ns : all_ns);
        return false;
    }
    if (rate != NULL) {
        take_one(&rate->full_ns, now_ns, each_ns);
    }
    take_one(&rates->all_full_ns, now_ns, all_each_ns);
    return true;
}

void muster_rates_fail(struct muster_rates *rates, const char *address, int64_t now_ns)
{
    uint32_t limit = limit_of(rates, address);
    struct muster_rate *rate = limit != 0 ? find_or_add(rates, address, now_ns) : NULL;
    if (rate != NULL) {
        take_one(&rate->failures_full_ns, now_ns, NS_PER_S / failures_of(limit));
    }
}

bool muster_rates_may_fail(struct muster_rates *rates, const char *address, int64_t now_ns,
                           uint32_t *ret_wait_ms)
{
    uint32_t limit = limit_of(rates, address);
    const struct muster_rate *rate = limit != 0 ? find(rates, address) : NULL;
    int64_t left_ns =
        rate != NULL ? wait_ns(rate->failures_full_ns, now_ns, NS_PER_S / failures_of(limit)) : 0;
    if (left_ns > 0) {
        *ret_wait_ms = in_ms(left_ns);
    }
    return left_ns == 0;
}
