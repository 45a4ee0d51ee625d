/* Buffers that are unmapped and mapped again at the same address, or of which children of fork()
 * have copies: a device reads the caller's present memory, never the pages that were registered
 * before. */
#include "tests/support/group.h"
#include "tests/support/guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 12,
    CHILDREN = 3,       /* at a time */
    COUNT = 400 * 1000, /* of int32: over one block of registered memory */
    BYTES = COUNT * 4,
};

/* How the memory of the round before is released. */
enum giving_up { UNMAPPED, EMPTIED, KINDS };

static int32_t *map_at(void *address)
{
    int32_t *memory =
        mmap(address, BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (address != NULL ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* The same address, unless another mapping has it. */
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

static void memory_that_is_mapped_again_is_sent_as_it_is_now(void **state)
{
    (void)state;
    for (enum giving_up kind = UNMAPPED; kind < KINDS; kind++) {
        struct group group;
        group_start_flat(&group, GROUP_VERBS, 2);
        group_each(&group, work, &kind);
        group_finish(&group);
    }
}

/* A child that writes into its copies of the buffers, and lives until it reads a byte. Its exit
 * status shows that it could access them. */
struct child {
    pid_t process;
    int to_child[2], from_child[2]; /* pipes */
};

static void run_child(const struct child *child, int32_t *in, int32_t *out)
{
    char word = 'w';
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(in, 0x5a, BYTES);
    memset(out, 0x5a, BYTES);
    bool written = write(child->from_child[1], &word, 1) == 1;
    bool ended = read(child->to_child[0], &word, 1) == 1;
    _exit(written && ended && in[COUNT - 1] == 0x5a5a5a5a ? EXIT_SUCCESS : EXIT_FAILURE);
}

static bool start_child(struct child *child, int32_t *in, int32_t *out)
{
    char word = 0;
    if (pipe(child->to_child) != 0 || pipe(child->from_child) != 0) {
        return false;
    }
    child->process = fork();
    if (child->process == 0) {
        run_child(child, in, out);
    }
    (void)close(child->from_child[1]);
    bool lives = child->process > 0 && read(child->from_child[0], &word, 1) == 1;
    (void)close(child->from_child[0]);
    return lives;
}

static bool end_child(const struct child *child)
{
    char word = 'e';
    int wait_status = -1;
    bool sent = write(child->to_child[1], &word, 1) == 1;
    (void)close(child->to_child[0]);
    (void)close(child->to_child[1]);
    return waitpid(child->process, &wait_status, 0) == child->process && sent && wait_status == 0;
}

static void work_beside_children(struct group_member *member, void *argument)
{
    struct child children[CHILDREN];
    int32_t *in = map_at(NULL);
    int32_t *out = map_at(NULL);
    bool good = in != NULL && out != NULL && add_up(member, in, out, 0);
    (void)argument;
    for (int32_t i = 0; i < CHILDREN && good; i++) {
        if (!start_child(&children[i], in, out)) {
            group_fail(member, "child %d cannot write into its memory", i);
            return;
        }
        good = add_up(member, in, out, i + 1) && add_up(member, in, out, -i);
    }
    for (int32_t i = 0; i < CHILDREN && good; i++) {
        if (!end_child(&children[i])) {
            group_fail(member, "child %d has not its own memory", i);
        }
    }
    (void)(in != NULL && munmap(in, BYTES));
    (void)(out != NULL && munmap(out, BYTES));
}

static void children_of_fork_have_their_own_memory(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_VERBS, 2);
    group_each(&group, work_beside_children, NULL);
    group_finish(&group);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_mapped_again_is_sent_as_it_is_now),
        cmocka_unit_test(children_of_fork_have_their_own_memory),
    };
    (void)count;
    guest_need_rdma(arguments[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
