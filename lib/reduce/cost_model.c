/*
 * cost_model.c - what a step with each algorithm costs, from a few measured numbers.
 *
 * The model: a worker sends and receives at its bandwidth at the same time; messages that wait for one another cost a
 * latency each; compressing costs time per parameter; decoding costs a pass over what is added to, a look through every
 * frame, and time per entry.
 * Supports are taken as independent, so m of them have a union of 1 - (1 - density)^m, which real gradients undercut.
 * Only +, -, *, / are used: all machines get the same numbers, so reduce=auto decides alike wherever it runs.
 */
#include "reduce/cost_model.h"

#include "base/status.h"

#include <string.h>

#define MARK_BYTES  48.0        /* what everyone tells everyone before and after an exchange */
#define HEAD_BYTES  144.0       /* header of a frame and of a section in it */
#define CHUNK_LEAST 262144.0    /* parameters: gather cuts a range into chunks of at least so many, */
#define CHUNKS_MOST 16.0        /* and into so many at most */
#define BACKWARD    (2.0 / 3.0) /* of computing: a backward pass costs twice a forward one, and it alone can hide */

/** What an algorithm asks of one worker. */
typedef struct load {
    double sent, received, busiest; /* bytes, as in frug_forecast */
    double rounds, marks;           /* rounds of payloads, and of marks */
    double inside, inside_rounds;   /* bytes one way, and rounds, within a node */
    double compressed;              /* parameters */
    double passes, frames, entries; /* decoding: parameters passed over, those of all frames, and entries added */
    double chunks;                  /* that pass through compressing, the wire and decoding one behind the other */
} load;

static double least(double a, double b) {
    return a < b ? a : b;
}

double frugi_union_density(double density, uint32_t m) {
    double none = 1, square = 1 - density;
    for (; m; m >>= 1) {
        none *= m & 1 ? square : 1;
        square *= square;
    }
    return 1 - none;
}

/* Gaps between random places are geometric: gap >> k has the mean q / (1 - q), q = (1 - density)^(2^k). */
static double rice_bits(double density) {
    double best = 64, q = 1 - density;
    for (int k = 0; k < 32; k++) {
        best = least(best, 1 + k + q / (1 - q));
        q *= q;
    }
    return best;
}

double frugi_sum_bytes(double elements, double density) {
    if (!(density > 0))
        return HEAD_BYTES;
    double index = least(elements / 8, elements * density * rice_bits(density) / 8);
    return HEAD_BYTES + least(4 * elements, 4 * elements * density + index);
}

/* ---- what is handed on of a sum over m supports ------------------------------------- */

/** A sum on its way to everyone: for all parameters together, however many frames it travels in. */
typedef struct sum {
    double bytes, entries;
} sum;

static sum handed_on(const frug_scene *s, uint32_t m) {
    double n = (double)s->params, all = frugi_union_density(s->density, m);
    if (!(s->down > 0))
        return (sum){frugi_sum_bytes(n, all), all * n};
    double bytes = s->payload_down > 0 ? s->payload_down : s->down * s->payload;
    return (sum){least(bytes, 4 * n + HEAD_BYTES), least(s->down * s->density, 1) * n};
}

/* Cut among so many owners, each of whose frames has a header of its own. */
static double cut(double bytes, double owners) {
    return bytes / owners + (owners > 1 ? HEAD_BYTES : 0);
}

/* ---- the algorithms ------------------------------------------------------------------ */

/* A ring: every part is summed from worker to worker, then handed round. */
static void dense(const frug_scene *s, load *l) {
    double n = (double)s->params, p = s->workers;
    l->sent = l->received = l->busiest = 8 * n * (p - 1) / p;
    l->rounds = 2 * (p - 1);
    l->passes = n + n * (p - 1) / p;
}

/* Everyone's frame to everyone, in chunks where the range is long: some are on the wire while others are worked on. */
static void gather(const frug_scene *s, load *l) {
    double n = (double)s->params, p = s->workers;
    l->sent = l->received = l->busiest = (p - 1) * s->payload;
    l->rounds = 1;
    l->compressed = l->passes = n;
    l->frames = p * n;
    l->entries = p * s->density * n;
    l->chunks = n / CHUNK_LEAST < CHUNKS_MOST ? n / CHUNK_LEAST : CHUNKS_MOST;
}

