/*
 * question_source.c - data sets of questions: BoolQ with passages, and the two of ARC as pairs of a question and one
 * choice. None has both a validation split and public test labels, so BoolQ's dev is the test split here, and hold_out
 * makes one for validation. A part of BoolQ's training rows may be called train_WHATEVER.jsonl.
 */
#include "trainer/data/question_files.h"
#include "io/unpack_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const uint64_t file_max = UINT64_C(256) << 20;

typedef struct qa_task {
    const char *name;
    int (*read)(const unsigned char *text, size_t len, fgt_pair_fn *add_pair, void *ctx, fgio_reason *why);
    const char *train, *test;
} qa_task;

static const qa_task tasks[] = {
    {"boolq", fgt_boolq_read, "train.jsonl", "dev.jsonl"},
    {"arc-easy", fgt_choices_read, "ARC-Easy_train.json", "ARC-Easy_test.json"},
    {"arc-challenge", fgt_choices_read, "ARC-Challenge_train.json", "ARC-Challenge_test.json"},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

/* Destination of rows. */
typedef struct row_sink {
    fgt_sentences *to;
    fgt_split split;
} row_sink;

static int add_pair(void *ctx, const fgt_sentence *pair, fgio_reason *why) {
    row_sink *d = ctx;
    return fgt_sentences_add(d->to, d->split, pair, why);
}

static const qa_task *find_task(const char *name) {
    for (int i = 0; i < TASKS; i++)
        if (strcasecmp(name, tasks[i].name) == 0)
            return &tasks[i];
    return NULL;
}

/* Whether a file has a part of the training rows: train_WHATEVER.jsonl, compressed or not. */
static int is_partial_train(const char *name) {
    static const char *const ends[] = {".jsonl", ".jsonl.xz", ".jsonl.gz"};
    size_t len = strlen(name);
    for (int i = 0; i < 3 && strncmp(name, "train_", 6) == 0; i++)
        if (len > strlen(ends[i]) && strcmp(name + len - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

/* The only such file of a directory, to be freed by the caller; NULL where there is none or more than one, see *count.
 * */
static char *find_partial_train(const char *dir, int *count) {
    char *path = NULL;
    *count = 0;
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (!is_partial_train(entry->d_name) || (*count)++ > 0)
            continue;
        size_t room = strlen(dir) + strlen(entry->d_name) + 2;
        if ((path = malloc(room)) != NULL)
            snprintf(path, room, "%s/%s", dir, entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    if (*count == 1)
        return path;
    free(path);
    return NULL;
}

static int find_train(const qa_task *task, const char *dir, char **path) {
    int parts = 0;
    *path = fgio_unpack_find(dir, task->train);
    if (*path == NULL && task->read == fgt_boolq_read)
        *path = find_partial_train(dir, &parts);
    if (*path != NULL)
        return FGIO_EXIT_OK;
    if (parts > 1)
        return fgio_error("%s: expected '%s', or one file called 'train_WHATEVER.jsonl', found %d", dir, task->train,
                          parts);
    return fgio_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, task->train);
}

static int read_file(const qa_task *task, const char *path, row_sink d) {
    fgio_bytes bytes;
    fgio_reason why;
    int status = fgio_unpack_file(path, file_max, &bytes);
    if (status != FGIO_EXIT_OK)
        return status;
    if (task->read(bytes.data, bytes.len, add_pair, &d, &why) != 0)
        status = fgio_error("%s: %s", path, why.text);
    fgio_bytes_free(&bytes);
    return status;
}

int fgt_qa_has_task(const char *name) {
    return find_task(name) != NULL;
}

int fgt_qa_open(const fgt_data_options *options, fgt_data *data) {
    const qa_task *task = find_task(fgt_sentences_task(options, data));
    fgt_sentences s;
    char *train = NULL, *test = NULL;
    int status = fgt_sentences_begin(options, 2, task->name, data, &s);
    if (status == FGIO_EXIT_OK)
        status = find_train(task, options->path, &train);
    if (status == FGIO_EXIT_OK)
        status = read_file(task, train, (row_sink){&s, FGT_TRAIN});
    if (status == FGIO_EXIT_OK && (test = fgio_unpack_find(options->path, task->test)) != NULL)
        status = read_file(task, test, (row_sink){&s, FGT_TEST});
    free(train);
    free(test);
    fgt_sentences_end(&s);
    return status;
}
