/*
 * Function:     auto - of dense, gather and split the one that the cost model predicts to be fastest on this group.
 * Description:  When the reducer is created, the group measures a few sync rounds (latency) and messages of 1 MiB in a
 *               ring (bandwidth), and rank 0 compresses and decodes 256 Ki numbers with the config. Rank 0 evaluates
 *               the cost model (cost_model.c) and sends its choice to all ranks. From then on the reducer is one with
 *               that algorithm, and frug_reducer_algorithm() returns its name.
 * Cost:         4 MiB sent and received per rank, and well under a second on a link of 100 Mbit/s or more.
 * Limitations:  chosen once, for an exchange of the whole layout and the density at the end of the schedule, measured
 *               on a synthetic gradient. A restart may choose otherwise: to get the same bits every time, name the
 *               algorithm.
 *
 * Example, 64 workers, 10^6 parameters, 5 bytes for each of 1/16 of them, 1 GB/s: a dense ring takes 7.9 ms,
 * gather 19.7 ms, split with down=1 0.65 ms: split.
 */
#include "reduce/cost_model.h"
#include "reduce/reducer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/philox.h"
#include "base/status.h"

#include <string.h>

#define LATENCY_ROUNDS   8
#define BANDWIDTH_ROUNDS 4
#define MESSAGE_BYTES    ((size_t)1 << 20)
#define SIDE             ((uint64_t)256) /* of a matrix */
#define ELEMENTS         (4 * SIDE * SIDE)
#define STEPS            4u
#define FRAMES           4u

static const char *const candidates[] = {"dense", "gather", "split"};
#define CANDIDATES (sizeof candidates / sizeof *candidates)

static double min_double(double a, double b) {
    return a < b ? a : b;
}

/* ---- network ----------------------------------------------------------------------- */

static const frugi_exchange no_exchange = {0};

static frug_status measure_latency(frug_reducer *r, frug_cost_inputs *s) {
    s->latency = 1;
    for (int i = 0; i < LATENCY_ROUNDS; i++) {
        double start = frugi_clock();
        FRUG_TRY(frugi_sync(r, &no_exchange, FRUG_OK, 0, 0));
        s->latency = min_double(s->latency, frugi_clock() - start);
    }
    return FRUG_OK;
}

/* Every rank sends to the next one in a ring and receives from the previous one at the same time. */
static frug_status measure_bandwidth(frug_reducer *r, frug_cost_inputs *s) {
    frug_comm *comm = r->comm;
    double best = 1e9;
    for (int i = 0; i < BANDWIDTH_ROUNDS; i++) {
        FRUG_TRY(frugi_sync(r, &no_exchange, FRUG_OK, 0, 0)); /* a barrier, so that waiting is not measured */
        r->message[0] = (frug_message){.peer = (comm->rank + comm->size - 1) % comm->size,
                                       .tag = FRUGI_TAG_FIRST,
                                       .data = r->recv_buf.data,
                                       .bytes = MESSAGE_BYTES};
        r->message[1] = (frug_message){.peer = (comm->rank + 1) % comm->size,
                                       .tag = FRUGI_TAG_FIRST,
                                       .sending = 1,
                                       .data = r->send_buf.data,
                                       .bytes = MESSAGE_BYTES};
        double start = frugi_clock();
        FRUG_TRY(frugi_comm_exchange(comm, r->message, 2));
        best = min_double(best, frugi_clock() - start);
    }
    double carried = best > 2 * s->latency ? best - s->latency : best;
    s->bandwidth = (double)MESSAGE_BYTES / (carried > 1e-9 ? carried : 1e-9);
    return FRUG_OK;
}

