/*
 * worker.h - one worker of a job: its model, its end of the exchange, its position in the data. Shared by the files of
 * the training loop: worker.c (creation), train_loop.c (steps), evaluate.c, resume.c (checkpoints).
 */
#ifndef FGT_WORKER_H
#define FGT_WORKER_H

#include "frugrad/experimental.h"
#include "trainer/exchange/buckets.h"
#include "trainer/exchange/clip_norm.h"
#include "trainer/exchange/local_steps.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"
#include "trainer/pipeline/pipeline.h"
#include "trainer/run/rate_schedule.h"
#include "trainer/exchange/gradient_record.h"
#include "trainer/sparse/master_weights.h"
#include "trainer/sparse/sparse_weights.h"

/** Shared by all workers of a process; read-only while they run, except for what worker 0 writes. */
typedef struct fgt_run {
    const fgt_job *job;
    const fgt_job_callbacks *callbacks;
    fgt_report *report;
    fgt_model model;
    fgt_data *data;
    frug_config *config;
    fgt_rate rate;
    bool trained;         /* the run begins, or began, with weights of a file */
    const char *schedule; /* of the rate: of the job, or the default */
    double base_rate;
    uint32_t batch;
    uint32_t accumulate;               /* micro-batches of a batch; 0: one */
    fgt_sparse_options sparse;         /* with job->sparse */
    fgt_quantize_options quantize;     /* with job->quantize */
    fgt_stage_config stage_config;     /* with job->stages */
    char optimizer[FGT_FINETUNE_TEXT]; /* fine-tuning: created by each worker, from its model */
    /* of an evaluation without training */
    fgt_split split;
    fgt_eval_result *quality;
} fgt_run;

/** Seconds of the phases of all steps. */
typedef struct fgt_times {
    double data, forward, backward, total;
} fgt_times;

typedef struct fgt_worker {
    fgt_run *run;
    frug_comm *comm;
    int rank, size;
    int replica, replicas;  /* copies of the model, each with data of its own: the workers, or one of all stages */
    fgt_pipeline *pipeline; /* this worker is a stage of one model; NULL: it has all of it */
    fgt_stage_bytes stage_bytes[FGT_STAGES_MAX];
    frug_comm *exchange_comm; /* of gradients: all workers, or this stage alone, which owns it */
    uint64_t *ids;            /* of the samples of a batch, with --stage-feedback sample */
    fgt_graph *graph;
    fgt_sparse *sparse;  /* sparse weights; or NULL */
    fgt_master master;   /* of weights that are quantized, or N of every M */
    frug_layout *layout; /* of the exchange and the optimizer; with sparse weights of the packed buffer */
    frug_layout *joined; /* of the exchange, where it is another one: the tensors of a bucket as one; or NULL */
    uint64_t dense_elements;
    frug_reducer *reducer; /* NULL: --alone, or gossip */
    frug_gossip *gossip;   /* each worker has its own weights, which are averaged at the end: gossip.c */
    fgt_local *local;      /* local steps: each worker has its own weights and optimizer between exchanges; or NULL */
    fgt_transform *transform; /* of gradients; or NULL */
    frug_optimizer *optimizer;
    fgt_buckets *buckets;
    /* Fine-tuning: */
    char optimizer_text[FGT_FINETUNE_TEXT];
    fgt_finetune_result tuning;
    /* Measurements in the exchange: offset, number, and number per target. */
    uint64_t measured_at, measured, measured_each;
    fgt_record *record;
    fgt_batch batch;
    uint32_t accumulate;  /* micro-batches of a batch, at least one */
    float *saved_buffers; /* saved running statistics */
    fgt_clip clip;
    double *message, *messages; /* statistics of a step: this worker's, and those of all workers */
    size_t message_count;
    double norm;                         /* of the last step's gradient, for methods that use it; below 0: not known */
    uint64_t step, steps, per_epoch;     /* done, in all, of an epoch */
    uint64_t link_bytes, link_dense;     /* sent by all stages in this run, and as raw floats */
    uint64_t bytes_before, dense_before; /* sent by the run that this one resumes */
    double entries_before, seen_before;  /* likewise */
    /* Sparse weights: the exchange is created again when masks change; what earlier ones had sent is in *_before. */
    uint64_t steps_before;          /* of this run, with earlier exchanges */
    frug_reduce_stats times_before; /* their times */
    fgt_times times;
    float *step_seconds;               /* of the last steps, a ring buffer of FGT_STEP_TIMES_MAX */
    uint64_t steps_here;               /* of this run */
    double loss_tail, loss_tail_count; /* the last tenth */
    bool interrupted;
    bool resuming;       /* from a checkpoint, which exists */
    uint64_t generation; /* of the checkpoints that it writes; worker 0's */
    int save_lock;       /* descriptor of --save's directory, which is locked by worker 0; or -1 */
} fgt_worker;

