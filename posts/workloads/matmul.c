/* C = A x B for square float matrices, by loop order, in tiles and with vector registers.
 *
 *   matmul ijk|jki|ikj|tiled|vector|packed [n] [repeats]
 *
 * n is a multiple of 64. Times are CPU time. Prints one JSON line; `sum` is equal for all versions up to rounding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "markers.h"

#define TILE 64

typedef void version(const float *, const float *, float *, int);

__attribute__((noinline)) static void ijk(const float *a, const float *b, float *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

__attribute__((noinline)) static void jki(const float *a, const float *b, float *c, int n)
{
    for (int j = 0; j < n; j++)
        for (int k = 0; k < n; k++)
            for (int i = 0; i < n; i++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

__attribute__((noinline)) static void ikj(const float *a, const float *b, float *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

__attribute__((noinline)) static void tiled(const float *a, const float *b, float *c, int n)
{
    for (int i0 = 0; i0 < n; i0 += TILE)
        for (int k0 = 0; k0 < n; k0 += TILE)
            for (int j0 = 0; j0 < n; j0 += TILE)
                for (int i = i0; i < i0 + TILE; i++)
                    for (int k = k0; k < k0 + TILE; k++)
                        for (int j = j0; j < j0 + TILE; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

/* A block of 4 x 2 vectors of C stays in registers over all k; the compiler picks the instruction of the target. */
#ifndef LANES
#define LANES 8
#endif
#define ROWS 4
#define COLS (2 * LANES)
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

static inline __attribute__((always_inline)) void registers(const float *a, const float *b, size_t b_row, float *c, int n)
{
    lanes sum[ROWS][2] = {{{0}}};
    for (int k = 0; k < n; k++) {
        lanes left = *(const lanes *)(b + k * b_row), right = *(const lanes *)(b + k * b_row + LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            sum[r][0] += a[r * n + k] * left;
            sum[r][1] += a[r * n + k] * right;
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        *(lanes *)(c + r * n) = sum[r][0];
        *(lanes *)(c + r * n + LANES) = sum[r][1];
    }
}

__attribute__((noinline)) static void vector(const float *a, const float *b, float *c, int n)
{
    for (int i = 0; i < n; i += ROWS)
        for (int j = 0; j < n; j += COLS) registers(a + i * n, b + j, (size_t)n, c + i * n + j, n);
}

/* Copies each panel of B once, so that the inner loop reads one line after the other. */
__attribute__((noinline)) static void packed(const float *a, const float *b, float *c, int n)
{
    float *panel = aligned_alloc(64, (size_t)n * COLS * sizeof *panel);
    if (!panel) { perror("aligned_alloc"); exit(1); }
    for (int j = 0; j < n; j += COLS) {
        for (int k = 0; k < n; k++) memcpy(panel + k * COLS, b + k * n + j, COLS * sizeof *panel);
        for (int i = 0; i < n; i += ROWS) registers(a + i * n, panel, COLS, c + i * n + j, n);
    }
    free(panel);
}

static const struct { const char *name; version *run; } versions[] = {
    {"ijk", ijk}, {"jki", jki}, {"ikj", ikj}, {"tiled", tiled}, {"vector", vector}, {"packed", packed},
};

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : 512, repeats = argc > 3 ? atoi(argv[3]) : 3;
    version *run = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(argv[1], versions[i].name)) run = versions[i].run;
    if (!run || n < TILE || n % TILE || repeats < 1) {
        fprintf(stderr, "usage: matmul ijk|jki|ikj|tiled|vector|packed [n, a multiple of %d] [repeats]\n", TILE);
        return 2;
    }
    size_t count = (size_t)n * n;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), *c = malloc(count * sizeof *c);
    if (!a || !b || !c) { perror("malloc"); return 1; }
    for (size_t i = 0; i < count; i++) a[i] = (float)(i % 7) - 3, b[i] = (float)(i % 5) - 2;
    double best = 1e30, sum = 0;
    mark("prefill");
    for (int r = 0; r < repeats; r++) {
        memset(c, 0, count * sizeof *c);
        double start = cpu_seconds();
        run(a, b, c, n);
        double taken = cpu_seconds() - start;
        best = taken < best ? taken : best;
    }
    mark("end");
    for (size_t i = 0; i < count; i++) sum += c[i];
    printf("{\"version\": \"%s\", \"n\": %d, \"best_ms\": %.3f, \"gflops\": %.3f, \"sum\": %.0f}\n", argv[1], n, 1e3 * best,
           2e-9 * n * n * n / best, sum);
    return 0;
}
