/*
 * run_recipe.c - which recorded runs used the same command.
 *
 * A method of a suite may change between two comparisons in the same file: more steps, another option. A mean over both
 * would be meaningless, so only runs with the command of the last run of a cell count. Commands are compared without
 * the options that differ between runs of one cell, and without folders, which differ between machines.
 */
#include "lab/report/run_recipe.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool word_is(const char *word, size_t len, const char *text) {
    return strlen(text) == len && memcmp(word, text, len) == 0;
}

/* Options whose values may differ between the runs of a cell: the searched ones, when it is evaluated, how a run uses
 * its machine; and, without data, which samples searches and tests are evaluated on. */
static bool is_ignored_option(const char *word, size_t len, bool data) {
    static const char *const options[] = {"--seed",    "--rate",   "--scale",    "--eval-every",
                                          "--threads", "--passes", "--hold-out", "--judge"};
    size_t count = sizeof options / sizeof *options - (data ? 2 : 0);
    for (size_t i = 0; i < count; i++)
        if (word_is(word, len, options[i]))
            return true;
    return false;
}

/* Without quotes, and with one slash where there are several. */
static uint64_t hash_word(uint64_t hash, const char *word, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (word[i] != '\'' && !(word[i] == '/' && i + 1 < len && word[i + 1] == '/'))
            hash = frugi_hash_word(hash, (unsigned char)word[i]);
    return frugi_hash_word(hash, ' ');
}

/* Length up to the next unquoted space. */
static size_t word_length(const char *word) {
    size_t len = 0;
    for (bool quoted = false; word[len] != '\0' && (quoted || word[len] != ' '); len++) {
        if (word[len] == '\'')
            quoted = !quoted;
        else if (word[len] == '\\' && !quoted && word[len + 1] != '\0')
            len++;
    }
    return len;
}

/* Length of the folders that a word begins with. */
static size_t folders_length(const char *word, size_t len) {
    while (len > 0 && word[len - 1] != '/')
        len--;
    return len;
}

static uint64_t hash_command(const char *command, bool data) {
    uint64_t hash = FRUGI_HASH_INIT;
    bool skip = false;
    if (command == NULL)
        return 0;
    for (size_t len; *command != '\0'; command += len) {
        len = word_length(command);
        size_t from = data ? 0 : folders_length(command, len);
        bool value = skip;
        skip = len == 0 ? skip : !value && is_ignored_option(command, len, data);
        if (len > 0 && !value && !skip)
            hash = hash_word(hash, command + from, len - from);
        len += command[len] == ' ';
    }
    return hash == 0 ? 1 : hash;
}

uint64_t fgl_recipe_of(const char *command) {
    return hash_command(command, false);
}

uint64_t fgl_recipe_with_data(const char *command) {
    return hash_command(command, true);
}

static bool same_cell(const fgl_run *a, const fgl_run *b) {
    return strcmp(a->method, b->method) == 0 && strcmp(a->task, b->task) == 0 && strcmp(a->suite, b->suite) == 0 &&
           strcmp(a->size, b->size) == 0;
}

/* A failed run has no result with the number of workers, but its command has it. */
static double workers_of(const fgl_run *run) {
    static const char option[] = " --workers ";
    const char *at = isnan(run->workers) && run->command != NULL ? strstr(run->command, option) : NULL;
    return at == NULL ? run->workers : strtod(at + strlen(option), NULL);
}

static bool has_later(const fgl_runs *runs, const fgl_run *run) {
    const fgl_run *last = run;
    double workers = workers_of(run);
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *other = &runs->run[i];
        if (other->number <= last->number || other->recipe == 0 || !same_cell(other, run))
            continue;
        double others = workers_of(other);
        if (!(others < workers || others > workers)) /* an unknown number may be the same */
            last = other;
    }
    return run->recipe != 0 && last->recipe != run->recipe;
}

void fgl_runs_mark_stale(fgl_runs *runs) {
    for (size_t i = 0; i < runs->count; i++)
        runs->run[i].stale = has_later(runs, &runs->run[i]);
}
