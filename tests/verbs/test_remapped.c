/* Buffers that come and go at the same address: what a device reads is what the caller's memory is
 * now, and never what was there when it was registered. */
#include "tests/support/group.h"
#include "tests/support/guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    ROUNDS = 12,
    COUNT = 400 * 1000, /* of int32: over one block of registered memory */
    BYTES = COUNT * 4,
};

/* How the memory of the round before is given up. */
enum giving_up { UNMAPPED, EMPTIED, KINDS };

static int32_t *map_at(void *address)
{
    int32_t *memory =
        mmap(address, BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (address != NULL ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* The same address if nobody else has got it. */
static int32_t *renew(int32_t *memory, enum giving_up kind)
{
    if (kind == EMPTIED) {
        return madvise(memory, BYTES, MADV_DONTNEED) == 0 ? memory : NULL;
    }
    (void)munmap(memory, BYTES);
    int32_t *again = map_at(memory);
    return again != NULL ? again : map_at(NULL);
}

static bool add_up(struct group_member *member, int32_t *in, int32_t *out, int32_t round)
{
    for (int32_t i = 0; i < COUNT; i++) {
        in[i] = round * 1000 + i % 7 + (int32_t)member->rank;
    }
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = in,
                                           .out = out,
                                           .count = COUNT,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "round %d: %s", round, muster_last_error());
        return false;
    }
    for (int32_t i = 0; i < COUNT; i++) {
        if (out[i] != 2 * (round * 1000 + i % 7) + 1) {
            group_fail(member, "round %d: element %d is %d", round, i, out[i]);
            return false;
        }
    }
    return true;
}

static void work(struct group_member *member, void *argument)
{
    const enum giving_up *kind = argument;
    int32_t *in = map_at(NULL);
    int32_t *out = map_at(NULL);
    bool good = true;
    for (int32_t round = 0; round < ROUNDS && good; round++) {
        good = in != NULL && out != NULL && add_up(member, in, out, round);
        if (good) {
            in = renew(in, *kind);
            out = renew(out, *kind);
        }
    }
    if (in == NULL || out == NULL) {
        group_fail(member, "no memory");
    }
    (void)(in != NULL && munmap(in, BYTES));
    (void)(out != NULL && munmap(out, BYTES));
}

static void memory_that_is_mapped_anew_is_sent_as_it_is(void **state)
{
    (void)state;
    for (enum giving_up kind = UNMAPPED; kind < KINDS; kind++) {
        struct group group;
        group_start_flat(&group, GROUP_VERBS, 2);
        group_each(&group, work, &kind);
        group_finish(&group);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_mapped_anew_is_sent_as_it_is)};
    (void)count;
    guest_need_rdma(arguments[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
