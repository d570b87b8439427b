// Whole flat buffers, value by value: as many launches for one tensor as for ten thousand.

#define EACH_VALUE(index, length) \
    for (u64 index = blockIdx.x * (u64)THREADS + threadIdx.x; index < (length); index += gridDim.x * (u64)THREADS)

extern "C" __global__ void accumulate(const float* source, float* target, u64 length) {
    EACH_VALUE(index, length) target[index] += source[index];
}

// One block and one sum for each run of `run` values.
extern "C" __global__ void sum_of_squares(const float* values, u64 length, u32 run, double* sums) {
    __shared__ double parts[THREADS];
    u64 first = blockIdx.x * (u64)run;
    u64 end = first + run < length ? first + run : length;
    double sum = 0.0;
    for (u64 index = first + threadIdx.x; index < end; index += THREADS) sum += (double)values[index] * values[index];
    parts[threadIdx.x] = sum;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}

// Loshchilov and Hutter 2019, algorithm 2, with the decay scaled by the learning rate as PyTorch does.
extern "C" __global__ void adamw(
    const float* gradient, float* parameters, float* first_moments, float* second_moments, u64 length,
    float gradient_scale, float rate, float keep, float beta1, float one_minus_beta1, float beta2,
    float one_minus_beta2, float second_scale, float epsilon) {
    EACH_VALUE(index, length) {
        float g = gradient[index] * gradient_scale;
        float m = beta1 * first_moments[index] + one_minus_beta1 * g;
        float v = beta2 * second_moments[index] + one_minus_beta2 * (g * g);
        first_moments[index] = m;
        second_moments[index] = v;
        parameters[index] = parameters[index] * keep - rate * m / (sqrtf(v) * second_scale + epsilon);
    }
}

// Marks a sum that cannot be represented; whatever is added, it stays.
#define LOST ((i64)0x8000000000000000ull)

// sums += factor . source, each term rounded to a whole unit, ties to even.
extern "C" __global__ void add_to_sums(const float* source, double factor, double limit, i64* sums, u64 length) {
    EACH_VALUE(index, length) {
        double term = rint(factor * (double)source[index]);
        // The comparison is false for what is not a number.
        bool fits = fabs(term) < limit && sums[index] != LOST;
        sums[index] = fits ? sums[index] + (i64)term : LOST;
    }
}

// wide += factor . sums.
extern "C" __global__ void weigh_sums(const i64* sums, double factor, double* wide, u64 length) {
    EACH_VALUE(index, length) {
        double value = sums[index] == LOST ? (double)__uint_as_float(0x7fc00000u) : factor * (double)sums[index];
        wide[index] += value;
    }
}

extern "C" __global__ void round_sums(const double* wide, float* output, u64 length) {
    EACH_VALUE(index, length) output[index] = (float)wide[index];
}

// A run of values that is to be copied, and where it begins among all values of the launch.
struct Piece {
    u64 source, target, first;
};

extern "C" __global__ void copy_pieces(const Piece* pieces, u32 count, u64 length) {
    EACH_VALUE(index, length) {
        u32 low = 0, high = count;
        while (high - low > 1) {
            u32 middle = (low + high) / 2;
            if (pieces[middle].first <= index) low = middle;
            else high = middle;
        }
        Piece piece = pieces[low];
        ((float*)piece.target)[index - piece.first] = ((const float*)piece.source)[index - piece.first];
    }
}

// `device::fingerprint` says the same in Rust.
__device__ u64 mixed(u64 place, u32 bits) {
    u64 word = place * 0x9E3779B97F4A7C15ull ^ bits;
    word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93ull;
    word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93ull;
    return word ^ (word >> 32);
}

// One block and one sum for each run of `run` values. The sums are integers, so their order changes nothing.
extern "C" __global__ void fingerprint(const u32* values, u64 length, u64 first_place, u32 run, u64* sums) {
    __shared__ u64 parts[THREADS];
    u64 first = blockIdx.x * (u64)run;
    u64 end = first + run < length ? first + run : length;
    u64 sum = 0;
    for (u64 index = first + threadIdx.x; index < end; index += THREADS) sum += mixed(first_place + index, values[index]);
    parts[threadIdx.x] = sum;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}
