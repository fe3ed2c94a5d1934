/*
 * emulator.cpp - the GPU's kernels on a CPU, where there is no GPU. The files of lib/cuda are compiled as C++ with the
 * words of device.h, and the test of the GPU runs as it is.
 *
 * A grid's thread blocks run one after the other. Each of a block's threads has a stack of its own and runs until it
 * has to wait for others, of its warp or of the block; then the next one that can go on does. So everything that
 * kernels compute and write is seen, byte for byte, and so are a thread that waits for one that never comes, threads of
 * a warp that meet at different calls, and kernels that do not end. Under ASan and UBSan so are accesses outside of
 * memory that was allocated, and vectors at addresses that are no multiple of their length.
 *
 * What it cannot show: races (only one thread runs at a time; blocks alternate between the first thread first and the
 * last one first, so that some of them give different bytes), the order in which memory is seen, streams and graphs,
 * limits of registers and shared memory, and what nvcc makes of the source.
 */
#include "device.h"

#include <mutex>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined __has_feature
#if __has_feature(address_sanitizer) /* as clang says it */
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, gridDim;

namespace {

constexpr unsigned MOST = 256;       /* threads of a block */
constexpr size_t STACK = 128 * 1024; /* bytes */
constexpr size_t STAGGER = 192;      /* without it the ends of all stacks would share a few lines of the cache */
constexpr unsigned long PATIENCE = 100000000; /* changes of thread in a block */

/* Where threads wait: for as many as there must be, who bring a value each. Two sets of values, because the first to
 * go on may come to the next meeting before the last has read those of this one. */
struct meeting {
    unsigned here, turn;
    emulator_call call;
    uint32_t value[2][32];
};

struct fiber {
    jmp_buf point;
    const void *stack; /* for ASan, as size and fake */
    size_t size;
    void *fake;
    const meeting *waits; /* until its turn is another */
    unsigned turn;
    bool done;
};

fiber thread[MOST], home;
meeting warp[MOST / 32], everyone;
unsigned threads, now, made, living;
unsigned long changes;
bool downwards;
const std::function<void()> *work;

[[noreturn]] void give_up(const char *why) {
    fprintf(stderr, "emulator: block %u,%u, thread %u: %s\n", blockIdx.x, blockIdx.y, now, why);
    exit(99);
}

void leave(fiber *from, const fiber *to) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->size);
#else
    (void)from, (void)to;
#endif
}

void arrive(fiber *at, fiber *before) {
#ifdef __SANITIZE_ADDRESS__
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(at->fake, &stack, &size);
    if (before)
        before->stack = stack, before->size = size;
#else
    (void)at, (void)before;
#endif
}

/* ASan's own longjmp asks the kernel for a signal stack every time, and forgets what it knows of this one. */
void jump(jmp_buf point) {
#ifdef __SANITIZE_ADDRESS__
    typedef void jumper(jmp_buf, int);
    static jumper *const plain = reinterpret_cast<jumper *>(dlsym(dlopen("libc.so.6", RTLD_LAZY), "_longjmp"));
    plain(point, 1);
#else
    _longjmp(point, 1);
#endif
}

void change(fiber *from, fiber *to) {
    leave(from, to);
    if (_setjmp(from->point) == 0)
        jump(to->point);
    arrive(from, nullptr);
}

/* The first of count threads from `first` on that can go on, beginning behind this one; or `threads` if none can. */
unsigned ready(unsigned first, unsigned count) {
    unsigned at = now - first;
    for (unsigned i = 0; i < count; i++) {
        at = downwards ? (at == 0 ? count : at) - 1 : at + 1 == count ? 0 : at + 1;
        const fiber *f = &thread[first + at];
        if (!f->done && !(f->waits && f->waits->turn == f->turn))
            return first + at;
    }
    return threads;
}

/* Let the next thread go on that can, of this warp if there is one; the caller does when it is its turn again. */
void pass_on() {
    fiber *self = &thread[now];
    if (++changes > PATIENCE)
        give_up("the kernel does not end");
    if (living == 0) {
        change(self, &home);
        return;
    }
    unsigned next = ready(now / 32 * 32, 32);
    if (next == threads)
        next = ready(0, threads);
    if (next == threads)
        give_up("all threads wait, and some that they wait for have ended");
    now = threadIdx.x = next;
    change(self, &thread[next]);
}

/* A thread, for all the kernels to come. */
void live() {
    arrive(&thread[now], &home);
    for (change(&thread[now], &home);; pass_on()) {
        (*work)();
        thread[now].done = true;
        living--;
    }
}

void make_thread(unsigned i) {
    static ucontext_t context;
    char *stack = static_cast<char *>(malloc(STACK));
    if (!stack || getcontext(&context) != 0)
        give_up("no memory for a stack");
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK - i * STAGGER;
    context.uc_link = nullptr;
    makecontext(&context, live, 0);
    thread[i].stack = stack;
    thread[i].size = context.uc_stack.ss_size;
    now = i;
    leave(&home, &thread[i]);
    if (_setjmp(home.point) == 0)
        setcontext(&context);
    arrive(&home, nullptr);
}

void wait(meeting *at, unsigned others) {
    fiber *self = &thread[now];
    if (++at->here == others) {
        at->here = 0;
        at->turn++;
        return;
    }
    self->waits = at;
    self->turn = at->turn;
    pass_on();
    self->waits = nullptr;
}

void run_block() {
    changes = 0;
    living = threads;
    for (unsigned i = 0; i < threads; i++)
        thread[i].done = false;
    now = threadIdx.x = downwards ? threads - 1 : 0;
    change(&home, &thread[now]);
    downwards = !downwards;
}

} // namespace

const uint32_t *emulator_meet(emulator_call call, uint32_t mask, uint32_t value) {
    meeting *at = &warp[now / 32];
    uint32_t *values = at->value[at->turn % 2];
    if (at->here > 0 && at->call != call)
        give_up("threads of a warp meet at different calls");
    if (mask != 0xffffffffu)
        give_up("a mask without some threads of the warp");
    at->call = call;
    values[now % 32] = value;
    wait(at, 32);
    return values;
}

void __syncthreads() {
    wait(&everyone, threads);
}

/* For Python: memory of the device is that of the host, and streams are all NULL. */
extern "C" __attribute__((visibility("default"))) int frug_cuda_emulated(void) {
    return 1;
}

void emulate(dim3 grid, unsigned count, const std::function<void()> &lane) {
    static std::mutex device; /* there is one, and threads of the host take turns */
    std::lock_guard<std::mutex> turn(device);
    if (count == 0 || count > MOST || count % 32 != 0)
        give_up("blocks have 32 to 256 threads, in whole warps");
    for (; made < count; made++)
        make_thread(made);
    threads = count;
    work = &lane;
    gridDim = grid;
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
            run_block();
}

/* ---- the runtime: memory of the host, where everything is done at once -------------------------------------- */

/* Filled with what nobody would take for data: memory of a device is not zero either. */
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

/* Few processors, so that a warp gets several blocks of a gradient, one after the other. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = 2;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "out of memory";
}
