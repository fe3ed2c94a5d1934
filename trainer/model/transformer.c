/* transformer.c - what both families of transformers refuse. */
#include "trainer/model/model_families.h"

#include "io/error.h"

#define WIDTH_MAX (1u << 20) /* so that multiples of it are no trouble */

int fgt_transformer_check(const fgt_model *model, const fgt_data_info *info, uint32_t vocab) {
    if (model->hidden > WIDTH_MAX)
        return fgio_error("%s: a width of %u is beyond %u", model->text, model->hidden, WIDTH_MAX);
    if (!model->heads || !model->hidden || model->hidden % model->heads)
        return fgio_error("%s: width %u cannot be shared by %u heads", model->text, model->hidden, model->heads);
    if (!info->length || info->length > model->length)
        return fgio_error("%s takes 1 to %u tokens, and %s has samples of %u", model->text, model->length, info->name,
                          info->length);
    if (!vocab || info->vocab > vocab)
        return fgio_error("%s knows %u tokens, and %s has %u", model->text, vocab, info->name, info->vocab);
    return FGIO_EXIT_OK;
}
