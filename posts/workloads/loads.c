/* How many loads one core does in a cycle. Vectors, single elements into all lanes, and the mix of packed() in matmul.c, all from
 * 1 KB. The best of many short pieces by the wall clock, against a chain of additions of one cycle each. The asm is volatile, so no
 * load is dropped. */
#include <stdio.h>
#include <time.h>

#ifndef LANES
#define LANES 16
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static lanes data[16];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define VECTOR(i) do { lanes x; __asm__ volatile("vmovaps %1, %0" : "=v"(x) : "m"(data[i])); } while (0)
#define SINGLE(i) do { lanes x; __asm__ volatile("vbroadcastss %1, %0" : "=v"(x) : "m"(*(float *)&data[i])); } while (0)

static void report(const char *name, int loads, double best, long count, double ghz)
{
    double ns = 1e9 * best / ((double)count * loads);
    printf("%-8s loads %2d  ns each %.4f  per cycle %.2f\n", name, loads, ns, 1 / (ns * ghz));
}

#define MEASURE(NAME, LOADS, BODY)                                                  \
    do {                                                                            \
        double best = 1e30;                                                         \
        for (int run = 0; run < 1000; run++) {                                       \
            double start = now();                                                  \
            for (long i = 0; i < count; i++) { BODY }                               \
            double taken = now() - start;                                          \
            best = taken < best ? taken : best;                                     \
        }                                                                           \
        report(NAME, LOADS, best, count, ghz);                                      \
    } while (0)

static double clock_rate(void)
{
    double best = 1e30;
    for (int run = 0; run < 1000; run++) {
        long x = 1;
        double start = now();
        for (long i = 0; i < 10000; i++)
            __asm__ volatile("add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0" : "+r"(x));
        double taken = now() - start;
        best = taken < best ? taken : best;
    }
    return 1e-9 * 8 * 10000 / best;
}

int main(void)
{
    long count = 10000;
    double ghz = clock_rate();
    printf("additions, GHz %.3f\n", ghz);
    MEASURE("vectors", 8, VECTOR(0); VECTOR(1); VECTOR(2); VECTOR(3); VECTOR(4); VECTOR(5); VECTOR(6); VECTOR(7););
    MEASURE("singles", 8, SINGLE(0); SINGLE(1); SINGLE(2); SINGLE(3); SINGLE(4); SINGLE(5); SINGLE(6); SINGLE(7););
    MEASURE("mix", 12, SINGLE(8); VECTOR(0); VECTOR(1); SINGLE(9); VECTOR(0); VECTOR(1); SINGLE(10); VECTOR(0); VECTOR(1); SINGLE(11);
            VECTOR(0); VECTOR(1););
    return 0;
}
