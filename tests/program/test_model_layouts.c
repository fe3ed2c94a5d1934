/* test_model_layouts.c - the built-in layouts have the sizes of the published models, and their attention is described
 * so that heads can be found; what is guessed from the names of a file agrees with them. */
#include "support/assertions.h"
#include "program/model/model_layouts.h"
#include "program/model/tensor_roles.h"

#include <stdio.h>

static frug_layout *layout_of(const char *name) {
    frug_layout *layout = NULL;
    OK(fgp_model_layout(name, &layout));
    return layout;
}

static void parameter_totals_are_the_published_ones(void **state) {
    static const struct {
        const char *name;
        uint64_t parameters;
        size_t tensors;
    } published[] = {
        {"resnet20", 269722, 59},      {"resnet18", 11689512, 62}, {"resnet50", 25557032, 161},
        {"bert-base", 109482240, 199}, {"gpt2", 124439808, 148},   {"gpt2-medium", 354823168, 292},
        {"llama-1b", 1235814400, 146},
    };
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        frug_layout *layout = layout_of(published[i].name);
        assert_int_equal(frug_layout_elements(layout), published[i].parameters);
        assert_int_equal(frug_layout_count(layout), published[i].tensors);
        assert_string_equal(fgp_model_at(i), published[i].name);
        frug_layout_destroy(layout);
    }
    frug_layout *none = NULL;
    assert_null(fgp_model_at(sizeof published / sizeof published[0]));
    assert_false(fgp_model_known("resnet"));
    assert_int_equal(fgp_model_layout("resnet", &none), FRUG_ERR_ARG);
}

static frug_tensor tensor_of(const frug_layout *layout, const char *name) {
    frug_tensor t = FRUG_TENSOR_INIT;
    for (size_t i = 0; frug_layout_get(layout, i, &t) == FRUG_OK; i++)
        if (strcmp(t.name, name) == 0)
            return t;
    fail_msg("no tensor %s", name);
    return t;
}

static void check_attention(const char *model, const char *name, frug_role role, uint64_t rows, uint64_t cols,
                            uint32_t heads, uint32_t kv_heads, uint32_t module, uint32_t input_first) {
    frug_layout *layout = layout_of(model);
    frug_tensor t = tensor_of(layout, name);
    assert_int_equal(t.role, role);
    assert_int_equal(t.ndim, 2);
    assert_int_equal(t.shape[0], rows);
    assert_int_equal(t.shape[1], cols);
    assert_int_equal(t.heads, heads);
    assert_int_equal(t.kv_heads, kv_heads);
    assert_int_equal(t.module, module);
    assert_int_equal(t.input_first, input_first);
    frug_layout_destroy(layout);
}

static void attention_is_described(void **state) {
    (void)state;
    check_attention("gpt2", "h.0.attn.c_attn.weight", FRUG_ROLE_ATTN_QKV, 768, 2304, 12, 12, 1, 1);
    check_attention("gpt2", "h.11.attn.c_proj.weight", FRUG_ROLE_ATTN_O, 768, 768, 12, 12, 12, 1);
    check_attention("gpt2", "h.3.mlp.c_proj.weight", FRUG_ROLE_LINEAR, 3072, 768, 0, 0, 0, 1);
    check_attention("gpt2", "wte.weight", FRUG_ROLE_EMBEDDING, 50257, 768, 0, 0, 0, 0);
    check_attention("bert-base", "encoder.layer.4.attention.self.key.weight", FRUG_ROLE_ATTN_K, 768, 768, 12, 12, 5, 0);
    check_attention("bert-base", "encoder.layer.4.attention.output.dense.weight", FRUG_ROLE_ATTN_O, 768, 768, 12, 12, 5,
                    0);
    check_attention("llama-1b", "model.layers.15.self_attn.v_proj.weight", FRUG_ROLE_ATTN_V, 512, 2048, 32, 8, 16, 0);
    check_attention("llama-1b", "model.layers.15.self_attn.q_proj.weight", FRUG_ROLE_ATTN_Q, 2048, 2048, 32, 8, 16, 0);
}

static void convolutions_change_shape_where_stages_begin(void **state) {
    (void)state;
    frug_layout *layout = layout_of("resnet50");
    frug_tensor t = tensor_of(layout, "layer2.0.downsample.0.weight");
    assert_int_equal(t.role, FRUG_ROLE_CONV);
    assert_int_equal(t.shape[0], 512);
    assert_int_equal(t.shape[1], 256);
    t = tensor_of(layout, "layer4.2.conv2.weight");
    assert_int_equal(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3], 512 * 512 * 9);
    frug_layout_destroy(layout);
}

/* The same tensors as named in a file: everything but the number of heads must be guessed correctly. */
static void guesses_agree_with_the_models(void **state) {
    (void)state;
    for (size_t m = 0; fgp_model_at(m) != NULL; m++) {
        frug_layout *layout = layout_of(fgp_model_at(m));
        size_t count = frug_layout_count(layout);
        frug_tensor *known = test_calloc(count, sizeof *known), *guessed = test_calloc(count, sizeof *guessed);
        for (size_t i = 0; i < count; i++) {
            known[i].struct_size = sizeof known[i];
            OK(frug_layout_get(layout, i, &known[i]));
            guessed[i] = known[i];
            guessed[i].role = FRUG_ROLE_OTHER;
            guessed[i].heads = guessed[i].kv_heads = guessed[i].module = guessed[i].input_first = 0;
        }
        assert_int_equal(fgp_guess_tensors(guessed, count, (fgp_heads){32, 8}), 0);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(guessed[i].role, known[i].role);
            assert_int_equal(guessed[i].input_first, known[i].input_first);
            assert_int_equal(guessed[i].heads, known[i].module ? 32 : 0);
            assert_int_equal(guessed[i].kv_heads, known[i].module ? 8 : 0);
            for (size_t j = 0; j < i; j++) /* numbers may differ, the grouping may not */
                assert_int_equal(guessed[i].module == guessed[j].module, known[i].module == known[j].module);
        }
        test_free(known);
        test_free(guessed);
        frug_layout_destroy(layout);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_totals_are_the_published_ones),
        cmocka_unit_test(attention_is_described),
        cmocka_unit_test(convolutions_change_shape_where_stages_begin),
        cmocka_unit_test(guesses_agree_with_the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
