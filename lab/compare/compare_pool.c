/*
 * compare_pool.c - runs as child processes, several at a time.
 *
 * A child is this program's own executable, or Python, with its output in files. It has its own process group, so that
 * Ctrl-C reaches only this program, which then ends its children by their ids; if this program is killed, the system
 * ends them.
 */
#include "lab/compare/compare.h"

#include "base/clock.h"
#include "io/end_signals.h"
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

#define POLL_INTERVAL   0.02 /* seconds between polls of the children */
#define REDRAW_INTERVAL 0.25 /* of the bar */

enum { MAX_JOBS = 256 };

/** A slot for a child. */
typedef struct slot {
    pid_t pid; /* 0: free */
    fgl_trial run;
    fgl_run_files files;
    char begun[32];
    double start;
} slot;

typedef struct pool {
    fgl_compare *c;
    slot slot[MAX_JOBS];
    size_t running, done, failed;
    double start, shown;
    bool terminal;
    bool exhausted; /* no run can be started until one ends */
} pool;

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number) {
    asked_to_stop = number;
}

/* A run is expected to take as long as the longest of its task. */
static bool has_time(const pool *p, const fgl_trial *run) {
    double left = p->c->seconds - (frugi_clock() - p->start);
    return left > 0 && left >= fgl_search_longest(p->c, run->task);
}

static bool is_running(const pool *p, const fgl_trial *run) {
    for (size_t i = 0; i < p->c->jobs; i++) {
        const fgl_trial *r = &p->slot[i].run;
        if (p->slot[i].pid > 0 && r->task == run->task && r->method == run->method && r->tune == run->tune &&
            r->seed == run->seed && fabs(r->rate - run->rate) <= 1e-6 * run->rate)
            return true;
    }
    return false;
}

static bool is_excluded(const void *ctx, const fgl_trial *run) {
    return is_running(ctx, run) || !has_time(ctx, run);
}