#define FGT_STEP_TIMES_MAX 4096u
#define FGT_STEP_DOUBLES   8u /* exchanged after a step (train_loop.c), besides norms to limit */

/** Which values the graphs of a run keep. */
fgt_keep fgt_run_keep(const fgt_run *run);

/** Creates reducer and optimizer for the worker's layout; either is NULL where there is none. Collective. */
int fgt_worker_create_exchange(fgt_worker *w, frug_reducer **reducer, frug_optimizer **optimizer);

/** Creates or frees the master, as the next step needs it, and projects it. Returns an exit status. */
int fgt_worker_begin_master(fgt_worker *w);

/** Sparse weights, after w->step steps: changes masks where that is due, and moves exchange and optimizer to the new
 * packed buffer. Collective. */
int fgt_worker_update_masks(fgt_worker *w);

/** After masks and step were restored: an exchange and an optimizer for them, without their states. Collective. */
int fgt_worker_adopt_masks(fgt_worker *w);

/** Creates everything that a worker needs from the job. Collective. Returns an exit status; close it in either case. */
int fgt_worker_open(fgt_worker *w, fgt_run *run, frug_comm *comm, bool training);
void fgt_worker_close(fgt_worker *w);

/** Runs a function on all workers and exchanges the status: the worst one, returned by all, its message printed once.
 * Collective. */
int fgt_worker_collective(fgt_worker *w, int (*part)(fgt_worker *w));

/** Reports an error of the library: once, by the worker that detected it, or by worker 0 for a remote error. */
int fgt_worker_error(const fgt_worker *w, const char *what, frug_status status);

/** Checks that all workers have the same weights. Collective. */
int fgt_worker_check_weights(fgt_worker *w);

/** Runs the remaining steps. Collective. */
int fgt_worker_train(fgt_worker *w);

/** Whether fgt_job_interrupt() was called since the last clear. */
bool fgt_worker_interrupt_requested(void);

/** Clears the request of fgt_job_interrupt(), which is not meant for the next job. */
void fgt_worker_clear_interrupt(void);

/** Number of trainable parameters. */
uint64_t fgt_worker_trainable(const fgt_worker *w);

/** Replaces weights and running statistics by their mean over all workers. Collective. */
frug_status fgt_worker_average(fgt_worker *w);

/** Evaluates the model on a split; every worker gets the result. With gossip the mean of all workers is evaluated. A
 * signal stops it: then w->interrupted is set, and the result is that of some batches only. `together`: whether all
 * workers know how it ended, so that they can go on together after an error. Collective. */
int fgt_worker_evaluate(fgt_worker *w, fgt_split split, fgt_eval_result *quality, bool *together);

/** Sets cutoffs of the inputs of linear layers by the job's `activations` (nn/input_cutoff.h). */
int fgt_worker_calibrate(fgt_worker *w);

/** The split to evaluate on: during training, and at the end. */
fgt_split fgt_worker_eval_split(const fgt_worker *w, bool at_end);

/** Write a checkpoint into the job's directory. Collective. */
int fgt_worker_save(fgt_worker *w);

/** Locks the directory of --save against other runs: two runs would remove each other's checkpoints. A directory that
 * does not exist yet is locked when it is made. To be called by all workers. */
int fgt_worker_lock_save(fgt_worker *w);

/** Finds out whether the run starts or resumes from a checkpoint: w->resuming. Collective. */
int fgt_worker_find_checkpoint(fgt_worker *w);

/** Resumes from a checkpoint, if there is one. Collective. */
int fgt_worker_resume(fgt_worker *w);

/** Whether the run of a checkpoint, or of the newest of a directory, began with weights of a file. False where there is
 * none. */
bool fgt_resume_began_trained(const char *from);

/** Loads only the weights of a checkpoint. Collective. */
int fgt_worker_load_weights(fgt_worker *w);

/** Saves and restores the running statistics, for passes that must not change them. */
void fgt_worker_save_buffers(fgt_worker *w);
void fgt_worker_restore_buffers(fgt_worker *w);

/** Sets the norm of the last step's gradient for methods that use it. */
void fgt_worker_set_norm(fgt_worker *w, double norm);

/** Bytes sent and the bytes of dense gradients, entries sent and seen; including the run that this one resumes. */
typedef struct fgt_traffic {
    uint64_t bytes, dense;
    double entries, seen;
} fgt_traffic;

/** Statistics of the exchange; unchanged where there is none. */
void fgt_worker_exchange_stats(const fgt_worker *w, frug_reduce_stats *stats);

fgt_traffic fgt_worker_traffic(const fgt_worker *w);

#endif
