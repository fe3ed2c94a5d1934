/* model_families.h - one builder per family of models; model.c picks. Each adds all nodes up to the loss. */
#ifndef FRUGI_MODEL_FAMILIES_H
#define FRUGI_MODEL_FAMILIES_H

#include "trainer/model/model.h"

/** Returns an exit status. The graph is not yet finished. */
typedef int frugi_family(const frugi_model *model, const frugi_data_info *info, frugi_graph *g);

frugi_family frugi_build_mlp, frugi_build_lenet, frugi_build_resnet_cifar, frugi_build_resnet; /* small_vision.c, resnet.c */
frugi_family frugi_build_gpt2, frugi_build_bert;                                               /* gpt2.c, bert.c */

/** For both of them: widths, lengths or vocabularies that cannot go together. Returns an exit status. */
int frugi_transformer_misfit(const frugi_model *model, const frugi_data_info *info, uint32_t vocab);

#endif
