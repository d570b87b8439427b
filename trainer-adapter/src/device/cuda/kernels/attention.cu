// Causal attention of training, tile by tile, without a matrix of scores (Dao et al. 2022; Dao 2023 for the backward pass).
//
// A block owns OWN rows (queries, or keys) and goes through the rows on the other side OTHER at a time, in their order. For
// the backward pass a row and head keep one number, the logarithm of the sum of its exponentials. Columns of a head beyond
// WIDTH are another block's, which computes the scores again.

#define OWN 16
#define OTHER 32
#define DEPTH 32
#define WIDTH THREADS
#define SCORES (OWN * OTHER / THREADS)

// A thread's scores are those of one own row, with every (OTHER / SCORES)th of the other rows.
#define OWN_OF_THREAD (threadIdx.x / (OTHER / SCORES))
#define OTHER_OF_SCORE(score) (threadIdx.x % (OTHER / SCORES) + (score) * (OTHER / SCORES))

// Some rows of a matrix; -1 stands for a row of zeros.
struct Rows {
    const float* values;
    u64 stride;
    const int* rows;
};

__device__ float value_of(Rows matrix, u32 row, u32 column, u32 columns) {
    int index = matrix.rows[row];
    return index >= 0 && column < columns ? matrix.values[index * matrix.stride + column] : 0.0f;
}

// scores = own . other^T, over `columns` columns.
__device__ void tile_scores(float* scores, Rows own, Rows other, u32 columns) {
    __shared__ float left[OWN][DEPTH + 1];
    __shared__ float right[OTHER][DEPTH + 1];
    for (u32 score = 0; score < SCORES; ++score) scores[score] = 0.0f;
    for (u32 first = 0; first < columns; first += DEPTH) {
        __syncthreads();
        for (u32 place = threadIdx.x; place < OWN * DEPTH; place += THREADS) {
            left[place / DEPTH][place % DEPTH] = value_of(own, place / DEPTH, first + place % DEPTH, columns);
        }
        for (u32 place = threadIdx.x; place < OTHER * DEPTH; place += THREADS) {
            right[place / DEPTH][place % DEPTH] = value_of(other, place / DEPTH, first + place % DEPTH, columns);
        }
        __syncthreads();
        for (u32 depth = 0; depth < DEPTH; ++depth) {
            float value = left[OWN_OF_THREAD][depth];
            for (u32 score = 0; score < SCORES; ++score) scores[score] += value * right[OTHER_OF_SCORE(score)][depth];
        }
    }
}

// sums += weights . other, for this thread's column of each own row.
__device__ void tile_sums(float* sums, float (*weights)[OTHER + 1], Rows other, u32 first_column, u32 columns) {
    __shared__ float values[OTHER][WIDTH];
    bool has_column = first_column + threadIdx.x < columns;
    __syncthreads();
    for (u32 row = 0; has_column && row < OTHER; ++row) {
        values[row][threadIdx.x] = value_of(other, row, first_column + threadIdx.x, columns);
    }
    __syncthreads();
    for (u32 row = 0; has_column && row < OTHER; ++row) {
        float value = values[row][threadIdx.x];
        for (u32 own = 0; own < OWN; ++own) sums[own] += weights[own][row] * value;
    }
}

// Queries first..first + rows of a segment (a prompt, or a branch). They see the context (the prompt of a branch) and the
// segment up to themselves; a key's place in that order is its position.
struct QueryTile {
    u32 first, rows, segment, context, context_rows;
};

__device__ u32 keys_of(QueryTile tile) { return tile.context_rows + tile.first + tile.rows - tile.segment; }

// The row of the key at a position, or -1.
__device__ int key_row(QueryTile tile, u32 position) {
    if (position >= keys_of(tile)) return -1;
    return (int)(position < tile.context_rows ? tile.context + position : tile.segment + position - tile.context_rows);
}

__device__ bool query_sees(QueryTile tile, int query, u32 position) {
    return query >= 0 && position <= tile.context_rows + (u32)query - tile.segment;
}

