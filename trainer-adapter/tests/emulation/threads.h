// CUDA's threads on one processor core: what the kernels' source needs to be compiled and run as C++.
//
// The threads of a block are fibers that take turns: each runs until it waits at a barrier or is done. A barrier counts its
// members, as the hardware's does, so one that not all threads reach is found: when no fiber gets any further, the process is
// aborted with a message. Blocks run one after the other, so __shared__ is static. Whoever runs blocks holds one lock.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define __global__
#define __device__ static
#define __shared__ static

namespace emulation {

struct Index {
    unsigned x, y, z;
};

constexpr unsigned WARP_THREADS = 32, BLOCK_THREADS_MAX = 1024;
constexpr size_t STACK_BYTES = 128 << 10;

struct Fiber {
    jmp_buf at;
    ucontext_t start;
    char* stack = nullptr;
    bool done = true;
};

struct Barrier {
    unsigned arrived = 0, generation = 0;
};

Fiber fibers[BLOCK_THREADS_MAX];
jmp_buf scheduler;
unsigned current, members;
bool advanced;
std::function<void()>* body;
Barrier block_barrier, warp_barriers[BLOCK_THREADS_MAX / WARP_THREADS];
float slots[2][BLOCK_THREADS_MAX];
unsigned shuffles[BLOCK_THREADS_MAX];

}  // namespace emulation

emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

__attribute__((noinline)) void yield() {
    if (_setjmp(fibers[current].at) == 0) _longjmp(scheduler, 1);
}

inline void wait(Barrier& barrier, unsigned count) {
    unsigned generation = barrier.generation;
    advanced = true;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    while (barrier.generation == generation) yield();
}

inline void fiber_main() {
    for (;;) {
        (*body)();
        fibers[current].done = true;
        advanced = true;
        yield();
    }
}

// Lets the fiber run until it yields.
__attribute__((noinline)) void resume(unsigned thread) {
    current = thread;
    threadIdx = {thread, 0, 0};
    if (_setjmp(scheduler) != 0) return;
    Fiber& fiber = fibers[thread];
    if (fiber.stack != nullptr) _longjmp(fiber.at, 1);
    fiber.stack = (char*)malloc(STACK_BYTES);
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack;
    fiber.start.uc_stack.ss_size = STACK_BYTES;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
    setcontext(&fiber.start);
}

inline void run_block(unsigned threads) {
    members = threads;
    block_barrier = {};
    for (unsigned warp = 0; warp < BLOCK_THREADS_MAX / WARP_THREADS; ++warp) warp_barriers[warp] = {};
    for (unsigned thread = 0; thread < threads; ++thread) {
        fibers[thread].done = false;
        shuffles[thread] = 0;
    }
    for (unsigned left = threads; left > 0;) {
        advanced = false;
        left = 0;
        for (unsigned thread = 0; thread < threads; ++thread) {
            if (!fibers[thread].done) resume(thread);
            left += !fibers[thread].done;
        }
        if (!advanced) {
            fprintf(stderr, "emulation: a barrier that not all threads of block %u.%u.%u reach\n", blockIdx.x, blockIdx.y, blockIdx.z);
            abort();
        }
    }
}

inline void run_grid(Index grid, unsigned threads, std::function<void()> work) {
    body = &work;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                run_block(threads);
            }
}

}  // namespace emulation

static inline void __syncthreads() { emulation::wait(emulation::block_barrier, emulation::members); }

static inline float __shfl_xor_sync(unsigned, float value, unsigned distance) {
    using namespace emulation;
    unsigned thread = threadIdx.x, turn = shuffles[thread]++ % 2;
    slots[turn][thread] = value;
    wait(warp_barriers[thread / WARP_THREADS], WARP_THREADS);
    return slots[turn][thread ^ distance];
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
