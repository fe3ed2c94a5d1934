/*
 * cmd_report.c - `frugrad report`: recorded runs as tables, one HTML page, and charts as files. PNG is made by
 * rsvg-convert, which gets each chart on its standard input.
 */
#include "lab/report/panel_charts.h"
#include "lab/report/html_page.h"
#include "lab/report/run_tables.h"

#include "program/commands.h"
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

static const frugi_opt options[] = {
    {"output", 'o', "FILE", NULL, "write a page: one HTML file with everything in it; - for standard output"},
    {"svg", 0, "DIR", NULL, "write every chart as an SVG file of its own, in colours for paper"},
    {"png", 0, "DIR", NULL, "the same as PNG; needs rsvg-convert (Debian: librsvg2-bin)"},
    {"markdown", 'm', NULL, NULL, "print the tables as Markdown"},
    {"suite", 's', "NAME", NULL, "only the runs of this suite"},
    {"show", 0, "WHAT", "tables",
     "what to print: tables (one for each task), summary (one for each suite), losses (where FruGrad comes off worse)"},
    {"no-times", 0, NULL, NULL, "leave out how long runs took, as of a busy machine; times over a network stay"},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *const shows[] = {"tables", "summary", "losses", NULL};

extern char **environ;

typedef struct gallery {
    const char *folder;
    bool png;
    int count;
} gallery;

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

static int convert(const frugi_text *svg, const char *path) {
    int pipes[2], code = 0;
    pid_t pid;
    if (pipe(pipes) != 0)
        return frugi_error("%s: no pipe: %s", path, strerror(errno));
    int bad = start_converter(path, pipes[0], pipes[1], &pid);
    close(pipes[0]);
    int unread = bad ? 0 : write_all(pipes[1], svg->data, svg->len);
    close(pipes[1]);
    if (bad)
        return frugi_error("rsvg-convert cannot be started: %s", strerror(bad));
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {
    }
    if (unread != 0 || !WIFEXITED(code) || WEXITSTATUS(code) != 0)
        return frugi_error("%s: rsvg-convert failed", path);
    return FRUGI_EXIT_OK;
}

static int take_chart(void *user, const frugi_panel *panel, const frugi_chart *chart) {
    gallery *g = user;
    char name[240] = "", path[PATH_MAX];
    append_word(name, sizeof name, panel->suite);
    if (panel->size[0] != '\0')
        append_word(name, sizeof name, panel->size);
    append_word(name, sizeof name, panel->task);
    append_word(name, sizeof name, chart->kind);
    if (snprintf(path, sizeof path, "%s/%s.%s", g->folder, name, g->png ? "png" : "svg") >= (int)sizeof path)
        return frugi_error("%s: the name is too long", g->folder);
    g->count++;
    return g->png ? convert(&chart->svg, path) : frugi_text_save(&chart->svg, path);
}

static int save_charts(const frugi_findings *findings, const char *folder, bool png) {
    gallery g = {folder, png, 0};
    int status = frugi_folder_make(folder);
    for (size_t i = 0; i < findings->count && status == FRUGI_EXIT_OK; i++)
        status = frugi_charts(findings, &findings->panel[i], true, take_chart, &g);
    if (status == FRUGI_EXIT_OK)
        frugi_show_line("%d charts in %s", g.count, folder);
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

static int read_all(const frugi_args *args, frugi_runs *runs) {
    int status = FRUGI_EXIT_OK;
    for (size_t i = 0; i < args->operand_count && status == FRUGI_EXIT_OK; i++) {
        runs->torn = 0;
        status = frugi_runs_read(runs, args->operand[i]);
        if (status != FRUGI_EXIT_OK)
            frugi_hint("a report is made of runs.jsonl, which frugrad compare --out DIR writes");
        if (status == FRUGI_EXIT_OK && runs->torn)
            frugi_hint("%s ends in the middle of a line, which was left out", args->operand[i]);
    }
    return status;
}

static int write_page(const frugi_findings *findings, const char *path) {
    frugi_text page = {0};
    int status = frugi_page(findings, &page);
    if (status == FRUGI_EXIT_OK)
        status = frugi_text_save(&page, path);
    frugi_text_free(&page);
    return status;
}

static int print_tables(const frugi_findings *findings, int what, bool markdown) {
    static void (*const put[])(const frugi_findings *, frugi_table_style,
                               frugi_text *) = {frugi_tables_put, frugi_summary_put, frugi_losses_put};
    frugi_text text = {0};
    put[what](findings, markdown ? FRUGI_TABLE_MARKDOWN : FRUGI_TABLE_PLAIN, &text);
    int status = text.failed ? frugi_error("out of memory") : FRUGI_EXIT_OK;
    if (status == FRUGI_EXIT_OK && text.len > 0)
        fwrite(text.data, 1, text.len, stdout);
    frugi_text_free(&text);
    return status;
}

static int make(const frugi_args *args, int what, const frugi_findings *findings) {
    const char *page = frugi_arg(args, "output"), *svg = frugi_arg(args, "svg"), *png = frugi_arg(args, "png");
    int status = FRUGI_EXIT_OK;
    if (page == NULL || strcmp(page, "-") != 0)
        status = print_tables(findings, what, frugi_arg_given(args, "markdown"));
    fflush(stdout);
    frugi_meter *meter = frugi_meter_begin(0, "drawing charts");
    if (status == FRUGI_EXIT_OK && page != NULL)
        status = write_page(findings, page);
    if (status == FRUGI_EXIT_OK && svg != NULL)
        status = save_charts(findings, svg, false);
    if (status == FRUGI_EXIT_OK && png != NULL)
        status = save_charts(findings, png, true);
    frugi_meter_end(meter);
    return status;
}

static int run(const frugi_args *args) {
    frugi_runs runs = {0};
    frugi_findings findings = {0};
    const char *suite = frugi_arg(args, "suite");
    int what = 0, status = frugi_arg_word(args, "show", shows, &what);
    if (status != FRUGI_EXIT_OK)
        return status;
    if (frugi_arg_given(args, "png") && !on_path("rsvg-convert"))
        return frugi_error("report: --png needs rsvg-convert, which is not on PATH (Debian: librsvg2-bin)");
    frugi_meter *meter = frugi_meter_begin(0, "reading runs");
    status = read_all(args, &runs);
    if (frugi_arg_given(args, "no-times"))
        frugi_runs_forget_times(&runs);
    if (status == FRUGI_EXIT_OK)
        status = frugi_findings_make(&runs, suite, &findings);
    frugi_meter_end(meter);
    if (status == FRUGI_EXIT_OK && findings.count == 0 && suite != NULL)
        status = frugi_error("report: no run of the suite '%s'", suite);
    else if (status == FRUGI_EXIT_OK && findings.count == 0 && runs.timings == 0)
        status = frugi_error("report: no runs in %s", args->operand[0]);
    if (status == FRUGI_EXIT_OK)
        status = make(args, what, &findings);
    frugi_findings_free(&findings);
    frugi_runs_free(&runs);
    return status;
}

const frugi_command frugi_command_report = {
    .name = "report",
    .summary = "make tables, charts and a page of recorded runs",
    .operands = "DIR|FILE...",
    .min_operands = 1,
    .max_operands = 256,
    .about =
        "Reads runs.jsonl of each DIR, or files of that format, as one set, and prints a table for each suite and\n"
        "task: mean and standard deviation over the test seeds; where learning rates were searched, at the best one.\n"
        "The page needs no network and no script, and shows in light and dark. docs/report.md has the format.\n"
        "\n"
        "  frugrad report results/paper -o report.html\n"
        "  frugrad report results/paper --suite paper --svg figures --markdown\n"
        "  frugrad report results/paper --show summary --no-times",
    .options = options,
    .run = run,
};
