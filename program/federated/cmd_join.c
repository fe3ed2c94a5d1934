/* cmd_join.c - `frugrad join`: take part in a federated run with the data of this machine. */
#include "io/json.h"
#include "program/args/commands.h"
#include "program/federated/client_loop.h"
#include "program/federated/federated_print.h"
#include "program/system/interrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fgp_opt options[] = {
    {"key", 0, "FILE", NULL, "private key, from keygen"},
    {"server", 0, "KEY", NULL, "public key of the server, as 'ed25519:...', or a file with it"},
    {"data", 'd', "DIR", NULL,
     "directory of the data to train on; fashion-mnist: Debian's package; builtin: generated"},
    {"tokens", 0, "WHAT", NULL,
     "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe [as the server says]"},
    {"share", 0, "I/N", NULL, "train on one of N equal shares of the data, numbered from 1 [all]"},
    {"alpha", 0, "NUMBER", NULL,
     "shares of each class by a Dirichlet distribution, for experiments; needs --share [equal]"},
    {"samples", 0, "COUNT", NULL, "builtin data: how many to train on [some thousand]"},
    {"state", 0, "DIR", NULL, "directory for the residual [KEY.state]"},
    {"threads", 't', "COUNT", "1", "threads"},
    {"patience", 0, "SECONDS", "600", "end with an error after trying so long to reach the server"},
    {"json", 'j', NULL, NULL, "print the summary as one JSON object"},
    {"quiet", 'q', NULL, NULL, "no progress"},
    {NULL, 0, NULL, NULL, NULL},
};

static int missing(const char *option, const char *hint) {
    fgio_usage_error("join: --%s missing", option);
    fgio_hint("%s", hint);
    return FGIO_EXIT_USAGE;
}

static int check_given(const fgp_args *args) {
    if (!fgp_arg(args, "key"))
        return missing("key",
                       "'frugrad keygen FILE' makes a key; the operator of the server adds FILE.pub to its list");
    if (!fgp_arg(args, "server"))
        return missing("server", "the server's public key, 'ed25519:...', which 'frugrad serve' prints");
    if (!fgp_arg(args, "data"))
        return missing("data", "a directory, fashion-mnist, or builtin, which needs no files");
    return FGIO_EXIT_OK;
}

static int read_share(const fgp_args *args, fgp_client_options *o) {
    unsigned long long part, parts;
    char end;
    const char *text = fgp_arg(args, "share");
    if (!text)
        return FGIO_EXIT_OK;
    if (sscanf(text, "%llu/%llu%c", &part, &parts, &end) != 2 || part < 1 || part > parts || parts > 1000000)
        return fgio_usage_error("join: --share %s: expected I/N with I from 1 to N", text);
    o->part = part - 1;
    o->parts = parts;
    return FGIO_EXIT_OK;
}

static int read_options(const fgp_args *args, fgp_client_options *o) {
    uint64_t threads = 1;
    int status = check_given(args);
    if (status == FGIO_EXIT_OK)
        status = read_share(args, o);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(args, "threads", 1, 1024, &threads);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_double(args, "patience", 0.1, 1e9, &o->client.patience);
    if (status == FGIO_EXIT_OK && fgp_arg(args, "alpha"))
        status = o->parts ? fgp_arg_double(args, "alpha", 1e-3, 1e6, &o->alpha)
                          : fgio_usage_error("join: --alpha needs --share I/N");
    if (status == FGIO_EXIT_OK && fgp_arg(args, "samples"))
        status = strcmp(fgp_arg(args, "data"), "builtin") == 0
                     ? fgp_arg_u64(args, "samples", 1, 1000000000, &o->samples)
                     : fgio_usage_error("join: --samples is for builtin data; --share I/N limits other data");
    o->threads = (uint32_t)threads;
    o->data = fgp_arg(args, "data");
    o->tokens = fgp_arg(args, "tokens");
    o->client.server = args->operand[0];
    o->client.is_stopped = fgp_client_is_stopped;
    if (!fgp_arg_given(args, "quiet")) {
        o->client.log = fgp_print_log;
        o->progress = fgp_print_client_round;
    }
    return status;
}

static int print_summary(const fgp_args *args, const fgp_client_report *r) {
    char sent[32], received[32];
    if (fgp_arg_given(args, "json"))
        return fgio_json_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "rounds", (json_int_t)r->rounds, "counted",
                                         (json_int_t)r->counted, "refused", (json_int_t)r->refused, "bytes_sent",
                                         (json_int_t)r->bytes_sent, "bytes_received", (json_int_t)r->bytes_received,
                                         "loss", fgio_json_real(r->loss)),
                               JSON_COMPACT, stdout);
    printf("%llu rounds, %llu updates counted, %llu refused; sent %s, received %s\n", (unsigned long long)r->rounds,
           (unsigned long long)r->counted, (unsigned long long)r->refused,
           fgio_bytes_text(r->bytes_sent, sent, sizeof sent),
           fgio_bytes_text(r->bytes_received, received, sizeof received));
    return FGIO_EXIT_OK;
}

static int join(const fgp_args *args, fgp_client_options *o) {
    fgp_client_report report;
    fgp_interrupt_catch();
    int status = fgp_client_run(o, &report);
    fgp_interrupt_restore();
    if (status == FGIO_EXIT_OK && report.stopped) {
        fgio_error("interrupted; the same command continues");
        return FGP_EXIT_STOPPED;
    }
    return status == FGIO_EXIT_OK ? print_summary(args, &report) : status;
}

static int run(const fgp_args *args) {
    fgp_client_options o = {0};
    fgf_key *key = NULL;
    fgio_reason why;
    int status = read_options(args, &o);
    if (status != FGIO_EXIT_OK)
        return status;
    if (fgf_key_read(fgp_arg(args, "key"), &key, &why) != 0)
        return fgio_error("join: --key: %s", why.text);
    char *state = malloc(strlen(fgp_arg(args, "key")) + 7);
    if (state)
        sprintf(state, "%s.state", fgp_arg(args, "key"));
    o.client.key = key;
    o.client.directory = fgp_arg(args, "state") ? fgp_arg(args, "state") : state;
    if (!state)
        status = fgio_error("not enough memory");
    else if (fgf_public_find(fgp_arg(args, "server"), &o.client.server_key, &why) != 0)
        status = fgio_error("join: --server: %s", why.text);
    else
        status = join(args, &o);
    free(state);
    fgf_key_destroy(key);
    return status;
}

const fgp_command fgp_command_join = {
    .name = "join",
    .summary = "take part in a federated run with the data of this machine",
    .operands = "HOST:PORT",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Connects to 'frugrad serve', trains its model on the data of this machine, and sends compressed changes of\n"
        "the weights; the data stay here. Ends when the run ends. It may be stopped or killed at any time: the same\n"
        "command continues, and no update is lost or counted twice.\n"
        "\n"
        "  frugrad join 192.0.2.1:7700 --key alice --server server.pub --data photos/",
    .options = options,
    .run = run,
};
