/*
 * inspect_file.c - `frugrad inspect FILE`: the header of a frame and one row per section.
 *
 * Payload files have the names of tensors; of bare frames only their numbers are known.
 */
#include "program/args/args.h"
#include "io/files.h"
#include "frugrad.h"
#include "program/inspect/inspect.h"
#include "io/json.h"
#include "program/compress/payload.h"
#include "io/safetensors.h"
#include "io/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct frame_view {
    const fgp_payload *payload; /* NULL for a bare frame */
    const unsigned char *frame;
    size_t len;
    frug_frame_info info;
} frame_view;

/* Number of tensors in a section: small tensors that are sent dense share one. */
static uint32_t tensors_in(const frame_view *view, const frug_section_info *s) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    uint32_t last = s->tensor;
    while (view->payload != NULL &&
           frug_layout_get(view->payload->gradient.layout, (size_t)last + 1, &tensor) == FRUG_OK &&
           tensor.offset < s->range.begin + s->range.count)
        last++;
    return last - s->tensor + 1;
}

/* The name of a section's first tensor; a bare frame knows only its number. */
static const char *tensor_name(const frame_view *view, const frug_section_info *s, char *dst, size_t cap) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    if (view->payload != NULL && frug_layout_get(view->payload->gradient.layout, s->tensor, &tensor) == FRUG_OK)
        return fgio_printable(tensor.name, dst, cap);
    snprintf(dst, cap, "#%" PRIu32, s->tensor);
    return dst;
}

static int get_section(const frame_view *view, uint32_t i, frug_section_info *section) {
    *section = (frug_section_info){.struct_size = sizeof *section};
    return frug_frame_section(view->frame, view->len, i, section) == FRUG_OK ? 0 : -1;
}

static double ratio(const frame_view *view) {
    return view->info.bytes > 0 ? 4.0 * (double)view->info.range.count / (double)view->info.bytes : 0;
}

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static json_t *section_json(const frame_view *view, const frug_section_info *s) {
    char name[512];
    return json_pack("{s:o, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:I}", "tensor",
                     fgio_json_text(tensor_name(view, s, name, sizeof name)), "number", (json_int_t)s->tensor,
                     "tensors", (json_int_t)tensors_in(view, s), "index", s->index, "value", s->value, "block",
                     (json_int_t)s->block, "begin", (json_int_t)s->range.begin, "count", (json_int_t)s->range.count,
                     "entries", (json_int_t)s->entries, "density", fgio_json_real(share(s->entries, s->range.count)),
                     "density_set", fgio_json_real(s->density), "bytes", (json_int_t)s->bytes);
}

static int print_json(const char *path, const frame_view *view) {
    const frug_frame_info *f = &view->info;
    char hash[20];
    json_t *sections = json_array();
    for (uint32_t i = 0; i < f->sections; i++) {
        frug_section_info section;
        if (get_section(view, i, &section) != 0) {
            json_decref(sections);
            return fgio_library_error(path);
        }
        json_array_append_new(sections, section_json(view, &section));
    }
    snprintf(hash, sizeof hash, "%016" PRIx64, f->layout_hash);
    json_t *object = json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "version",
                               (json_int_t)f->version, "source", (json_int_t)f->source, "step", (json_int_t)f->step,
                               "layout_hash", hash, "bytes", (json_int_t)f->bytes, "begin", (json_int_t)f->range.begin,
                               "count", (json_int_t)f->range.count, "entries", (json_int_t)f->entries, "blocks_skipped",
                               (json_int_t)f->skipped, "density", fgio_json_real(share(f->entries, f->range.count)),
                               "ratio", fgio_json_real(ratio(view)), "sections", sections);
    if (object != NULL && view->payload != NULL)
        json_object_set_new(object, "config", json_string(view->payload->config));
    return fgio_json_print(object, JSON_INDENT(2), stdout);
}

static void print_frame(const frame_view *view) {
    const frug_frame_info *f = &view->info;
    char bytes[32], config[600];
    printf("frame version %" PRIu32 ", step %" PRIu64 ", source %" PRIu32 ", layout %016" PRIx64 "\n", f->version,
           f->step, f->source, f->layout_hash);
    printf("%" PRIu64 " of %" PRIu64 " numbers from %" PRIu64 " on, in %s: ratio %.1f : 1\n", f->entries,
           f->range.count, f->range.begin, fgio_bytes_text(f->bytes, bytes, sizeof bytes), ratio(view));
    if (f->skipped > 0)
        printf("%" PRIu32 " blocks skipped because of a NaN or an infinity\n", f->skipped);
    if (view->payload != NULL)
        printf("config %s\n", fgio_printable(view->payload->config, config, sizeof config));
}

static void print_section(const frame_view *view, const frug_section_info *s) {
    char name[28], more[16] = "";
    uint32_t tensors = tensors_in(view, s);
    if (tensors > 1)
        snprintf(more, sizeof more, " +%" PRIu32, tensors - 1);
    tensor_name(view, s, name, sizeof name);
    printf("%s%-*s %-7s %-6s %5" PRIu32 " %12" PRIu64 " %12" PRIu64 " %8.3f%% %12" PRIu64 "\n", name,
           (int)(32 - strlen(name)), more, s->index, s->value, s->block, s->range.count, s->entries,
           100 * share(s->entries, s->range.count), s->bytes);
}

static int print_table(const char *path, const frame_view *view) {
    const frug_frame_info *f = &view->info;
    print_frame(view);
    printf("\n%-32s %-7s %-6s %5s %12s %12s %9s %12s\n", "tensor", "index", "value", "block", "count", "entries",
           "density", "bytes");
    for (uint32_t i = 0; i < f->sections; i++) {
        frug_section_info section;
        if (get_section(view, i, &section) != 0)
            return fgio_library_error(path);
        print_section(view, &section);
    }
    printf("%-32s %-7s %-6s %5s %12" PRIu64 " %12" PRIu64 " %8.3f%% %12" PRIu64 "\n", "total", "", "", "",
           f->range.count, f->entries, 100 * share(f->entries, f->range.count), f->bytes);
    return FGIO_EXIT_OK;
}

static int inspect_frame(const char *path, frame_view *view, int json) {
    view->info.struct_size = sizeof view->info;
    if (frug_frame_check(view->frame, view->len, &view->info) != FRUG_OK) {
        fgio_library_error(path);
        if (view->payload == NULL)
            fgio_hint("only files of frugrad compress and bare frames can be inspected");
        return FGIO_EXIT_FAIL;
    }
    return (json ? print_json : print_table)(path, view);
}

int fgp_inspect_file(const char *path, int json) {
    fgio_bytes bytes;
    fgp_payload payload;
    fgio_reason why;
    int code = fgio_file_read(path, &bytes);
    if (code != FGIO_EXIT_OK)
        return code;
    path = fgio_input_name(path);
    frame_view view = {.frame = bytes.data, .len = bytes.len};
    if (!fgio_safetensors_is(bytes.data, bytes.len)) {
        code = inspect_frame(path, &view, json);
    } else if (fgp_payload_parse(bytes.data, bytes.len, &payload, &why) != 0) {
        code = fgio_error("%s: %s", path, why.text);
        fgio_hint("frugrad inspect --model FILE shows what would be sent of the tensors of a file");
    } else {
        view.payload = &payload;
        view.frame = payload.frame;
        view.len = payload.frame_len;
        code = inspect_frame(path, &view, json);
        fgp_payload_free(&payload);
    }
    fgio_bytes_free(&bytes);
    return code;
}
