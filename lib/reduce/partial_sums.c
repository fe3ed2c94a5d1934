/* partial_sums.c - compress, decode and apply: the first and last steps of an exchange that adds up dense floats. */
#include "reduce/partial_sums.h"

#include "base/status.h"

#include <string.h>

frug_status frugi_compress_range(frug_reducer *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                 size_t *len) {
    size_t bound = 0;
    FRUG_TRY(frug_compressor_bound(r->compressor, (frug_range){begin, count}, &bound));
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, bound));
    return frug_compress(r->compressor, step, (frug_range){begin, count}, grad, r->send_buf.data, r->send_buf.bytes,
                         len);
}

frug_status frugi_decode_frames(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                                uint64_t begin, uint64_t count, float *x) {
    frugi_target t = {.dst = x, .begin = begin, .count = count, .keep = 1.0f, .gain = 1.0f};
    memset(x, 0, count * sizeof *x);
    FRUG_TRY(frugi_frames_open(frug_compressor_decoder(c), frames, lens, count_frames, &t));
    return frugi_frames_sum(frug_compressor_decoder(c), count_frames, &t);
}

void frugi_apply_sum(const frug_compressor *c, const frugi_exchange *x, float *sum) {
    const frugi_target *t = &x->target;
    float absent = frugi_sum_start(t->gain);
    for (uint64_t i = 0; i < t->count; i++)
        sum[i] = sum[i] == 0.0f ? absent : sum[i];
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(c), t->begin, t->begin + t->count);
    while (frugi_range_next(&it)) {
        uint64_t from = it.from - t->begin;
        frugi_add_scaled_sum(t->dst + from, sum + from, it.to - it.from, t->keep, t->gain);
    }
}
