/* Compares the calls of two members, and describes how they differ. */
#include "collectives/call/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/call/compression.h"

static void print_count(uint64_t count, char *ret_text, size_t size)
{
    if ((count & MUSTER_CALL_LISTED) == 0) {
        (void)snprintf(ret_text, size, "%" PRIu64, count);
    } else {
        (void)snprintf(ret_text, size, "a list with checksum %08" PRIx32, (uint32_t)count);
    }
}

/* "count 100 here, 128 there"; for lists the item that differs is not known. */
static void print_counts(uint64_t here, uint64_t there, char *ret_text, size_t size)
{
    char mine[64];
    char theirs[64];
    print_count(here, mine, sizeof mine);
    print_count(there, theirs, sizeof theirs);
    bool lists = (here & there & MUSTER_CALL_LISTED) != 0;
    (void)snprintf(ret_text, size, "%s %s here, %s there", lists ? "counts per rank:" : "count",
                   mine, theirs);
}

/* Compared by bits, as the other member may send any value, also a NaN. */
static uint64_t factor_bits(double factor)
{
    uint64_t bits;
    memcpy(&bits, &factor, sizeof bits);
    return bits;
}

static bool has_flag(const struct muster_call *call, uint8_t flag)
{
    return (call->flags & flag) != 0;
}

static const char *yes_or_no(bool yes)
{
    return yes ? "yes" : "no";
}

_Static_assert(MUSTER_COMPRESSION_COUNT - 1 <= MUSTER_CALL_COMPRESSION >>
                   MUSTER_CALL_COMPRESSION_SHIFT,
               "a compression needs more bits");

static unsigned compression_of(const struct muster_call *call)
{
    unsigned compression = (call->flags & MUSTER_CALL_COMPRESSION) >> MUSTER_CALL_COMPRESSION_SHIFT;
    return compression != 0 ? compression : MUSTER_COMPRESSION_NONE;
}

/* The first of these flags that differs, or else the compression, which lies in further ones. */
static void print_flags(const struct muster_call *here, const struct muster_call *there,
                        uint8_t mask, char *ret_text, size_t size)
{
    static const struct {
        uint8_t flag;
        const char *name;
    } flags[] = {{MUSTER_CALL_ORDERED, "reproducible"},
                 {MUSTER_CALL_KEEPS_INPUT, "keep_input"},
                 {MUSTER_CALL_FINISHES_TOGETHER, "finish_together"},
                 {MUSTER_CALL_TUNED, "tuning"}};
    (void)snprintf(ret_text, size, "compression %s here, %s there",
                   muster_compression_name(compression_of(here)),
                   muster_compression_name(compression_of(there)));
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool mine = has_flag(here, flags[i].flag);
        if ((flags[i].flag & mask) != 0 && mine != has_flag(there, flags[i].flag)) {
            (void)snprintf(ret_text, size, "%s %s here, %s there", flags[i].name, yes_or_no(mine),
                           yes_or_no(!mine));
            return;
        }
    }
}

/* All flags but the one that the library sets itself. */
enum { ASKED = (uint8_t)~MUSTER_CALL_TUNED };

/* "a set of 2 members (checksum 0a1b2c3d)" */
static void print_set(const struct muster_call *call, char *ret_text, size_t size)
{
    if (has_flag(call, MUSTER_CALL_SET)) {
        (void)snprintf(ret_text, size, "a set of %" PRIu32 " member%s (checksum %08" PRIx32 ")",
                       call->root, call->root == 1 ? "" : "s", (uint32_t)call->count);
    } else {
        (void)snprintf(ret_text, size, "%s",
                       muster_collective_name((enum muster_collective)call->collective));
    }
}

static bool sets_match(const struct muster_call *here, const struct muster_call *there,
                       char *ret_text, size_t size)
{
    char mine[64];
    char theirs[64];
    if (has_flag(here, MUSTER_CALL_SET) == has_flag(there, MUSTER_CALL_SET) &&
        here->root == there->root && here->count == there->count) {
        return true;
    }
    print_set(here, mine, sizeof mine);
    print_set(there, theirs, sizeof theirs);
    (void)snprintf(ret_text, size, "%s here, %s there", mine, theirs);
    return false;
}

