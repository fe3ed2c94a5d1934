/*
 * blas.c - OpenBLAS on one thread, with its buffers reserved up front where memory is limited.
 *
 * OpenBLAS maps a buffer of up to 128 MiB of address space for every thread that calls it. Where the mapping fails it
 * retries forever (blas_memory_alloc in its memory.c), and training hangs. So where the process has a limit, all
 * buffers are allocated before training, each after a check that the mapping succeeds; OpenBLAS caches them.
 */
#include "trainer/base/blas.h"

#include "io/error.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Exported by OpenBLAS but declared in no header; weak, because another BLAS does not have them. */
extern void *blas_memory_alloc(int) __attribute__((weak));
extern void blas_memory_free(void *) __attribute__((weak));

/* Assumed bytes of a buffer, until the first allocation was measured. */
#if defined(__x86_64__)
#define BUFFER_BYTES ((size_t)128 << 20)
#else
#define BUFFER_BYTES ((size_t)32 << 20)
#endif
#define HEADROOM    ((size_t)1 << 20) /* what else the call may allocate */
#define BUFFERS_MAX 256u              /* the number that Debian's build supports at least */

uint64_t fgt_memory_limit(void) {
    static const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    uint64_t min = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit(resources[i], &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < min)
            min = limit.rlim_cur;
    }
    return min;
}

static size_t address_space(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f != NULL)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static int can_map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && munmap(p, bytes) == 0;
}

/* Allocates buffers one by one while the address space allows; returns how many. */
static uint64_t alloc_buffers(uint64_t wanted, void **buffer, size_t *bytes) {
    uint64_t allocated = 0;
    *bytes = BUFFER_BYTES;
    while (allocated < wanted && can_map(*bytes + HEADROOM)) {
        size_t before = address_space();
        buffer[allocated++] = blas_memory_alloc(0);
        size_t after = address_space();
        if (after > before) /* otherwise the buffer was cached already */
            *bytes = after - before;
    }
    return allocated;
}

static int reserve_buffers(uint64_t threads, uint64_t limit) {
    void *buffer[BUFFERS_MAX];
    char all[32], each[32];
    size_t bytes;
    uint64_t wanted = threads < BUFFERS_MAX ? threads : BUFFERS_MAX, allocated = alloc_buffers(wanted, buffer, &bytes);
    for (uint64_t i = 0; i < allocated; i++)
        blas_memory_free(buffer[i]);
    if (allocated == wanted)
        return FGIO_EXIT_OK;
    fgio_error("not enough memory: this process may have %s in all (ulimit -v, ulimit -d), and each of %llu threads "
               "needs %s for matrix products",
               fgio_bytes_text(limit, all, sizeof all), (unsigned long long)threads,
               fgio_bytes_text(bytes, each, sizeof each));
    fgio_hint("raise the limit, or give fewer --workers or --threads");
    return FGIO_EXIT_FAIL;
}

int fgt_blas_init(uint64_t threads) {
    uint64_t limit = fgt_memory_limit();
    openblas_set_num_threads(1);
    return limit == UINT64_MAX || !blas_memory_alloc || !blas_memory_free ? FGIO_EXIT_OK
                                                                          : reserve_buffers(threads, limit);
}
