/*
 * gpu_qsgd.cu - value=qsgd on a GPU: whole tensors, in groups that share a norm, rounded at random; and sums of such
 * frames.
 *
 * Three passes over a gradient, of which the later ones find it in the cache where it is short: which blocks are to be
 * held back; the groups' norms, for which eight lanes add eight sums side by side, in the order of
 * codec/group_scale.c; and the fields, of which a lane packs eight at a time, because eight always fill whole bytes.
 * What is computed is what codec/group_code.c does, bit for bit.
 */
#include "cuda/gpu_warp.cuh"

#include "base/philox.h"
#include "residual/residual_format.h"
#include "frugrad.h"

#define WARPS 8
#define EIGHT 8u /* values that a lane has at a time; sums of a group */

static __device__ inline const frugi_gpu_run *run_of(const frugi_gpu_runs &runs, uint32_t n) {
    uint32_t lo = 0, hi = runs.runs;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (runs.run[mid].groups_before <= n)
            lo = mid;
        else
            hi = mid;
    }
    return &runs.run[lo];
}

/** A group: its number in the section, its first value, how many it has. */
typedef struct group {
    const frugi_gpu_run *run;
    uint64_t first;
    uint32_t number, length;
} group;

static __device__ inline group group_of(const frugi_gpu_runs &runs, uint32_t n) {
    group g = {run_of(runs, n), 0, 0, 0};
    g.number = n - g.run->groups_before;
    g.first = (uint64_t)g.number * runs.group;
    g.length = (uint32_t)min(g.run->count - g.first, (uint64_t)runs.group);
    return g;
}

/* Where the fields of a group's values from..from+7 stand, and how many bytes they have. */
static __device__ inline uint64_t fields_at(const frugi_gpu_runs &runs, const group &g, uint32_t from,
                                            uint32_t *bytes) {
    uint32_t left = g.length - from;
    *bytes = left >= EIGHT ? runs.width : (left * runs.width + 7) / 8;
    return g.run->value_at + g.first / 8 * runs.width + from / 8 * runs.width;
}

/* ---- making a frame ----------------------------------------------------------------------------------- */

/* Mark the blocks that hold a NaN or an infinity. A warp takes a stretch, and looks at its quarters. */
static __global__ void __launch_bounds__(32 * WARPS) hold_kernel(const __grid_constant__ frugi_gpu_quant p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    uint32_t blocks = FRUGI_GPU_STRETCH / p.block, quarters = 4 / blocks; /* quarters of a block */
    for (uint32_t r = 0; r < p.runs.runs; r++) {
        const frugi_gpu_run *run = &p.runs.run[r];
        for (uint64_t at = warp; at * FRUGI_GPU_STRETCH < run->count; at += warps) {
            float x[FRUGI_EACH];
            uint32_t bad = 0, length = (uint32_t)min(run->count - at * FRUGI_GPU_STRETCH, (uint64_t)FRUGI_GPU_STRETCH);
            frugi_load_block(p.grad + (run->begin - p.begin) + at * FRUGI_GPU_STRETCH, length, x);
#pragma unroll
            for (int i = 0; i < FRUGI_EACH; i++)
                bad |= frugi_magnitude(x[i]) >= FRUGI_INF_BITS ? 1u << (lane / 16 + i / 4 * 2) : 0u;
            bad = __reduce_or_sync(FRUGI_ALL_LANES, bad);
            if (lane * p.block >= length)
                continue;
            bool held = bad >> lane * quarters & ((1u << quarters) - 1u);
            p.held[run->stored + at * blocks + lane] = held;
            if (held)
                atomicAdd(&p.desk->held, 1u);
        }
    }
}

/* A value as it counts: of a block that is held back, zero; else clipped. */
static __device__ inline float counted(const frugi_gpu_quant &p, float x, bool held, float gain) {
    return held ? 0.0f : p.gain ? __fmul_rn(gain, x) : x;
}

static __device__ inline bool is_held(const frugi_gpu_quant &p, const frugi_gpu_run *run, uint64_t at, bool any) {
    return any && p.held[run->stored + (at >> (__ffs((int)p.block) - 1))]; /* a power of two */
}

