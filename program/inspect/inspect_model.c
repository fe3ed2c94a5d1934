/*
 * inspect_model.c - `frugrad inspect --model`: what a config would send of a model.
 *
 * The compressor reports its plan for each tensor, and a trial step on generated gradients, or on those of a file,
 * gives the bytes. The trial has no feedback, because sizes do not depend on it and memory does.
 *
 * A large model is tried in ranges of some million elements, so that only a part of the gradient exists at a time. A
 * range has whole attention modules, because their heads are sent together, and begins at a tensor that is compressed,
 * because adjacent dense tensors share a section: the bytes are then those of one frame for the whole model.
 */
#include "program/inspect/inspect_model.h"
#include "base/clock.h"
#include "program/args/args.h"
#include "program/bench/bench.h"
#include "io/files.h"
#include "program/compress/gradient_file.h"
#include "program/inspect/inspect.h"
#include "trainer/data/data_set.h"
#include "trainer/model/model.h"
#include "program/model/model_layouts.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANGE_ELEMENTS      ((uint64_t)1 << 24) /* elements of a trial range, where tensors allow */
#define SECTION_HEADER      48u                 /* docs/wire-format.md: by blocks, and by units */
#define UNIT_SECTION_HEADER 96u
#define BYTES_PER_ELEMENT   12u /* of a range: the gradient, the frame and selection buffers */

typedef struct trial {
    fgp_model_cost survey;
    fgp_gradient file;   /* of a model that is a file; otherwise only its layout is set */
    frug_config *config; /* without feedback */
    frug_compressor *compressor;
    float *grad;          /* of one range; NULL if the gradient of the file is used */
    unsigned char *frame; /* of one range */
    size_t cap;
    double start;       /* start time, for the progress line */
    int progress_shown; /* whether the progress line was printed */
} trial;

/* ---- the model --------------------------------------------------------------------- */

static int unknown_model(const char *name) {
    const char *names[64];
    const fgt_model_kind *kind;
    size_t count = 0, room = sizeof names / sizeof *names - 1;
    for (size_t i = 0; count < room && fgp_model_at(i) != NULL; i++)
        names[count++] = fgp_model_at(i);
    for (size_t i = 0; count < room && (kind = fgt_model_kind_at(i)) != NULL; i++)
        if (!fgp_model_known(kind->name))
            names[count++] = kind->name;
    names[count] = NULL;
    fgio_usage_error("inspect: --model: '%s' is neither a file nor the name of a model", name);
    fgio_hint_choices(name, names);
    return FGIO_EXIT_USAGE;
}

/* Whether the trainer has a model of that name, with or without options. */
static int is_trainer_model(const char *name) {
    const fgt_model_kind *kind;
    size_t length = strcspn(name, ":");
    for (size_t i = 0; (kind = fgt_model_kind_at(i)) != NULL; i++)
        if (strlen(kind->name) == length && strncmp(kind->name, name, length) == 0)
            return 1;
    return 0;
}

/* The tensors of a model of the trainer, as it is made for builtin data. */
static int trainer_layout(const char *name, frug_layout **layout) {
    fgt_model m;
    fgt_data *data = NULL;
    fgt_graph *graph = NULL;
    int code = fgt_model_parse(name, &m);
    if (code != FGIO_EXIT_OK)
        return code;
    fgt_data_options want = {.task = m.task,
                             .path = "builtin",
                             .length = m.length,
                             .channels = m.channels,
                             .height = m.height,
                             .width = m.width,
                             .classes = m.classes,
                             .vocab = m.vocab,
                             .samples = 16};
    code = fgt_data_open(&want, &data);
    if (code == FGIO_EXIT_OK)
        code = fgt_model_build(&m, fgt_data_get_info(data), 1, 1, &graph);
    if (code == FGIO_EXIT_OK)
        code = fgt_graph_layout(graph, layout);
    fgt_graph_destroy(graph);
    fgt_data_close(data);
    return code;
}

