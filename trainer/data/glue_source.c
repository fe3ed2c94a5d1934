/*
 * glue_source.c - labeled sentences: the nine tasks of GLUE in their official files. A table has the columns of
 * sentences and labels of each task; columns are found by their names in the first row, or by number in CoLA, which has
 * no names. Labels are numbers, or words where a task has a list of them. MNLI is validated on the genres it was
 * trained on (matched) and tested on others (mismatched). Some questions of QQP contain line ends, which break their
 * rows: there rows without all columns are skipped, and counted.
 */
#include "trainer/data/sentence_source.h"
#include "trainer/data/tsv.h"
#include "io/unpack_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const uint64_t file_max = UINT64_C(1) << 30;

typedef struct glue_task {
    const char *name;
    uint32_t classes;
    const char *label, *a, *b;     /* names of columns; label NULL: no names, label in column 1, sentence in 3 */
    const char *files[FGT_SPLITS]; /* "": the official test rows have no labels */
    fgt_metric metric;
    const char *label_names[3]; /* the labels by number; NULL: they are numbers */
    int skip_short_rows;        /* rows without all columns are skipped */
} glue_task;

/* The files of most tasks: the official test rows have no labels. */
#define DEV_ONLY          .files = {"train.tsv", "dev.tsv", ""}
#define ENTAILMENT_LABELS .label_names = {"entailment", "not_entailment"}

