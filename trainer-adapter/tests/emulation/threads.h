// CUDA's threads on one processor core: what the kernels' source needs to be compiled and run as C++.
//
// The threads of a block are fibers that take turns: each runs until it waits at a barrier or is done. A barrier counts its
// members, as the hardware's does, so one that not all threads reach is found: when no fiber gets any further, the process is
// aborted with a message. Blocks run one after the other, so __shared__ is static. Whoever runs blocks holds one lock.
#pragma once

#include <math.h>
#include <stdint.h>
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

// A stack and where on it to go on. Switching is all that an emulated barrier does, so on x86-64 it is done by hand:
// swapcontext asks the kernel each time.
#if defined(__x86_64__)
extern "C" void emulation_switch(void** from, void* to);
asm(R"(
.text
.globl emulation_switch
.type emulation_switch, @function
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulation_switch, . - emulation_switch
)");

struct Execution {
    void* top = nullptr;

    void begin(char* stack, void (*entry)()) {
        // What the switch pops: six registers, then where to return to. A function begins 8 bytes off a multiple of 16.
        void** place = (void**)((uintptr_t)(stack + STACK_BYTES) & ~(uintptr_t)15) - 2;
        *place = (void*)entry;
        top = place - 6;
        memset(top, 0, 6 * sizeof(void*));
    }
    void switch_to(Execution& other) { emulation_switch(&top, other.top); }
};
#else
struct Execution {
    ucontext_t context;

    void begin(char* stack, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }
    void switch_to(Execution& other) { swapcontext(&context, &other.context); }
};
#endif

struct Fiber {
    Execution execution;
    char* stack = nullptr;
    bool done = true;
};

struct Barrier {
    unsigned arrived = 0, generation = 0;
};

Fiber fibers[BLOCK_THREADS_MAX];
Execution scheduler;
unsigned current, members;
bool advanced;
std::function<void()>* body;
Barrier block_barrier, warp_barriers[BLOCK_THREADS_MAX / WARP_THREADS];
float slots[2][BLOCK_THREADS_MAX];
unsigned shuffles[BLOCK_THREADS_MAX];

}  // namespace emulation

emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

__attribute__((noinline)) void yield() { fibers[current].execution.switch_to(scheduler); }

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
    Fiber& fiber = fibers[thread];
    if (fiber.stack == nullptr) {
        fiber.stack = (char*)malloc(STACK_BYTES);
        fiber.execution.begin(fiber.stack, fiber_main);
    }
    scheduler.switch_to(fiber.execution);
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
