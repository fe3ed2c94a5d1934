/*
 * fuzz_checkpoint.c - untrusted checkpoints into a small model.
 *
 * An input is used in three ways: as a file, unchanged; as a header in front of data that fits no model but has a valid
 * checksum; and as changes (offset, new byte) to a valid checkpoint, whose checksum is corrected. What opens is
 * restored, and used as a file of weights as well. There must be no access outside its bounds.
 */
#include "trainer/checkpoint/checkpoint.h"
#include "base/crc32c.h"
#include "io/files.h"
#include "trainer/base/counted_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DATA_BYTES = 64, SUM_BYTES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/frugrad-fuzz-XXXXXX";
static char path[64];
static fgt_checkpoint_state state;
static fgio_bytes sound;

static void must(int good) {
    if (!good)
        abort();
}

static void remove_all(void) {
    unlink(path);
    rmdir(folder);
}

static void make_state(void) {
    frug_layout *layout = NULL;
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    fgt_graph *g = fgt_graph_create(1, 1);
    must(g != NULL);
    fgt_param_add(g, "w", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){4, 16}, FGT_INIT_ONE, 0);
    fgt_param_add(g, "fc.b", FRUG_ROLE_BIAS, 1, (const uint64_t[]){3}, FGT_INIT_ONE, 0);
    fgt_buffer_add(g, "v", 2, 1.0f);
    g->weights = fgt_counted_alloc(FGT_USE_WEIGHTS, (size_t)g->elements * sizeof *g->weights);
    for (fgt_param *p = g->params; p; p = p->next)
        p->w = g->weights + p->tensor.offset;
    state.graph = g;
    must(fgt_graph_layout(g, &layout) == 0 && frug_comm_self(&state.comm) == FRUG_OK &&
         frug_config_create("min_size=1", &config) == FRUG_OK &&
         frug_compressor_create(config, layout, &options, &state.compressor) == FRUG_OK &&
         frug_optimizer_create("sgd", layout, NULL, &state.optimizer) == FRUG_OK);
    frug_config_destroy(config);
    frug_layout_destroy(layout);
}

static void start(void) {
    must(mkdtemp(folder) != NULL);
    make_state();
    must(fgt_checkpoint_write(folder, 0, 0, 0, &state, NULL, path, sizeof path) == 0);
    must(fgio_file_read(path, &sound) == 0);
    unlink(path);
    snprintf(path, sizeof path, "%s/input", folder);
    atexit(remove_all);
}

static void feed(const unsigned char *bytes, size_t len) {
    fgt_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    uint64_t step;
    uint32_t fresh;
    bool redistributed;
    FILE *file = fopen(path, "wb");
    must(file != NULL && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
    if (fgt_checkpoint_open(path, state.comm, &checkpoint, &facts, &step) == 0) {
        must(json_is_object(facts));
        fgt_checkpoint_restore(checkpoint, &state, &redistributed);
        fgt_checkpoint_close(checkpoint);
    }
    fgt_weights_load(path, state.graph, &fresh);
}

static void put_sum(unsigned char *bytes, size_t len) {
    uint32_t sum = frugi_crc32c(0, bytes, len - SUM_BYTES);
    for (unsigned i = 0; i < SUM_BYTES; i++)
        bytes[len - SUM_BYTES + i] = (unsigned char)(sum >> 8 * i);
}

static void feed_as_header(const uint8_t *data, size_t size) {
    size_t len = 8 + size + DATA_BYTES;
    unsigned char *bytes = calloc(1, len);
    must(bytes != NULL);
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)size >> 8 * i);
    if (size > 0)
        memcpy(bytes + 8, data, size);
    put_sum(bytes, len);
    feed(bytes, len);
    free(bytes);
}

static void feed_as_changes(const uint8_t *data, size_t size) {
    unsigned char *bytes = malloc(sound.len);
    must(bytes != NULL);
    memcpy(bytes, sound.data, sound.len);
    for (size_t i = 0; i + 3 <= size; i += 3)
        bytes[(data[i] | (size_t)data[i + 1] << 8) % sound.len] = data[i + 2];
    put_sum(bytes, sound.len);
    feed(bytes, sound.len);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (sound.data == NULL)
        start();
    feed(data, size);
    feed_as_header(data, size);
    feed_as_changes(data, size);
    return 0;
}
