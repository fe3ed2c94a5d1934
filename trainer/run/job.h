/*
 * job.h - one run of the trainer: options, progress callbacks and the report.
 *
 * fgt_job_train() is called once per process. It starts the workers (threads, or this process as one of an MPI job),
 * and each builds its own copy of the model; the copies have the same bits after every step.
 */
#ifndef FGT_JOB_H
#define FGT_JOB_H

#include "trainer/data/data_set.h"
#include "frugrad.h"
#include "trainer/nn/graph_stages.h"
#include "trainer/run/finetune_plan.h"

#include <stdbool.h>
#include <stdint.h>

/** Options of a run. Texts are not owned and never NULL unless noted. */
typedef struct fgt_job {
    const char *model; /* model/model.h */
    const char *data;  /* data/data_set.h: path, tokens (or NULL), subset (or NULL) */
    const char *tokens, *subset;
    const char *method;         /* a config string of the library */
    const char *optimizer;      /* of the library; NULL: the default for the method and the model */
    const char *schedule;       /* of the learning rate: rate_schedule.h; NULL: by the task */
    const char *sparse;         /* how weights are pruned: sparse/sparse_options.h; NULL: all are trained */
    const char *quantize;       /* fake quantization: sparse/master_weights.h; NULL: none */
    const char *stage_config;   /* how stages send activations: pipeline/pipeline.h; NULL: the default */
    const char *stage_feedback; /* "sample": changes of each sample's activations are sent; NULL: the activations */
    const char *weights;        /* safetensors to start from; NULL: random */
    const char *save;           /* directory of checkpoints; NULL: none */
    const char *resume;         /* a checkpoint, or a directory of them (the newest is used); NULL: start a new run */
    bool resume_if_any; /* a directory without checkpoints is no error: the run starts, from `weights` if given */
    double rate;        /* 0: the default of the model */
    double clip;        /* limit of the gradient's norm; 0: none */
    bool clip_auto;     /* limits from the running norms (clip_norm.h) instead */
    double epochs;
    double timeout; /* seconds that a worker waits for a message of another; 0: FGT_GROUP_TIMEOUT */
    uint64_t steps; /* 0: by epochs */
    uint64_t seed;
    uint32_t workers;      /* threads; ignored in an MPI job */
    uint32_t stages;       /* workers that the model is divided over; 0: each has all of it */
    uint32_t threads;      /* of each worker */
    uint32_t batch;        /* samples of each worker; 0: the default of the model */
    uint32_t accumulate;   /* micro-batches of a batch; 0: chosen by the free memory, or as in the checkpoint */
    uint32_t eval_batches; /* maximum of batches of each worker in an evaluation; 0: all */
    uint64_t eval_every;   /* steps; 0: at the end of every epoch */
    uint64_t save_every;   /* steps; 0: at the end of every epoch */
    uint32_t keep;         /* checkpoints */
    uint64_t bucket_bytes; /* 0: by the size of the model */
    uint64_t hold_out;     /* training samples to evaluate on instead of the test split; 0: none */
    uint64_t samples;      /* builtin data: how many; 0: its default */
    bool judge_valid;      /* the final evaluation is on the validation split, not on the test split */
    bool judge_test;       /* the final evaluation must be on the test split */
    int augment;           /* of training images: FGT_AUGMENT_ of data/data_set.h */
    bool overlap;          /* exchange on another thread during backward */
    bool alone;            /* no exchange, to measure what the exchange costs */
    bool eval;             /* false: no evaluation at all, for timing */
    bool recompute;        /* keep few activations: backward recomputes each block */
    uint64_t memory_bytes; /* for all workers of this machine; 0: the free memory */
    /* fgt_job_eval(): called on worker 0 with its model at the end, whose linear layers then have input_squares of its
     * samples; NULL: not. */
    void (*inspect)(void *ctx, const fgt_graph *graph);
    void *inspect_ctx;
    double activations; /* fgt_job_eval(): share of the inputs of linear layers that count as zero; 0: none */
    /* Fine-tuning; NULL: all parameters are trained. It replaces `optimizer`, and `method` is dense. */
    const fgt_finetune_options *tune;
} fgt_job;

/** Progress after a step. */
typedef struct fgt_progress {
    uint64_t step, steps; /* done, in all */
    double epoch;
    double loss;  /* mean over the workers of this step */
    double right; /* share of correct predictions in this step */
    double rate;  /* with the optimizer's gain: gain * rate is applied */
    double gain;
    double norm;                      /* of the gradient: root of the mean square over the workers */
    double clipped;                   /* the factor; 1: not clipped */
    double density;                   /* of this step */
    double seconds;                   /* of this step */
    uint64_t bytes_sent, bytes_dense; /* of one worker, or of all stages, since the beginning */
    const double *stage_bytes;        /* that each stage has sent in this step; NULL: there are none */
    uint32_t stages;
    double samples_per_second; /* of all workers */
    double seconds_left;
} fgt_progress;

