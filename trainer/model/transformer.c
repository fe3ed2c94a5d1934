/* transformer.c - checks of the sizes of transformers, shared by GPT-2 and BERT. */
#include "trainer/model/model_families.h"

#include "io/error.h"

#define WIDTH_MAX (1u << 20) /* so that multiples of it do not overflow */

int fgt_transformer_check(const fgt_model *model, const fgt_data_info *info, uint32_t vocab) {
    if (model->hidden > WIDTH_MAX)
        return fgio_error("%s: the width %u is larger than %u", model->text, model->hidden, WIDTH_MAX);
    if (!model->heads || !model->hidden || model->hidden % model->heads)
        return fgio_error("%s: the width %u is not a multiple of the %u heads", model->text, model->hidden,
                          model->heads);
    if (!info->length || info->length > model->length)
        return fgio_error("%s takes samples of 1 to %u tokens, but those of %s have %u", model->text, model->length,
                          info->name, info->length);
    if (!vocab || info->vocab > vocab)
        return fgio_error("%s has a vocabulary of %u tokens, but %s has %u", model->text, vocab, info->name,
                          info->vocab);
    return FGIO_EXIT_OK;
}