static int open_model(trial *t, const fgp_args *args) {
    fgp_heads heads;
    const char *name = t->survey.model;
    int code = fgp_heads_arg(args, &heads);
    if (code != FGIO_EXIT_OK)
        return code;
    if (!fgp_model_known(name)) {
        if (strcmp(name, "-") != 0 && access(name, F_OK) != 0 && heads.heads == 0 && is_trainer_model(name))
            return trainer_layout(name, &t->file.layout);
        if (strcmp(name, "-") != 0 && access(name, F_OK) != 0)
            return unknown_model(name);
        return fgp_gradient_load(name, FGP_FORMAT_AUTO, heads, &t->file);
    }
    if (heads.heads != 0)
        return fgio_usage_error("inspect: --heads is for files; %s knows its heads", name);
    return fgp_model_layout(name, &t->file.layout) == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error(name);
}

/* Options of the residual have no effect without one, so they get their defaults. */
#define NO_FEEDBACK ",feedback=none,beta=auto,hold=off,momentum=0.9,theta=0.1,mask=auto"

/* The config as given, for the plan, and the same without feedback, for the trial. */
static int open_config(trial *t, const char *text) {
    frug_config *given = NULL;
    char *without;
    if (frug_config_create(text, &given) != FRUG_OK)
        return fgio_config_error();
    size_t room = strlen(frug_config_text(given)) + sizeof NO_FEEDBACK;
    t->survey.config = strdup(frug_config_text(given));
    frug_config_destroy(given);
    if (t->survey.config == NULL || (without = malloc(room)) == NULL)
        return fgio_error("%s: not enough memory", t->survey.model);
    snprintf(without, room, "%s" NO_FEEDBACK, t->survey.config);
    frug_status status = frug_config_create(without, &t->config);
    free(without);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgio_config_error();
}