/* Each worker owns a p-th of the parameters, sums what all send of it, and hands the sum on, whole or the largest. */
static void split(const frug_scene *s, load *l) {
    double n = (double)s->params, p = s->workers;
    sum d = handed_on(s, s->workers);
    l->sent = l->received = l->busiest = (p - 1) * (cut(s->payload, p) + cut(d.bytes, p));
    l->rounds = 3; /* sizes, up, down */
    l->marks = 1;
    l->compressed = n + (s->down > 0 ? n / p : 0);
    l->passes = n + n / p;
    l->frames = 2 * n; /* p of a p-th of the parameters, and p parts of the sum */
    l->entries = s->density * n + d.entries;
}

/* What goes on in a tree that stands for m workers: a frame as it is, or a sum. */
static sum said(const frug_scene *s, uint32_t m) {
    double n = (double)s->params, u = frugi_union_density(s->density, m);
    return (sum){m == 1 ? s->payload : frugi_sum_bytes(n, u), u * n};
}

/*
 * Recursive doubling: in round i sums over 2^i workers change places. The workers beyond a power of two hand their
 * frame to the first ones before and get the sum after, so the first groups stand for twice as many workers, and one
 * may for some number in between.
 */
static void tree(const frug_scene *s, load *l) {
    double n = (double)s->params, p = s->workers, path = 0;
    uint32_t power = 1, beyond;
    while (power <= s->workers / 2)
        power *= 2;
    beyond = s->workers - power;
    l->compressed = l->passes = n;
    for (uint32_t m = 1; m < power; m *= 2) {
        uint32_t groups = power / m, full = beyond / m, rest = beyond % m;
        sum twice = said(s, 2 * m), once = said(s, m), between = said(s, m + rest);
        double some = rest > 0, others = groups - full - some;
        path += (full * twice.bytes + some * between.bytes + others * once.bytes) / groups;
        l->entries += (full * twice.entries + some * between.entries + others * once.entries) / groups;
        l->busiest += full ? twice.bytes : between.bytes; /* the first worker's */
        l->frames += n;
        l->passes += m == 1 ? 0 : n; /* to list what is not zero */
        l->rounds += 2;              /* each payload follows its header */
    }
    if (beyond) {
        double total = said(s, s->workers).bytes;
        l->busiest += total;
        l->sent = beyond / p * (s->payload + total);
        l->rounds += 4;
    }
    l->sent += path * power / p;
    l->received = l->sent;
}

/*
 * Inside a node the gradients are summed dense, each worker keeping a share of the parameters; across nodes the workers
 * with the same share gather; inside, everyone gets the sums of its neighbours, dense.
 */
static void nodes(const frug_scene *s, load *l) {
    double n = (double)s->params, per = s->per_node, m = (double)s->workers / per;
    l->inside = 8 * n * (per - 1) / per;
    l->inside_rounds = per > 1 ? 2 : 0;
    l->busiest = (m - 1) * s->payload / per;
    l->sent = l->received = l->busiest + l->inside;
    l->rounds = m > 1 ? 1 : 0;
    l->marks = 1;
    l->compressed = n / per;
    l->passes = n + n * (per - 1) / per + n / per;
    l->frames = m * n / per;
    l->entries = m * s->density * n / per;
}

/* Some of the workers serve: each sums its share for all, and everyone waits for its link: in, then out. */
static void server(const frug_scene *s, load *l) {
    double n = (double)s->params, p = s->workers, servers = s->servers;
    sum d = handed_on(s, s->workers);
    double up = cut(s->payload, servers), back = cut(d.bytes, servers);
    l->sent = l->received = (p - 1) / p * servers * (up + back);
    l->busiest = (p - 1) * (up + back) + (servers - 1) * (up > back ? up : back);
    l->rounds = 2;
    l->marks = 1;
    l->compressed = n + (s->down > 0 ? n / servers : 0);
    l->passes = n + n / servers;
    l->frames = p * n / servers + n;
    l->entries = p * s->density * n / servers + d.entries;
}

static const struct {
    const char *name;
    void (*load)(const frug_scene *scene, load *load);
} models[] = {{"dense", dense}, {"gather", gather}, {"split", split},
              {"tree", tree},   {"nodes", nodes},   {"server", server}};

#define MODELS (sizeof models / sizeof *models)

/* ---- from loads to seconds -------------------------------------------------------------- */

