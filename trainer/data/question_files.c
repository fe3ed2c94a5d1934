/*
 * question_files.c - parsing questions in JSON. BoolQ is parsed line by line, so that only one row is in memory as
 * JSON. The choices of ARC are in one text, "...: QUESTION\n\nAnswer1: ... Answer2: ...\n\nAnswer format: ...": each is
 * searched for after the one before, so that a choice ends where the next begins.
 */
#include "trainer/data/question_files.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { CHOICES_MAX = 26 };

static fgt_text_span make_span(const char *from, const char *to) {
    return (fgt_text_span){(const unsigned char *)from, (size_t)(to - from)};
}

static int json_error(const json_error_t *error, size_t line, fgio_reason *why) {
    char text[128];
    return fgio_fail(why, "line %zu, column %d: expected JSON (%s)", line, error->column > 0 ? error->column : 0,
                     fgio_printable(error->text, text, sizeof text));
}

/* One line of BoolQ. */
static int read_line(const char *line, size_t len, size_t number, fgt_pair_fn *fn, void *ctx, fgio_reason *why) {
    json_error_t error;
    json_t *row = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
    if (row == NULL)
        return json_error(&error, number, why);
    const char *question = json_string_value(json_object_get(row, "question"));
    const char *passage = json_string_value(json_object_get(row, "passage"));
    const json_t *answer = json_object_get(row, "answer");
    int status;
    if (question == NULL || passage == NULL || !json_is_boolean(answer))
        status = fgio_fail(why,
                           "line %zu: expected an object with \"question\" and \"passage\", which are "
                           "strings, and \"answer\", true or false",
                           number);
    else
        status = fn(ctx,
                    &(fgt_sentence){make_span(question, question + strlen(question)),
                                    make_span(passage, passage + strlen(passage)), json_is_true(answer) ? 1 : 0},
                    why);
    json_decref(row);
    return status;
}

static int is_blank(const unsigned char *text, size_t len) {
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r'))
        len--;
    return len == 0;
}

int fgt_boolq_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_reason *why) {
    size_t rows = 0, line = 1;
    for (size_t at = 0; at < len; line++) {
        const unsigned char *end = memchr(text + at, '\n', len - at);
        size_t n = end == NULL ? len - at : (size_t)(end - (text + at));
        if (!is_blank(text + at, n)) {
            if (read_line((const char *)text + at, n, line, fn, ctx, why) != 0)
                return -1;
            rows++;
        }
        at += n + (end != NULL);
    }
    return rows == 0 ? fgio_fail(why, "line 1: expected a JSON object a line, found none") : 0;
}

/* A parsed text with choices. */
typedef struct choices {
    fgt_text_span question, choice[CHOICES_MAX];
    unsigned count;
} choices;

/* Splits a text. Returns 0, or -1 where something is missing. Separators cannot overlap: they begin with a blank or a
 * line end, which none has inside. */
static int split_choices(const char *text, choices *found) {
    static const char opening[] = "question: ", ending[] = "\n\nAnswer format:";
    const char *question = strstr(text, opening);
    const char *separator = question == NULL ? NULL : strstr(question, "\n\nAnswer1: ");
    const char *end = separator == NULL ? NULL : strstr(separator + 1, ending);
    char next[24];
    if (end == NULL)
        return -1;
    found->question = make_span(question + sizeof opening - 1, separator);
    const char *from = separator + strlen("\n\nAnswer1: ");
    for (found->count = 0; found->count < CHOICES_MAX; from = separator + strlen(next)) {
        snprintf(next, sizeof next, " Answer%u: ", found->count + 2);
        separator = strstr(from, next);
        int last = separator == NULL || separator > end;
        found->choice[found->count++] = make_span(from, last ? end : separator);
        if (last)
            return found->count >= 2 ? 0 : -1;
    }
    return -1;
}

/* The index of "answer3", from 0; `count` if there is no such choice. */
static unsigned answer_of(const char *answer, unsigned count) {
    char name[24];
    unsigned which = 0;
    for (; which < count; which++) {
        snprintf(name, sizeof name, "answer%u", which + 1);
        if (answer != NULL && strcmp(answer, name) == 0)
            break;
    }
    return which;
}

static int read_choices(const json_t *row, size_t number, fgt_pair_fn *fn, void *ctx, fgio_reason *why) {
    const char *text = json_string_value(json_object_get(row, "instruction"));
    choices found;
    if (text == NULL || split_choices(text, &found) != 0)
        return fgio_fail(why,
                         "row %zu: expected an object with an \"instruction\" of the form 'question: ...', "
                         "'Answer1: ... Answer2: ...', 'Answer format: ...', with 2 to %d choices",
                         number, CHOICES_MAX);
    unsigned correct = answer_of(json_string_value(json_object_get(row, "answer")), found.count);
    if (correct == found.count)
        return fgio_fail(why, "row %zu: expected an \"answer\" of \"answer1\" to \"answer%u\"", number, correct);
    for (unsigned i = 0; i < found.count; i++)
        if (fn(ctx, &(fgt_sentence){found.question, found.choice[i], i == correct ? 1 : 0}, why) != 0)
            return -1;
    return 0;
}

int fgt_choices_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_reason *why) {
    json_error_t error;
    json_t *rows = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, &error);
    if (rows == NULL)
        return json_error(&error, error.line > 0 ? (size_t)error.line : 1, why);
    size_t count = json_array_size(rows); /* 0 if it is not an array */
    int status = count == 0 ? fgio_fail(why, "line 1: expected a JSON array of questions") : 0;
    for (size_t i = 0; i < count && status == 0; i++)
        status = read_choices(json_array_get(rows, i), i + 1, fn, ctx, why);
    json_decref(rows);
    return status;
}
