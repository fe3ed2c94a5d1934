/* run_recipe.h - which recorded runs are repetitions of each other, and which another command made. */
#ifndef FGL_RUN_RECIPE_H
#define FGL_RUN_RECIPE_H

#include "lab/report/run_records.h"

/** A number for what a command does, whatever its seed, rate, way of judging and folders; 0: no command is known. */
uint64_t fgl_recipe_of(const char *command);

/** Mark as stale what was made by another recipe than the last run of its suite, size, task, method and workers. */
void fgl_runs_settle(fgl_runs *runs);

#endif
