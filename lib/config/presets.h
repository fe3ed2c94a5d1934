/* presets.h - named config strings. */
#ifndef FRUGI_PRESETS_H
#define FRUGI_PRESETS_H

#include <stddef.h>

/** Name of preset i; a frugi_choice_fn. */
const char *frugi_preset_name(const void *ctx, size_t i, size_t *len);

#endif
