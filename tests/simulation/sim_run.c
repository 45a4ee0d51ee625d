/* One run: a plan drawn from the seed, faults for a while, then peace, in which all must form. */
#include "tests/simulation/sim.h"

#include "worker/base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETTLE_MS = 200000, STEPS_MAX = 20000000, LOOK_MS = 500, READ_EVERY_MS = 1000 };

static void write_nowhere(enum muster_log_level level, const char *text)
{
    (void)level;
    (void)text;
}

#define SECONDS(n) ((int64_t)(n)*1000 * SIM_MS)

static uint32_t maybe(uint32_t weight)
{
    return sim_chance(500) ? weight : 0;
}

/* Generations that last a second, and copies of requests that arrive in a later one. */
static void hurry(struct sim_plan *plan)
{
    plan->fault_every_ns = SIM_MS * sim_between(300, 2000);
    plan->step_ns = SIM_MS * sim_between(10, 60);
    plan->kills = 3;
    plan->freezes = 3;
    plan->network.twin = (uint32_t)sim_between(100, 500);
    plan->network.twin_ns = SIM_MS * sim_between(200, 4000);
    plan->network.slow_ns = SIM_MS * sim_between(200, 3000);
}

void sim_plan_draw(struct sim_plan *plan, unsigned workers)
{
    unsigned count = workers > 0 ? workers : (unsigned)sim_between(1, sim_chance(100) ? 24 : 8);
    *plan = (struct sim_plan){
        .workers = count,
        .hosts = (unsigned)sim_between(1, count < 5 ? count : 5),
        .min = (uint32_t)sim_between(1, (count + 1) / 2),
        .max = count,
        .work = sim_chance(250) ? (uint64_t)sim_between(5, 60) : 0,
        .faults_ns = SECONDS(sim_between(10, 60)),
        .fault_every_ns = SECONDS(1) * sim_between(2, 8),
        .step_ns = SIM_MS * sim_between(100, 2000),
        .network = {.lose = maybe((uint32_t)sim_between(1, 60)),
                    .twin = maybe((uint32_t)sim_between(1, 100)),
                    .reset = maybe((uint32_t)sim_between(1, 60)),
                    .delay_ns = SIM_MS * sim_between(1, 20),
                    .slow_ns = SIM_MS * sim_between(20, 3000),
                    .twin_ns = SIM_MS * sim_between(10, 15000)},
        .kills = maybe(3),
        .lost_hosts = maybe(1),
        .freezes = maybe(2),
        .leaves = maybe(1),
        .starts = 4,
        .resizes = maybe(1),
        .stops = maybe(1),
        .server_kills = maybe(2),
        .power_losses = maybe(2),
        .pauses = maybe(2),
        .behind = maybe(1),
        .proxy_restarts = maybe(1),
        .full_disks = maybe(1),
        .links = maybe(1),
        .servers = sim_chance(350) ? (unsigned)sim_between(2, SIM_SERVERS_MAX) : 1,
    };
    if (plan->servers > 1) {
        plan->full_disks = 0;
        plan->cuts = maybe(2);
        plan->outages = maybe(1);
        plan->lost_calls = maybe((uint32_t)sim_between(1, 30));
    }
    if (sim_chance(200) && count > 2) {
        plan->max = count - 1;
    }
    if (sim_chance(100)) {
        hurry(plan);
    }
    plan->target = sim_chance(300) ? (uint32_t)sim_between(plan->min, plan->max) : 0;
}

/* Somebody who looks at the job, at any server.
 */
static void read_job(struct sim *sim, struct sim_event *event)
{
    char body[] = "{\"job\":\"j\"}";
    const struct sim_message message = {
        .method = MUSTER_RPC_GET_JOB, .timeout_ms = 1000, .body = body, .size_bytes = strlen(body)};
    if (!sim->faults_are_over) {
        sim_network_ask(sim, (unsigned)sim_between(0, sim->plan.servers - 1),
                        sim_message_copy(&message));
        sim_push(sim, sim->now_ns + sim_between(0, 2 * READ_EVERY_MS * (int64_t)SIM_MS), *event);
    }
}

/* Faults ----------------------------------------------------------------------------------------
 */

static struct sim_worker *some_worker(struct sim *sim, bool alive)
{
    unsigned begin = (unsigned)sim_between(0, sim->plan.workers - 1);
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        struct sim_worker *worker = &sim->workers[(begin + i) % sim->plan.workers];
        if (worker->alive == alive && (!alive || !worker->frozen)) {
            return worker;
        }
    }
    return NULL;
}

