/* run_recipe.h - which recorded runs used the same command. */
#ifndef FGL_RUN_RECIPE_H
#define FGL_RUN_RECIPE_H

#include "lab/report/run_records.h"

/** Hash of a command without seed, rate, evaluation options and folders; 0: no command. */
uint64_t fgl_recipe_of(const char *command);

/** The same with folders and held-out samples, which change results. */
uint64_t fgl_recipe_with_data(const char *command);

/** Mark as stale what was made by another recipe than the last run of its suite, size, task, method and workers. */
void fgl_runs_mark_stale(fgl_runs *runs);

#endif
