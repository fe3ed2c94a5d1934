/*
 * removed_units.c - sizes of layers of which units were removed, by `frugrad prune --units`. The shapes of a file of
 * weights have them, so that such a file needs no other name of the model.
 */
#include "trainer/model/model.h"

#include "io/error.h"
#include "io/tensor_file.h"

#include <stdio.h>
#include <string.h>

/* The tensor of this name, maybe behind the names of wrappers. */
static const fgio_tensor *find_tensor(const fgio_tensor_file *file, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < file->head.count; i++) {
        const char *has = file->head.item[i].name;
        size_t more = strlen(has);
        if (more < length || strcmp(has + more - length, name) != 0)
            continue;
        if (more == length || has[more - length - 1] == '.')
            return &file->head.item[i];
    }
    return NULL;
}

/* A dimension of a tensor, as a size below 65536; 0: there is no such tensor. */
static uint32_t dimension(const fgio_tensor_file *file, const char *name, uint32_t ndim, uint32_t d) {
    const fgio_tensor *item = find_tensor(file, name);
    return item && item->ndim == ndim && item->shape[d] < 65536 ? (uint32_t)item->shape[d] : 0;
}

/* first: whether the input is the first dimension of a matrix. */
static void read_transformer(const fgio_tensor_file *file, const char *attention_reader, const char *hidden_maker,
                             bool first, fgt_model *m) {
    char name[96];
    for (uint32_t i = 0; i < m->layers; i++) {
        snprintf(name, sizeof name, attention_reader, i);
        uint32_t attention = dimension(file, name, 2, first ? 0 : 1);
        snprintf(name, sizeof name, hidden_maker, i);
        uint32_t hidden = dimension(file, name, 2, first ? 1 : 0);
        m->units[0][i] = attention < m->hidden && attention % fgt_model_head_length(m) == 0 ? attention : 0;
        m->units[1][i] = hidden < 4 * m->hidden ? hidden : 0;
    }
}

static void read_resnet(const fgio_tensor_file *file, fgt_model *m) {
    char name[64];
    uint32_t block = 0;
    for (uint32_t stage = 1; stage <= 4; stage++)
        for (uint32_t i = 0; block < FGT_LAYERS_MAX; i++, block++) {
            snprintf(name, sizeof name, "layer%u.%u.conv1.weight", stage, i);
            uint32_t inner = dimension(file, name, 4, 0);
            if (inner == 0)
                break;
            m->units[0][block] = inner;
            snprintf(name, sizeof name, "layer%u.%u.conv3.weight", stage, i);
            m->units[1][block] = dimension(file, name, 4, 1);
        }
}

static void read_small_vision(const fgio_tensor_file *file, fgt_model *m) {
    const bool lenet = strcmp(m->name, "lenet") == 0;
    uint32_t *units = m->units[0];
    if (lenet) {
        *units++ = dimension(file, "conv1.weight", 4, 0);
        *units++ = dimension(file, "conv2.weight", 4, 0);
    }
    *units++ = dimension(file, "fc1.weight", 2, 0);
    *units++ = dimension(file, "fc2.weight", 2, 0);
}

uint32_t fgt_model_head_length(const fgt_model *model) {
    return model->heads ? model->hidden / model->heads : 0;
}

int fgt_model_read_units(const char *path, fgt_model *model) {
    fgio_tensor_file file;
    memset(model->units, 0, sizeof model->units);
    int status = fgio_tensor_file_open(path, &file);
    if (status != FGIO_EXIT_OK)
        return status;
    if (strncmp(model->name, "gpt2", 4) == 0)
        read_transformer(&file, "h.%u.attn.c_proj.weight", "h.%u.mlp.c_fc.weight", true, model);
    else if (strncmp(model->name, "bert", 4) == 0)
        read_transformer(&file, "layer.%u.attention.output.dense.weight", "layer.%u.intermediate.dense.weight", false,
                         model);
    else if (strncmp(model->name, "resnet", 6) == 0)
        read_resnet(&file, model);
    else
        read_small_vision(&file, model);
    fgio_tensor_file_close(&file);
    return FGIO_EXIT_OK;
}

uint32_t fgt_model_units(const fgt_model *model, int which, uint32_t layer, uint32_t usual) {
    uint32_t units = layer < FGT_LAYERS_MAX ? model->units[which][layer] : 0;
    return units && units < usual ? units : usual; /* with more, the tensors are refused when they are loaded */
}
