/* stderr_capture.h - what the code under test writes to stderr, to search messages in it. */
#ifndef FRUG_TEST_STDERR_CAPTURE_H
#define FRUG_TEST_STDERR_CAPTURE_H

#include "support/assertions.h"

#include <stdio.h>
#include <unistd.h>

/** By a pipe, because the tests of a full disk cannot write files. It takes 64 KiB. */
typedef struct stderr_capture {
    int saved, read_end;
    char text[8192];
} stderr_capture;

static inline void stderr_capture_begin(stderr_capture *c) {
    int ends[2];
    fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    c->read_end = ends[0];
}

/** Returns the captured text. */
static inline const char *stderr_capture_end(stderr_capture *c) {
    const size_t room = sizeof c->text - 1;
    size_t len = 0;
    fflush(stderr);
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    for (ssize_t got; len < room && (got = read(c->read_end, c->text + len, room - len)) > 0;)
        len += (size_t)got;
    c->text[len] = '\0';
    close(c->read_end);
    return c->text;
}

#endif