static void run_model(size_t which, const frug_scene *s, frug_forecast *f) {
    load l = {0};
    double others = (double)s->workers - 1;
    *f = (frug_forecast){.struct_size = f->struct_size};
    models[which].load(s, &l);
    if (others > 0) {
        double marks = l.marks + 2; /* one round before the first payload, one after the last */
        f->seconds_wire = (l.rounds + marks) * s->latency + (l.busiest + marks * MARK_BYTES * others) / s->bandwidth +
                          l.inside_rounds * s->node_latency + l.inside / s->node_bandwidth;
        f->rounds = l.rounds + marks + l.inside_rounds;
    }
    f->bytes_sent = l.sent;
    f->bytes_received = l.received;
    f->bytes_busiest = l.busiest + l.inside;
    f->seconds_compress = l.compressed * s->compress;
    f->seconds_decode = l.passes * s->decode + l.frames * s->decode_frame + l.entries * s->decode_entry;
    /* Of the shorter of wire and work, chunks leave one chunk's share in the open; without them it is all of it. */
    double work = f->seconds_compress + f->seconds_decode, shorter = least(f->seconds_wire, work);
    double open = f->seconds_wire - shorter + shorter / (l.chunks > 1 ? l.chunks : 1);
    f->seconds_exposed = open - (s->overlap ? least(open, BACKWARD * s->compute) : 0);
    f->seconds_step = s->compute + f->seconds_compress + f->seconds_decode + f->seconds_exposed;
}

const char *frug_predictable_at(size_t i) {
    return i < MODELS ? models[i].name : NULL;
}

static int sensible(double x, int zero) {
    return x < 1e30 && (zero ? x >= 0 : x > 0);
}

static frug_status check(const frug_scene *s) {
    FRUG_FAIL_IF(s->params == 0 || s->params > (uint64_t)1 << 48 || s->workers == 0 || s->workers > 1u << 20,
                 FRUG_ERR_ARG, "predict: %llu parameters, %u workers", (unsigned long long)s->params, s->workers);
    FRUG_FAIL_IF(s->per_node == 0 || s->workers % s->per_node != 0, FRUG_ERR_ARG,
                 "predict: %u workers do not fill nodes of %u", s->workers, s->per_node);
    FRUG_FAIL_IF(s->servers == 0 || s->servers > s->workers, FRUG_ERR_ARG, "predict: %u servers of %u workers",
                 s->servers, s->workers);
    FRUG_FAIL_IF(!sensible(s->bandwidth, 0) || !sensible(s->node_bandwidth, 0) || !sensible(s->latency, 1) ||
                     !sensible(s->node_latency, 1),
                 FRUG_ERR_ARG, "predict: a bandwidth must be positive, a latency not negative");
    FRUG_FAIL_IF(!(s->density > 0 && s->density <= 1) || !sensible(s->payload, 1) || !sensible(s->down, 1) ||
                     !sensible(s->payload_down, 1),
                 FRUG_ERR_ARG, "predict: a density is above 0 and at most 1, payloads and down are not negative");
    FRUG_FAIL_IF(!sensible(s->compress, 1) || !sensible(s->decode, 1) || !sensible(s->decode_entry, 1) ||
                     !sensible(s->decode_frame, 1) || !sensible(s->compute, 1),
                 FRUG_ERR_ARG, "predict: times must not be negative");
    return FRUG_OK;
}

frug_status frug_predict(const char *algorithm, const frug_scene *scene, frug_forecast *forecast) {
    FRUG_FAIL_IF(!algorithm || !scene || !forecast || scene->struct_size < sizeof *scene ||
                     forecast->struct_size < sizeof *forecast,
                 FRUG_ERR_ARG, "predict: no algorithm, scene or forecast, or struct_size unset");
    FRUG_TRY(check(scene));
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, algorithm) == 0) {
            frug_forecast base = {.struct_size = sizeof base};
            run_model(0, scene, &base);
            run_model(i, scene, forecast);
            forecast->speedup = forecast->seconds_step > 0 ? base.seconds_step / forecast->seconds_step : 1;
            return FRUG_OK;
        }
    return frugi_fail(FRUG_ERR_ARG, "predict: no algorithm '%s'", algorithm);
}

size_t frugi_cheapest(const frug_scene *scene, const char *const *names, size_t count) {
    size_t best = count;
    double shortest = 0;
    for (size_t i = 0; i < count; i++) {
        frug_forecast f = {.struct_size = sizeof f};
        if (frug_predict(names[i], scene, &f) != FRUG_OK)
            continue;
        if (best == count || f.seconds_step < shortest) {
            best = i;
            shortest = f.seconds_step;
        }
    }
    return best;
}
