/* config_helpers.h - helpers of the tests of the config string: accepted, equal, rejected with which text. */
#ifndef FRUG_TEST_CONFIG_HELPERS_H
#define FRUG_TEST_CONFIG_HELPERS_H

#include "base/status.h"
#include "config/config.h"
#include "support/assertions.h"

#include <stdio.h>

static inline frug_config *parse(const char *text) {
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_OK)
        fail_msg("'%s' was rejected: %s", text, frug_last_error());
    return config;
}

static inline void assert_same(const char *a, const char *b) {
    frug_config *x = parse(a), *y = parse(b);
    assert_string_equal(frug_config_text(x), frug_config_text(y));
    frug_config_destroy(x);
    frug_config_destroy(y);
}

static inline void assert_refused(const char *text, const char *why) {
    frug_config *config = (frug_config *)&config;
    assert_int_equal(frug_config_create(text, &config), FRUG_ERR_CONFIG);
    assert_string_equal(frug_last_error(), why);
    assert_ptr_equal(config, &config);
}

static inline void assert_refused_somehow(const char *text) {
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_ERR_CONFIG)
        fail_msg("'%s' was accepted", text);
}

#endif
