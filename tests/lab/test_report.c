/*
 * test_report.c - recorded runs: statistics against numbers computed by hand, labels that are markup, files that are
 * not what they should be.
 */
#include "trainer/checkpoint_helpers.h"
#include "lab/report/html_page.h"
#include "lab/report/run_recipe.h"
#include "lab/report/run_records.h"
#include "lab/report/run_stats.h"
#include "lab/report/run_tables.h"
#include "lab/report/conclusions.h"

#include <math.h>

static void add_lines(fgl_runs *runs, const char *lines) {
    fgio_reason why = {""};
    if (fgl_runs_parse(runs, lines, strlen(lines), &why) != 0)
        fail_msg("%s", why.text);
}

#define RUN(method, phase, seed, rate, result)                                                                         \
    "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"size\":\"small\",\"task\":\"resnet20-x\",\"metric\":"            \
    "\"accuracy\","                                                                                                    \
    "\"method\":\"" method "\",\"label\":\"" method " label\",\"phase\":\"" phase "\",\"seed\":" seed                  \
    ",\"rate\":" rate "," result "}\n"
#define RESULT(accuracy, bytes, state)                                                                                 \
    "\"result\":{\"accuracy\":" accuracy ",\"bytes_sent\":" bytes ",\"bytes_dense\":1000,\"step\":10,\"workers\":4,"   \
    "\"density_mean\":0.25,\"model_state_bytes\":" state ",\"step_ms\":8}"

/* Rate 0.1 is best: 0.2 has the best run, and one that diverged. Tests at 0.2 do not count. */
static const char sample[] = RUN("topk", "tune", "1", "0.1", RESULT("0.80", "90", "300"))
    RUN("topk", "tune", "2", "0.1", RESULT("0.84", "90", "300"))
        RUN("topk", "tune", "1", "0.2", RESULT("0.99", "90", "300"))
            RUN("topk", "tune", "2", "0.2", RESULT("null", "90", "300"))
                RUN("topk", "test", "1", "0.1", RESULT("0.70", "100", "300"))
                    RUN("topk", "test", "2", "0.1", RESULT("0.74", "100", "300"))
                        RUN("topk", "test", "3", "0.1", RESULT("0.78", "130", "300"))
                            RUN("topk", "test", "4", "0.1", "\"error\":\"the loss is no longer a number\",\"status\":1")
                                RUN("topk", "test", "1", "0.2", RESULT("0.99", "100", "300"))
                                    RUN("dense", "test", "1", "0.1", RESULT("0.50", "1000", "200"))
                                        RUN("dense", "test", "1", "0.1",
                                            RESULT("0.80", "1000", "200")) /* the last one wins */
    "{\"format\":1,\"kind\":\"speed\",\"suite\":\"s\",\"method\":\"dense\",\"model\":\"resnet20\",\"workers\":4,"
    "\"link\":"
    "\"1 Gbit/s\",\"step_ms\":[30,10,20]}\n"
    "{\"format\":1,\"kind\":\"speed\",\"suite\":\"s\",\"method\":\"topk\",\"model\":\"resnet20\",\"workers\":4,"
    "\"link\":"
    "\"1 Gbit/s\",\"step_ms\":[7,9,90,1]}\n";

