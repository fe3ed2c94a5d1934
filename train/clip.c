/*
 * clip.c - a running mean of gradient norms. It is moved by a share of its distance to the new norm, and the share
 * begins at 1 and falls to 1 - smooth: the mean is as unbiased at the second step as at the thousandth, and norms
 * that are all the same leave it exactly that.
 */
#include "clip.h"

#include <math.h>

frugi_clip frugi_clip_make(double limit, double smooth) {
    return (frugi_clip){.limit = limit, .smooth = smooth};
}

double frugi_clip_factor(const frugi_clip *clip) {
    return clip->limit > 0 && clip->norm > clip->limit ? clip->limit / clip->norm : 1.0;
}

void frugi_clip_tell(frugi_clip *clip, double norm) {
    if (!isfinite(norm) || norm < 0)
        return;
    clip->weight = clip->smooth * clip->weight + (1 - clip->smooth);
    clip->norm += (norm - clip->norm) * ((1 - clip->smooth) / clip->weight);
}

void frugi_clip_save(const frugi_clip *clip, double state[2]) {
    state[0] = clip->norm;
    state[1] = clip->weight;
}

int frugi_clip_restore(frugi_clip *clip, const double state[2]) {
    int sound = isfinite(state[0]) && state[0] >= 0 && state[1] >= 0 && state[1] <= 1;
    if (!sound || (state[1] == 0 && state[0] != 0))
        return 0;
    clip->norm = state[0];
    clip->weight = state[1];
    return 1;
}
