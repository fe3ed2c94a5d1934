/*
 * fuzz_tsv.c - any bytes as a tab-separated table. Fields must lie in the file, one after the other, and fields and
 * separators together must be all of it.
 */
#include "trainer/data/tsv.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const fgt_tsv *tsv, const unsigned char *data) {
    const unsigned char *at = data + tsv->from;
    if (tsv->columns == 0)
        abort();
    for (size_t i = 0; i < tsv->columns; i++) {
        double number;
        const fgt_tsv_field *field = &tsv->fields[i];
        if (field->text != at || (size_t)(field->text - data) + field->len > tsv->at)
            abort();
        at += field->len + 1;
        if (fgt_tsv_number(field, &number) == 0 && (number >= 1e15 || number <= -1e15))
            abort();
    }
    fgt_tsv_column(tsv, "label");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgt_tsv tsv;
    fgio_reason why = {""};
    int got;
    fgt_tsv_open(&tsv, data, size);
    while ((got = fgt_tsv_next(&tsv, &why)) > 0)
        check_row(&tsv, data);
    if (got < 0 ? why.text[0] == '\0' : tsv.at != size)
        abort();
    return 0;
}