/* Every eighth value of a group from `first` on: their squares summed, or the largest magnitude. */
static __device__ inline double every_eighth(const frugi_gpu_quant &p, const group &g, uint32_t first, bool any,
                                             float gain) {
    const float *x = p.grad + (g.run->begin - p.begin) + g.first;
    double sum = 0;
#pragma unroll 4
    for (uint32_t i = first; i < g.length; i += EIGHT) {
        float v = counted(p, x[i], is_held(p, g.run, g.first + i, any), gain);
        double magnitude = (double)frugi_bits_f32(frugi_magnitude(v));
        sum = p.largest ? max(sum, magnitude) : __dadd_rn(sum, __dmul_rn(magnitude, magnitude));
    }
    return sum;
}

/* The L2 norm of a sum of squares, as a float that is not below it. */
static __device__ inline float norm_of(double squares) {
    double norm = __dsqrt_rn(squares);
    if (norm >= (double)FLT_MAX)
        return FLT_MAX;
    float f = (float)norm;
    return (double)f < norm ? frugi_bits_f32(frugi_f32_bits(f) + 1) : f;
}

/* The norms of groups, four at a time in a warp. */
static __global__ void __launch_bounds__(32 * WARPS) scale_kernel(const __grid_constant__ frugi_gpu_quant p) {
    __shared__ double parts[WARPS][32];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    double *part = parts[threadIdx.x / 32];
    bool any = p.desk->held != 0;
    float gain = p.gain ? *p.gain : 1.0f;
    for (uint32_t four = warp; four * 4 < p.runs.groups; four += warps) {
        uint32_t n = four * 4 + lane / EIGHT;
        group g = group_of(p.runs, min(n, p.runs.groups - 1));
        part[lane] = every_eighth(p, g, lane % EIGHT, any, gain);
        __syncwarp();
        if (lane % EIGHT == 0 && n < p.runs.groups) {
            double all = 0;
            for (uint32_t i = 0; i < EIGHT; i++)
                all = p.largest ? max(all, part[lane + i]) : __dadd_rn(all, part[lane + i]);
            reinterpret_cast<float *>(p.frame + g.run->payload_at)[g.number] = p.largest ? (float)all : norm_of(all);
        }
        __syncwarp();
    }
}

/** How a group's values become levels: prepare_qsgd() of unit_value_scale.c. */
typedef struct ruler {
    float up, inverse;
    uint32_t dice;
} ruler;

static __device__ inline ruler ruler_of(const frugi_gpu_quant &p, const group &g) {
    float a = reinterpret_cast<const float *>(p.frame + g.run->payload_at)[g.number];
    ruler r = {a < 0x1p-64f ? 0x1p64f : 1.0f, 0.0f, frugi_random(g.run->key, 0, g.number)};
    float norm = __fmul_rn(a, r.up), top = __fmul_rn((float)p.runs.levels, 0x1p24f);
    if (norm > 0)
        r.inverse = __fdiv_rn(top, norm);
    if (__dmul_rn((double)r.inverse, (double)norm) > (double)top)
        r.inverse = frugi_bits_f32(frugi_f32_bits(r.inverse) - 1);
    return r;
}

static __device__ inline uint32_t field_of(const ruler &r, float x, uint32_t i) {
    uint32_t u = frugi_f32_bits(x);
    float places = __fmul_rn(__fmul_rn(frugi_bits_f32(u & FRUGI_ABS_MASK), r.up), r.inverse);
    uint32_t level = ((uint32_t)(int32_t)places + ((r.dice + i * FRUGI_WEYL) >> 8)) >> 24;
    return level << 1 | u >> 31;
}

static __device__ inline void put_fields(unsigned char *to, uint64_t fields, uint32_t width, uint32_t bytes) {
    if ((width | bytes) % 4 == 0) { /* then all fields stand at multiples of four bytes */
        for (uint32_t i = 0; i < bytes / 4; i++)
            reinterpret_cast<uint32_t *>(to)[i] = (uint32_t)(fields >> (32 * i));
        return;
    }
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(fields >> (8 * i));
}

