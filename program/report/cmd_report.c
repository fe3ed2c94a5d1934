/*
 * cmd_report.c - `frugrad report`: recorded runs as tables, one HTML page, and charts as files.
 *
 * PNG files are made by rsvg-convert, which gets each chart on its standard input.
 */
#include "lab/report/panel_charts.h"
#include "lab/report/html_page.h"
#include "lab/report/run_tables.h"

#include "program/args/commands.h"
#include "io/files.h"
#include "io/progress.h"
#include "io/error.h"
#include "io/status_line.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const fgp_opt options[] = {
    {"output", 'o', "FILE", NULL, "write a page: one HTML file with everything in it; - for standard output"},
    {"svg", 0, "DIR", NULL, "write every chart as an SVG file of its own, in colors for print"},
    {"png", 0, "DIR", NULL, "the same as PNG; needs rsvg-convert (Debian: librsvg2-bin)"},
    {"markdown", 'm', NULL, NULL, "print the tables as Markdown"},
    {"suite", 's', "NAME", NULL, "only the runs of this suite"},
    {"show", 0, "WHAT", "tables",
     "what to print: tables (one for each task), summary (one for each suite), losses (where FruGrad is worse)"},
    {"no-times", 0, NULL, NULL, "omit run times, for runs on a busy machine; times over a network stay"},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *const show_values[] = {"tables", "summary", "losses", NULL};

extern char **environ;

typedef struct chart_files {
    const char *folder;
    bool png;
    int count;
} chart_files;

/* ---- charts as files -------------------------------------------------------------------------------- */

static void append_word(char *name, size_t cap, const char *word) {
    size_t len = strlen(name);
    if (len > 0 && len + 1 < cap)
        name[len++] = '-';
    for (size_t k = 0; word[k] != '\0' && k < 60 && len + 1 < cap; k++) {
        char c = word[k];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        else if (!plain)
            c = '-';
        name[len++] = c;
    }
    name[len] = '\0';
}

static int write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t got = write(fd, data, len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        data += got;
        len -= (size_t)got;
    }
    return 0;
}