static void statistics_match_numbers_computed_by_hand(void **state) {
    fgl_runs runs = {0};
    fgl_findings f = {0};
    (void)state;
    add_lines(&runs, sample);
    assert_int_equal(runs.count, 10);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.panel[0].count, 2);
    const fgl_cell *dense = &f.panel[0].cell[0], *topk = &f.panel[0].cell[1];
    assert_true(dense->dense && !topk->dense);
    assert_float_equal(dense->mean, 0.80, 1e-12);
    assert_true(isnan(dense->sd) && isnan(f.panel[0].cell[0].rate) == 0);
    assert_float_equal(topk->rate, 0.1, 1e-12);
    assert_int_equal(topk->tune_runs, 4);
    assert_int_equal(topk->seeds, 3);
    assert_int_equal(topk->failed, 1);
    assert_float_equal(topk->mean, 0.74, 1e-12);
    assert_float_equal(topk->sd, 0.04, 1e-12);
    assert_float_equal(topk->of_dense, 0.925, 1e-12);
    assert_float_equal(topk->bytes_total, 110, 1e-9);
    assert_float_equal(topk->bytes_step, 11, 1e-9);
    assert_float_equal(topk->bytes_of_dense, 0.11, 1e-12);
    assert_float_equal(topk->state_of_dense, 1.5, 1e-12);
    assert_float_equal(topk->density, 0.25, 1e-12);
    assert_float_equal(topk->speedup, 2.5, 1e-12); /* 20 over the median of 1, 7, 9, 90 */
    assert_string_equal(topk->link, "1 Gbit/s");
    fgl_findings_free(&f);
    assert_int_equal(fgl_findings_make(&runs, "other", &f), 0);
    assert_int_equal(f.count, 0);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

#define BY(command, result) result ",\"command\":\"" command "\""

static const fgl_cell *find_cell(const fgl_findings *f, const char *method) {
    for (size_t i = 0; i < f->panel[0].count; i++)
        if (strcmp(f->panel[0].cell[i].first->method, method) == 0)
            return &f->panel[0].cell[i];
    fail_msg("no method %s", method);
    return NULL;
}

/* A rate that is the lowest or the highest of its search is marked, in every form of a table; one inside is not. */
static void a_best_rate_at_the_edge_is_marked(void **state) {
    static const char lines[] = RUN("low", "tune", "1", "0.1", RESULT("0.9", "90", "300"))
        RUN("low", "tune", "1", "0.2", RESULT("0.8", "90", "300"))
            RUN("low", "test", "1", "0.1", RESULT("0.9", "90", "300"))
                RUN("high", "tune", "1", "0.1", RESULT("0.8", "90", "300"))
                    RUN("high", "tune", "1", "0.2", RESULT("0.9", "90", "300"))
                        RUN("high", "test", "1", "0.2", RESULT("0.9", "90", "300"));
    static const char inside[] = RUN("low", "tune", "1", "0.05", RESULT("0.7", "90", "300"))
        RUN("high", "tune", "1", "0.4", "\"error\":\"the loss is not finite\",\"status\":1")
            RUN("once", "test", "1", "0.4", RESULT("0.9", "90", "300"));
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_text plain = {0}, markdown = {0}, page = {0}, without = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_true(find_cell(&f, "low")->edge && find_cell(&f, "high")->edge);
    fgl_table_panel(&f.panel[0], FGL_TABLE_PLAIN, &plain);
    fgl_table_panel(&f.panel[0], FGL_TABLE_MARKDOWN, &markdown);
    fgl_table_panel(&f.panel[0], FGL_TABLE_HTML, &page);
    assert_non_null(strstr(plain.data, " 0.1* "));
    assert_non_null(strstr(plain.data, " 0.2* "));
    assert_non_null(strstr(plain.data, "\n\n* the lowest or the highest that was tried"));
    assert_non_null(strstr(markdown.data, "| 0.2\\* |"));
    assert_non_null(strstr(page.data, "<td>0.2*</td>"));
    assert_non_null(strstr(page.data, "<p class=\"dim\">* the lowest"));
    fgl_findings_free(&f);
    add_lines(&runs, inside);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    fgl_table_panel(&f.panel[0], FGL_TABLE_PLAIN, &without);
    assert_null(strchr(without.data, '*'));
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
    fgl_text_free(&plain);
    fgl_text_free(&markdown);
    fgl_text_free(&page);
    fgl_text_free(&without);
}

/* The last command of a method counts: runs by others are ignored, with a note. Seeds, rates, evaluation options and
 * folders do not make another command; nor does a method with other workers replace this one. */
