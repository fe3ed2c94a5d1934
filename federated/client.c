/*
 * client.c - what a client does: join, pull, push. client_session.c has the connection.
 *
 * The residual of the compressor in memory is ahead of the confirmed one while an update is in flight; a refused update
 * takes it back to the confirmed one.
 */
#include "federated/client.h"

#include "base/crc32c.h"
#include "federated/client_session.h"
#include "federated/client_state.h"
#include "federated/update_layout.h"
#include "federated/weight_changes.h"
#include "io/files.h"
#include "io/json.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fgf_client {
    fgf_client_options options;
    fgf_session *session;
    frug_compressor *compressor;
    uint64_t count;
    float *weights, *difference; /* as pulled; work space */
    uint64_t version;            /* of the weights; FGF_NO_VERSION: none */
    uint64_t examples;
    unsigned char *frame, *residual, *confirmed;
    size_t frame_cap, residual_len;
};

int fgf_client_open(const fgf_client_options *options, fgf_client **out, fgio_reason *why) {
    fgf_client *c = calloc(1, sizeof *c);
    if (!c)
        return fgio_fail(why, "not enough memory");
    c->options = *options;
    c->version = FGF_NO_VERSION;
    int status = fgio_directory_make(options->directory) == FGIO_EXIT_OK
                     ? fgf_session_open(options, &c->session, why)
                     : fgio_fail(why, "%s cannot be made", options->directory);
    if (status == 0)
        *out = c;
    else
        fgf_client_close(c);
    return status;
}

void fgf_client_close(fgf_client *c) {
    if (!c)
        return;
    fgf_session_close(c->session);
    frug_compressor_destroy(c->compressor);
    free(c->weights);
    free(c->difference);
    free(c->frame);
    free(c->residual);
    free(c->confirmed);
    free(c);
}

const char *fgf_client_job(const fgf_client *c) {
    return fgf_session_job(c->session);
}

uint64_t fgf_client_rounds(const fgf_client *c) {
    return fgf_session_rounds(c->session);
}

void fgf_client_traffic(const fgf_client *c, uint64_t *sent, uint64_t *received) {
    fgf_session_traffic(c->session, sent, received);
}

/* ---- joining ---- */

static int create_compressor(fgf_client *c, const frug_layout *layout, fgio_reason *why) {
    json_t *job = json_loads(fgf_client_job(c), 0, NULL);
    const char *text = json_string_value(json_object_get(job, "config"));
    frug_config *config = NULL;
    frug_layout *updates = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = fgf_client_rounds(c);
    options.threads = 1;
    frug_status status = frug_config_create(text ? text : "", &config);
    if (status == FRUG_OK)
        status = fgf_update_layout(layout, text ? text : "", &updates);
    if (status == FRUG_OK)
        status = frug_compressor_create(config, updates, &options, &c->compressor);
    frug_layout_destroy(updates);
    frug_config_destroy(config);
    json_decref(job);
    if (status == FRUG_OK)
        status = frug_compressor_bound(c->compressor, (frug_range){0, c->count}, &c->frame_cap);
    return status == FRUG_OK ? 0 : fgio_fail(why, "the server's config does not work here: %s", frug_last_error());
}

static int reserve(fgf_client *c, fgio_reason *why) {
    c->residual_len = frug_compressor_state_size(c->compressor);
    c->weights = malloc(c->count * sizeof *c->weights);
    c->difference = malloc(c->count * sizeof *c->difference);
    c->frame = malloc(c->frame_cap);
    c->residual = malloc(c->residual_len);
    c->confirmed = malloc(c->residual_len);
    size_t len;
    if (!c->weights || !c->difference || !c->frame || !c->residual || !c->confirmed ||
        frug_compressor_save(c->compressor, c->confirmed, c->residual_len, &len) != FRUG_OK)
        return fgio_fail(why, "not enough memory");
    return 0;
}

static int restore(fgf_client *c, const void *residual, size_t len, fgio_reason *why) {
    if (len != c->residual_len || frug_compressor_restore(c->compressor, residual, len) != FRUG_OK)
        return fgio_fail(why, "%s: its residual does not fit this run: remove it, or name another directory",
                         c->options.directory);
    return 0;
}

