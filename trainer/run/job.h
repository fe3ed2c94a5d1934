/*
 * job.h - one run of the trainer: what is asked for, what is told while it goes on, what came out.
 *
 * fgt_job_train() is called once per process. It starts the workers (threads, or this process as one of an MPI job),
 * and each builds its own copy of the model; the copies hold the same bits after every step.
 */
#ifndef FGT_JOB_H
#define FGT_JOB_H

#include "trainer/data/data_set.h"
#include "frugrad.h"
#include "trainer/run/finetune_plan.h"

#include <stdbool.h>
#include <stdint.h>

/** What is asked for. Texts are not owned and never NULL unless said so. */
typedef struct fgt_job {
    const char *model; /* model/model.h */
    const char *data;  /* data/data.h: path, tokens (or NULL), subset (or NULL) */
    const char *tokens, *subset;
    const char *method;    /* a config string of the library */
    const char *optimizer; /* of the library; NULL: what goes with the method and the model */
    const char *schedule;  /* of the learning rate: rate_schedule.h */
    const char *weights;   /* safetensors to start from; NULL: random */
    const char *save;      /* directory of checkpoints; NULL: none */
    const char *resume;    /* a checkpoint, or a directory of them (the newest is taken); NULL: start anew */
    bool resume_if_any;    /* a directory without checkpoints is no error: the run starts, from `weights` if given */
    double rate;           /* 0: the model's own default */
    double clip;           /* limit of the gradient's norm; 0: none */
    bool clip_auto;        /* limits that follow the running norm (clip_norm.h) instead */
    double epochs;
    double timeout; /* seconds that a worker waits for a message of another; 0: FGT_GROUP_TIMEOUT */
    uint64_t steps; /* 0: by epochs */
    uint64_t seed;
    uint32_t workers;      /* threads; ignored in an MPI job */
    uint32_t threads;      /* of each worker */
    uint32_t batch;        /* samples of each worker; 0: the model's own default */
    uint32_t accumulate;   /* micro-batches that a batch is cut into; 0: as memory has it, or the checkpoint */
    uint32_t eval_batches; /* at most so many batches of each worker when evaluating; 0: all */
    uint64_t eval_every;   /* steps; 0: at the end of every epoch */
    uint64_t save_every;   /* steps; 0: at the end of every epoch */
    uint32_t keep;         /* checkpoints */
    uint64_t bucket_bytes; /* 0: by the size of the model */
    uint64_t hold_out;     /* training samples to judge by instead of the test split; 0: none */
    uint64_t samples;      /* builtin data: how many; 0: its default */
    bool judge_valid;      /* at its end a run is judged by the validation split, not by the test split */
    bool judge_test;       /* and by the test split, or not at all */
    int augment;           /* of training images: FGT_AUGMENT_ of data/data.h */
    bool overlap;          /* exchange while backward goes on */
    bool alone;            /* do not exchange at all: what the exchange costs */
    bool eval;             /* false: no evaluation at all, for timing */
    bool recompute;        /* keep few activations: backward runs the forward pass of each block again */
    uint64_t memory_bytes; /* that all workers of this machine may take; 0: what is free */
    /* Fine-tuning; NULL: everything is trained. Says what `optimizer` would; `method` is dense then. */
    const fgt_tune *tune;
} fgt_job;

/** How it stands after a step. */
typedef struct fgt_progress {
    uint64_t step, steps; /* done, in all */
    double epoch;
    double loss;  /* mean over the workers of this step */
    double right; /* share predicted right in this step */
    double rate;  /* with the optimiser's gain: gain * rate is what is applied */
    double gain;
    double norm;                      /* of the gradient: root of the mean square over the workers */
    double clipped;                   /* the factor; 1: not clipped */
    double density;                   /* of this step */
    double seconds;                   /* of this step */
    uint64_t bytes_sent, bytes_dense; /* of one worker, since the beginning */
    double samples_per_second;        /* of all workers, lately */
    double seconds_left;
} fgt_progress;

