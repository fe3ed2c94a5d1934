/*
 * compare_suites.c - the suites: tables of methods; tasks are in compare_tasks.c.
 *
 * Sizes full and paper are for a GPU, through PyTorch, where one process simulates all workers: methods that it cannot
 * simulate are omitted there.
 */
#include "lab/compare/compare.h"

#include <stdio.h>
#include <string.h>

const char *const fgl_suite_names[] = {"paper",    "ablation", "sparsity", "structured", "scaling",
                                       "momentum", "bytes",    "evidence", "sgc",        NULL};

/* ---- methods -------------------------------------------------------------------------------------- */

/** A row of the tables below; families 0 is all of them. Middle rates are multiplied by scale; 0 is 1. */
typedef struct row {
    const char *id, *label, *config, *inertia, *clip;
    fgl_optimizer_kind optimizer;
    unsigned families;
    double scale[3]; /* by fgl_family_index() */
    uint32_t workers;
    double middle;
    uint64_t states;
    bool no_gpu; /* the trainer of size full does not simulate it */
} row;

/* If SGD and Adam need different configs, two rows have the same id: no task uses both. */
#define WITH_ADAM (FGL_LANGUAGE | FGL_SENTENCES)

/* On GPT-2 one entry or less in a block of 256 was worse than some in a long one. */
#define SPARSEST ",block=4096"

/* DeMo as it was recorded: its first version, without the transform. */
#define WITHOUT_DCT "demo,transform=off,beta=0.999,hold=off"

/* Clipped: with SGD at 99 % and at the best rate, one run in eight diverged, and none whose workers clip the norm of
 * their gradients. */
static const row paper[] = {
    {.id = "dense", .label = "dense", .config = "dense"},
    {.id = "topk", .label = "top-k, 30 % sent", .config = "topk"},
    {.id = "qsgd", .label = "QSGD, 8 bits", .config = "qsgd"},
    {.id = "gsgd", .label = "gossip SGD", .config = "gsgd"},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-sgd", .families = FGL_VISION},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-adam", .families = WITH_ADAM},
    {.id = "frugrad-99",
     .label = "FruGrad 99 %",
     .config = "frugrad-sgd,schedule=constant:0.99",
     .families = FGL_VISION},
    {.id = "frugrad-99",
     .label = "FruGrad 99 %",
     .config = "frugrad-adam,schedule=constant:0.99",
     .families = WITH_ADAM},
    {.id = "frugrad-999", .label = "FruGrad 99.9 %", .config = "schedule=constant:0.999" SPARSEST},
    {.id = "frugrad-99-clip",
     .label = "FruGrad 99 %, gradient clipping",
     .config = "frugrad-sgd,schedule=constant:0.99,clip=2",
     .families = FGL_VISION},
    {.id = "dense-clip", .label = "dense, gradient clipping", .config = "dense", .clip = "2", .families = FGL_VISION},
    {.id = "frugrad-paper", .label = "FruGrad as published, 50 to 94 %", .config = "frugrad-paper"},
    {.id = "plain", .label = "94 %, blocks of 256, no momentum retention", .config = "block=256,hold=off"},
    {.id = "plain-99", .label = "99 %, blocks of 256, no momentum retention", .config = "schedule=constant:0.99"},
    {.id = "dgc", .label = "DGC 99.9 %", .config = "dgc", .optimizer = FGL_OPTIMIZER_MERGED},
    {.id = "onebit", .label = "1-bit SGD", .config = "onebit"},
    {.id = "randomk", .label = "random-k 94 %", .config = "randomk"},
    {.id = "demo", .label = "DeMo without DCT", .config = WITHOUT_DCT, .optimizer = FGL_OPTIMIZER_SIGN},
    {.id = "no-feedback", .label = "94 %, no error feedback", .config = "feedback=none"},
    {.id = NULL},
};

/* All are clipped alike, by a limit that follows the norm. Scales are what searches found (docs/results.md), so that
 * --rates 1 has these rates: 980 steps of ResNet-18 (dense, QSGD and gossip are best at 2 there, but at 1 after 6,272),
 * 400 of a GPT of 27 M parameters, MiniLM on MRPC. */
