/*
 * Sentences with labels: four tasks of GLUE as their official files have them. A table says where each keeps its
 * sentences and labels; columns are found by their names in the first row, or by number in CoLA, which has no names.
 * Rows become tokens when they are read, [CLS] A [SEP] (B [SEP]), cut to T by shortening the longer sentence first.
 */
#include "source.h"
#include "tsv.h"
#include "unpack.h"
#include "wordpiece.h"

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

typedef struct row {
    uint64_t at;     /* of its tokens in ids */
    uint32_t len, a; /* tokens, and those of them that belong to the first sentence */
    float label;
} row;

typedef struct glue {
    frugi_ids ids;
    row *rows[FRUGI_SPLITS];
    size_t cap;
} glue;

/* What reading a file needs. */
typedef struct glue_reader {
    const glue_task *task;
    const frugi_wordpiece *pieces;
    frugi_wordpiece_cache cache;
    frugi_ids a, b; /* tokens of the sentences of one row */
    frugi_tsv tsv;
    int label, first, second; /* columns; second -1: none */
} glue_reader;

static void close_glue(void *state) {
    glue *s = state;
    frugi_ids_free(&s->ids);
    for (int i = 0; i < FRUGI_SPLITS; i++)
        free(s->rows[i]);
    free(s);
}

static void glue_sample(const frugi_data *data, frugi_place place, frugi_batch *batch, size_t slot) {
    const glue *s = data->state;
    const row *r = &s->rows[place.split][place.index];
    uint32_t T = data->info.length;
    int32_t *tokens = batch->tokens + slot * T, *segments = batch->segments + slot * T;
    for (uint32_t t = 0; t < T; t++) {
        tokens[t] = t < r->len ? frugi_ids_at(&s->ids, r->at + t) : 0;
        segments[t] = t >= r->a && t < r->len;
    }
    batch->lengths[slot] = (int32_t)r->len;
    batch->targets[slot] = data->info.classes == 1 ? 0 : (int32_t)r->label;
    batch->numbers[slot] = r->label;
}

static const frugi_source glue_source = {glue_sample, close_glue};

/* Make both sentences fit, the longer one giving way; of two equal ones the second, as BERT has it. */
static void cut(size_t *a, size_t *b, size_t most) {
    while (*a + *b > most)
        --*(*a > *b ? a : b);
}

static int push_all(frugi_ids *to, const frugi_ids *from, size_t n, uint32_t then) {
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= frugi_ids_push(to, (uint32_t)frugi_ids_at(from, i));
    return bad | frugi_ids_push(to, then);
}

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

/* Tokens of the row last read, at the end of s->ids. */
static int read_row(glue_reader *r, glue *s, uint32_t T, row *to, frugi_why *why) {
    const frugi_wordpiece_special *special = frugi_wordpiece_specials(r->pieces);
    const frugi_tsv_field *fields = r->tsv.fields;
    if (read_label(r, &to->label, why) != 0)
        return -1;
    r->a.len = r->b.len = 0;
    int bad = frugi_wordpiece_encode(r->pieces, &r->cache, fields[r->first].text, fields[r->first].len, &r->a);
    if (r->second >= 0)
        bad |= frugi_wordpiece_encode(r->pieces, &r->cache, fields[r->second].text, fields[r->second].len, &r->b);
    size_t a = r->a.len, b = r->b.len;
    cut(&a, &b, T - (r->second >= 0 ? 3 : 2));
    to->at = s->ids.len;
    bad |= frugi_ids_push(&s->ids, special->first) | push_all(&s->ids, &r->a, a, special->separator);
    to->a = (uint32_t)(s->ids.len - to->at);
    if (r->second >= 0)
        bad |= push_all(&s->ids, &r->b, b, special->separator);
    to->len = (uint32_t)(s->ids.len - to->at);
    return bad ? frugi_because(why, "not enough memory") : 0;
}

static int add_row(glue *s, frugi_split split, uint64_t count, row add, frugi_why *why) {
    if (count == 0)
        s->cap = 0;
    if (count == s->cap) {
        size_t cap = s->cap == 0 ? 256 : s->cap * 2;
        row *rows = realloc(s->rows[split], cap * sizeof *rows);
        if (rows == NULL)
            return frugi_because(why, "not enough memory");
        s->rows[split] = rows;
        s->cap = cap;
    }
    s->rows[split][count] = add;
    return 0;
}

static int read_table(glue_reader *r, frugi_split split, frugi_data *data, frugi_why *why) {
    glue *s = data->state;
    row next = {0};
    int got;
    if (find_columns(r, why) != 0)
        return -1;
    while ((got = frugi_tsv_next(&r->tsv, why)) > 0) {
        if (read_row(r, s, data->info.length, &next, why) != 0 ||
            add_row(s, split, data->info.count[split], next, why) != 0)
            return -1;
        data->info.count[split]++;
    }
    return got < 0 || r->tsv.row == 0 ? -1 : 0;
}

static int read_split(glue_reader *r, const char *dir, frugi_split split, frugi_data *data) {
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
        if (read_table(r, split, data, &why) != 0)
            status = frugi_error("%s: %s", path, why.text);
        frugi_bytes_free(&bytes);
    }
    free(path);
    return status;
}

static const glue_task *find_task(const frugi_data_want *want, const frugi_data *data) {
    const char *name = want->subset == NULL ? data->name : want->subset;
    for (int i = 0; i < TASKS; i++)
        if (strcasecmp(name, tasks[i].name) == 0)
            return &tasks[i];
    if (want->subset != NULL)
        frugi_error("'%s' is no task of GLUE known here: expected sst-2, cola, mrpc or sts-b", want->subset);
    else
        frugi_error("%s: expected a directory called SST-2, CoLA, MRPC or STS-B, or the task's name beside it",
                    want->path);
    return NULL;
}

int frugi_glue_open(const frugi_data_want *want, frugi_data *data) {
    const glue_task *task = find_task(want, data);
    frugi_wordpiece *pieces;
    if (task == NULL)
        return FRUGI_EXIT_FAIL;
    if (want->tokens == NULL)
        return frugi_error("%s: sentences need the file of a WordPiece vocabulary for their tokens", want->path);
    glue *s = calloc(1, sizeof *s);
    if (s == NULL)
        return frugi_error("not enough memory for a data set");
    data->source = &glue_source;
    data->state = s;
    if (frugi_wordpiece_open(want->tokens, &pieces) != FRUGI_EXIT_OK)
        return FRUGI_EXIT_FAIL;
    data->info.vocab = frugi_wordpiece_vocab(pieces);
    data->info.classes = task->classes;
    data->info.name = task->name;
    int wide = data->info.vocab > UINT16_MAX + 1, status = FRUGI_EXIT_OK;
    glue_reader r = {.task = task, .pieces = pieces, .a.wide = wide, .b.wide = wide};
    s->ids.wide = wide;
    for (int i = 0; i < FRUGI_SPLITS && status == FRUGI_EXIT_OK; i++)
        status = read_split(&r, want->path, (frugi_split)i, data);
    frugi_wordpiece_cache_free(&r.cache);
    frugi_ids_free(&r.a);
    frugi_ids_free(&r.b);
    frugi_wordpiece_destroy(pieces);
    return status;
}
