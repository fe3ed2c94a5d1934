/*
 * fuzz_frame.c - untrusted frames. The bytes are used unchanged and once more with a corrected length and
 * checksum, so that the checks after the checksum are reached too.
 */
#include "codec/frame.h"
#include "base/float_bits.h"

#include <stdlib.h>

#define N 3000u

static frug_compressor *receiver(void) {
    static frug_compressor *c;
    if (c)
        return c;
    frug_layout *layout = NULL;
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    if (frug_layout_flat(N, &layout) != FRUG_OK || frug_config_create("feedback=none", &config) != FRUG_OK ||
        frug_compressor_create(config, layout, &options, &c) != FRUG_OK)
        abort();
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    return c;
}

static void feed(const unsigned char *bytes, size_t len) {
    frug_frame_info info = {.struct_size = sizeof info};
    if (frug_frame_check(bytes, len, &info) != FRUG_OK)
        return;
    for (uint32_t i = 0; i < info.sections; i++) {
        frug_section_info section = {.struct_size = sizeof section};
        if (frug_frame_section(bytes, len, i, &section) != FRUG_OK)
            abort();
    }
    static float dst[N];
    const void *frames[2] = {bytes, bytes};
    size_t lens[2] = {len, len};
    if (frug_decode_add(frug_compressor_decoder(receiver()), (frug_range){0, N}, frames, lens, 2, 0.5f, dst) != FRUG_OK)
        return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    feed(data, size);
    if (size < FRUGI_FRAME_HEADER)
        return 0;
    unsigned char *copy = malloc(size);
    if (!copy)
        return 0;
    frug_layout *layout = NULL;
    memcpy(copy, data, size);
    frugi_put64(copy + 8, size);
    if (frug_layout_flat(N, &layout) == FRUG_OK)
        frugi_put64(copy + 24, frug_layout_hash(layout));
    frug_layout_destroy(layout);
    frugi_frame_seal(copy, size, 1);
    feed(copy, size);
    free(copy);
    return 0;
}
