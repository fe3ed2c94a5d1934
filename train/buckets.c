/*
 * buckets.c - planning buckets, lending their memory to the backward pass, and what becomes of a full one.
 *
 * The plan goes through the parameters from the last to the first, as the backward pass does. A parameter that is
 * larger than a bucket is cut into tiles of rows that end on block boundaries, each a bucket of its own. The memory of
 * full buckets comes back from the reducer's thread; who needs more than there is waits for it.
 *
 * The optimiser is called by the reducer's thread (a bucket has arrived) and by the backward pass (measure one), so a
 * lock keeps the two apart.
 */
#include "buckets.h"

#include "clock.h"
#include "memory.h"
#include "record.h"
#include "say.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BLOCK      256u /* tiles end on multiples: the longest block that cuts rows */
#define SMALLEST   (1u << 20)
#define LARGEST    (25u << 20)
#define SPARE      1u /* buckets on their way while others fill */
#define MOST_SLOTS 64u

typedef struct bucket {
    uint64_t begin, count;
    size_t tiles, closed;
    float *memory;     /* NULL: not open */
    uint64_t at, some; /* its measurements: where in the vector, and how many; none: it has no measurements */
    bool targets;      /* the optimiser looks at its tensors as a whole */
    bool measured;     /* this step's measurements are in the vector */
} bucket;

struct frugi_buckets {
    frugi_sink sink; /* first, so that a sink is its buckets */
    frugi_buckets_want want;
    bucket *bucket;
    size_t count, room;
    uint64_t longest;
    float *memory, *vector;
    float *idle[MOST_SLOTS]; /* memory that waits for a bucket */
    size_t idles, slots;
    pthread_mutex_t lock, optimizer_lock;
    pthread_cond_t changed;
    pthread_t owner; /* whose backward pass it is */
    uint64_t step, handed;
    double rate;
    float factor;
    bool measure;
    double norm2, clipped, blocked, optimizer_seconds, inline_seconds;
    _Atomic int failed; /* a frug_status: of an exchange that was not handed over, or of the optimiser */
};

/* ---- the plan ---- */

static bucket *add_bucket(frugi_buckets *b, uint64_t begin, uint64_t count, size_t tiles) {
    if (b->count == b->room) {
        size_t room = 2 * b->room + 64;
        bucket *grown = realloc(b->bucket, room * sizeof *grown);
        if (!grown)
            return NULL;
        b->bucket = grown;
        b->room = room;
    }
    b->bucket[b->count] = (bucket){.begin = begin, .count = count, .tiles = tiles};
    b->longest = b->longest > count ? b->longest : count;
    return &b->bucket[b->count++];
}

static size_t common_divisor(size_t a, size_t c) {
    while (c) {
        size_t rest = a % c;
        a = c;
        c = rest;
    }
    return a;
}

/* Rows of a tile of at most `most` elements, or of as few as end on a block boundary. */
static size_t tile_rows(const frugi_param *p, uint64_t most) {
    size_t step = BLOCK / common_divisor(p->cols, BLOCK), rows = (size_t)(most / p->cols) / step * step;
    return rows > step ? rows : step;
}

/* A method or an optimiser that looks at whole tensors refuses a part of one. */
static bool may_cut(const frugi_buckets *b, const frugi_param *p, size_t number, size_t rows) {
    size_t bytes;
    if (b->want.whole || !frug_optimizer_cuts(b->want.optimizer, number))
        return false;
    if (!b->want.reducer)
        return true;
    return frug_compressor_bound(frug_reducer_compressor(b->want.reducer), p->tensor.offset, rows * p->cols, &bytes) ==
           FRUG_OK;
}

static int plan_tiles(frugi_buckets *b, frugi_param *p, bool target) {
    p->bucket = b->count;
    for (size_t row = 0; row < p->rows; row += p->tile) {
        bucket *k = add_bucket(b, p->tensor.offset + row * p->cols, frugi_tile_rows(p, row) * p->cols, 1);
        if (!k)
            return -1;
        k->targets = target;
    }
    return 0;
}

/* Whether the last bucket takes another parameter, in front of all that it has: nothing frozen may lie between, and
 * what is measured keeps to itself. */
static bool joins(const bucket *last, const frugi_param *p, bool target, uint64_t most) {
    const frugi_param *after = p->next;
    return !(after && after->frozen) && last->targets == target && last->begin + last->count - p->tensor.offset <= most;
}