#define CLIPPED .clip = "auto"
static const row evidence[] = {
    {.id = "dense", .label = "dense", .config = "dense", CLIPPED},
    {.id = "muon", .label = "dense, Muon", .config = "dense", .optimizer = FGL_OPTIMIZER_MUON, CLIPPED},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-sgd", .families = FGL_VISION, CLIPPED},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-adam", .families = WITH_ADAM, CLIPPED},
    {.id = "frugrad-99",
     .label = "FruGrad 99 %",
     .config = "frugrad-sgd,schedule=constant:0.99",
     .families = FGL_VISION,
     CLIPPED},
    {.id = "frugrad-99",
     .label = "FruGrad 99 %",
     .config = "frugrad-adam,schedule=constant:0.99",
     .families = WITH_ADAM,
     CLIPPED},
    {.id = "frugrad-999",
     .label = "FruGrad 99.9 %",
     .config = "frugrad-sgd,schedule=constant:0.999" SPARSEST,
     .families = FGL_VISION,
     CLIPPED},
    {.id = "frugrad-999",
     .label = "FruGrad 99.9 %",
     .config = "frugrad-adam,schedule=constant:0.999" SPARSEST,
     .families = WITH_ADAM,
     CLIPPED},
    {.id = "frugrad-muon",
     .label = "FruGrad 94 %, Muon",
     .config = "frugrad-muon",
     .optimizer = FGL_OPTIMIZER_SIGN,
     CLIPPED},
    {.id = "frugrad-muon-99",
     .label = "FruGrad 99 %, Muon",
     .config = "frugrad-muon,schedule=constant:0.99",
     .optimizer = FGL_OPTIMIZER_SIGN,
     CLIPPED},
    {.id = "frugrad-muon-999",
     .label = "FruGrad 99.9 %, Muon",
     .config = "frugrad-muon,schedule=constant:0.999",
     .optimizer = FGL_OPTIMIZER_SIGN,
     .families = FGL_LANGUAGE,
     CLIPPED},
    {.id = "frugrad-paper",
     .label = "FruGrad as published, 50 to 94 %",
     .config = "frugrad-paper",
     .scale = {1, 0.4, 2},
     CLIPPED},
    {.id = "no-feedback", .label = "94 %, no error feedback", .config = "feedback=none", .scale = {1, 2.5, 1}, CLIPPED},
    {.id = "topk", .label = "top-k, 30 % sent", .config = "topk", .scale = {1, 1, 2}, CLIPPED},
    {.id = "dgc",
     .label = "DGC 99.9 %",
     .config = "dgc",
     .optimizer = FGL_OPTIMIZER_MERGED,
     .scale = {1, 1, 2},
     CLIPPED},
    {.id = "qsgd", .label = "QSGD, 8 bits", .config = "qsgd", .scale = {1, 1, 2}, CLIPPED},
    {.id = "onebit", .label = "1-bit SGD", .config = "onebit", .scale = {0.5, 0.4, 2}, CLIPPED},
    {.id = "powersgd-1", .label = "PowerSGD, rank 1", .config = "powersgd,rank=1", .scale = {0.5, 0.4, 1}, CLIPPED},
    {.id = "powersgd-4", .label = "PowerSGD, rank 4", .config = "powersgd,rank=4", CLIPPED},
    {.id = "demo", .label = "DeMo", .config = "demo", .optimizer = FGL_OPTIMIZER_SIGN, .scale = {110, 0.4, 1}, CLIPPED},
    {.id = "sparseloco", .label = "SparseLoCo, 30 local steps", .config = "sparseloco", .scale = {1, 0.4, 2}, CLIPPED},
    {.id = "gsgd", .label = "gossip SGD", .config = "gsgd", .scale = {1, 1, 2}, CLIPPED},
    {.id = NULL},
};

