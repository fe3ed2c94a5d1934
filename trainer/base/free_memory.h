/* free_memory.h - how much memory a process can still allocate without swapping or failing. */
#ifndef FGT_FREE_MEMORY_H
#define FGT_FREE_MEMORY_H

#include <stdint.h>

/** Bytes that all processes of this machine, or of the container (cgroup) of this one, can still allocate together.
 * UINT64_MAX: not known. */
uint64_t fgt_free_memory_machine(void);

/** Bytes of address space that this process can still map (ulimit -v). UINT64_MAX: no limit. */
uint64_t fgt_free_memory_process(void);

#endif
