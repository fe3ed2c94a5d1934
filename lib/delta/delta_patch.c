/*
 * delta_patch.c - apply a whole patch in place: all records of it or none.
 *
 * Everything that can be checked without the weights is checked first. Whether they are the base is known only when
 * they have been read; what was applied until then is taken back.
 */
#include "delta/delta_apply.h"

#include "base/alloc.h"
#include "base/struct_size.h"

#include <stdbool.h>
#include <stdlib.h>

/* A record of a patch and the weights it changes. */
typedef struct patch_step {
    frug_delta_info info;
    void *weights;
} patch_step;

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const frug_delta_tensor *const *)a)->name, (*(const frug_delta_tensor *const *)b)->name);
}

frug_status frug_delta_check(const void *patch, size_t len, frug_delta_totals *totals) {
    frug_delta_totals sums = {0, 0, 0};
    FRUG_FAIL_IF(!patch || !totals, FRUG_ERR_ARG, "frug_delta_check: an argument is NULL");
    for (size_t at = 0;;) {
        frug_delta_info info = {.struct_size = sizeof info};
        FRUG_FAIL_IF(at == len, FRUG_ERR_FORMAT, "delta: the patch has no end, it was cut off");
        FRUG_TRY(frug_delta_read((const unsigned char *)patch + at, len - at, &info));
        at += (size_t)info.bytes;
        if (info.kind != FRUG_DELTA_END) {
            frug_delta_add(&sums, &info);
            continue;
        }
        FRUG_FAIL_IF(at != len, FRUG_ERR_FORMAT, "delta: there are bytes behind the end of the patch");
        FRUG_FAIL_IF(info.entries != sums.records || info.base != sums.base || info.result != sums.result,
                     FRUG_ERR_FORMAT, "delta: records of the patch are missing or from another one");
        *totals = sums;
        return FRUG_OK;
    }
}

/* Find the weights of a record. */
static frug_status find_weights(patch_step *step, frug_delta_tensor *const *sorted, size_t count) {
    const frug_delta_info *info = &step->info;
    int shown = (int)(info->name_len < 80 ? info->name_len : 80);
    FRUG_FAIL_IF(info->kind != FRUG_DELTA_CHANGE, FRUG_ERR_MISMATCH,
                 "delta: the patch %s tensor '%.*s', which cannot be done in place",
                 info->kind == FRUG_DELTA_FULL ? "adds" : "removes", shown, info->name);
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(sorted[middle]->name, info->name, info->name_len);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const frug_delta_tensor *t = low < count ? sorted[low] : NULL;
    FRUG_FAIL_IF(!t || strncmp(t->name, info->name, info->name_len) != 0 || t->name[info->name_len], FRUG_ERR_MISMATCH,
                 "delta: the patch changes tensor '%.*s', which is not among the weights", shown, info->name);
    bool same = strcmp(t->dtype, info->dtype) == 0 && t->width == info->width && t->ndim == info->ndim &&
                memcmp(t->shape, info->shape, t->ndim * sizeof *t->shape) == 0;
    FRUG_FAIL_IF(!same, FRUG_ERR_MISMATCH,
                 "delta: tensor '%s' has another dtype or shape than in the patch, where it is %s", t->name,
                 info->dtype);
    step->weights = t->after;
    return FRUG_OK;
}

/* Whether a step before changes the same weights by a record like this one: tensors that share memory under two names.
 */
static bool is_repeated(const patch_step *steps, uint64_t used, const patch_step *step) {
    for (uint64_t i = 0; i < used; i++)
        if (steps[i].weights == step->weights && steps[i].info.count == step->info.count &&
            steps[i].info.base == step->info.base && steps[i].info.result == step->info.result)
            return true;
    return false;
}

/* Read the records of a checked patch and find their weights; headers of files are left out. */
static frug_status plan_steps(const unsigned char *patch, size_t len, frug_delta_tensor *const *sorted, size_t count,
                              patch_step *steps, uint64_t *used) {
    *used = 0;
    for (size_t at = 0; at < len;) {
        patch_step *step = &steps[*used];
        step->info = (frug_delta_info){.struct_size = sizeof step->info};
        FRUG_TRY(frug_delta_read(patch + at, len - at, &step->info));
        at += (size_t)step->info.bytes;
        if (step->info.kind == FRUG_DELTA_HEADER || step->info.kind == FRUG_DELTA_END)
            continue;
        FRUG_TRY(find_weights(step, sorted, count));
        *used += !is_repeated(steps, *used, step);
    }
    return FRUG_OK;
}