/* params: from the last to the first of the layout. Small ones that lie side by side share a bucket. */
static int plan(frugi_buckets *b, frugi_param **params, size_t count, uint64_t most) {
    bool open = false; /* the last bucket takes more */
    for (size_t i = 0; i < count; i++) {
        frugi_param *p = params[i];
        uint64_t size = (uint64_t)p->rows * p->cols;
        bool target = !frug_optimizer_cuts(b->want.optimizer, count - 1 - i);
        p->tile = p->rows;
        if (size > most) {
            size_t rows = tile_rows(p, most);
            if (rows < p->rows && may_cut(b, p, count - 1 - i, rows))
                p->tile = rows;
            open = false;
        }
        bucket *last = open ? &b->bucket[b->count - 1] : NULL;
        if (last && joins(last, p, target, most)) {
            last->count += last->begin - p->tensor.offset;
            last->begin = p->tensor.offset;
            last->tiles++;
            p->bucket = b->count - 1;
            b->longest = b->longest > last->count ? b->longest : last->count;
        } else {
            if (plan_tiles(b, p, target) != 0)
                return -1;
            open = size <= most;
        }
    }
    return 0;
}

/* How many buckets stand open at once in a backward pass, which comes to the nodes from the last to the first. */
static size_t most_open(frugi_buckets *b) {
    size_t open = 0, most = 1;
    for (const frugi_node *node = b->want.graph->last; node; node = node->previous)
        for (int i = 0; i < 3; i++) {
            const frugi_param *p = node->param[i];
            for (size_t row = 0; p && !p->frozen && row < p->rows; row += p->tile) {
                bucket *k = &b->bucket[p->bucket + row / p->tile];
                open += k->closed == 0;
                most = open > most ? open : most;
                open -= ++k->closed == k->tiles;
            }
        }
    for (size_t i = 0; i < b->count; i++)
        b->bucket[i].closed = 0;
    return most;
}

static int plan_all(frugi_buckets *b) {
    const frugi_graph *g = b->want.graph;
    size_t count = 0;
    for (const frugi_param *p = g->params; p; p = p->next)
        count += !p->frozen;
    frugi_param **params = calloc(count + 1, sizeof *params);
    if (!params)
        return -1;
    size_t i = count;
    for (frugi_param *p = g->params; p; p = p->next)
        if (!p->frozen)
            params[--i] = p;
    uint64_t bytes = b->want.bytes;
    if (bytes == 0) {
        bytes = 4 * g->elements / 64;
        bytes = bytes < SMALLEST ? SMALLEST : bytes > LARGEST ? LARGEST : bytes;
    }
    int status = plan(b, params, count, bytes / sizeof(float) ? bytes / sizeof(float) : 1);
    free(params);
    return status;
}

/* Where the measurements of buckets lie in the vector. */
static int plan_measured(frugi_buckets *b) {
    uint64_t at = 0;
    for (const frugi_param *p = b->want.graph->params; p && b->want.measured; p = p->next) {
        if (p->frozen || p->head)
            continue;
        uint64_t some = b->want.measured_each < (uint64_t)p->rows * p->cols ? b->want.measured_each : 0;
        bucket *k = &b->bucket[p->bucket];
        k->at = k->some ? k->at : at;
        k->some += some;
        at += some;
    }
    b->vector = b->want.measured ? frugi_hold(FRUGI_USE_GRADIENTS, (size_t)b->want.measured * sizeof(float)) : NULL;
    return b->want.measured && !b->vector ? -1 : 0;
}

/* ---- life ---- */

static float *open_tile(frugi_sink *sink, const frugi_param *p, size_t first);
static void close_tile(frugi_sink *sink, const frugi_param *p, size_t first);

static int take_memory(frugi_buckets *b) {
    if (b->want.whole) {
        b->memory = frugi_hold(FRUGI_USE_GRADIENTS, (size_t)b->want.graph->elements * sizeof(float));
        return b->memory ? 0 : -1;
    }
    size_t open = most_open(b), slots = open + (b->count > open ? SPARE : 0);
    size_t each = (size_t)(b->longest + 15) / 16 * 16;
    if (slots > MOST_SLOTS)
        return -1;
    b->memory = frugi_hold(FRUGI_USE_GRADIENTS, slots * each * sizeof(float));
    for (b->slots = 0; b->memory && b->slots < slots; b->slots++)
        b->idle[b->idles++] = b->memory + b->slots * each;
    return b->memory ? 0 : -1;
}

int frugi_buckets_create(const frugi_buckets_want *want, frugi_buckets **buckets) {
    frugi_buckets *b = calloc(1, sizeof *b);
    if (!b)
        return frugi_error("not enough memory for buckets");
    b->want = *want;
    b->sink = (frugi_sink){open_tile, close_tile};
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->optimizer_lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (plan_all(b) != 0 || plan_measured(b) != 0 || take_memory(b) != 0) {
        frugi_buckets_destroy(b);
        return frugi_error("not enough memory for buckets of gradients");
    }
    *buckets = b;
    return FRUGI_EXIT_OK;
}

