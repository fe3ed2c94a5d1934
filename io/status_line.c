/*
 * status_line.c - the status line on stderr, redrawn in place.
 *
 * It is on stderr, so that stdout has nothing but results. It is never wider than the terminal: a wrapped line cannot
 * be cleared with a carriage return.
 */
#include "io/status_line.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CLEAR "\r\033[K"

enum { WIDTH_UNKNOWN = 80 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* errors are printed by any worker's thread */
static int drawn;

int fgio_stderr_is_terminal(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
}

size_t fgio_terminal_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : WIDTH_UNKNOWN;
}

void fgio_status_clear(void) {
    pthread_mutex_lock(&lock);
    if (drawn)
        fputs(CLEAR, stderr);
    drawn = 0;
    pthread_mutex_unlock(&lock);
}

void fgio_status_draw(const char *line) {
    pthread_mutex_lock(&lock);
    fprintf(stderr, "%s%s", CLEAR, line); /* stderr is unbuffered: one write */
    drawn = 1;
    pthread_mutex_unlock(&lock);
}

void fgio_status_print(const char *format, ...) {
    char line[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fgio_status_clear();
    fprintf(stderr, "%s\n", line);
}

const char *fgio_count_text(uint64_t count, char *dst, size_t cap) {
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, count), at = 0;
    for (size_t i = 0; i < length && at + 2 < cap; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            dst[at++] = ',';
        dst[at++] = digits[i];
    }
    dst[at] = '\0';
    return dst;
}

const char *fgio_duration_text(double seconds, char *dst, size_t cap) {
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(dst, cap, "?");
        return dst;
    }
    unsigned long all = (unsigned long)ceil(seconds);
    if (all < 3600)
        snprintf(dst, cap, "%lu:%02lu", all / 60, all % 60);
    else
        snprintf(dst, cap, "%lu:%02lu:%02lu", all / 3600, all / 60 % 60, all % 60);
    return dst;
}

const char *fgio_ratio_text(double before, double now, char *dst, size_t cap) {
    if (now <= before / 1.05)
        snprintf(dst, cap, "%.1f times less", before / now);
    else if (now >= before * 1.05)
        snprintf(dst, cap, "%.1f times more", now / before);
    else
        snprintf(dst, cap, "as much");
    return dst;
}