static const glue_task tasks[] = {
    {"sst-2", 2, "label", "sentence", NULL, .files = {"train.tsv", "dev.tsv", "test_labeled.tsv"}},
    {"cola", 2, NULL, NULL, NULL, DEV_ONLY, .metric = FGT_METRIC_MATTHEWS},
    {"mrpc", 2, "Quality", "#1 String", "#2 String", .files = {"train.tsv", "dev.tsv", "msr_paraphrase_test.txt"},
     .metric = FGT_METRIC_F1},
    {"sts-b", 1, "score", "sentence1", "sentence2", DEV_ONLY},
    {"qqp", 2, "is_duplicate", "question1", "question2", DEV_ONLY, .metric = FGT_METRIC_F1, .skip_short_rows = 1},
    {"mnli", 3, "gold_label", "sentence1", "sentence2", .files = {"train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"},
     .label_names = {"entailment", "neutral", "contradiction"}},
    {"qnli", 2, "label", "question", "sentence", DEV_ONLY, ENTAILMENT_LABELS},
    {"rte", 2, "label", "sentence1", "sentence2", DEV_ONLY, ENTAILMENT_LABELS},
    {"wnli", 2, "label", "sentence1", "sentence2", DEV_ONLY},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

/* State of reading a file. */
typedef struct glue_reader {
    const glue_task *task;
    fgt_sentences to;
    fgt_tsv tsv;
    int label, first, second; /* columns; second -1: none */
    int last;                 /* of the three */
    size_t skipped_rows;      /* rows */
} glue_reader;

static int find_columns(glue_reader *r, fgio_reason *why) {
    const glue_task *task = r->task;
    r->last = 3;
    r->label = 1;
    r->first = 3;
    r->second = -1;
    if (task->label == NULL)
        return 0;
    int got = fgt_tsv_next(&r->tsv, why);
    if (got < 0)
        return -1;
    r->label = got == 0 ? -1 : fgt_tsv_column(&r->tsv, task->label);
    r->first = got == 0 ? -1 : fgt_tsv_column(&r->tsv, task->a);
    r->second = got == 0 || task->b == NULL ? -1 : fgt_tsv_column(&r->tsv, task->b);
    r->last = r->first > r->second ? r->first : r->second;
    r->last = r->last > r->label ? r->last : r->label;
    if (r->label >= 0 && r->first >= 0 && (r->second >= 0 || task->b == NULL))
        return 0;
    return fgio_fail(why, "row 1, byte 0: expected columns named '%s', '%s'%s%s%s", task->label, task->a,
                     task->b == NULL ? "" : ", '", task->b == NULL ? "" : task->b, task->b == NULL ? "" : "'");
}

/* The number of a label that is a word. Returns 0, or -1 where it is not a label. */
static int label_of_word(const glue_task *task, const fgt_tsv_field *field, double *number) {
    for (uint32_t i = 0; i < task->classes; i++)
        if (field->len == strlen(task->label_names[i]) && memcmp(field->text, task->label_names[i], field->len) == 0) {
            *number = i;
            return 0;
        }
    return -1;
}

/* The label of the current row. */
static int read_label(const glue_reader *r, float *label, fgio_reason *why) {
    const glue_task *task = r->task;
    const fgt_tsv_field *field = &r->tsv.fields[r->label];
    const char *wanted = task->label_names[0] == NULL ? "0 or 1"
                         : task->label_names[2]       ? "entailment, neutral or contradiction"
                                                      : "entailment or not_entailment";
    double number = 0;
    int bad = task->label_names[0] != NULL ? label_of_word(task, field, &number) : fgt_tsv_number(field, &number);
    if (task->label_names[0] == NULL)
        bad |= task->classes == 1 ? number < 0 || number > 5 : number != 0 && number != 1;
    if (bad)
        return fgio_fail(why, "row %zu, byte %zu: expected a label of %s, found '%.*s'", r->tsv.row,
                         (size_t)(field->text - r->tsv.text), task->classes == 1 ? "0 to 5" : wanted,
                         (int)(field->len < 40 ? field->len : 40), (const char *)field->text);
    *label = (float)number;
    return 0;
}

static fgt_text_span field_span(const glue_reader *r, int column) {
    return column < 0 ? (fgt_text_span){NULL, 0}
                      : (fgt_text_span){r->tsv.fields[column].text, r->tsv.fields[column].len};
}

static int read_table(glue_reader *r, fgt_split split, fgio_reason *why) {
    fgt_sentence row;
    int got;
    if (find_columns(r, why) != 0)
        return -1;
    while ((got = fgt_tsv_next(&r->tsv, why)) > 0) {
        if (r->tsv.columns <= (size_t)r->last && r->task->skip_short_rows) {
            r->skipped_rows++;
            continue;
        }
        if (r->tsv.columns <= (size_t)r->last)
            return fgio_fail(why, "row %zu, byte %zu: expected %d columns, found %zu", r->tsv.row, r->tsv.from,
                             r->last + 1, r->tsv.columns);
        if (read_label(r, &row.label, why) != 0)
            return -1;
        row.a = field_span(r, r->first);
        row.b = field_span(r, r->second);
        if (fgt_sentences_add(&r->to, split, &row, why) != 0)
            return -1;
    }
    return got < 0 || r->tsv.row == 0 ? -1 : 0;
}

static int read_split(glue_reader *r, const char *dir, fgt_split split) {
    const char *name = r->task->files[split];
    fgio_bytes bytes;
    fgio_reason why = {"row 1, byte 0: expected a row"};
    char *path = name[0] == '\0' ? NULL : fgio_unpack_find(dir, name);
    if (path == NULL)
        return split == FGT_TRAIN ? fgio_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, name)
                                  : FGIO_EXIT_OK;
    int status = fgio_unpack_file(path, file_max, &bytes);
    if (status == FGIO_EXIT_OK) {
        fgt_tsv_open(&r->tsv, bytes.data, bytes.len);
        r->skipped_rows = 0;
        if (read_table(r, split, &why) != 0)
            status = fgio_error("%s: %s", path, why.text);
        else if (r->skipped_rows > 0)
            fgio_hint("%s: %zu of %zu rows do not have all columns and were skipped", path, r->skipped_rows,
                      r->tsv.row - 1);
        fgio_bytes_free(&bytes);
    }
    free(path);
    return status;
}

static const glue_task *find_task(const fgt_data_options *options, const fgt_data *data) {
    const char *name = fgt_sentences_task(options, data);
    for (int i = 0; i < TASKS; i++)
        if (strcasecmp(name, tasks[i].name) == 0)
            return &tasks[i];
    if (options->subset != NULL)
        fgio_usage_error("unknown task '%s': expected " FGT_SENTENCE_TASKS, options->subset);
    else
        fgio_error("%s: expected a directory named after one of these tasks, or --subset TASK:  " FGT_SENTENCE_TASKS,
                   options->path);
    return NULL;
}

int fgt_glue_open(const fgt_data_options *options, fgt_data *data) {
    glue_reader r = {.task = find_task(options, data)};
    if (r.task == NULL)
        return options->subset != NULL ? FGIO_EXIT_USAGE : FGIO_EXIT_FAIL;
    int status = fgt_sentences_begin(options, r.task->classes, r.task->name, data, &r.to);
    data->info.metric = r.task->metric;
    for (int i = 0; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++)
        status = read_split(&r, options->path, (fgt_split)i);
    fgt_sentences_end(&r.to);
    return status;
}
