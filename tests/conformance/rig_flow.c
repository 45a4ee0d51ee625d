/* A large message with a fault in its middle. */
#include "tests/conformance/rig_flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FAULT_BYTES = 3 << 20 };

struct rig_flow rig_flow;

void rig_flow_start(void (*inject_fault)(void))
{
    memset(&rig_flow, 0, sizeof rig_flow);
    rig_flow.inject_fault = inject_fault;
    rig_flow.out = malloc(RIG_FLOW_BYTES);
    rig_flow.in = calloc(1, RIG_FLOW_BYTES);
    rig_fill(rig_flow.out, RIG_FLOW_BYTES, RIG_FLOW_SEED);
}

void rig_flow_finish(void)
{
    free(rig_flow.out);
    free(rig_flow.in);
}

void rig_flow_consume(struct muster_transfer *transfer, uint64_t offset, const void *data,
                      size_t size)
{
    (void)transfer;
    memcpy(rig_flow.in + offset, data, size);
    if (offset >= FAULT_BYTES && !rig_flow.injected && rig_flow.inject_fault != NULL) {
        rig_flow.injected = true;
        rig_flow.inject_fault();
    }
}

char *rig_flow_transfer(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer transfer =
        rank == 1 ? rig_send(rig, 0, RIG_FLOW_SEQUENCE, rig_flow.out, RIG_FLOW_BYTES)
                  : rig_receive(rig, 1, RIG_FLOW_SEQUENCE, NULL, RIG_FLOW_BYTES);
    transfer.consume = rank == 0 ? rig_flow_consume : NULL;
    rig_post(rig, rank, &counter, &transfer);
    rig_flow.statuses[rank] = rig_wait(rig, rank, &counter);
    (void)snprintf(rig_flow.reasons[rank], sizeof rig_flow.reasons[rank], "%s",
                   counter.status != MUSTER_OK ? counter.reason : muster_last_error());
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, RIG_FLOW_SEQUENCE);
    if (rig_flow.statuses[rank] != MUSTER_OK) {
        muster_fabric_revoke(rig->fabrics[1 - rank], rig->generation, "a member was reported");
    }
    return NULL;
}

void rig_flow_expect_lost(struct rig *rig, const char *words)
{
    rig_run(rig, rig_flow_transfer, NULL);
    assert_true(rig_flow.injected);
    for (int i = 0; i < 2; i++) {
        print_message("rank %d: %s: %s\n", i, muster_status_name(rig_flow.statuses[i]),
                      rig_flow.reasons[i]);
    }
    assert_int_equal(rig_flow.statuses[0], MUSTER_REJOIN);
    /* At the sender the message may have been complete already. */
    assert_true(rig_flow.statuses[1] == MUSTER_REJOIN || rig_flow.statuses[1] == MUSTER_OK);
    assert_true(strstr(rig_flow.reasons[0], words) != NULL ||
                strstr(rig_flow.reasons[1], words) != NULL);
}

static void run_without_fault(struct rig *rig)
{
    rig_flow.inject_fault = NULL;
    memset(rig_flow.in, 0, RIG_FLOW_BYTES);
    rig_run(rig, rig_flow_transfer, NULL);
}

static void expect_all(void)
{
    for (int i = 0; i < 2; i++) {
        if (rig_flow.statuses[i] != MUSTER_OK) {
            fail_msg("rank %d: %s: %s", i, muster_status_name(rig_flow.statuses[i]),
                     rig_flow.reasons[i]);
        }
    }
    assert_true(rig_filled(rig_flow.in, RIG_FLOW_BYTES, RIG_FLOW_SEED));
}

void rig_flow_expect_moved(struct rig *rig)
{
    run_without_fault(rig);
    expect_all();
}

void rig_flow_expect_recovered(struct rig *rig)
{
    rig_begin(rig);
    run_without_fault(rig);
    if (rig_flow.statuses[0] == MUSTER_REJOIN || rig_flow.statuses[1] == MUSTER_REJOIN) {
        rig_begin(rig);
        run_without_fault(rig);
    }
    expect_all();
}
