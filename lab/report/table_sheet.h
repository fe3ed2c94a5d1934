/* table_sheet.h - a table in memory: text in rows and columns. */
#ifndef FGL_TABLE_SHEET_H
#define FGL_TABLE_SHEET_H

#include "lab/report/run_tables.h"

enum { FGL_SHEET_COLUMNS = 16, FGL_SHEET_WORD = 96 };

typedef struct fgl_sheet {
    const char *head[FGL_SHEET_COLUMNS];
    unsigned words; /* a bit for each column but the first that has words and no numbers: aligned left */
    size_t columns, rows, cap;
    char (*word)[FGL_SHEET_WORD]; /* columns of them in each row */
    int failed;
} fgl_sheet;

/** Start a row; its fields are empty. */
void fgl_sheet_row(fgl_sheet *sheet);

/** Set a field of the last row; long text is cut between characters. */
void fgl_sheet_set(fgl_sheet *sheet, size_t column, const char *format, ...) FGIO_PRINTF(3, 4);

/** Write a sheet without those columns that are empty in every row. The first column is words, the others are
 * numbers, aligned right, unless `words` has them. */
void fgl_sheet_put(const fgl_sheet *sheet, fgl_table_style style, fgl_text *to);

/** Append text from files, without control characters; for Markdown with its special characters escaped. */
void fgl_put_plain(fgl_text *to, const char *words, bool markdown);

void fgl_sheet_free(fgl_sheet *sheet);

#endif
