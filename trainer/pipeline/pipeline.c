/* pipeline.c - creating a stage, and running the micro-batches of a step in the order of 1F1B. */
#include "trainer/pipeline/pipeline.h"

#include "base/clock.h"
#include "io/error.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/data/data_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_FORWARD, TAG_BACKWARD };

#define UNCONFIRMED_MAX 2u   /* messages of an evaluation; a link has as many slots */
#define ERROR_TEXT      512u /* bytes of frug_last_error() */

/** The links of a chunk; NULL where there is no chunk before or after it. */
typedef struct chunk_links {
    fgt_channel *in, *in_gradient, *out, *out_gradient;
} chunk_links;

/** A graph, and the micro-batch that it has. */
typedef struct stage_copy {
    fgt_graph *graph;
    fgt_chunk chunk[2];
    fgt_batch part;
    const uint64_t *ids;
} stage_copy;

struct fgt_pipeline {
    fgt_pipeline_options options;
    fgt_stage_plan plan;
    uint32_t stage, chunks; /* chunks of this stage: one or two */
    uint32_t warmup;        /* forward passes before the first backward pass */
    stage_copy *copy;
    uint32_t copies;
    chunk_links links[2];
    uint32_t unconfirmed[2]; /* by the stage after each chunk, in an evaluation */
    fgt_stage_failure failure;
    bool unsent;   /* the failure could not be sent on, so that another stage waits for this one to end */
    float *memory; /* of samples */
    uint64_t memory_floats;
};

/* ---- create and destroy ---- */

static int build_copy(fgt_pipeline *p, stage_copy *to, const fgt_graph *owner, frug_layout **layout) {
    const fgt_pipeline_options *o = &p->options;
    int status = fgt_model_build_nodes(o->model, o->info, &o->build, &to->graph);
    if (status == FGIO_EXIT_OK && layout)
        status = fgt_stages_plan(to->graph, o->model->text, p->plan.stages, &p->plan);
    if (status != FGIO_EXIT_OK)
        return status;
    p->chunks = fgt_stages_keep(to->graph, &p->plan, p->stage, to->chunk);
    if (layout && (status = fgt_graph_layout(to->graph, layout)) != FGIO_EXIT_OK)
        return status;
    if (owner)
        fgt_graph_share(to->graph, owner);
    return fgt_graph_finish(to->graph);
}

/* As many graphs as there are micro-batches in memory. */
static int build_copies(fgt_pipeline *p, fgt_graph **graph, frug_layout **layout) {
    stage_copy first = {0};
    int status = build_copy(p, &first, NULL, layout);
    *graph = first.graph;
    if (status != FGIO_EXIT_OK)
        return status;
    p->warmup = p->plan.chunks - 1 - p->stage;
    p->warmup = p->warmup < p->options.accumulate ? p->warmup : p->options.accumulate;
    p->copies = fgt_stages_copies(&p->plan, p->stage, p->options.accumulate);
    p->copy = calloc(p->copies, sizeof *p->copy);
    if (!p->copy)
        return fgio_error("not enough memory for the stages of %s", p->options.model->text);
    p->copy[0] = first;
    for (uint32_t i = 1; i < p->copies && status == FGIO_EXIT_OK; i++)
        status = build_copy(p, &p->copy[i], first.graph, NULL);
    return status;
}

static uint32_t sending_slots(uint32_t copies) {
    return copies + 1;
}

/* Activations one way and gradients the other, each with one message more to be compressed or decoded. */
uint64_t fgt_pipeline_messages(uint32_t copies) {
    return (uint64_t)sending_slots(copies) + 1 + 2;
}

