/*
 * cuda_variants.c - times one build of libfrugrad_cuda: cuda_variants.sh runs it for each.
 *
 * Medians of device events, in microseconds, behind other work on the stream ("queued": the host's part is hidden) and
 * on an idle one ("idle": as bench/cuda.py times it, with the host's part in front).
 */
#include "frugrad_cuda.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 25600000 / 1024 * 1024, ROUNDS = 21, FRAMES = 8 };

static float *grad, *other;
static unsigned char *frame[FRAMES];
static frug_cuda *c;
static size_t len, room;
static uint64_t step;
static const char *name;

static void must(int failed, const char *what) {
    if (failed) {
        fprintf(stderr, "%s: %s: %s\n", name, what, frug_last_error());
        exit(1);
    }
}

static void copy(void) {
    cudaMemcpyAsync(other, grad, N * sizeof(float), cudaMemcpyDeviceToDevice, NULL);
}

static void compress(void) {
    must(frug_cuda_compress(c, step++, 0, N, grad, frame[0], room, &len, NULL), "compress");
}

static void add(void) {
    const void *frames[FRAMES];
    for (int i = 0; i < FRAMES; i++)
        frames[i] = frame[i];
    must(frug_cuda_decompress_add(c, 0, frames, FRAMES, 0.125f, 0, N, other, NULL), "add");
}

static int by_size(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static float timed(void (*work)(void), int queued) {
    float t[ROUNDS];
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = -3; i < ROUNDS; i++) {
        for (int j = 0; queued && j < 3; j++)
            copy();
        cudaEventRecord(begin, NULL);
        work();
        cudaEventRecord(end, NULL);
        must(cudaEventSynchronize(end) != cudaSuccess, cudaGetErrorString(cudaGetLastError()));
        if (i >= 0)
            cudaEventElapsedTime(&t[i], begin, end);
    }
    qsort(t, ROUNDS, sizeof *t, by_size);
    return 1e3f * t[ROUNDS / 2];
}

static void open_case(const char *text) {
    frug_config *config;
    frug_layout *layout;
    frug_tensor t = FRUG_TENSOR_INIT;
    frug_options options = FRUG_OPTIONS_INIT;
    t.name = "w";
    t.ndim = 2;
    t.shape[0] = N / 1024;
    t.shape[1] = 1024;
    must(frug_layout_create(&layout) || frug_layout_add(layout, &t), "layout");
    must(frug_config_create(text, &config), "config");
    must(frug_cuda_create(config, layout, &options, &c), "create");
    must(frug_cuda_bound(c, 0, N, &room), "bound");
    for (int i = 0; i < FRAMES; i++) {
        must(cudaMalloc((void **)&frame[i], room) != cudaSuccess, "memory");
        must(frug_cuda_compress(c, 0, 0, N, grad, frame[i], room, &len, NULL), "compress");
    }
    step = 0;
    frug_config_destroy(config);
    frug_layout_destroy(layout);
}

static void close_case(void) {
    frug_cuda_destroy(c);
    for (int i = 0; i < FRAMES; i++)
        cudaFree(frame[i]);
}

/* Sums of four uniform numbers; blocks differ in size as those of layers do. */
static void make_gradient(void) {
    float *x = malloc(N * sizeof *x);
    uint64_t s = 88172645463325252u;
    must(!x, "memory");
    for (size_t i = 0; i < N; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = (float)((int)(s & 0xffff) + (int)(s >> 16 & 0xffff) + (int)(s >> 32 & 0xffff) + (int)(s >> 48) - 131070);
    }
    must(cudaMalloc((void **)&grad, N * sizeof *x) != cudaSuccess ||
             cudaMalloc((void **)&other, N * sizeof *x) != cudaSuccess,
         "memory");
    cudaMemcpy(grad, x, N * sizeof *x, cudaMemcpyHostToDevice);
    cudaMemset(other, 0, N * sizeof *x);
    free(x);
}

int main(int argc, char **argv) {
    static const char *const kinds[][2] = {{"f32", "f32"}, {"f32", "bf16"}, {"int8", "bf16"}};
    static const int ks[] = {4, 16, 64, 128};
    char text[160];
    name = argc > 1 ? argv[1] : "";
    make_gradient();
    float idle = timed(copy, 0), queued = timed(copy, 1);
    printf("%-24s copy: idle %.1f queued %.1f\n", name, idle, queued);
    for (size_t kind = 0; kind < 3; kind++)
        for (int i = 0; i < 4; i++) {
            snprintf(text, sizeof text, "frugrad,residual=%s,value=%s,schedule=constant:%.6f", kinds[kind][0],
                     kinds[kind][1], 1 - ks[i] / 256.0);
            open_case(text);
            double bytes = N * (kind < 2 ? 12.0 : 6.0) + (double)len;
            float a = timed(compress, 0), b = timed(compress, 1), d = timed(add, 0), e = timed(add, 1);
            must(frug_cuda_verdict(c, NULL), "verdict");
            printf("%-24s %4s/%-4s K %3d  compress idle %6.1f (%.2f) queued %6.1f (%.2f of the limit)  add8 idle %6.1f "
                   "queued %6.1f\n",
                   name, kinds[kind][0], kinds[kind][1], ks[i], a, idle * bytes / (8.0 * N) / a, b,
                   queued * bytes / (8.0 * N) / b, d, e);
            close_case();
        }
    return 0;
}
