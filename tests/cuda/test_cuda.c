/*
 * test_cuda.c - the GPU compressor against the CPU's, byte for byte: frames, residuals and sums.
 *
 * Covers every configuration with a kernel, layouts with tails, gaps and dense tensors, and data with ties, NaN,
 * infinities, denormals and all zeros; and damaged or forged frames. Skipped (exit status 77) where there is no device;
 * emulator/ runs a part of it on a CPU.
 */
#include "cuda_fixture.h"

#include "compress/compressor_access.h"
#include "compress/exact_frame.h"

#include <string.h>

static void sum_both(cuda_fixture *s, uint64_t step, int apply) {
    const void *cpu[WORKERS], *gpu[WORKERS];
    size_t lens[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        const worker *w = &s->w[i % compressing];
        cpu[i] = w->cpu_frame;
        gpu[i] = w->gpu_frame;
        lens[i] = w->len;
    }
    for (uint64_t i = 0; i < s->n; i++)
        s->dst[i] = next_random() % 9 ? sample_value(HEAVY) : -0.0f;
    copy_to_device(s->gpu_dst, s->dst, s->n * sizeof(float));
    if (apply) {
        assert_int_equal(frug_decode_apply(frug_compressor_decoder(s->w[0].cpu), (frug_range){0, s->n}, cpu, lens,
                                           WORKERS, 0.1f, 0.01f, s->dst),
                         FRUG_OK);
        assert_int_equal(frug_cuda_decode_apply(s->w[0].gpu, step, (frug_range){0, s->n}, gpu, WORKERS, 0.1f, 0.01f,
                                                s->gpu_dst, NULL),
                         FRUG_OK);
    } else {
        assert_int_equal(frug_decode_add(frug_compressor_decoder(s->w[0].cpu), (frug_range){0, s->n}, cpu, lens,
                                         WORKERS, 1.0f / 3, s->dst),
                         FRUG_OK);
        assert_int_equal(
            frug_cuda_decode_add(s->w[0].gpu, step, (frug_range){0, s->n}, gpu, WORKERS, 1.0f / 3, s->gpu_dst, NULL),
            FRUG_OK);
    }
    assert_int_equal(frug_cuda_check(s->w[0].gpu, NULL), FRUG_OK);
    copy_from_device(s->result, s->gpu_dst, s->n * sizeof(float));
    assert_memory_equal(s->result, s->dst, s->n * sizeof(float));
}

/* Add values of any size to the residual, and zeros to some ranges of 300 elements. */
static void residual_add_both(cuda_fixture *s, worker *w, uint64_t step, uint64_t begin, uint64_t count, data_kind k) {
    for (uint64_t i = 0; i < count; i++) {
        bool none = (i / 300 + step) % 3 == 0;
        s->grad[i] = none ? 0.0f : sample_value(k == WILD ? HEAVY : k);
    }
    copy_to_device(s->gpu_grad, s->grad, count * sizeof(float));
    frugi_compressor_residual_add(w->cpu, step, (frug_range){begin, count}, s->grad);
    assert_int_equal(frug_cuda_residual_add(w->gpu, step, (frug_range){begin, count}, s->gpu_grad, NULL), FRUG_OK);
}

/* With fewer configurations, each has half the kinds of data; the next one has the others. */
static void check_parity(const char *text, int layout_number) {
    static int first_kind;
    cuda_fixture s;
    setup_fixture(&s, text, layout_number);
    first_kind = config_stride > 1 ? !first_kind : 0;
    for (int k = first_kind; k<KINDS; k += config_stride> 1 ? 2 : 1)
        for (uint64_t step = 0; step < STEPS; step += step_stride) {
            for (int i = 0; i < compressing; i++)
                compress_both(&s, &s.w[i], step, (data_kind)k);
            if (k != HUGE_ONES) /* their sums overflow, on both sides, but not always alike */
                sum_both(&s, step, (int)step % 2);
            residual_add_both(&s, &s.w[(int)step % compressing], step, 0, s.n, (data_kind)k);
            compare_states(&s, &s.w[(int)step % compressing]);
        }
    teardown_fixture(&s);
}

