/* client_loop.c - pull weights, train, push the difference, until the run ends. */
#include "program/federated/client_loop.h"

#include "io/error.h"
#include "program/federated/federated_job.h"
#include "trainer/run/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fgp_client_is_stopped(void *ctx) {
    (void)ctx;
    return fgt_worker_interrupt_requested();
}

/** One client at work. */
typedef struct client_run {
    const fgp_client_options *options;
    fgp_client_report *report;
    fgf_client *client;
    fgp_federated_job job;
    fgt_solo *solo;
    float *weights;
} client_run;

/* Joins without a model, so that the server's log says, too, that this client cannot take part. */
static void join_without_model(fgf_client *client) {
    frug_layout *none = NULL;
    fgio_reason why;
    if (frug_layout_create(&none) == FRUG_OK)
        (void)fgf_client_join(client, none, 0, &why);
    frug_layout_destroy(none);
}

static int prepare(client_run *r) {
    const fgp_client_options *o = r->options;
    int status = fgp_federated_job_parse(fgf_client_job(r->client), &r->job);
    if (status != FGIO_EXIT_OK) {
        join_without_model(r->client);
        return status;
    }
    fgt_solo_options training = r->job.training;
    fgf_public_key public = fgf_key_public(o->client.key);
    training.data = o->data;
    training.opened = o->opened;
    training.tokens = o->tokens ? o->tokens : training.tokens;
    training.part = o->part;
    training.parts = o->parts;
    training.alpha = o->alpha;
    training.samples = o->samples;
    training.threads = o->threads;
    memcpy(&training.worker, public.bytes, sizeof training.worker);
    status = fgt_solo_open(&training, &r->solo);
    if (status != FGIO_EXIT_OK) {
        char classes[32] = "";
        if (training.classes)
            snprintf(classes, sizeof classes, ", in %u classes", training.classes);
        fgio_hint("the run trains %s on %s%s", training.model, r->job.data_name, classes);
        return status;
    }
    r->weights = malloc(frug_layout_elements(fgt_solo_layout(r->solo)) * sizeof *r->weights);
    return r->weights ? FGIO_EXIT_OK : fgio_error("not enough memory for the weights");
}

static int train_round(client_run *r, uint64_t round, fgio_reason *why) {
    fgp_client_report *report = r->report;
    bool stopped;
    fgt_solo_set(r->solo, r->weights);
    if (fgt_solo_train(r->solo, round, &report->loss, &stopped) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    report->stopped = stopped;
    if (stopped)
        return FGIO_EXIT_OK;
    fgt_solo_get(r->solo, r->weights);
    int sent = fgf_client_push(r->client, r->weights, report->loss, why);
    if (sent < 0)
        return fgio_error("%s", why->text);
    report->rounds++;
    report->counted += sent == 1;
    report->refused += sent == 0;
    if (r->options->progress)
        r->options->progress(r->options->client.ctx, round, fgf_client_rounds(r->client), report->loss, sent == 1);
    return FGIO_EXIT_OK;
}

static int take_part(client_run *r) {
    fgio_reason why;
    uint64_t round;
    int status = FGIO_EXIT_OK, more;
    if (fgf_client_join(r->client, fgt_solo_layout(r->solo), fgt_solo_examples(r->solo), &why) != 0)
        return fgio_error("%s", why.text);
    while ((more = fgf_client_pull(r->client, r->weights, &round, &why)) == 1 && status == FGIO_EXIT_OK &&
           !r->report->stopped)
        status = train_round(r, round, &why);
    r->report->stopped |= fgp_client_is_stopped(NULL);
    if (more < 0 && !r->report->stopped)
        status = fgio_error("%s", why.text);
    fgf_client_traffic(r->client, &r->report->bytes_sent, &r->report->bytes_received);
    return status;
}

int fgp_client_run(const fgp_client_options *options, fgp_client_report *report) {
    client_run r = {.options = options, .report = report};
    fgio_reason why;
    *report = (fgp_client_report){0};
    if (fgf_client_open(&options->client, &r.client, &why) != 0)
        return fgio_error("%s: %s", options->client.server, why.text);
    int status = prepare(&r);
    if (status == FGIO_EXIT_OK)
        status = take_part(&r);
    fgt_solo_close(r.solo);
    free(r.weights);
    fgp_federated_job_close(&r.job);
    fgf_client_close(r.client);
    return status;
}
