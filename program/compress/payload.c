/*
 * payload.c - the payload file: a frame with the description of its tensors.
 *
 * The reader rebuilds the layout through the public API, which checks the tensors; the layout's hash in the frame shows
 * whether frame and layout belong together.
 */
#include "program/compress/payload.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_NAME "frugrad.frame"

static json_t *shape_json(uint32_t ndim, const uint64_t *shape) {
    json_t *array = json_array();
    for (uint32_t d = 0; d < ndim; d++)
        json_array_append_new(array, json_integer((json_int_t)shape[d]));
    return array;
}

static json_t *layout_json(const frug_layout *layout) {
    json_t *array = json_array();
    for (size_t i = 0; i < frug_layout_count(layout); i++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_layout_get(layout, i, &tensor);
        json_array_append_new(array,
                              json_pack("{s:s, s:o, s:s}", "name", tensor.name, "shape",
                                        shape_json(tensor.ndim, tensor.shape), "role", frug_role_name(tensor.role)));
    }
    return array;
}

/* Add JSON as text to a metadata map; steals the reference. Returns 0 or -1. */
static int put_json(json_t *map, const char *key, json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT);
    int code = text == NULL ? -1 : json_object_set_new(map, key, json_string(text));
    free(text);
    json_decref(value);
    return code;
}

static json_t *describe(const fgp_gradient *gradient, const char *config) {
    json_t *map = json_pack("{s:s, s:s, s:s}", "frugrad", "1", "frugrad.source", fgp_format_words[gradient->format],
                            "frugrad.config", config);
    int bad = map == NULL || put_json(map, "frugrad.layout", layout_json(gradient->layout)) != 0;
    if (!bad && gradient->reshaped)
        bad = put_json(map, "frugrad.shape", shape_json(gradient->ndim, gradient->shape)) != 0;
    if (!bad && gradient->metadata != NULL)
        bad = put_json(map, "frugrad.metadata", json_incref(gradient->metadata)) != 0;
    if (bad) {
        json_decref(map);
        return NULL;
    }
    return map;
}

int fgp_payload_header(const fgp_gradient *gradient, const char *config, size_t frame_len, fgio_bytes *header,
                       fgio_reason *why) {
    char name[] = FRAME_NAME;
    fgio_tensor frame = {.name = name, .dtype = FGIO_U8, .ndim = 1, .shape = {frame_len}, .count = frame_len};
    json_t *map = describe(gradient, config);
    if (map == NULL)
        return fgio_fail(why, "a tensor name is not UTF-8, or memory ran out");
    int code = fgio_safetensors_header(&frame, 1, map, header, why);
    json_decref(map);
    return code;
}

static const char *text_of(const json_t *map, const char *key) {
    return json_string_value(json_object_get(map, key));
}

static json_t *load_json(const json_t *map, const char *key) {
    const char *text = text_of(map, key);
    return text == NULL ? NULL : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
}

static int read_shape(const json_t *array, uint32_t *ndim, uint64_t *shape, fgio_reason *why) {
    if (!json_is_array(array) || json_array_size(array) > FRUG_MAX_DIMS)
        return fgio_fail(why, "payload layout: bad shape");
    *ndim = (uint32_t)json_array_size(array);
    for (uint32_t d = 0; d < *ndim; d++) {
        const json_t *extent = json_array_get(array, d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return fgio_fail(why, "payload layout: bad shape");
        shape[d] = (uint64_t)json_integer_value(extent);
    }
    return 0;
}

static int read_tensor(const json_t *entry, frug_layout *layout, fgio_reason *why) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    const char *role = json_string_value(json_object_get(entry, "role"));
    tensor.name = json_string_value(json_object_get(entry, "name"));
    if (tensor.name == NULL || role == NULL)
        return fgio_fail(why, "payload layout: a tensor has no name or no role");
    tensor.role = fgp_role_of(role);
    if (read_shape(json_object_get(entry, "shape"), &tensor.ndim, tensor.shape, why) != 0)
        return -1;
    if (frug_layout_add(layout, &tensor) != FRUG_OK)
        return fgio_fail(why, "payload layout: %s", frug_last_error());
    return 0;
}

