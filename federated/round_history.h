/* round_history.h - the last rounds of a run, for its status, and the lines of rounds.jsonl that they are read from. */
#ifndef FGF_ROUND_HISTORY_H
#define FGF_ROUND_HISTORY_H

#include "federated/server.h"

#include <jansson.h>

#define FGF_HISTORY 256u

typedef struct fgf_history {
    fgf_round_report last[FGF_HISTORY]; /* round i of the run's history is at i % FGF_HISTORY */
    uint64_t count;                     /* also of those that are no longer here */
} fgf_history;

/** A round as a JSON object; NAN is null. */
json_t *fgf_round_to_json(const fgf_round_report *report);

/** The same backwards, from a line of text; `rounds` is not in it, and set to 0. False: the line is not of a round. */
bool fgf_round_from_line(const char *line, size_t len, fgf_round_report *report);

void fgf_history_add(fgf_history *history, const fgf_round_report *report);

/** The rounds that the history has, oldest first, as an array. */
json_t *fgf_history_to_json(const fgf_history *history);

/**
 * Add the rounds of a file that are older than `round`. A line that is not of a round, or that is not newer than the
 * one before it, is left out.
 *
 *   rounds     of the run in all
 *   left_out   lines that were left out
 *
 * A file that does not exist has no rounds.
 */
int fgf_history_read(const char *path, uint64_t round, uint64_t rounds, fgf_history *history, uint64_t *left_out,
                     fgio_reason *why);

#endif
