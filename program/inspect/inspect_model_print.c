/* inspect_model_print.c - what is sent of a model as two tables, selection and bytes, or as JSON. */
#include "program/args/args.h"
#include "program/inspect/inspect_model.h"
#include "io/json.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t value_bytes(const fgp_tensor_cost *item) {
    return item->bytes - item->header - item->index_bytes;
}

static double ratio(uint64_t elements, uint64_t bytes) {
    return bytes > 0 ? 4.0 * (double)elements / (double)bytes : 0;
}

static double bits_each(const fgp_model_cost *survey) {
    return survey->parameters > 0 ? 8.0 * (double)survey->bytes / (double)survey->parameters : 0;
}

/* ---- tables ------------------------------------------------------------------------- */

/* A name that is too long is cut: first ".weight", then its beginning, because layers differ at the end. */
static const char *fit_name(const char *name, char *dst, size_t width) {
    static const char ending[] = ".weight";
    char whole[512];
    fgio_printable(name, whole, sizeof whole);
    size_t length = strlen(whole), tail = sizeof ending - 1;
    if (length > width && length > tail && strcmp(whole + length - tail, ending) == 0)
        whole[length -= tail] = '\0';
    if (length <= width)
        snprintf(dst, width + 1, "%s", whole);
    else
        snprintf(dst, width + 1, "..%s", whole + length - (width - 2));
    return dst;
}

static const char *shape_text(const frug_tensor *tensor, char *dst, size_t cap) {
    size_t at = 0;
    dst[0] = '\0';
    for (uint32_t d = 0; d < tensor->ndim && at < cap; d++)
        at += (size_t)snprintf(dst + at, cap - at, "%s%" PRIu64, d > 0 ? "x" : "", tensor->shape[d]);
    return dst;
}

static const char *unit_text(const frug_tensor_plan *plan, char *dst, size_t cap) {
    if (plan->unit_h * plan->unit_w <= 1)
        snprintf(dst, cap, "%s", plan->unit);
    else
        snprintf(dst, cap, "%s %" PRIu64 "x%" PRIu64, plan->unit, plan->unit_h, plan->unit_w);
    return dst;
}

static void print_selection(const fgp_tensor_cost *item) {
    char name[40], shape[64], unit[64], segments[24] = "shared";
    const frug_tensor_plan *plan = &item->plan;
    if (plan->segments > 0)
        snprintf(segments, sizeof segments, "%" PRIu64, plan->segments);
    printf("%-36s %-15s %-9s %-14s %10" PRIu64 " %8s %10" PRIu64 " %10" PRIu64 "\n",
           fit_name(item->tensor.name, name, 36), shape_text(&item->tensor, shape, sizeof shape),
           frug_role_name(item->tensor.role), unit_text(plan, unit, sizeof unit), plan->units, segments, plan->selected,
           item->sent);
}

/* The columns of the second table: index codes that can encode the indices of at least one tensor. */
typedef struct columns {
    int shown[FRUG_INDEX_CODES];
    size_t name; /* width of the first column, which gets the space of hidden ones */
} columns;

static columns select_columns(const fgp_model_cost *survey) {
    columns c = {.name = 26 + 10 * (FRUG_INDEX_CODES - 2)}; /* two codes take no bytes and have no column */
    for (size_t code = 0; code < FRUG_INDEX_CODES; code++) {
        const char *word = frug_index_code_at(code);
        int takes_bytes = strcmp(word, "none") != 0 && strcmp(word, "seeded") != 0;
        for (size_t i = 0; i < survey->count && takes_bytes; i++)
            c.shown[code] |= !survey->item[i].plan.dense && survey->item[i].by_code[code] != UINT64_MAX;
        c.name -= c.shown[code] ? 10 : 0;
    }
    return c;
}

static void print_bytes(const columns *c, const char *name, const fgp_tensor_cost *item) {
    printf("%-*s %-6s", (int)c->name, name, item->index == NULL ? "" : item->index);
    for (size_t code = 0; code < FRUG_INDEX_CODES; code++) {
        char text[24] = "";
        if (!c->shown[code])
            continue;
        if (item->index != NULL && item->by_code[code] == UINT64_MAX)
            snprintf(text, sizeof text, "-");
        else if (item->index != NULL)
            snprintf(text, sizeof text, "%" PRIu64, item->by_code[code]);
        printf(" %8s%c", text, item->index != NULL && strcmp(item->index, frug_index_code_at(code)) == 0 ? '*' : ' ');
    }
    printf(" %9" PRIu64 " %9" PRIu64 " %6.1f\n", value_bytes(item), item->bytes, ratio(item->count, item->bytes));
}

static void add_totals(fgp_tensor_cost *sum, const fgp_tensor_cost *item) {
    sum->count += item->count;
    sum->header += item->header;
    sum->index_bytes += item->index_bytes;
    sum->bytes += item->bytes;
}