void frugi_buckets_destroy(frugi_buckets *b) {
    if (!b)
        return;
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->optimizer_lock);
    frugi_let_go(b->memory);
    frugi_let_go(b->vector);
    free(b->bucket);
    free(b);
}

size_t frugi_buckets_count(const frugi_buckets *b) {
    return b->count;
}

frugi_sink *frugi_buckets_sink(frugi_buckets *b) {
    return &b->sink;
}

double frugi_buckets_norm2(const frugi_buckets *b) {
    return b->norm2;
}

double frugi_buckets_clipped(const frugi_buckets *b) {
    return b->clipped;
}

double frugi_buckets_blocked(const frugi_buckets *b) {
    return b->blocked;
}

double frugi_buckets_optimizer_seconds(const frugi_buckets *b) {
    return b->optimizer_seconds;
}

double frugi_buckets_inline_seconds(const frugi_buckets *b) {
    return b->inline_seconds;
}

uint64_t frugi_buckets_handed(const frugi_buckets *b) {
    return b->handed;
}

/* ---- a step ---- */

void frugi_buckets_begin(frugi_buckets *b, uint64_t step, double rate, float factor, bool measure) {
    b->step = step;
    b->rate = rate;
    b->factor = factor;
    b->measure = measure;
    b->norm2 = 0;
    b->clipped = 1;
    b->owner = pthread_self();
}

static float *take_slot(frugi_buckets *b) {
    pthread_mutex_lock(&b->lock);
    if (b->idles == 0) {
        double since = frugi_seconds();
        while (b->idles == 0)
            pthread_cond_wait(&b->changed, &b->lock);
        b->blocked += frugi_seconds() - since;
    }
    float *memory = b->idle[--b->idles];
    pthread_mutex_unlock(&b->lock);
    return memory;
}

