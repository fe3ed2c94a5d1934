/*
 * cmd_serve.c - `frugrad serve`: the server of a federated run; for a first try, with clients as threads.
 */
#include "federated/server.h"
#include "federated/update_layout.h"
#include "io/files.h"
#include "io/json.h"
#include "program/args/commands.h"
#include "program/federated/federated_job.h"
#include "program/federated/federated_print.h"
#include "program/federated/local_clients.h"
#include "program/federated/client_loop.h"
#include "program/federated/status_http.h"
#include "program/system/interrupt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", NULL, "what to train; 'frugrad help train' lists models"},
    {"data", 'd', "DIR", NULL, "data to evaluate on, with the sizes and classes of the clients' data"},
    {"tokens", 0, "WHAT", NULL, "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe"},
    {"config", 'c', "STRING", NULL,
     "how clients compress their updates: a config string of the library [the signs of the largest 3.6 %]"},
    {"clients", 0, "FILE", NULL, "list of clients: a line of a .pub file each; read again when it changes"},
    {"listen", 0, "HOST:PORT", "7700", "where to listen; a port alone: on all addresses"},
    {"save", 0, "DIR", NULL, "directory of the run; with a run in it, that run continues"},
    {"key", 0, "FILE", NULL, "private key of the server, from keygen [DIR/server.key, made when missing]"},
    {"rounds", 0, "COUNT", "10", "rounds of the run"},
    {"local-steps", 0, "COUNT", "50", "steps of training of a client in a round"},
    {"batch", 'b', "COUNT", NULL, "samples of a client in a step [by the model]"},
    {"optimizer", 'o', "TEXT", NULL, "of the clients [by the model]"},
    {"rate", 'r', "NUMBER", NULL, "learning rate of the clients [by the model]"},
    {"schedule", 0, "TEXT", "constant", "of that rate over all rounds, as for train"},
    {"server-optimizer", 0, "TEXT", "average", "average, momentum, adam, muon, or an optimizer of the library"},
    {"server-rate", 0, "NUMBER", NULL, "learning rate of the server [by its optimizer; average: 1]"},
    {"quorum", 0, "COUNT", NULL, "updates without which a round does not close [half of the clients]"},
    {"deadline", 0, "SECONDS", "600", "a round closes when all clients have sent, or then, with a quorum"},
    {"stale", 0, "ROUNDS", "1", "an update may be so many rounds late; later ones are refused"},
    {"stale-power", 0, "NUMBER", "0.5",
     "an update that is S rounds late has the weight (1 + S) to the power of minus this"},
    {"robust", 0, "WORD", "clip", "mean; clip: norms limited to their median; trim: also a trimmed mean of each entry"},
    {"trim", 0, "SHARE", "0.1", "robust=trim: share of the values of an entry that does not count, at each end"},
    {"down", 0, "STRING", NULL, "config string: compress the server's step as well, for less to download"},
    {"eval-every", 0, "ROUNDS", "1", "how often to evaluate on the test split; 0: never"},
    {"weights", 0, "FILE", NULL, "safetensors file to start from [random weights]"},
    {"seed", 0, "NUMBER", "1", "random seed of weights and data"},
    {"samples", 0, "COUNT", NULL, "builtin data: how many to train on [some thousand]"},
    {"threads", 't', "COUNT", "2", "threads that check updates"},
    {"local-clients", 0, "COUNT", NULL,
     "run so many clients as threads, on shares of --data: a first try without keys"},
    {"alpha", 0, "NUMBER", NULL, "local clients: shares of each class by a Dirichlet distribution [equal shares]"},
    {"status-port", 0, "PORT", NULL,
     "a page about the run and metrics for Prometheus at 127.0.0.1:PORT; 0: any free port [none]"},
    {"status", 0, NULL, NULL, "print the state of the run in --save DIR, and end"},
    {"json", 'j', NULL, NULL, "print the summary, or the status, as one JSON object"},
    {"quiet", 'q', NULL, NULL, "no progress"},
    {NULL, 0, NULL, NULL, NULL},
};

/** A server and what belongs to it. */
typedef struct serving {
    const fgp_args *args;
    fgt_solo_options training;
    fgt_solo *solo; /* the model that is evaluated */
    fgf_server_options server;
    fgf_key *key;
    fgf_allow_list local_list;
    fgp_local_clients *local;
    uint64_t local_count, eval_every;
    double alpha;
    char *directory, *job;
    bool temporary; /* the directory is removed at the end */
    float *start;
    fgf_round_report last;
} serving;

