// Four ways to read the same bytes. Each thread adds what it reads and writes one sum, so that no load is left out.

// Neighbouring threads read neighbouring words: one warp's load is 128 contiguous bytes.
extern "C" __global__ void read_coalesced(const float *x, float *out, long count, long)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x, step = (long)gridDim.x * blockDim.x;
    float sum = 0;
    for (; i < count; i += step) sum += x[i];
    if (sum == 1.5f) out[0] = sum;
}

// The same with 16 bytes a load.
extern "C" __global__ void read_vector(const float *x, float *out, long count, long)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x, step = (long)gridDim.x * blockDim.x;
    float sum = 0;
    for (; i < count / 4; i += step) {
        float4 v = ((const float4 *)x)[i];
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == 1.5f) out[0] = sum;
}

// Neighbouring threads read words that are 2^shift apart: each load of a warp touches up to 32 sectors. count is a power
// of two, and every word is read once.
extern "C" __global__ void read_strided(const float *x, float *out, long count, long shift)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x, step = (long)gridDim.x * blockDim.x;
    int stride = (int)shift, row_bits = 63 - __clzll(count) - stride;
    float sum = 0;
    for (; i < count; i += step) sum += x[((i & ((1L << row_bits) - 1)) << stride) | (i >> row_bits)];
    if (sum == 1.5f) out[0] = sum;
}

// Words in an order like that of an embedding look-up: the index times an odd number, modulo count, a power of two.
extern "C" __global__ void read_gather(const float *x, float *out, long count, long odd)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x, step = (long)gridDim.x * blockDim.x;
    float sum = 0;
    for (; i < count; i += step) sum += x[(i * odd) & (count - 1)];
    if (sum == 1.5f) out[0] = sum;
}

extern "C" __global__ void nothing(void) {}