/* Eight values from `from` on; zeros behind the group's last. */
static __device__ inline void load_eight(const float *x, uint32_t from, uint32_t length, float v[8]) {
    if (length - from >= EIGHT) {
        bool aligned = (reinterpret_cast<uintptr_t>(x + from) & 15u) == 0;
        frugi_load_four(x + from, aligned, v);
        frugi_load_four(x + from + 4, aligned, v + 4);
        return;
    }
    for (uint32_t i = 0; i < EIGHT; i++)
        v[i] = from + i < length ? x[from + i] : 0.0f;
}

/* The section's header, and zeros behind its last value. */
static __device__ void write_header(const frugi_gpu_runs &runs, const frugi_gpu_run *run, unsigned char *frame) {
    unsigned char *payload = frame + run->payload_at;
    for (uint32_t i = 0; i < FRUGI_GPU_UNITS_HEADER; i++)
        payload[(int)i - (int)FRUGI_GPU_UNITS_HEADER] = run->header[i];
    uint64_t whole = run->count / 8 * runs.width, rest = (run->count % 8 * runs.width + 7) / 8;
    for (uint64_t i = run->value_at + whole + rest; i < run->bytes; i++)
        payload[i] = 0;
}

/* The fields. A warp takes a group. */
static __global__ void __launch_bounds__(32 * WARPS) fields_kernel(const __grid_constant__ frugi_gpu_quant p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    bool any = p.desk->held != 0;
    float gain = p.gain ? *p.gain : 1.0f;
    for (uint32_t n = warp; n < p.runs.groups; n += warps) {
        group g = group_of(p.runs, n);
        ruler r = ruler_of(p, g);
        const float *x = p.grad + (g.run->begin - p.begin) + g.first;
        if (g.number == 0 && lane == 0)
            write_header(p.runs, g.run, p.frame);
        for (uint32_t from = lane * EIGHT; from < g.length; from += 32 * EIGHT) {
            float v[EIGHT];
            uint64_t fields = 0;
            uint32_t bytes;
            bool held = is_held(p, g.run, g.first + from, any);
            load_eight(x, from, g.length, v);
#pragma unroll
            for (uint32_t i = 0; i < EIGHT; i++)
                if (from + i < g.length)
                    fields |= (uint64_t)field_of(r, counted(p, v[i], held, gain), from + i) << (i * p.runs.width);
            uint64_t at = fields_at(p.runs, g, from, &bytes);
            put_fields(p.frame + g.run->payload_at + at, fields, p.runs.width, bytes);
        }
    }
}

static uint32_t grid_for(uint64_t warps, int processors) {
    uint64_t wanted = (warps + WARPS - 1) / WARPS, most = (uint64_t)processors * 8u;
    return (uint32_t)(wanted < most ? wanted : most);
}

