/* model_families.h - one builder per family of models, called by model.c. Each adds all nodes including the loss. */
#ifndef FGT_MODEL_FAMILIES_H
#define FGT_MODEL_FAMILIES_H

#include "trainer/model/model.h"

/** Returns an exit status. The graph is not yet finished. */
typedef int fgt_model_builder(const fgt_model *model, const fgt_data_info *info, fgt_graph *g);

fgt_model_builder fgt_build_mlp, fgt_build_lenet, fgt_build_resnet_cifar,
    fgt_build_resnet;                             /* small_vision.c, resnet.c */
fgt_model_builder fgt_build_gpt2, fgt_build_bert; /* gpt2.c, bert.c */

/** Checks width, length and vocabulary of a transformer. Returns an exit status. */
int fgt_transformer_check(const fgt_model *model, const fgt_data_info *info, uint32_t vocab);

#endif
