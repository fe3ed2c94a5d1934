/* inspect_model.h - what a config would send of a model, tensor by tensor: measured by inspect_model.c, printed by
 * inspect_model_print.c. */
#ifndef FGP_INSPECT_MODEL_H
#define FGP_INSPECT_MODEL_H

#include "frugrad.h"

/** One tensor. Bytes are those of a trial step. */
typedef struct fgp_sending {
    frug_tensor tensor; /* its name belongs to the layout */
    uint64_t count;     /* elements */
    frug_plan plan;
    uint32_t sections;    /* that speak of it; of several dense tensors in one section, the first has it */
    const char *index;    /* the code in use; "mixed" when its sections use several */
    const char *value;    /* likewise */
    uint64_t sent;        /* units */
    uint64_t entries;     /* elements */
    uint64_t header;      /* bytes of its sections' headers */
    uint64_t index_bytes; /* of the code in use */
    uint64_t by_code[FRUG_INDEX_CODES]; /* what each code would take; UINT64_MAX: it cannot say them */
    uint64_t bytes;                     /* of all; what is neither header nor index is values */
} fgp_sending;

typedef struct fgp_survey {
    const char *model;
    char *config; /* spelled out */
    uint64_t step, steps;
    uint64_t parameters, bytes; /* bytes of one frame for the whole model */
    size_t count;
    fgp_sending *item;
} fgp_survey;

#define FGP_FRAME_HEADER 48u /* docs/wire-format.md */

int fgp_survey_table(const fgp_survey *survey);
int fgp_survey_json(const fgp_survey *survey);

#endif
