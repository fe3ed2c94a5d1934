/*
 * update_layout.h - the tensors that the frames of a run are made of.
 */
#ifndef FGF_UPDATE_LAYOUT_H
#define FGF_UPDATE_LAYOUT_H

#include "frugrad.h"

/* Configs of updates where nobody asks for another: about a hundredth of the bytes. */
#define FGF_CONFIG_SIGNS "density=0.036,feedback=plain,residual=f32,index=auto,value=sign"
#define FGF_CONFIG_ALL   "segment=all," FGF_CONFIG_SIGNS
/* Vectors are dense: for models with running statistics, whose differences must not add up in a residual. */
#define FGF_CONFIG_TENSORS "segment=tensor,min_size=1," FGF_CONFIG_SIGNS

/**
 * The layout of updates: that of the model; with segment=all, one tensor of all weights. They are compared with each
 * other then, whatever tensor they are in, and one section has them all: in an update of LeNet, headers of ten sections
 * would be a third of the bytes.
 *
 *   config   of the run
 *   *layout  for the caller to destroy
 */
FRUG_CHECK frug_status fgf_update_layout(const frug_layout *model, const char *config, frug_layout **layout);

#endif
