/*
 * defaults.h - batch, learning rate and optimizer of a job that names none, and what does not go together.
 */
#ifndef FRUGI_DEFAULTS_H
#define FRUGI_DEFAULTS_H

#include "trainer/run/job.h"
#include "trainer/model/model.h"

/** Samples of each worker in a step. */
uint32_t frugi_default_batch(frugi_task task);

/**
 * The optimizer of the job, or the one that its method was published with for this kind of task; and its config,
 * spelled out for that optimizer. Refuses options of the method that a trainer cannot serve. Returns an exit status,
 * after a line on stderr.
 */
int frugi_default_optimizer(const frugi_job *job, const frugi_model *model, char *optimizer, size_t optimizer_cap,
                            char *config, size_t config_cap);

/** The learning rate for a model and the text of an optimizer. */
double frugi_default_rate(const frugi_job *job, const frugi_model *model, const char *optimizer);

/** Hints on stderr where an optimizer that the user named counts momentum twice, has none, or decays no weights. */
void frugi_warn_optimizer(const frugi_job *job, const frugi_model *model, const char *config, const char *optimizer);

#endif
