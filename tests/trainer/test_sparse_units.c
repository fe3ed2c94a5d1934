/*
 * test_sparse_units.c - channels and heads: which tensors have them and how important they are; and runs that prune
 * them, after which a unit has no weight left in any tensor, whatever the model.
 */
#include "trainer/job_helpers.h"
#include "program/deploy/prune_units.h"
#include "trainer/nn/ops.h"
#include "trainer/sparse/sparse_weights.h"

#include <math.h>

static frug_tensor tensor(const char *name, uint32_t ndim, uint64_t rows, uint64_t cols) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.ndim = ndim;
    t.shape[0] = rows;
    t.shape[1] = cols;
    return t;
}

/* ---- layers ---- */

static void importance_is_a_product_of_norms(void **state) {
    (void)state;
    const frug_tensor tensors[] = {tensor("h.0.mlp.c_fc.weight", 2, 2, 3), tensor("h.0.mlp.c_fc.bias", 1, 3, 0),
                                   tensor("h.0.mlp.c_proj.weight", 2, 3, 2)};
    float makes[] = {3, 0, 1, 4, 2, 1}, bias[] = {9, 9, 9}, reads[] = {1, 0, 3, 4, 0, 0};
    float *const data[] = {makes, bias, reads};
    const fgt_unit_tensors all = {tensors, data, 3};
    const fgt_unit_kinds kinds = {.channels = true};
    fgt_unit_layer layer;
    float score[3], norm[3];
    assert_true(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    assert_int_equal(layer.units, 3);
    assert_int_equal(layer.slices, 3);
    fgt_unit_scores(&all, &layer, score);
    fgt_unit_reader_norms(&all, &layer, norm);
    assert_true(score[0] == 5 && score[1] == 10 && score[2] == 0);
    assert_true(norm[0] == 1 && norm[1] == 5 && norm[2] == 0);
    for (size_t i = 1; i < 3; i++)
        assert_false(fgt_unit_layer_find(&all, i, &kinds, &layer));
}

/* Queries and keys of a head of two numbers do not count, its values do. */
static void heads_count_by_their_values(void **state) {
    (void)state;
    const frug_tensor tensors[] = {tensor("attn.c_attn.weight", 2, 1, 12), tensor("attn.c_attn.bias", 1, 12, 0),
                                   tensor("attn.c_proj.weight", 2, 4, 1)};
    float makes[] = {9, 9, 1, 1, 9, 9, 1, 1, 0, 1, 3, 4}, bias[12] = {0}, reads[] = {3, 4, 0, 2};
    float *const data[] = {makes, bias, reads};
    const fgt_unit_tensors all = {tensors, data, 3};
    fgt_unit_kinds kinds = {.heads = true, .head_length = 2};
    fgt_unit_layer layer;
    float score[2];
    assert_true(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    assert_int_equal(layer.units, 2);
    fgt_unit_scores(&all, &layer, score);
    assert_true(score[0] == 5 && score[1] == 10);
    const fgt_unit_slice *s = &layer.slice[0];
    static const size_t unit[] = {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1};
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(fgt_unit_at(s, layer.units, i), unit[i]);
    kinds.head_length = 3; /* no whole number of heads */
    assert_false(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    kinds.head_length = 0;
    assert_false(fgt_unit_layer_find(&all, 0, &kinds, &layer));
}

static void tensors_that_do_not_fit_have_no_units(void **state) {
    (void)state;
    frug_tensor tensors[] = {tensor("fc1.weight", 2, 4, 3), tensor("fc1.bias", 1, 4, 0), tensor("fc2.weight", 2, 2, 4)};
    const fgt_unit_tensors all = {tensors, NULL, 3}, fewer = {tensors, NULL, 2};
    const fgt_unit_kinds kinds = {.channels = true};
    fgt_unit_layer layer;
    assert_true(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    assert_false(fgt_unit_layer_find(&fewer, 0, &kinds, &layer));
    tensors[2].shape[1] = 8; /* reads something else as well */
    assert_false(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    tensors[2].shape[1] = 4;
    tensors[1].shape[0] = 5;
    assert_false(fgt_unit_layer_find(&all, 0, &kinds, &layer));
    tensors[1].shape[0] = 4;
    tensors[0].name = "xfc1.weight";
    assert_false(fgt_unit_layer_find(&all, 0, &kinds, &layer));
}

/* ---- models of other programs ---- */

enum { OTHERS = 20 };

typedef struct other_model {
    frug_tensor tensor[OTHERS];
    size_t count;
} other_model;

static void add(other_model *m, const char *name, uint32_t ndim, uint64_t rows, uint64_t cols) {
    frug_tensor *t = &m->tensor[m->count++];
    assert_true(m->count <= OTHERS);
    *t = tensor(name, ndim, rows, cols);
    t->shape[2] = t->shape[3] = ndim == 4 ? 3 : 0;
}

/* Whether the tensor of that name makes units. */
static bool makes_units(const other_model *m, const char *name) {
    const fgt_unit_tensors all = {m->tensor, NULL, m->count};
    const fgt_unit_kinds kinds = {.channels = true};
    fgt_unit_layer layer;
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return fgt_unit_layer_find(&all, i, &kinds, &layer);
    fail_msg("no tensor %s", name);
    return false;
}

/* Two or three convolutions and two linear layers, with biases; sizes are such that 8 channels would divide fc1, too.
 */
static other_model small_network(bool third) {
    other_model m = {.count = 0};
    add(&m, "conv1.weight", 4, 4, 3);
    add(&m, "conv1.bias", 1, 4, 0);
    add(&m, "conv2.weight", 4, 8, 4);
    add(&m, "conv2.bias", 1, 8, 0);
    if (third) {
        add(&m, "conv3.weight", 4, 16, 8);
        add(&m, "conv3.bias", 1, 16, 0);
    }
    add(&m, "fc1.weight", 2, 10, 64);
    add(&m, "fc1.bias", 1, 10, 0);
    add(&m, "fc2.weight", 2, 5, 10);
    add(&m, "fc2.bias", 1, 5, 0);
    return m;
}

static void add_norm(other_model *m, const char *const name[4], uint64_t units) {
    for (size_t i = 0; i < 4; i++)
        add(m, name[i], 1, units, 0);
}

static void the_next_convolution_reads_the_channels(void **state) {
    (void)state;
    const other_model two = small_network(false), three = small_network(true);
    assert_true(makes_units(&two, "conv1.weight") && makes_units(&two, "conv2.weight"));
    assert_true(makes_units(&three, "conv1.weight") && makes_units(&three, "fc1.weight"));
    assert_false(makes_units(&three, "conv2.weight"));
    assert_false(makes_units(&three, "conv3.weight"));
}

static void layers_with_other_tensors_of_their_units_are_left_out(void **state) {
    (void)state;
    static const char *const bn1[] = {"bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"},
                             *const bn4[] = {"bn4.weight", "bn4.bias", "bn4.running_mean", "bn4.running_var"};
    other_model m = small_network(false);
    add_norm(&m, bn1, 4); /* and the convolution has a bias */
    assert_false(makes_units(&m, "conv1.weight"));
    assert_true(makes_units(&m, "conv2.weight"));
    m.tensor[1].name = "other.bias";
    assert_true(makes_units(&m, "conv1.weight"));
    m = small_network(false);
    add_norm(&m, bn4, 10); /* behind fc1 */
    assert_false(makes_units(&m, "fc1.weight"));
    assert_true(makes_units(&m, "conv1.weight"));
    m = small_network(false);
    add(&m, "bn4.running_mean", 1, 10, 0); /* a norm without weights */
    assert_false(makes_units(&m, "fc1.weight"));
    m = small_network(false);
    add(&m, "fc1.lora_A", 2, 2, 64); /* of a tensor that makes the units, or reads them */
    assert_false(makes_units(&m, "fc1.weight"));
    assert_false(makes_units(&m, "conv2.weight"));
    assert_true(makes_units(&m, "conv1.weight"));
}

/* Norms before the convolutions have the inputs of these, though both lengths are the same in most blocks. */
static void norms_before_convolutions_are_of_another_model(void **state) {
    (void)state;
    static const char *const bn1[] = {"b.bn1.weight", "b.bn1.bias", "b.bn1.running_mean", "b.bn1.running_var"};
    for (int before = 0; before < 2; before++) {
        other_model m = {.count = 0};
        add(&m, "a.bn1.weight", 1, before ? 4 : 8, 0);
        add(&m, "a.conv1.weight", 4, 8, 4);
        add_norm(&m, bn1, 8);
        add(&m, "b.conv1.weight", 4, 8, 8);
        add(&m, "b.conv2.weight", 4, 8, 8);
        assert_true(makes_units(&m, "b.conv1.weight") == !before);
    }
}

/* Channels of a convolution in groups belong to inputs of it. */
static void channels_of_groups_are_left_out(void **state) {
    (void)state;
    static const char *const bn2[] = {"b.bn2.weight", "b.bn2.bias", "b.bn2.running_mean", "b.bn2.running_var"};
    other_model m = {.count = 0};
    add(&m, "b.conv1.weight", 4, 8, 3);
    add(&m, "b.conv2.weight", 4, 8, 8);
    add_norm(&m, bn2, 8);
    add(&m, "b.conv3.weight", 4, 6, 8);
    assert_true(makes_units(&m, "b.conv2.weight"));
    m.tensor[1].shape[1] = 1;
    assert_false(makes_units(&m, "b.conv2.weight"));
}

static void one_unit_stays(void **state) {
    (void)state;
    assert_int_equal(fgt_units_that_stay(8, 0.5), 4);
    assert_int_equal(fgt_units_that_stay(3, 0.5), 2);
    assert_int_equal(fgt_units_that_stay(8, 1e-6), 1);
    assert_int_equal(fgt_units_that_stay(8, 1), 8);
}

/* ---- masks ---- */

/* A bottleneck: the second convolution has units in both of its dimensions. */
static fgt_graph *bottleneck(void) {
    fgt_graph *g = fgt_graph_create(1, 1);
    const fgt_conv_shape three = {.channels = 3, .kernel = 1, .stride = 1};
    assert_non_null(g);
    fgt_value *x = fgt_op_pixels(g, 2, 4, 4);
    x = fgt_op_batch_norm_relu(g, "b.bn1", fgt_op_conv(g, "b.conv1", x, three));
    x = fgt_op_batch_norm_relu(g, "b.bn2", fgt_op_conv(g, "b.conv2", x, three));
    fgt_op_conv(g, "b.conv3", x, three);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    fgt_graph_init(g, 1);
    return g;
}

static void set_weights(fgt_graph *g, const char *name, const float *w) {
    fgt_param *p = fgt_param_find(g, name);
    memcpy(p->w, w, p->rows * p->cols * sizeof *w);
}

static unsigned mask_of(const fgt_graph *g, const char *name) {
    const fgt_param *p = fgt_param_find(g, name);
    unsigned bits = 0;
    for (size_t i = 0; i < p->rows * p->cols; i++)
        bits |= (unsigned)fgt_mask_bit(p->mask, i) << i;
    return bits;
}

static void a_pruned_unit_has_no_weight(void **state) {
    (void)state;
    fgt_sparse_options options;
    fgt_sparse *s = NULL;
    fgt_graph *g = bottleneck();
    assert_int_equal(fgt_sparse_parse("channels:density=0.34,from=0,until=1,updates=2", &options), FGIO_EXIT_OK);
    set_weights(g, "b.bn1.weight", (const float[]){3, 1, 2});
    set_weights(g, "b.bn2.weight", (const float[]){1, 2, 3});
    set_weights(g, "b.conv2.weight", (const float[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    set_weights(g, "b.conv3.weight", (const float[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    assert_int_equal(fgt_sparse_create(&options, g, 10, false, 0, &s), FGIO_EXIT_OK);
    assert_int_equal(mask_of(g, "b.conv2.weight"), 0777);
    /* After 7/8 of the sparsity one unit of three stays: the cube is quick. */
    assert_int_equal(fgt_sparse_update(s, NULL, 5), FGIO_EXIT_OK);
    assert_int_equal(mask_of(g, "b.bn1.weight"), 1);
    assert_int_equal(mask_of(g, "b.bn1.bias"), 1);
    assert_int_equal(mask_of(g, "b.bn2.weight"), 4);
    assert_int_equal(mask_of(g, "b.conv1.weight"), 03);   /* the first row of two weights */
    assert_int_equal(mask_of(g, "b.conv2.weight"), 0100); /* the third row, the first input */
    assert_int_equal(mask_of(g, "b.conv3.weight"), 0444); /* the third input */
    assert_int_equal(fgt_mask_packed(g), 2 + 1 + 1 + 1 + 1 + 1 + 3);
    /* The unit that is left stays, even if it is zero. */
    memset(g->weights, 0, (size_t)g->elements * sizeof *g->weights);
    assert_int_equal(fgt_sparse_update(s, NULL, 10), FGIO_EXIT_OK);
    assert_int_equal(mask_of(g, "b.conv2.weight"), 0100);
    fgt_sparse_destroy(s);
    fgt_graph_destroy(g);
}

/* ---- runs ---- */

static const struct {
    const char *model, *sparse;
    uint32_t head_length;
    uint64_t units, kept; /* half of each layer, rounded up */
} runs[] = {
    {"lenet", "channels:updates=3", 0, 226, 113},
    {"mlp", "channels:updates=3", 0, 384, 192},
    {"resnet20", "channels:updates=3", 0, 336, 168},
    {"gpt2:layers=2,width=24,heads=3,length=12", "channels:updates=3", 0, 192, 96},
    {"gpt2:layers=2,width=24,heads=3,length=12", "heads:updates=3", 8, 6, 4},
    {"bert-mini:layers=2,width=24,heads=3,length=12", "units:updates=3", 8, 198, 100},
};
enum { RUNS = sizeof runs / sizeof *runs };

static fgt_job units_job(size_t i, const char *method) {
    fgt_job job = small_job(runs[i].model, method, 2);
    job.sparse = runs[i].sparse;
    job.steps = 10;
    job.save_every = 3;
    job.eval = false;
    return job;
}

/* Units of a checkpoint that something reads; all others have to be zero in all tensors. */
static uint64_t count_units(const char *path, size_t run, uint64_t *units) {
    const fgt_unit_kinds kinds = {.channels = runs[run].sparse[0] != 'h',
                                  .heads = runs[run].head_length > 0,
                                  .head_length = runs[run].head_length};
    fgp_weights w;
    fgt_unit_layer layer;
    uint64_t read = 0;
    assert_int_equal(fgp_weights_read(path, &w), FGIO_EXIT_OK);
    const fgt_unit_tensors all = {w.tensor, w.data, w.count};
    *units = 0;
    for (size_t i = 0; i < w.count; i++) {
        float norm[256];
        if (!fgt_unit_layer_find(&all, i, &kinds, &layer))
            continue;
        fgt_unit_reader_norms(&all, &layer, norm);
        *units += layer.units;
        for (size_t u = 0; u < layer.units; u++)
            read += norm[u] > 0;
        for (size_t k = 0; k < layer.slices; k++) {
            const fgt_unit_slice *s = &layer.slice[k];
            const fgt_axis_view v = fgt_unit_view(&w.tensor[s->tensor], s);
            for (size_t x = 0; x < v.outer * v.axis * v.inner; x++)
                if (!strstr(w.tensor[s->tensor].name, "running") &&
                    !(norm[fgt_unit_at(s, layer.units, x / v.inner % v.axis)] > 0))
                    assert_true(w.data[s->tensor][x] == 0);
        }
    }
    fgp_weights_free(&w);
    return read;
}

static void units_are_pruned_step_by_step(void **state) {
    (void)state;
    for (size_t i = 0; i < RUNS; i++) {
        fgt_job job = units_job(i, "frugrad");
        uint64_t units, middle;
        job.save = path_under("run");
        fgt_report report = train_job(&job, NULL);
        middle = count_units(checkpoint_under("run", 3), i, &units);
        assert_int_equal(units, runs[i].units);
        assert_true(middle < units && middle >= runs[i].kept);
        assert_int_equal(count_units(checkpoint_under("run", 10), i, &units), runs[i].kept);
        assert_true(report.params_kept < report.params);
        remove_folder(path_under("run"));
    }
}

/* Removing what is pruned leaves as many weights as are trained, and running statistics. */
static void pruned_units_can_be_removed(void **state) {
    (void)state;
    for (size_t i = 0; i < RUNS; i++) {
        fgt_job job = units_job(i, "dense");
        const fgp_unit_options how = {.kinds = {true, runs[i].head_length > 0, runs[i].head_length}, .zeros = true};
        fgp_weights w;
        fgp_unit_totals totals;
        uint64_t left = 0;
        job.save = path_under("run");
        fgt_report report = train_job(&job, NULL);
        assert_int_equal(fgp_weights_read(path_under("run"), &w), FGIO_EXIT_OK);
        assert_string_equal(w.model, runs[i].model);
        assert_int_equal(fgp_prune_units(&w, &how, &totals), FGIO_EXIT_OK);
        assert_int_equal(totals.removed, runs[i].units - runs[i].kept);
        for (size_t k = 0; k < w.count; k++)
            left += strstr(w.tensor[k].name, "running") ? 0 : fgp_weights_size(&w.tensor[k]);
        assert_int_equal(left, report.params_kept);
        fgp_weights_free(&w);
        remove_folder(path_under("run"));
    }
}

static void a_resumed_run_has_the_same_bits(void **state) {
    (void)state;
    static const char *const methods[] = {"frugrad", "dense", "frugrad,vectors=sparse", "frugrad"};
    static const char *const optimizers[] = {NULL, "adamw", "adam-merged", "sign"};
    for (size_t i = 0; i < RUNS; i++) {
        fgt_job job = units_job(i, methods[i % 4]);
        char middle[512];
        job.optimizer = optimizers[i % 4];
        job.quantize = i == 4 ? "int8" : NULL;
        job.save = path_under("whole");
        fgt_report report = train_job(&job, NULL);
        snprintf(middle, sizeof middle, "%s", checkpoint_under("whole", 3));
        job.save = path_under("again");
        job.resume = middle;
        assert_int_equal(train_job(&job, NULL).bytes_sent, report.bytes_sent);
        same_files(checkpoint_under("whole", 10), checkpoint_under("again", 10), runs[i].model);
        remove_folder(path_under("whole"));
        remove_folder(path_under("again"));
    }
}

/* Vectors are sent whole, but not those of pruned units. */
static void nothing_is_sent_of_a_pruned_unit(void **state) {
    (void)state;
    fgt_job job = small_job("mlp", "dense", 2);
    job.steps = 1;
    job.eval = false;
    uint64_t whole = train_job(&job, NULL).bytes_sent;
    job.sparse = "channels:density=0.25,from=0,until=0";
    fgt_report report = train_job(&job, NULL);
    assert_int_equal(report.params_kept, 784 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10);
    assert_true((double)report.bytes_sent < 1.02 * (double)whole * (double)report.params_kept / (double)report.params);
}

static void models_without_units_are_refused(void **state) {
    (void)state;
    static const char *const models[] = {"lenet", "mlp", "resnet20"};
    fgt_report report;
    fgio_errors_mute(1);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        fgt_job job = small_job(models[i], "frugrad", 1);
        job.sparse = "heads";
        if (fgt_job_train(&job, NULL, &report) == FGIO_EXIT_OK)
            fail_msg("heads of %s were pruned", models[i]);
    }
    fgio_errors_mute(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(importance_is_a_product_of_norms),
        cmocka_unit_test(heads_count_by_their_values),
        cmocka_unit_test(the_next_convolution_reads_the_channels),
        cmocka_unit_test(layers_with_other_tensors_of_their_units_are_left_out),
        cmocka_unit_test(norms_before_convolutions_are_of_another_model),
        cmocka_unit_test(channels_of_groups_are_left_out),
        cmocka_unit_test(tensors_that_do_not_fit_have_no_units),
        cmocka_unit_test(one_unit_stays),
        cmocka_unit_test(a_pruned_unit_has_no_weight),
        cmocka_unit_test(units_are_pruned_step_by_step),
        cmocka_unit_test(pruned_units_can_be_removed),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(nothing_is_sent_of_a_pruned_unit),
        cmocka_unit_test(models_without_units_are_refused),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