static int start_converter(const char *path, int in, int other, pid_t *pid) {
    char *const words[] = {"rsvg-convert", "--zoom", "2", "--output", (char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_addclose(&actions, other);
    int bad = posix_spawnp(pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return bad;
}

static int convert(const fgl_text *svg, const char *path) {
    int pipes[2], code = 0;
    pid_t pid;
    if (pipe(pipes) != 0)
        return fgio_error("%s: no pipe: %s", path, strerror(errno));
    int bad = start_converter(path, pipes[0], pipes[1], &pid);
    close(pipes[0]);
    int unread = bad ? 0 : write_all(pipes[1], svg->data, svg->len);
    close(pipes[1]);
    if (bad)
        return fgio_error("rsvg-convert cannot be started: %s", strerror(bad));
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {
    }
    if (unread != 0 || !WIFEXITED(code) || WEXITSTATUS(code) != 0)
        return fgio_error("%s: rsvg-convert failed", path);
    return FGIO_EXIT_OK;
}

static int write_chart(void *user, const fgl_panel *panel, const fgl_chart *chart) {
    chart_files *g = user;
    char name[240] = "", path[PATH_MAX];
    append_word(name, sizeof name, panel->suite);
    if (panel->size[0] != '\0')
        append_word(name, sizeof name, panel->size);
    append_word(name, sizeof name, panel->task);
    append_word(name, sizeof name, chart->kind);
    if (snprintf(path, sizeof path, "%s/%s.%s", g->folder, name, g->png ? "png" : "svg") >= (int)sizeof path)
        return fgio_error("%s: the name is too long", g->folder);
    g->count++;
    return g->png ? convert(&chart->svg, path) : fgl_text_save(&chart->svg, path);
}

static int save_charts(const fgl_findings *findings, const char *folder, bool png) {
    chart_files g = {folder, png, 0};
    int status = fgio_directory_make(folder);
    for (size_t i = 0; i < findings->count && status == FGIO_EXIT_OK; i++)
        status = fgl_charts(findings, &findings->panel[i], true, write_chart, &g);
    if (status == FGIO_EXIT_OK)
        fgio_status_print("%d charts in %s", g.count, folder);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int on_path(const char *program) {
    const char *at = getenv("PATH");
    for (size_t len; at != NULL && *at != '\0'; at += len + (at[len] == ':')) {
        char file[PATH_MAX];
        len = strcspn(at, ":");
        if (snprintf(file, sizeof file, "%.*s/%s", (int)len, at, program) < (int)sizeof file && access(file, X_OK) == 0)
            return 1;
    }
    return 0;
}

static int read_all(const fgp_args *args, fgl_runs *runs) {
    int status = FGIO_EXIT_OK;
    for (size_t i = 0; i < args->operand_count && status == FGIO_EXIT_OK; i++) {
        runs->torn = 0;
        status = fgl_runs_read(runs, args->operand[i]);
        if (status != FGIO_EXIT_OK)
            fgio_hint("a report needs runs.jsonl, which frugrad compare --out DIR writes");
        if (status == FGIO_EXIT_OK && runs->torn)
            fgio_hint("%s ends in the middle of a line, which was ignored", args->operand[i]);
    }
    return status;
}

static int write_page(const fgl_findings *findings, const char *path) {
    fgl_text page = {0};
    int status = fgl_page(findings, &page);
    if (status == FGIO_EXIT_OK)
        status = fgl_text_save(&page, path);
    fgl_text_free(&page);
    return status;
}

static int print_tables(const fgl_findings *findings, int what, bool markdown) {
    static void (*const put[])(const fgl_findings *, fgl_table_style, fgl_text *) = {fgl_tables_put, fgl_summary_put,
                                                                                     fgl_losses_put};
    fgl_text text = {0};
    put[what](findings, markdown ? FGL_TABLE_MARKDOWN : FGL_TABLE_PLAIN, &text);
    int status = text.failed ? fgio_error("out of memory") : FGIO_EXIT_OK;
    if (status == FGIO_EXIT_OK && text.len > 0)
        fwrite(text.data, 1, text.len, stdout);
    fgl_text_free(&text);
    return status;
}

static int write_report(const fgp_args *args, int what, const fgl_findings *findings) {
    const char *page = fgp_arg(args, "output"), *svg = fgp_arg(args, "svg"), *png = fgp_arg(args, "png");
    int status = FGIO_EXIT_OK;
    if (page == NULL || strcmp(page, "-") != 0)
        status = print_tables(findings, what, fgp_arg_given(args, "markdown"));
    fflush(stdout);
    fgio_progress *meter = fgio_progress_begin(0, "drawing charts");
    if (status == FGIO_EXIT_OK && page != NULL)
        status = write_page(findings, page);
    if (status == FGIO_EXIT_OK && svg != NULL)
        status = save_charts(findings, svg, false);
    if (status == FGIO_EXIT_OK && png != NULL)
        status = save_charts(findings, png, true);
    fgio_progress_end(meter);
    return status;
}

static int run(const fgp_args *args) {
    fgl_runs runs = {0};
    fgl_findings findings = {0};
    const char *suite = fgp_arg(args, "suite");
    int what = 0, status = fgp_arg_word(args, "show", show_values, &what);
    if (status != FGIO_EXIT_OK)
        return status;
    if (fgp_arg_given(args, "png") && !on_path("rsvg-convert"))
        return fgio_error("report: --png needs rsvg-convert, which is not on PATH (Debian: librsvg2-bin)");
    fgio_progress *meter = fgio_progress_begin(0, "reading runs");
    status = read_all(args, &runs);
    if (fgp_arg_given(args, "no-times"))
        fgl_runs_clear_times(&runs);
    if (status == FGIO_EXIT_OK)
        status = fgl_findings_make(&runs, suite, &findings);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK && findings.count == 0 && suite != NULL)
        status = fgio_error("report: no run of the suite '%s'", suite);
    else if (status == FGIO_EXIT_OK && findings.count == 0 && runs.timings == 0)
        status = fgio_error("report: no runs in %s", args->operand[0]);
    if (status == FGIO_EXIT_OK)
        status = write_report(args, what, &findings);
    fgl_findings_free(&findings);
    fgl_runs_free(&runs);
    return status;
}

const fgp_command fgp_command_report = {
    .name = "report",
    .summary = "make tables, charts and a page of recorded runs",
    .operands = "DIR|FILE...",
    .min_operands = 1,
    .max_operands = 256,
    .about =
        "Reads runs.jsonl of each DIR, or files of that format, as one set, and prints a table for each suite and\n"
        "task: mean and standard deviation over the test seeds; where learning rates were searched, at the best one.\n"
        "The page needs no network and no script, and has a light and a dark mode. docs/report.md has the format.\n"
        "\n"
        "  frugrad report results/paper -o report.html\n"
        "  frugrad report results/paper --suite paper --svg figures --markdown\n"
        "  frugrad report results/paper --show summary --no-times",
    .options = options,
    .run = run,
};
