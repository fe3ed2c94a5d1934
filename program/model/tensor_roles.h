/* tensor_roles.h - roles of tensors, guessed from their names. */
#ifndef FGP_TENSOR_ROLES_H
#define FGP_TENSOR_ROLES_H

#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

/** The role of a tensor, guessed from its name and its number of dimensions; see tensor_roles.c for the rules. */
frug_role fgp_guess_role(const char *name, uint32_t ndim);

/** Attention heads of queries, and of keys and values (0: the same number); heads is 0 if unknown. */
typedef struct fgp_heads {
    uint32_t heads, kv_heads;
} fgp_heads;

/**
 * From the names and shapes of a file's tensors, guess role, module and input_first; attention matrices get the heads.
 * Returns 0, or -1 without memory.
 */
int fgp_guess_tensors(frug_tensor *tensors, size_t count, fgp_heads heads);

struct fgp_args;

/** Parse the option --heads H[:KV]; zeros if it is not given. Returns an exit code, after an error message. */
int fgp_heads_arg(const struct fgp_args *args, fgp_heads *heads);

/** The role of that name; FRUG_ROLE_OTHER when there is none. */
frug_role fgp_role_of(const char *name);

#endif
