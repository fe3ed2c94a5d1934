/*
 * fuzz_questions.c - any bytes as questions in both forms of JSON. Pairs have two texts and a label of 0 or 1, of the
 * choices of one question exactly one has 1, and an error has a text.
 */
#include "trainer/data/question_files.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct seen {
    size_t pairs, ones;
} seen;

static int look(void *with, const fgt_sentence *pair, fgio_reason *why) {
    seen *s = with;
    (void)why;
    if (pair->a.text == NULL || pair->b.text == NULL || (pair->label != 0 && pair->label != 1))
        abort();
    if (memchr(pair->a.text, '\0', pair->a.len) != NULL || memchr(pair->b.text, '\0', pair->b.len) != NULL)
        abort();
    s->pairs++;
    s->ones += pair->label == 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgio_reason why = {""};
    seen lines = {0}, choices = {0};
    int bad = fgt_boolq_read(data, size, look, &lines, &why);
    if (bad ? why.text[0] == '\0' : lines.pairs == 0)
        abort();
    why.text[0] = '\0';
    bad = fgt_choices_read(data, size, look, &choices, &why);
    if (bad ? why.text[0] == '\0' : choices.ones == 0)
        abort();
    if (choices.pairs < 2 * choices.ones)
        abort();
    return 0;
}
