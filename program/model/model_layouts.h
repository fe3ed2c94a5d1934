/* model_layouts.h - layouts of well-known networks by name, without a file of weights. */
#ifndef FGP_MODEL_LAYOUTS_H
#define FGP_MODEL_LAYOUTS_H

#include "frugrad.h"

/** The name of the i-th model, or NULL past the end. */
const char *fgp_model_at(size_t i);

/** Whether there is a model of that name. */
int fgp_model_known(const char *name);

/**
 * Make a model's layout: names and shapes as its usual PyTorch implementation has them, roles, heads and modules set.
 * Returns FRUG_OK, FRUG_ERR_ARG for an unknown name, FRUG_ERR_MEMORY.
 */
frug_status fgp_model_layout(const char *name, frug_layout **layout);

#endif
