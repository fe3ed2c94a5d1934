/* gossip_topology.h - who talks to whom in gossip, and how much each counts. */
#ifndef FRUGI_GOSSIP_TOPOLOGY_H
#define FRUGI_GOSSIP_TOPOLOGY_H

#include "config/config.h"

/** An undirected connected graph without loops; neighbours in ascending order. */
typedef struct frugi_topology {
    int size;
    int most;       /* the largest degree */
    int *degree;    /* one per rank */
    int *neighbour; /* `most` places per rank */
} frugi_topology;

/** Make the graph that a config names; the same on every worker. Returns FRUG_ERR_CONFIG, FRUG_ERR_MEMORY. */
frug_status frugi_topology_create(const frug_config *config, int size, frugi_topology *topology);
void frugi_topology_destroy(frugi_topology *topology);

/** How much i counts of neighbour j (Metropolis): 1 / (1 + the larger degree). With i == j: what is left of 1. */
double frugi_topology_weight(const frugi_topology *topology, int i, int j);

#endif
