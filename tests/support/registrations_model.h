/*
 * A pretended device, address space and unmap watch for tests of registered memory. Every page of
 * the address space has a version, which changes when the page is unmapped. The device records the
 * versions of the pages that it registers, so that a stale registration is found.
 */
#ifndef MUSTER_TESTS_WORKER_FABRIC_VERBS_REGISTRATIONS_MODEL_H
#define MUSTER_TESTS_WORKER_FABRIC_VERBS_REGISTRATIONS_MODEL_H

#include "worker/fabric/verbs/registrations.h"
#include "worker/muster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK = MUSTER_REGISTRATION_BLOCK_BYTES,
    BLOCKS = 4, /* the first half of them can be watched */
    PAGES_MAX = BLOCKS * BLOCK / 4096,
    PIECES = 2,
    PIECE_BYTES = 2 * BLOCK + 3 * 4096 + 1,
    TRANSFERS = 4,
    HOLDS = 12,
    REGIONS_MAX = 1024,
    LOG_MAX = 4096,
};

/* What the device has registered. */
struct region {
    uintptr_t begin, end;
    uint32_t held;
    uint32_t versions[BLOCK / 4096];
};

struct hold {
    struct muster_registration *registration;
    struct region *region;
};

extern struct model {
    struct muster_registrations *registrations;
    uintptr_t page;
    uint64_t bound;
    /* The address space. */
    uint32_t versions[PAGES_MAX];
    bool watched[PAGES_MAX];
    struct {
        void *memory;
        uint32_t version;
    } pieces[PIECES];
    uint32_t last_version;
    /* The unmap watch: a log of the unmapped ranges. */
    struct muster_address_range log[LOG_MAX];
    uint64_t logged;
    bool busy;    /* an unmap is in progress: the log cannot be read */
    bool forgets; /* the log has overflowed */
    uint32_t users;
    /* The device. */
    struct region *regions[REGIONS_MAX];
    uint32_t region_count;
    uint64_t bytes, limit_bytes; /* of the device */
    int refusal; /* the errno with which it refuses every registration now; 0: none */
    int refused; /* the errno of the last refusal in this call; 0: none */
    /* The users of the registrations. */
    struct muster_usable_range transfers[TRANSFERS];
    struct hold holds[HOLDS];
    uint32_t hold_count;
} model;

/* Resets the model, with an unmap watch or without. */
void model_begin(uint64_t bound, bool with_watch);
/* Releases and destroys everything, and asserts that nothing is left. */
void model_finish(void);

/* Part of the pretended address space. */
struct muster_usable_range model_memory(size_t offset, size_t size_bytes);
/* Unmaps the pages that no transfer uses; the watched ones are logged. */
void model_unmap(size_t first, size_t count);
bool model_in_use(uintptr_t begin_address, uintptr_t end_address);

/* Holds a registration of these bytes, checks it, and returns how many of them it covers; 0: there
 * is no registration. */
size_t model_hold(const struct muster_usable_range *usable, size_t offset, size_t size_bytes);
void model_release(uint32_t index);
/* Ends the use of the range, and zeroes it. */
void model_end(struct muster_usable_range *usable);

#endif
