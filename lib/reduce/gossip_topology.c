/*
 * gossip_topology.c - graphs for gossip: ring, torus, random regular.
 *
 * A random graph begins as a circulant graph, in which every rank has an edge to the D nearest. Then random pairs of
 * edges are swapped (a-b, c-d become a-d, c-b), which does not change degrees. If the graph is no longer connected the
 * next seed is tried. Every rank creates the whole graph from the same seed. Metropolis weights make the mixing matrix
 * symmetric with rows that sum to 1, whatever the degrees. Cost: O(size * D^2), once.
 */
#include "reduce/gossip_topology.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SWAPS_PER_EDGE 8
#define MAX_ATTEMPTS   16 /* seeds; after that the circulant graph itself is used */

static int *neighbors(const frugi_topology *t, int i) {
    return t->neighbor + (size_t)i * (size_t)t->max_degree;
}

static bool has_edge(const frugi_topology *t, int i, int j) {
    for (int k = 0; k < t->degree[i]; k++)
        if (neighbors(t, i)[k] == j)
            return true;
    return false;
}

/* Add an edge, unless it exists or is a self-loop. */
static void add_edge(frugi_topology *t, int i, int j) {
    if (i == j || has_edge(t, i, j))
        return;
    neighbors(t, i)[t->degree[i]++] = j;
    neighbors(t, j)[t->degree[j]++] = i;
}

/* Edges to the nearest ranks on both sides and, for an odd degree, to the opposite one. */
static void create_circulant(frugi_topology *t, int degree) {
    memset(t->degree, 0, (size_t)t->size * sizeof *t->degree);
    for (int distance = 1; distance <= degree / 2; distance++)
        for (int i = 0; i < t->size; i++)
            add_edge(t, i, (i + distance) % t->size);
    for (int i = 0; degree % 2 && i < t->size; i++)
        add_edge(t, i, (i + t->size / 2) % t->size);
}

/* As square as the size allows; for a prime size it is a ring. */
static void create_torus(frugi_topology *t) {
    int rows = 1;
    for (int a = 1; a <= t->size / a; a++)
        rows = t->size % a == 0 ? a : rows;
    int cols = t->size / rows;
    for (int i = 0; i < t->size; i++) {
        int r = i / cols, c = i % cols;
        add_edge(t, i, r * cols + (c + 1) % cols);
        add_edge(t, i, (r + 1) % rows * cols + c);
    }
}

static void replace_neighbor(frugi_topology *t, int i, int old, int new) {
    int *at = neighbors(t, i);
    while (*at != old)
        at++;
    *at = new;
}

static void swap_edges(frugi_topology *t, int a, int b, int c, int d) {
    if (a == c || a == d || b == c || b == d || has_edge(t, a, d) || has_edge(t, c, b))
        return;
    replace_neighbor(t, a, b, d);
    replace_neighbor(t, d, c, a);
    replace_neighbor(t, c, d, b);
    replace_neighbor(t, b, a, c);
}

static void randomize_edges(frugi_topology *t, int degree, uint64_t seed, uint64_t attempt) {
    uint64_t n = (uint64_t)t->size * (uint64_t)degree * SWAPS_PER_EDGE, draw = 0;
    for (uint64_t i = 0; i < n; i++) {
        int draws[4];
        for (int k = 0; k < 4; k++)
            draws[k] = (int)(frugi_random(seed, attempt, draw++) % (uint32_t)(k % 2 ? degree : t->size));
        swap_edges(t, draws[0], neighbors(t, draws[0])[draws[1]], draws[2], neighbors(t, draws[2])[draws[3]]);
    }
}

/* Whether all ranks can be reached from rank 0. list and seen have one element per rank. */
static bool connected(const frugi_topology *t, int *list, bool *seen) {
    int found = 1;
    memset(seen, 0, (size_t)t->size * sizeof *seen);
    seen[0] = true;
    list[0] = 0;
    for (int at = 0; at < found; at++)
        for (int k = 0; k < t->degree[list[at]]; k++) {
            int j = neighbors(t, list[at])[k];
            if (!seen[j])
                list[found++] = j;
            seen[j] = true;
        }
    return found == t->size;
}

static frug_status create_random(frugi_topology *t, int degree, uint64_t seed) {
    int *list = frugi_calloc((size_t)t->size, sizeof *list);
    bool *seen = frugi_calloc((size_t)t->size, sizeof *seen), whole = false;
    for (uint64_t attempt = 0; list && seen && !whole && attempt <= MAX_ATTEMPTS; attempt++) {
        create_circulant(t, degree);
        if (attempt < MAX_ATTEMPTS)
            randomize_edges(t, degree, seed, attempt);
        whole = connected(t, list, seen);
    }
    bool memory = list && seen;
    frugi_free(list);
    frugi_free(seen);
    FRUG_FAIL_IF(!memory, FRUG_ERR_MEMORY, "topology: out of memory for %d workers", t->size);
    FRUG_FAIL_IF(!whole, FRUG_ERR_CONFIG, "topology: a graph of %d workers with one neighbor each is not connected",
                 t->size);
    return FRUG_OK;
}

static int by_rank(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The largest degree of the graph: at most size - 1. */
static int max_degree_of(const frug_config *config, int size) {
    int wanted = config->topology == FRUGI_TOPOLOGY_RING    ? 2
                 : config->topology == FRUGI_TOPOLOGY_TORUS ? 4
                                                            : (int)config->degree;
    return wanted < size ? wanted : size - 1;
}

static frug_status create_graph(const frug_config *config, int degree, frugi_topology *t) {
    FRUG_FAIL_IF(!t->degree || !t->neighbor, FRUG_ERR_MEMORY, "topology: out of memory for %d workers", t->size);
    if (config->topology == FRUGI_TOPOLOGY_TORUS)
        create_torus(t);
    else if (config->topology == FRUGI_TOPOLOGY_RING || degree == 0)
        create_circulant(t, degree);
    else {
        FRUG_FAIL_IF(degree % 2 && t->size % 2, FRUG_ERR_CONFIG,
                     "topology: %d workers cannot have %d neighbors each, because both numbers are odd", t->size,
                     degree);
        FRUG_TRY(create_random(t, degree, config->graph_seed));
    }
    for (int i = 0; i < t->size; i++)
        qsort(neighbors(t, i), (size_t)t->degree[i], sizeof(int), by_rank);
    return FRUG_OK;
}

frug_status frugi_topology_create(const frug_config *config, int size, frugi_topology *topology) {
    int degree = max_degree_of(config, size);
    frugi_topology t = {.size = size, .max_degree = degree};
    t.degree = frugi_calloc((size_t)size, sizeof *t.degree);
    t.neighbor = frugi_calloc((size_t)size * (size_t)(degree + 1), sizeof *t.neighbor);
    frug_status status = create_graph(config, degree, &t);
    if (status == FRUG_OK)
        *topology = t;
    else
        frugi_topology_destroy(&t);
    return status;
}

void frugi_topology_destroy(frugi_topology *t) {
    frugi_free(t->degree);
    frugi_free(t->neighbor);
    *t = (frugi_topology){0};
}

double frugi_topology_weight(const frugi_topology *t, int i, int j) {
    if (i != j)
        return has_edge(t, i, j) ? 1.0 / (1 + (t->degree[i] > t->degree[j] ? t->degree[i] : t->degree[j])) : 0.0;
    double rest = 1.0;
    for (int k = 0; k < t->degree[i]; k++)
        rest -= frugi_topology_weight(t, i, neighbors(t, i)[k]);
    return rest;
}