static void end_full_disk(struct sim *sim, struct sim_event *event)
{
    (void)sim;
    (void)event;
    sim_disk_faults()->full = false;
    sim_disk_faults()->sync_fails = false;
}

static struct sim_server *some_server(struct sim *sim)
{
    return &sim->servers[sim_between(0, sim->plan.servers - 1)];
}

static void end_behind(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = &sim->servers[event->c];
    server->late_until_ns = sim->now_ns + server->behind_ns;
    server->behind_ns = 0;
}

static void fill_disk(struct sim *sim)
{
    sim_disk_faults()->full = sim_chance(700);
    sim_disk_faults()->sync_fails = !sim_disk_faults()->full;
    sim_trace(sim, "the disk %s", sim_disk_faults()->full ? "is full" : "cannot sync");
    sim_push(sim, sim->now_ns + sim_between(0, SECONDS(4)),
             (struct sim_event){.run = end_full_disk});
}

static void pause_server(struct sim *sim, int64_t for_ns)
{
    struct sim_server *server = some_server(sim);
    sim_trace(sim, "s%u pauses for %lld ms", server->index, (long long)for_ns / SIM_MS);
    server->paused_until_ns = sim->now_ns + for_ns;
    server->wake_ns = sim_chance(300) ? sim_between(0, 50 * SIM_MS) : 0;
    server->renew_ns = sim_chance(300) ? sim_between(0, 50 * SIM_MS) : 0;
}

static void pause_again(struct sim *sim, struct sim_event *event)
{
    (void)event;
    if (!sim->faults_are_over) {
        pause_server(sim, sim_between(SIM_MS, SECONDS(3)));
    }
}

static void fall_behind(struct sim *sim, int64_t by_ns, int64_t for_ns)
{
    struct sim_server *server = some_server(sim);
    sim_trace(sim, "s%u reads %lld ms late", server->index, (long long)by_ns / SIM_MS);
    server->behind_ns = by_ns;
    server->sees_ends_at_once = !sim->plan.mixed && sim_chance(500);
    sim_push(sim, sim->now_ns + for_ns, (struct sim_event){.run = end_behind, .c = server->index});
}

static void restart_proxy(struct sim *sim)
{
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        struct sim_server *server = &sim->servers[i];
        server->sees_ends_at_once = server->sees_ends_at_once && !sim->plan.nobody_dies;
    }
    sim_network_reset_all(sim);
    if (sim->plan.mixed && sim_chance(400)) { /* the machine stops for all */
        sim_push(sim, sim->now_ns + sim_between(0, 10 * SIM_MS),
                 (struct sim_event){.run = pause_again});
    }
}

static void cut_off(struct sim *sim, struct sim_server *server, int64_t for_ns)
{
    sim_trace(sim, "s%u is cut off from etcd for %lld ms", server->index,
              (long long)for_ns / SIM_MS);
    server->cut_until_ns = sim->now_ns + for_ns;
    sim->totals->cuts++;
}

static void end_etcd(struct sim *sim, int64_t for_ns)
{
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        cut_off(sim, &sim->servers[i], for_ns);
    }
}

static void resize(struct sim *sim)
{
    struct muster_resize_request request = {
        .job = "j", .target_size = (uint32_t)sim_between(sim->plan.min, sim->plan.max)};
    json_t *json = muster_resize_request_encode(&request);
    char *text = json_dumps(json, JSON_COMPACT);
    const struct sim_message message = {.method = MUSTER_RPC_RESIZE,
                                        .twin = true,
                                        .timeout_ms = 1000,
                                        .body = text,
                                        .size_bytes = strlen(text)};
    json_decref(json);
    sim->totals->resizes++;
    sim_network_send(sim, sim_message_copy(&message));
    free(text);
}

static void fault_worker(struct sim *sim, int64_t draw)
{
    const struct sim_plan *plan = &sim->plan;
    struct sim_worker *living = some_worker(sim, true);
    struct sim_worker *dead = some_worker(sim, false);
    if ((draw -= plan->kills) < 0 && living != NULL) {
        sim_worker_kill(sim, living->index, false);
    } else if (draw >= 0 && (draw -= plan->lost_hosts) < 0 && living != NULL) {
        sim_worker_kill(sim, living->index, true);
    } else if (draw >= 0 && (draw -= plan->freezes) < 0 && living != NULL) {
        sim_worker_freeze(sim, living->index,
                          sim->now_ns + sim_between(0, sim_chance(500) ? SECONDS(1) : SECONDS(20)));
    } else if (draw >= 0 && (draw -= plan->leaves) < 0 && living != NULL) {
        living->leave_called = true;
    } else if (draw >= 0 && (draw -= plan->starts) < 0 && dead != NULL) {
        sim_worker_start(sim, dead->index);
    } else if (draw >= 0 && (draw -= plan->resizes) < 0) {
        resize(sim);
    }
}