static void runs_by_an_older_command_do_not_count(void **state) {
    static const char lines[] =
        RUN("topk", "test", "1", "0.1",
            BY("frugrad train --data /a/mnist --rate 0.1 --steps 90 --seed 1", RESULT("0.10", "90", "300")))
            RUN("topk", "test", "2", "0.1",
                BY("frugrad train --data /a/mnist --rate 0.1 --steps 90 --seed 2", RESULT("0.20", "90", "300")))
                RUN("topk", "test", "3", "0.1",
                    BY("frugrad train --data /a/mnist --rate 0.1 --steps 90 --seed 3",
                       "\"error\":\"no memory\",\"status\":1"))
                    RUN("dense", "test", "1", "0.1", BY("frugrad train --steps 90", RESULT("0.8", "90", "300")))
                        RUN("topk", "tune", "9", "0.1",
                            BY("frugrad train --data b/mnist --rate 0.1 --steps 100 --seed 9 --judge valid",
                               RESULT("0.5", "90", "300")))
                            RUN("topk", "test", "1", "0.1",
                                BY("frugrad train --data mnist --rate 0.1 --steps 100 --seed 1",
                                   RESULT("0.60", "90", "300")));
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_text text = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    const fgl_cell *topk = find_cell(&f, "topk");
    assert_int_equal(topk->seeds, 1);
    assert_int_equal(topk->failed, 0);
    assert_float_equal(topk->mean, 0.60, 1e-12);
    assert_int_equal(find_cell(&f, "dense")->seeds, 1);
    assert_int_equal(f.panel[0].stale, 2);
    fgl_tables_put(&f, FGL_TABLE_PLAIN, &text);
    assert_non_null(strstr(text.data, "\n2 runs are left out: made by another command than the last"));
    fgl_text_free(&text);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

/* Folders do not make another recipe, also if they need shell quotes; their contents do. */
static void recipes_do_not_depend_on_folders(void **state) {
    uint64_t plain = fgl_recipe_of("frugrad train --data mnist --steps 90");
    (void)state;
    assert_true(plain == fgl_recipe_of("frugrad train --data /a/mnist --steps 90"));
    assert_true(plain == fgl_recipe_of("frugrad train --data '/my data/of '\\''98/mnist' --steps 90 --seed 3"));
    assert_true(plain != fgl_recipe_of("frugrad train --data '/my data/cifar' --steps 90"));
    assert_true(fgl_recipe_of("a 'b c") != 0); /* a quote that does not end */
    uint64_t with_data = fgl_recipe_with_data("frugrad train --data a/mnist --threads 2 --steps 90");
    assert_true(with_data == fgl_recipe_with_data("frugrad train --data 'a//mnist' --threads 1 --steps 90"));
    assert_true(with_data != fgl_recipe_with_data("frugrad train --data b/mnist --threads 2 --steps 90"));
    assert_true(with_data != fgl_recipe_with_data("frugrad train --data a/mnist --steps 90 --hold-out 9"));
    assert_true(plain == fgl_recipe_of("frugrad train --data mnist --steps 90 --hold-out 9"));
}

/* The number of workers of a failed run is only in its command: it does not replace runs with other numbers. */
static void a_failure_with_other_workers_leaves_runs_alone(void **state) {
    static const char lines[] =
        RUN("topk", "test", "1", "0.1", BY("frugrad train --workers 4 --seed 1", RESULT("0.50", "90", "300")))
            RUN("topk", "test", "2", "0.1", BY("frugrad train --workers 4 --seed 2", RESULT("0.70", "90", "300")))
                RUN("topk", "test", "3", "0.1",
                    BY("frugrad train --workers 2 --seed 3", "\"error\":\"no memory\",\"status\":1"));
    fgl_runs runs = {0};
    fgl_findings f = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_int_equal(f.panel[0].stale, 0);
    assert_int_equal(find_cell(&f, "topk")->seeds, 2);
    assert_float_equal(find_cell(&f, "topk")->mean, 0.60, 1e-12);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

static void of_perplexities_the_lower_is_better(void **state) {
    static const char lines[] =
        "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"task\":\"t\",\"metric\":\"perplexity\",\"method\":\"a\","
        "\"phase\":\"tune\",\"seed\":1,\"rate\":1,\"result\":{\"perplexity\":30}}\n"
        "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"task\":\"t\",\"metric\":\"perplexity\",\"method\":\"a\","
        "\"phase\":\"tune\",\"seed\":1,\"rate\":2,\"result\":{\"perplexity\":20}}\n"
        "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"task\":\"t\",\"metric\":\"perplexity\",\"method\":\"a\","
        "\"phase\":\"test\",\"seed\":1,\"rate\":2,\"result\":{\"perplexity\":25},\"unknown\":[{}]}\n"
        "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"task\":\"t\",\"metric\":\"perplexity\",\"method\":\"dense\","
        "\"phase\":\"test\",\"seed\":1,\"rate\":null,\"result\":{\"perplexity\":20}}\n";
    fgl_runs runs = {0};
    fgl_findings f = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_float_equal(f.panel[0].cell[1].rate, 2, 0);
    assert_float_equal(f.panel[0].cell[1].of_dense, 0.8, 1e-12);
    assert_true(isnan(f.panel[0].cell[0].rate) && isnan(f.panel[0].cell[1].speedup));
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

static void curves_are_averaged_where_their_steps_agree(void **state) {
    static const char lines[] =
        RUN("a", "test", "1", "1",
            "\"result\":{},\"curve\":{\"step\":[1,2],\"seconds\":[1,2],\"bytes\":[5,6],"
            "\"loss\":[4,null]}") RUN("a", "test", "2", "1",
                                      "\"result\":{},\"curve\":{\"step\":[1,2],\"seconds\":[3,4],"
                                      "\"bytes\":[7,8],\"loss\":[2,1]}")
            RUN("a", "test", "3", "1",
                "\"result\":{},\"curve\":{\"step\":[1,3],\"seconds\":[9,9],\"bytes\":[9,9],\"loss\":[9,9]}");
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_curve curve;
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_int_equal(fgl_curve_mean(&runs, &f.panel[0].cell[0], false, &curve), 0);
    assert_int_equal(curve.count, 2);
    assert_float_equal(curve.seconds[0], 2, 0);
    assert_float_equal(curve.bytes[1], 7, 0);
    assert_float_equal(curve.value[0], 3, 0);
    assert_true(isnan(curve.value[1]));
    free(curve.step);
    assert_int_equal(fgl_curve_mean(&runs, &f.panel[0].cell[0], true, &curve), -1);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

static void stems_of_methods(void **state) {
    (void)state;
    assert_int_equal(fgl_method_stem("topk-0.99"), 4);
    assert_int_equal(fgl_method_stem("dense-w8"), 5);
    assert_int_equal(fgl_method_stem("frugrad"), 7);
    assert_int_equal(fgl_method_stem("small-none"), 10);
    assert_int_equal(fgl_method_stem("merged99"), 8);
    assert_int_equal(fgl_method_stem("99"), 2);
    assert_int_equal(fgl_method_stem(""), 0);
}

/* ---- labels -------------------------------------------------------------------------------------------- */

static void labels_are_text_and_never_markup(void **state) {
    static const char lines[] =
        "{\"format\":1,\"kind\":\"run\",\"suite\":\"<b>s\",\"task\":\"t'\\\"><i>\",\"metric\":\"accuracy\",\"method\":"
        "\"x\","
        "\"label\":\"<script>alert(1)</script>\\u0001\\uffff&|\",\"phase\":\"test\",\"seed\":1,\"command\":\"<u>\","
        "\"begun\":\"<s>\",\"environment\":{\"cpu\":\"<q>\"},\"result\":{\"accuracy\":0.5,\"bytes_sent\":10,\"step\":1,"
        "\"time_ms\":{\"data\":1}},\"layers\":{\"names\":[\"<em>\"],\"steps\":[1],\"density\":[[0.5]]},"
        "\"curve\":{\"step\":[1],\"seconds\":[1],\"bytes\":[1],\"loss\":[1]}}\n";
    static const char *const never[] = {"<script", "<b>s", "<i>", "<u>", "<s>", "<q>", "<em>", "\x01", "\xef\xbf\xbf"};
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_text page = {0}, table = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    assert_int_equal(fgl_page(&f, &page), 0);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(page.data, never[i]) != NULL)
            fail_msg("the page has %s", never[i]);
    assert_non_null(strstr(page.data, "&lt;script&gt;alert(1)&lt;/script&gt;??&amp;|"));
    fgl_tables_put(&f, FGL_TABLE_MARKDOWN, &table);
    assert_non_null(strstr(table.data, "\\<script\\>alert(1)\\</script\\>?"));
    assert_non_null(strstr(table.data, "\\&\\|"));
    fgl_text_free(&page);
    fgl_text_free(&table);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

/* ---- hostile files ---------------------------------------------------------------------------------------- */

#define BEGIN "{\"format\":1,\"kind\":\"run\",\"suite\":\"s\",\"task\":\"t\",\"metric\":\"accuracy\",\"method\":\"m\","
#define GOOD  BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":{}"

static void errors_name_the_line(void **state) {
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"{", "line 2: not JSON: column"},
        {"[]", "line 2: not an object"},
        {"{}", "format is missing"},
        {"{\"format\":\"1\"}", "format is not a whole number"},
        {"{\"format\":2}", "format is 2; this program supports format 1"},
        {"{\"format\":1}", "kind is missing"},
        {"{\"format\":1,\"kind\":\"x\"}", "kind is 'x'"},
        {"{\"format\":1,\"kind\":\"run\"}", "suite is missing"},
        {"{\"format\":1,\"kind\":\"run\",\"suite\":7}", "suite is not a string"},
        {BEGIN "\"phase\":\"x\"}", "phase is 'x', not tune or test"},
        {BEGIN "\"phase\":\"test\"}", "seed is missing"},
        {BEGIN "\"phase\":\"test\",\"seed\":-1}", "seed is not a whole number"},
        {BEGIN "\"phase\":\"test\",\"seed\":1}", "neither result nor error"},
        {BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":[]}", "result is not an object"},
        {BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":{\"accuracy\":1.5}}",
         "result.accuracy is 1.5, not from 0 to 1"},
        {BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":{\"bytes_sent\":-1}}", "result.bytes_sent is -1"},
        {BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":{\"step_ms\":\"1\"}}", "result.step_ms is not a number"},
        {BEGIN "\"phase\":\"test\",\"seed\":1,\"result\":{\"time_ms\":{\"wire\":-3}}}", "result.time_ms.wire is -3"},
        {GOOD ",\"rate\":1e300}", "rate is 1e+300"},
        {GOOD ",\"curve\":{\"step\":[1]}}", "curve.seconds is missing"},
        {GOOD ",\"curve\":{\"step\":[1],\"seconds\":[]}}", "curve.seconds is not as long as curve.step"},
        {GOOD ",\"evals\":{\"step\":[\"\"],\"seconds\":[1],\"bytes\":[1],\"value\":[1]}}", "evals.step: entry 0"},
        {GOOD ",\"layers\":{\"names\":[1],\"steps\":[],\"density\":[]}}", "layers.names: entry 0 is not a string"},
        {GOOD ",\"layers\":{\"names\":[\"a\"],\"steps\":[1],\"density\":[]}}", "layers.density is not as long"},
        {GOOD ",\"layers\":{\"names\":[\"a\"],\"steps\":[1],\"density\":[[]]}}", "row 0 is not a list of 1 numbers"},
        {GOOD ",\"layers\":{\"names\":[\"a\"],\"steps\":[1],\"density\":[[2]]}}", "layers.density: entry 0"},
        {GOOD ",\"environment\":3}", "environment is not an object"},
        {"{\"format\":1,\"kind\":\"speed\",\"suite\":\"s\",\"method\":\"m\",\"model\":\"x\",\"link\":\"l\",\"step_ms\":"
         "[]}",
         "step_ms is empty"},
        {"{\"format\":1,\"kind\":\"speed\",\"suite\":\"s\",\"method\":\"m\",\"model\":\"x\",\"link\":\"l\",\"step_ms\":"
         "[0]}",
         "step_ms: entry 0 is not above 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fgl_runs runs = {0};
        fgio_reason why = {""};
        char text[1024];
        snprintf(text, sizeof text, "%s}\n%s\n", GOOD, bad[i].line);
        assert_int_equal(fgl_runs_parse(&runs, text, strlen(text), &why), -1);
        if (strncmp(why.text, "line 2: ", 8) != 0 || strstr(why.text, bad[i].why) == NULL)
            fail_msg("'%s' gives '%s' and not '%s'", bad[i].line, why.text, bad[i].why);
        fgl_runs_free(&runs);
    }
}

static void an_incomplete_end_is_ignored_and_a_long_list_rejected(void **state) {
    fgl_runs runs = {0};
    fgio_reason why = {""};
    fgl_text text = {0};
    (void)state;
    fgl_put(&text, "%s}\n\r\n \t\n%s,\"cur", GOOD, GOOD);
    assert_int_equal(fgl_runs_parse(&runs, text.data, text.len, &why), 0);
    assert_int_equal(runs.count, 1);
    assert_true(runs.torn);
    text.len = 0;
    fgl_put(&text, "%s,\"curve\":{\"step\":[0", GOOD);
    for (int i = 0; i < FGL_MAX_POINTS; i++)
        fgl_put_raw(&text, ",0");
    fgl_put_raw(&text, "]}}\n");
    assert_int_equal(fgl_runs_parse(&runs, text.data, text.len, &why), -1);
    assert_string_equal(why.text, "line 1: curve.step has 10001 entries; 10000 at most");
    text.len = 0;
    for (int i = 0; i < 100000; i++) /* deeper than any reader should follow */
        fgl_put_raw(&text, "[");
    fgl_put_raw(&text, "\n");
    assert_int_equal(fgl_runs_parse(&runs, text.data, text.len, &why), -1);
    fgl_text_free(&text);
    fgl_runs_free(&runs);
}

static void one_line_for_files_that_are_not_there(void **state) {
    stderr_capture errors;
    FILE *null = fopen("/dev/null", "w");
    (void)state;
    stderr_capture_begin(&errors);
    int code = fgl_report_tables("/nowhere/at/all", NULL, NULL, null);
    stderr_capture_end(&errors);
    fclose(null);
    assert_int_equal(code, 1);
    assert_non_null(strstr(errors.text, "/nowhere/at/all"));
    assert_ptr_equal(strchr(errors.text, '\n'), errors.text + strlen(errors.text) - 1);
}

/* ---- conclusions -------------------------------------------------------------------------------------------- */

static void keep_sentence(void *user, bool loss, const char *sentence) {
    fgl_text *all = user;
    fgl_put(all, "%c %s\n", loss ? '-' : '+', sentence);
}

static void conclusions_include_losses(void **state) {
    static const char lines[] = RUN("dense", "test", "1", "1", RESULT("0.90", "1000", "200"))
        RUN("dense", "test", "2", "1", RESULT("0.92", "1000", "200"))
            RUN("frugrad", "test", "1", "1", RESULT("0.90", "51", "200"))
                RUN("frugrad", "test", "2", "1", RESULT("0.91", "51", "200"))
                    RUN("frugrad-99", "test", "1", "1", RESULT("0.60", "20", "220"))
                        RUN("frugrad-99", "test", "2", "1", RESULT("0.61", "20", "220"))
                            RUN("other", "test", "1", "1", RESULT("0.80", "10", "200"));
    static const char *const want[] = {
        "+ frugrad label: 99.5 % of dense (90.50 % against 91.00 %, within the spread of the seeds) at 5.1 % of the "
        "bytes\n",
        "- frugrad-99 label loses to \xe2\x80\x9cother label\xe2\x80\x9d, which reaches 80.00 % instead of 60.50 % "
        "with 50.0 % of its bytes\n",
        "- frugrad-99 label is behind dense by more than the spread: 60.50 % instead of 91.00 %\n",
        "- frugrad-99 label keeps 110 % of dense",
    };
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_text all = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    fgl_conclusions(&f.panel[0], keep_sentence, &all);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (strstr(all.data, want[i]) == NULL)
            fail_msg("no '%s' in:\n%s", want[i], all.data);
    assert_null(strstr(all.data, "- frugrad label"));
    fgl_text_free(&all);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

/* ---- fine-tuning -------------------------------------------------------------------------------------------- */

#define TUNED(method, seed, perplexity, states, head, bytes)                                                           \
    "{\"format\":1,\"kind\":\"run\",\"suite\":\"sgc\",\"task\":\"lm\",\"metric\":\"perplexity\",\"method\":\"" method  \
    "\",\"phase\":\"test\",\"seed\":" seed ",\"rate\":1,\"result\":{\"perplexity\":" perplexity                        \
    ",\"density_mean\":1,\"bytes_sent\":5,\"step\":1,\"states\":" states ",\"head_states\":" head                      \
    ",\"optimizer_bytes\":" bytes "}}\n"

static void fine_tuning_is_measured_by_optimizer_bytes(void **state) {
    static const char lines[] = TUNED("lora-8", "1", "6", "8", "10", "140")
        TUNED("mesgc-16", "1", "8", "16", "10", "140") TUNED("head", "1", "9", "4", "10", "90")
            TUNED("full", "1", "4", "100", "10", "440") TUNED("mesgc-4", "1", "8", "4", "10", "60");
    static const char *const want[] = {
        "+ mesgc-16: 50.0 % of AdamW (8.00 against 4.00) at 25.0 % of the optimizer\xe2\x80\x99s bytes\n",
        "- mesgc-16 loses to \xe2\x80\x9clora-8\xe2\x80\x9d, which reaches 6.00 instead of 8.00 with 100.0 % of its "
        "optimizer\xe2\x80\x99s "
        "bytes\n",
        "- mesgc-4 is behind AdamW: 8.00 instead of 4.00",
    };
    fgl_runs runs = {0};
    fgl_findings f = {0};
    fgl_text all = {0}, table = {0};
    (void)state;
    add_lines(&runs, lines);
    assert_int_equal(fgl_findings_make(&runs, NULL, &f), 0);
    const fgl_panel *panel = &f.panel[0];
    assert_true(panel->tuned && panel->count == 5 && panel->cell[0].dense && panel->cell[1].ours);
    assert_float_equal(panel->cell[1].states, 16, 0);
    assert_float_equal(panel->cell[1].optimizer_bytes, 100, 0);
    fgl_conclusions(panel, keep_sentence, &all);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (strstr(all.data, want[i]) == NULL)
            fail_msg("no '%s' in:\n%s", want[i], all.data);
    assert_null(strstr(all.data, "mesgc-4 loses"));
    fgl_table_panel(panel, FGL_TABLE_MARKDOWN, &table);
    assert_non_null(strstr(table.data, "| method | rate or scale | perplexity | states | optimizer bytes | vs AdamW | "
                                       "seeds |"));
    assert_non_null(strstr(table.data, "| head | 1 | 9.00 |  |  | 44.4 % | 1 |"));
    fgl_text_free(&table);
    fgl_text_free(&all);
    fgl_findings_free(&f);
    fgl_runs_free(&runs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_match_numbers_computed_by_hand),
        cmocka_unit_test(a_best_rate_at_the_edge_is_marked),
        cmocka_unit_test(runs_by_an_older_command_do_not_count),
        cmocka_unit_test(recipes_do_not_depend_on_folders),
        cmocka_unit_test(a_failure_with_other_workers_leaves_runs_alone),
        cmocka_unit_test(of_perplexities_the_lower_is_better),
        cmocka_unit_test(curves_are_averaged_where_their_steps_agree),
        cmocka_unit_test(stems_of_methods),
        cmocka_unit_test(labels_are_text_and_never_markup),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(an_incomplete_end_is_ignored_and_a_long_list_rejected),
        cmocka_unit_test(one_line_for_files_that_are_not_there),
        cmocka_unit_test(conclusions_include_losses),
        cmocka_unit_test(fine_tuning_is_measured_by_optimizer_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