static int missing(const char *option, const char *hint) {
    fgio_usage_error("serve: --%s missing", option);
    fgio_hint("%s", hint);
    return FGIO_EXIT_USAGE;
}

static int check_given(const fgp_args *args) {
    bool local = fgp_arg(args, "local-clients") != NULL;
    if (!fgp_arg(args, "model"))
        return missing("model", "for a first try: frugrad serve --model lenet --data fashion-mnist --local-clients 2");
    if (!fgp_arg(args, "data"))
        return missing("data", "a directory, fashion-mnist, or builtin, which needs no files");
    if (!local && !fgp_arg(args, "clients"))
        return missing("clients", "a file with the lines of the clients' .pub files; --local-clients 2 needs none");
    if (!local && !fgp_arg(args, "save"))
        return missing("save", "a directory for the weights and the state of the run");
    if (local && fgp_arg(args, "clients"))
        return fgio_usage_error("serve: --clients and --local-clients: give one of them");
    return FGIO_EXIT_OK;
}

static int read_training(serving *s) {
    const fgp_args *a = s->args;
    fgt_solo_options *o = &s->training;
    uint64_t batch = 0;
    *o = (fgt_solo_options){.model = fgp_arg(a, "model"),
                            .data = fgp_arg(a, "data"),
                            .tokens = fgp_arg(a, "tokens"),
                            .optimizer = fgp_arg(a, "optimizer"),
                            .schedule = fgp_arg(a, "schedule"),
                            .threads = 1,
                            .evaluates = true};
    int status = fgp_arg_u64(a, "rounds", 1, UINT32_MAX - 1, &o->rounds);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(a, "local-steps", 1, 1000000000, &o->steps);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "batch"))
        status = fgp_arg_u64(a, "batch", 1, 1 << 20, &batch);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "rate"))
        status = fgp_arg_double(a, "rate", 1e-12, 1e6, &o->rate);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(a, "seed", 0, UINT64_C(1) << 53, &o->seed);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "samples"))
        status = fgp_arg_u64(a, "samples", 1, 1000000000, &o->samples);
    o->batch = (uint32_t)batch;
    return status;
}

static int read_rules(serving *s) {
    const fgp_args *a = s->args;
    fgf_server_options *o = &s->server;
    uint64_t threads = 2;
    int robust = 0;
    int status = fgp_arg_double(a, "deadline", 0.1, 1e9, &o->rule.deadline);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "quorum"))
        status = fgp_arg_u64(a, "quorum", 1, FGF_ALLOWED_MAX, &o->rule.quorum);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(a, "stale", 0, UINT32_MAX, &o->rule.stale_max);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_double(a, "stale-power", 0, 100, &o->state.sum.stale_power);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_word(a, "robust", fgf_robust_names, &robust);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_double(a, "trim", 0, 0.49, &o->state.sum.trim);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "server-rate"))
        status = fgp_arg_double(a, "server-rate", 1e-12, 1e6, &o->state.rate);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(a, "threads", 1, 1024, &threads);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(a, "eval-every", 0, UINT32_MAX, &s->eval_every);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "local-clients"))
        status = fgp_arg_u64(a, "local-clients", 1, 1000, &s->local_count);
    if (status == FGIO_EXIT_OK && fgp_arg(a, "alpha"))
        status = s->local_count ? fgp_arg_double(a, "alpha", 1e-3, 1e6, &s->alpha)
                                : fgio_usage_error("serve: --alpha needs --local-clients COUNT");
    o->state.sum.robust = (fgf_robust)robust;
    o->threads = (int)threads;
    return status;
}

/** An option and why it would have no effect. */
typedef struct idle_option {
    const char *option;
    bool idle;
    const char *why;
} idle_option;

static int check_idle_options(const serving *s) {
    const fgf_server_options *o = &s->server;
    bool local = s->local_count > 0;
    const idle_option all[] = {
        {"trim", o->state.sum.robust != FGF_ROBUST_TRIM, "needs --robust trim"},
        {"stale-power", o->rule.stale_max == 0, "does nothing with --stale 0, which refuses late updates"},
        {"samples", strcmp(s->training.data, "builtin") != 0, "is for builtin data"},
        {"listen", local, "does nothing with --local-clients, which connect inside this machine; omit it"},
        {"key", local, "does nothing with --local-clients, which need no keys; omit it"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].idle && fgp_arg_given(s->args, all[i].option))
            return fgio_usage_error("serve: --%s %s", all[i].option, all[i].why);
    return FGIO_EXIT_OK;
}