/* ---- starting a child -------------------------------------------------------------------------------- */

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
static _Noreturn void exec_child(const slot *s, char *const argv[], bool python, pid_t parent) {
    int in = open("/dev/null", O_RDONLY);
    int out = open(s->files.out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open(s->files.err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < FGIO_END_SIGNALS; i++)
        signal(fgio_end_signals[i], SIG_DFL);
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

static int start_run(pool *p, slot *s, const fgl_trial *run) {
    fgl_command_line words;
    time_t at = time(NULL);
    struct tm utc;
    bool python = p->c->suite.task[run->task].trainer != NULL;
    name_files(p->c, run, &s->files);
    fgl_command_make(p->c, run, true, &words);
    if (python)
        words.word[0] = fgl_compare_python(); /* Python finds its virtual environment by argv[0] */
    fgl_command_add(&words, "--json", NULL);
    fgl_command_add(&words, "--quiet", NULL);
    fgl_command_add(&words, "--metrics", s->files.metrics);
    if (!run->tune && run->seed == 1 && !p->c->suite.tunes)
        fgl_command_add(&words, "--metrics-layers", NULL);
    s->run = *run;
    s->start = frugi_clock();
    strftime(s->begun, sizeof s->begun, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return fgio_error("cannot start a process: %s", strerror(errno));
    if (pid == 0)
        exec_child(s, (char *const *)(uintptr_t)words.word, python, self);
    s->pid = pid;
    p->running++;
    return FGIO_EXIT_OK;
}

/* ---- progress --------------------------------------------------------------------------------------- */

static void format_time_left(const pool *p, char *dst, size_t cap) {
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

static void draw_bar(pool *p) {
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
    format_time_left(p, left, sizeof left);
    snprintf(line, sizeof line, "[%s] %zu of %zu runs%s%s", bar, p->c->outcomes, all, left, names);
    size_t width = fgio_terminal_width() - 1;
    if (width < sizeof line)
        line[width] = '\0';
    fgio_status_draw(line);
    p->shown = frugi_clock();
}

static void print_outcome(const pool *p, const fgl_outcome *o, const json_t *record) {
    const fgl_compare_task *t = &p->c->suite.task[o->run.task];
    const char *error = json_string_value(json_object_get(record, "error"));
    char left[48], what[512];
    double seconds;
    size_t todo = fgl_search_left(p->c, &seconds);
    if (p->terminal && (error == NULL || o->diverged))
        return;
    format_time_left(p, left, sizeof left);
    if (error != NULL)
        snprintf(what, sizeof what, "%s", error);
    else
        snprintf(what, sizeof what, "%s %.*f", fgl_task_metric(t), t->family == FGL_LANGUAGE ? 3 : 4, o->value);
    fgio_status_print("%zu of %zu: %s, %s, %s, rate %g, seed %u: %s (%.1f s)%s", p->c->outcomes, p->c->outcomes + todo,
                      t->id, p->c->suite.method[o->run.method].id, o->run.tune ? "search" : "test", o->run.rate,
                      o->run.seed, what, o->seconds, left);
}

/* ---- end of a child ----------------------------------------------------------------------------------- */

static void remove_files(const fgl_run_files *files) {
    unlink(files->out);
    unlink(files->err);
    unlink(files->metrics);
}

/* The files of runs that are recorded and went well. A comparison that was killed after recording one has left them. */
static void remove_recorded_files(const fgl_compare *c) {
    fgl_run_files files;
    for (size_t i = 0; i < c->outcomes; i++)
        if (!isnan(c->outcome[i].value) || c->outcome[i].diverged) {
            name_files(c, &c->outcome[i].run, &files);
            remove_files(&files);
        }
}

/* The files of a failed run are kept. */
static int finish_run(pool *p, slot *s, int state) {
    fgl_outcome outcome;
    fgl_ended ended = {.run = &s->run,
                       .files = &s->files,
                       .begun = s->begun,
                       .seconds = frugi_clock() - s->start,
                       .status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state)};
    s->pid = 0;
    p->running--;
    p->exhausted = false;
    json_t *record = fgl_record_make(p->c, &ended, &outcome);
    int code = fgl_records_append(p->c, json_incref(record));
    if (code == FGIO_EXIT_OK)
        code = fgl_outcome_add(p->c, &outcome);
    if (code == FGIO_EXIT_OK) {
        print_outcome(p, &outcome, record);
        p->done++;
        if (ended.status == 0 || outcome.diverged)
            remove_files(&s->files);
        else
            p->failed++;
    }
    json_decref(record);
    return code;
}

static int collect_children(pool *p) {
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < p->c->jobs && code == FGIO_EXIT_OK; i++) {
        int state = 0;
        slot *s = &p->slot[i];
        if (s->pid > 0 && waitpid(s->pid, &state, WNOHANG) == s->pid)
            code = finish_run(p, s, state);
    }
    return code;
}

/* Kill all children and remove their files. */
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

static int start_runs(pool *p) {
    fgl_trial run;
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < p->c->jobs && code == FGIO_EXIT_OK && !p->exhausted; i++) {
        if (p->slot[i].pid > 0)
            continue;
        p->exhausted = !fgl_search_next(p->c, is_excluded, p, &run);
        if (!p->exhausted)
            code = start_run(p, &p->slot[i], &run);
    }
    return code;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

static int run_pool(pool *p) {
    const struct timespec nap = {.tv_nsec = (long)(POLL_INTERVAL * 1e9)};
    int code = FGIO_EXIT_OK;
    for (;;) {
        code = start_runs(p);
        if (code != FGIO_EXIT_OK || p->running == 0 || asked_to_stop)
            break;
        nanosleep(&nap, NULL);
        code = collect_children(p);
        if (p->terminal && frugi_clock() - p->shown >= REDRAW_INTERVAL)
            draw_bar(p);
        if (code != FGIO_EXIT_OK || asked_to_stop)
            break;
    }
    end_children(p);
    fgio_status_clear();
    if (code == FGIO_EXIT_OK && p->failed > 0)
        code =
            fgio_error("%zu run%s failed; their output is in %s/work", p->failed, p->failed == 1 ? "" : "s", p->c->out);
    return asked_to_stop ? FGP_EXIT_STOPPED : code;
}

int fgl_pool_run(fgl_compare *c) {
    const struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before[FGIO_END_SIGNALS];
    pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return fgio_error("out of memory");
    *p = (pool){.c = c, .start = frugi_clock(), .terminal = fgio_stderr_is_terminal()};
    /* Threads of several runs share the cores: waiting threads must not spin. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    fgio_end_signals_catch(&action, before);
    remove_recorded_files(c);
    int code = run_pool(p);
    fgio_end_signals_restore(before);
    free(p);
    return code;
}
