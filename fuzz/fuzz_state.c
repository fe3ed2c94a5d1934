/* fuzz_state.c - untrusted saved states, unchanged and with a corrected checksum; then a step from the restored state.
 */
#include "base/float_bits.h"
#include "base/crc32c.h"
#include "frugrad.h"

#include <stdlib.h>

#define N 500u

static frug_compressor *make(const char *text) {
    frug_layout *layout = NULL;
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    if (frug_layout_flat(N, &layout) != FRUG_OK || frug_config_create(text, &config) != FRUG_OK ||
        frug_compressor_create(config, layout, &options, &c) != FRUG_OK)
        abort();
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    return c;
}

static void feed(frug_compressor *c, const unsigned char *bytes, size_t len) {
    static const float grad[N];
    static unsigned char frame[1 << 16];
    size_t written;
    if (frug_compressor_restore(c, bytes, len) != FRUG_OK)
        return;
    if (frug_compress(c, 0, (frug_range){0, N}, grad, frame, sizeof frame, &written) != FRUG_OK)
        abort();
    frug_frame_info info = {.struct_size = sizeof info};
    if (frug_frame_check(frame, written, &info) != FRUG_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const texts[] = {"min_size=1",
                                        "min_size=1,residual=f32",
                                        "dgc,segment=block,min_size=1,residual=bf16",
                                        "dgc,min_size=1,density=0.1",
                                        "threshold,min_size=1,norm=follow",
                                        "learned,unit=run:16,min_size=1",
                                        "hybrid,frequency=on,min_size=1,block=64,density=0.1",
                                        "segment=tensor,feedback=ef21,residual=int4,min_size=1,layers=sensitivity"};
    static frug_compressor *c[sizeof texts / sizeof *texts];
    if (size < 48)
        return 0;
    size_t which = data[size - 1] % (sizeof texts / sizeof *texts);
    frug_compressor **chosen = &c[which];
    if (!*chosen)
        *chosen = make(texts[which]);
    feed(*chosen, data, size);
    /* Like an attacker: a valid header, and a correct checksum over arbitrary contents. */
    size_t want = frug_compressor_state_size(*chosen), written;
    unsigned char *state = malloc(want);
    if (!state || frug_compressor_save(*chosen, state, want, &written) != FRUG_OK)
        abort();
    for (size_t i = 48; i < want; i++)
        state[i] = data[(i - 48) % size];
    frugi_put32(state + 12, 0);
    frugi_put32(state + 12, frugi_crc32c(0, state, want));
    feed(*chosen, state, want);
    free(state);
    return 0;
}
