/*
 * solo_training.h - a model that is trained by one process for some steps at a time, from weights that it is given:
 * what a client of a federated run does between two exchanges.
 *
 * The weights are one flat buffer: the trainable parameters, then the running statistics. A round of steps starts with
 * a new optimizer, so its result depends on the weights, the round and the data alone: repeating it gives the same
 * bits.
 */
#ifndef FGT_SOLO_TRAINING_H
#define FGT_SOLO_TRAINING_H

#include "frugrad.h"
#include "trainer/data/data_subset.h"

#include <stdbool.h>

/** Options. Texts are not owned. */
typedef struct fgt_solo_options {
    const char *model, *data, *tokens; /* as in fgt_job; tokens may be NULL */
    const char *optimizer;             /* NULL or "": the default of the model */
    const char *schedule;              /* of the rate over all steps of all rounds: rate_schedule.h */
    double rate;                       /* 0: the default of the model */
    uint64_t rounds, steps;            /* of training; steps of a round */
    uint32_t classes;                  /* of the run, for its clients; 0: counted in the data */
    uint64_t seed, samples;            /* samples: of builtin data; 0: its default */
    uint64_t part, parts;              /* the share of the training samples; parts 0: all */
    double alpha;                      /* of fgt_subset_dirichlet(); 0: equal shares */
    uint64_t worker;                   /* number for random draws; differs between clients */
    uint32_t batch;                    /* 0: the default of the model */
    uint32_t threads;
    fgt_data
        *opened; /* the data, opened with this model and seed by another solo, which must outlive this one; or NULL */
    bool evaluates; /* it is only evaluated: no memory for training */
} fgt_solo_options;

typedef struct fgt_solo fgt_solo;

/** Opens data and model, with initial weights. Returns an exit status, after an error message. */
int fgt_solo_open(const fgt_solo_options *options, fgt_solo **solo);
void fgt_solo_close(fgt_solo *solo);

/** Parameters and running statistics; owned by the solo. */
const frug_layout *fgt_solo_layout(const fgt_solo *solo);

/** Whether the model has running statistics. */
bool fgt_solo_has_statistics(const fgt_solo *solo);

/** Its data, for other solos of the process. */
fgt_data *fgt_solo_data(const fgt_solo *solo);

/** Number of training samples; classes and name of the data; text of the optimizer, its rate, samples of a step. */
uint64_t fgt_solo_examples(const fgt_solo *solo);
uint32_t fgt_solo_classes(const fgt_solo *solo);
const char *fgt_solo_data_name(const fgt_solo *solo);
const char *fgt_solo_optimizer(const fgt_solo *solo);
double fgt_solo_rate(const fgt_solo *solo);
uint32_t fgt_solo_batch(const fgt_solo *solo);

/** Copies the flat buffer from or to the model. */
void fgt_solo_get(const fgt_solo *solo, float *weights);
void fgt_solo_set(fgt_solo *solo, const float *weights);

/** Reads weights of a safetensors file, and writes parameters and running statistics to one. Returns an exit status,
 * after an error message. */
int fgt_solo_load(fgt_solo *solo, const char *path);
int fgt_solo_save(const fgt_solo *solo, const char *path);

/** Trains the steps of a round; *loss is their mean. Returns an exit status, after an error message: also when the loss
 * is not finite. A request of fgt_job_interrupt() ends it with *stopped. */
int fgt_solo_train(fgt_solo *solo, uint64_t round, double *loss, bool *stopped);

/** Evaluates on the test split, or the validation split where there is none; *asked 0: there is neither. Returns an
 * exit status. */
int fgt_solo_evaluate(fgt_solo *solo, double *loss, double *accuracy, double *asked);

#endif
