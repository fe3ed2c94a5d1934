/* tsv.h - tab-separated tables in the format of GLUE: no quoting, one row per line. */
#ifndef FGT_TSV_H
#define FGT_TSV_H

#include "io/error.h"

#include <stddef.h>

enum { FGT_TSV_COLUMNS = 32 };

typedef struct fgt_tsv_field {
    const unsigned char *text; /* into the file */
    size_t len;
} fgt_tsv_field;

/** A table being read. */
typedef struct fgt_tsv {
    const unsigned char *text;
    size_t len;
    size_t at;   /* offset of the next row */
    size_t row;  /* number of the current row, from 1 */
    size_t from; /* offset of the current row */
    size_t columns;
    fgt_tsv_field fields[FGT_TSV_COLUMNS];
} fgt_tsv;

/** Begins reading; a UTF-8 byte order mark is skipped. */
void fgt_tsv_open(fgt_tsv *tsv, const unsigned char *text, size_t len);

/** Reads the next row. Returns 1, 0 at the end, or -1 and why. */
int fgt_tsv_next(fgt_tsv *tsv, fgio_reason *why);

/** The column of the current row whose field is this name, ignoring case; -1 if there is none. */
int fgt_tsv_column(const fgt_tsv *tsv, const char *name);

/** A field as a number; returns 0, or -1 where it is not a number. */
int fgt_tsv_number(const fgt_tsv_field *field, double *number);

#endif
