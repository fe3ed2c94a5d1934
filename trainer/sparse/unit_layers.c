/*
 * unit_layers.c - units by the names of tensors. A batch norm makes the norm of its convolution irrelevant, so that its
 * scale counts instead; of a head the values count, which are the last part of attn.c_attn.
 *
 * Files of other programs may have such names in another model. A layer is not taken if a tensor of the same modules
 * that no rule slices has the same units, or a norm has: it would keep the old number of them. Another matrix that
 * reads the units cannot be told by its name.
 */
#include "trainer/sparse/unit_layers.h"

#include <math.h>
#include <string.h>

typedef enum slice_use {
    BELONGS,
    SCORED,
    READS,     /* scored as well */
    READS_MAPS /* the same, of a linear layer that reads all pixels of a channel */
} slice_use;

typedef struct slice_rule {
    const char *name; /* how it ends; NULL: no more slices */
    uint32_t axis, parts;
    slice_use use;
} slice_rule;

/** The slices of a layer; the first tensor has as many units as the layer. */
typedef struct layer_rule {
    bool heads, no_norm;         /* no_norm: a vector that is not a bias means that the model is another one */
    bool norm_behind;            /* a norm with the units is behind the convolution, in all blocks of the model */
    const char *input, *instead; /* the tensor that makes the input; one that would read the units instead; or NULL */
    slice_rule slice[FGT_UNIT_SLICES + 1];
} layer_rule;

static const layer_rule rules[] = {
    /* residual networks: channels between the convolutions of a block */
    {.norm_behind = true,
     .slice = {{"conv1.weight", 0, 1, BELONGS},
               {"bn1.weight", 0, 1, SCORED},
               {"bn1.bias", 0, 1, BELONGS},
               {"bn1.running_mean", 0, 1, BELONGS},
               {"bn1.running_var", 0, 1, BELONGS},
               {"conv2.weight", 1, 1, READS}}},
    {.norm_behind = true,
     .input = "conv1.weight",
     .slice = {{"conv2.weight", 0, 1, BELONGS},
               {"bn2.weight", 0, 1, SCORED},
               {"bn2.bias", 0, 1, BELONGS},
               {"bn2.running_mean", 0, 1, BELONGS},
               {"bn2.running_var", 0, 1, BELONGS},
               {"conv3.weight", 1, 1, READS}}},
    /* GPT-2, whose matrices have the input first */
    {.slice = {{"c_fc.weight", 1, 1, SCORED}, {"c_fc.bias", 0, 1, BELONGS}, {"c_proj.weight", 0, 1, READS}}},
    {.heads = true,
     .slice = {{"c_attn.weight", 1, 3, SCORED}, {"c_attn.bias", 0, 3, BELONGS}, {"c_proj.weight", 0, 1, READS}}},
    /* BERT */
    {.slice = {{"intermediate.dense.weight", 0, 1, SCORED},
               {"intermediate.dense.bias", 0, 1, BELONGS},
               {"output.dense.weight", 1, 1, READS}}},
    {.heads = true,
     .slice = {{"self.query.weight", 0, 1, BELONGS},
               {"self.query.bias", 0, 1, BELONGS},
               {"self.key.weight", 0, 1, BELONGS},
               {"self.key.bias", 0, 1, BELONGS},
               {"self.value.weight", 0, 1, SCORED},
               {"self.value.bias", 0, 1, BELONGS},
               {"output.dense.weight", 1, 1, READS}}},
    /* LeNet and the perceptron */
    {.no_norm = true,
     .slice = {{"conv1.weight", 0, 1, SCORED}, {"conv1.bias", 0, 1, BELONGS}, {"conv2.weight", 1, 1, READS}}},
    {.no_norm = true,
     .input = "conv1.weight",
     .instead = "conv3.weight",
     .slice = {{"conv2.weight", 0, 1, SCORED}, {"conv2.bias", 0, 1, BELONGS}, {"fc1.weight", 1, 1, READS_MAPS}}},
    {.no_norm = true,
     .slice = {{"fc1.weight", 0, 1, SCORED}, {"fc1.bias", 0, 1, BELONGS}, {"fc2.weight", 1, 1, READS}}},
    {.no_norm = true,
     .slice = {{"fc2.weight", 0, 1, SCORED}, {"fc2.bias", 0, 1, BELONGS}, {"fc3.weight", 1, 1, READS}}},
};
enum { RULES = sizeof rules / sizeof *rules };