static void print_byte_table(const fgp_model_cost *survey, size_t dense_tensors) {
    fgp_tensor_cost all = {.bytes = FGP_FRAME_HEADER, .header = FGP_FRAME_HEADER}, dense = {0};
    columns c = select_columns(survey);
    char name[128];
    printf("\n%-*s %-6s", (int)c.name, "bytes by index code", "index");
    for (size_t code = 0; code < FRUG_INDEX_CODES; code++)
        if (c.shown[code])
            printf(" %8s ", frug_index_code_at(code));
    printf(" %9s %9s %6s\n", "values", "all", "ratio");
    for (size_t i = 0; i < survey->count; i++) {
        add_totals(&all, &survey->item[i]);
        if (survey->item[i].plan.dense)
            add_totals(&dense, &survey->item[i]);
        else
            print_bytes(&c, fit_name(survey->item[i].tensor.name, name, c.name), &survey->item[i]);
    }
    if (dense_tensors > 0) {
        snprintf(name, sizeof name, "%zu dense tensors", dense_tensors);
        print_bytes(&c, name, &dense);
    }
    print_bytes(&c, "total", &all);
}

int fgp_model_cost_table(const fgp_model_cost *survey) {
    char dense_text[32], bytes[32];
    uint64_t dense_elements = 0;
    size_t dense = 0;
    printf("%-36s %-15s %-9s %-14s %10s %8s %10s %10s\n", "tensor", "shape", "role", "unit", "units", "segments", "k",
           "sent");
    for (size_t i = 0; i < survey->count; i++) {
        if (survey->item[i].plan.dense) {
            dense++;
            dense_elements += survey->item[i].count;
        } else {
            print_selection(&survey->item[i]);
        }
    }
    if (dense > 0)
        printf("and %zu tensors of %" PRIu64 " elements together that are sent dense\n", dense, dense_elements);
    print_byte_table(survey, dense);
    printf("\n%s: %" PRIu64 " parameters, %s dense, %s sent: ratio %.1f : 1, %.3f bits per parameter\n", survey->model,
           survey->parameters, fgio_bytes_text(4 * survey->parameters, dense_text, sizeof dense_text),
           fgio_bytes_text(survey->bytes, bytes, sizeof bytes), ratio(survey->parameters, survey->bytes),
           bits_each(survey));
    return FGIO_EXIT_OK;
}

/* ---- JSON ------------------------------------------------------------------------------ */

static json_t *shape_json(const frug_tensor *tensor) {
    json_t *array = json_array();
    for (uint32_t d = 0; d < tensor->ndim; d++)
        json_array_append_new(array, json_integer((json_int_t)tensor->shape[d]));
    return array;
}

static json_t *codes_json(const fgp_tensor_cost *item) {
    json_t *object = json_object();
    for (size_t i = 0; i < FRUG_INDEX_CODES; i++)
        json_object_set_new(object, frug_index_code_at(i),
                            item->by_code[i] == UINT64_MAX ? json_null() : json_integer((json_int_t)item->by_code[i]));
    return object;
}

static json_t *plan_json(const frug_tensor_plan *plan) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "unit", plan->unit, "unit_h", (json_int_t)plan->unit_h,
                     "unit_w", (json_int_t)plan->unit_w, "units", (json_int_t)plan->units, "segments",
                     (json_int_t)plan->segments, "k", (json_int_t)plan->selected, "density",
                     fgio_json_real(plan->density));
}

static json_t *tensor_json(const fgp_tensor_cost *item) {
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "tensor",
        fgio_json_text(item->tensor.name), "shape", shape_json(&item->tensor), "role",
        frug_role_name(item->tensor.role), "heads", (json_int_t)item->tensor.heads, "module",
        (json_int_t)item->tensor.module, "dense", item->plan.dense, "sections", (json_int_t)item->sections, "sent",
        (json_int_t)item->sent, "entries", (json_int_t)item->entries, "index", item->index ? item->index : "none",
        "value", item->value ? item->value : "none", "header_bytes", (json_int_t)item->header, "index_bytes",
        (json_int_t)item->index_bytes, "value_bytes", (json_int_t)value_bytes(item), "bytes", (json_int_t)item->bytes,
        "ratio", fgio_json_real(ratio(item->count, item->bytes)));
    if (object != NULL && !item->plan.dense) {
        json_object_update_new(object, plan_json(&item->plan));
        json_object_set_new(object, "index_bytes_by_code", codes_json(item));
    }
    return object;
}

int fgp_model_cost_json(const fgp_model_cost *survey) {
    json_t *tensors = json_array();
    for (size_t i = 0; i < survey->count; i++)
        json_array_append_new(tensors, tensor_json(&survey->item[i]));
    return fgio_json_print(
        json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:i, s:I, s:o, s:o, s:o}", "model", fgio_json_text(survey->model),
                  "config", survey->config, "step", (json_int_t)survey->step, "steps", (json_int_t)survey->steps,
                  "parameters", (json_int_t)survey->parameters, "bytes_dense", (json_int_t)(4 * survey->parameters),
                  "frame_header", (int)FGP_FRAME_HEADER, "bytes", (json_int_t)survey->bytes, "ratio",
                  fgio_json_real(ratio(survey->parameters, survey->bytes)), "bits_per_parameter",
                  fgio_json_real(bits_each(survey)), "tensors", tensors),
        JSON_INDENT(2), stdout);
}
