/*
 * Committed states as files: JOB.GENERATION.VERSION.state, both numbers with 16 hexadecimal digits.
 *
 *   head       "MUSTERST", format 1 (4), number of buffers (4), generation (8), version (8)
 *   outlines   of the buffers, as sync_wire.h has them
 *   checksum   CRC-32 of all before (4)
 *   then for each buffer its bytes, and their CRC-32 (4)
 *
 * Numbers are little-endian. A file gets its name when it is whole and on the disk, and is never
 * written again, so whoever finds a name finds a whole state. The newest is the one of the highest
 * generation, and of these the one of the highest version: a member that was cut off and still
 * counts itself as rank 0 has an old generation, whatever its version.
 *
 * May use: state, sync_wire, base.
 */
#ifndef MUSTER_WORKER_SESSION_SPILL_FILE_H
#define MUSTER_WORKER_SESSION_SPILL_FILE_H

#include "worker/session/state.h"

enum {
    MUSTER_SPILL_FILES_MAX = 1024,    /* of a job, that are looked at */
    MUSTER_SPILL_NAME_SIZE = 65 + 48, /* of a file */
};

/* Whose files. Borrowed. */
struct muster_spill_place {
    const char *folder, *job;
};

struct muster_spill_key {
    uint64_t generation, version;
};

/* Writes the copy of the state's buffers at `bytes`. A file of this key that is there already
 * stays. MUSTER_RETRY: it could not be written (a full disk, no such folder): the text names the
 * file and the reason, and nothing is left behind. */
MUSTER_CHECKED muster_status muster_spill_file_write(const struct muster_spill_place *place,
                                                     const struct muster_state *state,
                                                     const unsigned char *bytes,
                                                     struct muster_spill_key key);

/* The keys of the files that have such names, the newest first; at most MUSTER_SPILL_FILES_MAX.
 * ret_keys: [MUSTER_SPILL_FILES_MAX]. MUSTER_RETRY: the folder cannot be read. */
MUSTER_CHECKED muster_status muster_spill_file_list(const struct muster_spill_place *place,
                                                    struct muster_spill_key *ret_keys,
                                                    uint32_t *ret_count);

/* Reads the file of this key into `ret_bytes`, which is a copy of the state's. MUSTER_INVALID: it
 * is no file of Muster, of another format, torn, truncated or edited, or holds other buffers; the
 * text names the file and says which. MUSTER_RETRY: it cannot be read. ret_bytes has any contents
 * then. */
MUSTER_CHECKED muster_status muster_spill_file_read(const struct muster_spill_place *place,
                                                    const struct muster_state *state,
                                                    struct muster_spill_key key,
                                                    unsigned char *ret_bytes);

/* Removes all but the `keep` newest, and what writers that have died left. */
void muster_spill_file_prune(const struct muster_spill_place *place, uint32_t keep);

#endif