static void test_parity(void **unused) {
    static const char *const values[] = {"f32", "bf16", "int8", "f16"}, *const residuals[] = {"f32", "bf16", "int8",
                                                                                              "int4"};
    static const char *const more[] = {"feedback=merged,min_size=600",
                                       "feedback=plain,select=exact,min_size=600", /* presets use hist */
                                       "feedback=merged,index=bitmap,schedule=constant:0.5,min_size=600",
                                       "feedback=plain,schedule=constant:0.99,min_size=1",
                                       "feedback=merged,schedule=frugrad:0.5:0.94:0.5,min_size=600",
                                       "feedback=plain,warmup=2,schedule=constant:0",
                                       "feedback=merged,schedule=constant:0.999,min_size=1",
                                       "feedback=merged,hold=auto,schedule=frugrad:0:0.94:0.5,min_size=600",
                                       "feedback=merged,hold=adam,schedule=constant:0.98,min_size=600"};
    char text[160];
    (void)unused;
    for (int b = 0; b < 5; b++) {
        static const int blocks[] = {256, 64, 128, 1024, 4096};
        bool thinned = b > 0 && config_stride > 1;
        for (int i = thinned ? b : 0; i < 4 * 4 * 9; i += thinned ? 4 * config_stride + 3 : config_stride) {
            int v = i / 36, r = i / 9 % 4, m = i % 9;
            snprintf(text, sizeof text, "frugrad,block=%d,value=%s,residual=%s,%s", blocks[b], values[v], residuals[r],
                     more[m]);
            check_parity(text, (v + r + m) % 2);
        }
    }
    check_parity("frugrad,value=int8,residual=f32,feedback=plain,schedule=constant:0.99,min_size=1", 2);
    for (int v = 0; v < 4; v++) {
        snprintf(text, sizeof text, "frugrad,value=%s,feedback=none,min_size=600", values[v]);
        check_parity(text, v % 2);
    }
    static const char *const qsgd[] = {"qsgd,min_size=600",
                                       "qsgd,min_size=600,levels=7,qnorm=max,bucket=64",
                                       "qsgd,min_size=600,levels=5,bucket=264,clip=20",
                                       "qsgd,min_size=1,levels=1,bucket=8,seed=77",
                                       "qsgd,min_size=600,levels=100,bucket=65536,qnorm=max,clip=1",
                                       "qsgd,min_size=600,levels=31,warmup=2,segment=tensor"};
    for (int i = 0; i < 6; i++)
        check_parity(qsgd[i], i % 2);
    check_parity("frugrad,clip=20,min_size=600", 0);
    check_parity("frugrad,clip=1e30,residual=f32,value=f32,feedback=plain", 1);
    check_parity("frugrad,block=64,clip=20,min_size=600", 1);
    check_parity("frugrad,block=128,value=f16,feedback=none,min_size=600", 0);
    check_parity("frugrad,block=64,value=int8,feedback=none,index=bitmap,schedule=constant:0.99,min_size=1", 1);
    check_parity("qsgd,block=64,min_size=600,levels=5,bucket=264,clip=20", 0);
    check_parity("qsgd,block=4096,min_size=600,levels=5,bucket=264", 1);
    check_parity("frugrad,block=1024,value=f16,feedback=none,clip=20,min_size=600", 1);
}

/* As many consecutive tiles as a warp ever processes: scales fill a checksum group, random numbers are drawn again. */
static void test_long_tile_sequences(void **unused) {
    static const char *const texts[] = {"frugrad,value=int8,residual=int8,feedback=merged,select=exact",
                                        "frugrad,value=f16,residual=int4,feedback=plain,schedule=constant:0.5",
                                        "frugrad,value=bf16,residual=bf16,feedback=plain,schedule=constant:0.999",
                                        "frugrad,block=64,value=int8,residual=int4,feedback=merged",
                                        "frugrad,block=128,value=f16,residual=bf16,select=exact,schedule=constant:0.7",
                                        "frugrad,block=1024,value=int8,residual=int8,feedback=merged,select=exact",
                                        "frugrad,block=4096,residual=bf16,schedule=constant:0.999"};
    cuda_fixture s;
    (void)unused;
    for (int i = 0; i < 7; i++) {
        setup_fixture(&s, texts[i], 3);
        for (uint64_t step = 0; step < 2; step++)
            compress_both(&s, &s.w[0], step, HEAVY);
        compare_states(&s, &s.w[0]);
        teardown_fixture(&s);
    }
}

