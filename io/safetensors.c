/*
 * safetensors.c - reading and writing headers of the safetensors format.
 *
 * A file is eight bytes with the header's length, a JSON object that gives dtype, shape and offsets of every tensor,
 * and the data. jansson rejects duplicate keys, text that is not UTF-8 and zero characters in names; this file checks
 * every number. The format demands that the tensors cover the data without holes or overlaps, which one pass over the
 * tensors in the order of their offsets checks.
 */
#include "io/safetensors.h"

#include "io/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = FGIO_SAFETENSORS_LENGTH };

#define HEADER_MAX   UINT64_C(100000000)
#define METADATA_KEY "__metadata__"

typedef struct dtype_name {
    const char *word;
    fgio_dtype dtype;
} dtype_name;

/* The first row of a dtype is used for writing. */
static const dtype_name dtype_names[] = {
    {"F32", FGIO_F32},        {"F64", FGIO_F64},        {"F16", FGIO_F16},     {"BF16", FGIO_BF16},
    {"U8", FGIO_U8},          {"I8", FGIO_OTHER8},      {"BOOL", FGIO_OTHER8}, {"F8_E4M3", FGIO_OTHER8},
    {"F8_E5M2", FGIO_OTHER8}, {"F8_E8M0", FGIO_OTHER8}, {"I16", FGIO_OTHER16}, {"U16", FGIO_OTHER16},
    {"I32", FGIO_OTHER32},    {"U32", FGIO_OTHER32},    {"I64", FGIO_OTHER64}, {"U64", FGIO_OTHER64},
};

enum { DTYPE_NAMES = sizeof dtype_names / sizeof *dtype_names };

/* A tensor while parsing, with its data_offsets. */
typedef struct located_item {
    fgio_tensor item;
    uint64_t begin, end;
} located_item;

static uint64_t header_length(const unsigned char *bytes) {
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    return length;
}

int fgio_safetensors_is(const unsigned char *bytes, size_t len) {
    return len > LENGTH_BYTES && bytes[LENGTH_BYTES] == '{' && header_length(bytes) <= HEADER_MAX;
}

static int read_dtype(const json_t *entry, const char *name, fgio_tensor *item, fgio_reason *why) {
    const char *word = json_string_value(json_object_get(entry, "dtype"));
    if (word == NULL)
        return fgio_fail(why, "tensor '%.80s' has no dtype", name);
    for (int i = 0; i < DTYPE_NAMES; i++) {
        if (strcmp(word, dtype_names[i].word) == 0) {
            item->dtype = dtype_names[i].dtype;
            item->word = dtype_names[i].word;
            return 0;
        }
    }
    return fgio_fail(why, "tensor '%.80s' has the unknown dtype '%.40s'", name, word);
}

static int read_shape(const json_t *entry, const char *name, fgio_tensor *item, fgio_reason *why) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return fgio_fail(why, "tensor '%.80s' has no shape", name);
    if (json_array_size(shape) > FRUG_MAX_DIMS)
        return fgio_fail(why, "tensor '%.80s' has more than %d dimensions", name, FRUG_MAX_DIMS);
    item->ndim = (uint32_t)json_array_size(shape);
    for (uint32_t d = 0; d < item->ndim; d++) {
        const json_t *extent = json_array_get(shape, d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return fgio_fail(why, "tensor '%.80s' has a bad shape", name);
        item->shape[d] = (uint64_t)json_integer_value(extent);
    }
    return fgio_tensor_set_count(item, why);
}

static int read_offsets(const json_t *entry, const char *name, located_item *located, fgio_reason *why) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return fgio_fail(why, "tensor '%.80s' has bad data_offsets", name);
    located->begin = (uint64_t)json_integer_value(begin);
    located->end = (uint64_t)json_integer_value(end);
    uint64_t need = located->item.count * fgio_dtype_size(located->item.dtype);
    if (located->end - located->begin != need)
        return fgio_fail(why, "tensor '%.80s' needs %" PRIu64 " bytes but is given %" PRIu64, name, need,
                         located->end - located->begin);
    return 0;
}

static int out_of_memory(fgio_reason *why) {
    fgio_fail(why, "not enough memory");
    return FGIO_SAFETENSORS_NO_MEMORY;
}