cudaError_t frugi_gpu_quant_launch(const frugi_gpu_quant *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(hold_kernel, grid_for(UINT32_MAX, processors), 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(scale_kernel, grid_for((p->runs.groups + 3) / 4, processors), 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(fields_kernel, grid_for(p->runs.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}

/* ---- adding frames up ------------------------------------------------------------------------------------ */

static __device__ inline uint64_t get_fields(const unsigned char *from, uint32_t width, uint32_t bytes) {
    uint64_t fields = 0;
    if ((width | bytes) % 4 == 0) {
        for (uint32_t i = 0; i < bytes / 4; i++)
            fields |= (uint64_t) reinterpret_cast<const uint32_t *>(from)[i] << (32 * i);
        return fields;
    }
    for (uint32_t i = 0; i < bytes; i++)
        fields |= (uint64_t)from[i] << (8 * i);
    return fields;
}

static __device__ void accuse(frugi_gpu_verdict *verdict, int status, uint32_t frame) {
    if (atomicCAS(&verdict->status, 0, status) == 0)
        verdict->frame = frame;
}

/* Whether a group is such as an encoder writes, as far as a lane sees: its norm, its levels, its unused bits. */
static __device__ bool group_is_sound(const frugi_gpu_runs &runs, const group &g, const unsigned char *payload) {
    bool good = reinterpret_cast<const uint32_t *>(payload)[g.number] < FRUGI_INF_BITS;
    uint32_t mask = (1u << runs.width) - 1;
    for (uint32_t from = frugi_lane() * EIGHT; from < g.length; from += 32 * EIGHT) {
        uint32_t bytes, here = min(g.length - from, EIGHT);
        uint64_t at = fields_at(runs, g, from, &bytes), fields = get_fields(payload + at, runs.width, bytes);
        for (uint32_t i = 0; i < here; i++, fields >>= runs.width)
            good &= ((uint32_t)fields & mask) >> 1 <= runs.levels;
        good &= here == EIGHT || fields == 0;
    }
    return good;
}

static __global__ void __launch_bounds__(32 * WARPS) check_kernel(const __grid_constant__ frugi_gpu_quant_sum p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.runs.groups; n += warps) {
        group g = group_of(p.runs, n);
        for (uint32_t f = 0; f < p.frames; f++)
            if (!group_is_sound(p.runs, g, p.frame[f] + g.run->payload_at))
                accuse(p.verdict, FRUG_ERR_FORMAT, f);
        if (g.number != 0)
            continue;
        for (uint32_t f = frugi_lane(); f < p.frames; f += 32) {
            const unsigned char *header = p.frame[f] + g.run->payload_at - FRUGI_GPU_UNITS_HEADER;
            bool same = true;
            for (uint32_t i = 0; i < FRUGI_GPU_UNITS_HEADER; i++)
                same = same && header[i] == g.run->header[i];
            if (!same)
                accuse(p.verdict, FRUG_ERR_MISMATCH, f);
        }
    }
}

/* Add eight values of every frame, in the order of the frames. */
static __device__ inline void add_eight(const frugi_gpu_quant_sum &p, const group &g, uint32_t from, const float *share,
                                        float sum[8]) {
    uint32_t bytes, mask = (1u << p.runs.width) - 1;
    uint64_t at = g.run->payload_at + fields_at(p.runs, g, from, &bytes);
#pragma unroll 4
    for (uint32_t f = 0; f < p.frames; f++) {
        float norm = reinterpret_cast<const float *>(p.frame[f] + g.run->payload_at)[g.number];
        uint64_t fields = get_fields(p.frame[f] + at, p.runs.width, bytes);
#pragma unroll
        for (uint32_t i = 0; i < EIGHT; i++, fields >>= p.runs.width) {
            uint32_t field = (uint32_t)fields & mask;
            uint32_t magnitude = frugi_f32_bits(__fmul_rn(share[field >> 1], norm));
            sum[i] = __fadd_rn(sum[i], frugi_bits_f32(magnitude | field << 31));
        }
    }
}

/* dst = keep * dst + gain * sum; sums start from the zero that changes no bits: decompress.c. A warp takes a group. */
static __global__ void __launch_bounds__(32 * WARPS) sum_kernel(const __grid_constant__ frugi_gpu_quant_sum p) {
    __shared__ float share[128]; /* level over levels */
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    float nothing = p.gain < 0 ? 0.0f : -0.0f;
    if (threadIdx.x < 128)
        share[threadIdx.x] = __fdiv_rn((float)threadIdx.x, (float)p.runs.levels);
    __syncthreads();
    if (p.verdict->status != 0)
        return;
    for (uint32_t n = warp; n < p.runs.groups; n += warps) {
        group g = group_of(p.runs, n);
        float *dst = p.dst + (g.run->begin - p.begin) + g.first;
        for (uint32_t from = frugi_lane() * EIGHT; from < g.length; from += 32 * EIGHT) {
            float x[EIGHT], sum[EIGHT];
#pragma unroll
            for (uint32_t i = 0; i < EIGHT; i++)
                sum[i] = nothing;
            add_eight(p, g, from, share, sum);
            load_eight(dst, from, g.length, x);
#pragma unroll
            for (uint32_t i = 0; i < EIGHT; i++) {
                float base = p.keep == 0.0f ? 0.0f : p.keep == 1.0f ? x[i] : __fmul_rn(p.keep, x[i]);
                if (from + i < g.length)
                    dst[from + i] = __fadd_rn(base, __fmul_rn(p.gain, sum[i]));
            }
        }
    }
}

cudaError_t frugi_gpu_quant_check_launch(const frugi_gpu_quant_sum *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(check_kernel, grid_for(p->runs.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}

cudaError_t frugi_gpu_quant_sum_launch(const frugi_gpu_quant_sum *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(sum_kernel, grid_for(p->runs.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}