/* Compress each tensor separately, as buckets do, with any alignment. */
static void check_ranges(cuda_fixture *opened) {
    cuda_fixture s = *opened;
    frug_tensor t = FRUG_TENSOR_INIT;
    size_t cpu_len, gpu_len;
    worker *w = &s.w[0];
    for (uint64_t i = 0; i < s.n; i++)
        s.grad[i] = sample_value(HEAVY);
    copy_to_device(s.gpu_grad, s.grad, s.n * sizeof(float));
    for (uint64_t step = 0; step < STEPS; step++)
        for (size_t i = frug_layout_count(s.layout); i-- > 0;) {
            frug_layout_get(s.layout, i, &t);
            uint64_t count = t.ndim == 1 ? t.shape[0] : t.shape[0] * t.shape[1];
            assert_int_equal(frug_compress(w->cpu, step, (frug_range){t.offset, count}, s.grad + t.offset, w->cpu_frame,
                                           s.capacity, &cpu_len),
                             FRUG_OK);
            assert_int_equal(frug_cuda_compress(w->gpu, step, (frug_range){t.offset, count}, s.gpu_grad + t.offset,
                                                w->gpu_frame + 4, s.capacity, &gpu_len, NULL),
                             FRUG_OK);
            assert_int_equal(cpu_len, gpu_len);
            copy_from_device(s.result, w->gpu_frame + 4, gpu_len);
            assert_memory_equal(s.result, w->cpu_frame, gpu_len);
        }
}

