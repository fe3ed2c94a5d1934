/*
 * stage_channel.c - sending and receiving activations as frames.
 *
 * With keyed samples both ends store the last message of every sample of the data set, and the difference to it is
 * compressed (AQ-SGD, arXiv:2206.01299). Both add what the frame decodes to, so both have the same bits. What a frame
 * does not carry is still in the next difference of that sample: error feedback without a residual of its own.
 */
#include "trainer/pipeline/stage_channel.h"

#include "base/clock.h"
#include "io/error.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/nn/graph_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    uint64_t length;
    unsigned char *bytes;
    frug_message message[2]; /* length, bytes */
    bool busy;
} slot;

struct fgt_channel {
    fgt_channel_options options;
    frug_compressor *compressor[FGT_CHANNEL_SIZES]; /* of samples_max, and of one less; NULL: raw floats */
    size_t cap;                                     /* bytes of a slot */
    slot *slots;
    uint32_t next;     /* slot */
    float *memory;     /* last messages of all samples; NULL: not stored */
    float *difference; /* samples_max x sample_size */
    slot failure;      /* sent: a length without bytes; received: the length */
    fgt_channel_stats stats;
};

static int create_compressor(fgt_channel *c, uint32_t samples, frug_compressor **compressor) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_tensor tensor = FRUG_TENSOR_INIT;
    frug_layout *layout = NULL;
    size_t bound = 0;
    options.threads = c->options.threads;
    options.total_steps = c->options.messages;
    tensor.name = "activations";
    tensor.role = FRUG_ROLE_LINEAR;
    tensor.ndim = 2;
    tensor.shape[0] = samples;
    tensor.shape[1] = c->options.sample_size;
    frug_status status = frug_layout_create(&layout);
    if (status == FRUG_OK)
        status = frug_layout_add(layout, &tensor);
    if (status == FRUG_OK)
        status = frug_compressor_create(c->options.config, layout, &options, compressor);
    if (status == FRUG_OK)
        status = frug_compressor_bound(*compressor, (frug_range){0, samples * c->options.sample_size}, &bound);
    frug_layout_destroy(layout);
    c->cap = bound > c->cap ? bound : c->cap;
    return status == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error("--stage-config");
}

static int alloc_memory(fgt_channel *c) {
    const fgt_channel_options *o = &c->options;
    const size_t message = (size_t)o->samples_max * o->sample_size * sizeof(float);
    c->slots = calloc(o->slots, sizeof *c->slots);
    c->difference = fgt_counted_alloc(FGT_USE_EXCHANGE, message);
    bool failed = !c->slots || !c->difference;
    for (uint32_t i = 0; i < o->slots && !failed; i++) {
        c->slots[i].bytes = fgt_counted_alloc(FGT_USE_EXCHANGE, c->cap);
        failed = !c->slots[i].bytes;
    }
    return failed ? fgio_error("not enough memory for messages between stages") : FGIO_EXIT_OK;
}

int fgt_channel_create(const fgt_channel_options *options, fgt_channel **channel) {
    fgt_channel *c = calloc(1, sizeof *c);
    if (!c)
        return fgio_error("not enough memory for messages between stages");
    c->options = *options;
    c->cap = (size_t)options->samples_max * options->sample_size * sizeof(float);
    int status = FGIO_EXIT_OK;
    for (uint32_t i = 0; options->config && i < FGT_CHANNEL_SIZES && i < options->samples_max && status == FGIO_EXIT_OK;
         i++)
        status = create_compressor(c, options->samples_max - i, &c->compressor[i]);
    if (status == FGIO_EXIT_OK)
        status = alloc_memory(c);
    if (status != FGIO_EXIT_OK)
        fgt_channel_destroy(c);
    else
        *channel = c;
    return status;
}

/* ---- failures ---- */

uint64_t fgt_stage_failure_code(fgt_stage_failure failure) {
    return failure.failed ? UINT64_MAX - 2 * (uint64_t)failure.stage - failure.lost : 0;
}

