/* presets.c - named config strings: methods of the literature, as plain lists of options over the defaults. */
#include "config/presets.h"
#include "frugrad.h"

#include <string.h>

static const frug_preset presets[] = {
    {"frugrad", "", "the defaults: 16 of every 256, momentum and residual in one int8 buffer"},
    {"dense", "density=1,feedback=none,value=f32", "everything, as it is: the baseline"},
    {"frugrad-paper", "schedule=frugrad,select=hist,feedback=merged,residual=f32,value=f32",
     "the published method: 50 % rising to 94 % held back by half of training"},
    {"dgc", "block=4096,schedule=constant:0.999,select=exact,feedback=dgc,residual=f32,value=f32",
     "Deep Gradient Compression: 0.1 %, momentum correction in two buffers"},
};

const frug_preset *frug_preset_at(size_t i) {
    return i < sizeof presets / sizeof presets[0] ? &presets[i] : NULL;
}

const char *frugi_preset_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    const frug_preset *preset = frug_preset_at(i);
    if (!preset)
        return NULL;
    *len = strlen(preset->name);
    return preset->name;
}