/** Result of an evaluation on a split. */
typedef struct fgt_eval_result {
    fgt_split split;
    uint64_t step;
    double loss;
    double accuracy;     /* images, sentences: share; language, masked: share of tokens; NAN for numbers */
    double perplexity;   /* language, masked; NAN otherwise */
    double correlation;  /* numbers (Pearson); NAN otherwise */
    double f1, matthews; /* metrics of GLUE tasks; NAN otherwise */
    double asked;
} fgt_eval_result;

/** Origin of the number of micro-batches. */
typedef enum fgt_accumulate_from {
    FGT_ACCUMULATE_ONE,    /* default: the batch is not split */
    FGT_ACCUMULATE_ASKED,  /* the job */
    FGT_ACCUMULATE_CHOSEN, /* the memory there is */
    FGT_ACCUMULATE_RESUMED /* the checkpoint */
} fgt_accumulate_from;

/** Bytes of one stage: its weights, and its residual and optimizer states. */
typedef struct fgt_stage_bytes {
    uint64_t weights, states;
} fgt_stage_bytes;

/** Result of a run. */
typedef struct fgt_report {
    fgt_eval_result quality;    /* after the last step; loss NAN when not evaluated */
    fgt_eval_result before;     /* fine-tuning: before the first step; likewise */
    fgt_finetune_result tuning; /* fine-tuning: the trained tensors */
    double train_loss;          /* mean over the last tenth of the steps, at least one */
    uint64_t step, steps;
    uint64_t params, params_whole; /* all; those in tensors that are sent dense: small, or of one dimension */
    uint64_t params_kept;          /* those that are not pruned at the end */
    double rate;                   /* the highest of the schedule */
    const char *schedule;          /* of the rate */
    char tokens[256];              /* tokens of the text, or empty */
    uint32_t workers, batch, accumulate, stages; /* stages: 0, or the workers are stages of one model */
    fgt_accumulate_from accumulate_from;
    uint64_t activation_uncut;         /* bytes of a worker's activations without micro-batches */
    uint64_t memory_free;              /* bytes before the run, or the limit of the job */
    const char *augment;               /* augmentation of training images, as in data/data_set.h; NULL: no images */
    char algorithm[32];                /* of the exchange */
    char optimizer[FGT_FINETUNE_TEXT]; /* fully expanded */
    char config[1024];                 /* of the library, fully expanded */
    uint64_t bytes_sent, bytes_dense;  /* of one worker */
    double density_mean;
    /* bytes of one worker: weights, gradients, the library's (residual, optimizer, communication) and the peak of their
     * sum */
    uint64_t weight_bytes, gradient_bytes, library_bytes, model_state_bytes, activation_bytes;
    fgt_stage_bytes stage_bytes[FGT_STAGES_MAX];
    uint64_t peak_rss_bytes; /* of the process, all its workers together */
    double seconds;          /* of training, without evaluation and checkpoints; or of fgt_job_eval()'s evaluation */
    double step_ms;          /* median */
    /* of a step, means in milliseconds */
    double ms_data, ms_forward, ms_backward, ms_blocked; /* ms_backward without ms_blocked: waiting for the exchange */
    double ms_compress, ms_wait, ms_wire, ms_decode;     /* of the exchange, which may overlap with backward */
    double ms_optimizer;
    double gain;           /* of merged momentum */
    bool interrupted;      /* by a signal; a checkpoint was written if the job has a directory for it */
    char checkpoint[4096]; /* the last one written; empty: none */
} fgt_report;

/** Called on worker 0 of process 0 only, from its thread; any may be NULL. */
typedef struct fgt_job_callbacks {
    void *ctx;
    void (*begin)(void *ctx, const fgt_report *so_far, uint64_t resumed_at); /* config, params, steps ... are known */
    void (*step)(void *ctx, const fgt_progress *progress);
    void (*quality)(void *ctx, const fgt_eval_result *quality);
    /* density of each tensor, at some steps */
    void (*layers)(void *ctx, uint64_t step, const char *const *name, const double *share, size_t count);
    void (*saved)(void *ctx, const char *path, uint64_t step);
} fgt_job_callbacks;

/** Trains. Returns an exit status, after an error message. The report is filled in as far as possible in either case.
 * */
int fgt_job_train(const fgt_job *job, const fgt_job_callbacks *watch, fgt_report *report);

/** Evaluates weights (job->weights, or job->resume) on a split, without training; FGT_SPLITS: on the split of the final
 * evaluation. */
int fgt_job_eval(const fgt_job *job, fgt_split split, fgt_eval_result *quality, fgt_report *report);

/** Requests all running jobs of this process to stop after the current step; safe in signal handlers. */
void fgt_job_interrupt(void);

#endif