fgt_stage_failure fgt_stage_failure_of(uint64_t code) {
    const uint64_t below = UINT64_MAX - code;
    if (below / 2 >= FGT_STAGES_MAX)
        return (fgt_stage_failure){0};
    return (fgt_stage_failure){.failed = true, .lost = below % 2, .stage = (uint32_t)(below / 2)};
}

frug_status fgt_stage_failure_error(fgt_stage_failure failure) {
    char text[80];
    snprintf(text, sizeof text,
             failure.lost ? "stage %u receives nothing from another stage"
                          : "stage %u has failed; its own error message says why",
             failure.stage);
    return frug_set_last_error(FRUG_ERR_REMOTE, text);
}

fgt_stage_failure fgt_channel_failure(const fgt_channel *c) {
    return fgt_stage_failure_of(c->failure.length);
}

/* After an error messages may still be on their way, which nobody receives, and the transport would use their memory.
 */
static void give_up(const fgt_channel *c, slot *s) {
    if (!s->busy)
        return;
    frug_comm_set_timeout(c->options.comm, 1e-6);
    frug_status abandoned = frug_comm_wait(c->options.comm, s->message, 2);
    (void)abandoned;
}

void fgt_channel_destroy(fgt_channel *c) {
    if (!c)
        return;
    for (int i = 0; i < FGT_CHANNEL_SIZES; i++)
        frug_compressor_destroy(c->compressor[i]);
    for (uint32_t i = 0; c->slots && i < c->options.slots; i++) {
        give_up(c, &c->slots[i]);
        fgt_counted_free(c->slots[i].bytes);
    }
    give_up(c, &c->failure);
    free(c->slots);
    fgt_counted_free(c->difference);
    free(c);
}

/* NULL: raw floats. */
static frug_compressor *compressor_for(const fgt_channel *c, uint32_t n, bool raw) {
    return raw || !c->options.config ? NULL : c->compressor[c->options.samples_max - n];
}

/* ---- memory of samples ---- */

static void subtract_memory(const fgt_channel *c, const uint64_t *ids, uint32_t n, const float *x) {
    const size_t size = c->options.sample_size;
    for (uint32_t i = 0; i < n; i++) {
        const float *last = c->memory + ids[i] * size;
        for (size_t j = 0; j < size; j++)
            c->difference[i * size + j] = x[i * size + j] - last[j];
    }
}

/* Adds the decoded difference; x, if there is one, becomes the new message. */
static void add_to_memory(const fgt_channel *c, const uint64_t *ids, uint32_t n, float *x) {
    const size_t size = c->options.sample_size;
    for (uint32_t i = 0; i < n; i++) {
        float *last = c->memory + ids[i] * size;
        for (size_t j = 0; j < size; j++)
            last[j] += c->difference[i * size + j];
        if (x)
            memcpy(x + i * size, last, size * sizeof *x);
    }
}

static frug_status decode(frug_compressor *compressor, const void *frame, size_t length, uint64_t count, float *x) {
    memset(x, 0, (size_t)count * sizeof *x);
    return frug_decode_add(frug_compressor_decoder(compressor), (frug_range){0, count}, &frame, &length, 1, 1, x);
}

/* ---- messages ---- */

static frug_status wait_for(fgt_channel *c, slot *s) {
    double start = frugi_clock();
    frug_status status = s->busy ? frug_comm_wait(c->options.comm, s->message, 2) : FRUG_OK;
    s->busy = false;
    c->stats.seconds_wait += frugi_clock() - start;
    return status;
}

static frug_status post(fgt_channel *c, frug_message *m, void *data, size_t bytes) {
    *m = (frug_message){.peer = c->options.peer,
                        .tag = c->options.tag,
                        .sending = c->options.sending,
                        .data = data,
                        .bytes = bytes,
                        .done = 1}; /* until it is posted */
    return frug_comm_post(c->options.comm, m);
}

