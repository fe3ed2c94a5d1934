/*
 * compare_pool.c - runs as children of this program, some at a time. A child is this program's own file once more, or
 * Python, with its output in files, in a process group of its own, so that Ctrl-C reaches this program alone, which
 * then ends its children by their ids; and should this program be killed, the system ends them.
 */
#include "lab/compare/compare.h"

#include "base/clock.h"
#include "io/files.h"
#include "io/status_line.h"
#include "program/system/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK   0.02 /* seconds between looks at the children */
#define REDRAW 0.25 /* of the bar */

enum { JOBS_MOST = 256, SIGNALS = 3 };

/** A place for a child. */
typedef struct slot {
    pid_t pid; /* 0: free */
    fgl_trial run;
    fgl_run_files files;
    char begun[32];
    double start;
} slot;

typedef struct pool {
    fgl_compare *c;
    slot slot[JOBS_MOST];
    size_t running, done, failed;
    double start, shown;
    bool terminal;
} pool;

static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number) {
    asked_to_stop = number;
}

static bool is_running(const void *ctx, const fgl_trial *run) {
    const pool *p = ctx;
    for (size_t i = 0; i < p->c->jobs; i++) {
        const fgl_trial *r = &p->slot[i].run;
        if (p->slot[i].pid > 0 && r->task == run->task && r->method == run->method && r->tune == run->tune &&
            r->seed == run->seed && fabs(r->rate - run->rate) <= 1e-6 * run->rate)
            return true;
    }
    return false;
}

/* ---- a child begins ---------------------------------------------------------------------------------- */

static void name_files(const fgl_compare *c, const fgl_trial *run, fgl_run_files *files) {
    char stem[4160];
    snprintf(stem, sizeof stem, "%.3900s/work/%s.%s.%s.%g.%u", c->out, c->suite.task[run->task].id,
             c->suite.method[run->method].id, run->tune ? "tune" : "test", run->rate, run->seed);
    snprintf(files->out, sizeof files->out, "%s.json", stem);
    snprintf(files->err, sizeof files->err, "%s.err", stem);
    snprintf(files->metrics, sizeof files->metrics, "%s.metrics", stem);
}

/* Only calls that are safe after fork() in a program with threads. Exit status 127: the program could not be started.
 */
