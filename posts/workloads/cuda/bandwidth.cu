// Read bandwidth by access pattern and working set, and the cost of launches: bandwidth_gpu [largest working set in MB]
#include <cstdio>
#include <cstdlib>

#include "../markers.h"
#include "patterns.cu"

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t error = (call);                                                                   \
        if (error != cudaSuccess) {                                                                   \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                       \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

typedef void kernel(const float *, float *, long, long);

static double gigabytes_per_second(kernel *run, const float *x, float *out, long bytes, long parameter, int blocks)
{
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    float best = 1e30f;
    int launches = bytes < (64L << 20) ? 20 : 3;
    for (int r = 0; r < 4; r++) {
        float ms;
        CHECK(cudaEventRecord(start));
        for (int i = 0; i < launches; i++) run<<<blocks, 256>>>(x, out, bytes / 4, parameter);
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        best = ms < best ? ms : best;
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    return 1e-6 * bytes * launches / best;
}

// Time of the CPU for one launch, and of one launch with its end awaited.
static void launches()
{
    const int count = 10000;
    nothing<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    mark("launch");
    double start = seconds();
    for (int i = 0; i < count; i++) nothing<<<1, 1>>>();
    double queued = seconds() - start;
    CHECK(cudaDeviceSynchronize());
    double drained = seconds() - start;
    start = seconds();
    for (int i = 0; i < count; i++) {
        nothing<<<1, 1>>>();
        CHECK(cudaDeviceSynchronize());
    }
    double awaited = seconds() - start;
    mark("end");
    std::printf("{\"launch_us\": %.3f, \"launch_and_run_us\": %.3f, \"launch_and_wait_us\": %.3f}\n", 1e6 * queued / count,
                1e6 * drained / count, 1e6 * awaited / count);
}

int main(int argc, char **argv)
{
    long largest = (argc > 1 ? std::atol(argv[1]) : 1024) << 20;
    if (largest < (1L << 20) || largest & (largest - 1)) {
        std::fprintf(stderr, "usage: bandwidth_gpu [largest working set in MB, a power of two]\n");
        return 2;
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    std::printf("{\"gpu\": \"%s\", \"sms\": %d, \"l2_bytes\": %d, \"bus_bits\": %d}\n", device.name, device.multiProcessorCount,
                device.l2CacheSize, device.memoryBusWidth);
    float *x, *out;
    mark("allocate");
    CHECK(cudaMalloc(&x, largest));
    CHECK(cudaMalloc(&out, 4));
    CHECK(cudaMemset(x, 0, largest));
    const struct { const char *name; kernel *run; long parameter; } patterns[] = {
        {"coalesced", read_coalesced, 0}, {"vector", read_vector, 0},    {"stride2", read_strided, 1},
        {"stride8", read_strided, 3},     {"stride32", read_strided, 5}, {"gather", read_gather, 2654435761L},
    };
    mark("decode");
    for (long bytes = 1L << 20; bytes <= largest; bytes *= 4)
        for (auto &p : patterns)
            std::printf("{\"pattern\": \"%s\", \"bytes\": %ld, \"GB_s\": %.1f}\n", p.name, bytes,
                        gigabytes_per_second(p.run, x, out, bytes, p.parameter, 8 * device.multiProcessorCount));
    launches();
    return 0;
}
