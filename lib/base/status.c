/* status.c - status texts, the last error of a thread, and the log callback. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FRUGI_STRINGIFY_(x) #x
#define FRUGI_STRINGIFY(x)  FRUGI_STRINGIFY_(x)

static _Thread_local char last_error[512];
static frug_log_fn *log_fn;
static void *log_ctx;

const char *frug_version(void) {
    return FRUGI_STRINGIFY(FRUG_VERSION_MAJOR) "." FRUGI_STRINGIFY(FRUG_VERSION_MINOR) "." FRUGI_STRINGIFY(
        FRUG_VERSION_PATCH);
}

const char *frug_status_text(frug_status status) {
    switch (status) {
    case FRUG_OK: return "success";
    case FRUG_ERR_ARG: return "invalid argument";
    case FRUG_ERR_MEMORY: return "out of memory";
    case FRUG_ERR_CONFIG: return "invalid configuration";
    case FRUG_ERR_SHORT_BUFFER: return "destination buffer too short";
    case FRUG_ERR_FORMAT: return "malformed data";
    case FRUG_ERR_CHECKSUM: return "damaged data";
    case FRUG_ERR_VERSION: return "unknown format version";
    case FRUG_ERR_MISMATCH: return "data made for another layout or configuration";
    case FRUG_ERR_REMOTE: return "another worker failed";
    case FRUG_ERR_COMM: return "communication failed";
    case FRUG_ERR_DEVICE: return "a device failed";
    }
    return "unknown status";
}

const char *frug_last_error(void) {
    return last_error;
}

void frug_set_log(frug_log_fn *fn, void *ctx) {
    log_fn = fn;
    log_ctx = ctx;
}

frug_status frug_set_last_error(frug_status status, const char *text) {
    const char *why = text ? text : frug_status_text(status);
    size_t len = strnlen(why, sizeof last_error - 1);
    memmove(last_error, why, len); /* text may be frug_last_error() */
    last_error[len] = '\0';
    if (log_fn)
        log_fn(log_ctx, FRUG_LOG_ERROR, last_error);
    return status;
}

void frugi_log(frug_log_level level, const char *format, ...) {
    if (!log_fn)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_fn(log_ctx, level, text);
}