/* Sends the update of DIR/pending until the server has decided: 1 confirmed, 0 refused. */
static int send_pending(fgf_client *c, const fgf_update *update, const void *frame, fgio_reason *why) {
    int result = fgf_session_upload(c->session, update, frame, why);
    if (result == 1) {
        memcpy(c->confirmed, c->residual, c->residual_len);
        return fgf_client_pending_confirm(c->options.directory, why) == 0 ? 1 : -1;
    }
    if (result == 0 && (restore(c, c->confirmed, c->residual_len, why) != 0 ||
                        fgf_client_pending_drop(c->options.directory, why) != 0))
        return -1;
    return result;
}

static void report_recovered(const fgf_client *c, uint64_t round) {
    char line[96];
    snprintf(line, sizeof line, "round %llu/%llu  the update from before is counted", (unsigned long long)round + 1,
             (unsigned long long)fgf_client_rounds(c));
    if (c->options.log)
        c->options.log(c->options.ctx, line);
}

/* The state of an earlier process of this client: its residual, and an update that the server may not have. */
static int recover(fgf_client *c, fgio_reason *why) {
    fgf_client_file file = {0};
    const fgf_run_id *run = fgf_session_run(c->session);
    fgio_directory_clean(c->options.directory);
    int found = fgf_client_file_read(c->options.directory, "confirmed", run, &file, why);
    if (found == 1) {
        found = restore(c, file.residual.data, file.residual.len, why);
        if (found == 0)
            memcpy(c->confirmed, file.residual.data, c->residual_len);
        fgf_client_file_free(&file);
    }
    if (found != 0)
        return -1;
    found = fgf_client_file_read(c->options.directory, "pending", run, &file, why);
    if (found == 1) {
        found = restore(c, file.residual.data, file.residual.len, why);
        if (found == 0)
            memcpy(c->residual, file.residual.data, c->residual_len);
        int sent = found == 0 ? send_pending(c, &file.update, file.frame.data, why) : 0;
        if (sent == 1)
            report_recovered(c, file.update.base);
        found = sent < 0 ? -1 : found;
        fgf_client_file_free(&file);
    }
    return found;
}

int fgf_client_join(fgf_client *c, const frug_layout *layout, uint64_t examples, fgio_reason *why) {
    c->count = frug_layout_elements(layout);
    c->examples = examples;
    if (fgf_session_join(c->session, frug_layout_hash(layout), c->count, examples, why) != 0 ||
        create_compressor(c, layout, why) != 0 || reserve(c, why) != 0)
        return -1;
    if (!fgf_client_weights_read(c->options.directory, fgf_session_run(c->session), c->count, &c->version, c->weights))
        c->version = FGF_NO_VERSION;
    return recover(c, why);
}

/* ---- rounds ---- */

int fgf_client_pull(fgf_client *c, float *weights, uint64_t *round, fgio_reason *why) {
    unsigned char *bytes = NULL;
    size_t len = 0;
    uint64_t version = c->version;
    int result = fgf_session_download(c->session, &version, 1 + c->count * sizeof *weights, &bytes, &len, why);
    if (result < 0)
        return -1;
    if (result == 1 && fgf_changes_apply(bytes, len, c->count, c->weights, why) != 0)
        result = -1;
    free(bytes);
    if (result < 0)
        return -1;
    c->version = version;
    if (result == 1)
        fgf_client_weights_write(c->options.directory, fgf_session_run(c->session), c->count, version, c->weights);
    memcpy(weights, c->weights, c->count * sizeof *weights);
    *round = version;
    return version < fgf_client_rounds(c);
}

int fgf_client_push(fgf_client *c, const float *weights, double loss, fgio_reason *why) {
    size_t len = 0, saved = 0;
    fgf_update update = {.run = *fgf_session_run(c->session),
                         .client = fgf_key_public(c->options.key),
                         .base = c->version,
                         .examples = c->examples,
                         .loss = loss};
    for (uint64_t i = 0; i < c->count; i++)
        c->difference[i] = c->weights[i] - weights[i];
    if (RAND_bytes((unsigned char *)&update.upload, sizeof update.upload) != 1)
        return fgio_fail(why, "no random numbers");
    if (frug_compress(c->compressor, c->version, (frug_range){0, c->count}, c->difference, c->frame, c->frame_cap,
                      &len) != FRUG_OK ||
        frug_compressor_save(c->compressor, c->residual, c->residual_len, &saved) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    update.bytes = len;
    update.checksum = frugi_crc32c(0, c->frame, len);
    if (fgf_client_pending_write(c->options.directory, &update, c->frame, c->residual, c->residual_len, why) != 0) {
        fgio_reason second;
        restore(c, c->confirmed, c->residual_len, &second); /* so that the caller may push again */
        return -1;
    }
    return send_pending(c, &update, c->frame, why);
}
