/*
 * unit_layers.c - units by the names of tensors. A batch norm makes the norm of its convolution irrelevant, so that its
 * scale counts instead; of a head the values count, which are the last part of attn.c_attn.
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
    bool heads;
    slice_rule slice[FGT_UNIT_SLICES + 1];
} layer_rule;

static const layer_rule rules[] = {
    /* residual networks: channels between the convolutions of a block */
    {false,
     {{"conv1.weight", 0, 1, BELONGS},
      {"bn1.weight", 0, 1, SCORED},
      {"bn1.bias", 0, 1, BELONGS},
      {"bn1.running_mean", 0, 1, BELONGS},
      {"bn1.running_var", 0, 1, BELONGS},
      {"conv2.weight", 1, 1, READS}}},
    {false,
     {{"conv2.weight", 0, 1, BELONGS},
      {"bn2.weight", 0, 1, SCORED},
      {"bn2.bias", 0, 1, BELONGS},
      {"bn2.running_mean", 0, 1, BELONGS},
      {"bn2.running_var", 0, 1, BELONGS},
      {"conv3.weight", 1, 1, READS}}},
    /* GPT-2, whose matrices have the input first */
    {false, {{"c_fc.weight", 1, 1, SCORED}, {"c_fc.bias", 0, 1, BELONGS}, {"c_proj.weight", 0, 1, READS}}},
    {true, {{"c_attn.weight", 1, 3, SCORED}, {"c_attn.bias", 0, 3, BELONGS}, {"c_proj.weight", 0, 1, READS}}},
    /* BERT */
    {false,
     {{"intermediate.dense.weight", 0, 1, SCORED},
      {"intermediate.dense.bias", 0, 1, BELONGS},
      {"output.dense.weight", 1, 1, READS}}},
    {true,
     {{"self.query.weight", 0, 1, BELONGS},
      {"self.query.bias", 0, 1, BELONGS},
      {"self.key.weight", 0, 1, BELONGS},
      {"self.key.bias", 0, 1, BELONGS},
      {"self.value.weight", 0, 1, SCORED},
      {"self.value.bias", 0, 1, BELONGS},
      {"output.dense.weight", 1, 1, READS}}},
    /* LeNet and the perceptron */
    {false, {{"conv1.weight", 0, 1, SCORED}, {"conv1.bias", 0, 1, BELONGS}, {"conv2.weight", 1, 1, READS}}},
    {false, {{"conv2.weight", 0, 1, SCORED}, {"conv2.bias", 0, 1, BELONGS}, {"fc1.weight", 1, 1, READS_MAPS}}},
    {false, {{"fc1.weight", 0, 1, SCORED}, {"fc1.bias", 0, 1, BELONGS}, {"fc2.weight", 1, 1, READS}}},
    {false, {{"fc2.weight", 0, 1, SCORED}, {"fc2.bias", 0, 1, BELONGS}, {"fc3.weight", 1, 1, READS}}},
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
    return found;
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