static void fault_server(struct sim *sim, int64_t draw)
{
    const struct sim_plan *plan = &sim->plan;
    if ((draw -= plan->stops) < 0) {
        sim_server_end(sim, some_server(sim), SIM_STOP);
    } else if ((draw -= plan->server_kills) < 0) {
        sim_server_end(sim, some_server(sim), SIM_KILL);
    } else if ((draw -= plan->power_losses) < 0) {
        sim_server_end(sim, some_server(sim), SIM_POWER_LOSS);
    } else if ((draw -= plan->pauses) < 0) {
        pause_server(sim, sim_between(SIM_MS, plan->nobody_dies ? SECONDS(3) : SECONDS(9)));
    } else if ((draw -= plan->behind) < 0) {
        fall_behind(sim, plan->nobody_dies ? SECONDS(2) : sim_between(SIM_MS, SECONDS(3)),
                    SECONDS(sim_between(5, 45)));
    } else if ((draw -= plan->proxy_restarts) < 0) {
        restart_proxy(sim);
    } else if ((draw -= plan->full_disks) < 0) {
        fill_disk(sim);
    } else if ((draw -= plan->cuts) < 0) {
        cut_off(sim, some_server(sim), sim_between(SIM_MS, SECONDS(15)));
    } else if ((draw -= plan->outages) < 0) {
        end_etcd(sim, sim_between(SIM_MS, SECONDS(15)));
    }
}

static bool server_is_busy(const struct sim *sim)
{
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        const struct sim_server *server = &sim->servers[i];
        if (server->behind_ns > 0 || server->paused_until_ns > sim->now_ns ||
            server->cut_until_ns > sim->now_ns || server->late_until_ns > sim->now_ns) {
            return true;
        }
    }
    return false;
}

static void make_fault(struct sim *sim, struct sim_event *event)
{
    const struct sim_plan *plan = &sim->plan;
    (void)event;
    if (sim->faults_are_over) {
        return;
    }
    int64_t of_workers = plan->kills + plan->lost_hosts + plan->freezes + plan->leaves +
                         plan->starts + plan->resizes;
    int64_t of_server = plan->stops + plan->server_kills + plan->power_losses + plan->pauses +
                        plan->behind + plan->proxy_restarts + plan->full_disks + plan->cuts +
                        plan->outages;
    bool one_at_a_time = plan->nobody_dies && !plan->mixed;
    bool busy = server_is_busy(sim);
    if (of_workers + of_server > 0 && !(one_at_a_time && busy)) {
        int64_t draw = sim_between(0, of_workers + of_server - 1);
        if (draw < of_workers) {
            fault_worker(sim, draw);
        } else {
            fault_server(sim, draw - of_workers);
        }
    }
    bool soon = plan->mixed && sim_chance(600);
    sim_push(sim, sim->now_ns + sim_between(0, soon ? SECONDS(3) : plan->fault_every_ns),
             (struct sim_event){.run = make_fault});
}

/* The end ---------------------------------------------------------------------------------------
 */

/* Peace: what is stopped goes on, and what is missing for the least size starts. */
static void end_faults(struct sim *sim)
{
    unsigned alive = 0;
    sim_trace(sim, "no more faults");
    sim->faults_are_over = true;
    sim_disk_faults()->full = false;
    sim_disk_faults()->sync_fails = false;
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        sim->servers[i].behind_ns = 0;
        sim->servers[i].cut_until_ns = 0;
    }
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        alive += sim->workers[i].alive;
    }
    for (unsigned i = 0; i < sim->plan.workers && alive < sim->plan.min; i++) {
        if (!sim->workers[i].alive) {
            sim_worker_start(sim, i);
            alive++;
        }
    }
}

