/*
 * gpu_qsgd.cu - value=qsgd on a GPU: encode whole tensors in value groups that share a norm, with stochastic rounding;
 * check and sum such frames.
 *
 * Three passes over a gradient, of which the later ones find it in the cache if it is short: mark the blocks to be
 * skipped; compute the norms of the groups, with eight lanes that compute eight parallel sums in the order of
 * codec/group_scale.c; encode the fields, eight per lane at a time, because eight fields always fill whole bytes. The
 * result is that of codec/group_code.c, bit for bit.
 */
#include "cuda/gpu_warp.cuh"

#include "base/philox.h"
#include "feedback/residual_format.h"
#include "frugrad.h"

#define WARPS       8
#define LANE_VALUES 8u /* values that a lane encodes at a time; parallel sums of a group */

static __device__ inline const frugi_gpu_qsgd_section *find_qsgd_section(const frugi_gpu_qsgd_table &table,
                                                                         uint32_t n) {
    uint32_t lo = 0, hi = table.sections;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (table.section[mid].groups_before <= n)
            lo = mid;
        else
            hi = mid;
    }
    return &table.section[lo];
}

/** A value group: its number in the section, its first value, its length. */
typedef struct group {
    const frugi_gpu_qsgd_section *section;
    uint64_t first;
    uint32_t number, length;
} group;

static __device__ inline group group_of(const frugi_gpu_qsgd_table &table, uint32_t n) {
    group g = {find_qsgd_section(table, n), 0, 0, 0};
    g.number = n - g.section->groups_before;
    g.first = (uint64_t)g.number * table.group;
    g.length = (uint32_t)min(g.section->count - g.first, (uint64_t)table.group);
    return g;
}

/* Offset of the fields of a group's values from .. from + 7, and how many bytes they have. */
static __device__ inline uint64_t fields_at(const frugi_gpu_qsgd_table &table, const group &g, uint32_t from,
                                            uint32_t *bytes) {
    uint32_t left = g.length - from;
    *bytes = left >= LANE_VALUES ? table.width : (left * table.width + 7) / 8;
    return g.section->value_at + g.first / 8 * table.width + from / 8 * table.width;
}

/* ---- encode ------------------------------------------------------------------------------------------ */

/* A bit for each quarter of a warp tile of `length` elements that contains a NaN or an infinity. */
static __device__ inline uint32_t nonfinite_quarters(const float *tile, uint32_t length) {
    float x[FRUGI_LANE_ELEMENTS];
    uint32_t nonfinite = 0;
    frugi_load_tile(tile, length, x);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        nonfinite |= frugi_magnitude(x[i]) >= FRUGI_INF_BITS ? 1u << (frugi_lane() / 16 + i / 4 * 2) : 0u;
    return __reduce_or_sync(FRUGI_ALL_LANES, nonfinite);
}

/* Mark the blocks that contain a NaN or an infinity. A warp checks the blocks of a tile, or a long block. */
static __global__ void __launch_bounds__(32 * WARPS)
    mark_skipped_kernel(const __grid_constant__ frugi_gpu_qsgd_encode_args p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    uint32_t span = max(p.block, FRUGI_GPU_WARP_TILE), blocks = span / p.block, quarters = 4 / blocks; /* per block */
    for (uint32_t r = 0; r < p.table.sections; r++) {
        const frugi_gpu_qsgd_section *section = &p.table.section[r];
        for (uint64_t at = warp; at * span < section->count; at += warps) {
            uint32_t nonfinite = 0, length = (uint32_t)min(section->count - at * span, (uint64_t)span);
            const float *first = p.grad + (section->begin - p.begin) + at * span;
            for (uint32_t i = 0; i < length; i += FRUGI_GPU_WARP_TILE)
                nonfinite |= nonfinite_quarters(first + i, min(length - i, FRUGI_GPU_WARP_TILE));
            if (lane * p.block >= length)
                continue;
            bool skipped = nonfinite >> lane * quarters & ((1u << quarters) - 1u);
            p.skipped[section->stored + at * blocks + lane] = skipped;
            if (skipped)
                atomicAdd(&p.workspace->skipped, 1u);
        }
    }
}

/* The value that is encoded: 0 in a skipped block, otherwise clipped. */
static __device__ inline float input_value(const frugi_gpu_qsgd_encode_args &p, float x, bool skipped, float gain) {
    return skipped ? 0.0f : p.gain ? __fmul_rn(gain, x) : x;
}

