/*
 * compare_data.c - location of the data and weights of a comparison.
 *
 * CIFAR-10 as .xz takes longer to unpack than a short run takes, so it is unpacked once, into the directory of the
 * comparison; recorded commands have the original path.
 */
#include "lab/compare/compare.h"

#include "io/files.h"
#include "io/unpack_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PATH = 1500, MAX_FILE = 1 << 28 };

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool has_test(const fgl_compare_task *t, const char *folder) {
    char *path = t->test == NULL ? NULL : fgio_unpack_find(folder, t->test);
    bool found = t->test == NULL || path != NULL;
    free(path);
    return found;
}

/* Whether the weights that a task without `finetune` begins with are there, if it needs any. */
static bool has_weights(const fgl_compare *c, size_t i) {
    char path[4200];
    return c->suite.tunes || c->suite.task[i].weights == NULL ||
           fgio_file_exists(fgl_command_weights(c, i, path, sizeof path));
}

/* Find the data of a task; false if there is none. */
static bool find_data(fgl_compare *c, size_t i) {
    const fgl_compare_task *t = &c->suite.task[i];
    char *to = c->folder[i];
    size_t cap = sizeof c->folder[i];
    if (t->folder == NULL) {
        snprintf(to, cap, "builtin");
        return true;
    }
    if (c->data != NULL) {
        snprintf(to, cap, "%s/%s", c->data, t->folder);
        bool found = is_folder(to) && has_test(t, to) && has_weights(c, i);
        if (found && t->text)
            snprintf(to, cap, "%s/work/text", c->out != NULL ? c->out : "DIR");
        if (found)
            return true;
    }
    snprintf(to, cap, "%s", t->elsewhere != NULL ? t->elsewhere : "");
    return t->elsewhere != NULL;
}

/* Missing weights are an error; the task is not dropped. */
static int find_weights(const fgl_compare *c, size_t i) {
    const fgl_compare_task *t = &c->suite.task[i];
    char path[4200];
    if (!c->suite.tunes || t->weights == NULL)
        return FGIO_EXIT_OK;
    if (c->weights != NULL && strlen(c->weights) > MAX_PATH)
        return fgio_usage_error("compare: --weights: longer than %d bytes", MAX_PATH);
    if (c->weights != NULL && fgio_file_exists(fgl_command_weights(c, i, path, sizeof path)))
        return FGIO_EXIT_OK;
    fgio_error("task %s needs %s/%s", t->id, c->weights != NULL ? c->weights : "--weights DIR", t->weights);
    fgio_hint("--size smoke needs none; lab/bench/pretrain_torch.py makes it");
    return FGIO_EXIT_FAIL;
}

/* What a task needs of the data, as text. Returns dst. */
static const char *needs_text(const fgl_compare *c, const fgl_compare_task *t, char *dst, size_t cap) {
    bool more = t->weights != NULL && !c->suite.tunes;
    snprintf(dst, cap, "%s/%s%s%s%s%s", c->data != NULL ? c->data : "--data DIR", t->folder,
             t->test != NULL ? " with " : "", t->test != NULL ? t->test : "", more ? ", and " : "",
             more ? t->weights : "");
    return dst;
}

static void drop_task(fgl_compare *c, size_t i) {
    size_t after = c->suite.tasks - i - 1;
    memmove(&c->suite.task[i], &c->suite.task[i + 1], after * sizeof c->suite.task[0]);
    c->suite.tasks--;
}

int fgl_compare_find_data(fgl_compare *c, bool asked_for) {
    if (c->data != NULL && strlen(c->data) > MAX_PATH)
        return fgio_usage_error("compare: --data: longer than %d bytes", MAX_PATH);
    for (size_t i = 0; i < c->suite.tasks;) {
        if (find_data(c, i)) {
            i++;
            continue;
        }
        const fgl_compare_task *t = &c->suite.task[i];
        char needs[4400];
        needs_text(c, t, needs, sizeof needs);
        if (c->data == NULL || asked_for || c->suite.tasks == 1) {
            fgio_error("task %s needs data in %s", t->id, needs);
            fgio_hint("--size smoke needs none; docs/data.md lists the sources of all data sets");
            return c->data == NULL ? FGIO_EXIT_USAGE : FGIO_EXIT_FAIL;
        }
        fgio_error("task %s is skipped, it needs %s", t->id, needs);
        drop_task(c, i);
    }
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < c->suite.tasks && code == FGIO_EXIT_OK; i++)
        code = find_weights(c, i);
    return code;
}

/* ---- unpacking -------------------------------------------------------------------------------------- */

static int unpack_file(const char *from, const char *to) {
    fgio_bytes bytes = {NULL, 0};
    if (fgio_file_exists(to))
        return FGIO_EXIT_OK;
    int code = fgio_unpack_file(from, MAX_FILE, &bytes);
    if (code == FGIO_EXIT_OK)
        code = fgio_file_write(to, bytes.data, bytes.len);
    fgio_bytes_free(&bytes);
    return code;
}

static int unpack_cifar(const char *from, char *to, size_t cap) {
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    char path[4300];
    int code = fgio_directory_make(to);
    for (size_t i = 0; i < sizeof names / sizeof *names && code == FGIO_EXIT_OK; i++) {
        char *packed = fgio_unpack_find(from, names[i]);
        if (packed == NULL || fgio_packing_of(packed) == FGIO_PLAIN) {
            free(packed);
            snprintf(to, cap, "%s", ""); /* nothing to unpack, or unexpected files: the trainer reports the error */
            return FGIO_EXIT_OK;
        }
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        code = unpack_file(packed, path);
        free(packed);
    }
    return code;
}

int fgl_compare_unpack(fgl_compare *c) {
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < c->suite.tasks && code == FGIO_EXIT_OK; i++) {
        const char *name = c->suite.task[i].folder;
        if (c->suite.task[i].text) {
            char from[4096];
            snprintf(from, sizeof from, "%s/%s", c->data, name);
            code = fgl_compare_make_text(from, c->folder[i]);
            continue;
        }
        if (name == NULL || strcmp(name, "cifar10") != 0)
            continue;
        snprintf(c->unpacked[i], sizeof c->unpacked[i], "%s/work/%s", c->out, name);
        code = unpack_cifar(c->folder[i], c->unpacked[i], sizeof c->unpacked[i]);
    }
    return code;
}
