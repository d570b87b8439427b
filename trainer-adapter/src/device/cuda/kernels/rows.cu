// Row by row, one block a row unless said otherwise.

extern "C" __global__ void add_row(float* matrix, u64 stride, u32 columns, const float* vector) {
    float* row = matrix + blockIdx.x * stride;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) row[column] += vector[column];
}

// A block has WARP columns.
extern "C" __global__ void sum_rows(const float* matrix, u64 stride, u32 rows, u32 columns, float* vector) {
    u32 column = blockIdx.x * WARP + threadIdx.x % WARP;
    float sum = 0.0f;
    if (column < columns) {
        for (u32 row = threadIdx.x / WARP; row < rows; row += WARPS) sum += matrix[row * stride + column];
    }
    sum = column_sum(sum);
    if (threadIdx.x < WARP && column < columns) vector[column] = sum;
}

extern "C" __global__ void add_matrix(
    const float* source, u64 source_stride, float* target, u64 target_stride, u32 columns) {
    const float* from = source + blockIdx.x * source_stride;
    float* to = target + blockIdx.x * target_stride;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) to[column] += from[column];
}

extern "C" __global__ void gather(
    const float* source, u64 source_stride, const u32* rows, float* output, u64 output_stride, u32 columns) {
    const float* from = source + rows[blockIdx.x] * source_stride;
    float* to = output + blockIdx.x * output_stride;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) to[column] = from[column];
}

// One block a row of the target. Its sources are sources[starts[block]] to sources[starts[block + 1] - 1], in that order.
extern "C" __global__ void scatter_add(
    const float* source, u64 source_stride, const u32* targets, const u32* starts, const u32* sources, float* target,
    u64 target_stride, u32 columns) {
    float* to = target + targets[blockIdx.x] * target_stride;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        float sum = to[column];
        for (u32 index = first; index < end; ++index) sum += source[sources[index] * source_stride + column];
        to[column] = sum;
    }
}

// table[position] is the cosines of a position, then its sines. Sign -1 turns back.
extern "C" __global__ void rotary(
    float* matrix, u64 stride, u32 columns, const u32* positions, const float* table, u64 table_stride, u32 half,
    float sign) {
    float* row = matrix + blockIdx.x * stride;
    const float* angles = table + positions[blockIdx.x] * table_stride;
    for (u32 pair = threadIdx.x; pair < columns / 2; pair += THREADS) {
        u32 index = pair % half, place = pair / half * 2 * half + index;
        float cosine = angles[index], sine = sign * angles[half + index];
        float x = row[place], y = row[place + half];
        row[place] = x * cosine - y * sine;
        row[place + half] = y * cosine + x * sine;
    }
}

extern "C" __global__ void swiglu(
    const float* gate_up, u64 gate_up_stride, float* output, u64 output_stride, u32 columns) {
    const float* gates = gate_up + blockIdx.x * gate_up_stride;
    float* to = output + blockIdx.x * output_stride;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        to[column] = gates[column] / (1.0f + expf(-gates[column])) * gates[columns + column];
    }
}

// With s = sigmoid(g): d(g s u)/du = g s and d(g s u)/dg = u s (1 + g (1 - s)).
extern "C" __global__ void swiglu_backward(
    const float* gate_up, u64 gate_up_stride, const float* outer, u64 outer_stride, float* gradient,
    u64 gradient_stride, u32 columns) {
    const float* gates = gate_up + blockIdx.x * gate_up_stride;
    const float* from = outer + blockIdx.x * outer_stride;
    float* to = gradient + blockIdx.x * gradient_stride;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        float gate = gates[column], up = gates[columns + column], sigmoid = 1.0f / (1.0f + expf(-gate));
        to[columns + column] = from[column] * gate * sigmoid;
        to[column] = from[column] * up * sigmoid * (1.0f + gate * (1.0f - sigmoid));
    }
}

// Rounds to the nearest bfloat16, ties to even, and closes the gaps between rows. Not a number stays one.
extern "C" __global__ void to_bfloat16(const float* matrix, u64 stride, u32 columns, unsigned short* output) {
    const float* from = matrix + blockIdx.x * stride;
    unsigned short* to = output + blockIdx.x * (u64)columns;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        u32 bits = __float_as_uint(from[column]);
        bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        to[column] = is_nan ? (unsigned short)(bits >> 16 | 0x40u) : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
}
