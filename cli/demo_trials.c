/*
 * demo_trials.c - promises that `frugrad demo` tries on their own: damaged frames, a restart in the middle of
 * training, and the same bytes from every variant and number of threads. Each trial has its own
 * compressors, so that a broken one cannot hide behind another.
 */
#include "args.h"
#include "demo.h"
#include "say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_STEPS  2u
#define FLIPS        200u
#define VARIANTS_MAX 8u

/* ---- damage -------------------------------------------------------------------------- */

/* Whether bytes that are no frame are refused, the destination left alone. */
static int refused(frugi_demo *demo, frugi_worker *worker, size_t len) {
    const void *frame = worker->frame;
    return frug_decompress_add(worker->compressor, &frame, &len, 1, 1.0f, 0, demo->n, demo->restored) != FRUG_OK;
}

static void damage(frugi_demo *demo, frugi_worker *worker, char *why, size_t cap) {
    for (size_t i = 0; i < FLIPS && !why[0]; i++) {
        size_t at = i * (worker->len - 1) / (FLIPS - 1);
        unsigned char bit = (unsigned char)(1u << i % 8);
        worker->frame[at] ^= bit;
        if (!refused(demo, worker, worker->len))
            snprintf(why, cap, "a flipped bit in byte %zu was not noticed", at);
        worker->frame[at] ^= bit;
    }
    for (size_t len = worker->len - 1; len > 0 && !why[0]; len /= 2)
        if (!refused(demo, worker, len))
            snprintf(why, cap, "a frame cut to %zu bytes was taken", len);
}

int frugi_demo_damage(frugi_demo *demo) {
    frugi_worker worker;
    char why[128] = "";
    int status = frugi_worker_open(&worker, demo->config, demo->n, 0);
    if (status == FRUGI_EXIT_OK)
        status = frugi_worker_step(&worker, 0, frugi_demo_gradient(demo, 0));
    if (status == FRUGI_EXIT_OK) {
        for (uint64_t i = 0; i < demo->n; i++)
            demo->restored[i] = 1.0f;
        damage(demo, &worker, why, sizeof why);
        for (uint64_t i = 0; i < demo->n && !why[0]; i++)
            if (demo->restored[i] < 1.0f || demo->restored[i] > 1.0f)
                snprintf(why, sizeof why, "a damaged frame changed the destination");
        frugi_demo_tell(demo, why,
                        "damaged frames are refused before they change anything (200 flipped bits, cut ends)");
    }
    frugi_worker_close(&worker);
    return status;
}

/* ---- restart --------------------------------------------------------------------------- */

static int hand_over(frugi_worker *from, frugi_worker *to) {
    size_t cap = frug_compressor_state_size(from->compressor), len = 0;
    unsigned char *state = malloc(cap ? cap : 1);
    if (!state)
        return frugi_error("no memory for a saved state of %zu bytes", cap);
    int ok = frug_compressor_save(from->compressor, state, cap, &len) == FRUG_OK &&
             frug_compressor_restore(to->compressor, state, len) == FRUG_OK;
    free(state);
    return ok ? FRUGI_EXIT_OK : frugi_library_error("cannot save and restore");
}

static int same_frame(const frugi_worker *a, const frugi_worker *b) {
    return a->len == b->len && memcmp(a->frame, b->frame, a->len) == 0;
}

/* Steps 0 and 1 with one compressor, then step 2 with it and with one that took up its saved state. */
int frugi_demo_restart(frugi_demo *demo) {
    frugi_worker first, second = {0};
    int status = frugi_worker_open(&first, demo->config, demo->n, 0);
    if (status == FRUGI_EXIT_OK)
        status = frugi_worker_open(&second, demo->config, demo->n, 0);
    for (uint64_t step = 0; step < TRIAL_STEPS && status == FRUGI_EXIT_OK; step++)
        status = frugi_worker_step(&first, step, frugi_demo_gradient(demo, step));
    if (status == FRUGI_EXIT_OK)
        status = hand_over(&first, &second);
    if (status == FRUGI_EXIT_OK)
        status = frugi_worker_step(&first, TRIAL_STEPS, frugi_demo_gradient(demo, TRIAL_STEPS));
    if (status == FRUGI_EXIT_OK)
        status = frugi_worker_step(&second, TRIAL_STEPS, demo->grad);
    if (status == FRUGI_EXIT_OK)
        frugi_demo_tell(demo, same_frame(&first, &second) ? "" : "the bytes differ",
                        "after save and restore the next step gives the same bytes");
    frugi_worker_close(&second);
    frugi_worker_close(&first);
    return status;
}

/* ---- threads and variants ----------------------------------------------------------------- */

/* The variant is read from the environment when a compressor is made. */
static int open_variant(frugi_worker *worker, const frugi_demo *demo, const char *isa) {
    if (setenv("FRUG_ISA", isa, 1) != 0)
        return frugi_error("no memory to set FRUG_ISA");
    const char *chosen = frug_isa();
    if (!chosen || strcmp(chosen, isa) != 0)
        return frugi_error("FRUG_ISA=%s has no effect", isa);
    return frugi_worker_open(worker, demo->config, demo->n, 0);
}

static int open_all(frugi_worker *worker, const frugi_demo *demo, size_t *count) {
    char *before = getenv("FRUG_ISA") ? strdup(getenv("FRUG_ISA")) : NULL;
    int status = frugi_worker_open(&worker[(*count)++], demo->config, demo->n, 1);
    for (size_t i = 0; frug_isa_at(i) && *count < VARIANTS_MAX && status == FRUGI_EXIT_OK; i++)
        status = open_variant(&worker[(*count)++], demo, frug_isa_at(i));
    if (before)
        setenv("FRUG_ISA", before, 1);
    else
        unsetenv("FRUG_ISA");
    free(before);
    return status;
}

static int compare_all(frugi_demo *demo, frugi_worker *worker, size_t count) {
    char why[128] = "", promise[200];
    size_t used = (size_t)snprintf(promise, sizeof promise, "one thread, all threads and every variant of this CPU (");
    for (uint64_t step = 0; step < TRIAL_STEPS; step++) {
        const float *grad = frugi_demo_gradient(demo, step);
        for (size_t i = 0; i < count; i++) {
            int status = frugi_worker_step(&worker[i], step, grad);
            if (status != FRUGI_EXIT_OK)
                return status;
            if (!why[0] && !same_frame(&worker[0], &worker[i]))
                snprintf(why, sizeof why, "%s with all threads differs from one thread of the chosen variant",
                         frug_isa_at(i - 1));
        }
    }
    for (size_t i = 0; i + 1 < count; i++)
        used += (size_t)snprintf(promise + used, sizeof promise - used, "%s%s", i ? ", " : "", frug_isa_at(i));
    snprintf(promise + used, sizeof promise - used, ") give the same bytes");
    frugi_demo_tell(demo, why, promise);
    return FRUGI_EXIT_OK;
}

int frugi_demo_same_bytes(frugi_demo *demo) {
    frugi_worker worker[VARIANTS_MAX];
    size_t count = 0;
    memset(worker, 0, sizeof worker);
    int status = open_all(worker, demo, &count);
    if (status == FRUGI_EXIT_OK)
        status = compare_all(demo, worker, count);
    for (size_t i = 0; i < count; i++)
        frugi_worker_close(&worker[i]);
    return status;
}