/* Apply all steps; if one fails, take back those before it. */
static frug_status apply_steps(const patch_step *steps, uint64_t used, int back, const frugi_delta_room *room) {
    for (uint64_t i = 0; i < used; i++) {
        char text[FRUGI_DELTA_ERROR_TEXT];
        frug_status status = frugi_delta_apply(&steps[i].info, back, room, steps[i].weights, steps[i].weights);
        if (status == FRUG_OK)
            continue;
        frugi_delta_keep_error(text);
        while (i-- > 0)
            (void)!frugi_delta_apply(&steps[i].info, !back, room, steps[i].weights, steps[i].weights);
        return frug_set_last_error(status, text);
    }
    return FRUG_OK;
}

static frug_status run_steps(const patch_step *steps, uint64_t used, int back, int threads) {
    frugi_delta_room room;
    uint64_t chunks = 0;
    for (uint64_t i = 0; i < used; i++) {
        uint64_t own = frugi_delta_chunks(steps[i].info.count);
        chunks = own > chunks ? own : chunks;
    }
    FRUG_TRY(frugi_delta_room_create(threads, chunks, &room));
    frug_status status = apply_steps(steps, used, back, &room);
    frugi_delta_room_free(&room);
    return status;
}

/* Copy the callers' structs, check them and sort them by name. */
static frug_status sort_tensors(const frug_delta_tensor *theirs, size_t count, frug_delta_tensor *tensors,
                                frug_delta_tensor **sorted) {
    const unsigned char *at = (const unsigned char *)theirs;
    for (size_t i = 0; i < count; i++) {
        uint64_t elements;
        FRUG_FAIL_IF(!frugi_struct_valid(at), FRUG_ERR_ARG, "delta: the struct_size of a tensor is not set");
        tensors[i] = (frug_delta_tensor)FRUG_DELTA_TENSOR_INIT;
        frugi_struct_read(&tensors[i], at);
        at += *(const size_t *)(const void *)at;
        sorted[i] = &tensors[i];
        FRUG_TRY(frugi_delta_check_tensor(&tensors[i], &elements));
        FRUG_FAIL_IF(elements > 0 && !tensors[i].after, FRUG_ERR_ARG, "delta: tensor '%.80s' has no weights",
                     tensors[i].name);
    }
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++)
        FRUG_FAIL_IF(strcmp(sorted[i - 1]->name, sorted[i]->name) == 0, FRUG_ERR_ARG,
                     "delta: two tensors are called '%.80s'", sorted[i]->name);
    return FRUG_OK;
}

frug_status frug_delta_apply_all(const void *patch, size_t len, frug_delta_direction direction,
                                 const frug_delta_tensor *theirs, size_t count, int threads) {
    frug_delta_totals totals;
    uint64_t used = 0;
    FRUG_FAIL_IF(!theirs && count, FRUG_ERR_ARG, "frug_delta_apply_all: tensors is NULL");
    FRUG_TRY(frug_delta_check(patch, len, &totals));
    patch_step *steps = frugi_malloc(((size_t)totals.records + 1) * sizeof *steps);
    frug_delta_tensor *tensors = frugi_malloc((count + 1) * sizeof *tensors);
    frug_delta_tensor **sorted = frugi_malloc((count + 1) * sizeof *sorted);
    frug_status status = steps && tensors && sorted ? sort_tensors(theirs, count, tensors, sorted)
                                                    : frugi_fail(FRUG_ERR_MEMORY, "delta: not enough memory");
    if (status == FRUG_OK)
        status = plan_steps(patch, len, sorted, count, steps, &used);
    if (status == FRUG_OK)
        status = run_steps(steps, used, direction == FRUG_DELTA_BACK, threads);
    frugi_free(sorted);
    frugi_free(tensors);
    frugi_free(steps);
    return status;
}
