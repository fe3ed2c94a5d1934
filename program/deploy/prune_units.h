/* prune_units.h - whole channels, neurons or attention heads that are removed from a model. */
#ifndef FGP_PRUNE_UNITS_H
#define FGP_PRUNE_UNITS_H

#include "program/deploy/model_weights.h"
#include "trainer/sparse/unit_layers.h"

typedef struct fgp_unit_options {
    fgt_unit_kinds kinds;
    double share;     /* of the units of each layer that are removed; one stays at least */
    bool zeros;       /* instead of a share: those that nothing reads, because all weights that do are zero */
    bool keep_shapes; /* set their weights to zero instead */
    const char *skip; /* layers with this text in a name of their tensors stay as they are; NULL: none */
} fgp_unit_options;

typedef struct fgp_unit_totals {
    uint64_t units, removed;
} fgp_unit_totals;

/** Remove the least important units of every layer that has such units, from all tensors that they belong to. Returns
 *  an exit status, after an error message. */
int fgp_prune_units(fgp_weights *weights, const fgp_unit_options *options, fgp_unit_totals *totals);

#endif
