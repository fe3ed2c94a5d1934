/*
 * error.c - error messages, hints, and numbers as text.
 *
 * Messages quote names from files and command lines, so control characters are replaced before printing: they could
 * break the line or drive the terminal.
 */
#include "io/error.h"
#include "base/edit_distance.h"
#include "frugrad.h"
#include "io/status_line.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_printable(char *text) {
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

/** Messages of a thread that are not printed yet; see fgio_errors_defer(). */
static _Thread_local struct {
    int on;
    size_t used;
    char text[4096];
} deferred;

static void append_deferred(const char *prefix, const char *line) {
    size_t room = sizeof deferred.text - deferred.used;
    int length = snprintf(deferred.text + deferred.used, room, "%s%s\n", prefix, line);
    if (length > 0 && (size_t)length < room)
        deferred.used += (size_t)length;
    deferred.text[deferred.used] = '\0';
}

static void print_now(const char *prefix, const char *line, const char *end) {
    fflush(stdout);
    fgio_status_clear();
    fprintf(stderr, "%s%s%s", prefix, line, end);
}

void fgio_errors_defer(void) {
    deferred.on = 1;
}

void fgio_errors_flush(int print) {
    if (print && deferred.used > 0)
        print_now("", deferred.text, "");
    deferred.on = 0;
    deferred.used = 0;
}

static _Thread_local int muted; /* calls that asked for it */

void fgio_errors_mute(int on) {
    muted += on ? 1 : -1;
}

static void print_message(const char *prefix, const char *format, va_list list) {
    char line[1024];
    vsnprintf(line, sizeof line, format, list);
    make_printable(line);
    if (deferred.on && !muted)
        append_deferred(prefix, line);
    else if (!muted)
        print_now(prefix, line, "\n");
}

static atomic_int hinted = 1; /* 1 as long as there is no error */

int fgio_error(const char *format, ...) {
    va_list list;
    hinted = 0;
    va_start(list, format);
    print_message("frugrad: ", format, list);
    va_end(list);
    return FGIO_EXIT_FAIL;
}

int fgio_usage_error(const char *format, ...) {
    va_list list;
    hinted = 0;
    va_start(list, format);
    print_message("frugrad: ", format, list);
    va_end(list);
    return FGIO_EXIT_USAGE;
}

void fgio_hint(const char *format, ...) {
    va_list list;
    hinted = 1;
    va_start(list, format);
    print_message("  hint: ", format, list);
    va_end(list);
}

int fgio_hinted(void) {
    return hinted;
}

void fgio_hint_choices(const char *word, const char *const *words) {
    char list[900] = "";
    size_t used = 0;
    const char *nearest = fgio_nearest_word(word, words);
    for (size_t i = 0; words[i] != NULL && used < sizeof list; i++)
        if (i == 0 || strcmp(words[i], words[i - 1]) != 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", words[i]);
    if (nearest != NULL)
        fgio_hint("did you mean %s? accepted: %s", nearest, list);
    else
        fgio_hint("accepted: %s", list);
}

int fgio_library_error(const char *what) {
    const char *why = frug_last_error();
    fgio_error("%s: %s", what, why);
    return strncmp(why, "config:", 7) == 0 ? FGIO_EXIT_USAGE : FGIO_EXIT_FAIL;
}

int fgio_config_error(void) {
    return fgio_usage_error("%s", frug_last_error()); /* the text begins with "config:" already */
}

const char *fgio_bytes_text(uint64_t bytes, char *dst, size_t cap) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double amount = (double)bytes;
    size_t u = 0;
    while (amount >= 999.995 && u + 1 < sizeof unit / sizeof *unit) {
        amount /= 1000;
        u++;
    }
    if (u == 0)
        snprintf(dst, cap, "%u B", (unsigned)bytes);
    else
        snprintf(dst, cap, "%.2f %s", amount, unit[u]);
    return dst;
}

const char *fgio_printable(const char *name, char *dst, size_t cap) {
    size_t len = strlen(name);
    snprintf(dst, cap, "%s", name);
    if (cap > 0 && len >= cap) { /* never inside a UTF-8 character */
        for (len = cap - 1; len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80;)
            len--;
        dst[len] = '\0';
    }
    make_printable(dst);
    return dst;
}

void fgio_print_wrapped(const char *text, int left, int right) {
    int column = left;
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > left && column + 1 + length > right) {
            printf("\n%*s", left, "");
            column = left;
        }
        column += printf("%s%.*s", column > left ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void fgio_printf_wrapped(int left, int right, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    va_start(list, format);
    if (text != NULL) {
        vsnprintf(text, (size_t)length + 1, format, list);
        fgio_print_wrapped(text, left, right);
    } else {
        vprintf(format, list);
        putchar('\n');
    }
    va_end(list);
    free(text);
}

const char *fgio_nearest_word(const char *word, const char *const *words) {
    const char *nearest = NULL;
    size_t length = strlen(word);
    size_t best = length / 2 + 1; /* at least half of the letters must match */
    for (; *words != NULL; words++) {
        size_t d = frugi_edit_distance(word, length, *words, strlen(*words));
        if (length >= 3 && strncmp(word, *words, length) == 0)
            d = 1; /* an abbreviation */
        if (d < best || (d == best && nearest == NULL && d < length)) {
            best = d;
            nearest = *words;
        }
    }
    return nearest;
}

int fgio_fail(fgio_reason *why, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(why->text, sizeof why->text, format, list);
    va_end(list);
    return -1;
}