static void return_slot(frugi_buckets *b, float *memory) {
    if (b->want.whole)
        return;
    pthread_mutex_lock(&b->lock);
    b->idle[b->idles++] = memory;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static float *open_tile(frugi_sink *sink, const frugi_param *p, size_t first) {
    frugi_buckets *b = (frugi_buckets *)sink;
    bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (!k->memory)
        k->memory = b->want.whole ? b->memory + k->begin : take_slot(b);
    return k->memory + (p->tensor.offset + first * p->cols - k->begin);
}

/** What the optimiser is asked to do; with the lock. */
typedef enum ask { ASK_MOVE, ASK_MOVE_MEASURED, ASK_MEASURE } ask;

static void ask_optimizer(frugi_buckets *b, ask what, uint64_t begin, uint64_t count, const float *from, float *to) {
    frug_optimizer *o = b->want.optimizer;
    float *weights = b->want.graph->weights + begin;
    double since = frugi_seconds();
    pthread_mutex_lock(&b->optimizer_lock);
    frug_status status = what == ASK_MOVE ? frug_optimizer_step(o, b->step, begin, count, from, b->rate, weights)
                         : what == ASK_MEASURE
                             ? frug_optimizer_measure(o, b->step, begin, count, from, to)
                             : frug_optimizer_step_measured(o, b->step, begin, count, from, b->rate, weights);
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
    double seconds = frugi_seconds() - since;
    b->optimizer_seconds += seconds;
    b->inline_seconds += pthread_equal(pthread_self(), b->owner) ? seconds : 0;
    pthread_mutex_unlock(&b->optimizer_lock);
}

static void update(frugi_buckets *b, uint64_t begin, uint64_t count, const float *mean) {
    ask_optimizer(b, ASK_MOVE, begin, count, mean, NULL);
}

/* On the reducer's thread: the bucket holds the mean over all workers. */
static void bucket_done(void *ctx, const frug_bucket *sent, frug_status status) {
    frugi_buckets *b = ctx;
    if (status == FRUG_OK && !b->want.late)
        update(b, sent->begin, sent->count, sent->grad);
    return_slot(b, sent->grad);
}

/* Squared norm of some numbers, which are also multiplied by the factor. Eight sums, because one would wait for itself.
 */
static double norm_and_scale(float *x, uint64_t n, float factor) {
    double sum[8] = {0};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (unsigned j = 0; j < 8; j++) {
            sum[j] += (double)x[i + j] * (double)x[i + j];
            x[i + j] *= factor;
        }
    for (; i < n; i++) {
        sum[0] += (double)x[i] * (double)x[i];
        x[i] *= factor;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* The parameters of a bucket, without the gaps between them, where memory holds anything. */
static double weigh(frugi_buckets *b, const bucket *k, float *memory, float factor) {
    double norm2 = 0;
    uint64_t end = k->begin + k->count;
    for (const frugi_param *p = b->want.graph->params; p; p = p->next) {
        uint64_t from = p->tensor.offset, to = from + (uint64_t)p->rows * p->cols;
        from = from > k->begin ? from : k->begin;
        to = to < end ? to : end;
        if (from < to && !p->frozen)
            norm2 += norm_and_scale(memory + (from - k->begin), to - from, factor);
    }
    return norm2;
}

/* What this step's optimiser wants of the bucket; whether that is its usual measurements. */
static bool wants_measured(frugi_buckets *b, const bucket *k) {
    if (!b->want.counted)
        return false;
    pthread_mutex_lock(&b->optimizer_lock);
    uint64_t wants = frug_optimizer_wants(b->want.optimizer, b->step, k->begin, k->count);
    pthread_mutex_unlock(&b->optimizer_lock);
    b->handed += wants;
    return b->want.reducer && k->some && wants == k->some;
}

static void measure(frugi_buckets *b, bucket *k, float *memory) {
    ask_optimizer(b, ASK_MEASURE, k->begin, k->count, memory, b->vector + k->at);
    k->measured = true;
    return_slot(b, memory);
}

/* All measurements, once all are there; a step that has none sends none. */
static frug_status exchange_measured(frugi_buckets *b) {
    frug_status status = FRUG_OK;
    bool any = false;
    for (size_t i = 0; i < b->count; i++)
        any |= b->bucket[i].measured;
    if (any) {
        double since = frugi_seconds();
        status = frug_reduce_sum(b->want.reducer, b->step, b->want.measured_at, b->want.measured, b->vector,
                                 1.0f / (float)b->want.workers);
        b->inline_seconds += frugi_seconds() - since;
    }
    for (size_t i = 0; i < b->count; i++) {
        bucket *k = &b->bucket[i];
        if (k->measured && status == FRUG_OK)
            ask_optimizer(b, ASK_MOVE_MEASURED, k->begin, k->count, b->vector + k->at, NULL);
        k->measured = false;
    }
    return status;
}

static void send_off(frugi_buckets *b, const bucket *k, float *memory) {
    frug_bucket out = FRUG_BUCKET_INIT;
    out.step = b->step;
    out.begin = k->begin;
    out.count = k->count;
    out.grad = memory;
    out.scale = 1.0f / (float)b->want.workers;
    out.done = bucket_done;
    out.ctx = b;
    frug_status status = FRUG_OK;
    if (!b->want.reducer)
        bucket_done(b, &out, FRUG_OK);
    else if (b->want.overlap) {
        status = frug_reducer_submit(b->want.reducer, &out);
        if (status != FRUG_OK)
            return_slot(b, memory); /* not taken, so nobody else will */
    } else {
        status = frug_reduce_sum(b->want.reducer, out.step, out.begin, out.count, out.grad, out.scale);
        bucket_done(b, &out, status);
    }
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
}

static void close_tile(frugi_sink *sink, const frugi_param *p, size_t first) {
    frugi_buckets *b = (frugi_buckets *)sink;
    bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (++k->closed < k->tiles)
        return;
    float *memory = k->memory;
    k->closed = 0;
    k->memory = NULL;
    if (b->want.record && !b->measure)
        frugi_record_put(b->want.record, b->step, k->begin, k->count, memory);
    double norm2 = weigh(b, k, memory, b->factor);
    if (!b->want.late || b->measure)
        b->norm2 += norm2;
    if (b->measure || b->failed != FRUG_OK)
        return_slot(b, memory);
    else if (wants_measured(b, k))
        measure(b, k, memory);
    else
        send_off(b, k, memory);
}

static void update_late(frugi_buckets *b, double clip) {
    for (size_t i = 0; i < b->count; i++)
        b->norm2 += weigh(b, &b->bucket[i], b->memory + b->bucket[i].begin, 1.0f);
    double norm = sqrt(b->norm2);
    b->clipped = clip > 0 && norm > clip ? clip / norm : 1;
    for (size_t i = 0; i < b->count; i++) {
        const bucket *k = &b->bucket[i];
        if (b->clipped < 1)
            weigh(b, k, b->memory + k->begin, (float)b->clipped);
        update(b, k->begin, k->count, b->memory + k->begin);
    }
}

frug_status frugi_buckets_end(frugi_buckets *b, double late_clip) {
    frug_status status = (frug_status)atomic_load(&b->failed);
    if (b->want.reducer && b->want.overlap) {
        double since = frugi_seconds();
        frug_status finished = frug_reducer_finish(b->want.reducer);
        b->blocked += frugi_seconds() - since;
        status = status == FRUG_OK ? finished : status;
    }
    if (status == FRUG_OK && b->want.late && !b->measure)
        update_late(b, late_clip);
    if (status == FRUG_OK)
        status = exchange_measured(b);
    frug_status failed = (frug_status)atomic_exchange(&b->failed, FRUG_OK); /* the optimiser may have, since */
    return status == FRUG_OK ? failed : status;
}
