/*
 * Data sets of questions: BoolQ with passages, and the two of ARC as pairs of a question and one choice. None has a
 * validation split of its own whose test labels are public as well, so what BoolQ calls dev is the test split here, and
 * hold_out makes one for validation. A part of BoolQ's training rows may be called train_WHATEVER.jsonl.
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
    int (*read)(const unsigned char *text, size_t len, frugi_take_pair *take, void *with, frugi_why *why);
    const char *train, *test;
} qa_task;

static const qa_task tasks[] = {
    {"boolq", frugi_boolq_read, "train.jsonl", "dev.jsonl"},
    {"arc-easy", frugi_choices_read, "ARC-Easy_train.json", "ARC-Easy_test.json"},
    {"arc-challenge", frugi_choices_read, "ARC-Challenge_train.json", "ARC-Challenge_test.json"},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

/* Where rows go. */
typedef struct destination {
    frugi_sentences *to;
    frugi_split split;
} destination;

static int take(void *with, const frugi_sentence *pair, frugi_why *why) {
    destination *d = with;
    return frugi_sentences_add(d->to, d->split, pair, why);
}

static const qa_task *find_task(const char *name) {
    for (int i = 0; i < TASKS; i++)
        if (strcasecmp(name, tasks[i].name) == 0)
            return &tasks[i];
    return NULL;
}

/* Whether a file is a part of the rows: train_WHATEVER.jsonl, packed or not. */
static int is_part(const char *name) {
    static const char *const ends[] = {".jsonl", ".jsonl.xz", ".jsonl.gz"};
    size_t len = strlen(name);
    for (int i = 0; i < 3 && strncmp(name, "train_", 6) == 0; i++)
        if (len > strlen(ends[i]) && strcmp(name + len - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

/* The one part that lies in a directory, the caller's to free; NULL with *count 0 or more than 1 where that is not so.
 */
static char *find_part(const char *dir, int *count) {
    char *path = NULL;
    *count = 0;
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (!is_part(entry->d_name) || (*count)++ > 0)
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
    *path = frugi_unpack_find(dir, task->train);
    if (*path == NULL && task->read == frugi_boolq_read)
        *path = find_part(dir, &parts);
    if (*path != NULL)
        return FRUGI_EXIT_OK;
    if (parts > 1)
        return frugi_error("%s: expected '%s', or one file called 'train_WHATEVER.jsonl', found %d", dir, task->train,
                           parts);
    return frugi_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, task->train);
}

static int read_file(const qa_task *task, const char *path, destination d) {
    frugi_bytes bytes;
    frugi_why why;
    int status = frugi_unpack_file(path, file_max, &bytes);
    if (status != FRUGI_EXIT_OK)
        return status;
    if (task->read(bytes.data, bytes.len, take, &d, &why) != 0)
        status = frugi_error("%s: %s", path, why.text);
    frugi_bytes_free(&bytes);
    return status;
}

int frugi_qa_knows(const char *name) {
    return find_task(name) != NULL;
}

int frugi_qa_open(const frugi_data_want *want, frugi_data *data) {
    const qa_task *task = find_task(frugi_sentences_task(want, data));
    frugi_sentences s;
    char *train = NULL, *test = NULL;
    int status = frugi_sentences_begin(want, 2, task->name, data, &s);
    if (status == FRUGI_EXIT_OK)
        status = find_train(task, want->path, &train);
    if (status == FRUGI_EXIT_OK)
        status = read_file(task, train, (destination){&s, FRUGI_TRAIN});
    if (status == FRUGI_EXIT_OK && (test = frugi_unpack_find(want->path, task->test)) != NULL)
        status = read_file(task, test, (destination){&s, FRUGI_TEST});
    free(train);
    free(test);
    frugi_sentences_end(&s);
    return status;
}
