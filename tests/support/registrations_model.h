/*
 * A device, an address space and a watch for tests of registered memory, all pretended: every page
 * of the address space has a version, which changes when it is unmapped, and the device notes the
 * versions of what it registers. So memory that is not what was registered is seen.
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
    /* The watch: what has gone and, while something is just being unmapped, is not to be told. */
    struct muster_range log[LOG_MAX];
    uint64_t logged;
    bool busy;
    bool forgets; /* the log has overflowed */
    uint32_t users;
    /* The device. */
    struct region *regions[REGIONS_MAX];
    uint32_t region_count;
    uint64_t bytes, limit_bytes; /* of the device */
    int refusal;                 /* the errno of all that it refuses now */
    int refused;                 /* in the present call */
    /* Who uses it. */
    struct muster_usable_range transfers[TRANSFERS];
    struct hold holds[HOLDS];
    uint32_t hold_count;
} model;

/* All anew, with a watch or without. */
void model_begin(uint64_t bound, bool with_watch);
/* Releases and destroys all; nothing may be left. */
void model_finish(void);

/* Part of the pretended address space. */
struct muster_usable_range model_memory(size_t offset, size_t size_bytes);
/* Unmaps those pages that no transfer has; what is watched is told. */
void model_unmap(size_t first, size_t count);
bool model_in_use(uintptr_t begin_address, uintptr_t end_address);

/* Returns how many bytes it was given; 0: none. Checks what it was given. */
size_t model_hold(const struct muster_usable_range *usable, size_t offset, size_t size_bytes);
void model_release(uint32_t index);
/* Ends what may be done with the extent, and zeroes it. */
void model_end(struct muster_usable_range *usable);

#endif