/* A round closes when all clients have sent, so a larger quorum would have no effect. */
static int check_quorum(const serving *s) {
    const char *path = fgp_arg(s->args, "clients");
    unsigned long long quorum = s->server.rule.quorum, count = s->local_count;
    fgf_allow_list list = {0};
    fgio_reason why;
    if (quorum == 0)
        return FGIO_EXIT_OK;
    if (path && fgf_allow_list_read(path, &list, &why) != 0)
        return fgio_error("serve: %s", why.text);
    count += list.count;
    fgf_allow_list_free(&list);
    if (quorum <= count)
        return FGIO_EXIT_OK;
    return fgio_usage_error("serve: --quorum %llu: only %llu client%s%s%s may send; lower it, or add clients", quorum,
                            count, count == 1 ? "" : "s", path ? " in " : "", path ? path : "");
}

static int check_config(const char *text) {
    frug_config *config = NULL;
    fgio_reason why;
    if (fgf_config_create(text, &config, &why) != 0)
        return fgio_usage_error("serve: %s", why.text);
    frug_config_destroy(config);
    return FGIO_EXIT_OK;
}

/* ---- creation ---- */

static int open_directory(serving *s) {
    char temporary[] = "/tmp/frugrad-serve-XXXXXX";
    const char *save = fgp_arg(s->args, "save");
    s->temporary = save == NULL;
    if (s->temporary && !mkdtemp(temporary))
        return fgio_error("a temporary directory cannot be made in /tmp");
    s->directory = strdup(save ? save : temporary);
    return s->directory ? fgio_directory_make(s->directory) : fgio_error("not enough memory");
}

static int open_key(serving *s) {
    const char *given = fgp_arg(s->args, "key");
    char path[FGF_PATH_MAX];
    fgio_reason why;
    snprintf(path, sizeof path, "%s/server.key", s->directory);
    if (given ? fgf_key_read(given, &s->key, &why) != 0 : fgf_key_open_or_make(path, "server", &s->key, &why) != 0)
        return fgio_error("serve: --key: %s", why.text);
    return FGIO_EXIT_OK;
}

static const char *config_of(const serving *s) {
    const char *given = fgp_arg(s->args, "config");
    return given ? given : fgt_solo_has_statistics(s->solo) ? FGF_CONFIG_TENSORS : FGF_CONFIG_ALL;
}

static int open_model(serving *s) {
    int status = fgt_solo_open(&s->training, &s->solo);
    if (status != FGIO_EXIT_OK)
        return status;
    if (fgp_arg(s->args, "weights"))
        status = fgt_solo_load(s->solo, fgp_arg(s->args, "weights"));
    s->training.optimizer = fgt_solo_optimizer(s->solo);
    s->training.rate = fgt_solo_rate(s->solo);
    s->training.batch = fgt_solo_batch(s->solo);
    s->training.classes = fgt_solo_classes(s->solo);
    s->job = fgp_federated_job_text(&s->training, fgt_solo_data_name(s->solo), config_of(s));
    s->start = malloc(frug_layout_elements(fgt_solo_layout(s->solo)) * sizeof *s->start);
    if (!s->job || !s->start)
        return fgio_error("not enough memory for the weights");
    fgt_solo_get(s->solo, s->start);
    return status;
}

static bool is_evaluated(const serving *s, uint64_t round) {
    return s->eval_every > 0 && (round % s->eval_every == 0 || round == s->training.rounds);
}

static void on_round(void *ctx, fgf_round_report *report, const float *weights, uint64_t count) {
    serving *s = ctx;
    double asked = 0;
    (void)count;
    if (is_evaluated(s, report->round + 1)) {
        fgt_solo_set(s->solo, weights);
        if (fgt_solo_evaluate(s->solo, &report->eval_loss, &report->eval_accuracy, &asked) != FGIO_EXIT_OK)
            report->eval_loss = report->eval_accuracy = (double)NAN;
    }
    s->last = *report;
    if (!fgp_arg_given(s->args, "quiet"))
        fgp_print_server_round(report);
}

static bool is_stopped(void *ctx) {
    const serving *s = ctx;
    return fgp_client_is_stopped(NULL) || (s->local && fgp_local_clients_have_failed(s->local));
}

static void raise_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &files);
}

