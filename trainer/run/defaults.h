/* defaults.h - default batch, learning rate, its schedule and optimizer of a job, and combinations that are refused. */
#ifndef FGT_DEFAULTS_H
#define FGT_DEFAULTS_H

#include "trainer/run/job.h"
#include "trainer/model/model.h"

/** Samples of each worker in a step. */
uint32_t fgt_default_batch(fgt_task task);

/** The optimizer of the job, or the one that its method was published with for this kind of task; and its config,
 * expanded for that optimizer, for the caller to destroy, also after an error. `trained`: the run begins, or began,
 * with weights of a file. Refuses options of the method that the trainer does not support. Returns an exit status,
 * after an error message. */
int fgt_default_optimizer(const fgt_job *job, const fgt_model *model, bool trained, char *optimizer, size_t cap,
                          frug_config **config);

/** Whether an option of a config has a value. */
bool fgt_option_is(const frug_config *config, const char *option, const char *value);

/** The learning rate for a model and the text of an optimizer. */
double fgt_default_rate(const fgt_job *job, const fgt_model *model, bool trained, const char *optimizer);

/** The schedule of the learning rate; `trained` as above. */
const char *fgt_default_schedule(fgt_task task, bool trained);

/** Prints hints where an optimizer given by the user applies momentum twice, has none, or has no weight decay. */
void fgt_warn_optimizer(const fgt_job *job, const fgt_model *model, const frug_config *config, const char *optimizer);

#endif
