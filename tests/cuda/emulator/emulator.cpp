/*
 * emulator.cpp - run the CUDA kernels on a CPU. The files of lib/cuda are compiled as C++ with device.h, and
 * test_cuda.c runs unchanged.
 *
 * The thread blocks of a grid run one after the other. Each thread of a block is a fiber with its own stack and runs
 * until it has to wait for others, of its warp or of the block; then the next one that is ready runs. So all results of
 * kernels are checked, byte for byte, and the emulator detects a thread that waits for one that has ended, threads of a
 * warp at different calls, and kernels that do not end. ASan and UBSan detect accesses outside of allocated memory, and
 * misaligned vectors.
 *
 * It cannot detect races (only one thread runs at a time; blocks alternate between starting with the first thread and
 * with the last, so that some races give different bytes), memory ordering errors, errors in the use of streams and
 * graphs, excess of registers or shared memory, and errors of nvcc.
 */
#include "device.h"

#include <mutex>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined __has_feature
#if __has_feature(address_sanitizer) /* clang */
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, gridDim;

namespace {

constexpr unsigned MAX_THREADS = 512;      /* per block */
constexpr size_t STACK_BYTES = 128 * 1024; /* per fiber */
constexpr size_t STAGGER = 192;            /* without it the ends of all stacks would map to the same few cache lines */
constexpr unsigned long MAX_SWITCHES = 100000000; /* switches of fibers per block; more mean an endless loop */

/*
 * A barrier for a number of threads, each of which brings a value. There are two sets of values, because the first
 * thread to continue may reach the next barrier before the last has read the values of this one.
 */
struct barrier {
    unsigned arrived, phase;
    emulator_call call;
    uint32_t value[2][32];
};

struct fiber {
    jmp_buf context;
    const void *stack; /* for ASan, like size and fake_stack */
    size_t size;
    void *fake_stack;
    const barrier *waiting_at; /* until its phase changes */
    unsigned phase;
    bool done;
};

fiber fibers[MAX_THREADS], scheduler;
barrier warp_barrier[MAX_THREADS / 32], block_barrier;
unsigned threads, current, created, running;
unsigned long switches;
bool reverse_order;
const std::function<void()> *kernel;

[[noreturn]] void fail(const char *why) {
    fprintf(stderr, "emulator: block %u,%u, thread %u: %s\n", blockIdx.x, blockIdx.y, current, why);
    exit(99);
}

void begin_switch(fiber *from, const fiber *to) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->size);
#else
    (void)from, (void)to;
#endif
}

void end_switch(fiber *at, fiber *before) {
#ifdef __SANITIZE_ADDRESS__
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(at->fake_stack, &stack, &size);
    if (before)
        before->stack = stack, before->size = size;
#else
    (void)at, (void)before;
#endif
}

/* ASan's longjmp makes a system call for the signal stack every time, and forgets what it knows of this one. */
void long_jump(jmp_buf context) {
#ifdef __SANITIZE_ADDRESS__
    typedef void longjmp_fn(jmp_buf, int);
    static longjmp_fn *const libc_longjmp =
        reinterpret_cast<longjmp_fn *>(dlsym(dlopen("libc.so.6", RTLD_LAZY), "_longjmp"));
    libc_longjmp(context, 1);
#else
    _longjmp(context, 1);
#endif
}

void switch_fiber(fiber *from, fiber *to) {
    begin_switch(from, to);
    if (_setjmp(from->context) == 0)
        long_jump(to->context);
    end_switch(from, nullptr);
}

/* The first of `count` threads from `first` on that is ready, starting after the current one; `threads` if none is. */
unsigned find_ready(unsigned first, unsigned count) {
    unsigned at = current - first;
    for (unsigned i = 0; i < count; i++) {
        at = reverse_order ? (at == 0 ? count : at) - 1 : at + 1 == count ? 0 : at + 1;
        const fiber *f = &fibers[first + at];
        if (!f->done && !(f->waiting_at && f->waiting_at->phase == f->phase))
            return first + at;
    }
    return threads;
}

