/*
 * retention.c - option hold: the share of a sent entry that stays in the residual of feedback=merged.
 *
 * An accumulator is multiplied by beta at every step, and also by the retention h when it is sent; at density d that is
 * beta * (1 - d * (1 - h)) on average. hold=auto chooses h so that this equals the momentum, which is right for SGD.
 *
 * hold=adam: an entry with retention h is sent 1 / (1 - h) times in effect. More often makes the sum smoother, less
 * often makes room for other entries, which is scarce where few are sent. So often as to be sent 200 d times, from 1 to
 * 5: a retention of 0.8 at 94 % sparsity, 0.5 at 99 % and 0 from 99.5 % on. docs/training.md has the measurements,
 * docs/optimizers.md those with Muon.
 */
#include "config/config.h"

#define SENDS_PER_DENSITY 200.0
#define MAX_SENDS         5.0
#define ROUNDING          1e-9 /* 1 - 0.995 is above 0.005 */

static double clamp(double x, double least, double most) {
    return x < least ? least : x > most ? most : x;
}

double frugi_retention(const struct frug_config *config, double density) {
    if (config->feedback != FRUGI_FEEDBACK_MERGED)
        return 0;
    if (config->hold_rule == FRUGI_HOLD_NUMBER)
        return config->hold;
    if (config->hold_rule == FRUGI_HOLD_ADAM) {
        const double sends = clamp(SENDS_PER_DENSITY * density, 1.0, MAX_SENDS);
        return sends < 1.0 + ROUNDING ? 0.0 : 1.0 - 1.0 / sends;
    }
    return config->beta == 0 ? 0 : clamp(1.0 - (1.0 - config->momentum / config->beta) / density, 0.0, 1.0);
}