/* Those that left and those whom the job may ask to leave can be fewer than the least. */
static void start_missing(struct sim *sim)
{
    const struct muster_membership *m = sim_server_membership(sim);
    unsigned alive = 0;
    if ((sim->plan.work > 0 && sim->best_version >= sim->plan.work) || m == NULL) {
        return;
    }
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        alive += sim->workers[i].alive;
    }
    for (unsigned i = 0; i < sim->plan.workers && alive > 0 && alive < sim->plan.min; i++) {
        if (!sim->workers[i].alive) {
            sim_worker_start(sim, i);
            alive++;
        }
    }
}

/* A job whose work is done by some of its members needs the others no more. */
static void settle(struct sim *sim)
{
    int64_t until_ns = sim->now_ns + (int64_t)SETTLE_MS * SIM_MS;
    int64_t look_ns = sim->now_ns;
    while (sim_step(sim)) {
        if (sim->now_ns < look_ns) {
            continue;
        }
        look_ns = sim->now_ns + (int64_t)LOOK_MS * SIM_MS;
        start_missing(sim);
        if (sim_is_settled(sim)) {
            return;
        }
        if (sim->now_ns > until_ns) {
            sim_fail(sim, "no generation of all within %d s after the last fault",
                     SETTLE_MS / 1000);
        }
    }
    if (!sim_is_settled(sim)) {
        sim_fail(sim, "nothing happens any more");
    }
}

static void finish(struct sim *sim)
{
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        sim->servers[i].dying = true;
        sim_server_end(sim, &sim->servers[i], SIM_STOP);
    }
    for (size_t i = 0; i < sim->count; i++) {
        sim_message_free(sim->heap[i].message);
    }
    for (struct sim_generation *next, *g = sim->generations; g != NULL; g = next) {
        next = g->next;
        free(g->workers);
        free(g->members);
        free(g->begun);
        free(g->stale);
        free(g);
    }
    for (unsigned i = 0; i < sim->plan.workers; i++) {
        for (unsigned channel = 0; channel < SIM_CHANNELS; channel++) {
            sim_message_free(sim->workers[i].calls[channel].request);
        }
    }
    free(sim->heap);
    free(sim->workers);
    free(sim->connections);
    sim_disk_end();
    sim_etcd_end();
    (void)unlink(sim->servers[0].path);
}

static void start_worker(struct sim *sim, struct sim_event *event)
{
    if (!sim->workers[event->a].alive) {
        sim_worker_start(sim, (unsigned)event->a);
    }
}

void sim_run(uint64_t seed, const struct sim_plan *plan, bool traced, struct sim_totals *totals)
{
    struct sim sim = {.seed = seed, .traced = traced, .now_ns = SECONDS(1000), .totals = totals};
    sim_random_seed(seed);
    sim_clock_set(sim.now_ns);
    sim_disk_begin();
    if (plan != NULL) {
        sim.plan = *plan;
    } else {
        sim_plan_draw(&sim.plan, 0);
    }
    sim_disk_faults()->keeps = sim_chance(500) ? 0 : (uint32_t)sim_between(0, 1000);
    sim.plan.servers = sim.plan.servers > 0 ? sim.plan.servers : 1;
    uint32_t compacts = sim_chance(500) ? (uint32_t)sim_between(1, 100) : 0;
    sim_etcd_begin(&sim);
    sim.workers = calloc(sim.plan.workers, sizeof *sim.workers);
    if (!traced) {
        muster_log_set_writer(write_nowhere);
    }
    for (unsigned i = 0; i < sim.plan.servers; i++) {
        struct sim_server *server = &sim.servers[i];
        server->sim = &sim;
        server->index = i;
        server->compacts = compacts;
        (void)snprintf(server->path, sizeof server->path, "/tmp/muster-simulation-%d.db",
                       (int)getpid());
        (void)sim_server_start(&sim, server);
    }
    for (unsigned i = 0; i < sim.plan.workers; i++) {
        sim.workers[i].index = i;
        bool late = !sim.plan.nobody_dies && sim_chance(300);
        sim_push(&sim, sim.now_ns + sim_between(0, late ? SECONDS(20) : 100 * SIM_MS),
                 (struct sim_event){.run = start_worker, .a = i});
    }
    sim_push(&sim, sim.now_ns + SECONDS(1), (struct sim_event){.run = make_fault});
    sim_push(&sim, sim.now_ns + SECONDS(1), (struct sim_event){.run = read_job});
    int64_t until_ns = sim.now_ns + sim.plan.faults_ns;
    while (sim.now_ns < until_ns && sim.steps < STEPS_MAX && sim_step(&sim)) {
    }
    end_faults(&sim);
    settle(&sim);
    finish(&sim);
}
