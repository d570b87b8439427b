// RMSNorm of rows, and of the heads of queries and keys.

extern "C" __global__ void rms_norm(
    const float* input, u64 input_stride, const float* weight, float epsilon, float* output, u64 output_stride,
    float* scales, u32 columns) {
    const float* x = input + blockIdx.x * input_stride;
    float* y = output + blockIdx.x * output_stride;
    float squares = 0.0f;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) squares += x[column] * x[column];
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)columns + epsilon);
    for (u32 column = threadIdx.x; column < columns; column += THREADS) y[column] = x[column] * scale * weight[column];
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// With s the inverse root and g = dy w: dx = s (g - x s^2 mean(g x)).
extern "C" __global__ void rms_norm_backward(
    const float* input, u64 input_stride, const float* weight, const float* scales, const float* outer,
    u64 outer_stride, float* gradient, u64 gradient_stride, u32 columns) {
    const float* x = input + blockIdx.x * input_stride;
    const float* dy = outer + blockIdx.x * outer_stride;
    float* dx = gradient + blockIdx.x * gradient_stride;
    float products = 0.0f, scale = scales[blockIdx.x];
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        products += dy[column] * weight[column] * x[column];
    }
    float projection = block_sum(products) / (float)columns * scale * scale;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        dx[column] += scale * (dy[column] * weight[column] - x[column] * projection);
    }
}

// dw = sum over rows of dy x s. A block has WARP columns.
extern "C" __global__ void rms_norm_weight(
    const float* input, u64 input_stride, const float* scales, const float* outer, u64 outer_stride, u32 rows,
    u32 columns, float* gradient) {
    u32 column = blockIdx.x * WARP + threadIdx.x % WARP;
    float sum = 0.0f;
    if (column < columns) {
        for (u32 row = threadIdx.x / WARP; row < rows; row += WARPS) {
            sum += outer[row * outer_stride + column] * input[row * input_stride + column] * scales[row];
        }
    }
    sum = column_sum(sum);
    if (threadIdx.x < WARP && column < columns) gradient[column] = sum;
}

// One block a row and head: heads of queries, of keys, of values. Values pass through.
extern "C" __global__ void head_norm(
    const float* input, u64 input_stride, const float* weights, u64 weights_stride, float epsilon, float* output,
    u64 output_stride, float* scales, u32 queries, u32 keys, u32 dimension) {
    u32 head = blockIdx.y;
    const float* x = input + blockIdx.x * input_stride + head * dimension;
    float* y = output + blockIdx.x * output_stride + head * dimension;
    bool normed = head < queries + keys;
    const float* weight = weights + (head < queries ? 0 : weights_stride);
    float squares = 0.0f;
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) squares += x[column] * x[column];
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)dimension + epsilon);
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) {
        y[column] = normed ? x[column] * scale * weight[column] : x[column];
    }
    if (threadIdx.x == 0 && normed) scales[blockIdx.x * (u64)(queries + keys) + head] = scale;
}

// As in the norm of a row, in place of dy. One block a row and head.
extern "C" __global__ void head_norm_backward(
    const float* input, u64 input_stride, const float* weights, u64 weights_stride, const float* scales,
    float* gradient, u64 gradient_stride, u32 queries, u32 keys, u32 dimension) {
    u32 head = blockIdx.y;
    const float* x = input + blockIdx.x * input_stride + head * dimension;
    float* dy = gradient + blockIdx.x * gradient_stride + head * dimension;
    const float* weight = weights + (head < queries ? 0 : weights_stride);
    float products = 0.0f, scale = scales[blockIdx.x * (u64)(queries + keys) + head];
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) {
        products += dy[column] * weight[column] * x[column];
    }
    float projection = block_sum(products) / (float)dimension * scale * scale;
    for (u32 column = threadIdx.x; column < dimension; column += THREADS) {
        dy[column] = scale * (dy[column] * weight[column] - x[column] * projection);
    }
}

// sums[head] = sum over rows of dy x s. A block has WARP columns of one head.
extern "C" __global__ void head_norm_weight(
    const float* input, u64 input_stride, const float* scales, const float* outer, u64 outer_stride, u32 rows,
    u32 heads, u32 dimension, float* sums) {
    u32 head = blockIdx.y, column = blockIdx.x * WARP + threadIdx.x % WARP;
    u64 place = head * dimension + column;
    float sum = 0.0f;
    if (column < dimension) {
        for (u32 row = threadIdx.x / WARP; row < rows; row += WARPS) {
            sum += outer[row * outer_stride + place] * input[row * input_stride + place] * scales[row * (u64)heads + head];
        }
    }
    sum = column_sum(sum);
    if (threadIdx.x < WARP && column < dimension) sums[place] = sum;
}
