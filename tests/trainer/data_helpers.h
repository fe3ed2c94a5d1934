/* data_helpers.h - shared by the tests of data sets. */
#ifndef FRUG_TEST_DATA_HELPERS_H
#define FRUG_TEST_DATA_HELPERS_H

#include "io/error.h"
#include "support/temp_files.h"
#include "trainer/data/data_set.h"

/** Opening a data set fails, with a message that contains the reason. */
static inline void assert_data_refused(const fgt_data_options *options, const char *reason) {
    fgt_data *data = NULL;
    stderr_capture c;
    stderr_capture_begin(&c);
    int status = fgt_data_open(options, &data);
    stderr_capture_end(&c);
    if (status == FGIO_EXIT_OK || data != NULL || strstr(c.text, reason) == NULL)
        fail_msg("the message is '%s'; expected: %s", c.text, reason);
}

#endif
