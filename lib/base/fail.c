/*
 * fail.c - the text of an error.
 *
 * It is stored by a public function and not here: libfrugrad_cuda has a copy of this file, and its errors must be those
 * that frug_last_error() of libfrugrad returns.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

frug_status frugi_fail(frug_status status, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return frug_set_last_error(status, text);
}