/* Activations go to the chunk after `from`, gradients back. */
static int open_channel(const fgt_pipeline *p, uint32_t from, bool backward, const fgt_value *value,
                        fgt_channel **channel) {
    const fgt_pipeline_options *o = &p->options;
    const uint32_t ends[2] = {from % p->plan.stages, (from + 1) % p->plan.stages};
    fgt_channel_options options = {.comm = o->comm,
                                   .peer = (int)(ends[0] == p->stage ? ends[1] : ends[0]),
                                   .tag = backward ? TAG_BACKWARD : TAG_FORWARD,
                                   .sending = (ends[0] == p->stage) != backward,
                                   .config = backward ? o->config->gradients : o->config->activations,
                                   .samples_max = o->build.batch,
                                   .sample_size = value->sample_size,
                                   .threads = o->build.threads,
                                   .messages = o->steps * o->accumulate};
    options.slots = options.sending ? sending_slots(p->copies) : 1;
    return fgt_channel_create(&options, channel);
}

static int open_links(fgt_pipeline *p) {
    int status = FGIO_EXIT_OK;
    for (uint32_t i = 0; i < p->chunks && status == FGIO_EXIT_OK; i++) {
        const fgt_chunk *c = &p->copy[0].chunk[i];
        chunk_links *l = &p->links[i];
        if (c->in)
            status = open_channel(p, c->number - 1, false, c->in, &l->in);
        if (c->in && status == FGIO_EXIT_OK)
            status = open_channel(p, c->number - 1, true, c->in, &l->in_gradient);
        if (c->out && status == FGIO_EXIT_OK)
            status = open_channel(p, c->number, false, c->out, &l->out);
        if (c->out && status == FGIO_EXIT_OK)
            status = open_channel(p, c->number, true, c->out, &l->out_gradient);
    }
    return status;
}

int fgt_pipeline_create(const fgt_pipeline_options *options, fgt_pipeline **pipeline, fgt_graph **graph,
                        frug_layout **layout) {
    fgt_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return fgio_error("not enough memory for the stages of %s", options->model->text);
    p->options = *options;
    p->stage = (uint32_t)frug_comm_rank(options->comm);
    p->plan.stages = (uint32_t)frug_comm_size(options->comm);
    *pipeline = p;
    int status = build_copies(p, graph, layout);
    return status == FGIO_EXIT_OK ? open_links(p) : status;
}

void fgt_pipeline_destroy(fgt_pipeline *p) {
    if (!p)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        fgt_channel_destroy(p->links[i].in);
        fgt_channel_destroy(p->links[i].in_gradient);
        fgt_channel_destroy(p->links[i].out);
        fgt_channel_destroy(p->links[i].out_gradient);
    }
    fgt_counted_free(p->memory);
    for (uint32_t i = 1; p->copy && i < p->copies; i++)
        fgt_graph_destroy(p->copy[i].graph);
    free(p->copy);
    free(p);
}

void fgt_pipeline_set_tiles(fgt_pipeline *p) {
    for (uint32_t i = 1; i < p->copies; i++) {
        const fgt_param *from = p->copy[0].graph->params;
        for (fgt_param *to = p->copy[i].graph->params; to; to = to->next, from = from->next) {
            to->tile = from->tile;
            to->bucket = from->bucket;
        }
    }
}

/* ---- a step ---- */

static frug_status forward(fgt_pipeline *p, stage_copy *copy, uint32_t chunk, uint64_t number, bool training) {
    const fgt_chunk *c = &copy->chunk[chunk];
    const chunk_links *l = &p->links[chunk];
    frug_status status = FRUG_OK;
    if (l->in)
        status = fgt_channel_receive(l->in, copy->ids, copy->part.n, c->in->data, !training);
    if (status != FRUG_OK)
        return status;
    fgt_graph_forward_nodes(copy->graph, c->first, c->last);
    return l->out ? fgt_channel_send(l->out, number, copy->ids, copy->part.n, c->out->data, !training) : FRUG_OK;
}

