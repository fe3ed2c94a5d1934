/* block_encode.c - encode the selected entries of a batch of blocks: indices, values, and what the residual retains. */
#include "compress/block_encode.h"

#include "select/block_gather.h"

/* Move f32 values of a batch straight into the payload. They are exact: the residual of sent entries is 0. */
static void encode_f32(frugi_workspace *ws, const frugi_section_batch *s, frugi_block_offsets at) {
    const frugi_batch *b = &ws->batch;
    unsigned char *out = s->payload + at.value;
    for (uint32_t i = 0; i < b->blocks; out += b->k[i++] * sizeof(float)) {
        float *acc = s->acc + (size_t)i * b->block;
        const uint16_t *idx = b->idx + (size_t)i * b->block;
        if (b->skipped[i]) {
            memset(out, 0, b->k[i] * sizeof(float));
            continue;
        }
#pragma GCC unroll 4
        for (uint32_t e = 0; e < b->k[i]; e++) {
            memcpy(out + e * sizeof(float), &acc[idx[e]], sizeof(float));
            acc[idx[e]] = 0.0f;
        }
    }
}

/* Copy the selected values of all blocks to ws->values; zeros for skipped blocks. */
static void gather_batch(frugi_workspace *ws, const frugi_section_batch *s) {
    const frugi_batch *b = &ws->batch;
    float *values = ws->values;
    if (b->moves) {
        b->moves->gather(b, values);
        return;
    }
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (b->skipped[i])
            memset(values, 0, b->k[i] * sizeof *values);
        else
            frugi_gather_values(s->acc + (size_t)i * b->block, b->idx + (size_t)i * b->block, b->k[i], values);
}

/* Write what the value code did not send back to the accumulators. */
static void scatter_batch(frugi_workspace *ws, const frugi_section_batch *s) {
    const frugi_batch *b = &ws->batch;
    const float *values = ws->values;
    if (b->moves) {
        b->moves->scatter(b, values);
        return;
    }
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (!b->skipped[i])
            frugi_scatter_values(values, b->idx + (size_t)i * b->block, b->k[i], s->acc + (size_t)i * b->block);
}

/* Encode the values of a batch; `values` become the residuals: what the value code did not send. */
static void encode_values(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s,
                          float *values, frugi_block_offsets at) {
    const frugi_section *sec = s->section;
    uint32_t shared = frugi_value_scale_bytes(sec->value), bytes = frugi_value_bytes(sec->value), all = 0;
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        all += ws->batch.k[i];
    if (sec->value == FRUGI_VALUE_BF16) {
        call->c->encode_bf16(values, all, s->payload + at.value);
        return;
    }
    if (!shared) { /* no scale per block: encode all blocks in one call */
        frugi_value_encode(sec->value, values, all, NULL, s->payload + at.value);
        return;
    }
    for (uint32_t i = 0; i < ws->batch.blocks; i++) {
        uint32_t k = ws->batch.k[i];
        frugi_value_encode(sec->value, values, k, s->payload + at.scale, s->payload + at.value);
        values += k;
        at.scale += shared;
        at.value += (uint64_t)k * bytes;
    }
}

/* Option hold: the residual keeps the retained share besides the error of the value code. */
static void encode_retained(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s,
                            frugi_block_offsets at) {
    float *retained = ws->padded; /* free: the gradient in it was added to the accumulators */
    uint32_t all = 0;
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        all += ws->batch.k[i];
    frugi_feedback_retain(&call->feedback, ws->values, retained, all);
    encode_values(call, ws, s, ws->values, at);
    for (uint32_t e = 0; e < all; e++)
        ws->values[e] += retained[e];
}

/* Index lists with all elements of each block. */
static void list_all(frugi_workspace *ws) {
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        for (uint32_t e = 0; e < ws->batch.length; e++)
            ws->batch.idx[(size_t)i * ws->batch.block + e] = (uint16_t)e;
}

/*
 * Stage by stage over the whole batch rather than block by block. This avoids store-forwarding stalls: floats that were
 * just written one by one are not read back as vectors.
 */
void frugi_encode_batch(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s) {
    const frugi_section *sec = s->section;
    bool retain = s->has_residual && call->feedback.retained_share > 0;
    frugi_block_offsets at = frugi_section_block_offsets(sec, s->at);
    if (sec->index == FRUGI_INDEX_CODE_NONE && !s->any_skipped && !retain) {
        encode_values(call, ws, s, s->acc, at);
        return;
    }
    if (sec->index == FRUGI_INDEX_CODE_NONE)
        list_all(ws);
    if (sec->index == FRUGI_INDEX_CODE_BITMAP && ws->batch.bitmap)
        memcpy(s->payload + at.index, ws->batch.bitmap, ws->batch.blocks * (sec->block / 8));
    else
        frugi_index_encode(sec->index, sec->block, ws->batch.blocks, ws->batch.k, ws->batch.idx, s->payload + at.index);
    if (sec->value == FRUGI_VALUE_F32 && !retain) {
        encode_f32(ws, s, at);
        return;
    }
    gather_batch(ws, s);
    if (retain)
        encode_retained(call, ws, s, at);
    else
        encode_values(call, ws, s, ws->values, at);
    scatter_batch(ws, s);
}