/* ---- layers ------------------------------------------------------------------------------------- */

/* Length of a name before the part that a rule names; SIZE_MAX: it does not end so. */
static size_t base_length(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    bool ends = n >= m && strcmp(name + n - m, end) == 0 && (n == m || name[n - m - 1] == '.');
    return ends ? n - m : SIZE_MAX;
}

/* The tensor whose name has the same beginning and another end; SIZE_MAX: none. */
static size_t find_sibling(const fgt_unit_tensors *t, const char *name, size_t base, const char *end) {
    for (size_t i = 0; i < t->count; i++)
        if (strncmp(t->tensor[i].name, name, base) == 0 && strcmp(t->tensor[i].name + base, end) == 0)
            return i;
    return SIZE_MAX;
}

/* Adds the slices of a tensor; one that is missing or has another length is not. */
static bool add_slice(const fgt_unit_tensors *t, fgt_unit_layer *layer, const slice_rule *rule, size_t i,
                      uint32_t length) {
    const frug_tensor *tensor = i < t->count ? &t->tensor[i] : NULL;
    if (!tensor || rule->axis >= tensor->ndim)
        return false;
    const uint64_t size = tensor->shape[rule->axis], units = layer->units;
    if (rule->use == READS_MAPS)
        length = size / units < UINT32_MAX ? (uint32_t)(size / units) : 0;
    if (length == 0 || size != rule->parts * units * length)
        return false;
    layer->slice[layer->slices++] = (fgt_unit_slice){.tensor = i,
                                                     .axis = rule->axis,
                                                     .parts = rule->parts,
                                                     .length = length,
                                                     .scored = rule->use != BELONGS,
                                                     .reads = rule->use == READS || rule->use == READS_MAPS};
    return true;
}

static bool is_sliced(const fgt_unit_layer *layer, size_t i) {
    for (size_t k = 0; k < layer->slices; k++)
        if (layer->slice[k].tensor == i)
            return true;
    return false;
}

/* Whether a tensor belongs to the module of a slice. The bias of a module that reads the units does not have them. */
static bool shares_module(const fgt_unit_tensors *t, const fgt_unit_layer *layer, size_t i) {
    const char *name = t->tensor[i].name;
    for (size_t k = 0; k < layer->slices; k++) {
        const char *sliced = t->tensor[layer->slice[k].tensor].name;
        size_t module = (size_t)(strrchr(sliced, '.') - sliced) + 1;
        if (strncmp(name, sliced, module) == 0 && !(layer->slice[k].reads && strcmp(name + module, "bias") == 0))
            return true;
    }
    return false;
}

/* Whether a tensor is a vector with a number for each unit, but not the bias of a matrix. */
static bool is_norm(const fgt_unit_tensors *t, size_t i, size_t units) {
    const frug_tensor *tensor = &t->tensor[i];
    const size_t base = base_length(tensor->name, "bias"),
                 weight = base == SIZE_MAX ? SIZE_MAX : find_sibling(t, tensor->name, base, "weight");
    return tensor->ndim == 1 && tensor->shape[0] == units && !(weight < t->count && t->tensor[weight].ndim >= 2);
}

/* Whether another tensor of the same model has the units as well. */
static bool has_other_slices(const fgt_unit_tensors *t, const layer_rule *rule, const fgt_unit_layer *layer,
                             const char *name, size_t base) {
    for (size_t i = 0; i < t->count; i++)
        if (t->tensor[i].ndim > 0 && strncmp(t->tensor[i].name, name, base) == 0 && !is_sliced(layer, i) &&
            (shares_module(t, layer, i) || (rule->no_norm && is_norm(t, i, layer->units))))
            return true;
    return false;
}

/* Whether some block has its first norm before the convolution: then all have, also where both lengths are the same. */
static bool has_norm_before(const fgt_unit_tensors *t) {
    for (size_t i = 0; i < t->count; i++) {
        size_t base = base_length(t->tensor[i].name, "conv1.weight"),
               norm = base == SIZE_MAX ? SIZE_MAX : find_sibling(t, t->tensor[i].name, base, "bn1.weight");
        if (norm != SIZE_MAX && t->tensor[i].ndim > 0 && t->tensor[norm].ndim > 0 &&
            t->tensor[norm].shape[0] != t->tensor[i].shape[0])
            return true;
    }
    return false;
}

