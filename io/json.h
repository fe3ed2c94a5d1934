/* json.h - JSON out: what jansson would refuse (odd bytes, NaN) is made fit instead of losing the object. */
#ifndef FGIO_JSON_H
#define FGIO_JSON_H

#include <jansson.h>
#include <stdio.h>

/** A string; bytes that are not UTF-8 become '?'. */
json_t *fgio_json_text(const char *text);

/** A number; null for what JSON cannot say. */
json_t *fgio_json_real(double number);

/** Print a value and a line end, and drop it. flags as in json_dumpf(). Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after
 * one line. */
int fgio_json_print(json_t *value, size_t flags, FILE *to);

#endif