static int read_entry(const json_t *entry, const char *name, located_item *located, fgio_reason *why) {
    if (!json_is_object(entry))
        return fgio_fail(why, "tensor '%.80s' is not described by an object", name);
    if (json_object_size(entry) != 3)
        return fgio_fail(why, "tensor '%.80s' has keys beside dtype, shape and data_offsets", name);
    if (read_dtype(entry, name, &located->item, why) != 0 || read_shape(entry, name, &located->item, why) != 0 ||
        read_offsets(entry, name, located, why) != 0)
        return -1;
    located->item.name = strdup(name);
    return located->item.name == NULL ? out_of_memory(why) : 0;
}

static int read_metadata(json_t *entry, fgio_safetensors *file, fgio_reason *why) {
    const char *key;
    json_t *value;
    if (!json_is_object(entry))
        return fgio_fail(why, METADATA_KEY " is not an object");
    json_object_foreach(entry, key, value) {
        if (!json_is_string(value))
            return fgio_fail(why, METADATA_KEY " holds '%.80s', which is not a string", key);
    }
    file->metadata = json_incref(entry);
    return 0;
}

static int compare_offsets(const void *a, const void *b) {
    const located_item *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) /* an empty tensor before the one that begins at its offset */
        return x->end < y->end ? -1 : 1;
    return strcmp(x->item.name, y->item.name);
}

/* Sort the tensors by offset and check that they cover the data, which begins at `first` of the file and has len bytes.
 */
static int check_offsets(located_item *located, size_t count, uint64_t first, uint64_t len, fgio_reason *why) {
    uint64_t at = 0;
    if (count > 1)
        qsort(located, count, sizeof *located, compare_offsets);
    for (size_t i = 0; i < count; i++) {
        if (located[i].begin != at)
            return fgio_fail(why, "the data of tensor '%.80s' %s", located[i].item.name,
                             located[i].begin < at ? "overlaps another's" : "leaves a hole before it");
        if (located[i].end > len)
            return fgio_fail(why, "the data of tensor '%.80s' ends outside the file", located[i].item.name);
        located[i].item.offset = first + at;
        at = located[i].end;
    }
    if (at != len)
        return fgio_fail(why, "%" PRIu64 " bytes at the end belong to no tensor", len - at);
    return 0;
}

/* Fill located[] from the header's entries; *count: entries whose names have to be freed. */
static int read_entries(json_t *root, located_item *located, size_t *count, fgio_safetensors *file, fgio_reason *why) {
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        if (strcmp(name, METADATA_KEY) == 0) {
            if (read_metadata(entry, file, why) != 0)
                return -1;
        } else {
            int code = read_entry(entry, name, &located[*count], why);
            if (code != 0)
                return code;
            ++*count;
        }
    }
    return 0;
}

static int store_items(const located_item *located, size_t count, fgio_safetensors *file, fgio_reason *why) {
    file->item = calloc(count + 1, sizeof *file->item);
    if (file->item == NULL)
        return out_of_memory(why);
    for (size_t i = 0; i < count; i++)
        file->item[i] = located[i].item;
    file->count = count;
    return 0;
}

static int read_root(json_t *root, uint64_t first, uint64_t len, fgio_safetensors *file, fgio_reason *why) {
    size_t count = 0;
    located_item *located = calloc(json_object_size(root) + 1, sizeof *located);
    if (located == NULL)
        return out_of_memory(why);
    int code = read_entries(root, located, &count, file, why);
    if (code == 0)
        code = check_offsets(located, count, first, len, why);
    if (code == 0)
        code = store_items(located, count, file, why);
    for (size_t i = 0; code != 0 && i < count; i++)
        free(located[i].item.name);
    free(located);
    return code;
}

uint64_t fgio_safetensors_head_bytes(const unsigned char *bytes, size_t len, uint64_t file_len, fgio_reason *why) {
    if (len < LENGTH_BYTES || file_len < LENGTH_BYTES) {
        fgio_fail(why, "is too short for a safetensors file");
        return 0;
    }
    uint64_t header = header_length(bytes);
    if (header > HEADER_MAX) {
        fgio_fail(why,
                  "is not a safetensors file: its first 8 bytes would make a header of %" PRIu64
                  " bytes, and the limit is 100 MB",
                  header);
        return 0;
    }
    if (header > file_len - LENGTH_BYTES) {
        fgio_fail(why, "ends inside the safetensors header");
        return 0;
    }
    return LENGTH_BYTES + header;
}

