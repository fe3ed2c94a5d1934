/*
 * test_pretrained_weights.c - weights from files of other programs: names with and without prefixes, old names, other
 * types, missing heads; and every error message. With FRUGRAD_DATA also a real file.
 */
#include "trainer/checkpoint_helpers.h"
#include "io/safetensors.h"
#include "io/tensor_file.h"

typedef struct file_tensor {
    const char *name;
    fgio_dtype dtype;
    uint32_t ndim;
    uint64_t shape[2];
    float first; /* values: first, first + 1, ... */
} file_tensor;

static char folder[256], file_path[300];

static int set_up(void **state) {
    (void)state;
    make_folder(folder, sizeof folder);
    snprintf(file_path, sizeof file_path, "%s/model.safetensors", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    remove_folder(folder);
    return 0;
}

/* Whole numbers below 256 are the same in all float types. */
static void write_value(FILE *f, fgio_dtype dtype, float value) {
    double wide = value;
    uint32_t bits;
    uint64_t bits64;
    memcpy(&bits, &value, 4);
    memcpy(&bits64, &wide, 8);
    uint32_t half = bits == 0 ? 0 : ((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff);
    uint64_t out = dtype == FGIO_F64 ? bits64 : dtype == FGIO_F16 ? half : dtype == FGIO_BF16 ? bits >> 16 : bits;
    for (size_t i = 0; i < fgio_dtype_size(dtype); i++)
        fputc((int)(out >> 8 * i & 0xff), f);
}

static void write_file(const file_tensor *tensors, size_t count) {
    fgio_tensor items[8];
    fgio_bytes header;
    fgio_reason why;
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        items[i] = (fgio_tensor){.name = (char *)(uintptr_t)tensors[i].name,
                                 .dtype = tensors[i].dtype,
                                 .ndim = tensors[i].ndim,
                                 .shape = {tensors[i].shape[0], tensors[i].shape[1]}};
        assert_int_equal(fgio_tensor_set_count(&items[i], &why), 0);
    }
    assert_int_equal(fgio_safetensors_header(items, count, NULL, &header, &why), 0);
    FILE *f = fopen(file_path, "wb");
    assert_non_null(f);
    fwrite(header.data, 1, header.len, f);
    for (size_t i = 0; i < count; i++)
        for (uint64_t j = 0; j < items[i].count; j++)
            write_value(f, tensors[i].dtype, tensors[i].first + (float)j);
    fclose(f);
    fgio_bytes_free(&header);
}

/* The names of BERT, small: an embedding, a layer norm, a classifier, running statistics. */
static fgt_graph *small_bert(void) {
    static float weights[64];
    fgt_graph *g = fgt_graph_create(1, 1);
    fgt_param_add(g, "bert.embeddings.word.weight", FRUG_ROLE_EMBEDDING, 2, (const uint64_t[]){4, 3}, FGT_INIT_ZERO, 0);
    fgt_param_add(g, "bert.embeddings.LayerNorm.weight", FRUG_ROLE_NORM, 1, (const uint64_t[]){3}, FGT_INIT_ZERO, 0);
    fgt_param_add(g, "bert.embeddings.LayerNorm.bias", FRUG_ROLE_NORM, 1, (const uint64_t[]){3}, FGT_INIT_ZERO, 0);
    fgt_param_add(g, "classifier.weight", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){2, 3}, FGT_INIT_ZERO, 0);
    fgt_buffer_add(g, "bn.running_var", 2, 9.0f);
    memset(weights, 0, sizeof weights);
    size_t at = 0;
    for (fgt_param *p = g->params; p; at += p->rows * p->cols, p = p->next)
        p->w = weights + at;
    return g;
}

#define EMBEDDING(name, dtype)                                                                                         \
    { name, dtype, 2, {4, 3}, 10 }

static const file_tensor usual[] = {EMBEDDING("bert.embeddings.word.weight", FGIO_F32),
                                    {"bert.embeddings.LayerNorm.weight", FGIO_F32, 1, {3}, 30},
                                    {"bert.embeddings.LayerNorm.bias", FGIO_F32, 1, {3}, 40},
                                    {"classifier.weight", FGIO_F32, 2, {2, 3}, 50},
                                    {"bn.running_var", FGIO_F32, 1, {2}, 60}};