static frug_status measure_group(frug_reducer *r, frug_cost_inputs *s) {
    if (r->comm->size == 1)
        return FRUG_OK;
    frug_status status = frugi_buffer_reserve(&r->send_buf, MESSAGE_BYTES);
    if (status == FRUG_OK)
        status = frugi_buffer_reserve(&r->recv_buf, MESSAGE_BYTES);
    FRUG_TRY(frugi_sync(r, &no_exchange, status, 0, 0));
    memset(r->send_buf.data, 0, MESSAGE_BYTES);
    FRUG_TRY(measure_latency(r, s));
    return measure_bandwidth(r, s);
}

/* ---- compressing and decoding --------------------------------------------------------- */

/** A compressor with the reducer's config, and a synthetic gradient. */
typedef struct probe {
    frug_layout *layout;
    frug_compressor *compressor;
    float *grad, *sum;
    unsigned char *frame;
    size_t cap, len;
} probe;

/* Sums of four uniform numbers, which is close enough to a normal distribution. */
static void fill_gradient(float *x) {
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < 4; k++)
            sum += (float)(int32_t)frugi_random(1, k, i);
        x[i] = sum * 0x1p-32f;
    }
}

/* Four matrices of an attention module, so that configs with unit=row, tile or head work too. */
static frug_status make_layout(frug_layout **layout) {
    static const frug_role roles[] = {FRUG_ROLE_ATTN_Q, FRUG_ROLE_ATTN_K, FRUG_ROLE_ATTN_V, FRUG_ROLE_ATTN_O};
    static const char *const names[] = {"q", "k", "v", "o"};
    FRUG_TRY(frug_layout_create(layout));
    for (size_t i = 0; i < 4; i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = names[i];
        t.role = roles[i];
        t.ndim = 2;
        t.shape[0] = t.shape[1] = SIDE;
        t.heads = 8;
        t.module = 1;
        FRUG_TRY(frug_layout_add(*layout, &t));
    }
    return FRUG_OK;
}

static frug_status create_probe(const frug_compressor *like, probe *t) {
    frug_compressor_options options =
        FRUG_COMPRESSOR_OPTIONS_INIT; /* total_steps 0: the final density of the schedule */
    options.threads = frugi_compressor_options(like).threads;
    FRUG_TRY(make_layout(&t->layout));
    FRUG_TRY(frug_compressor_create(frugi_compressor_config(like), t->layout, &options, &t->compressor));
    FRUG_TRY(frug_compressor_bound(t->compressor, (frug_range){0, ELEMENTS}, &t->cap));
    t->frame = frugi_malloc(t->cap);
    t->grad = frugi_malloc(ELEMENTS * sizeof *t->grad);
    t->sum = frugi_calloc(ELEMENTS, sizeof *t->sum);
    FRUG_FAIL_IF(!t->frame || !t->grad || !t->sum, FRUG_ERR_MEMORY, "reduce: out of memory to measure compression");
    fill_gradient(t->grad);
    return FRUG_OK;
}

static void destroy_probe(probe *t) {
    frug_compressor_destroy(t->compressor);
    frug_layout_destroy(t->layout);
    frugi_free(t->frame);
    frugi_free(t->grad);
    frugi_free(t->sum);
}

/* The i-th step that is not dense, if the config has such steps. */
static uint64_t sparse_step(const frug_config *c, uint64_t i) {
    return c->dense_every ? (c->warmup / c->dense_every + 1 + i) * c->dense_every : c->warmup + i;
}

static frug_status time_decode(probe *t, size_t frames, double *seconds) {
    const void *frame[FRAMES];
    size_t len[FRAMES];
    *seconds = 1e9;
    for (size_t i = 0; i < frames; i++) {
        frame[i] = t->frame;
        len[i] = t->len;
    }
    for (unsigned i = 0; i < STEPS; i++) {
        double start = frugi_clock();
        FRUG_TRY(frug_decode_add(frug_compressor_decoder(t->compressor), (frug_range){0, ELEMENTS}, frame, len, frames,
                                 1.0f, t->sum));
        *seconds = min_double(*seconds, frugi_clock() - start);
    }
    return FRUG_OK;
}

