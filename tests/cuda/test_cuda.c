/*
 * The GPU against the CPU, byte for byte: frames, residuals and sums, over every configuration there is a kernel for,
 * layouts with tails, gaps and dense tensors, and data with ties, NaN, infinities, denormals and nothing at all. And
 * frames that are not what they should be. Skipped (exit status 77) where there is no device; emulator/ runs a part of
 * it on a CPU.
 */
#include "scene.h"

#include "compress/exact_frame.h"

#include <string.h>

static void sum_both(scene *s, uint64_t step, int apply) {
    const void *cpu[WORKERS], *gpu[WORKERS];
    size_t lens[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        cpu[i] = s->w[i].cpu_frame;
        gpu[i] = s->w[i].gpu_frame;
        lens[i] = s->w[i].len;
    }
    for (uint64_t i = 0; i < s->n; i++)
        s->dst[i] = draw() % 9 ? sample(HEAVY) : -0.0f;
    to_device(s->gpu_dst, s->dst, s->n * sizeof(float));
    if (apply) {
        assert_int_equal(frug_apply(s->w[0].cpu, cpu, lens, WORKERS, 0.1f, 0.01f, 0, s->n, s->dst), FRUG_OK);
        assert_int_equal(frug_cuda_apply(s->w[0].gpu, step, gpu, WORKERS, 0.1f, 0.01f, 0, s->n, s->gpu_dst, NULL),
                         FRUG_OK);
    } else {
        assert_int_equal(frug_decompress_add(s->w[0].cpu, cpu, lens, WORKERS, 1.0f / 3, 0, s->n, s->dst), FRUG_OK);
        assert_int_equal(frug_cuda_decompress_add(s->w[0].gpu, step, gpu, WORKERS, 1.0f / 3, 0, s->n, s->gpu_dst, NULL),
                         FRUG_OK);
    }
    assert_int_equal(frug_cuda_verdict(s->w[0].gpu, NULL), FRUG_OK);
    from_device(s->back, s->gpu_dst, s->n * sizeof(float));
    assert_memory_equal(s->back, s->dst, s->n * sizeof(float));
}

/* Put some numbers back, of any size, and of some stretches none. */
static void keep_both(scene *s, worker *w, uint64_t step, uint64_t begin, uint64_t count, kind k) {
    for (uint64_t i = 0; i < count; i++) {
        bool none = (i / 300 + step) % 3 == 0;
        s->grad[i] = none ? 0.0f : sample(k == WILD ? HEAVY : k);
    }
    to_device(s->gpu_grad, s->grad, count * sizeof(float));
    frugi_residual_add(w->cpu, step, begin, count, s->grad);
    assert_int_equal(frug_cuda_keep(w->gpu, step, begin, count, s->gpu_grad, NULL), FRUG_OK);
}

static void parity(const char *text, int which) {
    scene s;
    open_scene(&s, text, which);
    for (int k = 0; k < KINDS; k++)
        for (uint64_t step = 0; step < STEPS; step += stride) {
            for (int i = 0; i < WORKERS; i++)
                compress_both(&s, &s.w[i], step, (kind)k);
            if (k != HUGE_ONES) /* sums of them overflow, which both do, but not always alike */
                sum_both(&s, step, (int)step % 2);
            keep_both(&s, &s.w[step % WORKERS], step, 0, s.n, (kind)k);
            compare_states(&s, &s.w[step % WORKERS]);
        }
    close_scene(&s);
}