static frug_status encode(fgt_channel *c, frug_compressor *compressor, uint64_t number, const uint64_t *ids, uint32_t n,
                          const float *x, slot *s) {
    const uint64_t count = n * c->options.sample_size;
    size_t length = 0;
    if (c->memory)
        subtract_memory(c, ids, n, x);
    frug_status status = frug_compress(compressor, number, (frug_range){0, count}, c->memory ? c->difference : x,
                                       s->bytes, c->cap, &length);
    if (status == FRUG_OK && c->memory)
        status = decode(compressor, s->bytes, length, count, c->difference);
    if (status == FRUG_OK && c->memory)
        add_to_memory(c, ids, n, NULL);
    s->length = length;
    return status;
}

frug_status fgt_channel_send(fgt_channel *c, uint64_t number, const uint64_t *ids, uint32_t n, const float *x,
                             bool raw) {
    frug_compressor *compressor = compressor_for(c, n, raw);
    slot *s = &c->slots[c->next++ % c->options.slots];
    frug_status status = wait_for(c, s);
    double start = frugi_clock();
    if (status == FRUG_OK && compressor) {
        status = encode(c, compressor, number, ids, n, x, s);
    } else if (status == FRUG_OK) {
        s->length = n * c->options.sample_size * sizeof *x;
        memcpy(s->bytes, x, s->length);
    }
    c->stats.seconds_compress += frugi_clock() - start;
    if (status != FRUG_OK)
        return status;
    s->busy = true;
    s->message[1].done = 1;
    status = post(c, &s->message[0], &s->length, sizeof s->length);
    if (status == FRUG_OK)
        status = post(c, &s->message[1], s->bytes, s->length);
    if (!raw) {
        c->stats.bytes += sizeof s->length + s->length;
        c->stats.bytes_dense += n * c->options.sample_size * sizeof *x;
    }
    return status;
}

frug_status fgt_channel_receive(fgt_channel *c, const uint64_t *ids, uint32_t n, float *x, bool raw) {
    const uint64_t count = n * c->options.sample_size;
    frug_compressor *compressor = compressor_for(c, n, raw);
    slot *s = &c->slots[0];
    double start = frugi_clock();
    frug_status status = post(c, &s->message[0], &s->length, sizeof s->length);
    if (status == FRUG_OK)
        status = frug_comm_wait(c->options.comm, &s->message[0], 1);
    double begun = frugi_clock();
    if (status == FRUG_OK && fgt_stage_failure_of(s->length).failed) {
        c->failure.length = s->length;
        return fgt_stage_failure_error(fgt_channel_failure(c));
    }
    if (status == FRUG_OK && (s->length > c->cap || (!compressor && s->length != count * sizeof *x)))
        status = frug_set_last_error(FRUG_ERR_MISMATCH, "a stage sent another number of bytes than was expected");
    if (status == FRUG_OK)
        status = post(c, &s->message[1], compressor ? (void *)s->bytes : x, s->length);
    if (status == FRUG_OK)
        status = frug_comm_wait(c->options.comm, &s->message[1], 1);
    double received = frugi_clock();
    c->stats.seconds_wait += begun - start;
    c->stats.seconds_wire += received - begun;
    if (status == FRUG_OK && compressor)
        status = decode(compressor, s->bytes, s->length, count, c->memory ? c->difference : x);
    if (status == FRUG_OK && compressor && c->memory)
        add_to_memory(c, ids, n, x);
    c->stats.seconds_decode += frugi_clock() - received;
    return status;
}

frug_status fgt_channel_fail(fgt_channel *c, fgt_stage_failure failure) {
    slot *s = &c->failure;
    s->length = fgt_stage_failure_code(failure);
    s->message[1].done = 1;
    frug_status status = post(c, &s->message[0], &s->length, sizeof s->length);
    s->busy = status == FRUG_OK;
    return status;
}

frug_status fgt_channel_finish(fgt_channel *c) {
    frug_status status = FRUG_OK;
    for (uint32_t i = 0; i < c->options.slots && status == FRUG_OK; i++)
        status = wait_for(c, &c->slots[i]);
    return status;
}

void fgt_channel_set_memory(fgt_channel *c, float *memory) {
    c->memory = memory;
}

const fgt_channel_stats *fgt_channel_get_stats(const fgt_channel *c) {
    return &c->stats;
}