static void expect_values(const fgt_graph *g, const char *name, float first, size_t count) {
    const fgt_param *p = fgt_param_find(g, name);
    const fgt_buffer *b = fgt_buffer_find(g, name);
    const float *data = p ? p->w : b->data;
    for (size_t i = 0; i < count; i++)
        assert_true(data[i] == first + (float)i);
}

static void expect_usual(const fgt_graph *g) {
    expect_values(g, "bert.embeddings.word.weight", 10, 12);
    expect_values(g, "bert.embeddings.LayerNorm.weight", 30, 3);
    expect_values(g, "bert.embeddings.LayerNorm.bias", 40, 3);
    expect_values(g, "bn.running_var", 60, 2);
}

static void expect_loaded(const file_tensor *tensors, size_t count, uint32_t fresh_wanted) {
    uint32_t fresh = 77;
    write_file(tensors, count);
    fgt_graph *g = small_bert();
    assert_int_equal(fgt_weights_load(file_path, g, &fresh), 0);
    assert_int_equal(fresh, fresh_wanted);
    expect_usual(g);
    if (fresh == 0)
        expect_values(g, "classifier.weight", 50, 6);
    else
        for (size_t i = 0; i < 6; i++)
            assert_true(fgt_param_find(g, "classifier.weight")->w[i] == 0.0f);
    fgt_graph_destroy(g);
}

static void expect_refused(const file_tensor *tensors, size_t count, const char *words) {
    stderr_capture errors;
    uint32_t fresh = 77;
    if (tensors)
        write_file(tensors, count);
    fgt_graph *g = small_bert();
    stderr_capture_begin(&errors);
    int code = fgt_weights_load(file_path, g, &fresh);
    stderr_capture_end(&errors);
    assert_int_equal(code, 1);
    assert_int_equal(fresh, 77);
    assert_non_null(strstr(errors.text, file_path));
    if (!strstr(errors.text, words))
        fail_msg("the message is '%s'; expected '%s'", errors.text, words);
    fgt_graph_destroy(g);
}

static void names_may_have_prefixes_or_lack_them(void **state) {
    file_tensor t[5];
    (void)state;
    expect_loaded(usual, 5, 0);
    memcpy(t, usual, sizeof t);
    t[0].name = "embeddings.word.weight";
    t[3].name = "module.classifier.weight";
    t[4].name = "module.model.bn.running_var";
    expect_loaded(t, 5, 0);
    t[0].name = "module.bert.embeddings.word.weight";
    expect_loaded(t, 5, 0);
}

static void old_layer_norm_names_are_accepted(void **state) {
    file_tensor t[5];
    (void)state;
    memcpy(t, usual, sizeof t);
    t[1].name = "bert.embeddings.LayerNorm.gamma";
    t[2].name = "embeddings.LayerNorm.beta";
    expect_loaded(t, 5, 0);
    t[1].name = "bert.embeddings.LayerNorm.gamme";
    expect_refused(t, 5, "has no tensor 'bert.embeddings.LayerNorm.weight'");
}

static void all_float_types_are_converted(void **state) {
    file_tensor t[5];
    (void)state;
    memcpy(t, usual, sizeof t);
    t[0].dtype = FGIO_F16;
    t[1].dtype = FGIO_BF16;
    t[2].dtype = FGIO_F64;
    expect_loaded(t, 5, 0);
    t[1].dtype = FGIO_U8;
    expect_refused(t, 5, "'bert.embeddings.LayerNorm.weight' is not of F32");
}

static void tensors_unknown_to_the_model_are_ignored(void **state) {
    file_tensor t[7];
    (void)state;
    memcpy(t, usual, sizeof usual);
    t[5] = (file_tensor){"bn.num_batches_tracked", FGIO_OTHER64, 0, {0}, 1};
    t[6] = (file_tensor){"h.0.attn.bias", FGIO_U8, 2, {2, 2}, 0};
    expect_loaded(t, 7, 0);
}

static void heads_may_be_missing_or_of_another_shape(void **state) {
    file_tensor t[5];
    (void)state;
    memcpy(t, usual, sizeof t);
    t[3].shape[0] = 7;
    expect_loaded(t, 5, 1);
    t[3] = t[4];
    expect_loaded(t, 4, 1);
}