/* "the lengths of an average's lists of buffers here, allreduce there" */
static void print_counting(const struct muster_call *here, const struct muster_call *there,
                           char *ret_text, size_t size)
{
    const struct muster_call *calls[] = {here, there};
    const char *names[2];
    for (int i = 0; i < 2; i++) {
        names[i] = calls[i]->counting == MUSTER_COUNTS_BUFFERS ? "an average over lists of buffers"
                   : calls[i]->counting == MUSTER_COUNTS_ALONE
                       ? "the lengths of an average's lists of buffers"
                       : muster_collective_name((enum muster_collective)calls[i]->collective);
    }
    (void)snprintf(ret_text, size, "%s here, %s there", names[0], names[1]);
}

/* "memory of a device here, memory of the host there" */
static bool memories_match(const struct muster_call *here, const struct muster_call *there,
                           char *ret_text, size_t size)
{
    static const char *const names[] = {"memory of the host", "memory of a device",
                                        "memory of several devices or of a device and the host",
                                        "unknown memory"};
    enum { WHERE = MUSTER_CALL_BY_DEVICE - 1 };
    bool by_device = ((here->memory | there->memory) & MUSTER_CALL_BY_DEVICE) != 0;
    if (!by_device || ((here->memory ^ there->memory) & WHERE) == 0) {
        return true;
    }
    (void)snprintf(ret_text, size, "buffers in %s here, in %s there", names[here->memory & WHERE],
                   names[there->memory & WHERE]);
    return false;
}

/* Compares what a user is most likely to have got wrong first. */
bool muster_call_matches(const struct muster_call *here, const struct muster_call *there,
                         char *ret_text, size_t size)
{
    if (has_flag(here, MUSTER_CALL_SET) || has_flag(there, MUSTER_CALL_SET)) {
        return sets_match(here, there, ret_text, size);
    }
    if (!memories_match(here, there, ret_text, size)) {
        return false;
    }
    if (here->counting != there->counting) {
        print_counting(here, there, ret_text, size);
    } else if (here->collective != there->collective) {
        (void)snprintf(ret_text, size, "collective %s here, %s there",
                       muster_collective_name((enum muster_collective)here->collective),
                       muster_collective_name((enum muster_collective)there->collective));
    } else if (here->count != there->count) {
        print_counts(here->count, there->count, ret_text, size);
    } else if (here->type != there->type) {
        (void)snprintf(ret_text, size, "type %s here, %s there",
                       muster_type_name((muster_type)here->type),
                       muster_type_name((muster_type)there->type));
    } else if (here->op != there->op) {
        (void)snprintf(ret_text, size, "operation %s here, %s there",
                       muster_op_name((muster_op)here->op), muster_op_name((muster_op)there->op));
    } else if (factor_bits(here->prescale) != factor_bits(there->prescale)) {
        (void)snprintf(ret_text, size, "prescale %.17g here, %.17g there", here->prescale,
                       there->prescale);
    } else if (factor_bits(here->postscale) != factor_bits(there->postscale)) {
        (void)snprintf(ret_text, size, "postscale %.17g here, %.17g there", here->postscale,
                       there->postscale);
    } else if (here->root != there->root) {
        (void)snprintf(ret_text, size, "root %" PRIu32 " here, %" PRIu32 " there", here->root,
                       there->root);
    } else if (((here->flags ^ there->flags) & ASKED) != 0) {
        print_flags(here, there, ASKED, ret_text, size);
    } else if (here->algorithm != there->algorithm) {
        char names[2][MUSTER_ALGORITHM_NAME_SIZE];
        muster_algorithm_print(here->algorithm, names[0], sizeof names[0]);
        muster_algorithm_print(there->algorithm, names[1], sizeof names[1]);
        (void)snprintf(ret_text, size, "algorithm %s here, %s there", names[0], names[1]);
    } else if (here->flags != there->flags) {
        print_flags(here, there, MUSTER_CALL_TUNED, ret_text, size);
    } else {
        return true;
    }
    return false;
}
