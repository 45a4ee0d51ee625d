/* Calls on ranges of which some are memory of a device, which the CPU cannot touch: of two devices,
 * the toy device and a pretended GPU, mixed with memory of the host. Blocking, in flight and
 * persistent, over every transport; and what goes wrong is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/request_ranges.h"
#include "tests/support/devices.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"

enum {
    CALLS = 120,
    ELEMENTS_MAX = 20000,
    CUTS_MAX = 40,
    GAP_MAX = 16,
    CHUNK_BYTES = (ELEMENTS_MAX + CUTS_MAX * GAP_MAX) * 8,
    PLACES = 3, /* the host and two devices */
};

static const struct test_device *devices[PLACES];
static uint64_t seed;

/* Memory of each place, and ranges that lie in it: where the library sees them, and the test. */
struct cut {
    char *chunks[PLACES]; /* as the library sees them */
    muster_range ranges[CUTS_MAX], aliases[CUTS_MAX];
    size_t count;
};

static void allocate_cut(struct cut *cut)
{
    for (size_t i = 0; i < PLACES; i++) {
        cut->chunks[i] = devices[i]->allocate(CHUNK_BYTES);
    }
}

static void release_cut(struct cut *cut)
{
    for (size_t i = 0; i < PLACES; i++) {
        devices[i]->release(cut->chunks[i]);
    }
}

/* In every fourth cut all ranges are in one place, and some follow each other without a gap. */
static void draw_cut(struct cut *cut, uint64_t elements, size_t element_bytes, uint64_t *random)
{
    uint64_t left = elements;
    size_t used[PLACES] = {0};
    size_t only = test_random(random) % 12;
    cut->count = 1 + test_random(random) % CUTS_MAX;
    for (size_t i = 0; i < cut->count; i++) {
        size_t place = only < PLACES ? only : test_random(random) % PLACES;
        uint64_t most = test_random(random) % 3 == 0 ? left : left < 40 ? left : 40;
        size_t count = i + 1 == cut->count ? left : test_random(random) % (most + 1);
        char *address = cut->chunks[place] + used[place];
        cut->ranges[i] = (muster_range){address, count};
        cut->aliases[i] = (muster_range){devices[place]->alias(address), count};
        used[place] += (count + test_random(random) % GAP_MAX) * element_bytes;
        left -= count;
    }
}

static void copy_into(const struct cut *cut, const char *from, size_t element_bytes)
{
    for (size_t i = 0; i < cut->count; i++) {
        memcpy(cut->aliases[i].address, from, cut->aliases[i].count * element_bytes);
        from += cut->aliases[i].count * element_bytes;
    }
}

static void copy_from(const struct cut *cut, char *to, size_t element_bytes)
{
    for (size_t i = 0; i < cut->count; i++) {
        memcpy(to, cut->aliases[i].address, cut->aliases[i].count * element_bytes);
        to += cut->aliases[i].count * element_bytes;
    }
}

/* What all members draw alike. */
struct drawn {
    struct muster_request request;
    enum { BLOCKS, STARTS, PERSISTS, FORMS } form;
};

static struct drawn draw(uint64_t *common, uint32_t ranks)
{
    struct drawn drawn = {.request = {.collective = test_random(common) % 4 == 0 ? MUSTER_BROADCAST
                                                                                 : MUSTER_ALLREDUCE,
                                      .deadline_ns = group_deadline()}};
    drawn.request.count = test_random(common) % (test_random(common) % 3 == 0 ? ELEMENTS_MAX : 500);
    pattern_pair(test_random(common) % pattern_pairs(), &drawn.request.type, &drawn.request.op);
    drawn.request.user_function = pattern_user;
    drawn.request.root = (uint32_t)(test_random(common) % ranks);
    drawn.request.keep_input = test_random(common) % 3 == 0;
    drawn.form = test_random(common) % FORMS;
    return drawn;
}

/* One member's part of a call. */
struct part {
    struct muster_request pattern; /* the same on two buffers of the test */
    struct cut *in, *out;          /* one if the call is in place */
    size_t element_bytes;
};

static void fill_part(const struct group_member *member, const struct part *part)
{
    const struct muster_request *pattern = &part->pattern;
    char *to = pattern->collective == MUSTER_BROADCAST ? pattern->out : (char *)pattern->in;
    pattern_fill(pattern, to, member->rank, member->group->size);
    copy_into(part->in, to, part->element_bytes);
}

static void check_part(struct group_member *member, const struct part *part)
{
    char text[256];
    copy_from(part->out, part->pattern.out, part->element_bytes);
    if (pattern_check(&part->pattern, member->rank, member->group->size, text, sizeof text) != 0) {
        group_fail(member, "%llu elements of %s: %s", (unsigned long long)part->pattern.count,
                   muster_type_name(part->pattern.type), text);
    }
    if (part->in == part->out) {
        return;
    }
    copy_from(part->in, (char *)part->pattern.in, part->element_bytes);
    if (pattern_check_input(&part->pattern, member->rank, member->group->size, text, sizeof text) !=
        0) {
        group_fail(member, "the input has changed: %s", text);
    }
}

