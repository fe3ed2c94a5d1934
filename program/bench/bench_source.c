/*
 * bench_source.c - the gradients that bench uses.
 *
 * Four generated gradients are made once and repeat. Recorded ones are concatenated to fill the requested length, each
 * step into the same buffer before its round; they are played forward and backward, so that consecutive steps were
 * adjacent in training, at the same index, which a compressor that remembers thresholds depends on.
 */
#include "program/args/args.h"
#include "base/clock.h"
#include "program/bench/bench.h"
#include "io/safetensors.h"
#include "io/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATED 4u

/* Whether the machine has that much memory; if not, both amounts as text. */
static int has_memory(double need, char need_text[32], char have_text[32]) {
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    fgio_bytes_text((uint64_t)need, need_text, 32);
    fgio_bytes_text((uint64_t)have, have_text, 32);
    return need <= have;
}

int fgp_bench_check_memory(uint64_t n) {
    char need[32], have[32];
    if (has_memory(10.0 * sizeof(float) * (double)n, need, have))
        return FGIO_EXIT_OK;
    return fgio_error("%llu elements need about %s of memory, this machine has %s; give a smaller --n",
                      (unsigned long long)n, need, have);
}

int fgp_check_memory(double bytes, const char *what, const char *why) {
    char need[32], have[32];
    if (has_memory(bytes, need, have))
        return FGIO_EXIT_OK;
    fgio_error("%s: needs about %s of memory, this machine has %s", what, need, have);
    fgio_hint("%s", why);
    return FGIO_EXIT_FAIL;
}

static float *floats(uint64_t count) {
    return count > SIZE_MAX / sizeof(float) ? NULL : malloc((size_t)count * sizeof(float));
}

int fgp_source_generate(fgp_gradient_source *source, fgp_dist dist, uint64_t n) {
    *source = (fgp_gradient_source){.name = fgp_dist_names[dist], .n = n, .steps = GENERATED};
    source->grad = floats(GENERATED * n);
    if (!source->grad)
        return fgio_error("no memory for %u gradients of %llu elements", GENERATED, (unsigned long long)n);
    double start = frugi_clock();
    int noted = 0;
    for (unsigned i = 0; i < GENERATED; i++) {
        if (isatty(STDERR_FILENO) && frugi_clock() - start > 1.0)
            noted = fprintf(stderr, "\rgenerating gradient %u of %u", i + 1, GENERATED) > 0;
        fgp_generate_gradient(dist, i, n, source->grad + i * n);
    }
    if (noted)
        fprintf(stderr, "\r\033[K");
    return FGIO_EXIT_OK;
}

static int is_step(const fgio_tensor *item) {
    return strncmp(item->name, "step_", 5) == 0 && !strchr(item->name, '/') && fgio_tensor_is_float(item);
}

/* Count the steps and check that they have the same length. */
static int count_steps(fgp_gradient_source *source, const char *path, const fgio_safetensors *file) {
    for (size_t i = 0; i < file->count; i++) {
        const fgio_tensor *item = &file->item[i];
        if (!is_step(item))
            continue;
        if (source->steps++ == 0)
            source->length = item->count;
        if (item->count != source->length || item->count == 0)
            return fgio_error("%s: tensor %s has %llu elements, not %llu as the first step", path, item->name,
                              (unsigned long long)item->count, (unsigned long long)source->length);
    }
    if (source->steps >= 2)
        return FGIO_EXIT_OK;
    fgio_error("%s: fewer than two recorded steps (float tensors step_0000, step_0001, ...)", path);
    fgio_hint("lab/bench/record_gradients.py writes such files");
    return FGIO_EXIT_FAIL;
}

static int copy_steps(fgp_gradient_source *source, const char *path, const fgio_safetensors *file) {
    float *dst = source->recorded;
    for (size_t i = 0; i < file->count; i++) {
        if (!is_step(&file->item[i]))
            continue;
        fgio_tensor_to_f32(&file->item[i], dst);
        for (uint64_t j = 0; j < source->length; j++)
            if (!isfinite(dst[j]))
                return fgio_error("%s: tensor %s has a NaN or an infinity", path, file->item[i].name);
        dst += source->length;
    }
    return FGIO_EXIT_OK;
}

static int allocate_and_copy(fgp_gradient_source *source, const char *path, const fgio_safetensors *file) {
    int status = count_steps(source, path, file);
    if (status != FGIO_EXIT_OK)
        return status;
    source->recorded = floats(source->steps * source->length);
    source->grad = floats(source->n);
    if (!source->recorded || !source->grad)
        return fgio_error("no memory for the gradients of %s", path);
    return copy_steps(source, path, file);
}

int fgp_source_load(fgp_gradient_source *source, const char *path, uint64_t n) {
    *source = (fgp_gradient_source){.name = path, .n = n};
    fgio_bytes bytes;
    fgio_safetensors file;
    fgio_reason why;
    int status = fgio_file_read(path, &bytes);
    if (status != FGIO_EXIT_OK)
        return status;
    if (fgio_safetensors_parse(bytes.data, bytes.len, &file, &why) != 0) {
        status = fgio_error("%s: %s", path, why.text);
    } else {
        status = allocate_and_copy(source, path, &file);
        fgio_safetensors_free(&file);
    }
    fgio_bytes_free(&bytes);
    return status;
}

void fgp_source_close(fgp_gradient_source *source) {
    free(source->recorded);
    free(source->grad);
    *source = (fgp_gradient_source){0};
}

const float *fgp_source_step(fgp_gradient_source *source, uint64_t step) {
    if (!source->recorded)
        return source->grad + step % source->steps * source->n;
    uint64_t index = step % (2 * (source->steps - 1));
    if (index >= source->steps)
        index = 2 * (source->steps - 1) - index;
    const float *from = source->recorded + index * source->length;
    for (uint64_t begin = 0; begin < source->n; begin += source->length) {
        uint64_t left = source->n - begin;
        memcpy(source->grad + begin, from, (size_t)(left < source->length ? left : source->length) * sizeof(float));
    }
    return source->grad;
}
