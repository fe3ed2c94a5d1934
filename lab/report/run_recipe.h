/* run_recipe.h - which recorded runs used the same command. */
#ifndef FGL_RUN_RECIPE_H
#define FGL_RUN_RECIPE_H

#include "lab/report/run_records.h"

/** Hash of a command without seed, rate, options that change no result, and folders; 0: no command. */
uint64_t fgl_recipe_of(const char *command);

/** The same with folders: for a comparison that continues, other folders may be other data. */
uint64_t fgl_recipe_in_folders(const char *command);

/** Mark as stale what was made by another recipe than the last run of its suite, size, task, method and workers. */
void fgl_runs_mark_stale(fgl_runs *runs);

#endif