static __device__ inline bool is_skipped(const frugi_gpu_qsgd_encode_args &p, const frugi_gpu_qsgd_section *section,
                                         uint64_t at, bool any_skipped) {
    return any_skipped && p.skipped[section->stored + (at >> (__ffs((int)p.block) - 1))]; /* log2: a power of two */
}

/* Every eighth value of a group from `first` on: sum of squares, or largest magnitude. */
static __device__ inline double partial_norm(const frugi_gpu_qsgd_encode_args &p, const group &g, uint32_t first,
                                             bool any_skipped, float gain) {
    const float *x = p.grad + (g.section->begin - p.begin) + g.first;
    double sum = 0;
#pragma unroll 4
    for (uint32_t i = first; i < g.length; i += LANE_VALUES) {
        float v = input_value(p, x[i], is_skipped(p, g.section, g.first + i, any_skipped), gain);
        double magnitude = (double)frugi_bits_f32(frugi_magnitude(v));
        sum = p.largest ? max(sum, magnitude) : __dadd_rn(sum, __dmul_rn(magnitude, magnitude));
    }
    return sum;
}

/* The L2 norm of a sum of squares, rounded up to a float. */
static __device__ inline float norm_of(double squares) {
    double norm = __dsqrt_rn(squares);
    if (norm >= (double)FLT_MAX)
        return FLT_MAX;
    float f = (float)norm;
    return (double)f < norm ? frugi_bits_f32(frugi_f32_bits(f) + 1) : f;
}

/* Norms of groups, four at a time per warp. */
static __global__ void __launch_bounds__(32 * WARPS)
    scale_kernel(const __grid_constant__ frugi_gpu_qsgd_encode_args p) {
    __shared__ double parts[WARPS][32];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    double *part = parts[threadIdx.x / 32];
    bool any_skipped = p.workspace->skipped != 0;
    float gain = p.gain ? *p.gain : 1.0f;
    for (uint32_t four = warp; four * 4 < p.table.groups; four += warps) {
        uint32_t n = four * 4 + lane / LANE_VALUES;
        group g = group_of(p.table, min(n, p.table.groups - 1));
        part[lane] = partial_norm(p, g, lane % LANE_VALUES, any_skipped, gain);
        __syncwarp();
        if (lane % LANE_VALUES == 0 && n < p.table.groups) {
            double all = 0;
            for (uint32_t i = 0; i < LANE_VALUES; i++)
                all = p.largest ? max(all, part[lane + i]) : __dadd_rn(all, part[lane + i]);
            reinterpret_cast<float *>(p.frame + g.section->payload_at)[g.number] =
                p.largest ? (float)all : norm_of(all);
        }
        __syncwarp();
    }
}

/** How the values of a group are quantized: see prepare_qsgd() in unit_value_scale.c. */
typedef struct quantizer {
    float up, inverse;
    uint32_t random;
} quantizer;

static __device__ inline quantizer make_quantizer(const frugi_gpu_qsgd_encode_args &p, const group &g) {
    float a = reinterpret_cast<const float *>(p.frame + g.section->payload_at)[g.number];
    quantizer r = {a < 0x1p-64f ? 0x1p64f : 1.0f, 0.0f, frugi_random(g.section->key, 0, g.number)};
    float norm = __fmul_rn(a, r.up), top = __fmul_rn((float)p.table.levels, 0x1p24f);
    if (norm > 0)
        r.inverse = __fdiv_rn(top, norm);
    if (__dmul_rn((double)r.inverse, (double)norm) > (double)top)
        r.inverse = frugi_bits_f32(frugi_f32_bits(r.inverse) - 1);
    return r;
}

static __device__ inline uint32_t quantize(const quantizer &r, float x, uint32_t i) {
    uint32_t u = frugi_f32_bits(x);
    float scaled = __fmul_rn(__fmul_rn(frugi_bits_f32(u & FRUGI_ABS_MASK), r.up), r.inverse);
    uint32_t level = ((uint32_t)(int32_t)scaled + ((r.random + i * FRUGI_WEYL) >> 8)) >> 24;
    return level << 1 | u >> 31;
}

