// Attention of one head in fp32, head size 64, T a multiple of 64: the score matrix in global memory, or a row of it on chip.
// Compiled and read, not tuned: what counts here is which memory each load and store names.
#define D 64
#define BLOCK 64

// scores[i][j] = q[i] . k[j]: one thread a score, written to global memory.
extern "C" __global__ void scores_naive(const float *q, const float *k, float *scores, int t)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    float dot = 0;
    for (int c = 0; c < D; c++) dot += q[i * D + c] * k[j * D + c];
    scores[(size_t)i * t + j] = dot;
}

// One thread a query: reads its row of scores three times and writes it twice.
extern "C" __global__ void softmax_naive(float *scores, int t)
{
    float *row = scores + (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * t, top = row[0], total = 0;
    for (int j = 1; j < t; j++) top = fmaxf(top, row[j]);
    for (int j = 0; j < t; j++) row[j] = __expf(row[j] - top), total += row[j];
    for (int j = 0; j < t; j++) row[j] /= total;
}

// One thread an element of the output: reads the row of scores from global memory.
extern "C" __global__ void values_naive(const float *scores, const float *v, float *o, int t)
{
    int i = blockIdx.x, c = threadIdx.x;
    float sum = 0;
    for (int j = 0; j < t; j++) sum += scores[(size_t)i * t + j] * v[j * D + c];
    o[i * D + c] = sum;
}

// One thread a query, 64 queries a block: tiles of K and V in shared memory, scores in registers, online softmax.
extern "C" __global__ void __launch_bounds__(BLOCK) fused(const float *q, const float *k, const float *v, float *o, int t)
{
    __shared__ float ks[BLOCK][D], vs[BLOCK][D];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float mine[D], out[D] = {}, top = -INFINITY, total = 0;
#pragma unroll
    for (int c = 0; c < D; c++) mine[c] = q[i * D + c];
    for (int j0 = 0; j0 < t; j0 += BLOCK) {
        for (int x = threadIdx.x; x < BLOCK * D; x += BLOCK) ks[x / D][x % D] = k[j0 * D + x], vs[x / D][x % D] = v[j0 * D + x];
        __syncthreads();
        for (int j = 0; j < BLOCK; j++) {
            float dot = 0;
#pragma unroll
            for (int c = 0; c < D; c++) dot += mine[c] * ks[j][c];
            float highest = fmaxf(top, dot), scale = __expf(top - highest), p = __expf(dot - highest);
            total = total * scale + p, top = highest;
#pragma unroll
            for (int c = 0; c < D; c++) out[c] = out[c] * scale + p * vs[j][c];
        }
        __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < D; c++) o[i * D + c] = out[c] / total;
}
