/* subgroup.h - some of the workers of a group as a group of their own. */
#ifndef FRUGI_SUBGROUP_H
#define FRUGI_SUBGROUP_H

#include "comm/comm.h"

/**
 * The workers first, first + stride, ... of a group, this one among them.
 *
 *   tag   added to the tags of its messages, so that they meet no others between the same two workers
 *
 * Messages travel over the parent's transport, which the parent keeps and must not lose first. A message that has been
 * started shows its peer's rank in the parent. The deadline is the parent's at the time.
 */
frug_status frugi_comm_part(frug_comm *parent, int first, int stride, int size, int tag, frug_comm **comm);

/** Take over the parent's deadline, which may have changed. */
void frugi_comm_part_refresh(frug_comm *part);

#endif