static __device__ inline void put_fields(unsigned char *to, uint64_t fields, uint32_t width, uint32_t bytes) {
    if ((width | bytes) % 4 == 0) { /* then all fields are aligned to 4 bytes */
        for (uint32_t i = 0; i < bytes / 4; i++)
            reinterpret_cast<uint32_t *>(to)[i] = (uint32_t)(fields >> (32 * i));
        return;
    }
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(fields >> (8 * i));
}

/* Eight values from `from` on; zeros after the group's last. */
static __device__ inline void load_eight(const float *x, uint32_t from, uint32_t length, float v[8]) {
    if (length - from >= LANE_VALUES) {
        bool aligned = (reinterpret_cast<uintptr_t>(x + from) & 15u) == 0;
        frugi_load_four(x + from, aligned, v);
        frugi_load_four(x + from + 4, aligned, v + 4);
        return;
    }
    for (uint32_t i = 0; i < LANE_VALUES; i++)
        v[i] = from + i < length ? x[from + i] : 0.0f;
}

/* Write the section header, and zeros after its last value. */
static __device__ void write_section_header(const frugi_gpu_qsgd_table &table, const frugi_gpu_qsgd_section *section,
                                            unsigned char *frame) {
    unsigned char *payload = frame + section->payload_at;
    for (uint32_t i = 0; i < FRUGI_GPU_UNITS_HEADER; i++)
        payload[(int)i - (int)FRUGI_GPU_UNITS_HEADER] = section->header[i];
    uint64_t whole = section->count / 8 * table.width, rest = (section->count % 8 * table.width + 7) / 8;
    for (uint64_t i = section->value_at + whole + rest; i < section->bytes; i++)
        payload[i] = 0;
}

/* Encode the fields. A warp processes one group. */
static __global__ void __launch_bounds__(32 * WARPS)
    encode_kernel(const __grid_constant__ frugi_gpu_qsgd_encode_args p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    bool any_skipped = p.workspace->skipped != 0;
    float gain = p.gain ? *p.gain : 1.0f;
    for (uint32_t n = warp; n < p.table.groups; n += warps) {
        group g = group_of(p.table, n);
        quantizer r = make_quantizer(p, g);
        const float *x = p.grad + (g.section->begin - p.begin) + g.first;
        if (g.number == 0 && lane == 0)
            write_section_header(p.table, g.section, p.frame);
        for (uint32_t from = lane * LANE_VALUES; from < g.length; from += 32 * LANE_VALUES) {
            float v[LANE_VALUES];
            uint64_t fields = 0;
            uint32_t bytes;
            bool skipped = is_skipped(p, g.section, g.first + from, any_skipped);
            load_eight(x, from, g.length, v);
#pragma unroll
            for (uint32_t i = 0; i < LANE_VALUES; i++)
                if (from + i < g.length)
                    fields |= (uint64_t)quantize(r, input_value(p, v[i], skipped, gain), from + i)
                              << (i * p.table.width);
            uint64_t at = fields_at(p.table, g, from, &bytes);
            put_fields(p.frame + g.section->payload_at + at, fields, p.table.width, bytes);
        }
    }
}

static uint32_t grid_for(uint64_t warps, int processors) {
    uint64_t wanted = (warps + WARPS - 1) / WARPS, most = (uint64_t)processors * 8u;
    return (uint32_t)(wanted < most ? wanted : most);
}