// kept[head, row] = ln of the sum of the row's exponentials. Grid: tiles, query heads, widths.
extern "C" __global__ void attention_forward(
    const QueryTile* tiles, const float* qkv, u64 stride, u32 query_heads, u32 key_heads, u32 dimension, float scale,
    float* output, u64 output_stride, float* kept, u64 kept_stride) {
    __shared__ float weights[OWN][OTHER + 1];
    __shared__ float most[OWN], totals[OWN], factors[OWN];
    __shared__ int own_rows[OWN], other_rows[OTHER];
    QueryTile tile = tiles[blockIdx.x];
    u32 head = blockIdx.y, first_column = blockIdx.z * WIDTH, lane = threadIdx.x % WARP;
    const float* keys = qkv + (query_heads + head / (query_heads / key_heads)) * dimension;
    Rows query = {qkv + head * dimension, stride, own_rows};
    Rows key = {keys, stride, other_rows};
    Rows value = {keys + key_heads * dimension, stride, other_rows};
    if (threadIdx.x < OWN) {
        own_rows[threadIdx.x] = threadIdx.x < tile.rows ? (int)(tile.first + threadIdx.x) : -1;
        most[threadIdx.x] = LOWEST;
        totals[threadIdx.x] = 0.0f;
    }
    float sums[OWN] = {};
    for (u32 first = 0; first < keys_of(tile); first += OTHER) {
        float scores[SCORES];
        __syncthreads();
        if (threadIdx.x < OTHER) other_rows[threadIdx.x] = key_row(tile, first + threadIdx.x);
        __syncthreads();
        tile_scores(scores, query, key, dimension);
        for (u32 score = 0; score < SCORES; ++score) {
            bool seen = query_sees(tile, own_rows[OWN_OF_THREAD], first + OTHER_OF_SCORE(score));
            weights[OWN_OF_THREAD][OTHER_OF_SCORE(score)] = seen ? scores[score] * scale : LOWEST;
        }
        __syncthreads();
        // A warp has OWN / WARPS rows; a lane is a key.
        for (u32 own = threadIdx.x / WARP; own < OWN; own += WARPS) {
            float before = most[own], now = fmaxf(before, warp_max(weights[own][lane]));
            float exponential = expf(weights[own][lane] - now), factor = expf(before - now);
            float sum = warp_sum(exponential);
            weights[own][lane] = exponential;
            if (lane == 0) {
                totals[own] = totals[own] * factor + sum;
                factors[own] = factor;
                most[own] = now;
            }
        }
        __syncthreads();
        for (u32 own = 0; own < OWN; ++own) sums[own] *= factors[own];
        tile_sums(sums, weights, value, first_column, dimension);
    }
    __syncthreads();
    u32 column = first_column + threadIdx.x;
    if (column < dimension) {
        for (u32 own = 0; own < tile.rows; ++own) {
            output[(tile.first + own) * output_stride + head * dimension + column] = sums[own] / totals[own];
        }
    }
    if (blockIdx.z == 0 && threadIdx.x < tile.rows) {
        kept[head * kept_stride + tile.first + threadIdx.x] = most[threadIdx.x] + logf(totals[threadIdx.x]);
    }
}

// deltas[head, row] = sum of dO O = sum of P dP. Grid: rows, query heads.
extern "C" __global__ void attention_deltas(
    const float* output, u64 output_stride, const float* outer, u64 outer_stride, u32 dimension, float* deltas,
    u64 deltas_stride) {
    const float* left = output + blockIdx.x * output_stride + blockIdx.y * dimension;
    const float* right = outer + blockIdx.x * outer_stride + blockIdx.y * dimension;
    float sum = 0.0f;
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) sum += left[column] * right[column];
    sum = block_sum(sum);
    if (threadIdx.x == 0) deltas[blockIdx.y * deltas_stride + blockIdx.x] = sum;
}

