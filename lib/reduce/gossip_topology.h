/* gossip_topology.h - the communication graph of gossip, and its mixing weights. */
#ifndef FRUGI_GOSSIP_TOPOLOGY_H
#define FRUGI_GOSSIP_TOPOLOGY_H

#include "config/config.h"

/** An undirected connected graph without self-loops; neighbors in ascending order. */
typedef struct frugi_topology {
    int size;
    int max_degree;
    int *degree;   /* one per rank */
    int *neighbor; /* max_degree per rank */
} frugi_topology;

/** Create the graph of a config; the same on every rank. Returns FRUG_ERR_CONFIG, FRUG_ERR_MEMORY. */
frug_status frugi_topology_create(const frug_config *config, int size, frugi_topology *topology);
void frugi_topology_destroy(frugi_topology *topology);

/** Mixing weight of neighbor j at rank i (Metropolis): 1 / (1 + the larger degree). For i == j: 1 minus the others. */
double frugi_topology_weight(const frugi_topology *topology, int i, int j);

#endif
