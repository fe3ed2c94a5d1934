/*
 * test_data_sentences.c - GLUE's tables become [CLS] A [SEP] B [SEP] with segments, the longer sentence truncated
 * first, with the labels of the rows; invalid tables are refused with row and byte; the real ones have their official
 * numbers of rows.
 */
#include "trainer/run/job.h"
#include "trainer/data/tsv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data_helpers.h"

enum { CLS = 1, SEP = 2, A = 4, B = 5, T = 10 };

static char vocabulary[2 * TEMP_PATH_MAX];

static void make_directory(char directory[TEMP_PATH_MAX], const char *name, const char *train) {
    temp_dir_create(directory, name);
    temp_dir_write_text(directory, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
    temp_dir_write_text(directory, "train.tsv", train);
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.txt", directory);
}

static fgt_data *open_sentences(const char *path, const char *subset, const char *tokens, uint32_t length) {
    fgt_data_options want = {
        .task = FGT_TASK_SENTENCES, .path = path, .tokens = tokens, .subset = subset, .length = length};
    fgt_data *data = NULL;
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

static void assert_refused(const char *name, const char *subset, const char *train, const char *reason) {
    char directory[TEMP_PATH_MAX];
    make_directory(directory, name, train);
    fgt_data_options want = {
        .task = FGT_TASK_SENTENCES, .path = directory, .tokens = vocabulary, .subset = subset, .length = T};
    assert_data_refused(&want, reason);
    temp_dir_remove(directory);
}

static void longer_sentence_is_truncated_first(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    static const int32_t tokens[4][T] = {{CLS, A, SEP, B, B, SEP},
                                         {CLS, A, A, A, A, SEP, B, B, B, SEP},
                                         {CLS, A, SEP, B, B, B, B, B, B, SEP},
                                         {CLS, A, A, A, A, A, A, SEP, B, SEP}};
    static const int32_t lengths[4] = {6, T, T, T}, firsts[4] = {3, 6, 3, 8}, labels[4] = {1, 0, 1, 0};
    (void)state;
    make_directory(directory, "MRPC", "nothing");
    temp_dir_write_text(directory, "train.tsv",
                        "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
                        "1\tx\ty\ta\tb b\r\n"
                        "0\tx\ty\ta a a a a a a\tb b b b b b b\n"
                        "1\tx\ty\ta\tb b b b b b b b b b\n"
                        "0\tx\ty\ta a a a a a a a a a\tb");
    fgt_data *data = open_sentences(directory, NULL, vocabulary, T);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_string_equal(info->name, "mrpc");
    assert_int_equal(info->classes, 2);
    assert_int_equal(info->count[FGT_TRAIN], 4);
    assert_int_equal(info->count[FGT_VALID], 0);
    assert_int_equal(fgt_batch_create(info, 1, &batch), FGIO_EXIT_OK);
    int seen = 0;
    for (uint64_t i = 0; i < 4; i++) { /* shuffled: each sample must be one of the four */
        int which = 0;
        fgt_data_batch(data, FGT_TRAIN, 0, i, 1, &batch);
        while (which < 4 && memcmp(batch.tokens, tokens[which], sizeof tokens[which]) != 0)
            which++;
        assert_in_range(which, 0, 3);
        seen |= 1 << which;
        assert_int_equal(batch.lengths[0], lengths[which]);
        assert_int_equal(batch.targets[0], labels[which]);
        for (int t = 0; t < T; t++)
            assert_int_equal(batch.segments[t], t >= firsts[which] && t < lengths[which]);
    }
    assert_int_equal(seen, 15);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void single_sentences_and_numbers(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    make_directory(directory, "some", "gj04\t1\t\ta \"b\n");
    fgt_data *data = open_sentences(directory, "CoLA", vocabulary, T);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 1, &batch);
    assert_memory_equal(batch.tokens, ((int32_t[]){CLS, A, 0, B, SEP, 0}), sizeof(int32_t[6])); /* " is unknown */
    assert_int_equal(batch.targets[0], 1);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_write_text(directory, "train.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.25\n");
    data = open_sentences(directory, "sts-b", vocabulary, T);
    assert_int_equal(fgt_data_get_info(data)->classes, 1);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, 1, &batch);
    assert_true(batch.numbers[0] == 3.25f);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void wrong_tables_are_refused(void **state) {
    (void)state;
    assert_refused("SST-2", NULL, "", "train.tsv: row 1, byte 0: expected columns named 'label', 'sentence'");
    assert_refused("SST-2", NULL, "text\tlabel\n", "row 1, byte 0: expected columns named 'label', 'sentence'");
    assert_refused("SST-2", NULL, "sentence\tlabel\n", "expected training data for at least one sample");
    assert_refused("SST-2", NULL, "sentence\tlabel\na\t1\nb\n", "row 3, byte 19: expected 2 columns, found 1");
    assert_refused("SST-2", NULL, "sentence\tlabel\na\t2\n", "row 2, byte 17: expected a label of 0 or 1, found '2'");
    assert_refused("STS-B", NULL, "score\tsentence1\tsentence2\n5.1\ta\tb\n",
                   "row 2, byte 26: expected a label of 0 to 5");
    assert_refused("CoLA", NULL, "", "row 1, byte 0: expected a row");
    assert_refused("CoLA", NULL, "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n",
                   "at most 32 columns");
    assert_refused("what", NULL, "", "expected a directory named after one of these tasks");
    assert_refused("what", "mnl", "", "unknown task 'mnl': expected sst-2, cola, mrpc, sts-b, qqp, mnli");
    assert_refused("RTE", NULL, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n",
                   "row 2, byte 38: expected a label of entailment or not_entailment");
    assert_refused("MNLI", NULL, "sentence1\tsentence2\tgold_label\na\tb\t-\n",
                   "row 2, byte 35: expected a label of entailment, neutral or contradiction");
    assert_refused("MNLI", NULL, "sentence1\tsentence2\tgold_label\na\tb\n", "expected 3 columns, found 2");
    assert_refused("QNLI", NULL, "index\tquestion\tsentence\tlabel\n0\ta\tb\t1\n", "entailment or not_entailment");
    assert_refused("WNLI", NULL, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t2\n", "a label of 0 or 1");
    assert_refused("QQP", NULL, "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t2\n",
                   "a label of 0 or 1");
    assert_refused("QQP", NULL, "id\tqid1\tqid2\tquestion1\tquestion2\n", "expected columns named 'is_duplicate'");
}

/** A table in the official layout, and what its rows are: the first sentence is i times "a", which finds it again. */
typedef struct official {
    const char *name, *file, *text;
    uint32_t classes;
    int rows[4]; /* labels, by the number of "a" - 1 */
} official;

/* Columns as GLUE's files have them; a quotation mark is a character, a row may end in CR LF. */
static const official officials[] = {
    {"QQP",
     "dev.tsv",
     "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133273\t213221\t213222\ta\tb\t0\n"
     "402555\t536040\t536041\ta a\t\"b\t1\r\n360472\t364011\t490273\ta a a\n broken\tb\t1\n"
     "150662\t155721\t7256\ta a a a\tb \"\t0",
     2,
     {0, 1, -1, 0}},
    {"MNLI",
     "dev_matched.tsv",
     "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
     "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
     "0\t63735\t63735n\tslate\t( a )\t( b "
     ")\t(ROOT)\t(ROOT)\ta\tb\tneutral\tneutral\tneutral\tneutral\tneutral\tneutral\n"
     "1\t91383\t91383c\tslate\t( a )\t( b )\t(ROOT)\t(ROOT)\ta "
     "a\tb\tentailment\tneutral\tcontradiction\tcontradiction\t"
     "contradiction\tcontradiction\n"
     "2\t755\t755e\ttelephone\t( a )\t( b )\t(ROOT)\t(ROOT)\ta a "
     "a\t\"b\"\tentailment\tneutral\tneutral\tneutral\tneutral\t"
     "entailment\n",
     3,
     {1, 2, 0, -1}},
    {"QNLI",
     "dev.tsv",
     "index\tquestion\tsentence\tlabel\n0\ta\tb \"b\tentailment\n1\ta a\tb\tnot_entailment\n",
     2,
     {0, 1, -1, -1}},
    {"RTE",
     "dev.tsv",
     "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta a\tb\tentailment\n",
     2,
     {1, 0, -1, -1}},
    {"WNLI", "dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t0\n1\ta a\tb.\t1\n", 2, {0, 1, -1, -1}},
};

/* The same table serves as training split. */
static void check_official(const official *o) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    int expected = 0, seen = 0;
    stderr_capture c;
    make_directory(directory, o->name, o->text);
    temp_dir_write_text(directory, o->file, o->text);
    stderr_capture_begin(&c);
    fgt_data *data = open_sentences(directory, NULL, vocabulary, T);
    stderr_capture_end(&c);
    assert_true((strcmp(o->name, "QQP") == 0) ==
                (strstr(c.text, "dev.tsv: 2 of 5 rows do not have all columns") != NULL));
    for (int i = 0; i < 4; i++)
        expected += o->rows[i] >= 0;
    assert_int_equal(fgt_data_get_info(data)->classes, o->classes);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_VALID], expected);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
    for (int i = 0; i < expected; i++) {
        int a = 0;
        fgt_data_batch(data, FGT_VALID, 0, (uint64_t)i, 1, &batch);
        while (batch.tokens[1 + a] == A)
            a++;
        assert_in_range(a, 1, 4);
        assert_int_equal(batch.targets[0], o->rows[a - 1]);
        assert_int_equal(batch.tokens[1 + a], SEP);
        seen |= 1 << a;
    }
    assert_int_equal(__builtin_popcount((unsigned)seen), expected);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void all_tasks_of_glue_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof officials / sizeof *officials; i++)
        check_official(&officials[i]);
}

