/*
 * A device, an address space and a watch for tests of registrations, all simulated: every page of
 * the address space has a version, which changes when it is unmapped, and the device records the
 * versions of what it registers. So a registration of memory that has changed is detected.
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
    /* The watch: what was unmapped; while something is being unmapped, it cannot be reported. */
    struct muster_range log[LOG_MAX];
    uint64_t logged;
    bool busy;
    bool forgets; /* the log has overflowed */
    uint32_t users;
    /* The device. */
    struct region *regions[REGIONS_MAX];
    uint32_t region_count;
    uint64_t bytes, limit_bytes; /* of the device */
    int refusal;                 /* errno of every refusal now */
    int refused;                 /* in the present call */
    /* The users. */
    struct muster_usable_range transfers[TRANSFERS];
    struct hold holds[HOLDS];
    uint32_t hold_count;
} model;

/* Starts again, with a watch or without. */
void model_begin(uint64_t bound, bool with_watch);
/* Releases and destroys everything, and checks that nothing is left. */
void model_finish(void);

/* A part of the simulated address space. */
struct muster_usable_range model_memory(size_t offset, size_t size_bytes);
/* Unmaps those pages that no transfer uses; the watch reports watched ones. */
void model_unmap(size_t first, size_t count);
bool model_in_use(uintptr_t begin_address, uintptr_t end_address);

/* Returns how many bytes are covered; 0: none. Checks the registration. */
size_t model_hold(const struct muster_usable_range *usable, size_t offset, size_t size_bytes);
void model_release(uint32_t index);
/* Ends the right to use the range, and zeroes it. */
void model_end(struct muster_usable_range *usable);

#endif
