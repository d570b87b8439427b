// Log-softmax over the vocabulary, one block a row.

// With z' = z - max and S = sum e^z': log p_t = z'_t - ln S and H = ln S - (sum e^z' z') / S.
extern "C" __global__ void token_statistics(
    const float* logits, u64 stride, u32 columns, const u32* targets, float* statistics, u64 statistics_stride) {
    const float* z = logits + blockIdx.x * stride;
    float most = LOWEST, sum = 0.0f, weighted = 0.0f;
    for (u32 column = threadIdx.x; column < columns; column += THREADS) most = fmaxf(most, z[column]);
    most = block_max(most);
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        float exponential = expf(z[column] - most);
        sum += exponential;
        weighted += exponential * (z[column] - most);
    }
    sum = block_sum(sum);
    weighted = block_sum(weighted);
    if (threadIdx.x == 0) {
        float* row = statistics + blockIdx.x * statistics_stride;
        float log_sum = logf(sum);
        row[0] = z[targets[blockIdx.x]] - most - log_sum;
        row[1] = log_sum - weighted / sum;
        row[2] = most + log_sum;
    }
}

// d(c log p_t)/dz_j = c ([j = t] - p_j); d(e H)/dz_j = -e p_j (log p_j + H). In place of the logits.
extern "C" __global__ void token_gradient(
    float* logits, u64 stride, u32 columns, const u32* targets, const float* statistics, u64 statistics_stride,
    const float* log_prob_weights, const float* entropy_weights) {
    float* z = logits + blockIdx.x * stride;
    const float* row = statistics + blockIdx.x * statistics_stride;
    float entropy = row[1], normaliser = row[2];
    float c = log_prob_weights[blockIdx.x], e = entropy_weights[blockIdx.x];
    for (u32 column = threadIdx.x; column < columns; column += THREADS) {
        float log_p = z[column] - normaliser;
        float value = -expf(log_p) * (c + e * (log_p + entropy));
        z[column] = column == targets[blockIdx.x] ? value + c : value;
    }
}
