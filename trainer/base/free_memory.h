/* free_memory.h - how much memory a program may still take without swapping or being refused. */
#ifndef FGT_FREE_MEMORY_H
#define FGT_FREE_MEMORY_H

#include <stdint.h>

/** Bytes that all programs of this machine, or of the container (cgroup) around this one, may still take together.
 * UINT64_MAX: not known. */
uint64_t fgt_free_memory_machine(void);

/** Bytes of address space that this process may still take (ulimit -v). UINT64_MAX: no limit. */
uint64_t fgt_free_memory_process(void);

#endif
