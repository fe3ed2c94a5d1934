/*
 * Sentences with labels: four tasks of GLUE as their official files have them. A table says where each keeps its
 * sentences and labels; columns are found by their names in the first row, or by number in CoLA, which has no names.
 */
#include "sentences.h"
#include "tsv.h"
#include "unpack.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const uint64_t file_max = UINT64_C(1) << 30;

typedef struct glue_task {
    const char *name;
    uint32_t classes;
    const char *label, *a, *b;       /* names of columns; label NULL: no names, label in column 1, sentence in 3 */
    const char *files[FRUGI_SPLITS]; /* "": the official test rows have no labels */
} glue_task;

static const glue_task tasks[] = {
    {"sst-2", 2, "label", "sentence", NULL, {"train.tsv", "dev.tsv", "test_labeled.tsv"}},
    {"cola", 2, NULL, NULL, NULL, {"train.tsv", "dev.tsv", ""}},
    {"mrpc", 2, "Quality", "#1 String", "#2 String", {"train.tsv", "dev.tsv", "msr_paraphrase_test.txt"}},
    {"sts-b", 1, "score", "sentence1", "sentence2", {"train.tsv", "dev.tsv", ""}},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

/* What reading a file needs. */
typedef struct glue_reader {
    const glue_task *task;
    frugi_sentences to;
    frugi_tsv tsv;
    int label, first, second; /* columns; second -1: none */
} glue_reader;

static int find_columns(glue_reader *r, frugi_why *why) {
    const glue_task *task = r->task;
    r->label = 1;
    r->first = 3;
    r->second = -1;
    if (task->label == NULL)
        return 0;
    int got = frugi_tsv_next(&r->tsv, why);
    if (got < 0)
        return -1;
    r->label = got == 0 ? -1 : frugi_tsv_column(&r->tsv, task->label);
    r->first = got == 0 ? -1 : frugi_tsv_column(&r->tsv, task->a);
    r->second = got == 0 || task->b == NULL ? -1 : frugi_tsv_column(&r->tsv, task->b);
    if (r->label >= 0 && r->first >= 0 && (r->second >= 0 || task->b == NULL))
        return 0;
    return frugi_because(why, "row 1, byte 0: expected columns named '%s', '%s'%s%s%s", task->label, task->a,
                         task->b == NULL ? "" : ", '", task->b == NULL ? "" : task->b, task->b == NULL ? "" : "'");
}

/* The label of the row last read. */
static int read_label(const glue_reader *r, float *label, frugi_why *why) {
    int last = r->first > r->second ? r->first : r->second;
    double number;
    last = last > r->label ? last : r->label;
    if (r->tsv.columns <= (size_t)last)
        return frugi_because(why, "row %zu, byte %zu: expected %d columns, found %zu", r->tsv.row, r->tsv.from,
                             last + 1, r->tsv.columns);
    const frugi_tsv_field *field = &r->tsv.fields[r->label];
    int bad = frugi_tsv_number(field, &number);
    if (r->task->classes == 1 ? bad || number < 0 || number > 5 : bad || (number != 0 && number != 1))
        return frugi_because(why, "row %zu, byte %zu: expected a label of %s", r->tsv.row,
                             (size_t)(field->text - r->tsv.text), r->task->classes == 1 ? "0 to 5" : "0 or 1");
    *label = (float)number;
    return 0;
}

static frugi_span span_of(const glue_reader *r, int column) {
    return column < 0 ? (frugi_span){NULL, 0} : (frugi_span){r->tsv.fields[column].text, r->tsv.fields[column].len};
}

static int read_table(glue_reader *r, frugi_split split, frugi_why *why) {
    frugi_sentence row;
    int got;
    if (find_columns(r, why) != 0)
        return -1;
    while ((got = frugi_tsv_next(&r->tsv, why)) > 0) {
        if (read_label(r, &row.label, why) != 0)
            return -1;
        row.a = span_of(r, r->first);
        row.b = span_of(r, r->second);
        if (frugi_sentences_add(&r->to, split, &row, why) != 0)
            return -1;
    }
    return got < 0 || r->tsv.row == 0 ? -1 : 0;
}

static int read_split(glue_reader *r, const char *dir, frugi_split split) {
    const char *name = r->task->files[split];
    frugi_bytes bytes;
    frugi_why why = {"row 1, byte 0: expected a row"};
    char *path = name[0] == '\0' ? NULL : frugi_unpack_find(dir, name);
    if (path == NULL)
        return split == FRUGI_TRAIN ? frugi_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, name)
                                    : FRUGI_EXIT_OK;
    int status = frugi_unpack_file(path, file_max, &bytes);
    if (status == FRUGI_EXIT_OK) {
        frugi_tsv_open(&r->tsv, bytes.data, bytes.len);
        if (read_table(r, split, &why) != 0)
            status = frugi_error("%s: %s", path, why.text);
        frugi_bytes_free(&bytes);
    }
    free(path);
    return status;
}

static const glue_task *find_task(const frugi_data_want *want, const frugi_data *data) {
    const char *name = frugi_sentences_task(want, data);
    for (int i = 0; i < TASKS; i++)
        if (strcasecmp(name, tasks[i].name) == 0)
            return &tasks[i];
    if (want->subset != NULL)
        frugi_error("'%s' is no task known here: expected sst-2, cola, mrpc, sts-b, boolq, arc-easy or arc-challenge",
                    want->subset);
    else
        frugi_error("%s: expected a directory called SST-2, CoLA, MRPC, STS-B or BoolQ, or the task's name beside it",
                    want->path);
    return NULL;
}

int frugi_glue_open(const frugi_data_want *want, frugi_data *data) {
    glue_reader r = {.task = find_task(want, data)};
    if (r.task == NULL)
        return FRUGI_EXIT_FAIL;
    int status = frugi_sentences_begin(want, r.task->classes, r.task->name, data, &r.to);
    for (int i = 0; i < FRUGI_SPLITS && status == FRUGI_EXIT_OK; i++)
        status = read_split(&r, want->path, (frugi_split)i);
    frugi_sentences_end(&r.to);
    return status;
}
