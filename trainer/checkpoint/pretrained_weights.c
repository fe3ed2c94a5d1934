/*
 * pretrained_weights.c - loading weights from files of other programs. Their tensor names differ only by a prefix for a
 * wrapper of the model, and by the old names in BERT's layer norms, so names are compared without those: a tensor of
 * the model gets the file's tensor of exactly its name, or the only one that is equal without prefixes.
 */
#include "trainer/checkpoint/checkpoint_checksum.h"
#include "trainer/checkpoint/checkpoint_parts.h"

#include "io/error.h"
#include "io/tensor_file.h"

#include <stdlib.h>
#include <string.h>

/* A tensor name without prefixes. */
typedef struct normalized_name {
    const char *stem; /* without prefixes */
    size_t length;    /* of it without the ending below */
    const char *end;  /* "weight" or "bias" of a layer norm, "" otherwise */
} normalized_name;

/* A tensor of the model. */
typedef struct model_tensor {
    const char *name;
    uint32_t ndim;
    const uint64_t *shape;
    float *data;
    fgt_param *param; /* NULL: running statistics */
} model_tensor;

static normalized_name normalize_name(const char *name) {
    static const char *const prefixes[] = {"module.", "model.", "transformer.", "bert."};
    static const char *const old_endings[] = {"LayerNorm.gamma", "LayerNorm.beta"}, *const new_endings[] = {"weight",
                                                                                                            "bias"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes;) {
        size_t length = strlen(prefixes[i]);
        bool there = strncmp(name, prefixes[i], length) == 0 && name[length] != '\0';
        name += there ? length : 0;
        i = there ? 0 : i + 1; /* wrappers come in any order */
    }
    normalized_name p = {name, strlen(name), ""};
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(old_endings[i]);
        if (p.length >= length && strcmp(name + p.length - length, old_endings[i]) == 0)
            return (normalized_name){name, p.length - length + strlen("LayerNorm."), new_endings[i]};
    }
    return p;
}

static bool same_name(normalized_name a, normalized_name b) {
    size_t end_a = strlen(a.end), end_b = strlen(b.end);
    if (a.length + end_a != b.length + end_b)
        return false;
    if (a.length < b.length) {
        normalized_name swap = a;
        a = b;
        b = swap;
    }
    /* a has its ending in the stem, or both have the same form */
    return strncmp(a.stem, b.stem, b.length) == 0 &&
           (a.length == b.length ? strcmp(a.end, b.end) == 0 : strncmp(a.stem + b.length, b.end, strlen(b.end)) == 0);
}