static frug_status backward(fgt_pipeline *p, stage_copy *copy, uint32_t chunk, uint64_t number, fgt_sink *sink) {
    const fgt_chunk *c = &copy->chunk[chunk];
    const chunk_links *l = &p->links[chunk];
    frug_status status = FRUG_OK;
    if (l->out_gradient)
        status = fgt_channel_receive(l->out_gradient, NULL, copy->part.n, c->out->grad, false);
    if (status != FRUG_OK)
        return status;
    fgt_graph_backward_nodes(copy->graph, c->first, c->last, sink);
    return l->in_gradient ? fgt_channel_send(l->in_gradient, number, NULL, copy->part.n, c->in->grad, false) : FRUG_OK;
}

/* Begins micro-batch i: its first chunk. */
static frug_status begin_forward(fgt_pipeline *p, fgt_pipeline_batch *b, uint32_t i, double targets) {
    const uint32_t M = p->options.accumulate;
    const uint64_t n = b->batch->n, first = n * i / M, end = n * (i + 1) / M;
    stage_copy *copy = &p->copy[i % p->copies];
    fgt_graph *g = copy->graph;
    copy->part = fgt_batch_part(p->options.info, b->batch, (uint32_t)first, (uint32_t)(end - first));
    copy->ids = b->ids ? b->ids + first : NULL;
    g->step = b->step;
    g->seed = b->seed;
    g->offset = first;
    g->target_count = targets;
    fgt_graph_begin(g, &copy->part, true);
    double start = frugi_clock();
    frug_status status = forward(p, copy, 0, b->step * M + i, true);
    b->forward += frugi_clock() - start;
    return status;
}

/* The last chunk of a tied model: forward, and at once backward. */
static frug_status run_tied_chunk(fgt_pipeline *p, fgt_pipeline_batch *b, uint32_t i) {
    stage_copy *copy = &p->copy[i % p->copies];
    const uint64_t number = b->step * p->options.accumulate + i;
    double start = frugi_clock();
    frug_status status = forward(p, copy, 1, number, true);
    double middle = frugi_clock();
    if (status == FRUG_OK)
        status = backward(p, copy, 1, number, fgt_buckets_sink(b->buckets));
    b->forward += middle - start;
    b->backward += frugi_clock() - middle;
    return status;
}

static frug_status run_backward(fgt_pipeline *p, fgt_pipeline_batch *b, uint32_t i) {
    double start = frugi_clock();
    frug_status status =
        backward(p, &p->copy[i % p->copies], 0, b->step * p->options.accumulate + i, fgt_buckets_sink(b->buckets));
    b->backward += frugi_clock() - start;
    return status;
}

/* What the peer of a link has sent in place of a message. */
static void take_failure(fgt_pipeline *p, const fgt_channel *channel) {
    if (channel && !p->failure.failed)
        p->failure = fgt_channel_failure(channel);
}

static void send_failure(fgt_pipeline *p, fgt_channel *channel) {
    if (channel && fgt_channel_fail(channel, p->failure) != FRUG_OK)
        p->unsent = true;
}

/* After an error of this stage, or of another one: sends it on. Its text remains frug_last_error(). */
static void fail_links(fgt_pipeline *p, frug_status status) {
    char text[ERROR_TEXT];
    snprintf(text, sizeof text, "%s", frug_last_error());
    for (uint32_t i = 0; i < p->chunks; i++) {
        take_failure(p, p->links[i].in);
        take_failure(p, p->links[i].out_gradient);
    }
    const bool lost = status == FRUG_ERR_COMM && strstr(text, "timeout");
    if (!p->failure.failed)
        p->failure = (fgt_stage_failure){.failed = true, .lost = lost, .stage = p->stage};
    for (uint32_t i = 0; i < p->chunks; i++) {
        send_failure(p, p->links[i].out);
        send_failure(p, p->links[i].in_gradient);
    }
    if (p->unsent)
        frug_set_last_error(status, text);
}

static frug_status finish_links(fgt_pipeline *p) {
    frug_status status = FRUG_OK;
    for (uint32_t i = 0; i < p->chunks && status == FRUG_OK; i++) {
        if (p->links[i].out)
            status = fgt_channel_finish(p->links[i].out);
        if (p->links[i].in_gradient && status == FRUG_OK)
            status = fgt_channel_finish(p->links[i].in_gradient);
    }
    return status;
}