static void test_ranges(void **unused) {
    cuda_fixture s;
    size_t len;
    (void)unused;
    setup_fixture(&s, "frugrad", 0);
    worker *w = &s.w[0];
    check_ranges(&s);
    residual_add_both(&s, w, 7, 0, 16384 + 77, HEAVY);
    residual_add_both(&s, w, 8, 1024, 512, HEAVY); /* inside a tensor */
    compare_states(&s, w);
    assert_int_equal(frug_cuda_residual_add(w->gpu, 9, (frug_range){1000, 512}, s.gpu_grad, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_cuda_residual_add(w->gpu, 9, (frug_range){1024, 192}, s.gpu_grad, NULL), FRUG_ERR_ARG);
    teardown_fixture(&s);
    /* Tiles do not start at the blocks where those of the whole tensor do. */
    setup_fixture(&s, "frugrad,block=64,residual=int4", 0);
    w = &s.w[0];
    check_ranges(&s);
    residual_add_both(&s, w, 7, 0, 16384 + 77, HEAVY);
    residual_add_both(&s, w, 8, 1024 + 64, 512 - 64, HEAVY);
    compare_states(&s, w);
    assert_int_equal(frug_cuda_residual_add(w->gpu, 9, (frug_range){1000, 512}, s.gpu_grad, NULL), FRUG_ERR_ARG);
    teardown_fixture(&s);
    setup_fixture(&s, "qsgd,clip=3", 0);
    check_ranges(&s);
    /* Not a whole tensor. */
    assert_int_equal(
        frug_cuda_compress(s.w[0].gpu, 9, (frug_range){0, 1024}, s.gpu_grad, s.w[0].gpu_frame, s.capacity, &len, NULL),
        FRUG_ERR_ARG);
    teardown_fixture(&s);
}

/* Norms of ranges that begin and end inside tensors and gaps. */
static void test_norm(void **unused) {
    cuda_fixture s;
    double norm, *gpu_norm = device_alloc(sizeof norm);
    (void)unused;
    for (int layout_number = 0; layout_number < 3; layout_number += 2) {
        setup_fixture(&s, "frugrad,clip=1", layout_number);
        worker *w = &s.w[0];
        for (int k = 0; k < KINDS; k++)
            for (int part = 0; part < 3; part++) {
                uint64_t begin = part == 1 ? s.n / 3 : 0, count = part == 2 ? 0 : s.n - begin - (uint64_t)part * 5;
                for (uint64_t i = 0; i < count; i++)
                    s.grad[i] = sample_value((data_kind)k);
                copy_to_device(s.gpu_grad, s.grad, count * sizeof(float));
                double cpu_norm = frugi_norm_measure(w->cpu, begin, count, s.grad);
                assert_int_equal(frug_cuda_norm(w->gpu, (frug_range){begin, count}, s.gpu_grad, gpu_norm, NULL),
                                 FRUG_OK);
                copy_from_device(&norm, gpu_norm, sizeof norm);
                assert_memory_equal(&norm, &cpu_norm, sizeof norm);
                frugi_norm_clear(w->cpu);
            }
        assert_int_equal(frug_cuda_norm(w->gpu, (frug_range){1, s.n}, s.gpu_grad, gpu_norm, NULL), FRUG_ERR_ARG);
        teardown_fixture(&s);
    }
    cudaFree(gpu_norm);
}

/* Damaged frames change nothing; the error is reported once. */
static void check_damaged_frames(const char *text) {
    cuda_fixture s;
    setup_fixture(&s, text, 0);
    for (int i = 0; i < WORKERS; i++)
        compress_both(&s, &s.w[i], 0, HEAVY);
    const void *gpu[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        gpu[i] = s.w[i].gpu_frame;
    memset(s.dst, 0, s.n * sizeof(float));
    for (int round = 0; round < 300; round += (int)step_stride) {
        size_t at = round < 200 ? (size_t)round : next_random() % s.w[1].len;
        unsigned char good, damaged;
        copy_from_device(&good, s.w[1].gpu_frame + at, 1);
        damaged = (unsigned char)(good ^ (1u << next_random() % 8));
        copy_to_device(s.w[1].gpu_frame + at, &damaged, 1);
        copy_to_device(s.gpu_dst, s.dst, s.n * sizeof(float));
        assert_int_equal(frug_cuda_decode_add(s.w[0].gpu, 0, (frug_range){0, s.n}, gpu, WORKERS, 1, s.gpu_dst, NULL),
                         FRUG_OK);
        assert_int_not_equal(frug_cuda_check(s.w[0].gpu, NULL), FRUG_OK);
        assert_int_equal(frug_cuda_check(s.w[0].gpu, NULL), FRUG_OK);
        copy_from_device(s.result, s.gpu_dst, s.n * sizeof(float));
        assert_memory_equal(s.result, s.dst, s.n * sizeof(float));
        copy_to_device(s.w[1].gpu_frame + at, &good, 1);
    }
    assert_int_equal(frug_cuda_decode_add(s.w[0].gpu, 1, (frug_range){0, s.n}, gpu, WORKERS, 1, s.gpu_dst, NULL),
                     FRUG_OK);
    assert_int_equal(frug_cuda_check(s.w[0].gpu, NULL), FRUG_ERR_MISMATCH); /* of another step */
    teardown_fixture(&s);
}

static void test_damaged_frames(void **unused) {
    (void)unused;
    check_damaged_frames("frugrad");
    check_damaged_frames("frugrad,block=64");
    check_damaged_frames("frugrad,block=4096");
    check_damaged_frames("qsgd,levels=5,bucket=264");
}

/* A frame of one dense vector, so that its length can be chosen almost freely, at any address. */
typedef struct single_frame {
    frug_layout *layout;
    frug_cuda *gpu;
    uint64_t n;
    size_t len;
    unsigned char *capacity, *frame; /* device memory */
    float *gpu_dst;
} single_frame;

static void setup_single_frame(single_frame *l, uint64_t n, size_t shift) {
    frug_config *config;
    frug_compressor *cpu;
    assert_int_equal(frug_layout_create(&l->layout), FRUG_OK);
    add_tensor(l->layout, "v", 1, 1, n, FRUG_APPEND);
    assert_int_equal(frug_config_create("frugrad,feedback=none", &config), FRUG_OK);
    assert_int_equal(frug_compressor_create(config, l->layout, NULL, &cpu), FRUG_OK);
    assert_int_equal(frug_cuda_create(config, l->layout, NULL, &l->gpu), FRUG_OK);
    size_t capacity = 4 * n + 256;
    unsigned char *frame = malloc(capacity);
    float *grad = malloc(n * sizeof *grad), *zeros = calloc(n, sizeof *zeros);
    for (uint64_t i = 0; i < n; i++)
        grad[i] = sample_value(HEAVY);
    assert_int_equal(frug_compress(cpu, 0, (frug_range){0, n}, grad, frame, capacity, &l->len), FRUG_OK);
    l->n = n;
    l->capacity = device_alloc(capacity + shift);
    l->frame = l->capacity + shift;
    l->gpu_dst = device_alloc(n * sizeof(float));
    copy_to_device(l->frame, frame, l->len);
    copy_to_device(l->gpu_dst, zeros, n * sizeof(float));
    free(frame);
    free(grad);
    free(zeros);
    frug_compressor_destroy(cpu);
    frug_config_destroy(config);
}

static frug_status decode_single_frame(single_frame *l, size_t copies) {
    const void *frames[64];
    for (size_t i = 0; i < copies; i++)
        frames[i] = l->frame;
    assert_int_equal(frug_cuda_decode_add(l->gpu, 0, (frug_range){0, l->n}, frames, copies, 1, l->gpu_dst, NULL),
                     FRUG_OK);
    return frug_cuda_check(l->gpu, NULL);
}

static void check_damaged_byte(single_frame *l, size_t at, size_t copies) {
    unsigned char good, damaged;
    copy_from_device(&good, l->frame + at, 1);
    damaged = (unsigned char)(good ^ (1u << next_random() % 8));
    copy_to_device(l->frame + at, &damaged, 1);
    assert_int_equal(decode_single_frame(l, copies), FRUG_ERR_CHECKSUM);
    copy_to_device(l->frame + at, &good, 1);
}

static void teardown_single_frame(single_frame *l) {
    frug_cuda_destroy(l->gpu);
    frug_layout_destroy(l->layout);
    cudaFree(l->capacity);
    cudaFree(l->gpu_dst);
}

/*
 * Bodies that end a word or a cache line before, at and after the end of a warp's windows, one or several; any address.
 */
static void test_checksums(void **unused) {
    static const int windows[] = {0, 1, 2, 7, 8, 9, 17}, ends[] = {-132, -128, -124, -4, 0, 4, 124, 128, 132};
    single_frame l;
    (void)unused;
    for (int i = 0; i<63; i += config_stride> 1 ? 4 : 1) {
        size_t shift = 4 * (size_t)(i * 5 % 32), lead = (128 - (shift + 48) % 128) % 128;
        int64_t words = (windows[i / 9] * 5120 + (int64_t)lead + ends[i % 9] - 48) / 4;
        setup_single_frame(&l, words > 0 ? (uint64_t)words : (uint64_t)i + 1, shift);
        assert_int_equal(decode_single_frame(&l, 1), FRUG_OK);
        assert_int_equal(decode_single_frame(&l, 5), FRUG_OK);
        for (size_t at = 48 + 48; at < l.len; at += 1 + next_random() % (l.len / 8))
            check_damaged_byte(&l, at, 5);
        check_damaged_byte(&l, l.len - 1 - next_random() % 4, 1);
        teardown_single_frame(&l);
    }
    setup_single_frame(&l, 100003, 36); /* with so many frames every warp has several windows, on any device */
    assert_int_equal(decode_single_frame(&l, 64), FRUG_OK);
    for (int i = 0; i < 40; i++)
        check_damaged_byte(&l, 96 + next_random() % (l.len - 96), i % 8 ? 1 : 64);
    teardown_single_frame(&l);
}

/* CRC-32C of the frame with zeros in the checksum field. */
static void write_checksum(unsigned char *frame, size_t len) {
    uint32_t crc = ~0u;
    memset(frame + 44, 0, 4);
    for (size_t i = 0; i < len; i++) {
        crc ^= frame[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    for (int i = 0; i < 4; i++)
        frame[44 + i] = (unsigned char)(~crc >> (8 * i));
}

/* Clear a bit of a bitmap of so many bytes, and set one in the next bitmap. */
static void move_bit(unsigned char *map, size_t bytes) {
    unsigned char *from = map, *to = map + bytes;
    while (from + 1 < map + bytes && *from == 0)
        from++;
    while (to + 1 < map + 2 * bytes && *to == 255)
        to++;
    assert_true(*from != 0 && *to != 255);
    *from = (unsigned char)(*from & (*from - 1));
    *to = (unsigned char)(*to | (*to + 1));
}

/*
 * A forged frame with a valid checksum: weights do not change, sums write only inside dst. Byte `at` is set to
 * `change`; if that is -n, a bit is moved from the bitmap of n bytes there to the next.
 */
static void check_crafted_frame(const char *text, size_t at, int change, frug_status expected) {
    cuda_fixture s;
    const void *gpu[WORKERS];
    rng_state = 1; /* independent of the tests that ran before */
    setup_fixture(&s, text, 0);
    for (int i = 0; i < WORKERS; i++) {
        compress_both(&s, &s.w[i], 0, HEAVY);
        gpu[i] = s.w[i].gpu_frame;
    }
    unsigned char *frame = s.w[3].cpu_frame;
    write_checksum(frame, s.w[3].len);
    copy_from_device(s.result, s.w[3].gpu_frame, s.w[3].len);
    assert_memory_equal(s.result, frame, s.w[3].len);
    if (change < 0)
        move_bit(frame + at, (size_t)-change);
    else
        assert_int_not_equal(frame[at], change), frame[at] = (unsigned char)change;
    write_checksum(frame, s.w[3].len);
    copy_to_device(s.w[3].gpu_frame, frame, s.w[3].len);
    memset(s.dst, 0, s.n * sizeof(float));
    copy_to_device(s.gpu_dst, s.dst, s.n * sizeof(float));
    assert_int_equal(frug_cuda_decode_apply(s.w[0].gpu, 0, (frug_range){0, s.n}, gpu, WORKERS, 1, 0, s.gpu_dst, NULL),
                     FRUG_OK);
    assert_int_equal(frug_cuda_check(s.w[0].gpu, NULL), expected);
    copy_from_device(s.result, s.gpu_dst, s.n * sizeof(float));
    assert_memory_equal(s.result, s.dst, s.n * sizeof(float));
    assert_int_equal(frug_cuda_decode_add(s.w[0].gpu, 0, (frug_range){0, s.n}, gpu, WORKERS, 1, s.gpu_dst, NULL),
                     FRUG_OK);
    assert_int_equal(frug_cuda_check(s.w[0].gpu, NULL), expected);
    teardown_fixture(&s);
}

static void test_crafted_frames(void **unused) {
    const size_t payload = 96; /* after 48 bytes of frame header and 48 of section header */
    (void)unused;
    /* Indices of the first block that do not ascend, with half a warp per frame and a whole one; wrong bit counts. */
    for (int i = 0; i < 3; i++) {
        static const char *const density[] = {"0.94", "0.9", "0.7"};
        char text[80];
        snprintf(text, sizeof text, "frugrad,value=f32,schedule=constant:%s", density[i]);
        check_crafted_frame(text, payload, 255, FRUG_ERR_FORMAT);
        check_crafted_frame(text, payload + 9, 0, FRUG_ERR_FORMAT);
    }
    check_crafted_frame("frugrad,value=f32,schedule=constant:0.94", 48 + 4, 77, FRUG_ERR_MISMATCH); /* another tensor */
    check_crafted_frame("frugrad,value=int8,schedule=constant:0.94", payload + 1, 0x7f,
                        FRUG_ERR_FORMAT); /* a scale above the limit */
    check_crafted_frame("qsgd,levels=5", 48 + 4, 77, FRUG_ERR_MISMATCH);
    check_crafted_frame("qsgd,levels=5", 48 + 96 + 3, 0xff, FRUG_ERR_FORMAT);      /* a negative norm */
    check_crafted_frame("qsgd,levels=5", 48 + 96 + 4 * 32, 0xff, FRUG_ERR_FORMAT); /* a level above the last */
    check_crafted_frame("frugrad,value=f16,schedule=constant:0.94", payload, 0x7f,
                        FRUG_ERR_FORMAT); /* a power of two above the limit */
    check_crafted_frame("frugrad,value=f16,schedule=constant:0.7", payload, 0x7f, FRUG_ERR_FORMAT); /* with bitmaps */
    check_crafted_frame("frugrad,value=int8,schedule=constant:0.6", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,value=bf16,schedule=constant:0.3", payload + 31, 0x00,
                        FRUG_ERR_FORMAT); /* missing entries */
}

/* Tiles of short blocks: indices that would be valid in the next block, entries moved to another block. */
static void test_crafted_short(void **unused) {
    const size_t payload = 96;
    (void)unused;
    for (int i = 0; i < 3; i++) { /* up to 16, up to 32, and more entries per tile */
        static const char *const density[] = {"0.94", "0.88", "0.8,index=local"}, *const block[] = {"64", "64", "128"};
        char text[80];
        snprintf(text, sizeof text, "frugrad,block=%s,value=f32,schedule=constant:%s", block[i], density[i]);
        check_crafted_frame(text, payload + 2, atoi(block[i]), FRUG_ERR_FORMAT);
        check_crafted_frame(text, payload + 9, 0, FRUG_ERR_FORMAT);
        check_crafted_frame(text, 48 + 3, 1, FRUG_ERR_MISMATCH); /* blocks of 256 and more */
    }
    check_crafted_frame("frugrad,block=64,value=f32,schedule=constant:0.6", payload, -8, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=128,value=bf16,schedule=constant:0.4", payload, -16, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=64,value=int8,schedule=constant:0.94", payload + 2 * 3 + 1, 0x7f,
                        FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=128,value=f16,schedule=constant:0.94", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=64,value=f16,schedule=constant:0.7", payload + 3, 0x7f, FRUG_ERR_FORMAT);
}

/* Indices of two bytes, and bitmaps that several warps read. */
static void test_crafted_long(void **unused) {
    const size_t payload = 96;
    (void)unused;
    check_crafted_frame("frugrad,block=1024,value=f32,schedule=constant:0.95", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=4096,value=f32,schedule=constant:0.99", payload + 2 * 39 + 1, 0,
                        FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=4096,value=f32,schedule=constant:0.99", 48 + 3, 1, FRUG_ERR_MISMATCH);
    check_crafted_frame("frugrad,block=1024,value=bf16,schedule=constant:0.5", payload + 31, 0x00, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=4096,value=bf16,schedule=constant:0.5", payload + 511, 0x00, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=4096,value=f32,schedule=constant:0.5", payload, 0xff, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=4096,value=int8,schedule=constant:0.99", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    check_crafted_frame("frugrad,block=1024,value=f16,schedule=constant:0.7", payload, 0x7f, FRUG_ERR_FORMAT);
}

static void test_unsupported_configs(void **unused) {
    static const char *const damaged[] = {
        "dgc", "topk", "frugrad,value=int4", "frugrad,norm=follow", "2:4", "frugrad,layers=sensitivity"};
    (void)unused;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        frug_config *config;
        frug_layout *layout = make_layout(0);
        frug_cuda *gpu;
        assert_int_equal(frug_config_create(damaged[i], &config), FRUG_OK);
        assert_int_equal(frug_cuda_create(config, layout, NULL, &gpu), FRUG_ERR_CONFIG);
        frug_config_destroy(config);
        frug_layout_destroy(layout);
    }
}

#ifndef CUDA_EMULATED
/* A captured graph gives the same result as the call. */
static void check_graph(const char *text) {
    cuda_fixture s;
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t run;
    size_t len;
    setup_fixture(&s, text, 1);
    worker *w = &s.w[0];
    compress_both(&s, w, 0, HEAVY);
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    assert_int_equal(
        frug_cuda_compress(w->gpu, 1, (frug_range){0, s.n}, s.gpu_grad, w->gpu_frame, s.capacity, &len, stream),
        FRUG_OK);
    assert_int_equal(cudaStreamEndCapture(stream, &captured), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&run, captured, 0), cudaSuccess);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cudaGraphLaunch(run, stream), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(frug_compress(w->cpu, 1, (frug_range){0, s.n}, s.grad, w->cpu_frame, s.capacity, &len),
                         FRUG_OK);
        copy_from_device(s.result, w->gpu_frame, len);
        assert_memory_equal(s.result, w->cpu_frame, len);
    }
    cudaGraphExecDestroy(run);
    cudaGraphDestroy(captured);
    cudaStreamDestroy(stream);
    teardown_fixture(&s);
}

static void test_graph(void **unused) {
    (void)unused;
    check_graph("frugrad,residual=f32");
    check_graph("qsgd,clip=1");
}
#endif

int main(void) {
    const char *stride_text = getenv("FRUG_TEST_EVERY");
    int devices = 0;
    if (stride_text && atoi(stride_text) > 1)
        config_stride = atoi(stride_text), step_stride = 3, columns = 67, compressing = 2;
    if (getenv("FRUG_TEST_LARGE"))
        tall_rows *= 240; /* 62 M elements */
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        puts("test_cuda: no CUDA device, all tests skipped");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksums),      cmocka_unit_test(test_parity),
        cmocka_unit_test(test_ranges),         cmocka_unit_test(test_damaged_frames),
        cmocka_unit_test(test_crafted_frames), cmocka_unit_test(test_crafted_short),
        cmocka_unit_test(test_crafted_long),   cmocka_unit_test(test_unsupported_configs),
        cmocka_unit_test(test_norm),           cmocka_unit_test(test_long_tile_sequences),
#ifndef CUDA_EMULATED
        cmocka_unit_test(test_graph),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
