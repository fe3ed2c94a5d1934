/*
 * update_layout.h - the tensors that the frames of a run are made of.
 */
#ifndef FGF_UPDATE_LAYOUT_H
#define FGF_UPDATE_LAYOUT_H

#include "frugrad.h"

/**
 * The layout of updates: that of the model; with segment=all, one tensor of all weights. They are compared with each
 * other then, whatever tensor they are in, and one section has them all: of a small model, headers of sections would be
 * more than half of an update.
 *
 *   config   of the run
 *   *layout  for the caller to destroy
 */
FRUG_CHECK frug_status fgf_update_layout(const frug_layout *model, const char *config, frug_layout **layout);

#endif
