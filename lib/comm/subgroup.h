/* subgroup.h - a group made of some ranks of another group. */
#ifndef FRUGI_SUBGROUP_H
#define FRUGI_SUBGROUP_H

#include "comm/comm.h"

/**
 * A group of the ranks first, first + stride, ... of the parent. The calling rank must be one of them.
 *
 *   tag   offset of the tags of its messages, so that they match no others between the same two ranks
 *
 * Messages use the parent's transport: destroy the subgroup before the parent. `peer` of a posted message is the rank
 * in the parent. The deadline is copied from the parent.
 */
frug_status frugi_subgroup_create(frug_comm *parent, int first, int stride, int size, int tag, frug_comm **comm);

/** Copy the parent's deadline again, which may have changed. */
void frugi_subgroup_update_deadline(frug_comm *subgroup);

#endif
