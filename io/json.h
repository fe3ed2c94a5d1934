/*
 * json.h - JSON output: strings that are not UTF-8 and non-finite numbers are replaced instead of losing the object.
 */
#ifndef FGIO_JSON_H
#define FGIO_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/** A string; bytes that are not UTF-8 become '?'. */
json_t *fgio_json_text(const char *text);

/** A number; null for NaN and infinities. */
json_t *fgio_json_real(double number);

/** Whether a member of an object is a string equal to text. */
bool fgio_json_equals(const json_t *object, const char *key, const char *text);

/** The value as text, freed by the caller; NULL without memory. flags as in json_dumps(), which drops keys of an object
 * when memory runs out (jansson 2.14). */
char *fgio_json_dump(const json_t *value, size_t flags);

/** Print a value and a newline, and drop the reference. flags as in json_dumpf(). Returns FGIO_EXIT_OK, or
 * FGIO_EXIT_FAIL after an error message. */
int fgio_json_print(json_t *value, size_t flags, FILE *to);

#endif
