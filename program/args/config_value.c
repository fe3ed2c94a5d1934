/* config_value.c - the value of one option in a canonical config string. */
#include "program/args/config_value.h"

#include <stdio.h>
#include <string.h>

int fgp_config_value(const char *text, const char *option, char *dst, size_t cap) {
    size_t length = strlen(option);
    for (const char *at = text; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, option, length) == 0 && at[length] == '=') {
            at += length + 1;
            return snprintf(dst, cap, "%.*s", (int)strcspn(at, ","), at);
        }
    }
    return -1;
}