/* The means over a run are 0.83 of schedule=frugrad and 0.945 of schedule=anneal. */
static const row ablation[] = {
    {.id = "dense", .label = "dense", .config = "dense"},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-sgd", .families = FGL_VISION},
    {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad-adam", .families = WITH_ADAM},
    {.id = "plain", .label = "base: 94 %, blocks of 256, no momentum retention", .config = "block=256,hold=off"},
    {.id = "plain-momentum", .label = "base, plain error feedback, optimizer momentum", .config = "feedback=plain"},
    {.id = "plain-sgd",
     .label = "base, plain error feedback, no momentum",
     .config = "feedback=plain",
     .optimizer = FGL_OPTIMIZER_PLAIN,
     .scale = {10}},
    {.id = "no-feedback", .label = "base, no error feedback", .config = "feedback=none"},
    {.id = "progressive", .label = "base, sparsity rising from 50 to 94 %", .config = "schedule=frugrad"},
    {.id = "static-0.83", .label = "base, sparsity 83 % (mean of 50 to 94 %)", .config = "schedule=constant:0.83"},
    {.id = "anneal", .label = "base, sparsity falling from 99 to 90 %", .config = "schedule=anneal"},
    {.id = "static-0.945", .label = "base, sparsity 94.5 % (mean of 99 to 90 %)", .config = "schedule=constant:0.945"},
    {.id = "block-64", .label = "base, blocks of 64", .config = "block=64"},
    {.id = "block-128", .label = "base, blocks of 128", .config = "block=128"},
    {.id = "block-1024", .label = "base, blocks of 1024", .config = "block=1024"},
    {.id = "block-4096", .label = "base, blocks of 4096", .config = "block=4096"},
    {.id = "select-exact", .label = "base, exact top-k instead of histogram", .config = "select=exact"},
    {.id = "residual-f32", .label = "base, residual in f32", .config = "residual=f32"},
    {.id = "residual-bf16", .label = "base, residual in bf16", .config = "residual=bf16"},
    {.id = "residual-int4", .label = "base, residual in int4", .config = "residual=int4"},
    {.id = "split-1",
     .label = "base, sharded reduce, top-k again (1 k)",
     .config = "reduce=split,down=1",
     .no_gpu = true},
    {.id = "split-2",
     .label = "base, sharded reduce, top-k again (2 k)",
     .config = "reduce=split,down=2",
     .no_gpu = true},
    {.id = "split-4",
     .label = "base, sharded reduce, top-k again (4 k)",
     .config = "reduce=split,down=4",
     .no_gpu = true},
    {.id = "split-union",
     .label = "base, sharded reduce, union of indices",
     .config = "reduce=split,down=union",
     .no_gpu = true},
    {.id = NULL},
};

/* Rows of the ablation for suite bytes. The others send as many bytes per step as "plain". The bytes of a union depend
 * on the gradients, so its total may differ. */
static const char *const by_bytes[] = {"dense",   "frugrad",      "plain",       "progressive", "static-0.83",
                                       "anneal",  "static-0.945", "block-1024",  "block-4096",  "split-1",
                                       "split-2", "split-4",      "split-union", NULL};

static const row structured[] = {
    {.id = "dense", .label = "dense", .config = "dense"},
    {.id = "entries", .label = "single entries, 1/16 of each block of 256", .config = "block=256,hold=off"},
    {.id = "rows", .label = "rows, 1/16 sent", .config = "rows,density=0.0625"},
    {.id = "channels", .label = "channels, 1/16 sent", .config = "channels,density=0.0625"},
    {.id = "heads",
     .label = "attention heads, 1/16 sent (at least one)",
     .config = "heads,density=0.0625",
     .families = WITH_ADAM},
    {.id = "tiles",
     .label = "tiles of 16 x 16, 1/16 sent",
     .config = "segment=tensor,unit=tile:16x16,residual=f32,density=0.0625"},
    {.id = "learned", .label = "runs of 256 by a learned mask, 1/16 sent", .config = "learned"},
    {.id = "2-of-4", .label = "2:4 structured, half sent", .config = "2:4"},
    {.id = NULL},
};

#define INERTIA(text) .inertia = text, .optimizer = FGL_OPTIMIZER_MERGED

/* Where momentum is kept: in the residual alone, by retention, or also at the receiver. */
static const row momentum[] = {
    {.id = "dense", .label = "dense", .config = "dense"},
    {.id = "94", .label = "94 %, no momentum retention", .config = "hold=off"},
    {.id = "94-hold", .label = "94 %, momentum retained (hold)", .config = "hold=auto"},
    {.id = "94-inertia-0.5", .label = "94 %, receiver momentum 0.5", .config = "hold=off", INERTIA("0.5")},
    {.id = "94-inertia-0.7", .label = "94 %, receiver momentum 0.7", .config = "hold=off", INERTIA("0.7")},
    {.id = "94-inertia-0.9", .label = "94 %, receiver momentum 0.9", .config = "hold=off", INERTIA("0.9")},
    {.id = "94-none", .label = "94 %, no error feedback", .config = "feedback=none"},
    {.id = "rising", .label = "50 to 94 %, no momentum retention", .config = "schedule=frugrad"},
    {.id = "rising-hold", .label = "50 to 94 %, momentum retained (hold)", .config = "schedule=frugrad,hold=auto"},
    {.id = "rising-inertia", .label = "50 to 94 %, receiver momentum", .config = "schedule=frugrad", INERTIA("auto")},
    {.id = "rising-none", .label = "50 to 94 %, no error feedback", .config = "schedule=frugrad,feedback=none"},
    {.id = "99", .label = "99 %, no momentum retention", .config = "schedule=constant:0.99"},
    {.id = "99-inertia-0.5",
     .label = "99 %, receiver momentum 0.5",
     .config = "schedule=constant:0.99",
     INERTIA("0.5")},
    {.id = "99-inertia-0.9",
     .label = "99 %, receiver momentum 0.9",
     .config = "schedule=constant:0.99",
     INERTIA("0.9")},
    {.id = NULL},
};

static void add(fgl_suite *s, const row *r) {
    if (r->no_gpu && s->task[0].trainer != NULL)
        return;
    fgl_method *m = &s->method[s->methods++];
    *m = (fgl_method){.optimizer = r->optimizer,
                      .families = r->families ? r->families : FGL_ANY,
                      .workers = r->workers,
                      .middle = r->middle,
                      .states = r->states};
    for (int i = 0; i < 3; i++)
        m->scale[i] = r->scale[i] > 0 ? r->scale[i] : 1;
    snprintf(m->id, sizeof m->id, "%s", r->id);
    snprintf(m->label, sizeof m->label, "%s", r->label);
    snprintf(m->config, sizeof m->config, "%s", r->config);
    snprintf(m->inertia, sizeof m->inertia, "%s", r->inertia ? r->inertia : "");
    snprintf(m->clip, sizeof m->clip, "%s", r->clip ? r->clip : "");
}

static void add_all(fgl_suite *s, const row *rows) {
    for (; rows->id != NULL; rows++)
        add(s, rows);
}

static void make_bytes(fgl_suite *s) {
    s->bytes_of = "ablation";
    for (const row *r = ablation; r->id != NULL; r++)
        for (size_t i = 0; by_bytes[i] != NULL; i++)
            if (strcmp(by_bytes[i], r->id) == 0)
                add(s, r);
}

/* From 99.5 % on FruGrad has the config of 99.9 % in suite paper, as it was recorded; on a GPU, what its preset has. */
static void make_sparsity(fgl_suite *s) {
    static const double shares[] = {0.5, 0.75, 0.9, 0.94, 0.97, 0.99, 0.995, 0.999};
    static const row kinds[] = {
        {.id = "frugrad", .label = "FruGrad", .config = "frugrad-sgd,", .families = FGL_VISION},
        {.id = "frugrad", .label = "FruGrad", .config = "frugrad-adam,", .families = WITH_ADAM},
        {.id = "topk", .label = "top-k", .config = "topk,"},
        {.id = "randomk", .label = "random-k", .config = "randomk,"},
        {.id = "dgc", .label = "DGC", .config = "dgc,mask=auto,", .optimizer = FGL_OPTIMIZER_MERGED},
        {.id = "none", .label = "no error feedback", .config = "feedback=none,"},
    };
    add(s, &paper[0]);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++) {
            char id[40], label[64], config[160];
            bool ours = strcmp(kinds[j].id, "frugrad") == 0, none = strcmp(kinds[j].id, "none") == 0;
            bool large = shares[i] > 0.99 && (ours || none) && !s->task[0].trainer;
            snprintf(id, sizeof id, "%s-%g", kinds[j].id, shares[i]);
            snprintf(label, sizeof label, "%s %g %%", kinds[j].label, 100 * shares[i]);
            snprintf(config, sizeof config, "%sschedule=constant:%g%s", large && ours ? "" : kinds[j].config, shares[i],
                     large ? SPARSEST : "");
            row r = kinds[j];
            r.id = id, r.label = label, r.config = config;
            add(s, &r);
        }
}

