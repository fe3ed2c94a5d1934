/*
 * compare_python.c - runs of size full and paper are Python modules.
 *
 * Whether they can be imported is checked once, before the first run: PyTorch, the package or the library may be
 * missing, and Python's error tells which.
 */
#include "lab/compare/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *fgl_compare_python(void) {
    const char *named = getenv("FRUGRAD_PYTHON");
    return named != NULL && named[0] != '\0' ? named : "python3";
}

/* Run a line of Python with its error output in a file. Returns its exit code; -1: it could not be started. */
static int run_line(const char *line, const char *errors) {
    extern char **environ;
    const char *python = fgl_compare_python();
    const char *words[] = {python, "-c", line, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int state = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    int failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (failed == 0)
        failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (failed == 0)
        failed = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (failed == 0)
        failed = posix_spawnp(&pid, python, &actions, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        return -1;
    while (waitpid(pid, &state, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static int check_import(const fgl_compare *c, const char *module) {
    char line[128], errors[4200], message[400] = "it cannot be started";
    snprintf(line, sizeof line, "import %s", module);
    snprintf(errors, sizeof errors, "%s/work/python.err", c->out);
    int status = run_line(line, errors);
    if (status > 0 && status != 127)
        fgl_last_message(errors, message, sizeof message);
    unlink(errors);
    if (status == 0)
        return FGIO_EXIT_OK;
    fgio_error("size %s trains through PyTorch, by `python3 -m %s`, and %s cannot import it: %s", c->suite.size, module,
               fgl_compare_python(), message);
    fgio_hint("FRUGRAD_PYTHON names another Python; PYTHONPATH has to have this package, unless it is installed");
    return FGIO_EXIT_FAIL;
}

int fgl_compare_trainers(const fgl_compare *c) {
    double seconds = 0;
    if (fgl_search_left(c, &seconds) == 0)
        return FGIO_EXIT_OK;
    for (size_t i = 0; i < c->suite.tasks; i++)
        if (c->suite.task[i].trainer != NULL)
            return check_import(c, c->suite.task[i].trainer); /* all tasks of a size have the same */
    return FGIO_EXIT_OK;
}
