/*
 * cost_model.c - predict the time of a step with each algorithm from a few measured numbers.
 *
 * The model: a rank sends and receives at its bandwidth at the same time; each dependent message costs a latency;
 * compression costs time per parameter; decoding costs a pass over the target, a pass over every frame, and time per
 * entry.
 * Supports are assumed to be independent, so the union of m has density 1 - (1 - density)^m; for real gradients it is
 * less. Only +, -, *, / are used: all machines compute the same numbers, so the result does not depend on the machine.
 */
#include "reduce/cost_model.h"

#include "base/status.h"
#include "base/struct_size.h"

#include <string.h>

#define RECORD_BYTES   48.0        /* sent to every rank in a sync round */
#define HEADER_BYTES   144.0       /* header of a frame and of its section */
#define MIN_CHUNK      262144.0    /* parameters per chunk of reduce=gather, at least */
#define MAX_CHUNKS     16.0        /* chunks of reduce=gather */
#define BACKWARD_SHARE (2.0 / 3.0) /* of compute: backward costs twice as much as forward, and only it can overlap */

/** The cost of an algorithm for one rank. */
typedef struct load {
    double sent, received, busiest; /* bytes, as in frug_cost_estimate */
    double rounds, syncs;           /* rounds of payloads, and sync rounds */
    double node_bytes, node_rounds; /* bytes one way, and rounds, within a node */
    double compressed;              /* parameters */
    double passes, frames, entries; /* decoding: parameters of the target, of all frames, and entries added */
    double chunks;                  /* that are pipelined through compression, wire and decoding */
} load;