static void shorter_models_use_the_first_positions(void **state) {
    (void)state;
    static float weights[6];
    fgt_graph *g = fgt_graph_create(1, 1);
    fgt_param *p = fgt_param_add(g, "wpe.weight", FRUG_ROLE_EMBEDDING, 2, (const uint64_t[]){2, 3}, FGT_INIT_ZERO, 0);
    uint32_t fresh = 9;
    p->w = weights;
    write_file((const file_tensor[]){{"transformer.wpe.weight", FGIO_F16, 2, {5, 3}, 7}}, 1);
    assert_int_equal(fgt_weights_load(file_path, g, &fresh), FGIO_EXIT_OK);
    assert_int_equal(fresh, 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(weights[i], 7.0f + (float)i, 0);
    write_file((const file_tensor[]){{"wpe.weight", FGIO_F16, 2, {1, 3}, 7}}, 1); /* too few positions */
    assert_int_not_equal(fgt_weights_load(file_path, g, &fresh), FGIO_EXIT_OK);
    fgt_graph_destroy(g);
}

static void run_that_does_not_fit_is_refused(void **state) {
    file_tensor t[6];
    (void)state;
    memcpy(t, usual, sizeof usual);
    t[0].shape[1] = 4;
    expect_refused(t, 5, "'bert.embeddings.word.weight' has shape [4, 4]; the model has [4, 3]");
    expect_refused(usual + 1, 4, "has no tensor 'bert.embeddings.word.weight'");
    memcpy(t, usual, sizeof usual);
    t[0].name = "embeddings.word.weight";
    t[5] = (file_tensor)EMBEDDING("module.bert.embeddings.word.weight", FGIO_F32);
    expect_refused(t, 6, "has both 'embeddings.word.weight' and 'module.bert.embeddings.word.weight'");
}

static void truncated_file_is_refused(void **state) {
    struct stat st;
    (void)state;
    write_file(usual, 5);
    assert_int_equal(stat(file_path, &st), 0);
    assert_int_equal(truncate(file_path, st.st_size - 1), 0);
    expect_refused(NULL, 0, "ends outside the file");
    assert_int_equal(truncate(file_path, 20), 0);
    expect_refused(NULL, 0, "ends inside the safetensors header");
    assert_int_equal(truncate(file_path, 3), 0);
    expect_refused(NULL, 0, "too short");
    unlink(file_path);
    expect_refused(NULL, 0, "No such file");
}

static void real_file_is_read(void **state) {
    char path[1024];
    fgio_tensor_file file;
    const char *data = getenv("FRUGRAD_DATA");
    (void)state;
    snprintf(path, sizeof path, "%s/weights/resnet-cifar10/resnet20_cifar10.safetensors", data ? data : "");
    if (!data || access(path, R_OK) != 0) {
        print_message("not here: weights/resnet-cifar10 below FRUGRAD_DATA\n");
        skip();
    }
    assert_int_equal(fgio_tensor_file_open(path, &file), 0);
    uint64_t parameters = 0;
    for (size_t i = 0; i < file.head.count; i++) {
        const char *name = file.head.item[i].name;
        if (!strstr(name, "running_"))
            parameters += file.head.item[i].count;
    }
    assert_int_equal(parameters, 269722); /* ResNet-20 as its authors count it */
    const fgio_tensor *bn = fgio_safetensors_find(&file.head, "bn1.running_var");
    float var[16];
    assert_non_null(bn);
    assert_int_equal(bn->count, 16);
    assert_int_equal(fgio_tensor_file_read_f32(&file, bn, var), 0);
    for (int i = 0; i < 16; i++)
        assert_true(var[i] > 0 && var[i] < 100);
    fgio_tensor_file_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_may_have_prefixes_or_lack_them),
        cmocka_unit_test(old_layer_norm_names_are_accepted),
        cmocka_unit_test(all_float_types_are_converted),
        cmocka_unit_test(tensors_unknown_to_the_model_are_ignored),
        cmocka_unit_test(heads_may_be_missing_or_of_another_shape),
        cmocka_unit_test(shorter_models_use_the_first_positions),
        cmocka_unit_test(run_that_does_not_fit_is_refused),
        cmocka_unit_test(truncated_file_is_refused),
        cmocka_unit_test(real_file_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