/* A stage that has completed its passes receives nothing more, so not the failure of another stage either. So all
 * stages gather who has failed, unless one cannot take part. status: of this stage, which has sent its failure on. */
static frug_status end_passes(fgt_pipeline *p, frug_status status) {
    uint64_t mine = fgt_stage_failure_code(p->failure), all[FGT_STAGES_MAX];
    char text[ERROR_TEXT];
    if (p->failure.lost || p->unsent)
        return status;
    snprintf(text, sizeof text, "%s", frug_last_error());
    frug_status gathered = frug_comm_allgather(p->options.comm, &mine, sizeof mine, all);
    if (p->failure.failed)
        return gathered == FRUG_OK ? status : frug_set_last_error(status, text);
    if (gathered != FRUG_OK) {
        p->failure = (fgt_stage_failure){.failed = true, .lost = true, .stage = p->stage};
        return gathered;
    }
    for (uint32_t i = 0; i < p->plan.stages && !p->failure.failed; i++)
        p->failure = fgt_stage_failure_of(all[i]);
    return p->failure.failed ? fgt_stage_failure_error(p->failure) : finish_links(p);
}

frug_status fgt_pipeline_run(fgt_pipeline *p, fgt_pipeline_batch *b, fgt_score *score) {
    const uint32_t M = p->options.accumulate;
    const double targets = M > 1 && fgt_pipeline_has_loss(p) ? fgt_graph_target_count(p->copy[0].graph, b->batch) : 0;
    frug_status status = FRUG_OK;
    *score = (fgt_score){0};
    for (uint32_t i = 0; i < p->warmup && status == FRUG_OK; i++)
        status = begin_forward(p, b, i, targets);
    for (uint32_t i = 0; i < M && status == FRUG_OK; i++) {
        if (i > 0)
            fgt_buckets_next_pass(b->buckets);
        if (p->chunks > 1)
            status = run_tied_chunk(p, b, i);
        if (i + p->warmup < M && status == FRUG_OK)
            status = begin_forward(p, b, i + p->warmup, targets);
        if (status == FRUG_OK && fgt_pipeline_has_loss(p))
            fgt_score_add(score, &p->copy[i % p->copies].graph->score);
        if (status == FRUG_OK)
            status = run_backward(p, b, i);
    }
    if (status != FRUG_OK)
        fail_links(p, status);
    return end_passes(p, status);
}

/* A confirmation is a message without samples, against the direction of activations. So a stage receives something from
 * both sides, and the failure of any other one reaches it; and it never has to wait for a free slot. */
static frug_status confirm(fgt_channel *in_gradient) {
    const float none = 0;
    return in_gradient ? fgt_channel_send(in_gradient, 0, NULL, 0, &none, true) : FRUG_OK;
}

static frug_status receive_confirmations(fgt_pipeline *p, uint32_t chunk, uint32_t left) {
    frug_status status = FRUG_OK;
    float none = 0;
    for (; status == FRUG_OK && p->unconfirmed[chunk] > left; p->unconfirmed[chunk]--)
        status = fgt_channel_receive(p->links[chunk].out_gradient, NULL, 0, &none, true);
    return status;
}

static frug_status evaluate_chunk(fgt_pipeline *p, uint32_t chunk) {
    frug_status status = forward(p, &p->copy[0], chunk, 0, false);
    if (status == FRUG_OK)
        status = confirm(p->links[chunk].in_gradient);
    if (status != FRUG_OK || !p->links[chunk].out)
        return status;
    p->unconfirmed[chunk]++;
    return receive_confirmations(p, chunk, UNCONFIRMED_MAX - 1);
}