static _Noreturn void become(const slot *s, char *const argv[], bool python, pid_t parent) {
    int in = open("/dev/null", O_RDONLY);
    int out = open(s->files.out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open(s->files.err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < SIGNALS; i++)
        signal(signals[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || in < 0 || out < 0 || err < 0)
        _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (python)
        execvp(argv[0], argv);
    else
        execv("/proc/self/exe", argv);
    _exit(127);
}

static int begin(pool *p, slot *s, const fgl_trial *run) {
    fgl_command_line words;
    time_t at = time(NULL);
    struct tm utc;
    bool python = p->c->suite.task[run->task].trainer != NULL;
    name_files(p->c, run, &s->files);
    fgl_words_of(p->c, run, true, &words);
    if (python)
        words.word[0] = fgl_compare_python(); /* an environment of Python is found by this word */
    fgl_words_add(&words, "--json", NULL);
    fgl_words_add(&words, "--quiet", NULL);
    fgl_words_add(&words, "--metrics", s->files.metrics);
    if (!run->tune && run->seed == 1 && !p->c->suite.tunes)
        fgl_words_add(&words, "--metrics-layers", NULL);
    s->run = *run;
    s->start = frugi_clock();
    strftime(s->begun, sizeof s->begun, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return fgio_error("cannot start a process: %s", strerror(errno));
    if (pid == 0)
        become(s, (char *const *)(uintptr_t)words.word, python, self);
    s->pid = pid;
    p->running++;
    return FGIO_EXIT_OK;
}

/* ---- what is shown ---------------------------------------------------------------------------------- */

static void describe_left(const pool *p, char *dst, size_t cap) {
    double seconds = 0;
    char clock[32];
    fgl_search_left(p->c, &seconds);
    for (size_t i = 0; i < p->c->jobs; i++)
        if (p->slot[i].pid > 0)
            seconds -= frugi_clock() - p->slot[i].start;
    dst[0] = '\0';
    if (isfinite(seconds))
        snprintf(dst, cap, "  %s left", fgio_duration_text(fmax(seconds, 0) / p->c->jobs, clock, sizeof clock));
}

static void draw(pool *p) {
    enum { BAR = 20 };
    char line[512], bar[BAR + 1], left[48], names[256] = "";
    double seconds;
    size_t todo = fgl_search_left(p->c, &seconds), all = todo + p->c->outcomes, used = 0;
    for (size_t i = 0; i < p->c->jobs && used < sizeof names; i++)
        if (p->slot[i].pid > 0)
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "  %s/%s", p->c->suite.task[p->slot[i].run.task].id,
                                 p->c->suite.method[p->slot[i].run.method].id);
    for (size_t i = 0; i < BAR; i++)
        bar[i] = i * all < p->c->outcomes * BAR ? '#' : '-';
    bar[BAR] = '\0';
    describe_left(p, left, sizeof left);
    snprintf(line, sizeof line, "[%s] %zu of %zu runs%s%s", bar, p->c->outcomes, all, left, names);
    size_t width = fgio_terminal_width() - 1;
    if (width < sizeof line)
        line[width] = '\0';
    fgio_status_draw(line);
    p->shown = frugi_clock();
}

static void tell(const pool *p, const fgl_outcome *o, const json_t *record) {
    const fgl_compare_task *t = &p->c->suite.task[o->run.task];
    const char *error = json_string_value(json_object_get(record, "error"));
    char left[48], what[512];
    double seconds;
    size_t todo = fgl_search_left(p->c, &seconds);
    if (p->terminal && (error == NULL || o->diverged))
        return;
    describe_left(p, left, sizeof left);
    if (error != NULL)
        snprintf(what, sizeof what, "%s", error);
    else
        snprintf(what, sizeof what, "%s %.*f", fgl_task_metric(t), t->family == FGL_LANGUAGE ? 3 : 4, o->value);
    fgio_status_print("%zu of %zu: %s, %s, %s, rate %g, seed %u: %s (%.1f s)%s", p->c->outcomes, p->c->outcomes + todo,
                   t->id, p->c->suite.method[o->run.method].id, o->run.tune ? "search" : "test", o->run.rate,
                   o->run.seed, what, o->seconds, left);
}

/* ---- a child ends -------------------------------------------------------------------------------------- */

static void remove_files(const fgl_run_files *files) {
    unlink(files->out);
    unlink(files->err);
    unlink(files->metrics);
}

/* The files of a failure stay. */
static int finish(pool *p, slot *s, int state) {
    fgl_outcome outcome;
    fgl_ended ended = {.run = &s->run,
                       .files = &s->files,
                       .begun = s->begun,
                       .seconds = frugi_clock() - s->start,
                       .status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state)};
    s->pid = 0;
    p->running--;
    json_t *record = fgl_record_make(p->c, &ended, &outcome);
    int code = fgl_ledger_put(p->c, json_incref(record));
    if (code == FGIO_EXIT_OK)
        code = fgl_outcome_add(p->c, &outcome);
    if (code == FGIO_EXIT_OK) {
        tell(p, &outcome, record);
        p->done++;
        if (ended.status == 0 || outcome.diverged)
            remove_files(&s->files);
        else
            p->failed++;
    }
    json_decref(record);
    return code;
}

static int collect(pool *p) {
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < p->c->jobs && code == FGIO_EXIT_OK; i++) {
        int state = 0;
        slot *s = &p->slot[i];
        if (s->pid > 0 && waitpid(s->pid, &state, WNOHANG) == s->pid)
            code = finish(p, s, state);
    }
    return code;
}

/* Nothing of theirs is worth keeping. */
static void end_children(pool *p) {
    for (size_t i = 0; i < p->c->jobs; i++) {
        slot *s = &p->slot[i];
        if (s->pid <= 0)
            continue;
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        remove_files(&s->files);
        s->pid = 0;
        p->running--;
    }
}

static int start_some(pool *p) {
    fgl_trial run;
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < p->c->jobs && code == FGIO_EXIT_OK; i++)
        if (p->slot[i].pid == 0 && fgl_search_next(p->c, is_running, p, &run))
            code = begin(p, &p->slot[i], &run);
    return code;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

static int work(pool *p) {
    const struct timespec nap = {.tv_nsec = (long)(LOOK * 1e9)};
    int code = FGIO_EXIT_OK;
    for (;;) {
        if (frugi_clock() - p->start < p->c->seconds)
            code = start_some(p);
        if (code != FGIO_EXIT_OK || p->running == 0 || asked_to_stop)
            break;
        nanosleep(&nap, NULL);
        code = collect(p);
        if (p->terminal && frugi_clock() - p->shown >= REDRAW)
            draw(p);
        if (code != FGIO_EXIT_OK || asked_to_stop)
            break;
    }
    end_children(p);
    fgio_status_clear();
    if (code == FGIO_EXIT_OK && p->failed > 0)
        code = fgio_error("%zu run%s failed; what they said is in %s/work", p->failed, p->failed == 1 ? "" : "s",
                          p->c->out);
    return asked_to_stop ? FGP_EXIT_STOPPED : code;
}

int fgl_pool_run(fgl_compare *c) {
    struct sigaction action = {.sa_handler = on_signal}, before[SIGNALS];
    pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return fgio_error("out of memory");
    *p = (pool){.c = c, .start = frugi_clock(), .terminal = fgio_stderr_is_terminal()};
    /* Threads of several runs share the cores: those that wait must not take them from those that work. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    for (int i = 0; i < SIGNALS; i++) /* nohup, and a shell's background, have some ignored */
        if (sigaction(signals[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    int code = work(p);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
    free(p);
    return code;
}
