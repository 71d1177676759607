// Runs the kernels of kernels.cu and checks them: matmul_gpu naive|tile|registers|wmma|mma|all [n] [repeats]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels.cu"

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t error = (call);                                                                   \
        if (error != cudaSuccess) {                                                                   \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                       \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

struct Operands {
    float *a, *b, *c;
    half *ha, *hb;
    int n;
};

static void launch(const char *name, const Operands &x)
{
    int n = x.n;
    if (!std::strcmp(name, "naive")) matmul_naive<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(x.a, x.b, x.c, n);
    else if (!std::strcmp(name, "tile")) matmul_tile<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(x.a, x.b, x.c, n);
    else if (!std::strcmp(name, "registers")) matmul_registers<<<dim3(n / BIG, n / BIG), 256>>>(x.a, x.b, x.c, n);
    else if (!std::strcmp(name, "wmma")) matmul_wmma<<<dim3(n / WARP_TILE, n / WARP_TILE), 128>>>(x.ha, x.hb, x.c, n);
    else matmul_mma<<<dim3(n / 8, n / 16), 32>>>(x.ha, x.hb, x.c, n);
}

// Largest difference from the product on the CPU, over some rows and columns. The operands are small integers: exact in half.
static double error_of(const Operands &x, const std::vector<float> &a, const std::vector<float> &b)
{
    int n = x.n;
    std::vector<float> c((size_t)n * n);
    CHECK(cudaMemcpy(c.data(), x.c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double worst = 0;
    for (int s = 0; s < 64; s++) {
        int row = s * 37 % n, col = s * 101 % n;
        double sum = 0;
        for (int k = 0; k < n; k++) sum += (double)a[(size_t)row * n + k] * b[(size_t)k * n + col];
        double gap = sum - c[(size_t)row * n + col];
        worst = gap < 0 ? (-gap > worst ? -gap : worst) : (gap > worst ? gap : worst);
    }
    return worst;
}

int main(int argc, char **argv)
{
    const char *names[] = {"naive", "tile", "registers", "wmma", "mma"};
    const char *which = argc > 1 ? argv[1] : "all";
    int n = argc > 2 ? std::atoi(argv[2]) : 4096, repeats = argc > 3 ? std::atoi(argv[3]) : 5;
    if (n < 128 || n % 128 || repeats < 1) {
        std::fprintf(stderr, "usage: matmul_gpu naive|tile|registers|wmma|mma|all [n, a multiple of 128] [repeats]\n");
        return 2;
    }
    size_t count = (size_t)n * n;
    std::vector<float> a(count), b(count);
    std::vector<half> ha(count), hb(count);
    for (size_t i = 0; i < count; i++) {
        a[i] = (float)(i % 7) - 3, b[i] = (float)(i % 5) - 2;
        ha[i] = __float2half(a[i]), hb[i] = __float2half(b[i]);
    }
    Operands x = {};
    x.n = n;
    CHECK(cudaMalloc(&x.a, count * 4));
    CHECK(cudaMalloc(&x.b, count * 4));
    CHECK(cudaMalloc(&x.c, count * 4));
    CHECK(cudaMalloc(&x.ha, count * 2));
    CHECK(cudaMalloc(&x.hb, count * 2));
    CHECK(cudaMemcpy(x.a, a.data(), count * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(x.b, b.data(), count * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(x.ha, ha.data(), count * 2, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(x.hb, hb.data(), count * 2, cudaMemcpyHostToDevice));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (const char *name : names) {
        if (std::strcmp(which, "all") && std::strcmp(which, name)) continue;
        CHECK(cudaMemset(x.c, 0, count * 4));
        launch(name, x);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        float best = 1e30f;
        for (int r = 0; r < repeats; r++) {
            float ms;
            CHECK(cudaEventRecord(start));
            launch(name, x);
            CHECK(cudaEventRecord(stop));
            CHECK(cudaEventSynchronize(stop));
            CHECK(cudaEventElapsedTime(&ms, start, stop));
            best = ms < best ? ms : best;
        }
        std::printf("{\"version\": \"%s\", \"n\": %d, \"best_ms\": %.4f, \"tflops\": %.3f, \"largest_error\": %g}\n", name, n, best,
                    2e-9 * n * n * n / best, error_of(x, a, b));
    }
    return 0;
}
