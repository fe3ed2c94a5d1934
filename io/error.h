/* error.h - how the program speaks: one line per error, numbers a person can read. */
#ifndef FGIO_ERROR_H
#define FGIO_ERROR_H

#include <stddef.h>
#include <stdint.h>

/** What functions of the program return, and the program to the shell. */
enum { FGIO_EXIT_OK = 0, FGIO_EXIT_FAIL = 1, FGIO_EXIT_USAGE = 2 };

#if defined(__GNUC__)
#define FGIO_SAY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define FGIO_SAY_PRINTF(fmt, args)
#endif

/** Print "frugrad: ..." and a line end on stderr. Returns FGIO_EXIT_FAIL. */
int fgio_error(const char *format, ...) FGIO_SAY_PRINTF(1, 2);

/** The same for a command line that is wrong. Returns FGIO_EXIT_USAGE. */
int fgio_usage_error(const char *format, ...) FGIO_SAY_PRINTF(1, 2);

/** Print "  hint: ..." on stderr, below an error. */
void fgio_hint(const char *format, ...) FGIO_SAY_PRINTF(1, 2);

/** A hint for a word that is not in a NULL-terminated list: the nearest one, if any is near, and all of them, each once
 * where equal ones are neighbors. */
void fgio_hint_words(const char *word, const char *const *words);

/** Whether the last error that was reported was followed by a hint; 1 where there was no error. */
int fgio_hinted(void);

/**
 * Keep what the calling thread says from now on until the release, which prints it or drops it: of workers that all
 * fail for the same reason one speaks. Some thousand bytes are kept.
 */
void fgio_say_hold(void);
void fgio_say_release(int aloud);

/** Drop what the calling thread says while it is on: for a look at files that may be unreadable. */
void fgio_say_mute(int on);

/** Print "frugrad: what: frug_last_error()" on stderr. Returns FGIO_EXIT_USAGE where the library did not understand a
 * config string, FGIO_EXIT_FAIL otherwise. */
int fgio_library_error(const char *what);

/** Print why the library refused a config string. Returns FGIO_EXIT_USAGE. */
int fgio_config_error(void);

/** Write a byte count as "1.50 MB" (powers of ten) into a buffer, and return it. */
const char *fgio_bytes_text(uint64_t bytes, char *dst, size_t cap);

/** Copy a name out of a file so that it is safe on a terminal: control characters become '?', a long end is cut. */
const char *fgio_printable(const char *name, char *dst, size_t cap);

/** Print words on stdout between two columns, breaking lines; the first line begins where the cursor is. */
void fgio_print_wrapped(const char *text, int left, int right);

/** Of a NULL-terminated list, the word most like the given one; NULL when none is near. */
const char *fgio_nearest(const char *word, const char *const *words);

/** Why a parser refused its input; one phrase without a full stop. */
typedef struct fgio_why {
    char text[256];
} fgio_why;

/** Record why, and return -1. */
int fgio_because(fgio_why *why, const char *format, ...) FGIO_SAY_PRINTF(2, 3);

#endif