static int read_layout(const json_t *map, fgp_gradient *gradient, fgio_reason *why) {
    json_t *array = load_json(map, "frugrad.layout");
    int code = 0;
    if (!json_is_array(array) || json_array_size(array) == 0)
        code = fgio_fail(why, "the payload has no layout");
    else if (frug_layout_create(&gradient->layout) != FRUG_OK)
        code = fgio_fail(why, "%s", frug_last_error());
    for (size_t i = 0; code == 0 && i < json_array_size(array); i++)
        code = read_tensor(json_array_get(array, i), gradient->layout, why);
    json_decref(array);
    return code;
}

/* The shape to restore; it must have as many elements as the layout. */
static int read_file_shape(const json_t *map, fgp_gradient *gradient, fgio_reason *why) {
    fgio_tensor item = {.name = NULL};
    if (text_of(map, "frugrad.shape") == NULL)
        return 0;
    json_t *array = load_json(map, "frugrad.shape");
    int code = read_shape(array, &item.ndim, item.shape, why);
    json_decref(array);
    if (code != 0 || fgio_tensor_set_count(&item, why) != 0)
        return -1;
    if (frug_layout_count(gradient->layout) != 1 || item.count != frug_layout_elements(gradient->layout))
        return fgio_fail(why, "payload: shape (%llu numbers) and layout (%llu in %zu tensors) do not agree",
                         (unsigned long long)item.count, (unsigned long long)frug_layout_elements(gradient->layout),
                         frug_layout_count(gradient->layout));
    gradient->reshaped = 1;
    gradient->ndim = item.ndim;
    memcpy(gradient->shape, item.shape, sizeof gradient->shape);
    return 0;
}

static int read_source_metadata(const json_t *map, fgp_gradient *gradient, fgio_reason *why) {
    const char *key;
    json_t *value;
    if (text_of(map, "frugrad.metadata") == NULL)
        return 0;
    gradient->metadata = load_json(map, "frugrad.metadata");
    if (!json_is_object(gradient->metadata))
        return fgio_fail(why, "payload: the metadata is not a map");
    json_object_foreach(gradient->metadata, key, value) {
        if (!json_is_string(value))
            return fgio_fail(why, "payload: the metadata holds '%.80s', which is not a string", key);
    }
    return 0;
}

static int read_map(const json_t *map, fgp_payload *payload, fgio_reason *why) {
    const char *version = text_of(map, "frugrad"), *config = text_of(map, "frugrad.config");
    const char *source = text_of(map, "frugrad.source");
    if (version == NULL || config == NULL || source == NULL)
        return fgio_fail(why, "is a safetensors file, but not a payload of frugrad compress");
    if (strcmp(version, "1") != 0)
        return fgio_fail(why, "payload version '%.20s' is unknown", version);
    int format = FGP_FORMAT_RAW;
    while (format < FGP_FORMAT_AUTO && strcmp(source, fgp_format_words[format]) != 0)
        format++;
    if (format == FGP_FORMAT_AUTO)
        return fgio_fail(why, "payload source format '%.20s' is unknown", source);
    payload->gradient.format = (fgp_format)format;
    if (read_layout(map, &payload->gradient, why) != 0 || read_file_shape(map, &payload->gradient, why) != 0 ||
        read_source_metadata(map, &payload->gradient, why) != 0)
        return -1;
    if (format != FGP_FORMAT_SAFETENSORS && frug_layout_count(payload->gradient.layout) != 1)
        return fgio_fail(why, "payload: a %s file holds one tensor, the layout has more", source);
    payload->config = strdup(config);
    return payload->config == NULL ? fgio_fail(why, "not enough memory") : 0;
}

int fgp_payload_parse(const unsigned char *bytes, size_t len, fgp_payload *payload, fgio_reason *why) {
    fgp_payload parsed = {.config = NULL};
    fgio_safetensors file;
    if (fgio_safetensors_parse(bytes, len, &file, why) != 0)
        return -1;
    const fgio_tensor *frame = fgio_safetensors_find(&file, FRAME_NAME);
    int code = 0;
    if (frame == NULL || frame->dtype != FGIO_U8 || file.count != 1)
        code = fgio_fail(why, "is a safetensors file, but not a payload of frugrad compress");
    else
        code = read_map(file.metadata, &parsed, why);
    if (code == 0) {
        parsed.frame = frame->data;
        parsed.frame_len = (size_t)frame->count;
        *payload = parsed;
    } else {
        fgp_payload_free(&parsed);
    }
    fgio_safetensors_free(&file);
    return code;
}

void fgp_payload_free(fgp_payload *payload) {
    fgp_gradient_free(&payload->gradient);
    free(payload->config);
    payload->config = NULL;
}