static double min_double(double a, double b) {
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

/* Gaps between random indices are geometric: gap >> k has the mean q / (1 - q), q = (1 - density)^(2^k). */
static double rice_bits(double density) {
    double best = 64, q = 1 - density;
    for (int k = 0; k < 32; k++) {
        best = min_double(best, 1 + k + q / (1 - q));
        q *= q;
    }
    return best;
}

double frugi_sum_frame_bytes(double elements, double density) {
    if (!(density > 0))
        return HEADER_BYTES;
    double index = min_double(elements / 8, elements * density * rice_bits(density) / 8);
    return HEADER_BYTES + min_double(4 * elements, 4 * elements * density + index);
}

/* ---- sums over m supports ------------------------------------------------------------ */

/** A sum over all parameters, in any number of frames. */
typedef struct sum_cost {
    double bytes, entries;
} sum_cost;

/* What is sent back of a sum: all of it, or `down` times as many entries as one rank sends. */
static sum_cost down_cost(const frug_cost_inputs *s, uint32_t m) {
    double n = (double)s->params, all = frugi_union_density(s->density, m);
    if (!(s->down > 0))
        return (sum_cost){frugi_sum_frame_bytes(n, all), all * n};
    double bytes = s->payload_down > 0 ? s->payload_down : s->down * s->payload;
    return (sum_cost){min_double(bytes, 4 * n + HEADER_BYTES), min_double(s->down * s->density, 1) * n};
}

/* Bytes of one of `owners` shards, each with its own header. */
static double shard_bytes(double bytes, double owners) {
    return bytes / owners + (owners > 1 ? HEADER_BYTES : 0);
}

/* ---- algorithms ---------------------------------------------------------------------- */

/* A ring all-reduce: reduce-scatter, then all-gather. */
static void load_dense(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, p = s->workers;
    l->sent = l->received = l->busiest = 8 * n * (p - 1) / p;
    l->rounds = 2 * (p - 1);
    l->passes = n + n * (p - 1) / p;
}

/* All-gather of the frames, pipelined in chunks where the range is long. */
static void load_gather(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, p = s->workers;
    l->sent = l->received = l->busiest = (p - 1) * s->payload;
    l->rounds = 1;
    l->compressed = l->passes = n;
    l->frames = p * n;
    l->entries = p * s->density * n;
    l->chunks = n / MIN_CHUNK < MAX_CHUNKS ? n / MIN_CHUNK : MAX_CHUNKS;
}

/* Reduce-scatter and all-gather: each rank owns 1 / p of the parameters, sums it, and sends all or part of the sum. */
static void load_split(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, p = s->workers;
    sum_cost d = down_cost(s, s->workers);
    l->sent = l->received = l->busiest = (p - 1) * (shard_bytes(s->payload, p) + shard_bytes(d.bytes, p));
    l->rounds = 3; /* sizes, up, down */
    l->syncs = 1;
    l->compressed = n + (s->down > 0 ? n / p : 0);
    l->passes = n + n / p;
    l->frames = 2 * n; /* p of a p-th of the parameters, and p parts of the sum */
    l->entries = s->density * n + d.entries;
}

/* A message of recursive doubling that stands for m ranks: a frame as it is, or a sum. */
static sum_cost partial_sum_cost(const frug_cost_inputs *s, uint32_t m) {
    double n = (double)s->params, u = frugi_union_density(s->density, m);
    return (sum_cost){m == 1 ? s->payload : frugi_sum_frame_bytes(n, u), u * n};
}

/*
 * Recursive doubling: in round i ranks exchange sums over 2^i ranks. The ranks beyond a power of two send their frame
 * to the first ones before and receive the sum after, so the first groups stand for twice as many ranks, and one group
 * may stand for a number in between.
 */
static void load_tree(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, p = s->workers, path = 0;
    uint32_t power = 1, beyond;
    while (power <= s->workers / 2)
        power *= 2;
    beyond = s->workers - power;
    l->compressed = l->passes = n;
    for (uint32_t m = 1; m < power; m *= 2) {
        uint32_t groups = power / m, full = beyond / m, rest = beyond % m;
        sum_cost twice = partial_sum_cost(s, 2 * m), once = partial_sum_cost(s, m),
                 between = partial_sum_cost(s, m + rest);
        double some = rest > 0, others = groups - full - some;
        path += (full * twice.bytes + some * between.bytes + others * once.bytes) / groups;
        l->entries += (full * twice.entries + some * between.entries + others * once.entries) / groups;
        l->busiest += full ? twice.bytes : between.bytes; /* the first worker's */
        l->frames += n;
        l->passes += m == 1 ? 0 : n; /* to find the non-zeros */
        l->rounds += 2;              /* each payload follows its header */
    }
    if (beyond) {
        double total = partial_sum_cost(s, s->workers).bytes;
        l->busiest += total;
        l->sent = beyond / p * (s->payload + total);
        l->rounds += 4;
    }
    l->sent += path * power / p;
    l->received = l->sent;
}

/*
 * Hierarchical: a dense reduce-scatter inside the node, an all-gather of frames between the ranks with the same shard,
 * and a dense all-gather inside the node.
 */
static void load_nodes(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, per = s->per_node, m = (double)s->workers / per;
    l->node_bytes = 8 * n * (per - 1) / per;
    l->node_rounds = per > 1 ? 2 : 0;
    l->busiest = (m - 1) * s->payload / per;
    l->sent = l->received = l->busiest + l->node_bytes;
    l->rounds = m > 1 ? 1 : 0;
    l->syncs = 1;
    l->compressed = n / per;
    l->passes = n + n * (per - 1) / per + n / per;
    l->frames = m * n / per;
    l->entries = m * s->density * n / per;
}

/* Parameter servers: each sums its range for all ranks, and its link is the bottleneck, in both directions. */
static void load_server(const frug_cost_inputs *s, load *l) {
    double n = (double)s->params, p = s->workers, servers = s->servers;
    sum_cost d = down_cost(s, s->workers);
    double up = shard_bytes(s->payload, servers), back = shard_bytes(d.bytes, servers);
    l->sent = l->received = (p - 1) / p * servers * (up + back);
    l->busiest = (p - 1) * (up + back) + (servers - 1) * (up > back ? up : back);
    l->rounds = 2;
    l->syncs = 1;
    l->compressed = n + (s->down > 0 ? n / servers : 0);
    l->passes = n + n / servers;
    l->frames = p * n / servers + n;
    l->entries = p * s->density * n / servers + d.entries;
}

static const struct {
    const char *name;
    void (*load)(const frug_cost_inputs *scene, load *load);
} models[] = {{"dense", load_dense}, {"gather", load_gather}, {"split", load_split},
              {"tree", load_tree},   {"nodes", load_nodes},   {"server", load_server}};

#define MODELS (sizeof models / sizeof *models)

/* ---- from load to seconds ---------------------------------------------------------------- */

static void run_model(size_t which, const frug_cost_inputs *s, frug_cost_estimate *f) {
    load l = {0};
    double others = (double)s->workers - 1;
    *f = (frug_cost_estimate){.struct_size = f->struct_size};
    models[which].load(s, &l);
    if (others > 0) {
        double syncs = l.syncs + 2; /* one sync round before the first payload, one after the last */
        f->seconds_wire = (l.rounds + syncs) * s->latency + (l.busiest + syncs * RECORD_BYTES * others) / s->bandwidth +
                          l.node_rounds * s->node_latency + l.node_bytes / s->node_bandwidth;
        f->rounds = l.rounds + syncs + l.node_rounds;
    }
    f->bytes_sent = l.sent;
    f->bytes_received = l.received;
    f->bytes_busiest = l.busiest + l.node_bytes;
    f->seconds_compress = l.compressed * s->compress;
    f->seconds_decode = l.passes * s->decode + l.frames * s->decode_frame + l.entries * s->decode_entry;
    /* Of the shorter of wire and work, all but one chunk overlaps; without chunks nothing does. */
    double work = f->seconds_compress + f->seconds_decode, shorter = min_double(f->seconds_wire, work);
    double exposed = f->seconds_wire - shorter + shorter / (l.chunks > 1 ? l.chunks : 1);
    f->seconds_exposed = exposed - (s->overlap ? min_double(exposed, BACKWARD_SHARE * s->compute) : 0);
    f->seconds_step = s->compute + f->seconds_compress + f->seconds_decode + f->seconds_exposed;
}

const char *frug_cost_algorithm_at(size_t i) {
    return i < MODELS ? models[i].name : NULL;
}

/* Whether a number is finite and positive, or zero where that is allowed. */
static int is_valid(double x, int zero) {
    return x < 1e30 && (zero ? x >= 0 : x > 0);
}

static frug_status check_inputs(const frug_cost_inputs *s) {
    FRUG_FAIL_IF(s->params == 0 || s->params > (uint64_t)1 << 48 || s->workers == 0 || s->workers > 1u << 20,
                 FRUG_ERR_ARG, "predict: %llu parameters or %u workers is out of range", (unsigned long long)s->params,
                 s->workers);
    FRUG_FAIL_IF(s->per_node == 0 || s->workers % s->per_node != 0, FRUG_ERR_ARG,
                 "predict: %u workers are not a multiple of %u per node", s->workers, s->per_node);
    FRUG_FAIL_IF(s->servers == 0 || s->servers > s->workers, FRUG_ERR_ARG, "predict: %u servers of %u workers",
                 s->servers, s->workers);
    FRUG_FAIL_IF(!is_valid(s->bandwidth, 0) || !is_valid(s->node_bandwidth, 0) || !is_valid(s->latency, 1) ||
                     !is_valid(s->node_latency, 1),
                 FRUG_ERR_ARG, "predict: a bandwidth must be positive, a latency not negative");
    FRUG_FAIL_IF(!(s->density > 0 && s->density <= 1) || !is_valid(s->payload, 1) || !is_valid(s->down, 1) ||
                     !is_valid(s->payload_down, 1),
                 FRUG_ERR_ARG, "predict: density must be in (0, 1], payloads and down must not be negative");
    FRUG_FAIL_IF(!is_valid(s->compress, 1) || !is_valid(s->decode, 1) || !is_valid(s->decode_entry, 1) ||
                     !is_valid(s->decode_frame, 1) || !is_valid(s->compute, 1),
                 FRUG_ERR_ARG, "predict: times must not be negative");
    return FRUG_OK;
}

frug_status frug_cost_predict(const char *algorithm, const frug_cost_inputs *inputs, frug_cost_estimate *estimate) {
    FRUG_FAIL_IF(!algorithm || !frugi_struct_valid(inputs) || !frugi_struct_valid(estimate), FRUG_ERR_ARG,
                 "predict: algorithm, inputs or estimate is NULL, or struct_size is not set");
    frug_cost_inputs full = FRUG_COST_INPUTS_INIT;
    frugi_struct_read(&full, inputs);
    FRUG_TRY(check_inputs(&full));
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, algorithm) == 0) {
            frug_cost_estimate base = {.struct_size = sizeof base}, made = {.struct_size = sizeof made};
            run_model(0, &full, &base);
            run_model(i, &full, &made);
            made.speedup = made.seconds_step > 0 ? base.seconds_step / made.seconds_step : 1;
            frugi_struct_write(estimate, &made);
            return FRUG_OK;
        }
    return frugi_fail(FRUG_ERR_ARG, "predict: unknown algorithm '%s'", algorithm);
}

size_t frugi_cheapest_algorithm(const frug_cost_inputs *scene, const char *const *names, size_t count) {
    size_t best = count;
    double shortest = 0;
    for (size_t i = 0; i < count; i++) {
        frug_cost_estimate f = {.struct_size = sizeof f};
        if (frug_cost_predict(names[i], scene, &f) != FRUG_OK)
            continue;
        if (best == count || f.seconds_step < shortest) {
            best = i;
            shortest = f.seconds_step;
        }
    }
    return best;
}
