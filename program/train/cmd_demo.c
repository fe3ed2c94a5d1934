/*
 * cmd_demo.c - `frugrad demo`: the same model trained twice, with dense gradients and with FruGrad, side by side.
 *
 * Each run is a `frugrad train` in a process of its own, so that memory is measured separately, and so that the
 * commands shown can be typed by anybody.
 */
#include "program/args/commands.h"
#include "frugrad.h"
#include "io/end_signals.h"
#include "io/error.h"
#include "io/files.h"
#include "io/status_line.h"
#include "program/system/interrupt.h"
#include "trainer/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEBIAN_IMAGES "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

extern char **environ;

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", "lenet", "what to train: any model for images"},
    {"data", 'd', "DIR", NULL, "data set [fashion-mnist where Debian's package is installed, otherwise builtin]"},
    {"method", 0, "CONFIG", "frugrad", "what to compare with dense gradients"},
    {"workers", 'w', "COUNT", "4", "workers, as threads"},
    {"steps", 's', "COUNT", "1200", "steps of each run"},
    {"schedule", 0, "TEXT", "cosine,warmup=150", "of the learning rate, in both runs"},
    {"seed", 0, "NUMBER", "1", "of both runs"},
    {NULL, 0, NULL, NULL, NULL},
};

/** One of the two runs. */
typedef struct outcome {
    const char *name, *method;
    json_t *summary;
} outcome;

/* ---- signals ------------------------------------------------------------------------------ */

static volatile sig_atomic_t running_child, stop_signal;

/* Ctrl-C in a terminal reaches the child as well; a signal from a process is passed on. */
static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    stop_signal = number;
    if (running_child > 0 && info->si_code <= 0)
        kill(running_child, number);
}

/* ---- one run ------------------------------------------------------------------------------ */

