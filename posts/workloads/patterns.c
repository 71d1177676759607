/* The access patterns of cuda/patterns.cu on one CPU core: every word is read once, in another order.
 *
 *   patterns [working set in MB, a power of two]
 *
 * Times are CPU time. Prints one JSON line a pattern: useful bytes a second. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "markers.h"

#define ODD 2654435761u

__attribute__((noinline)) static float strided(const float *x, size_t count, size_t stride)
{
    float sum[4] = {0};
    for (size_t start = 0; start < stride; start++)
        for (size_t i = start; i < count; i += 4 * stride)
            for (int lane = 0; lane < 4; lane++) sum[lane] += x[i + (size_t)lane * stride];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

__attribute__((noinline)) static float gathered(const float *x, size_t count)
{
    float sum[4] = {0};
    for (size_t i = 0; i < count; i += 4)
        for (size_t lane = 0; lane < 4; lane++) sum[lane] += x[(i + lane) * ODD & (count - 1)];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20, count = bytes / sizeof(float);
    if (bytes < 1 << 20 || bytes & (bytes - 1)) {
        fprintf(stderr, "usage: patterns [working set in MB, a power of two]\n");
        return 2;
    }
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), sink = 0;
    if (x == MAP_FAILED) { perror("mmap"); return 1; }
    madvise(x, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++) x[i] = 1;
    const struct { const char *name; size_t stride; } patterns[] = {
        {"stride1", 1}, {"stride2", 2}, {"stride8", 8}, {"stride16", 16}, {"stride32", 32}, {"gather", 0},
    };
    mark("decode");
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        double best = 1e30;
        for (int r = 0; r < 3; r++) {
            double start = cpu_seconds();
            sink += patterns[p].stride ? strided(x, count, patterns[p].stride) : gathered(x, count);
            double taken = cpu_seconds() - start;
            best = taken < best ? taken : best;
        }
        printf("{\"pattern\": \"%s\", \"bytes\": %zu, \"GB_s\": %.2f}\n", patterns[p].name, bytes, 1e-9 * (double)bytes / best);
        fflush(stdout);
    }
    mark("end");
    return sink == 1;
}
