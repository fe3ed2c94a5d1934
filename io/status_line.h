/* status_line.h - how a run is shown: one line on stderr that is redrawn, lines above it, and numbers a person can
 * read. */
#ifndef FGIO_STATUS_LINE_H
#define FGIO_STATUS_LINE_H

#include "io/error.h"

/** Whether stderr is a terminal on which a line can be redrawn. */
int fgio_show_terminal(void);

/** Columns of that terminal. */
size_t fgio_show_width(void);

/** Draw the line, in place of the one before; it must fit. Any thread. Messages (error.h) clear it. */
void fgio_show_bar(const char *line);

/** Take the line away. */
void fgio_show_clear(void);

/** Print a line that stays. */
void fgio_show_line(const char *format, ...) FGIO_SAY_PRINTF(1, 2);

/** Write a count as "1,234,567". Returns dst. */
const char *fgio_count_text(uint64_t count, char *dst, size_t cap);

/** Write a time as "2:13" or "1:02:13". Returns dst. */
const char *fgio_clock_text(double seconds, char *dst, size_t cap);

/** Write how `now` is to `before`: "18.5 times less", "as much", "1.3 times more". Returns dst. */
const char *fgio_ratio_text(double before, double now, char *dst, size_t cap);

#endif
