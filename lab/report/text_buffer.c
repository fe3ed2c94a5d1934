/*
 * text_buffer.c - a string that grows by doubling.
 *
 * Everything untrusted goes through fgl_put_escaped(), the only place that handles markup. Control characters cannot be
 * written in XML 1.0 at all, so they are replaced and not escaped; an incomplete UTF-8 character at a cut end is
 * dropped.
 */
#include "lab/report/text_buffer.h"

#include "io/files.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_room(fgl_text *to, size_t more) {
    if (to->failed)
        return -1;
    if (to->cap - to->len > more)
        return 0;
    size_t cap = 2 * to->cap + more + 1024;
    char *data = realloc(to->data, cap);
    if (data == NULL) {
        to->failed = 1;
        return -1;
    }
    to->data = data;
    to->cap = cap;
    return 0;
}

static void put_bytes(fgl_text *to, const char *bytes, size_t len) {
    if (make_room(to, len) != 0)
        return;
    memcpy(to->data + to->len, bytes, len);
    to->len += len;
    to->data[to->len] = '\0';
}

void fgl_put(fgl_text *to, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int len = vsnprintf(NULL, 0, format, list);
    if (len >= 0 && make_room(to, (size_t)len) == 0) {
        vsnprintf(to->data + to->len, (size_t)len + 1, format, again);
        to->len += (size_t)len;
    }
    va_end(again);
    va_end(list);
}

void fgl_put_raw(fgl_text *to, const char *text) {
    put_bytes(to, text, strlen(text));
}

/* Whether the character at p is incomplete: text is UTF-8, but may have been cut. */
static bool is_cut(const char *p) {
    unsigned char lead = (unsigned char)*p;
    int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    for (int i = 1; i <= more; i++)
        if (((unsigned char)p[i] & 0xc0) != 0x80)
            return true;
    return false;
}

void fgl_put_escaped(fgl_text *to, const char *text) {
    static const char marks[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (const char *p = text; *p != '\0'; p++) {
        const char *mark = strchr(marks, *p);
        int odd = strncmp(p, "\xef\xbf\xbe", 3) == 0 || strncmp(p, "\xef\xbf\xbf", 3) == 0;
        if (mark != NULL) {
            fgl_put_raw(to, names[mark - marks]);
        } else if (odd) {
            put_bytes(to, "?", 1);
            p += 2;
        } else if (*p == '\n' || *p == '\t') {
            put_bytes(to, " ", 1);
        } else if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            put_bytes(to, "?", 1);
        } else if (is_cut(p)) {
            while (((unsigned char)p[1] & 0xc0) == 0x80)
                p++;
        } else {
            put_bytes(to, p, 1);
        }
    }
}

void fgl_text_free(fgl_text *text) {
    free(text->data);
    *text = (fgl_text){0};
}

int fgl_text_save(const fgl_text *text, const char *path) {
    if (text->failed)
        return fgio_error("%s: out of memory", path);
    return fgio_file_write(path, text->data, text->len);
}

size_t fgl_text_columns(const char *text) {
    size_t columns = 0;
    for (; *text != '\0'; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

const char *fgl_number_text(double number, int digits, char *dst, size_t cap) {
    int places = digits - 1;
    if (fabs(number) > 0)
        places = digits - 1 - (int)floor(log10(fabs(number)) + 1e-9);
    places = places < 0 ? 0 : places > 12 ? 12 : places;
    snprintf(dst, cap, "%.*f", places, number);
    if (strchr(dst, '.') != NULL) {
        char *end = dst + strlen(dst);
        while (end[-1] == '0')
            *--end = '\0';
        if (end[-1] == '.')
            end[-1] = '\0';
    }
    if (strcmp(dst, "-0") == 0)
        snprintf(dst, cap, "0");
    return dst;
}
