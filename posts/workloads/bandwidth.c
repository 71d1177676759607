/* Read bandwidth by working set and number of threads: each thread sums its own part.
 *
 *   bandwidth [threads] [largest working set in MB]
 *
 * Prints one JSON line a working set. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "markers.h"

#define READ_AT_LEAST (1ull << 30)

/* Sixteen sums hide the latency of the addition; integers, so that the compiler may reorder them. */
__attribute__((noinline)) static uint64_t summed(const uint64_t *x, size_t count)
{
    uint64_t sum[16] = {0};
    for (size_t i = 0; i < count; i += 16)
        for (int lane = 0; lane < 16; lane++) sum[lane] += x[i + lane];
    for (int lane = 1; lane < 16; lane++) sum[0] += sum[lane];
    return sum[0];
}

static double gigabytes_per_second(const uint64_t *x, size_t bytes, int threads, uint64_t *sink)
{
    size_t part = bytes / sizeof *x / (size_t)threads / 16 * 16;
    size_t rounds = READ_AT_LEAST / bytes + 1;
    double best = 1e30;
    for (int r = 0; r < 3; r++) {
        uint64_t total = 0;
        double start = seconds();
#pragma omp parallel num_threads(threads) reduction(+ : total)
        for (size_t i = 0; i < rounds; i++) {
            total += summed(x + part * (size_t)omp_get_thread_num(), part);
            __asm__ volatile("" : : : "memory");
        }
        double taken = seconds() - start;
        best = taken < best ? taken : best;
        *sink += total;
    }
    return 1e-9 * (double)(part * sizeof *x * (size_t)threads * rounds) / best;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t largest = (size_t)(argc > 2 ? atoi(argv[2]) : 512) << 20;
    if (threads < 1 || largest == 0) {
        fprintf(stderr, "usage: bandwidth [threads] [largest working set in MB]\n");
        return 2;
    }
    uint64_t *x = mmap(NULL, largest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), sink = 0;
    if (x == MAP_FAILED) { perror("mmap"); return 1; }
    madvise(x, largest, MADV_HUGEPAGE);
    for (size_t i = 0; i < largest / sizeof *x; i++) x[i] = i;
    mark("decode");
    for (size_t bytes = 16384; bytes <= largest; bytes *= 2) {
        double rate = gigabytes_per_second(x, bytes, threads, &sink);
        printf("{\"threads\": %d, \"bytes\": %zu, \"GB_s\": %.2f}\n", threads, bytes, rate);
        fflush(stdout);
    }
    mark("end");
    return sink == 1;
}