static void expect_ok(struct group_member *member, muster_status status)
{
    if (status != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

/* A persistent call runs twice, on the same ranges and new data. */
static void run_part(struct group_member *member, const struct part *part,
                     struct muster_request *call, int form)
{
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct muster_started_call *started = NULL;
    fill_part(member, part);
    if (form == BLOCKS) {
        expect_ok(member, muster_context_run(context, call, NULL));
        check_part(member, part);
        return;
    }
    bool persists = form == PERSISTS;
    muster_status status = persists ? muster_context_make_persistent(context, call, &started)
                                    : muster_context_start(context, call, &started);
    expect_ok(member, status);
    call->ranges = NULL; /* the list was needed until the start returned */
    for (int i = 0; i < (persists ? 2 : 1) && status == MUSTER_OK; i++) {
        if (persists) {
            fill_part(member, part);
            expect_ok(member, muster_started_call_start(started));
        }
        expect_ok(member, muster_started_call_end(started, NULL));
        check_part(member, part);
    }
    if (persists && status == MUSTER_OK) {
        muster_started_call_free(started);
    }
}

static void call_once(struct group_member *member, const struct drawn *drawn, struct cut cuts[2],
                      uint64_t *own)
{
    const struct muster_request *request = &drawn->request;
    bool one = request->collective == MUSTER_BROADCAST || test_random(own) % 2 == 0;
    struct part part = {.pattern = *request,
                        .in = &cuts[0],
                        .out = one ? &cuts[0] : &cuts[1],
                        .element_bytes = muster_type_size_bytes(request->type)};
    char *in = malloc((request->count + 1) * part.element_bytes);
    char *out = malloc((request->count + 1) * part.element_bytes);
    part.pattern.in = request->collective == MUSTER_BROADCAST ? out : in;
    part.pattern.out = out;
    draw_cut(&cuts[0], request->count, part.element_bytes, own);
    draw_cut(&cuts[1], request->count, part.element_bytes, own);
    const struct muster_given_ranges given = {.ins = part.in->ranges,
                                              .in_count = part.in->count,
                                              .outs = part.out->ranges,
                                              .out_count = part.out->count};
    struct muster_request call = *request;
    call.ranges = &given;
    call.count = 0;
    run_part(member, &part, &call, (int)drawn->form);
    free(in);
    free(out);
}

static void run_calls(struct group_member *member, void *argument)
{
    uint64_t common = seed;
    uint64_t own = seed + 1 + member->rank;
    struct cut cuts[2];
    (void)argument;
    allocate_cut(&cuts[0]);
    allocate_cut(&cuts[1]);
    for (int i = 0; i < CALLS && member->failure[0] == '\0'; i++) {
        const struct drawn drawn = draw(&common, member->group->size);
        call_once(member, &drawn, cuts, &own);
    }
    release_cut(&cuts[0]);
    release_cut(&cuts[1]);
}

static void ranges_may_be_of_any_memory(void **state)
{
    static const uint32_t hosts[] = {2, 1};
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, 2);
        group_each(&group, run_calls, NULL);
        group_finish(&group);
        group_start(&group, transport, transport == GROUP_MEMORY ? 1 : 2, hosts, NULL);
        group_each(&group, run_calls, NULL);
        group_finish(&group);
    }
}

/* Faults -------------------------------------------------------------------------------------- */

static const struct gpu_pretend *gpu;

static muster_status sum_ranges(struct group_member *member, muster_range *ranges, size_t count,
                                bool starts)
{
    const struct muster_given_ranges given = {ranges, ranges, count, count};
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .ranges = &given,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = group_deadline()};
    struct muster_started_call *call = NULL;
    if (!starts) {
        return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    }
    TRY(muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call));
    return muster_started_call_end(call, NULL);
}

static void expect(struct group_member *member, muster_status status, muster_status wanted,
                   const char *word)
{
    if (status != wanted || strstr(muster_last_error(), word) == NULL) {
        group_fail(member, "%s, not %s with \"%s\": %s", muster_status_name(status),
                   muster_status_name(wanted), word, muster_last_error());
    }
}

/* First the copy of the input fails, then that of the output. */
static void fail_copies(struct group_member *member, void *argument)
{
    bool starts = *(bool *)argument;
    float here[4] = {0};
    muster_range ranges[] = {{here, 2}, {devices[2]->allocate(64), 2}};
    expect(member, sum_ranges(member, ranges, 2, starts), MUSTER_FATAL,
           "CUDA_ERROR_ILLEGAL_ADDRESS");
    devices[2]->release(ranges[1].address);
}

static void a_failed_copy_is_fatal_and_named(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        struct group group;
        bool starts = way >= 2;
        group_start_flat(&group, GROUP_INPROC, 1);
        gpu->fail_after(GPU_PRETEND_COPY, way % 2);
        group_each(&group, fail_copies, &starts);
        gpu->fail_after(GPU_PRETEND_COPY, UINT32_MAX);
        group_finish(&group);
    }
}

/* None of these has a number, so the context goes on. */
static void call_wrongly(struct group_member *member, void *argument)
{
    (void)argument;
    for (int starts = 0; starts < 2; starts++) {
        char *data = devices[1]->allocate(100);
        muster_range beyond[] = {{data, 2}, {data + 64, 100}};
        muster_range crossed[] = {{data, 2}, {data + 4, 2}};
        muster_range good[] = {{data, 2}, {data + 16, 2}};
        expect(member, sum_ranges(member, beyond, 2, starts), MUSTER_INVALID,
               "allreduce: range 1 of outs has 400 bytes, and its allocation in memory of a device "
               "ends after 64");
        expect(member, sum_ranges(member, crossed, 2, starts), MUSTER_INVALID,
               "ranges 0 and 1 of outs overlap");
        expect_ok(member, sum_ranges(member, good, 2, starts));
        devices[1]->release(data);
    }
}

static void wrong_ranges_are_named(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, 2);
    group_each(&group, call_wrongly, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_may_be_of_any_memory),
        cmocka_unit_test(a_failed_copy_is_fatal_and_named),
        cmocka_unit_test(wrong_ranges_are_named),
    };
    seed = test_seed();
    devices[0] = devices_start("host");
    devices[1] = devices_start("toy");
    devices[2] = devices_start("cuda");
    gpu = gpu_pretend_load(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
