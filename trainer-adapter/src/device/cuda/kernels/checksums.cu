// crc32c (Castagnoli; RFC 3720, appendix B.4) of runs of values. Polynomials over GF(2), the coefficient of x^0 in bit 31.
//
// A message of n words w is the sum of w[i] x^(32 (n - i)), its first word inverted, modulo the polynomial; the checksum is the
// inverse of that. So threads take every THREADS-th word, blocks take parts of a run, and what they find is joined by products.
// Zeros in front of a message change nothing: what a first row lacks is left out there.

// The polynomial without x^32: what x^32 is modulo the polynomial.
#define X32 0x82F63B78u
#define LOG_THREADS 7
// Words that a thread has on their way at a time.
#define WORDS_AHEAD 16

__device__ u32 crc_product(u32 a, u32 b) {
    u32 product = 0;
    for (u32 bit = 0; bit < 32; ++bit) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (X32 & (0u - (b & 1u)));
    }
    return product;
}

// x^(32 words).
__device__ u32 crc_power(u64 words) {
    u32 power = 0x80000000u, square = X32;
    for (; words > 0; words >>= 1) {
        if (words & 1) power = crc_product(power, square);
        square = crc_product(square, square);
    }
    return power;
}

// One block for each part of each run: blockIdx.x is the run, blockIdx.y the part of it.
extern "C" __global__ void sum_up_parts(const u32* values, u64 length, u64 run, u64 part, u32* parts) {
    // A product by x^(32 THREADS), byte by byte.
    __shared__ u32 table[4][256];
    __shared__ u32 sums[THREADS];
    u32 powers[LOG_THREADS + 1];
    powers[0] = X32;
    for (u32 at = 1; at <= LOG_THREADS; ++at) powers[at] = crc_product(powers[at - 1], powers[at - 1]);
    for (u32 entry = threadIdx.x; entry < 1024; entry += THREADS) {
        table[entry / 256][entry % 256] = crc_product((entry % 256) << (8 * (entry / 256)), powers[LOG_THREADS]);
    }
    __syncthreads();

    u64 start = blockIdx.x * run + blockIdx.y * part;
    u64 end = (blockIdx.x + 1) * run < length ? (blockIdx.x + 1) * run : length;
    if (start + part < end) end = start + part;
    u64 count = start < end ? end - start : 0;
    u64 rows = (count + THREADS - 1) / THREADS, pad = rows * THREADS - count;
    u32 sum = 0;
    if (rows > 0 && threadIdx.x >= pad) sum = values[start + threadIdx.x - pad];
    if (count > 0 && blockIdx.y == 0 && threadIdx.x == pad) sum = ~sum;
    u64 row = 1, place = start + THREADS + threadIdx.x - pad;
    for (; row + WORDS_AHEAD <= rows; row += WORDS_AHEAD) {
        u32 words[WORDS_AHEAD];
#pragma unroll
        for (u32 at = 0; at < WORDS_AHEAD; ++at) words[at] = values[place + at * THREADS];
#pragma unroll
        for (u32 at = 0; at < WORDS_AHEAD; ++at) {
            sum = table[0][sum & 255] ^ table[1][sum >> 8 & 255] ^ table[2][sum >> 16 & 255] ^ table[3][sum >> 24] ^ words[at];
        }
        place += WORDS_AHEAD * THREADS;
    }
    for (; row < rows; ++row) {
        sum = table[0][sum & 255] ^ table[1][sum >> 8 & 255] ^ table[2][sum >> 16 & 255] ^ table[3][sum >> 24] ^ values[place];
        place += THREADS;
    }
    sums[threadIdx.x] = sum;
    for (u32 half = THREADS / 2, at = LOG_THREADS - 1; half > 0; half /= 2, --at) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = crc_product(sums[threadIdx.x], powers[at]) ^ sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) parts[blockIdx.x * (u64)gridDim.y + blockIdx.y] = crc_product(sums[0], X32);
}

extern "C" __global__ void join_sums(const u32* parts, u32 parts_a_run, u64 length, u64 run, u64 part, u64 runs, u32* sums) {
    u32 whole = crc_power(part);
    EACH_VALUE(index, runs) {
        u64 left = length - index * run < run ? length - index * run : run;
        u32 sum = 0;
        for (u32 at = 0; left > 0; ++at) {
            u64 count = left < part ? left : part;
            sum = crc_product(sum, count == part ? whole : crc_power(count)) ^ parts[index * parts_a_run + at];
            left -= count;
        }
        sums[index] = ~sum;
    }
}