/* Read a child's standard output to its end; cap is far more than a summary. */
static size_t read_output(int fd, char *dst, size_t cap) {
    size_t used = 0;
    while (used < cap) {
        ssize_t got = read(fd, dst + used, cap - used);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    return used;
}

/* Start this program as a child, with its standard output in a pipe. */
static int start(char *const argv[], int fd[2], pid_t *child) {
    posix_spawn_file_actions_t actions;
    if (pipe(fd) != 0)
        return fgio_error("cannot make a pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fd[0]);
    posix_spawn_file_actions_addclose(&actions, fd[1]);
    int cause = posix_spawn(child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    if (cause == 0)
        return FGIO_EXIT_OK;
    close(fd[0]);
    return fgio_error("cannot start frugrad train: %s", strerror(cause));
}

static int wait_for(pid_t child) {
    int state = 0;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR)
            return fgio_error("lost the training process: %s", strerror(errno));
    if (WIFEXITED(state))
        return WEXITSTATUS(state);
    if (stop_signal)
        return FGP_EXIT_STOPPED;
    return fgio_error("the training process was ended by signal %d", WTERMSIG(state));
}

static int train(char *const argv[], json_t **summary) {
    static char output[1 << 16];
    int fd[2];
    pid_t child = 0;
    const struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    struct sigaction before[FGIO_END_SIGNALS];
    fgio_end_signals_catch(&action, before); /* the child prints the message */
    int status = start(argv, fd, &child);
    if (status == FGIO_EXIT_OK) {
        running_child = child;
        if (stop_signal)
            kill(child, SIGTERM);
        size_t length = read_output(fd[0], output, sizeof output);
        close(fd[0]);
        status = wait_for(child);
        running_child = 0;
        *summary = status == FGIO_EXIT_OK ? json_loadb(output, length, 0, NULL) : NULL;
        if (status == FGIO_EXIT_OK && *summary == NULL)
            status = fgio_error("the training process printed no summary");
    }
    fgio_end_signals_restore(before);
    return status;
}

static int run_training(const fgp_args *args, const char *data, outcome *run) {
    /* No augmentation: with it a minute is too short to learn much. */
    const char *const words[] = {
        "frugrad",      "train",
        "--model",      fgp_arg(args, "model"),
        "--data",       data,
        "--method",     run->method,
        "--workers",    fgp_arg(args, "workers"),
        "--steps",      fgp_arg(args, "steps"),
        "--seed",       fgp_arg(args, "seed"),
        "--schedule",   fgp_arg(args, "schedule"),
        "--eval-every", fgp_arg(args, "steps"),
        "--no-augment", "--json",
        NULL,
    };
    printf("$");
    for (size_t i = 0; words[i] != NULL; i++)
        printf(" %s", words[i]);
    printf("\n");
    fflush(stdout);
    return train((char *const *)(uintptr_t)words, &run->summary);
}

/* ---- side by side ----------------------------------------------------------------------------- */

static double number(const outcome *run, const char *key) {
    return json_number_value(json_object_get(run->summary, key));
}

static void print_row(const char *what, const char *a, const char *b, const char *remark) {
    printf("  %-22s %12s %12s%s%s\n", what, a, b, remark[0] ? "   " : "", remark);
}

static void print_share_row(const char *what, const char *key, const outcome run[2], int decimals) {
    char a[32], b[32];
    snprintf(a, sizeof a, "%.*f %%", decimals, 100 * number(&run[0], key));
    snprintf(b, sizeof b, "%.*f %%", decimals, 100 * number(&run[1], key));
    print_row(what, a, b, "");
}

static void print_bytes_row(const char *what, const char *key, const outcome run[2], int compared) {
    char a[32], b[32], text[64] = "";
    double x = number(&run[0], key), y = number(&run[1], key);
    if (compared && x > 0 && y > 0)
        fgio_ratio_text(x, y, text, sizeof text);
    print_row(what, fgio_bytes_text((uint64_t)x, a, sizeof a), fgio_bytes_text((uint64_t)y, b, sizeof b), text);
}

static void print_real_row(const char *what, const char *key, const outcome run[2], const char *format) {
    char a[32], b[32];
    snprintf(a, sizeof a, format, number(&run[0], key));
    snprintf(b, sizeof b, format, number(&run[1], key));
    print_row(what, a, b, "");
}

/* One sentence on what the table shows. */
static void print_conclusion(const outcome run[2]) {
    char ratio[64];
    printf("With %s the model reached an accuracy of %.2f %% (dense gradients: %.2f %%)", run[1].name,
           100 * number(&run[1], "accuracy"), 100 * number(&run[0], "accuracy"));
    if (number(&run[0], "workers") > 1)
        printf(", and each worker sent %s",
               fgio_ratio_text(number(&run[0], "bytes_sent"), number(&run[1], "bytes_sent"), ratio, sizeof ratio));
    printf(".\n");
}

static void print_comparison(const outcome run[2]) {
    printf("\n");
    print_row("", run[0].name, run[1].name, "");
    print_share_row("accuracy (test)", "accuracy", run, 2);
    print_real_row("loss (test)", "loss", run, "%.4f");
    if (number(&run[0], "workers") > 1)
        print_bytes_row("sent by each worker", "bytes_sent", run, 1);
    else
        print_row("sent", "nothing", "nothing", "a single worker exchanges nothing");
    print_share_row("density", "density_mean", run, 2);
    print_bytes_row("model state", "model_state_bytes", run, 1);
    print_real_row("training time", "seconds", run, "%.1f s");
    print_real_row("step (median)", "step_ms", run, "%.1f ms");
    print_bytes_row("activations", "activation_bytes", run, 0);
    print_bytes_row("peak memory", "peak_rss_bytes", run, 0);
    printf("\n");
}

/* Checks of what the training processes would refuse, before half a minute of dense training. */
static int check_method(const char *method) {
    frug_config *config = NULL;
    if (frug_config_create(method, &config) != FRUG_OK)
        return fgio_config_error();
    frug_config_destroy(config);
    return FGIO_EXIT_OK;
}

static int check_model(const char *text) {
    fgt_model model;
    int status = fgt_model_parse(text, &model);
    if (status == FGIO_EXIT_OK && model.task != FGT_TASK_IMAGES)
        status = fgio_usage_error("demo: --model: %s is not a model for images", text);
    return status;
}

static int demo_run(const fgp_args *args) {
    outcome run[2] = {{.name = "dense", .method = "dense"},
                      {.name = fgp_arg(args, "method"), .method = fgp_arg(args, "method")}};
    const char *data = fgp_arg(args, "data");
    int status = check_method(run[1].method);
    if (status == FGIO_EXIT_OK)
        status = check_model(fgp_arg(args, "model"));
    if (status != FGIO_EXIT_OK)
        return status;
    if (data == NULL && access(DEBIAN_IMAGES, R_OK) == 0) {
        data = "fashion-mnist";
    } else if (data == NULL) {
        data = "builtin";
        printf("Fashion-MNIST is not installed (Debian: dataset-fashion-mnist); generated images are used instead.\n");
    }
    printf("One model, trained with dense gradients and with %s; each run sees the same samples.\n", run[1].name);
    for (int i = 0; i < 2 && status == FGIO_EXIT_OK; i++)
        status = run_training(args, data, &run[i]);
    if (status == FGIO_EXIT_OK) {
        print_comparison(run);
        print_conclusion(run);
    }
    json_decref(run[0].summary);
    json_decref(run[1].summary);
    return status;
}

const fgp_command fgp_command_demo = {
    .name = "demo",
    .summary = "train a small model with dense gradients and with FruGrad, and compare",
    .operands = "",
    .about = "Trains for less than a minute on two cores: Fashion-MNIST where it is installed, four workers,\n"
             "first with dense gradients and then with FruGrad. Then it shows what each sent, how good the models\n"
             "are, and what time and memory they took.",
    .options = options,
    .run = demo_run,
};
