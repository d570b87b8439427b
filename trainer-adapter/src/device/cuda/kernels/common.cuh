// What all kernels share. The source is CUDA C++ without any header, so that NVRTC needs no toolkit, and within what the
// emulation of the tests knows: __shared__, __syncthreads and __shfl_xor_sync over full warps.
//
// Every block has THREADS threads and no thread leaves before the last barrier. No kernel adds with atomics: each sum has one
// order, fixed by shapes. Sizes are 32 bits wide, places in memory 64.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define THREADS 128
#define WARP 32
#define WARPS (THREADS / WARP)
#define EVERY_LANE 0xffffffffu
// Below every score; e^(LOWEST - x) is 0, and LOWEST - LOWEST is a number.
#define LOWEST (-3.0e38f)

__device__ float warp_sum(float value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(EVERY_LANE, value, distance);
    return value;
}

__device__ float warp_max(float value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(EVERY_LANE, value, distance));
    }
    return value;
}

// The sum over the block, for every thread.
__device__ float block_sum(float value) {
    __shared__ float parts[WARPS];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0.0f;
    for (u32 warp = 0; warp < WARPS; ++warp) sum += parts[warp];
    return sum;
}

// The largest value of the block, for every thread.
__device__ float block_max(float value) {
    __shared__ float parts[WARPS];
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    float most = parts[0];
    for (u32 warp = 1; warp < WARPS; ++warp) most = fmaxf(most, parts[warp]);
    return most;
}

// Threads lie WARP columns wide and WARPS rows deep. Sums the rows of the block for the first of them.
__device__ float column_sum(float value) {
    __shared__ float parts[WARPS][WARP];
    __syncthreads();
    parts[threadIdx.x / WARP][threadIdx.x % WARP] = value;
    __syncthreads();
    float sum = 0.0f;
    for (u32 row = 0; row < WARPS; ++row) sum += parts[row][threadIdx.x % WARP];
    return sum;
}