frug_status fgt_pipeline_evaluate(fgt_pipeline *p, const fgt_batch *batch, fgt_score *score) {
    stage_copy *copy = &p->copy[0];
    frug_status status = FRUG_OK;
    copy->part = *batch;
    fgt_graph_begin(copy->graph, batch, false);
    copy->graph->target_count = 0;
    for (uint32_t i = 0; i < p->chunks && status == FRUG_OK; i++)
        status = evaluate_chunk(p, i);
    if (status == FRUG_OK && fgt_pipeline_has_loss(p))
        fgt_score_add(score, &copy->graph->score);
    if (status != FRUG_OK)
        fail_links(p, status);
    return status;
}

frug_status fgt_pipeline_end_evaluation(fgt_pipeline *p, bool failed) {
    frug_status status = FRUG_OK;
    for (uint32_t i = 0; i < p->chunks && status == FRUG_OK && !failed; i++)
        status = receive_confirmations(p, i, 0);
    if ((failed && !p->failure.failed) || status != FRUG_OK)
        fail_links(p, status);
    return end_passes(p, status);
}

/* ---- state ---- */

bool fgt_pipeline_has_failed(const fgt_pipeline *p) {
    return p->failure.failed;
}

bool fgt_pipeline_has_loss(const fgt_pipeline *p) {
    return p->copy[0].chunk[p->chunks - 1].out == NULL;
}

static void add_stats(fgt_channel_stats *sum, const fgt_channel *channel) {
    if (!channel)
        return;
    const fgt_channel_stats *s = fgt_channel_get_stats(channel);
    sum->bytes += s->bytes;
    sum->bytes_dense += s->bytes_dense;
    sum->seconds_compress += s->seconds_compress;
    sum->seconds_wait += s->seconds_wait;
    sum->seconds_wire += s->seconds_wire;
    sum->seconds_decode += s->seconds_decode;
}

fgt_channel_stats fgt_pipeline_stats(const fgt_pipeline *p) {
    fgt_channel_stats sum = {0};
    for (uint32_t i = 0; i < p->chunks; i++) {
        add_stats(&sum, p->links[i].in);
        add_stats(&sum, p->links[i].in_gradient);
        add_stats(&sum, p->links[i].out);
        add_stats(&sum, p->links[i].out_gradient);
    }
    return sum;
}

/* Activations that this stage receives and sends have a memory each; `at`: where the next one begins. */
static uint64_t place_memory(fgt_pipeline *p, float *memory) {
    uint64_t at = 0;
    for (uint32_t c = 0; c < p->chunks; c++) {
        const fgt_value *value[2] = {p->copy[0].chunk[c].in, p->copy[0].chunk[c].out};
        fgt_channel *channel[2] = {p->links[c].in, p->links[c].out};
        for (int i = 0; i < 2; i++) {
            if (!channel[i])
                continue;
            if (memory)
                fgt_channel_set_memory(channel[i], memory + at);
            at += p->options.keyed_samples * value[i]->sample_size;
        }
    }
    return at;
}

int fgt_pipeline_open_memory(fgt_pipeline *p) {
    uint64_t mine = place_memory(p, NULL), all[FGT_STAGES_MAX];
    if (!p->options.keyed_samples)
        return FGIO_EXIT_OK;
    if (frug_comm_allgather(p->options.comm, &mine, sizeof mine, all) != FRUG_OK)
        return fgio_library_error("stages");
    for (uint32_t i = 0; i < p->plan.stages; i++)
        p->memory_floats = all[i] > p->memory_floats ? all[i] : p->memory_floats;
    if (p->memory_floats < SIZE_MAX / sizeof *p->memory)
        p->memory = fgt_counted_alloc(FGT_USE_EXCHANGE, (size_t)p->memory_floats * sizeof *p->memory);
    if (!p->memory)
        return fgio_error("--stage-feedback sample: not enough memory for the activations of %llu samples",
                          (unsigned long long)p->options.keyed_samples);
    memset(p->memory, 0, (size_t)p->memory_floats * sizeof *p->memory);
    place_memory(p, p->memory);
    return FGIO_EXIT_OK;
}

float *fgt_pipeline_memory(const fgt_pipeline *p, uint64_t *floats) {
    *floats = p->memory_floats;
    return p->memory;
}