/* Layers that fine-tuning initializes anew. */
bool fgt_weights_is_head(const char *name) {
    static const char *const heads[] = {"classifier.", "fc.", "linear.", "score.", "pooler.", "cls."};
    normalized_name p = normalize_name(name);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strncmp(p.stem, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

/* The file's tensor for a name; NULL: none. Two candidates are an error. */
static int find_tensor(const fgio_tensor_file *file, const char *name, const fgio_tensor **found) {
    normalized_name want = normalize_name(name);
    const fgio_tensor *like = NULL;
    *found = fgio_safetensors_find(&file->head, name);
    for (size_t i = 0; i < file->head.count && *found == NULL; i++) {
        const fgio_tensor *item = &file->head.item[i];
        if (!same_name(normalize_name(item->name), want))
            continue;
        if (like != NULL)
            return fgio_error("%s: has both '%s' and '%s', either could be '%s' of the model", file->path, like->name,
                              item->name, name);
        like = item;
    }
    if (*found == NULL)
        *found = like;
    return FGIO_EXIT_OK;
}

/* A model for shorter texts uses the first positions of one for longer texts. */
static bool truncate_positions(const fgio_tensor *item, const model_tensor *want, fgio_tensor *first) {
    static const char *const tables[] = {"wpe.weight", "embeddings.position_embeddings.weight"};
    bool is_positions = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        is_positions = is_positions || strcmp(normalize_name(want->name).stem, tables[i]) == 0;
    if (!is_positions || item == NULL || item->ndim != 2 || want->ndim != 2 || item->shape[1] != want->shape[1] ||
        item->shape[0] < want->shape[0])
        return false;
    *first = *item;
    first->shape[0] = want->shape[0];
    first->count = want->shape[0] * want->shape[1];
    return true;
}

/* The file is of another model: report the tensors of both. */
static int wrong_model_error(const fgio_tensor_file *file, const char *want) {
    char first[80] = "none";
    if (file->head.count > 0)
        fgio_printable(file->head.item[0].name, first, sizeof first);
    fgio_error("%s: has no tensor '%s' of the model; it has %zu, the first is '%s'", file->path, want, file->head.count,
               first);
    fgio_hint("use the --model that the file was written for");
    return FGIO_EXIT_FAIL;
}

static int load_tensor(const fgio_tensor_file *file, const model_tensor *want, uint32_t *missing) {
    const fgio_tensor *item = NULL;
    fgio_tensor first;
    char has[128], wants[128];
    if (find_tensor(file, want->name, &item) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (truncate_positions(item, want, &first))
        item = &first;
    bool same = item != NULL && item->ndim == want->ndim &&
                memcmp(item->shape, want->shape, want->ndim * sizeof *want->shape) == 0;
    if (!same && fgt_weights_is_head(want->name)) {
        ++*missing;
        return FGIO_EXIT_OK;
    }
    if (item == NULL)
        return wrong_model_error(file, want->name);
    if (!same) {
        fgio_error("%s: tensor '%s' has shape %s; the model has %s", file->path, item->name,
                   fgio_shape_text(item->ndim, item->shape, has, sizeof has),
                   fgio_shape_text(want->ndim, want->shape, wants, sizeof wants));
        fgio_hint("give --model as the file was trained (gpt2:layers=2,width=64 names other sizes), and for text its "
                  "--tokens, which make the vocabulary");
        return FGIO_EXIT_FAIL;
    }
    if (!fgio_tensor_is_float(item))
        return fgio_error("%s: tensor '%s' is not of F32, F64, F16 or BF16", file->path, item->name);
    if (want->param != NULL && want->param->tensor.absent)
        return FGIO_EXIT_OK; /* another stage loads it */
    if (want->param != NULL && want->param->packable &&
        fgio_tensor_file_pack(file, item, want->param->tensor.input_first != 0, &want->param->packed) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    return want->param != NULL && want->param->packed != NULL ? FGIO_EXIT_OK
                                                              : fgio_tensor_file_read_f32(file, item, want->data);
}

static int load_all(const fgio_tensor_file *file, fgt_graph *graph, uint32_t *missing) {
    size_t tensors = 0;
    for (fgt_param *p = graph->params; p != NULL; p = p->next, tensors++) {
        model_tensor want = {p->tensor.name, p->tensor.ndim, p->tensor.shape, p->w, p};
        if (load_tensor(file, &want, missing) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    }
    for (fgt_buffer *b = graph->buffers; b != NULL; b = b->next, tensors++) {
        model_tensor want = {b->name, 1, &(uint64_t){b->count}, b->data, NULL};
        if (load_tensor(file, &want, missing) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    }
    return *missing == tensors ? wrong_model_error(file, graph->params->tensor.name) : FGIO_EXIT_OK;
}

const fgt_param *fgt_weights_find(const fgt_graph *graph, const char *name) {
    normalized_name want = normalize_name(name);
    const fgt_param *p = graph->params;
    while (p != NULL && !same_name(normalize_name(p->tensor.name), want))
        p = p->next;
    return p;
}

int fgt_weights_load(const char *path, fgt_graph *graph, uint32_t *missing) {
    fgio_tensor_file file;
    uint32_t missing_count = 0;
    int code = fgio_tensor_file_open(path, &file);
    if (code != FGIO_EXIT_OK)
        return code;
    code = fgt_weights_verify(&file);
    if (code == FGIO_EXIT_OK)
        code = load_all(&file, graph, &missing_count);
    if (code == FGIO_EXIT_OK && missing != NULL)
        *missing = missing_count;
    fgio_tensor_file_close(&file);
    return code;
}

void fgt_checkpoint_compare_model(const char *path, const json_t *metadata, const char *model) {
    const char *theirs = json_string_value(json_object_get(metadata, "model"));
    if (json_object_get(metadata, FGT_KEY_FORMAT) != NULL && theirs != NULL && strcmp(theirs, model) != 0)
        fgio_hint("%s is of --model %s, and used as %s: that the shapes agree does not make it the same model", path,
                  theirs, model);
}

void fgt_weights_compare_model(const char *path, const char *model) {
    fgio_tensor_file file = FGIO_TENSOR_FILE_CLOSED;
    fgio_errors_mute(1);
    int status = fgio_tensor_file_open(path, &file);
    fgio_errors_mute(0);
    if (status == FGIO_EXIT_OK)
        fgt_checkpoint_compare_model(path, file.head.metadata, model);
    fgio_tensor_file_close(&file);
}
