/*
 * test_charts.c - labels of charts stay inside and do not overlap, whatever the number of methods and the length of
 * their names; at most six methods are highlighted, and ours look the same in every chart. browser.sh measures what
 * becomes of it in a browser.
 */
#include "lab/report/chart.h"

#include "support/assertions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool covers(const fgl_box *a, const fgl_box *b) {
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

static void labels_stay_inside_and_do_not_overlap(void **state) {
    fgl_box box[20];
    fgl_label_space room = {.edge = {40, 20, 440, 260}};
    (void)state;
    for (int i = 0; i < 20; i++) /* all at one point, in a corner */
        assert_true(fgl_label_space_place(&room, 438, 22, 30 + 5 * i, &box[i]));
    for (int i = 0; i < 20; i++) {
        assert_true(box[i].x0 >= 40 && box[i].x1 <= 440 && box[i].y0 >= 20 && box[i].y1 <= 260);
        assert_true(fabs(box[i].x1 - box[i].x0 - (30 + 5 * i)) < 1e-9);
        for (int k = 0; k < i; k++)
            assert_false(covers(&box[i], &box[k]));
    }
    assert_false(fgl_label_space_place(&room, 100, 100, 401, &box[0]));
    fgl_label_space_free(&room);
}

static void labels_avoid_lines_if_possible(void **state) {
    fgl_box box;
    fgl_label_space room = {.edge = {0, 0, 400, 200}};
    (void)state;
    for (int x = 0; x < 400; x += 4) /* a line to the right of the point, and nothing to the left */
        if (x > 205)
            fgl_label_space_add_line(&room, (fgl_box){x, 98, x + 4, 102});
    assert_true(fgl_label_space_place(&room, 200, 100, 60, &box));
    assert_true(box.x1 < 205 || box.y1 < 98 || box.y0 > 102);
    fgl_label_space_free(&room);
}

static void long_labels_are_wrapped_or_cut_between_characters(void **state) {
    char line[2][200], cut[200], same[220] = "";
    (void)state;
    assert_int_equal(fgl_label_wrap("top-k", 100, line), 1);
    assert_string_equal(line[0], "top-k");
    assert_int_equal(fgl_label_wrap("94 %, blocks of 256, no momentum retention", 150, line), 2);
    assert_string_equal(line[1][0] == '\0' ? "" : strcat(strcat(strcpy(same, line[0]), " "), line[1]),
                        "94 %, blocks of 256, no momentum retention");
    assert_true(fgl_label_width(line[0]) <= 150 && fgl_label_width(line[1]) <= 150);
    fgl_label_cut("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 45, cut, sizeof cut);
    assert_true(fgl_label_width(cut) <= 45);
    assert_string_equal(cut + strlen(cut) - 3, "\xe2\x80\xa6");
    assert_int_equal((strlen(cut) - 3) % 2, 0);
    memset(same, 'm', 199);
    same[199] = '\0';
    assert_int_equal(fgl_label_wrap(same, 100, line), 2);
    assert_true(fgl_label_width(line[0]) <= 100 && fgl_label_width(line[1]) <= 100);
}

/* ---- highlighted methods --------------------------------------------------------------------------------- */

enum { MANY = 17 };

typedef struct sample {
    fgl_run run[MANY];
    fgl_cell cell[MANY];
    fgl_panel panel;
} sample;

static void make(sample *s, const char *const *method, size_t count) {
    *s = (sample){.panel = {.suite = "paper", .size = "", .task = "t", .metric = "accuracy", .count = count}};
    s->panel.cell = s->cell;
    for (size_t i = 0; i < count; i++) {
        s->run[i].method = method[i];
        s->cell[i] = (fgl_cell){.first = &s->run[i], .label = method[i], .mean = 0.5, .workers = 4};
        s->cell[i].dense = strcmp(method[i], "dense") == 0;
        s->cell[i].ours = strncmp(method[i], "frugrad", 7) == 0;
    }
}

static const fgl_series *named(const fgl_series *series, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(series[i].name, name) == 0)
            return &series[i];
    fail_msg("no series %s", name);
    return NULL;
}

static void at_most_six_methods_are_highlighted(void **state) {
    static const char *const all[MANY] = {"dense",         "frugrad",    "frugrad-99", "frugrad-999", "frugrad-99-clip",
                                          "frugrad-paper", "topk",       "qsgd",       "gsgd",        "dense-clip",
                                          "plain",         "plain-99",   "dgc",        "onebit",      "randomk",
                                          "demo",          "no-feedback"};
    static const char *const few[] = {"dense", "frugrad", "onebit", "qsgd"};
    static const char *const lit[] = {"dense", "frugrad", "frugrad-99", "topk", "qsgd", "gsgd"};
    sample s;
    fgl_series *many, *four;
    (void)state;
    make(&s, all, MANY);
    size_t count = fgl_series_make(&s.panel, &many), shown = 0;
    assert_int_equal(count, MANY);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(many[i].number, i + 1);
        shown += many[i].lit;
        for (size_t k = 0; k < i; k++) /* no two highlighted methods look alike */
            assert_false(many[i].lit && many[k].lit && many[i].color == many[k].color && many[i].dash == many[k].dash);
    }
    assert_int_equal(shown, FGL_MAX_HIGHLIGHTED);
    for (size_t i = 0; i < sizeof lit / sizeof *lit; i++)
        assert_true(named(many, count, lit[i])->lit);
    assert_int_equal(named(many, count, "onebit")->group, FGL_GROUP_QUANTIZED);
    make(&s, few, 4);
    assert_int_equal(fgl_series_make(&s.panel, &four), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(four[i].lit);
    assert_int_equal(named(many, count, "frugrad")->color, named(four, 4, "frugrad")->color);
    assert_int_equal(named(many, count, "qsgd")->color, named(four, 4, "qsgd")->color);
    free(many);
    free(four);
}

static void a_method_without_a_result_is_not_highlighted(void **state) {
    static const char *const two[] = {"dense", "topk"};
    sample s;
    fgl_series *series;
    (void)state;
    make(&s, two, 2);
    s.cell[1].mean = NAN;
    assert_int_equal(fgl_series_make(&s.panel, &series), 2);
    assert_true(series[0].lit && !series[1].lit);
    free(series);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_stay_inside_and_do_not_overlap),
        cmocka_unit_test(labels_avoid_lines_if_possible),
        cmocka_unit_test(long_labels_are_wrapped_or_cut_between_characters),
        cmocka_unit_test(at_most_six_methods_are_highlighted),
        cmocka_unit_test(a_method_without_a_result_is_not_highlighted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