/* Whether the tensor before has as many outputs as this one has inputs: not so in groups of channels. */
static bool reads_all_of(const fgt_unit_tensors *t, const frug_tensor *first, size_t base, const char *input) {
    size_t i = find_sibling(t, first->name, base, input);
    return i == SIZE_MAX || (first->ndim > 1 && t->tensor[i].ndim > 0 && t->tensor[i].shape[0] == first->shape[1]);
}

static bool follow_rule(const fgt_unit_tensors *t, size_t i, const layer_rule *rule, uint32_t length,
                        fgt_unit_layer *layer) {
    const frug_tensor *first = &t->tensor[i];
    const slice_rule *slice = rule->slice;
    const size_t base = base_length(first->name, slice->name);
    if (base == SIZE_MAX || length == 0 || slice->axis >= first->ndim)
        return false;
    *layer = (fgt_unit_layer){.units = (size_t)first->shape[slice->axis] / slice->parts / length};
    bool found = layer->units > 0 && add_slice(t, layer, slice, i, length);
    for (slice++; found && slice->name; slice++)
        found = add_slice(t, layer, slice, find_sibling(t, first->name, base, slice->name), length);
    if (found && rule->input)
        found = reads_all_of(t, first, base, rule->input);
    if (found && rule->norm_behind)
        found = !has_norm_before(t);
    if (found && rule->instead)
        found = find_sibling(t, first->name, base, rule->instead) == SIZE_MAX;
    return found && !has_other_slices(t, rule, layer, first->name, base);
}

bool fgt_unit_layer_find(const fgt_unit_tensors *tensors, size_t i, const fgt_unit_kinds *kinds,
                         fgt_unit_layer *layer) {
    for (const layer_rule *rule = rules; rule < rules + RULES; rule++)
        if ((rule->heads ? kinds->heads : kinds->channels) &&
            follow_rule(tensors, i, rule, rule->heads ? kinds->head_length : 1, layer))
            return true;
    return false;
}

/* ---- scores ------------------------------------------------------------------------------------- */

fgt_axis_view fgt_unit_view(const frug_tensor *tensor, const fgt_unit_slice *slice) {
    fgt_axis_view v = {1, (size_t)tensor->shape[slice->axis], 1};
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        v.outer *= d < slice->axis ? (size_t)tensor->shape[d] : 1;
        v.inner *= d > slice->axis ? (size_t)tensor->shape[d] : 1;
    }
    return v;
}

static double slice_norm(const fgt_unit_tensors *t, const fgt_unit_slice *s, size_t units, size_t unit) {
    const fgt_axis_view v = fgt_unit_view(&t->tensor[s->tensor], s);
    const size_t first = (s->parts - 1) * units * s->length + unit * s->length;
    double sum = 0;
    for (size_t o = 0; o < v.outer; o++) {
        const float *x = t->data[s->tensor] + (o * v.axis + first) * v.inner;
        for (size_t i = 0; i < s->length * v.inner; i++)
            sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

void fgt_unit_scores(const fgt_unit_tensors *tensors, const fgt_unit_layer *layer, float *score) {
    for (size_t u = 0; u < layer->units; u++) {
        double product = 1;
        for (size_t k = 0; k < layer->slices; k++)
            product *= layer->slice[k].scored ? slice_norm(tensors, &layer->slice[k], layer->units, u) : 1;
        score[u] = (float)product;
    }
}

void fgt_unit_reader_norms(const fgt_unit_tensors *tensors, const fgt_unit_layer *layer, float *norm) {
    for (size_t k = 0; k < layer->slices; k++)
        for (size_t u = 0; u < layer->units && layer->slice[k].reads; u++)
            norm[u] = (float)slice_norm(tensors, &layer->slice[k], layer->units, u);
}

size_t fgt_units_that_stay(size_t units, double share) {
    size_t wanted = (size_t)llround(share * (double)units);
    return wanted > 0 ? wanted : 1;
}
