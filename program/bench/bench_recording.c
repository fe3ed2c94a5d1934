/*
 * bench_recording.c - recorded gradients: safetensors files with tensors "<step>/<name>".
 *
 * `frugrad finetune --record` and lab/bench/record_gradients.py write them. Names are sorted into one stream per
 * tensor, with its steps in order; data is read one stream at a time, so a recording may be larger than memory.
 */
#include "program/bench/bench.h"
#include "program/bench/bench_gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_LEAST 4u

/* Split "<step>/<name>". Returns 0 if the name has another form. */
static int split_name(const char *text, uint64_t *step, const char **name) {
    size_t digits = strspn(text, "0123456789");
    *step = 0;
    if (digits == 0 || digits > 18 || text[digits] != '/' || text[digits + 1] == '\0')
        return 0;
    for (size_t i = 0; i < digits; i++)
        *step = 10 * *step + (uint64_t)(text[i] - '0');
    *name = text + digits + 1;
    return 1;
}

static int compare_name_and_step(const void *a, const void *b) {
    const fgio_tensor *const *x = a, *const *y = b;
    const char *x_name = NULL, *y_name = NULL;
    uint64_t x_step = 0, y_step = 0;
    split_name((*x)->name, &x_step, &x_name);
    split_name((*y)->name, &y_step, &y_name);
    int order = strcmp(x_name, y_name);
    return order != 0 ? order : (x_step > y_step) - (x_step < y_step);
}

static int check_item(const char *path, const fgio_tensor *item) {
    const char *name = NULL;
    char shown[80];
    uint64_t step = 0;
    fgio_printable(item->name, shown, sizeof shown);
    if (!split_name(item->name, &step, &name)) {
        fgio_error("%s: tensor %s is not named <step>/<name>", path, shown);
        fgio_hint("frugrad finetune --record and lab/bench/record_gradients.py --tensors write such files");
        return FGIO_EXIT_FAIL;
    }
    if (!fgio_tensor_is_float(item))
        return fgio_error("%s: tensor %s has no float elements", path, shown);
    if (item->count >= UINT32_MAX)
        return fgio_error("%s: tensor %s has too many elements", path, shown);
    return FGIO_EXIT_OK;
}

/* Whether an item belongs to a stream: 1, 0 for another tensor, -1 for an inconsistent recording. */
static int belongs_to_stream(const fgp_recording *recording, const fgp_recorded *stream, const fgio_tensor *item) {
    const char *name = NULL, *last_name = NULL;
    char shown[80];
    uint64_t step = 0, last = 0;
    split_name(item->name, &step, &name);
    split_name(stream->item[stream->steps - 1]->name, &last, &last_name);
    if (strcmp(name, stream->name) != 0)
        return 0;
    char shape[128], before[128];
    fgio_printable(item->name, shown, sizeof shown);
    if (step == last)
        fgio_error("%s: tensor %s is there twice", recording->file.path, shown);
    else if (item->ndim != stream->first->ndim ||
             memcmp(item->shape, stream->first->shape, item->ndim * sizeof *item->shape) != 0)
        fgio_error("%s: tensor %s has shape %s, but %s at the first step", recording->file.path, shown,
                   fgio_shape_text(item->ndim, item->shape, shape, sizeof shape),
                   fgio_shape_text(stream->first->ndim, stream->first->shape, before, sizeof before));
    else
        return 1;
    return -1;
}

static int sort_streams(fgp_recording *recording) {
    const size_t items = recording->file.head.count;
    for (size_t i = 0; i < items;) {
        fgp_recorded stream = {.first = recording->item[i], .item = &recording->item[i], .steps = 1};
        uint64_t step = 0;
        int more = 1;
        split_name(stream.first->name, &step, &stream.name);
        stream.d = stream.first->count;
        while (i + stream.steps < items &&
               (more = belongs_to_stream(recording, &stream, recording->item[i + stream.steps])) > 0)
            stream.steps++;
        if (more < 0)
            return FGIO_EXIT_FAIL;
        if (stream.first->ndim >= 2 && stream.d >= FGP_MIN_TENSOR && stream.steps >= STEPS_LEAST)
            recording->stream[recording->count++] = stream;
        else
            recording->left_out++;
        i += stream.steps;
    }
    if (recording->count)
        return FGIO_EXIT_OK;
    return fgio_error("%s: no matrix of %u elements or more has %u steps or more", recording->file.path, FGP_MIN_TENSOR,
                      STEPS_LEAST);
}

int fgp_recording_open(const char *path, fgp_recording *recording) {
    *recording = (fgp_recording){.file = FGIO_TENSOR_FILE_CLOSED};
    int status = fgio_tensor_file_open(path, &recording->file);
    if (status != FGIO_EXIT_OK)
        return status;
    const fgio_safetensors *head = &recording->file.head;
    recording->item = malloc((head->count + 1) * sizeof *recording->item);
    recording->stream = malloc((head->count + 1) * sizeof *recording->stream);
    if (!recording->item || !recording->stream)
        return fgio_error("no memory for the names in %s", path);
    for (size_t i = 0; i < head->count; i++) {
        if ((status = check_item(path, &head->item[i])) != FGIO_EXIT_OK)
            return status;
        recording->item[i] = &head->item[i];
    }
    qsort(recording->item, head->count, sizeof *recording->item, compare_name_and_step);
    return sort_streams(recording);
}

void fgp_recording_close(fgp_recording *recording) {
    free(recording->item);
    free(recording->stream);
    fgio_tensor_file_close(&recording->file);
}

int fgp_recorded_load(const fgp_recording *recording, const fgp_recorded *stream, size_t steps, float **grad) {
    int status = fgp_check_memory((double)steps * (double)stream->d * sizeof(float) + 80.0 * (double)stream->d,
                                  recording->file.path, "record fewer steps, or fewer tensors");
    if (status != FGIO_EXIT_OK)
        return status;
    float *all = malloc(steps * (size_t)stream->d * sizeof *all);
    if (!all)
        return fgio_error("no memory for %zu gradients of %s", steps, recording->file.path);
    for (size_t t = 0; t < steps && status == FGIO_EXIT_OK; t++) {
        float *x = all + t * stream->d;
        status = fgio_tensor_file_read_f32(&recording->file, stream->item[t], x);
        for (uint64_t i = 0; i < stream->d && status == FGIO_EXIT_OK; i++)
            if (!(fabsf(x[i]) < 0x1p40f)) /* optimizers skip these */
                status = fgio_error("%s: tensor %s has a NaN, an infinity or a number of 2^40 or more",
                                    recording->file.path, stream->item[t]->name);
    }
    if (status == FGIO_EXIT_OK)
        *grad = all;
    else
        free(all);
    return status;
}
