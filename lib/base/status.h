/* status.h - raise and forward errors. The function that detects an error records its text, once; callers forward. */
#ifndef FRUGI_STATUS_H
#define FRUGI_STATUS_H

#include "frugrad.h"

#if defined(__GNUC__)
#define FRUGI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define FRUGI_PRINTF(fmt, args)
#endif

/** Record the text for frug_last_error(), log it, and return status. */
frug_status frugi_fail(frug_status status, const char *format, ...) FRUGI_PRINTF(2, 3);

/** Pass a message to the log callback, if one is set. */
void frugi_log(frug_log_level level, const char *format, ...) FRUGI_PRINTF(2, 3);

#define FRUG_TRY(call)                                                                                                 \
    do {                                                                                                               \
        frug_status try_status_ = (call);                                                                              \
        if (try_status_ != FRUG_OK)                                                                                    \
            return try_status_;                                                                                        \
    } while (0)

#define FRUG_FAIL_IF(cond, status, ...)                                                                                \
    do {                                                                                                               \
        if (cond)                                                                                                      \
            return frugi_fail((status), __VA_ARGS__);                                                                  \
    } while (0)

#endif