static int create_server(serving *s, fgf_server **server) {
    const fgp_args *a = s->args;
    fgf_server_options *o = &s->server;
    fgio_reason why;
    o->listen = s->local_count ? "127.0.0.1:0" : fgp_arg(a, "listen");
    o->key = s->key;
    o->clients_file = fgp_arg(a, "clients");
    o->clients = &s->local_list;
    o->state.directory = s->directory;
    o->state.layout = fgt_solo_layout(s->solo);
    o->state.weights = s->start;
    o->state.optimizer = fgp_arg(a, "server-optimizer");
    o->state.config = config_of(s);
    o->state.down = fgp_arg(a, "down");
    o->state.job = s->job;
    o->state.rounds = o->rule.rounds = s->training.rounds;
    raise_file_limit();
    o->connections_max = fgf_connections_max();
    o->linger = 30;
    o->ctx = s;
    o->log = fgp_arg_given(a, "quiet") ? NULL : fgp_print_log;
    o->is_stopped = is_stopped;
    o->round = on_round;
    if (fgf_server_create(o, server, &why) != 0) {
        fgio_error("serve: %s", why.text);
        fgp_federated_job_hint(s->directory, s->job);
        return FGIO_EXIT_FAIL;
    }
    free(s->start); /* the server has its own */
    s->start = NULL;
    return FGIO_EXIT_OK;
}

static void print_address(const serving *s, const fgf_server *server) {
    char text[FGF_PUBLIC_TEXT];
    fgf_public_key public = fgf_key_public(s->key);
    if (s->local_count || fgp_arg_given(s->args, "quiet"))
        return;
    fprintf(stderr,
            "listening at port %u; clients join with\n  frugrad join HOST:%u --key FILE --server %s --data DIR\n",
            fgf_server_port(server), fgf_server_port(server), fgf_public_text(&public, text));
}

static int print_summary(const serving *s, const fgf_server *server) {
    uint64_t round;
    char bytes[32];
    fgf_server_weights(server, &round);
    if (fgp_arg_given(s->args, "json"))
        return fgio_json_print(json_pack("{s:I, s:o, s:o, s:o, s:I}", "rounds", (json_int_t)round, "loss",
                                         fgio_json_real(s->last.loss), "eval_loss", fgio_json_real(s->last.eval_loss),
                                         "accuracy", fgio_json_real(s->last.eval_accuracy), "bytes_up_last_round",
                                         (json_int_t)s->last.bytes_up),
                               JSON_COMPACT, stdout);
    if (s->last.rounds == 0) { /* none has closed since the start */
        printf("%llu rounds: the run had ended before; to go on from its weights: --weights %s/weights.safetensors "
               "--save OTHER\n",
               (unsigned long long)round, s->directory);
        return FGIO_EXIT_OK;
    }
    printf("%llu rounds, loss %.4f", (unsigned long long)round, s->last.loss);
    if (isfinite(s->last.eval_accuracy))
        printf(", accuracy %.2f %%", 100 * s->last.eval_accuracy);
    printf(", %s of updates in the last round\n", fgio_bytes_text(s->last.bytes_up, bytes, sizeof bytes));
    return FGIO_EXIT_OK;
}

static int save_weights(serving *s, const fgf_server *server) {
    char path[FGF_PATH_MAX];
    uint64_t round;
    if (s->temporary)
        return FGIO_EXIT_OK;
    snprintf(path, sizeof path, "%s/weights.safetensors", s->directory);
    fgt_solo_set(s->solo, fgf_server_weights(server, &round));
    return fgt_solo_save(s->solo, path);
}

static char *status_of(void *ctx) {
    return fgf_server_status(ctx);
}

static int open_status(const serving *s, fgf_server *server, fgp_status_http **http) {
    uint64_t port = 0;
    fgio_reason why;
    if (!fgp_arg(s->args, "status-port"))
        return FGIO_EXIT_OK;
    int status = fgp_arg_u64(s->args, "status-port", 0, 65535, &port);
    if (status != FGIO_EXIT_OK)
        return status;
    if (fgp_status_http_open((uint16_t)port, status_of, server, http, &why) != 0)
        return fgio_error("serve: --status-port: %s", why.text);
    if (!fgp_arg_given(s->args, "quiet"))
        fprintf(stderr, "status at http://127.0.0.1:%u/, metrics at /metrics\n", fgp_status_http_port(*http));
    return FGIO_EXIT_OK;
}