/* Matthews' correlation and F1 of class 1 by their definitions: some table of right and wrong gives all three. */
static int some_table(double n, double there, const fgt_eval_result *q) {
    int found = 0;
    for (double both = 0; both <= there; both++) { /* wrong = there - both + predicted - both */
        double predicted = round(n * (1 - q->accuracy)) - there + 2 * both, against = predicted - both;
        double missed = there - both, neither = n - both - against - missed;
        if (against < 0 || neither < 0)
            continue;
        double spread = sqrt((both + against) * (both + missed) * (neither + against) * (neither + missed));
        double f1 = 2 * both / (2 * both + against + missed);
        found |= isfinite(q->f1)
                     ? fabs(f1 - q->f1) < 1e-12
                     : fabs((spread > 0 ? (both * neither - against * missed) / spread : 0) - q->matthews) < 1e-12;
    }
    return found;
}

static void evaluation_has_the_metric_of_the_task(void **state) {
    char directory[TEMP_PATH_MAX], mrpc[2048] = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", cola[2048] = "";
    (void)state;
    for (int i = 0; i < 24; i++) { /* class 1: 16 of 24; a third of the rows do not depend on their class */
        const char *text = i % 3 == 0 ? "a b" : i % 2 == 0 ? "a a" : "b b";
        snprintf(mrpc + strlen(mrpc), sizeof mrpc - strlen(mrpc), "%d\t1\t2\t%s\t%s\n", i % 3 < 2, text, text);
        snprintf(cola + strlen(cola), sizeof cola - strlen(cola), "x\t%d\t*\t%s %d\n", i % 3 < 2, text, i);
    }
    for (int i = 0; i < 2; i++) {
        fgt_report report;
        make_directory(directory, i ? "MRPC" : "CoLA", i ? mrpc : cola);
        temp_dir_write_text(directory, "dev.tsv", i ? mrpc : cola);
        fgt_job job = {.model = "bert-mini:layers=1,width=16,heads=2,length=16",
                       .data = directory,
                       .tokens = vocabulary,
                       .method = "dense",
                       .schedule = "constant",
                       .rate = 0.02,
                       .epochs = 1,
                       .steps = 8,
                       .seed = 3,
                       .workers = 2,
                       .threads = 2,
                       .batch = 5,
                       .keep = 1,
                       .eval = true};
        assert_int_equal(fgt_job_train(&job, NULL, &report), FGIO_EXIT_OK);
        assert_int_equal(report.quality.asked, 24);
        assert_int_equal(isfinite(report.quality.f1), i);
        assert_int_equal(isfinite(report.quality.matthews), !i);
        assert_true(some_table(24, 16, &report.quality));
        temp_dir_remove(directory);
    }
}