/** How good the model is on a split. */
typedef struct fgt_quality {
    fgt_split split;
    uint64_t step;
    double loss;
    double accuracy;     /* images, sentences: share; language, masked: share of tokens; NAN for numbers */
    double perplexity;   /* language, masked; NAN otherwise */
    double correlation;  /* numbers (Pearson); NAN otherwise */
    double f1, matthews; /* what GLUE judges a task by; NAN otherwise */
    double asked;
} fgt_quality;

/** Who said how many micro-batches a batch is cut into. */
typedef enum fgt_accumulate_from {
    FGT_ACCUMULATE_ONE,    /* nobody: it is not cut */
    FGT_ACCUMULATE_ASKED,  /* the job */
    FGT_ACCUMULATE_CHOSEN, /* the memory there is */
    FGT_ACCUMULATE_RESUMED /* the checkpoint */
} fgt_accumulate_from;

/** What came out. */
typedef struct fgt_report {
    fgt_quality quality; /* after the last step; loss NAN when not evaluated */
    fgt_quality before;  /* fine-tuning: before the first step; likewise */
    fgt_tuning tuning;   /* fine-tuning: what moved */
    double train_loss;   /* mean over the last tenth of the steps, at least one */
    uint64_t step, steps;
    uint64_t params, params_whole; /* all; those of tensors that are sent whole: small, or of one dimension */
    double rate;                   /* the highest of the schedule */
    char tokens[256];              /* what text was cut into, or empty */
    uint32_t workers, batch, accumulate;
    fgt_accumulate_from accumulate_from;
    uint64_t activation_uncut;         /* bytes of a worker's activations without micro-batches */
    uint64_t memory_free;              /* bytes before the run began, or what it was allowed */
    const char *augment;               /* what is done to training images, as data/data.h has it; NULL: no images */
    char algorithm[32];                /* of the exchange */
    char optimizer[FGT_FINETUNE_TEXT]; /* spelled out */
    char config[1024];                 /* of the library, spelled out */
    uint64_t bytes_sent, bytes_dense;  /* of one worker */
    double density_mean;
    /* bytes of one worker: weights, gradients, the library's (residual, optimiser, communication) and their sum at most
     */
    uint64_t weight_bytes, gradient_bytes, library_bytes, model_state_bytes, activation_bytes;
    uint64_t peak_rss_bytes; /* of the process, all its workers together */
    double seconds;          /* of training, without evaluation and checkpoints; or of fgt_job_eval()'s evaluation */
    double step_ms;          /* median */
    /* of a step, means in milliseconds */
    double ms_data, ms_forward, ms_backward, ms_blocked; /* ms_backward without ms_blocked: waiting for the exchange */
    double ms_compress, ms_wait, ms_wire, ms_decode;     /* of the exchange, which may overlap with backward */
    double ms_optimizer;
    double gain;           /* of merged momentum */
    bool interrupted;      /* by a signal; a checkpoint was written if there is a place for it */
    char checkpoint[4096]; /* the last one written; empty: none */
} fgt_report;

/** Called on worker 0 of process 0 only, from its thread; any may be NULL. */
typedef struct fgt_watch {
    void *ctx;
    void (*begin)(void *ctx, const fgt_report *so_far, uint64_t resumed_at); /* config, params, steps ... are known */
    void (*step)(void *ctx, const fgt_progress *progress);
    void (*quality)(void *ctx, const fgt_quality *quality);
    /* what share of each tensor left, at some steps */
    void (*layers)(void *ctx, uint64_t step, const char *const *name, const double *share, size_t count);
    void (*saved)(void *ctx, const char *path, uint64_t step);
} fgt_watch;

/** Train. Returns an exit status, after a line on stderr. report is filled in either case as far as it goes. */
int fgt_job_train(const fgt_job *job, const fgt_watch *watch, fgt_report *report);

/** Evaluate weights (job->weights, or job->resume) on a split, without training; FGT_SPLITS: on the one that a run is
 * judged by at its end. */
int fgt_job_eval(const fgt_job *job, fgt_split split, fgt_quality *quality, fgt_report *report);

/** Ask all running jobs of this process to stop after the step: for signal handlers. */
void fgt_job_interrupt(void);

#endif