static frug_status run_probe(probe *t, frug_cost_inputs *s) {
    frug_frame_info info = {.struct_size = sizeof info};
    double n = (double)ELEMENTS, compress = 1e9, one, many;
    for (unsigned i = 0; i < STEPS; i++) {
        double start = frugi_clock();
        FRUG_TRY(frug_compress(t->compressor, sparse_step(frugi_compressor_config(t->compressor), i),
                               (frug_range){0, ELEMENTS}, t->grad, t->frame, t->cap, &t->len));
        compress = min_double(compress, frugi_clock() - start);
    }
    FRUG_TRY(frug_frame_check(t->frame, t->len, &info));
    FRUG_TRY(time_decode(t, 1, &one));
    FRUG_TRY(time_decode(t, FRAMES, &many));
    s->density = min_double((double)(info.entries ? info.entries : 1) / n, 1);
    s->payload = (double)t->len / n * (double)s->params;
    s->compress = compress / n;
    s->decode_frame = many > one ? (many - one) / ((FRAMES - 1) * n) : 0; /* entries included, at this density */
    s->decode = one / n > s->decode_frame ? one / n - s->decode_frame : 0;
    return FRUG_OK;
}

static frug_status measure_codec(const frug_reducer *r, frug_cost_inputs *s) {
    probe t = {0};
    frug_status status = create_probe(r->compressor, &t);
    if (status == FRUG_OK)
        status = run_probe(&t, s);
    destroy_probe(&t);
    return status;
}

/* ---- choice ---------------------------------------------------------------------------- */

/* Whether plain sums would lose what the compressor does with gradients. */
static bool needs_compressor(const frug_config *config) {
    return config->feedback == FRUGI_FEEDBACK_MERGED || config->feedback == FRUGI_FEEDBACK_DGC || config->clip > 0;
}

/* The algorithms that support the config. */
static size_t list_candidates(const frug_config *config, const char **names) {
    size_t count = 0;
    for (size_t i = 0; i < CANDIDATES; i++) {
        int is_split = strcmp(candidates[i], "split") == 0; /* a shard does not have all tensors */
        int is_dense = strcmp(candidates[i], "dense") == 0;
        int selects_globally = config->segment == FRUGI_SEGMENT_ALL || config->layers == FRUGI_LAYERS_BUDGET;
        if (frugi_algorithm_find(candidates[i]) && !(is_split && selects_globally) &&
            !(is_dense && needs_compressor(config)))
            names[count++] = candidates[i];
    }
    return count;
}

static frug_status resolve(frug_reducer *r) {
    static const double down[] = {1, 2, 4, 0}; /* in the order of the values of option `down`; 0: union */
    const struct frug_config *config = frugi_compressor_config(r->compressor);
    const uint64_t elements = frugi_compressor_partition(r->compressor)->elements;
    const char *names[CANDIDATES];
    size_t count = list_candidates(config, names), choice = 0;
    frug_cost_inputs s = FRUG_COST_INPUTS_INIT;
    frug_status status = FRUG_OK;
    s.params = elements ? elements : 1;
    s.workers = (uint32_t)r->comm->size;
    s.down = down[config->down];
    FRUG_TRY(measure_group(r, &s));
    if (r->comm->rank == 0 && (status = measure_codec(r, &s)) == FRUG_OK)
        choice = frugi_cheapest_algorithm(&s, names, count);
    FRUG_TRY(frugi_sync(r, &no_exchange, status, 0, choice));
    FRUG_FAIL_IF(r->record[0].hash >= count, FRUG_ERR_REMOTE, "reduce: rank 0 sent an invalid algorithm");
    r->algorithm = frugi_algorithm_find(names[r->record[0].hash]);
    status = r->algorithm->create ? r->algorithm->create(r) : FRUG_OK;
    FRUG_TRY(frugi_sync(r, &no_exchange, status, 0, 0));
    r->stats = (frug_reduce_stats){.struct_size = sizeof r->stats}; /* without these measurements */
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_auto = {.name = "auto", .resolve = resolve};