static int serve(serving *s, fgf_server *server) {
    fgio_reason why;
    int status = FGIO_EXIT_OK;
    print_address(s, server);
    fgp_interrupt_catch();
    if (s->local_count)
        status = fgp_local_clients_start(s->local, fgf_server_port(server), fgf_key_public(s->key));
    if (status == FGIO_EXIT_OK && fgf_server_run(server, &why) != 0)
        status = fgio_error("serve: %s", why.text);
    if (s->local_count) {
        int clients = fgp_local_clients_wait(s->local);
        status = status == FGIO_EXIT_OK ? clients : status;
    }
    fgp_interrupt_restore();
    if (status == FGIO_EXIT_OK && !fgf_server_is_done(server)) {
        fgio_error("interrupted; the same command continues the run in %s", s->directory);
        return FGP_EXIT_STOPPED;
    }
    if (status == FGIO_EXIT_OK)
        status = save_weights(s, server);
    return status == FGIO_EXIT_OK ? print_summary(s, server) : status;
}

static int run_server(serving *s) {
    fgf_server *server = NULL;
    fgp_status_http *http = NULL;
    const char *config = fgp_arg(s->args, "config");
    int status = config ? check_config(config) : FGIO_EXIT_OK;
    if (status == FGIO_EXIT_OK)
        status = open_directory(s);
    if (status == FGIO_EXIT_OK)
        status = open_key(s);
    if (status == FGIO_EXIT_OK)
        status = open_model(s);
    if (status == FGIO_EXIT_OK && s->local_count)
        status = fgp_local_clients_open(s->directory, s->local_count, fgt_solo_data(s->solo), s->alpha, &s->local,
                                        &s->local_list);
    if (status == FGIO_EXIT_OK)
        status = create_server(s, &server);
    if (status == FGIO_EXIT_OK)
        status = open_status(s, server, &http);
    if (status == FGIO_EXIT_OK)
        status = serve(s, server);
    fgp_status_http_close(http);
    fgf_server_destroy(server);
    return status;
}

static void close_serving(serving *s) {
    fgp_local_clients_close(s->local);
    fgf_allow_list_free(&s->local_list);
    fgt_solo_close(s->solo);
    fgf_key_destroy(s->key);
    if (s->temporary && s->directory)
        fgp_directory_remove(s->directory);
    free(s->directory);
    free(s->job);
    free(s->start);
}

static int print_status(const fgp_args *args) {
    char path[FGF_PATH_MAX];
    fgio_bytes text = {0};
    if (!fgp_arg(args, "save"))
        return missing("save", "the directory of the run whose status is to be printed");
    snprintf(path, sizeof path, "%s/status.json", fgp_arg(args, "save"));
    if (!fgio_file_exists(path))
        return fgio_error("serve: %s does not exist: no run has begun in this directory", path);
    int status = fgio_file_read(path, &text);
    char *line = status == FGIO_EXIT_OK ? strndup((char *)text.data, text.len) : NULL;
    if (line)
        status = fgp_print_status(path, line, fgp_arg_given(args, "json"));
    free(line);
    fgio_bytes_free(&text);
    return status;
}

static int run(const fgp_args *args) {
    serving s = {.args = args, .last = {.loss = (double)NAN, .eval_loss = (double)NAN, .eval_accuracy = (double)NAN}};
    if (fgp_arg_given(args, "status"))
        return print_status(args);
    int status = check_given(args);
    if (status == FGIO_EXIT_OK)
        status = read_training(&s);
    if (status == FGIO_EXIT_OK)
        status = read_rules(&s);
    if (status == FGIO_EXIT_OK)
        status = check_idle_options(&s);
    if (status == FGIO_EXIT_OK)
        status = check_quorum(&s);
    if (status == FGIO_EXIT_OK)
        status = run_server(&s);
    close_serving(&s);
    return status;
}

const fgp_command fgp_command_serve = {
    .name = "serve",
    .summary = "serve a federated run: train one model on data that stay with their owners",
    .operands = "",
    .about =
        "Clients ('frugrad join') get the weights, train some steps on their own data, and send compressed changes;\n"
        "a round closes when all have, or at its deadline with a quorum. Connections are TLS 1.3, and only the keys\n"
        "of --clients are let in. The server may be killed at any time: the same command continues the run.\n"
        "\n"
        "  frugrad serve --model lenet --data fashion-mnist --local-clients 2 --rounds 5\n"
        "  frugrad serve --model lenet --data fashion-mnist --clients clients.txt --save run/\n"
        "  frugrad serve --status --save run/",
    .options = options,
    .run = run,
};
