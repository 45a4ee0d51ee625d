/* From the ranges of a call to a request on one buffer. */
#include "collectives/call/request_ranges.h"

#include "worker/base/status.h"

void muster_bound_ranges_finish(struct muster_bound_ranges *bound)
{
    muster_range_list_finish(&bound->in);
    muster_range_list_finish(&bound->out);
}

static muster_status total(const struct muster_request *request, uint64_t *ret_count)
{
    const struct muster_given_ranges *given = request->ranges;
    uint64_t ins = 0;
    uint64_t outs = 0;
    if ((unsigned)request->type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "there is no type %d", (int)request->type);
    }
    TRY(muster_range_list_total(given->outs, given->out_count, "outs", &outs));
    *ret_count = outs;
    if (request->collective == MUSTER_BROADCAST) {
        return MUSTER_OK;
    }
    TRY(muster_range_list_total(given->ins, given->in_count, "ins", &ins));
    return ins == outs
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "ins have %llu elements together, and outs %llu",
                                  (unsigned long long)ins, (unsigned long long)outs);
}

static void *first_of(const struct muster_range_list *list)
{
    return list->count > 0 ? list->runs[0].address : NULL;
}

static const struct muster_range_list *list_of(const struct muster_range_list *list)
{
    return list->count > 1 ? list : NULL;
}

/* In place there is one list for both. */
static muster_status fill(const struct muster_given_ranges *given, size_t element_size_bytes,
                          bool only_outs, struct muster_bound_ranges *bound,
                          struct muster_request *request)
{
    const struct muster_range_list *in = &bound->out;
    TRY(muster_range_list_fill(&bound->out, given->outs, given->out_count, element_size_bytes,
                               "outs"));
    if (!only_outs) {
        TRY(muster_range_list_fill(&bound->in, given->ins, given->in_count, element_size_bytes,
                                   "ins"));
        if (!muster_range_list_equal(&bound->in, &bound->out)) {
            TRY(muster_range_list_check_apart(&bound->in, &bound->out));
            in = &bound->in;
        }
    }
    request->in = first_of(in);
    request->in_ranges = list_of(in);
    request->out = first_of(&bound->out);
    request->out_ranges = list_of(&bound->out);
    return MUSTER_OK;
}

muster_status muster_request_bind_ranges(const struct muster_request *request,
                                         struct muster_bound_ranges *bound,
                                         struct muster_request *ret_request)
{
    struct muster_request made = *request;
    muster_status status = total(request, &made.count);
    made.ranges = NULL;
    if (status == MUSTER_OK) {
        status = fill(request->ranges, muster_type_size_bytes(request->type),
                      request->collective == MUSTER_BROADCAST, bound, &made);
    }
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
    }
    *ret_request = made;
    return MUSTER_OK;
}

static const struct muster_range_list *moved(const struct muster_range_list *list,
                                             struct muster_bound_ranges *from,
                                             struct muster_bound_ranges *to)
{
    return list == &from->in ? &to->in : list == &from->out ? &to->out : NULL;
}

void muster_request_move_ranges(struct muster_request *request, struct muster_bound_ranges *from,
                                struct muster_bound_ranges *to)
{
    request->in_ranges = moved(request->in_ranges, from, to);
    request->out_ranges = moved(request->out_ranges, from, to);
}
