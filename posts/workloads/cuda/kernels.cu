// C = A x B, row-major, n a multiple of 128. One idea a kernel; extern "C" keeps the names readable in PTX and SASS.
#include <cuda_fp16.h>
#include <mma.h>

// 1. One thread for each element of C. All operands come from global memory.
extern "C" __global__ void matmul_naive(const float *a, const float *b, float *c, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}

// 2. A block of 32 x 32 threads shares tiles of A and B: each element is read from global memory n / 32 times, not n times.
#define TILE 32
extern "C" __global__ void __launch_bounds__(TILE * TILE) matmul_tile(const float *a, const float *b, float *c, int n)
{
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        as[y][x] = a[row * n + k0 + x];
        bs[y][x] = b[(k0 + y) * n + col];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) sum += as[y][k] * bs[k][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

// 3. 256 threads make 128 x 128 elements, 8 x 8 a thread: 16 values from shared memory feed 64 FFMA.
#define BIG 128
#define DEPTH 8
#define PER 8
extern "C" __global__ void __launch_bounds__(256) matmul_registers(const float *a, const float *b, float *c, int n)
{
    __shared__ float as[DEPTH][BIG], bs[DEPTH][BIG];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, row0 = blockIdx.y * BIG, col0 = blockIdx.x * BIG;
    float sum[PER][PER] = {};
    for (int k0 = 0; k0 < n; k0 += DEPTH) {
        float4 from_a = *(const float4 *)(a + (row0 + t / 2) * n + k0 + t % 2 * 4);
        as[t % 2 * 4 + 0][t / 2] = from_a.x, as[t % 2 * 4 + 1][t / 2] = from_a.y;
        as[t % 2 * 4 + 2][t / 2] = from_a.z, as[t % 2 * 4 + 3][t / 2] = from_a.w;
        *(float4 *)&bs[t / 32][t % 32 * 4] = *(const float4 *)(b + (k0 + t / 32) * n + col0 + t % 32 * 4);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float left[PER], right[PER];
#pragma unroll
            for (int i = 0; i < PER; i++) left[i] = as[k][ty * PER + i], right[i] = bs[k][tx * PER + i];
#pragma unroll
            for (int i = 0; i < PER; i++)
#pragma unroll
                for (int j = 0; j < PER; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < PER; i++)
        for (int j = 0; j < PER; j++) c[(row0 + ty * PER + i) * n + col0 + tx * PER + j] = sum[i][j];
}

// 4. Tensor cores through WMMA: four warps make 64 x 64 elements, 32 x 32 a warp. Operands in half, sums in float.
#define WARP_TILE 64
extern "C" __global__ void __launch_bounds__(128) matmul_wmma(const half *a, const half *b, float *c, int n)
{
    using namespace nvcuda::wmma;
    __shared__ __align__(16) half as[WARP_TILE][32], bs[32][WARP_TILE];
    int t = threadIdx.x, warp = t / 32, row0 = blockIdx.y * WARP_TILE, col0 = blockIdx.x * WARP_TILE;
    int warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;
    fragment<accumulator, 16, 16, 16, float> sum[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) fill_fragment(sum[i][j], 0.0f);
    for (int k0 = 0; k0 < n; k0 += 32) {
        for (int i = t; i < WARP_TILE * 4; i += 128) {
            *(int4 *)&as[i / 4][i % 4 * 8] = *(const int4 *)(a + (row0 + i / 4) * n + k0 + i % 4 * 8);
            *(int4 *)&bs[i / 8][i % 8 * 8] = *(const int4 *)(b + (k0 + i / 8) * n + col0 + i % 8 * 8);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k += 16) {
            fragment<matrix_a, 16, 16, 16, half, row_major> left[2];
            fragment<matrix_b, 16, 16, 16, half, row_major> right[2];
            for (int i = 0; i < 2; i++) {
                load_matrix_sync(left[i], &as[warp_row + 16 * i][k], 32);
                load_matrix_sync(right[i], &bs[k][warp_col + 16 * i], WARP_TILE);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            store_matrix_sync(c + (row0 + warp_row + 16 * i) * n + col0 + warp_col + 16 * j, sum[i][j], n, mem_row_major);
}

// 5. The same instruction as PTX: one warp makes 16 x 8 elements with mma.sync.m16n8k16, operands straight from global memory.
extern "C" __global__ void __launch_bounds__(32) matmul_mma(const half *a, const half *b, float *c, int n)
{
    int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2, row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
    float sum[4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        unsigned left[4], right[2];
        const half *upper = a + (row0 + group) * n + k0 + pair, *lower = upper + 8 * n;
        left[0] = *(const unsigned *)upper, left[1] = *(const unsigned *)lower;
        left[2] = *(const unsigned *)(upper + 8), left[3] = *(const unsigned *)(lower + 8);
        for (int i = 0; i < 2; i++) {
            const half *at = b + (k0 + pair + 8 * i) * n + col0 + group;
            half2 two = __halves2half2(at[0], at[n]);
            right[i] = *(unsigned *)&two;
        }
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
    float *out = c + (row0 + group) * n + col0 + pair;
    out[0] = sum[0], out[1] = sum[1], out[8 * n] = sum[2], out[8 * n + 1] = sum[3];
}
