/* The lightest cover against all sets of vertices: every graph of up to 5, random ones of up to 20,
 * and greedy ones beyond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "elastic/verdicts/cover.h"
#include "tests/support/schedules.h"

enum { GRAPHS = 300, MANY = 120, EDGES_MAX = 400 };

static uint64_t seed;

struct graph {
    uint32_t count, edge_count;
    uint64_t weights[MUSTER_COVER_VERTICES_MAX];
    struct muster_cover_edge edges[EDGES_MAX];
};

static bool covers(const struct graph *graph, const bool *in)
{
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        if (!in[graph->edges[i].a] && !in[graph->edges[i].b]) {
            return false;
        }
    }
    return true;
}

static uint64_t weight_of(const struct graph *graph, const bool *in)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < graph->count; i++) {
        weight += in[i] ? graph->weights[i] : 0;
    }
    return weight;
}

/* By trying all sets. */
static uint64_t least_weight(const struct graph *graph)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t set = 0; set < 1U << graph->count; set++) {
        bool in[32];
        for (uint32_t i = 0; i < graph->count; i++) {
            in[i] = (set >> i & 1U) != 0;
        }
        if (covers(graph, in) && weight_of(graph, in) < least) {
            least = weight_of(graph, in);
        }
    }
    return least;
}

static void expect_needed(const struct graph *graph, bool *in)
{
    assert_true(covers(graph, in));
    for (uint32_t i = 0; i < graph->count; i++) {
        if (in[i]) {
            in[i] = false;
            assert_false(covers(graph, in));
            in[i] = true;
        }
    }
}

static void expect_least(const struct graph *graph)
{
    bool in[MUSTER_COVER_VERTICES_MAX];
    muster_cover_find(graph->weights, graph->count, graph->edges, graph->edge_count, in);
    expect_needed(graph, in);
    assert_int_equal(weight_of(graph, in), least_weight(graph));
}

static void every_graph_of_up_to_five_has_its_lightest_cover(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= 5; count++) {
        uint32_t possible = count * (count > 0 ? count - 1 : 0) / 2;
        for (uint32_t mask = 0; mask < 1U << possible; mask++) {
            struct graph graph = {.count = count};
            uint32_t bit = 0;
            for (uint32_t a = 0; a < count; a++) {
                graph.weights[a] = 1 + test_random_below(&seed, 4);
                for (uint32_t b = 0; b < a; b++, bit++) {
                    if ((mask >> bit & 1U) != 0) {
                        graph.edges[graph.edge_count++] = (struct muster_cover_edge){a, b};
                    }
                }
            }
            expect_least(&graph);
        }
    }
}

static void draw(struct graph *graph, uint32_t count, uint32_t edge_count)
{
    *graph = (struct graph){.count = count, .edge_count = edge_count};
    for (uint32_t i = 0; i < count; i++) {
        graph->weights[i] = 1 + test_random_below(&seed, 100);
    }
    for (uint32_t i = 0; i < edge_count; i++) {
        uint32_t a = test_random_below(&seed, count);
        uint32_t b = test_random_below(&seed, count - 1);
        graph->edges[i] = (struct muster_cover_edge){a, b < a ? b : b + 1};
    }
}

static void random_graphs_have_their_lightest_cover(void **state)
{
    (void)state;
    for (int i = 0; i < GRAPHS; i++) {
        struct graph graph;
        uint32_t count = 2 + test_random_below(&seed, 11);
        draw(&graph, count, test_random_below(&seed, 3 * count));
        expect_least(&graph);
    }
}

/* Every pair of 20: all but the heaviest go, after a search that ends soon. */
static void twenty_that_all_miss_each_other_leave_the_heaviest(void **state)
{
    (void)state;
    struct graph graph = {.count = MUSTER_COVER_EXACT_MAX};
    bool in[MUSTER_COVER_VERTICES_MAX];
    for (uint32_t a = 0; a < graph.count; a++) {
        graph.weights[a] = a == 7 ? 9 : 5;
        for (uint32_t b = 0; b < a; b++) {
            graph.edges[graph.edge_count++] = (struct muster_cover_edge){a, b};
        }
    }
    muster_cover_find(graph.weights, graph.count, graph.edges, graph.edge_count, in);
    for (uint32_t i = 0; i < graph.count; i++) {
        assert_int_equal(in[i], i != 7);
    }
}

static void beyond_twenty_nobody_goes_without_need(void **state)
{
    (void)state;
    for (int i = 0; i < GRAPHS; i++) {
        struct graph graph;
        bool in[MUSTER_COVER_VERTICES_MAX];
        draw(&graph, MANY, 2 + test_random_below(&seed, EDGES_MAX - 2));
        muster_cover_find(graph.weights, graph.count, graph.edges, graph.edge_count, in);
        expect_needed(&graph, in);
    }
}

/* A star of 100: its middle goes, although it is as heavy as ten of the others. */
static void the_middle_of_a_large_star_goes(void **state)
{
    (void)state;
    struct graph graph = {.count = 101, .edge_count = 100};
    bool in[MUSTER_COVER_VERTICES_MAX];
    for (uint32_t i = 0; i < graph.count; i++) {
        graph.weights[i] = i == 0 ? 10 : 1;
    }
    for (uint32_t i = 0; i < 100; i++) {
        graph.edges[i] = (struct muster_cover_edge){0, i + 1};
    }
    muster_cover_find(graph.weights, graph.count, graph.edges, graph.edge_count, in);
    for (uint32_t i = 0; i < graph.count; i++) {
        assert_int_equal(in[i], i == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_graph_of_up_to_five_has_its_lightest_cover),
        cmocka_unit_test(random_graphs_have_their_lightest_cover),
        cmocka_unit_test(twenty_that_all_miss_each_other_leave_the_heaviest),
        cmocka_unit_test(beyond_twenty_nobody_goes_without_need),
        cmocka_unit_test(the_middle_of_a_large_star_goes),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