/* Switch to the next ready thread, of this warp if possible; returns when the caller is scheduled again. */
void schedule_next() {
    fiber *self = &fibers[current];
    if (++switches > MAX_SWITCHES)
        fail("endless loop in the kernel");
    if (running == 0) {
        switch_fiber(self, &scheduler);
        return;
    }
    unsigned next = find_ready(current / 32 * 32, 32);
    if (next == threads)
        next = find_ready(0, threads);
    if (next == threads)
        fail("deadlock: all threads wait, some that they wait for have ended");
    current = threadIdx.x = next;
    switch_fiber(self, &fibers[next]);
}

/* Main loop of a fiber, for all kernels. */
void fiber_main() {
    end_switch(&fibers[current], &scheduler);
    for (switch_fiber(&fibers[current], &scheduler);; schedule_next()) {
        (*kernel)();
        fibers[current].done = true;
        running--;
    }
}

void create_fiber(unsigned i) {
    static ucontext_t context;
    char *stack = static_cast<char *>(malloc(STACK_BYTES));
    if (!stack || getcontext(&context) != 0)
        fail("cannot allocate a stack");
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK_BYTES - i * STAGGER;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    fibers[i].stack = stack;
    fibers[i].size = context.uc_stack.ss_size;
    current = i;
    begin_switch(&scheduler, &fibers[i]);
    if (_setjmp(scheduler.context) == 0)
        setcontext(&context);
    end_switch(&scheduler, nullptr);
}

void wait_at_barrier(barrier *at, unsigned expected) {
    fiber *self = &fibers[current];
    if (++at->arrived == expected) {
        at->arrived = 0;
        at->phase++;
        return;
    }
    self->waiting_at = at;
    self->phase = at->phase;
    schedule_next();
    self->waiting_at = nullptr;
}

void run_block() {
    switches = 0;
    running = threads;
    for (unsigned i = 0; i < threads; i++)
        fibers[i].done = false;
    current = threadIdx.x = reverse_order ? threads - 1 : 0;
    switch_fiber(&scheduler, &fibers[current]);
    reverse_order = !reverse_order;
}

} // namespace

const uint32_t *emulator_exchange(emulator_call call, uint32_t mask, uint32_t value) {
    barrier *at = &warp_barrier[current / 32];
    uint32_t *values = at->value[at->phase % 2];
    if (at->arrived > 0 && at->call != call)
        fail("threads of a warp are at different calls");
    if (mask != 0xffffffffu)
        fail("the mask does not have all threads of the warp");
    at->call = call;
    values[current % 32] = value;
    wait_at_barrier(at, 32);
    return values;
}

void __syncthreads() {
    wait_at_barrier(&block_barrier, threads);
}

/* Python checks it: device memory is host memory, and streams are all NULL. */
extern "C" __attribute__((visibility("default"))) int frug_cuda_emulated(void) {
    return 1;
}

void emulate_kernel(dim3 grid, unsigned count, const std::function<void()> &lane) {
    static std::mutex device; /* one device: host threads take turns */
    std::lock_guard<std::mutex> phase(device);
    if (count == 0 || count > MAX_THREADS || count % 32 != 0)
        fail("a block must have 32 to 512 threads, a multiple of 32");
    for (; created < count; created++)
        create_fiber(created);
    threads = count;
    kernel = &lane;
    gridDim = grid;
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
            run_block();
}

/* ---- CUDA runtime: host memory, everything is synchronous ----------------------------------------------------- */

/* Filled with a pattern: device memory is not zero either. */
cudaError_t cudaMalloc(void **p, size_t bytes) {
    if (posix_memalign(p, 256, bytes) != 0)
        return cudaErrorMemoryAllocation;
    memset(*p, 0xa5, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    return cudaMemset(to, value, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind way, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, way);
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *devices) {
    *devices = 1;
    return cudaSuccess;
}

/* One processor, so that a warp has many consecutive blocks of a gradient. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "out of memory";
}