/* A method of finetune; the number of states, if any, is part of its id. */
static void add_states(fgl_suite *s, const row *kind) {
    char id[40], label[64];
    row r = *kind;
    if (r.states > 0) {
        snprintf(id, sizeof id, "%s-%llu", kind->id, (unsigned long long)r.states);
        snprintf(label, sizeof label, "%s, %llu states at most", kind->label, (unsigned long long)r.states);
        r.id = id, r.label = label;
    }
    add(s, &r);
}

static void make_scaling(fgl_suite *s) {
    static const row kinds[] = {
        {.id = "dense", .label = "dense", .config = "dense", .workers = 4},
        {.id = "frugrad", .label = "FruGrad 94 %", .config = "frugrad"},
        {.id = "split", .label = "FruGrad 94 %, sharded reduce", .config = "frugrad,reduce=split", .no_gpu = true},
    };
    add(s, &kinds[0]); /* four workers: the baseline */
    for (uint32_t workers = 1; workers <= 8; workers *= 2)
        for (size_t j = workers == 4 ? 1 : 0; j < sizeof kinds / sizeof *kinds; j++) {
            char id[40], label[64];
            snprintf(id, sizeof id, "%s-w%u", kinds[j].id, workers);
            snprintf(label, sizeof label, "%s, %u worker%s", kinds[j].label, workers, workers == 1 ? "" : "s");
            row r = kinds[j];
            r.id = id, r.label = label, r.workers = workers;
            add(s, &r);
        }
}

