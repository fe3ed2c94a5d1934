/*
 * fuzz_config.c - any text into the config parser.
 *
 * Accepted texts must give a canonical text that parses to itself; rejected ones must set an error text and
 * not change the output.
 */
#include "frugrad.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const frug_config *config) {
    frug_config *again = NULL;
    if (frug_config_create(frug_config_text(config), &again) != FRUG_OK)
        abort();
    if (strcmp(frug_config_text(config), frug_config_text(again)) != 0)
        abort();
    frug_config_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    frug_config *config = NULL;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        check_accepted(config);
    else if (status != FRUG_ERR_CONFIG || config || strncmp(frug_last_error(), "config: ", 8) != 0)
        abort();
    frug_config_destroy(config);
    free(text);
    return 0;
}