static void test_parity(void **unused) {
    static const char *const values[] = {"f32", "bf16", "int8", "f16"}, *const residuals[] = {"f32", "bf16", "int8",
                                                                                              "int4"};
    static const char *const more[] = {"feedback=merged,min_size=600",
                                       "feedback=plain,select=exact,min_size=600", /* hist is what presets take */
                                       "feedback=merged,index=bitmap,schedule=constant:0.5,min_size=600",
                                       "feedback=plain,schedule=constant:0.99,min_size=1",
                                       "feedback=merged,schedule=frugrad:0.5:0.94:0.5,min_size=600",
                                       "feedback=plain,warmup=2,schedule=constant:0",
                                       "feedback=merged,schedule=constant:0.999,min_size=1",
                                       "feedback=merged,hold=auto,schedule=frugrad:0:0.94:0.5,min_size=600"};
    char text[160];
    (void)unused;
    for (int b = 64; b <= 256; b *= 2) {
        bool few = b < 256 && every > 1;
        for (int i = few ? b / 64 : 0; i < 4 * 4 * 8; i += few ? b / 64 * (4 * every + 3) : every) {
            int v = i / 32, r = i / 8 % 4, m = i % 8;
            snprintf(text, sizeof text, "frugrad,block=%d,value=%s,residual=%s,%s", b, values[v], residuals[r],
                     more[m]);
            parity(text, (v + r + m) % 2);
        }
    }
    parity("frugrad,value=int8,residual=f32,feedback=plain,schedule=constant:0.99,min_size=1", 2);
    for (int v = 0; v < 4; v++) {
        snprintf(text, sizeof text, "frugrad,value=%s,feedback=none,min_size=600", values[v]);
        parity(text, v % 2);
    }
    static const char *const whole[] = {"qsgd,min_size=600",
                                        "qsgd,min_size=600,levels=7,qnorm=max,bucket=64",
                                        "qsgd,min_size=600,levels=5,bucket=264,clip=20",
                                        "qsgd,min_size=1,levels=1,bucket=8,seed=77",
                                        "qsgd,min_size=600,levels=100,bucket=65536,qnorm=max,clip=1",
                                        "qsgd,min_size=600,levels=31,warmup=2,segment=tensor"};
    for (int i = 0; i < 6; i++)
        parity(whole[i], i % 2);
    parity("frugrad,clip=20,min_size=600", 0);
    parity("frugrad,clip=1e30,residual=f32,value=f32,feedback=plain", 1);
    parity("frugrad,block=64,clip=20,min_size=600", 1);
    parity("frugrad,block=128,value=f16,feedback=none,min_size=600", 0);
    parity("frugrad,block=64,value=int8,feedback=none,index=bitmap,schedule=constant:0.99,min_size=1", 1);
    parity("qsgd,block=64,min_size=600,levels=5,bucket=264,clip=20", 0);
}

/* As many blocks in a row as a warp ever takes: scales fill a group of the checksum, random numbers are drawn again. */
static void test_long_runs(void **unused) {
    static const char *const texts[] = {"frugrad,value=int8,residual=int8,feedback=merged,select=exact",
                                        "frugrad,value=f16,residual=int4,feedback=plain,schedule=constant:0.5",
                                        "frugrad,value=bf16,residual=bf16,feedback=plain,schedule=constant:0.999",
                                        "frugrad,block=64,value=int8,residual=int4,feedback=merged",
                                        "frugrad,block=128,value=f16,residual=bf16,select=exact,schedule=constant:0.7"};
    scene s;
    (void)unused;
    for (int i = 0; i < 5; i++) {
        open_scene(&s, texts[i], 3);
        for (uint64_t step = 0; step < 2; step++)
            compress_both(&s, &s.w[0], step, HEAVY);
        compare_states(&s, &s.w[0]);
        close_scene(&s);
    }
}

/* Ranges, as buckets are: each tensor by itself, at addresses of any alignment. */
static void ranges(scene *opened) {
    scene s = *opened;
    frug_tensor t = FRUG_TENSOR_INIT;
    size_t cpu_len, gpu_len;
    worker *w = &s.w[0];
    for (uint64_t i = 0; i < s.n; i++)
        s.grad[i] = sample(HEAVY);
    to_device(s.gpu_grad, s.grad, s.n * sizeof(float));
    for (uint64_t step = 0; step < STEPS; step++)
        for (size_t i = frug_layout_count(s.layout); i-- > 0;) {
            frug_layout_get(s.layout, i, &t);
            uint64_t count = t.ndim == 1 ? t.shape[0] : t.shape[0] * t.shape[1];
            assert_int_equal(
                frug_compress(w->cpu, step, t.offset, count, s.grad + t.offset, w->cpu_frame, s.room, &cpu_len),
                FRUG_OK);
            assert_int_equal(frug_cuda_compress(w->gpu, step, t.offset, count, s.gpu_grad + t.offset, w->gpu_frame + 4,
                                                s.room, &gpu_len, NULL),
                             FRUG_OK);
            assert_int_equal(cpu_len, gpu_len);
            from_device(s.back, w->gpu_frame + 4, gpu_len);
            assert_memory_equal(s.back, w->cpu_frame, gpu_len);
        }
}

