/* run_recipe.h - which recorded runs are repetitions of each other, and which another command made. */
#ifndef FRUGI_RUN_RECIPE_H
#define FRUGI_RUN_RECIPE_H

#include "lab/report/run_records.h"

/** A number for what a command does, whatever its seed, rate, way of judging and folders; 0: no command is known. */
uint64_t frugi_recipe_of(const char *command);

/** Mark as stale what was made by another recipe than the last run of its suite, size, task, method and workers. */
void frugi_runs_settle(frugi_runs *runs);

#endif