static void numbers_do_not_depend_on_the_locale(void **state) {
    static const struct {
        const char *text;
        int bad;
        double value;
    } cases[] = {{"0", 0, 0},       {"3.800", 0, 3.8},
                 {"-1.5", 0, -1.5}, {".5", 0, 0.5},
                 {"5.", 0, 5},      {"", 1, 0},
                 {"-", 1, 0},       {".", 1, 0},
                 {"1.2.3", 1, 0},   {"1e3", 1, 0},
                 {"nan", 1, 0},     {"1 ", 1, 0},
                 {"0x1", 1, 0},     {"1234567890123456", 1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fgt_tsv_field field = {(const unsigned char *)cases[i].text, strlen(cases[i].text)};
        double value = 0;
        assert_int_equal(fgt_tsv_number(&field, &value), -cases[i].bad);
        assert_true(fabs(value - cases[i].value) < 1e-12);
    }
}

static void real_tables_have_the_published_rows(void **state) {
    static const struct {
        const char *dir;
        uint64_t count[FGT_SPLITS];
    } tasks[] = {{"glue/SST-2", {67349, 872, 1821}},
                 {"glue/CoLA", {8551, 1043, 0}},
                 {"glue/MRPC", {3668, 408, 1725}},
                 {"glue/STS-B", {5749, 1500, 0}}};
    char path[TEMP_PATH_MAX], tokens[TEMP_PATH_MAX];
    (void)state;
    if (real_data("glue", path) == NULL || real_data("tokenizers/bert_base_uncased_vocab.txt", tokens) == NULL)
        skip();
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        fgt_batch batch;
        fgt_data *data = open_sentences(real_data(tasks[i].dir, path), NULL, tokens, 128);
        assert_memory_equal(fgt_data_get_info(data)->count, tasks[i].count, sizeof tasks[i].count);
        assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 1, &batch), FGIO_EXIT_OK);
        fgt_data_batch(data, FGT_VALID, 0, 0, 1, &batch);
        assert_int_equal(batch.tokens[0], 101);
        assert_int_equal(batch.tokens[batch.lengths[0] - 1], 102);
        fgt_batch_destroy(&batch);
        fgt_data_close(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longer_sentence_is_truncated_first),
        cmocka_unit_test(single_sentences_and_numbers),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(all_tasks_of_glue_are_read),
        cmocka_unit_test(evaluation_has_the_metric_of_the_task),
        cmocka_unit_test(real_tables_have_the_published_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
