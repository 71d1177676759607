/* One attention head in C: `naive` writes the T x T score matrix to memory, `tiled` keeps a block of it (online softmax).
 *
 *   attention naive|tiled [T] [head size <= 128] [repeats] [queries]
 *
 * queries = T is prefill, queries = 1 is one decode step on a cache of T tokens. Under callgrind only the attention itself is
 * instrumented. Prints one JSON line; `sum` lets a reader see that both variants give the same output. Times are the best
 * repeat's: `best_ms` by the clock, `cpu_ms` on the CPU (without the time that the thread waited for one on a loaded machine). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "markers.h"
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

#ifndef BLOCK
#define BLOCK 64
#endif
#define MAX_HEAD 128

__attribute__((noinline)) static void naive(const float *q, const float *k, const float *v, float *o, float *s, int n, int t, int d)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < t; j++) {
            float dot = 0;
            for (int c = 0; c < d; c++) dot += q[i * d + c] * k[j * d + c];
            s[(size_t)i * t + j] = dot;
        }
    for (int i = 0; i < n; i++) {
        float *row = s + (size_t)i * t, top = row[0], total = 0;
        for (int j = 1; j < t; j++) top = row[j] > top ? row[j] : top;
        for (int j = 0; j < t; j++) row[j] = expf(row[j] - top), total += row[j];
        for (int j = 0; j < t; j++) row[j] /= total;
    }
    for (int i = 0; i < n; i++) {
        float *out = o + i * d;
        memset(out, 0, (size_t)d * sizeof(float));
        for (int j = 0; j < t; j++)
            for (int c = 0; c < d; c++) out[c] += s[(size_t)i * t + j] * v[j * d + c];
    }
}

/* Queries i0 .. i0+rows against one block of keys; the running maximum and sum rescale what was added before. */
static void block(const float *q, const float *k, const float *v, float *o, float *top, float *total, int rows, int cols, int d)
{
    float s[BLOCK];
    for (int i = 0; i < rows; i++) {
        float highest = top[i], sum = 0;
        for (int j = 0; j < cols; j++) {
            float dot = 0;
            for (int c = 0; c < d; c++) dot += q[i * d + c] * k[j * d + c];
            s[j] = dot;
            highest = dot > highest ? dot : highest;
        }
        float scale = expf(top[i] - highest);
        for (int j = 0; j < cols; j++) s[j] = expf(s[j] - highest), sum += s[j];
        for (int c = 0; c < d; c++) o[i * d + c] *= scale;
        for (int j = 0; j < cols; j++)
            for (int c = 0; c < d; c++) o[i * d + c] += s[j] * v[j * d + c];
        top[i] = highest;
        total[i] = total[i] * scale + sum;
    }
}

__attribute__((noinline)) static void tiled(const float *q, const float *k, const float *v, float *o, int n, int t, int d)
{
    float top[BLOCK], total[BLOCK];
    for (int i = 0; i < n; i += BLOCK) {
        int rows = n - i < BLOCK ? n - i : BLOCK;
        for (int r = 0; r < rows; r++) top[r] = -INFINITY, total[r] = 0;
        memset(o + i * d, 0, (size_t)rows * d * sizeof(float));
        for (int j = 0; j < t; j += BLOCK)
            block(q + i * d, k + j * d, v + j * d, o + i * d, top, total, rows, t - j < BLOCK ? t - j : BLOCK, d);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < d; c++) o[(i + r) * d + c] /= total[r];
    }
}

static float *filled(size_t count)
{
    float *x = malloc(count * sizeof *x);
    if (!x) { perror("malloc"); exit(1); }
    for (size_t i = 0; i < count; i++) x[i] = (float)((i * 2654435761u) % 1000) / 4000.0f - 0.125f;
    return x;
}

int main(int argc, char **argv)
{
    const char *variant = argc > 1 ? argv[1] : "";
    int t = argc > 2 ? atoi(argv[2]) : 768, d = argc > 3 ? atoi(argv[3]) : 64;
    int repeats = argc > 4 ? atoi(argv[4]) : 1, n = argc > 5 ? atoi(argv[5]) : t;
    int is_naive = !strcmp(variant, "naive");
    if ((!is_naive && strcmp(variant, "tiled")) || t < 1 || d < 1 || d > MAX_HEAD || repeats < 1 || n < 1) {
        fprintf(stderr, "usage: attention naive|tiled [T] [head size] [repeats] [queries]\n");
        return 2;
    }
    float *q = filled((size_t)n * d), *k = filled((size_t)t * d), *v = filled((size_t)t * d), *o = filled((size_t)n * d);
    float *s = is_naive ? malloc((size_t)n * t * sizeof *s) : NULL;
    double best = 1e30, best_cpu = 1e30, sum = 0;
    for (int r = 0; r < repeats; r++) {
        mark(n == 1 ? "decode" : "prefill");
        double start = seconds(), cpu_start = cpu_seconds();
        CALLGRIND_START_INSTRUMENTATION;
        if (is_naive) naive(q, k, v, o, s, n, t, d);
        else tiled(q, k, v, o, n, t, d);
        CALLGRIND_STOP_INSTRUMENTATION;
        double taken = seconds() - start, cpu_taken = cpu_seconds() - cpu_start;
        best = taken < best ? taken : best;
        best_cpu = cpu_taken < best_cpu ? cpu_taken : best_cpu;
    }
    mark("end");
    for (int i = 0; i < n * d; i++) sum += o[i];
    printf("{\"variant\": \"%s\", \"block\": %d, \"T\": %d, \"d\": %d, \"queries\": %d, \"score_bytes\": %zu, \"best_ms\": %.3f, "
           "\"cpu_ms\": %.3f, \"ns_score\": %.3f, \"gflops\": %.2f, \"sum\": %.4f}\n",
           variant, BLOCK, t, d, n, is_naive ? (size_t)n * t * sizeof *s : BLOCK * sizeof *s, 1e3 * best, 1e3 * best_cpu,
           1e9 * best_cpu / ((double)n * t), 4e-9 * n * t * d / best_cpu, sum);
    return 0;
}