/* Numbers of states: rank 1 of LoRA needs 4,096 for both models, of GaLore and APOLLO 2,048 and 3,072. "head" has a
 * table that updates nothing. */
static void make_sgc(fgl_suite *s) {
    static const row kinds[] = {
        {.id = "full", .label = "AdamW", .config = "full", .middle = 1e-3},
        {.id = "head",
         .label = "classifier head only",
         .config = "table",
         .middle = 1e-3,
         .optimizer = FGL_OPTIMIZER_HEAD},
        {.id = "lora", .label = "LoRA", .config = "lora", .states = 4096, .middle = 3e-3},
        {.id = "galore",
         .label = "GaLore",
         .config = "galore",
         .states = 6144,
         .middle = 1,
         .optimizer = FGL_OPTIMIZER_SCALE},
        {.id = "apollo",
         .label = "APOLLO",
         .config = "apollo",
         .states = 6144,
         .middle = 1,
         .optimizer = FGL_OPTIMIZER_SCALE},
    };
    static const struct {
        const char *id, *label;
    } sketches[] = {{"sgc", "SGC"}, {"mesgc", "MESGC"}, {"cesgc", "CESGC"}, {"table", "moment table"}};
    static const uint64_t counts[] = {4096, 1024};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_states(s, &kinds[i]);
    for (size_t i = 0; i < sizeof sketches / sizeof *sketches; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            add_states(s, &(row){.id = sketches[i].id,
                                 .label = sketches[i].label,
                                 .config = sketches[i].id,
                                 .states = counts[k],
                                 .middle = 3,
                                 .optimizer = FGL_OPTIMIZER_SCALE});
}

void fgl_suite_make(int name, int size, fgl_suite *s) {
    bool tunes = strcmp(fgl_suite_names[name], "sgc") == 0;
    const fgl_compare_task *all = fgl_tasks_of(fgl_suite_names[name], size);
    bool evident = strcmp(fgl_suite_names[name], "evidence") == 0; /* its runs are long: half, same and double */
    *s = (fgl_suite){.name = fgl_suite_names[name],
                     .size = fgl_size_names[size],
                     .tunes = tunes,
                     .factor = evident ? 2 : 2.5,
                     .extra_rates = evident ? 0 : 2};
    for (size_t i = 0; i < FGL_MAX_TASKS; i++)
        if (all[i].id != NULL)
            s->task[s->tasks++] = all[i];
    switch (name) {
    case 0: add_all(s, paper); break;
    case 1: add_all(s, ablation); break;
    case 2: make_sparsity(s); break;
    case 3: add_all(s, structured); break;
    case 4: make_scaling(s); break;
    case 5: add_all(s, momentum); break;
    case 6: make_bytes(s); break;
    case 7: add_all(s, evidence); break;
    default: make_sgc(s); break;
    }
}
