/*
 * gossip_topology.c - graphs for gossip: ring, torus, random of equal degree.
 *
 * A random graph begins as a circle in which everyone knows the D nearest, and pairs of edges are then crossed
 * (a-b, c-d become a-d, c-b) many times over, which keeps every degree; should that tear the graph apart, the next seed
 * is tried. Every worker makes the whole graph from the same seed. Metropolis weights make the mixing matrix symmetric
 * and its rows sum to 1 whatever the degrees. Cost: O(size * D^2), once.
 */
#include "reduce/gossip_topology.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CROSSINGS 8  /* attempts per edge */
#define TRIES     16 /* seeds until the plain circle is taken */

static int *row(const frugi_topology *t, int i) {
    return t->neighbour + (size_t)i * (size_t)t->most;
}

static bool knows(const frugi_topology *t, int i, int j) {
    for (int k = 0; k < t->degree[i]; k++)
        if (row(t, i)[k] == j)
            return true;
    return false;
}

/* An edge, unless it is there already or is none. */
static void join(frugi_topology *t, int i, int j) {
    if (i == j || knows(t, i, j))
        return;
    row(t, i)[t->degree[i]++] = j;
    row(t, j)[t->degree[j]++] = i;
}

/* Everyone knows the nearest on both sides, and for an odd degree the one opposite. */
static void make_circle(frugi_topology *t, int degree) {
    memset(t->degree, 0, (size_t)t->size * sizeof *t->degree);
    for (int away = 1; away <= degree / 2; away++)
        for (int i = 0; i < t->size; i++)
            join(t, i, (i + away) % t->size);
    for (int i = 0; degree % 2 && i < t->size; i++)
        join(t, i, (i + t->size / 2) % t->size);
}

/* As square as the size allows; a prime one is a ring. */
static void make_torus(frugi_topology *t) {
    int rows = 1;
    for (int a = 1; a <= t->size / a; a++)
        rows = t->size % a == 0 ? a : rows;
    int cols = t->size / rows;
    for (int i = 0; i < t->size; i++) {
        int r = i / cols, c = i % cols;
        join(t, i, r * cols + (c + 1) % cols);
        join(t, i, (r + 1) % rows * cols + c);
    }
}

static void swap_neighbour(frugi_topology *t, int i, int old, int new) {
    int *at = row(t, i);
    while (*at != old)
        at++;
    *at = new;
}

static void cross(frugi_topology *t, int a, int b, int c, int d) {
    if (a == c || a == d || b == c || b == d || knows(t, a, d) || knows(t, c, b))
        return;
    swap_neighbour(t, a, b, d);
    swap_neighbour(t, d, c, a);
    swap_neighbour(t, c, d, b);
    swap_neighbour(t, b, a, c);
}

static void cross_all(frugi_topology *t, int degree, uint64_t seed, uint64_t attempt) {
    uint64_t n = (uint64_t)t->size * (uint64_t)degree * CROSSINGS, draw = 0;
    for (uint64_t i = 0; i < n; i++) {
        int pick[4];
        for (int k = 0; k < 4; k++)
            pick[k] = (int)(frugi_random(seed, attempt, draw++) % (uint32_t)(k % 2 ? degree : t->size));
        cross(t, pick[0], row(t, pick[0])[pick[1]], pick[2], row(t, pick[2])[pick[3]]);
    }
}

/* Whether everyone can be reached from rank 0; list has room for all. */
static bool connected(const frugi_topology *t, int *list, bool *seen) {
    int found = 1;
    memset(seen, 0, (size_t)t->size * sizeof *seen);
    seen[0] = true;
    list[0] = 0;
    for (int at = 0; at < found; at++)
        for (int k = 0; k < t->degree[list[at]]; k++) {
            int j = row(t, list[at])[k];
            if (!seen[j])
                list[found++] = j;
            seen[j] = true;
        }
    return found == t->size;
}

static frug_status make_random(frugi_topology *t, int degree, uint64_t seed) {
    int *list = frugi_calloc((size_t)t->size, sizeof *list);
    bool *seen = frugi_calloc((size_t)t->size, sizeof *seen), whole = false;
    for (uint64_t attempt = 0; list && seen && !whole && attempt <= TRIES; attempt++) {
        make_circle(t, degree);
        if (attempt < TRIES)
            cross_all(t, degree, seed, attempt);
        whole = connected(t, list, seen);
    }
    bool memory = list && seen;
    frugi_free(list);
    frugi_free(seen);
    FRUG_FAIL_IF(!memory, FRUG_ERR_MEMORY, "topology: no memory for %d workers", t->size);
    FRUG_FAIL_IF(!whole, FRUG_ERR_CONFIG, "topology: with one neighbour each, %d workers cannot hear of each other",
                 t->size);
    return FRUG_OK;
}

static int by_rank(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The largest degree, and the degree asked for where there is one: no more than there are others. */
static int degree_of(const frug_config *config, int size) {
    int wanted = config->topology == FRUGI_TOPOLOGY_RING    ? 2
                 : config->topology == FRUGI_TOPOLOGY_TORUS ? 4
                                                            : (int)config->degree;
    return wanted < size ? wanted : size - 1;
}

static frug_status fill(const frug_config *config, int degree, frugi_topology *t) {
    FRUG_FAIL_IF(!t->degree || !t->neighbour, FRUG_ERR_MEMORY, "topology: no memory for %d workers", t->size);
    if (config->topology == FRUGI_TOPOLOGY_TORUS)
        make_torus(t);
    else if (config->topology == FRUGI_TOPOLOGY_RING || degree == 0)
        make_circle(t, degree);
    else {
        FRUG_FAIL_IF(degree % 2 && t->size % 2, FRUG_ERR_CONFIG,
                     "topology: %d workers cannot have %d neighbours each, for both are odd", t->size, degree);
        FRUG_TRY(make_random(t, degree, config->graph_seed));
    }
    for (int i = 0; i < t->size; i++)
        qsort(row(t, i), (size_t)t->degree[i], sizeof(int), by_rank);
    return FRUG_OK;
}

frug_status frugi_topology_create(const frug_config *config, int size, frugi_topology *topology) {
    int degree = degree_of(config, size);
    frugi_topology t = {.size = size, .most = degree};
    t.degree = frugi_calloc((size_t)size, sizeof *t.degree);
    t.neighbour = frugi_calloc((size_t)size * (size_t)(degree + 1), sizeof *t.neighbour);
    frug_status status = fill(config, degree, &t);
    if (status == FRUG_OK)
        *topology = t;
    else
        frugi_topology_destroy(&t);
    return status;
}

void frugi_topology_destroy(frugi_topology *t) {
    frugi_free(t->degree);
    frugi_free(t->neighbour);
    *t = (frugi_topology){0};
}

double frugi_topology_weight(const frugi_topology *t, int i, int j) {
    if (i != j)
        return knows(t, i, j) ? 1.0 / (1 + (t->degree[i] > t->degree[j] ? t->degree[i] : t->degree[j])) : 0.0;
    double rest = 1.0;
    for (int k = 0; k < t->degree[i]; k++)
        rest -= frugi_topology_weight(t, i, row(t, i)[k]);
    return rest;
}
