/* json.c - JSON output with jansson, for strings from file names and numbers that may be NaN. */
#include "io/json.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *fgio_json_text(const char *text) {
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    char *copy = strdup(text);
    for (char *p = copy; copy != NULL && *p != '\0'; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    string = copy == NULL ? NULL : json_string(copy);
    free(copy);
    return string;
}

json_t *fgio_json_real(double number) {
    return isfinite(number) ? json_real(number) : json_null();
}

bool fgio_json_equals(const json_t *object, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL && strcmp(value, text) == 0;
}

char *fgio_json_dump(const json_t *value, size_t flags) {
    size_t len = json_dumpb(value, NULL, 0, flags);
    char *text = len > 0 ? malloc(len + 1) : NULL;
    if (text != NULL && json_dumpb(value, text, len, flags) != len) {
        free(text);
        return NULL;
    }
    if (text != NULL)
        text[len] = '\0';
    return text;
}

int fgio_json_print(json_t *value, size_t flags, FILE *to) {
    int failed = value == NULL || json_dumpf(value, to, flags | JSON_REAL_PRECISION(9)) != 0;
    json_decref(value);
    if (failed)
        return fgio_error("cannot print JSON");
    fputc('\n', to);
    return FGIO_EXIT_OK;
}