// dQ = scale (P (dP - delta)) K, with P = e^(S - kept) and dP = dO V^T. Grid: tiles, query heads, widths.
extern "C" __global__ void attention_backward_queries(
    const QueryTile* tiles, const float* qkv, u64 stride, u32 query_heads, u32 key_heads, u32 dimension, float scale,
    const float* outer, u64 outer_stride, const float* kept, const float* deltas, u64 kept_stride, float* gradient,
    u64 gradient_stride) {
    __shared__ float weights[OWN][OTHER + 1];
    __shared__ int own_rows[OWN], other_rows[OTHER];
    QueryTile tile = tiles[blockIdx.x];
    u32 head = blockIdx.y, first_column = blockIdx.z * WIDTH;
    const float* keys = qkv + (query_heads + head / (query_heads / key_heads)) * dimension;
    Rows query = {qkv + head * dimension, stride, own_rows};
    Rows outers = {outer + head * dimension, outer_stride, own_rows};
    Rows key = {keys, stride, other_rows};
    Rows value = {keys + key_heads * dimension, stride, other_rows};
    if (threadIdx.x < OWN) own_rows[threadIdx.x] = threadIdx.x < tile.rows ? (int)(tile.first + threadIdx.x) : -1;
    float sums[OWN] = {};
    for (u32 first = 0; first < keys_of(tile); first += OTHER) {
        float scores[SCORES], outer_scores[SCORES];
        __syncthreads();
        if (threadIdx.x < OTHER) other_rows[threadIdx.x] = key_row(tile, first + threadIdx.x);
        __syncthreads();
        tile_scores(scores, query, key, dimension);
        tile_scores(outer_scores, outers, value, dimension);
        int row = own_rows[OWN_OF_THREAD];
        for (u32 score = 0; score < SCORES; ++score) {
            float weight = 0.0f;
            if (query_sees(tile, row, first + OTHER_OF_SCORE(score))) {
                u64 place = head * kept_stride + row;
                weight = expf(scores[score] * scale - kept[place]) * (outer_scores[score] - deltas[place]) * scale;
            }
            weights[OWN_OF_THREAD][OTHER_OF_SCORE(score)] = weight;
        }
        tile_sums(sums, weights, key, first_column, dimension);
    }
    u32 column = first_column + threadIdx.x;
    if (column < dimension) {
        for (u32 own = 0; own < tile.rows; ++own) {
            gradient[(tile.first + own) * gradient_stride + head * dimension + column] = sums[own];
        }
    }
}

// Keys first..first + rows, seen by the queries from themselves up to `end`: rows of a prompt by all of their family.
struct KeyTile {
    u32 first, rows, end;
};

// dK = scale (P (dP - delta))^T Q and dV = P^T dO, summed over the query heads of a key head in their order. Grid: tiles, key
// heads, widths.
extern "C" __global__ void attention_backward_keys(
    const KeyTile* tiles, const float* qkv, u64 stride, u32 query_heads, u32 key_heads, u32 dimension, float scale,
    const float* outer, u64 outer_stride, const float* kept, const float* deltas, u64 kept_stride, float* gradient,
    u64 gradient_stride) {
    __shared__ float weights[OWN][OTHER + 1];
    __shared__ float slopes[OWN][OTHER + 1];
    __shared__ int own_rows[OWN], other_rows[OTHER];
    KeyTile tile = tiles[blockIdx.x];
    u32 key_head = blockIdx.y, first_column = blockIdx.z * WIDTH, group = query_heads / key_heads;
    u32 key_column = (query_heads + key_head) * dimension, value_column = key_column + key_heads * dimension;
    Rows key = {qkv + key_column, stride, own_rows};
    Rows value = {qkv + value_column, stride, own_rows};
    if (threadIdx.x < OWN) own_rows[threadIdx.x] = threadIdx.x < tile.rows ? (int)(tile.first + threadIdx.x) : -1;
    float key_sums[OWN] = {}, value_sums[OWN] = {};
    for (u32 head = key_head * group; head < (key_head + 1) * group; ++head) {
        Rows query = {qkv + head * dimension, stride, other_rows};
        Rows outers = {outer + head * dimension, outer_stride, other_rows};
        for (u32 first = tile.first; first < tile.end; first += OTHER) {
            float scores[SCORES], outer_scores[SCORES];
            __syncthreads();
            if (threadIdx.x < OTHER) {
                other_rows[threadIdx.x] = first + threadIdx.x < tile.end ? (int)(first + threadIdx.x) : -1;
            }
            __syncthreads();
            tile_scores(scores, key, query, dimension);
            tile_scores(outer_scores, value, outers, dimension);
            int own_row = own_rows[OWN_OF_THREAD];
            for (u32 score = 0; score < SCORES; ++score) {
                int row = other_rows[OTHER_OF_SCORE(score)];
                float weight = 0.0f, slope = 0.0f;
                if (own_row >= 0 && row >= own_row) {
                    u64 place = head * kept_stride + row;
                    weight = expf(scores[score] * scale - kept[place]);
                    slope = weight * (outer_scores[score] - deltas[place]) * scale;
                }
                weights[OWN_OF_THREAD][OTHER_OF_SCORE(score)] = weight;
                slopes[OWN_OF_THREAD][OTHER_OF_SCORE(score)] = slope;
            }
            tile_sums(value_sums, weights, outers, first_column, dimension);
            tile_sums(key_sums, slopes, query, first_column, dimension);
        }
    }
    u32 column = first_column + threadIdx.x;
    if (column < dimension) {
        for (u32 own = 0; own < tile.rows; ++own) {
            float* row = gradient + (tile.first + own) * gradient_stride;
            row[key_column + column] = key_sums[own];
            row[value_column + column] = value_sums[own];
        }
    }
}
