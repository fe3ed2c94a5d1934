/* presets.c - named config strings: methods of the literature, as plain lists of options over the defaults. */
#include "config/presets.h"
#include "frugrad.h"

#include <string.h>

static const frug_preset presets[] = {
    {"frugrad", "", "the defaults: 16 of every 256, momentum and residual in one int8 buffer"},
    {"frugrad-sgd", "block=sgd,beta=sgd,hold=auto", "for SGD: as frugrad, with retention, which preserves the momentum"},
    {"frugrad-adam", "block=auto,hold=adam", "for Adam: 4 of every 64, and four fifths of each sent entry stay at 94 %"},
    {"frugrad-muon", "block=auto,hold=adam", "for Muon: the options of frugrad-adam"},
    {"dense", "density=1,feedback=none,value=f32,reduce=dense", "the baseline: uncompressed gradients"},
    {"frugrad-paper", "schedule=frugrad,select=hist,feedback=merged,residual=f32,value=f32",
     "the published method: sparsity rises from 50 % to 94 % in the first half of training"},
    {"topk", "segment=tensor,density=0.3,feedback=plain,residual=f32,index=coo,value=f32",
     "the largest 30 % of each tensor, 32 bits for each index and value"},
    {"randomk", "rule=random,segment=tensor,density=0.0625,feedback=none,value=f32",
     "a random 1/16, scaled to be unbiased; no indices are sent"},
    {"dgc", "segment=tensor,schedule=dgc,feedback=dgc,mask=on,residual=f32,index=auto,value=f32",
     "Deep Gradient Compression: 0.1 % after a warm-up, momentum correction in two buffers"},
    {"threshold", "rule=threshold:track,segment=tensor,residual=f32,index=auto",
     "all above a threshold that follows the density from step to step"},
    {"qsgd", "density=1,feedback=none,value=qsgd,levels=127",
     "every value, stochastically rounded to one of 255 levels"},
    {"onebit", "density=1,feedback=plain,residual=f32,value=onebit",
     "1-bit SGD: every value as one of two means, with error feedback"},
    {"2:4", "segment=2:4", "the largest 2 of every 4 neighbors"},
    {"rows", "segment=tensor,unit=row,density=0.25,residual=f32",
     "the quarter of the rows of each matrix with the largest norm"},
    {"channels", "segment=tensor,unit=channel,density=0.5,residual=f32",
     "the half of the output channels of each convolution with the largest norm"},
    {"heads", "segment=tensor,unit=head,density=0.5,residual=f32",
     "the half of the heads of each attention module with the largest norm"},
    {"learned", "rule=learned,segment=tensor,unit=run:256,density=0.0625,residual=f32",
     "runs of 256 entries, selected by a learned mask that is refreshed every 200 steps"},
    /* All tensors share one budget: a method that moves entries between blocks gains most there, since layers differ
     * more in scale than the blocks of one layer do. */
    {"hybrid", "rule=hybrid,segment=all,residual=f32",
     "the largest of all tensors, but at least 1 and at most 64 of every 256"},
    {"anneal", "schedule=anneal", "sparsity falls from 99 % to 90 %"},
    {"demo", "block=4096,density=0.0078125,transform=cosine,feedback=merged,beta=0.995,hold=0.8,residual=f32,value=f32",
     "DeMo: 32 of every 4096 coefficients of a cosine transform, of which 80 % stay; for the optimizer sign"},
    {"sparseloco", "local=30,mean=senders,block=4096,density=0.015625,beta=0.95,value=two_bit",
     "SparseLoCo: 30 steps of each worker by itself, then 64 of every 4096 differences in two bits"},
    {"gsgd", "reduce=gossip,segment=tensor,density=0.4,feedback=none,index=auto,value=f32",
     "gossip SGD: each worker steps by itself and sends 40 % of its weight changes to two neighbors"},
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
