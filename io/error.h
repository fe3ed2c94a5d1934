/* error.h - error messages and hints on stderr, exit codes, and numbers as text. */
#ifndef FGIO_ERROR_H
#define FGIO_ERROR_H

#include <stddef.h>
#include <stdint.h>

/** Exit codes: returned by functions of the program, and by the program to the shell. */
enum { FGIO_EXIT_OK = 0, FGIO_EXIT_FAIL = 1, FGIO_EXIT_USAGE = 2 };

#if defined(__GNUC__)
#define FGIO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define FGIO_PRINTF(fmt, args)
#endif

/** Print "frugrad: ..." and a line end on stderr. Returns FGIO_EXIT_FAIL. */
int fgio_error(const char *format, ...) FGIO_PRINTF(1, 2);

/** The same for an invalid command line. Returns FGIO_EXIT_USAGE. */
int fgio_usage_error(const char *format, ...) FGIO_PRINTF(1, 2);

/** Print "  hint: ..." on stderr, below an error. */
void fgio_hint(const char *format, ...) FGIO_PRINTF(1, 2);

/** A hint for a word that is not in a NULL-terminated list: the nearest entry, if any is near, and all entries.
 * Adjacent equal entries are listed once. */
void fgio_hint_choices(const char *word, const char *const *words);

/** Whether the last error was followed by a hint; 1 if there was no error. */
int fgio_hinted(void);

/**
 * Buffer the errors and hints of the calling thread until the second call, which prints or drops them. When all workers
 * fail for the same reason, only one prints. The buffer has 4096 bytes; messages that do not fit are dropped.
 */
void fgio_errors_defer(void);
void fgio_errors_flush(int print);

/** While on, drop the errors and hints of the calling thread: for probing files that may be unreadable. Calls nest:
 * each one that sets it on is followed by one that sets it off. */
void fgio_errors_mute(int on);

/** Print "frugrad: what: frug_last_error()" on stderr. Returns FGIO_EXIT_USAGE if the library rejected a config string,
 * FGIO_EXIT_FAIL otherwise. */
int fgio_library_error(const char *what);

/** Print why the library rejected a config string. Returns FGIO_EXIT_USAGE. */
int fgio_config_error(void);

/** Write a byte count as "1.50 MB" (powers of ten) into a buffer, and return it. */
const char *fgio_bytes_text(uint64_t bytes, char *dst, size_t cap);

/** Copy a name from a file so that it is safe on a terminal: control characters become '?', long names are cut. */
const char *fgio_printable(const char *name, char *dst, size_t cap);

/** Print text on stdout, wrapped between two columns; the first line begins at the cursor. */
void fgio_print_wrapped(const char *text, int left, int right);

/** The same for a format, of any length; one line without wrapping where there is no memory. */
void fgio_printf_wrapped(int left, int right, const char *format, ...) FGIO_PRINTF(3, 4);

/** The nearest entry of a NULL-terminated list by edit distance, or an entry that the word abbreviates; NULL if none is
 * near. */
const char *fgio_nearest_word(const char *word, const char *const *words);

/** Why a parser rejected its input; one phrase without a full stop. */
typedef struct fgio_reason {
    char text[256];
} fgio_reason;

/** Record the reason, and return -1. */
int fgio_fail(fgio_reason *why, const char *format, ...) FGIO_PRINTF(2, 3);

#endif