static uint64_t elements_of(const frug_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

static int make_plan(trial *t) {
    fgp_model_cost *survey = &t->survey;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = survey->steps;
    if (frug_compressor_create(t->config, t->file.layout, &options, &t->compressor) != FRUG_OK)
        return fgio_library_error(survey->model);
    survey->count = frug_layout_count(t->file.layout);
    survey->item = calloc(survey->count + 1, sizeof *survey->item);
    if (survey->item == NULL)
        return fgio_error("%s: not enough memory", survey->model);
    for (size_t i = 0; i < survey->count; i++) {
        fgp_tensor_cost *item = &survey->item[i];
        item->tensor.struct_size = sizeof item->tensor;
        item->plan.struct_size = sizeof item->plan;
        if (frug_layout_get(t->file.layout, i, &item->tensor) != FRUG_OK ||
            frug_compressor_plan(t->compressor, survey->step, i, &item->plan) != FRUG_OK)
            return fgio_library_error(survey->model);
        item->count = elements_of(&item->tensor);
        survey->parameters += item->count;
    }
    return FGIO_EXIT_OK;
}

/* ---- trial ranges ------------------------------------------------------------------------ */

/* The end (exclusive) of the range that begins at tensor `first`. Modules are numbered from 1 to count. */
static size_t range_end(const fgp_model_cost *survey, const size_t *last_of, size_t first, int whole) {
    size_t i = first, bound = first; /* tensors up to bound must be in */
    uint64_t elements = 0;
    for (; i < survey->count; i++) {
        const fgp_tensor_cost *item = &survey->item[i];
        if (i > bound && !whole && !item->plan.dense && elements + item->count > RANGE_ELEMENTS)
            break;
        size_t last = item->tensor.module <= survey->count ? last_of[item->tensor.module] : survey->count;
        bound = item->tensor.module != 0 && last > bound ? last : bound;
        elements += item->count;
    }
    return i;
}

static size_t *last_tensors(const fgp_model_cost *survey) {
    size_t *last_of = calloc(survey->count + 1, sizeof *last_of);
    for (size_t i = 0; last_of != NULL && i < survey->count; i++)
        if (survey->item[i].tensor.module <= survey->count)
            last_of[survey->item[i].tensor.module] = i;
    return last_of;
}

static uint64_t elements_in(const fgp_model_cost *survey, size_t first, size_t end) {
    const fgp_tensor_cost *last = &survey->item[end - 1];
    return last->tensor.offset + last->count - survey->item[first].tensor.offset;
}

/* Buffers for the longest range. */
static int allocate_buffers(trial *t, const size_t *last_of, int whole) {
    const fgp_model_cost *survey = &t->survey;
    uint64_t longest = 0;
    for (size_t first = 0, end; first < survey->count; first = end) {
        size_t bytes = 0;
        end = range_end(survey, last_of, first, whole);
        uint64_t count = elements_in(survey, first, end);
        if (frug_compressor_bound(t->compressor, (frug_range){survey->item[first].tensor.offset, count}, &bytes) !=
            FRUG_OK)
            return fgio_library_error(survey->model);
        longest = count > longest ? count : longest;
        t->cap = bytes > t->cap ? bytes : t->cap;
    }
    int code = fgp_check_memory(BYTES_PER_ELEMENT * (double)longest, survey->model,
                                whole ? "segment=all needs all of it at once" : "one of its tensors is that large");
    if (code != FGIO_EXIT_OK)
        return code;
    t->frame = malloc(t->cap);
    if (t->file.data == NULL)
        t->grad = malloc((size_t)longest * sizeof(float));
    if (t->frame == NULL || (t->file.data == NULL && t->grad == NULL))
        return fgio_error("%s: not enough memory", survey->model);
    return FGIO_EXIT_OK;
}

/* ---- sections of a frame ------------------------------------------------------------------ */

static const char *same_or_mixed(const char *before, const char *now) {
    return before == NULL || strcmp(before, now) == 0 ? now : "mixed";
}

static size_t code_of(const char *name) {
    for (size_t i = 0; i < FRUG_INDEX_CODES; i++)
        if (strcmp(frug_index_code_at(i), name) == 0)
            return i;
    return 0;
}

static void add_section(fgp_tensor_cost *item, const frug_section_info *s) {
    uint64_t used = s->index_bytes[code_of(s->index)];
    item->index = same_or_mixed(item->index, s->index);
    item->value = same_or_mixed(item->value, s->value);
    item->sections++;
    item->header += s->block == 0 ? UNIT_SECTION_HEADER : SECTION_HEADER;
    item->index_bytes += used == UINT64_MAX ? 0 : used;
    for (size_t i = 0; i < FRUG_INDEX_CODES; i++) {
        int cannot = s->index_bytes[i] == UINT64_MAX || item->by_code[i] == UINT64_MAX;
        item->by_code[i] = cannot ? UINT64_MAX : item->by_code[i] + s->index_bytes[i];
    }
    item->sent += s->selected;
    item->entries += s->entries;
    item->bytes += s->bytes;
}

/* A section of several dense tensors: each gets its share of the bytes, the first one the header. */
static void add_shared_section(fgp_model_cost *survey, const frug_section_info *s) {
    uint64_t payload = s->bytes - SECTION_HEADER, done = 0;
    for (size_t i = s->tensor; i < survey->count && done < s->range.count; i++) {
        fgp_tensor_cost *item = &survey->item[i];
        double before = (double)done / (double)s->range.count,
               after = (double)(done + item->count) / (double)s->range.count;
        item->index = s->index;
        item->value = s->value;
        item->sections += i == s->tensor;
        item->header += i == s->tensor ? SECTION_HEADER : 0;
        item->sent = item->entries = item->count;
        item->bytes += (uint64_t)(after * (double)payload + 0.5) - (uint64_t)(before * (double)payload + 0.5) +
                       (i == s->tensor ? SECTION_HEADER : 0);
        done += item->count;
    }
}

static int read_frame(trial *t, size_t len) {
    fgp_model_cost *survey = &t->survey;
    frug_frame_info info = {.struct_size = sizeof info};
    if (frug_frame_check(t->frame, len, &info) != FRUG_OK)
        return fgio_library_error(survey->model);
    for (uint32_t i = 0; i < info.sections; i++) {
        frug_section_info s = {.struct_size = sizeof s};
        if (frug_frame_section(t->frame, len, i, &s) != FRUG_OK || s.tensor >= survey->count)
            return fgio_library_error(survey->model);
        if (s.range.count > survey->item[s.tensor].count)
            add_shared_section(survey, &s);
        else
            add_section(&survey->item[s.tensor], &s);
    }
    survey->bytes += len - FGP_FRAME_HEADER;
    return FGIO_EXIT_OK;
}

/* ---- the trial ------------------------------------------------------------------------------ */

static void show_progress(trial *t, size_t first) {
    if (isatty(STDERR_FILENO) && frugi_clock() - t->start > 1.0)
        t->progress_shown = fprintf(stderr, "\rtrying tensor %zu of %zu", first + 1, t->survey.count) > 0;
}

static int try_range(trial *t, size_t first, size_t end) {
    const fgp_model_cost *survey = &t->survey;
    uint64_t begin = survey->item[first].tensor.offset, count = elements_in(survey, first, end);
    const float *grad = t->file.data != NULL ? t->file.data + begin : t->grad;
    size_t len = 0;
    show_progress(t, first);
    if (t->file.data == NULL)
        fgp_generate_gradient(FGP_DIST_GAUSSIAN, begin, count, t->grad);
    if (frug_compress(t->compressor, survey->step, (frug_range){begin, count}, grad, t->frame, t->cap, &len) != FRUG_OK)
        return fgio_library_error(survey->model);
    return read_frame(t, len);
}

static int try_all(trial *t) {
    int whole = strcmp(frug_config_get(t->config, "segment"), "all") == 0;
    size_t *last_of = last_tensors(&t->survey);
    int code =
        last_of == NULL ? fgio_error("%s: not enough memory", t->survey.model) : allocate_buffers(t, last_of, whole);
    t->start = frugi_clock();
    t->survey.bytes = FGP_FRAME_HEADER;
    for (size_t first = 0, end; first < t->survey.count && code == FGIO_EXIT_OK; first = end) {
        end = range_end(&t->survey, last_of, first, whole);
        code = try_range(t, first, end);
    }
    if (t->progress_shown)
        fprintf(stderr, "\r\033[K");
    free(last_of);
    return code;
}

static int survey_model(trial *t, const fgp_args *args, const char *config) {
    int code = FGIO_EXIT_OK;
    if (fgp_arg_given(args, "steps"))
        code = fgp_arg_u64(args, "steps", 1, INT64_MAX, &t->survey.steps);
    if (code == FGIO_EXIT_OK)
        code = fgp_arg_u64(args, "step", 0, INT64_MAX, &t->survey.step);
    if (code == FGIO_EXIT_OK)
        code = open_config(t, config);
    if (code == FGIO_EXIT_OK)
        code = open_model(t, args);
    if (code == FGIO_EXIT_OK)
        code = make_plan(t);
    return code == FGIO_EXIT_OK ? try_all(t) : code;
}

int fgp_inspect_model(const fgp_args *args, const char *config, int json) {
    trial t = {.survey = {.model = fgp_arg(args, "model")}};
    int code = survey_model(&t, args, config);
    if (code == FGIO_EXIT_OK)
        code = (json ? fgp_model_cost_json : fgp_model_cost_table)(&t.survey);
    frug_compressor_destroy(t.compressor);
    frug_config_destroy(t.config);
    fgp_gradient_free(&t.file);
    free(t.survey.config);
    free(t.survey.item);
    free(t.grad);
    free(t.frame);
    return code;
}
