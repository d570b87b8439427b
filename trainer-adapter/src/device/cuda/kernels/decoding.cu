// Attention of decoding over a key-value cache.
//
// A slot holds, for each key head, its keys and then its values, `capacity` positions each. Keys lie in blocks of BLOCK
// positions, [dimension][positions] inside a block, so that neighbouring threads read neighbouring values; values lie
// position by position. What a row gives depends on its own query and slots alone.

#define BLOCK 16

struct Place {
    u64 prompt_slot, prompt_capacity, prompt_length, own_slot, own_capacity, own_index;
};

// One block a row and key head.
extern "C" __global__ void cache_store(
    const Place* places, const float* qkv, u64 stride, u32 query_heads, u32 key_heads, u32 dimension, float* cache) {
    Place place = places[blockIdx.x];
    u32 head = blockIdx.y;
    const float* key = qkv + blockIdx.x * stride + (query_heads + head) * dimension;
    u64 size = place.own_capacity * dimension;
    float* keys = cache + place.own_slot + head * 2 * size;
    u64 block = place.own_index / BLOCK, lane = place.own_index % BLOCK;
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) {
        keys[(block * dimension + column) * BLOCK + lane] = key[column];
        keys[size + place.own_index * dimension + column] = key[key_heads * dimension + column];
    }
}

__device__ float cache_score(const float* query, const float* keys, u64 position, u32 dimension) {
    const float* key = keys + position / BLOCK * dimension * BLOCK + position % BLOCK;
    float sum = 0.0f;
    for (u32 column = 0; column < dimension; ++column) sum += query[column] * key[column * (u64)BLOCK];
    return sum;
}

// Grid: rows, query heads, columns in runs of THREADS.
extern "C" __global__ void cache_attention(
    const Place* places, const float* qkv, u64 stride, u32 query_heads, u32 key_heads, u32 dimension, float scale,
    const float* cache, float* output, u64 output_stride) {
    __shared__ float weights[THREADS];
    Place place = places[blockIdx.x];
    u32 head = blockIdx.y, key_head = head / (query_heads / key_heads);
    const float* query = qkv + blockIdx.x * stride + head * dimension;
    u64 prompt_size = place.prompt_capacity * dimension, own_size = place.own_capacity * dimension;
    const float* prompt = cache + place.prompt_slot + key_head * 2 * prompt_size;
    const float* own = cache + place.own_slot + key_head * 2 * own_size;
    u64 length = place.prompt_length + place.own_index + 1;
    u32 column = blockIdx.z * THREADS + threadIdx.x;
    float most = LOWEST, total = 0.0f, sum = 0.0f;
    for (u64 first = 0; first < length; first += THREADS) {
        u64 position = first + threadIdx.x;
        float score = LOWEST;
        if (position < place.prompt_length) {
            score = cache_score(query, prompt, position, dimension) * scale;
        } else if (position < length) {
            score = cache_score(query, own, position - place.prompt_length, dimension) * scale;
        }
        float now = fmaxf(most, block_max(score)), factor = expf(most - now);
        float exponential = position < length ? expf(score - now) : 0.0f;
        total = total * factor + block_sum(exponential);
        most = now;
        weights[threadIdx.x] = exponential;
        __syncthreads();
        sum *= factor;
        for (u32 index = 0; column < dimension && index < THREADS && first + index < length; ++index) {
            u64 at = first + index;
            const float* value = at < place.prompt_length ? prompt + prompt_size + at * dimension
                                                          : own + own_size + (at - place.prompt_length) * dimension;
            sum += weights[index] * value[column];
        }
        __syncthreads();
    }
    if (column < dimension) output[blockIdx.x * output_stride + head * dimension + column] = sum / total;
}