static void test_ranges(void **unused) {
    scene s;
    size_t len;
    (void)unused;
    open_scene(&s, "frugrad", 0);
    worker *w = &s.w[0];
    ranges(&s);
    keep_both(&s, w, 7, 0, 16384 + 77, HEAVY);
    keep_both(&s, w, 8, 1024, 512, HEAVY); /* within a tensor */
    compare_states(&s, w);
    assert_int_equal(frug_cuda_keep(w->gpu, 9, 1000, 512, s.gpu_grad, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_cuda_keep(w->gpu, 9, 1024, 192, s.gpu_grad, NULL), FRUG_ERR_ARG);
    close_scene(&s);
    open_scene(&s, "frugrad,block=64,residual=int4", 0); /* stretches of other blocks than those of the whole tensor */
    w = &s.w[0];
    ranges(&s);
    keep_both(&s, w, 7, 0, 16384 + 77, HEAVY);
    keep_both(&s, w, 8, 1024 + 64, 512 - 64, HEAVY);
    compare_states(&s, w);
    assert_int_equal(frug_cuda_keep(w->gpu, 9, 1000, 512, s.gpu_grad, NULL), FRUG_ERR_ARG);
    close_scene(&s);
    open_scene(&s, "qsgd,clip=3", 0);
    ranges(&s);
    assert_int_equal(
        frug_cuda_compress(s.w[0].gpu, 9, 0, 1024, s.gpu_grad, s.w[0].gpu_frame, s.room, &len, NULL), /* not whole */
        FRUG_ERR_ARG);
    close_scene(&s);
}

/* The norm of ranges that begin and end within tensors and gaps, too. */
static void test_norm(void **unused) {
    scene s;
    double norm, *gpu_norm = on_device(sizeof norm);
    (void)unused;
    for (int which = 0; which < 3; which += 2) {
        open_scene(&s, "frugrad,clip=1", which);
        worker *w = &s.w[0];
        for (int k = 0; k < KINDS; k++)
            for (int part = 0; part < 3; part++) {
                uint64_t begin = part == 1 ? s.n / 3 : 0, count = part == 2 ? 0 : s.n - begin - (uint64_t)part * 5;
                for (uint64_t i = 0; i < count; i++)
                    s.grad[i] = sample((kind)k);
                to_device(s.gpu_grad, s.grad, count * sizeof(float));
                frugi_norm_take(w->cpu, begin, count, s.grad);
                assert_int_equal(frug_cuda_norm(w->gpu, begin, count, s.gpu_grad, gpu_norm, NULL), FRUG_OK);
                from_device(&norm, gpu_norm, sizeof norm);
                assert_memory_equal(&norm, &w->cpu->norm_here, sizeof norm);
                frugi_norm_drop(w->cpu);
            }
        assert_int_equal(frug_cuda_norm(w->gpu, 1, s.n, s.gpu_grad, gpu_norm, NULL), FRUG_ERR_ARG);
        close_scene(&s);
    }
    cudaFree(gpu_norm);
}

/* Damaged frames change nothing; the verdict says what was wrong, once. */
static void bad_frames(const char *text) {
    scene s;
    open_scene(&s, text, 0);
    for (int i = 0; i < WORKERS; i++)
        compress_both(&s, &s.w[i], 0, HEAVY);
    const void *gpu[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        gpu[i] = s.w[i].gpu_frame;
    memset(s.dst, 0, s.n * sizeof(float));
    for (int round = 0; round < 300; round += (int)stride) {
        size_t at = round < 200 ? (size_t)round : draw() % s.w[1].len;
        unsigned char good, bad;
        from_device(&good, s.w[1].gpu_frame + at, 1);
        bad = (unsigned char)(good ^ (1u << draw() % 8));
        to_device(s.w[1].gpu_frame + at, &bad, 1);
        to_device(s.gpu_dst, s.dst, s.n * sizeof(float));
        assert_int_equal(frug_cuda_decompress_add(s.w[0].gpu, 0, gpu, WORKERS, 1, 0, s.n, s.gpu_dst, NULL), FRUG_OK);
        assert_int_not_equal(frug_cuda_verdict(s.w[0].gpu, NULL), FRUG_OK);
        assert_int_equal(frug_cuda_verdict(s.w[0].gpu, NULL), FRUG_OK);
        from_device(s.back, s.gpu_dst, s.n * sizeof(float));
        assert_memory_equal(s.back, s.dst, s.n * sizeof(float));
        to_device(s.w[1].gpu_frame + at, &good, 1);
    }
    assert_int_equal(frug_cuda_decompress_add(s.w[0].gpu, 1, gpu, WORKERS, 1, 0, s.n, s.gpu_dst, NULL), FRUG_OK);
    assert_int_equal(frug_cuda_verdict(s.w[0].gpu, NULL), FRUG_ERR_MISMATCH); /* another step's */
    close_scene(&s);
}

static void test_bad_frames(void **unused) {
    (void)unused;
    bad_frames("frugrad");
    bad_frames("frugrad,block=64");
    bad_frames("qsgd,levels=5,bucket=264");
}

/* One vector that travels whole, so that its frame has about as many bytes as are asked for; at any address. */
typedef struct letter {
    frug_layout *layout;
    frug_cuda *gpu;
    uint64_t n;
    size_t len;
    unsigned char *room, *frame; /* on the device */
    float *gpu_dst;
} letter;

static void write_letter(letter *l, uint64_t n, size_t shift) {
    frug_config *config;
    frug_compressor *cpu;
    assert_int_equal(frug_layout_create(&l->layout), FRUG_OK);
    add(l->layout, "v", 1, 1, n, FRUG_APPEND);
    assert_int_equal(frug_config_create("frugrad,feedback=none", &config), FRUG_OK);
    assert_int_equal(frug_compressor_create(config, l->layout, NULL, &cpu), FRUG_OK);
    assert_int_equal(frug_cuda_create(config, l->layout, NULL, &l->gpu), FRUG_OK);
    size_t room = 4 * n + 256;
    unsigned char *frame = malloc(room);
    float *grad = malloc(n * sizeof *grad), *zeros = calloc(n, sizeof *zeros);
    for (uint64_t i = 0; i < n; i++)
        grad[i] = sample(HEAVY);
    assert_int_equal(frug_compress(cpu, 0, 0, n, grad, frame, room, &l->len), FRUG_OK);
    l->n = n;
    l->room = on_device(room + shift);
    l->frame = l->room + shift;
    l->gpu_dst = on_device(n * sizeof(float));
    to_device(l->frame, frame, l->len);
    to_device(l->gpu_dst, zeros, n * sizeof(float));
    free(frame);
    free(grad);
    free(zeros);
    frug_compressor_destroy(cpu);
    frug_config_destroy(config);
}

static frug_status read_letter(letter *l, size_t times) {
    const void *frames[64];
    for (size_t i = 0; i < times; i++)
        frames[i] = l->frame;
    assert_int_equal(frug_cuda_decompress_add(l->gpu, 0, frames, times, 1, 0, l->n, l->gpu_dst, NULL), FRUG_OK);
    return frug_cuda_verdict(l->gpu, NULL);
}

static void damage(letter *l, size_t at, size_t times) {
    unsigned char good, bad;
    from_device(&good, l->frame + at, 1);
    bad = (unsigned char)(good ^ (1u << draw() % 8));
    to_device(l->frame + at, &bad, 1);
    assert_int_equal(read_letter(l, times), FRUG_ERR_CHECKSUM);
    to_device(l->frame + at, &good, 1);
}

static void destroy_letter(letter *l) {
    frug_cuda_destroy(l->gpu);
    frug_layout_destroy(l->layout);
    cudaFree(l->room);
    cudaFree(l->gpu_dst);
}

/* Bodies that end a word or a line before, at and behind stretches of a warp, and several of them; any address. */
static void test_checksums(void **unused) {
    static const int stretches[] = {0, 1, 2, 7, 8, 9, 17}, ends[] = {-132, -128, -124, -4, 0, 4, 124, 128, 132};
    letter l;
    (void)unused;
    for (int i = 0; i<63; i += every> 1 ? 4 : 1) {
        size_t shift = 4 * (size_t)(i * 5 % 32), lead = (128 - (shift + 48) % 128) % 128;
        int64_t words = (stretches[i / 9] * 5120 + (int64_t)lead + ends[i % 9] - 48) / 4;
        write_letter(&l, words > 0 ? (uint64_t)words : (uint64_t)i + 1, shift);
        assert_int_equal(read_letter(&l, 1), FRUG_OK);
        assert_int_equal(read_letter(&l, 5), FRUG_OK);
        for (size_t at = 48 + 48; at < l.len; at += 1 + draw() % (l.len / 8))
            damage(&l, at, 5);
        damage(&l, l.len - 1 - draw() % 4, 1);
        destroy_letter(&l);
    }
    write_letter(&l, 100003, 36); /* of so many frames each warp gets several stretches, on any device */
    assert_int_equal(read_letter(&l, 64), FRUG_OK);
    for (int i = 0; i < 40; i++)
        damage(&l, 96 + draw() % (l.len - 96), i % 8 ? 1 : 64);
    destroy_letter(&l);
}

/* As a frame carries it: over all of it, with zeros in its own place. */
static void seal(unsigned char *frame, size_t len) {
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

/* Take a bit from a bitmap of so many bytes that has one, and set one of the next that has room. */
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
 * Frames that somebody made to be wrong, with the right checksum: weights stay as they are, sums stay within dst. A
 * byte becomes another; or, with -n, the bitmap of n bytes there hands a bit on to the next.
 */
static void crafted(const char *text, size_t at, int what, frug_status expected) {
    scene s;
    const void *gpu[WORKERS];
    state = 1; /* the frames go by no test that ran before */
    open_scene(&s, text, 0);
    for (int i = 0; i < WORKERS; i++) {
        compress_both(&s, &s.w[i], 0, HEAVY);
        gpu[i] = s.w[i].gpu_frame;
    }
    unsigned char *frame = s.w[3].cpu_frame;
    seal(frame, s.w[3].len);
    from_device(s.back, s.w[3].gpu_frame, s.w[3].len);
    assert_memory_equal(s.back, frame, s.w[3].len);
    if (what < 0)
        move_bit(frame + at, (size_t)-what);
    else
        assert_int_not_equal(frame[at], what), frame[at] = (unsigned char)what;
    seal(frame, s.w[3].len);
    to_device(s.w[3].gpu_frame, frame, s.w[3].len);
    memset(s.dst, 0, s.n * sizeof(float));
    to_device(s.gpu_dst, s.dst, s.n * sizeof(float));
    assert_int_equal(frug_cuda_apply(s.w[0].gpu, 0, gpu, WORKERS, 1, 0, 0, s.n, s.gpu_dst, NULL), FRUG_OK);
    assert_int_equal(frug_cuda_verdict(s.w[0].gpu, NULL), expected);
    from_device(s.back, s.gpu_dst, s.n * sizeof(float));
    assert_memory_equal(s.back, s.dst, s.n * sizeof(float));
    assert_int_equal(frug_cuda_decompress_add(s.w[0].gpu, 0, gpu, WORKERS, 1, 0, s.n, s.gpu_dst, NULL), FRUG_OK);
    assert_int_equal(frug_cuda_verdict(s.w[0].gpu, NULL), expected);
    close_scene(&s);
}

static void test_crafted_frames(void **unused) {
    const size_t payload = 96; /* frame and section have 48 bytes of header */
    (void)unused;
    for (int i = 0; i < 3;
         i++) { /* places of the first block that do not rise, by halves of a warp and whole; too many or few bits */
        static const char *const density[] = {"0.94", "0.9", "0.7"};
        char text[80];
        snprintf(text, sizeof text, "frugrad,value=f32,schedule=constant:%s", density[i]);
        crafted(text, payload, 255, FRUG_ERR_FORMAT);
        crafted(text, payload + 9, 0, FRUG_ERR_FORMAT);
    }
    crafted("frugrad,value=f32,schedule=constant:0.94", 48 + 4, 77, FRUG_ERR_MISMATCH);       /* another tensor */
    crafted("frugrad,value=int8,schedule=constant:0.94", payload + 1, 0x7f, FRUG_ERR_FORMAT); /* a scale beyond all */
    crafted("qsgd,levels=5", 48 + 4, 77, FRUG_ERR_MISMATCH);
    crafted("qsgd,levels=5", 48 + 96 + 3, 0xff, FRUG_ERR_FORMAT);                        /* a norm below nothing */
    crafted("qsgd,levels=5", 48 + 96 + 4 * 32, 0xff, FRUG_ERR_FORMAT);                   /* a level beyond the last */
    crafted("frugrad,value=f16,schedule=constant:0.94", payload, 0x7f, FRUG_ERR_FORMAT); /* a power beyond all */
    crafted("frugrad,value=f16,schedule=constant:0.7", payload, 0x7f, FRUG_ERR_FORMAT);  /* with bitmaps */
    crafted("frugrad,value=int8,schedule=constant:0.6", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    crafted("frugrad,value=bf16,schedule=constant:0.3", payload + 31, 0x00, FRUG_ERR_FORMAT); /* entries are missing */
}

/* Stretches of short blocks: places that would be right in the next block, blocks whose entries another one has. */
static void test_crafted_short(void **unused) {
    const size_t payload = 96;
    (void)unused;
    for (int i = 0; i < 3; i++) { /* up to 16, 32 and more entries of a stretch */
        static const char *const density[] = {"0.94", "0.88", "0.8,index=local"}, *const block[] = {"64", "64", "128"};
        char text[80];
        snprintf(text, sizeof text, "frugrad,block=%s,value=f32,schedule=constant:%s", block[i], density[i]);
        crafted(text, payload + 2, atoi(block[i]), FRUG_ERR_FORMAT);
        crafted(text, payload + 9, 0, FRUG_ERR_FORMAT);
        crafted(text, 48 + 3, 1, FRUG_ERR_MISMATCH); /* blocks of 256 and more */
    }
    crafted("frugrad,block=64,value=f32,schedule=constant:0.6", payload, -8, FRUG_ERR_FORMAT);
    crafted("frugrad,block=128,value=bf16,schedule=constant:0.4", payload, -16, FRUG_ERR_FORMAT);
    crafted("frugrad,block=64,value=int8,schedule=constant:0.94", payload + 2 * 3 + 1, 0x7f, FRUG_ERR_FORMAT);
    crafted("frugrad,block=128,value=f16,schedule=constant:0.94", payload + 1, 0x7f, FRUG_ERR_FORMAT);
    crafted("frugrad,block=64,value=f16,schedule=constant:0.7", payload + 3, 0x7f, FRUG_ERR_FORMAT);
}

static void test_refusals(void **unused) {
    static const char *const bad[] = {"dgc",
                                      "topk",
                                      "frugrad,value=int4",
                                      "frugrad,norm=follow",
                                      "frugrad,block=1024",
                                      "2:4",
                                      "frugrad,layers=sensitivity"};
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        frug_config *config;
        frug_layout *layout = make_layout(0);
        frug_cuda *gpu;
        assert_int_equal(frug_config_create(bad[i], &config), FRUG_OK);
        assert_int_equal(frug_cuda_create(config, layout, NULL, &gpu), FRUG_ERR_CONFIG);
        frug_config_destroy(config);
        frug_layout_destroy(layout);
    }
}

#ifndef CUDA_EMULATED
/* A captured call does what the call does. */
static void graph(const char *text) {
    scene s;
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t run;
    size_t len;
    open_scene(&s, text, 1);
    worker *w = &s.w[0];
    compress_both(&s, w, 0, HEAVY);
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    assert_int_equal(frug_cuda_compress(w->gpu, 1, 0, s.n, s.gpu_grad, w->gpu_frame, s.room, &len, stream), FRUG_OK);
    assert_int_equal(cudaStreamEndCapture(stream, &captured), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&run, captured, 0), cudaSuccess);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cudaGraphLaunch(run, stream), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(frug_compress(w->cpu, 1, 0, s.n, s.grad, w->cpu_frame, s.room, &len), FRUG_OK);
        from_device(s.back, w->gpu_frame, len);
        assert_memory_equal(s.back, w->cpu_frame, len);
    }
    cudaGraphExecDestroy(run);
    cudaGraphDestroy(captured);
    cudaStreamDestroy(stream);
    close_scene(&s);
}

static void test_graph(void **unused) {
    (void)unused;
    graph("frugrad,residual=f32");
    graph("qsgd,clip=1");
}
#endif

int main(void) {
    const char *thinned = getenv("FRUG_TEST_EVERY");
    int devices = 0;
    if (thinned && atoi(thinned) > 1)
        every = atoi(thinned), stride = 3, columns = 67;
    if (getenv("FRUG_TEST_LARGE"))
        tall *= 120; /* 62 M elements */
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        puts("test_cuda: no device here, all tests skipped");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksums),  cmocka_unit_test(test_parity),         cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bad_frames), cmocka_unit_test(test_crafted_frames), cmocka_unit_test(test_crafted_short),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_norm),           cmocka_unit_test(test_long_runs),
#ifndef CUDA_EMULATED
        cmocka_unit_test(test_graph),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