cudaError_t frugi_gpu_qsgd_encode_launch(const frugi_gpu_qsgd_encode_args *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(mark_skipped_kernel, grid_for(UINT32_MAX, processors), 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(scale_kernel, grid_for((p->table.groups + 3) / 4, processors), 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(encode_kernel, grid_for(p->table.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}

/* ---- check and sum ----------------------------------------------------------------------------------- */

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

static __device__ void set_error(frugi_gpu_error *error, int status, uint32_t frame) {
    if (atomicCAS(&error->status, 0, status) == 0)
        error->frame = frame;
}

/* Whether a group's norm, levels and unused bits are valid; each lane checks its own values. */
static __device__ bool group_is_valid(const frugi_gpu_qsgd_table &table, const group &g, const unsigned char *payload) {
    bool valid = reinterpret_cast<const uint32_t *>(payload)[g.number] < FRUGI_INF_BITS;
    uint32_t mask = (1u << table.width) - 1;
    for (uint32_t from = frugi_lane() * LANE_VALUES; from < g.length; from += 32 * LANE_VALUES) {
        uint32_t bytes, here = min(g.length - from, LANE_VALUES);
        uint64_t at = fields_at(table, g, from, &bytes), fields = get_fields(payload + at, table.width, bytes);
        for (uint32_t i = 0; i < here; i++, fields >>= table.width)
            valid &= ((uint32_t)fields & mask) >> 1 <= table.levels;
        valid &= here == LANE_VALUES || fields == 0;
    }
    return valid;
}

static __global__ void __launch_bounds__(32 * WARPS) check_kernel(const __grid_constant__ frugi_gpu_qsgd_sum_args p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.table.groups; n += warps) {
        group g = group_of(p.table, n);
        for (uint32_t f = 0; f < p.frames; f++)
            if (!group_is_valid(p.table, g, p.frame[f] + g.section->payload_at))
                set_error(p.error, FRUG_ERR_FORMAT, f);
        if (g.number != 0)
            continue;
        for (uint32_t f = frugi_lane(); f < p.frames; f += 32) {
            const unsigned char *header = p.frame[f] + g.section->payload_at - FRUGI_GPU_UNITS_HEADER;
            bool same = true;
            for (uint32_t i = 0; i < FRUGI_GPU_UNITS_HEADER; i++)
                same = same && header[i] == g.section->header[i];
            if (!same)
                set_error(p.error, FRUG_ERR_MISMATCH, f);
        }
    }
}

/* Add eight values of every frame, in the order of the frames. */
static __device__ inline void add_eight(const frugi_gpu_qsgd_sum_args &p, const group &g, uint32_t from,
                                        const float *level_value, float sum[8]) {
    uint32_t bytes, mask = (1u << p.table.width) - 1;
    uint64_t at = g.section->payload_at + fields_at(p.table, g, from, &bytes);
#pragma unroll 4
    for (uint32_t f = 0; f < p.frames; f++) {
        float norm = reinterpret_cast<const float *>(p.frame[f] + g.section->payload_at)[g.number];
        uint64_t fields = get_fields(p.frame[f] + at, p.table.width, bytes);
#pragma unroll
        for (uint32_t i = 0; i < LANE_VALUES; i++, fields >>= p.table.width) {
            uint32_t field = (uint32_t)fields & mask;
            uint32_t magnitude = frugi_f32_bits(__fmul_rn(level_value[field >> 1], norm));
            sum[i] = __fadd_rn(sum[i], frugi_bits_f32(magnitude | field << 31));
        }
    }
}

/*
 * dst = keep * dst + gain * sum. Sums start from the zero that changes no bits: see decoder.c. A warp processes one
 * group.
 */
static __global__ void __launch_bounds__(32 * WARPS) sum_kernel(const __grid_constant__ frugi_gpu_qsgd_sum_args p) {
    __shared__ float level_value[128]; /* level / levels */
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    float zero = p.gain < 0 ? 0.0f : -0.0f;
    if (threadIdx.x < 128)
        level_value[threadIdx.x] = __fdiv_rn((float)threadIdx.x, (float)p.table.levels);
    __syncthreads();
    if (p.error->status != 0)
        return;
    for (uint32_t n = warp; n < p.table.groups; n += warps) {
        group g = group_of(p.table, n);
        float *dst = p.dst + (g.section->begin - p.begin) + g.first;
        for (uint32_t from = frugi_lane() * LANE_VALUES; from < g.length; from += 32 * LANE_VALUES) {
            float x[LANE_VALUES], sum[LANE_VALUES];
#pragma unroll
            for (uint32_t i = 0; i < LANE_VALUES; i++)
                sum[i] = zero;
            add_eight(p, g, from, level_value, sum);
            load_eight(dst, from, g.length, x);
#pragma unroll
            for (uint32_t i = 0; i < LANE_VALUES; i++) {
                float base = p.keep == 0.0f ? 0.0f : p.keep == 1.0f ? x[i] : __fmul_rn(p.keep, x[i]);
                if (from + i < g.length)
                    dst[from + i] = __fadd_rn(base, __fmul_rn(p.gain, sum[i]));
            }
        }
    }
}

cudaError_t frugi_gpu_qsgd_check_launch(const frugi_gpu_qsgd_sum_args *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(check_kernel, grid_for(p->table.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}

cudaError_t frugi_gpu_qsgd_sum_launch(const frugi_gpu_qsgd_sum_args *p, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(sum_kernel, grid_for(p->table.groups, processors), 32 * WARPS, stream, *p);
    return cudaGetLastError();
}