int fgio_safetensors_parse_head(const unsigned char *bytes, size_t len, uint64_t file_len, fgio_safetensors *file,
                                fgio_reason *why) {
    json_error_t error;
    fgio_safetensors parsed = {NULL, 0, NULL};
    uint64_t head = fgio_safetensors_head_bytes(bytes, len, file_len, why);
    if (head == 0)
        return -1;
    if (head > len)
        return fgio_fail(why, "ends inside the safetensors header");
    errno = 0; /* the text of a parser error does not tell that memory ran out */
    json_t *root =
        json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)head - LENGTH_BYTES, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return errno == ENOMEM ? out_of_memory(why) : fgio_fail(why, "safetensors header: %s", error.text);
    int code = !json_is_object(root) ? fgio_fail(why, "the safetensors header is not a JSON object")
                                     : read_root(root, head, file_len - head, &parsed, why);
    json_decref(root);
    if (code != 0)
        json_decref(parsed.metadata);
    else
        *file = parsed;
    return code;
}

int fgio_safetensors_parse(const unsigned char *bytes, size_t len, fgio_safetensors *file, fgio_reason *why) {
    if (fgio_safetensors_parse_head(bytes, len, len, file, why) != 0)
        return -1;
    for (size_t i = 0; i < file->count; i++)
        file->item[i].data = bytes + file->item[i].offset;
    return 0;
}

void fgio_safetensors_free(fgio_safetensors *file) {
    for (size_t i = 0; i < file->count; i++)
        free(file->item[i].name);
    free(file->item);
    json_decref(file->metadata);
    *file = (fgio_safetensors){NULL, 0, NULL};
}

const fgio_tensor *fgio_safetensors_find(const fgio_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->item[i].name, name) == 0)
            return &file->item[i];
    return NULL;
}

/* NULL without memory. */
static json_t *entry_json(const fgio_tensor *item, uint64_t begin, uint64_t end) {
    const char *word = NULL;
    for (int i = 0; i < DTYPE_NAMES && word == NULL; i++)
        if (dtype_names[i].dtype == item->dtype)
            word = dtype_names[i].word;
    json_t *shape = json_array();
    int failed = shape == NULL;
    for (uint32_t d = 0; d < item->ndim; d++)
        failed |= json_array_append_new(shape, json_integer((json_int_t)item->shape[d]));
    if (failed) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", word, "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

/* The JSON text after its length, padded with spaces to a multiple of eight. */
static int frame_header(const char *text, fgio_bytes *header, fgio_reason *why) {
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    if (padded > HEADER_MAX)
        return fgio_fail(why, "the safetensors header would be larger than 100 MB");
    unsigned char *data = malloc(LENGTH_BYTES + padded);
    if (data == NULL)
        return fgio_fail(why, "not enough memory");
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        data[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    memcpy(data + LENGTH_BYTES, text, length);
    memset(data + LENGTH_BYTES + length, ' ', padded - length);
    *header = (fgio_bytes){data, LENGTH_BYTES + padded};
    return 0;
}

int fgio_safetensors_header(const fgio_tensor *item, size_t count, json_t *metadata, fgio_bytes *header,
                            fgio_reason *why) {
    json_t *root = json_object();
    uint64_t at = 0;
    int bad = metadata != NULL && json_object_set(root, METADATA_KEY, metadata) != 0;
    for (size_t i = 0; i < count && !bad; i++) {
        uint64_t end = at + item[i].count * fgio_dtype_size(item[i].dtype);
        bad = json_object_set_new(root, item[i].name, entry_json(&item[i], at, end)) != 0;
        at = end;
    }
    char *text = bad ? NULL : fgio_json_dump(root, JSON_COMPACT);
    json_decref(root);
    int code = text == NULL ? fgio_fail(why, "a tensor name is not UTF-8, or memory ran out")
                            : frame_header(text, header, why);
    free(text);
    return code;
}
