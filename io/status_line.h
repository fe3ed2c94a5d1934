/*
 * status_line.h - the status line on stderr, redrawn in place; lines above it; and counts, times and ratios as text.
 */
#ifndef FGIO_STATUS_LINE_H
#define FGIO_STATUS_LINE_H

#include "io/error.h"

/** Whether stderr is a terminal on which a line can be redrawn. */
int fgio_stderr_is_terminal(void);

/** Columns of that terminal; 80 if unknown. */
size_t fgio_terminal_width(void);

/** Draw the status line in place of the last one; it must fit the width. Any thread. Messages (error.h) clear it. */
void fgio_status_draw(const char *line);

/** Clear the status line. */
void fgio_status_clear(void);

/** Print a permanent line above the status line. */
void fgio_status_print(const char *format, ...) FGIO_PRINTF(1, 2);

/** Write a count as "1,234,567". Returns dst. */
const char *fgio_count_text(uint64_t count, char *dst, size_t cap);

/** Write a time as "2:13" or "1:02:13". Returns dst. */
const char *fgio_duration_text(double seconds, char *dst, size_t cap);

/** Write the ratio of `now` to `before`: "18.5 times less", "as much", "1.3 times more". Returns dst. */
const char *fgio_ratio_text(double before, double now, char *dst, size_t cap);

#endif
