/*
 * inspect_model.h - what a config would send of a model, per tensor: measured by inspect_model.c, printed by
 * inspect_model_print.c.
 */
#ifndef FGP_INSPECT_MODEL_H
#define FGP_INSPECT_MODEL_H

#include "frugrad.h"

/** One tensor. Bytes are those of a trial step. */
typedef struct fgp_tensor_cost {
    frug_tensor tensor; /* its name belongs to the layout */
    uint64_t count;     /* elements */
    frug_tensor_plan plan;
    uint32_t sections;                  /* that cover it; a section of several dense tensors counts for the first */
    const char *index;                  /* the code in use; "mixed" when its sections use several */
    const char *value;                  /* likewise */
    uint64_t sent;                      /* units */
    uint64_t entries;                   /* elements */
    uint64_t header;                    /* bytes of its sections' headers */
    uint64_t index_bytes;               /* of the code in use */
    uint64_t by_code[FRUG_INDEX_CODES]; /* bytes of each code; UINT64_MAX: it cannot encode these indices */
    uint64_t bytes;                     /* header, index and values */
} fgp_tensor_cost;

typedef struct fgp_model_cost {
    const char *model;
    char *config; /* canonical */
    uint64_t step, steps;
    uint64_t parameters, bytes; /* bytes of one frame for the whole model */
    size_t count;
    fgp_tensor_cost *item;
} fgp_model_cost;

#define FGP_FRAME_HEADER 48u /* docs/wire-format.md */

int fgp_model_cost_table(const fgp_model_cost *survey);
int fgp_model_cost_json(const fgp_model_cost *survey);

#endif
