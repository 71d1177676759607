/* Sweeps around matmul.c, timed by the processor time of the thread: other processes that wait do not count.
 *
 *   matmul_sweep clock             clock, from a chain of additions of one cycle each
 *   matmul_sweep chains            FLOP/s of independent chains of fused multiply-adds, operands in registers
 *   matmul_sweep versions N REPEATS NAME...   versions of matmul.c by name, and wide and blocked of this file
 *   matmul_sweep rows N            product by the rows of C that stay in registers
 *
 * N is a multiple of 64. An empty asm keeps a value in its register: it is neither dropped nor read from memory again. */
#define main matmul_main
#include "matmul.c"
#undef main

#define KEEP(x) __asm__ volatile("" : "+v"(x))
#define DEPTH 256   /* rows of a panel: 256 x 32 floats are 32 KB */
#define HEIGHT 256  /* rows of A between two panels: 256 x 256 floats are 256 KB */

static double busy(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clock_rate(void)
{
    double best = 1e30;
    long count = 100000;
    for (int run = 0; run < 300; run++) {
        long x = 1, left = count;
        double start = busy();
        __asm__ volatile("1: add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n"
                         "sub $1, %1\n jnz 1b" : "+r"(x), "+r"(left) : : "cc");
        double taken = busy() - start;
        best = taken < best ? taken : best;
    }
    printf("additions %ld  ns each %.4f  GHz %.3f\n", 8 * count, 1e9 * best / (8 * count), 8e-9 * count / best);
}

/* x and y are opaque in each step: else the product is taken out of the loop and an addition is left. */
#define CHAINS(N)                                                                                                     \
    static double chains_##N(long count)                                                                              \
    {                                                                                                                 \
        lanes sum[N] = {{0}}, x = {1}, y = {0.5f};                                                                    \
        double start = busy();                                                                                        \
        for (long i = 0; i < count; i++) {                                                                            \
            KEEP(x);                                                                                                  \
            KEEP(y);                                                                                                  \
            _Pragma("GCC unroll 32") for (int c = 0; c < N; c++) { sum[c] += x * y; KEEP(sum[c]); }                   \
        }                                                                                                             \
        return busy() - start;                                                                                        \
    }
CHAINS(1) CHAINS(2) CHAINS(3) CHAINS(4) CHAINS(6) CHAINS(8) CHAINS(10) CHAINS(12) CHAINS(16) CHAINS(24)

static const struct { int count; double (*run)(long); } chains[] = {
    {1, chains_1}, {2, chains_2}, {3, chains_3}, {4, chains_4}, {6, chains_6},
    {8, chains_8}, {10, chains_10}, {12, chains_12}, {16, chains_16}, {24, chains_24},
};

/* C of R rows and two vectors += A x panel, over `depth` of k. Each vector of the panel is read once for all R rows. */
#define TILES(R)                                                                                                      \
    static inline __attribute__((always_inline)) void tile_##R(const float *a, const float *panel, float *c, int n, int depth) \
    {                                                                                                                 \
        lanes sum[R][2];                                                                                              \
        _Pragma("GCC unroll 32") for (int r = 0; r < R; r++) {                                                        \
            sum[r][0] = *(lanes *)(c + r * n);                                                                        \
            sum[r][1] = *(lanes *)(c + r * n + LANES);                                                                \
        }                                                                                                             \
        for (int k = 0; k < depth; k++) {                                                                             \
            lanes left = *(const lanes *)(panel + k * COLS), right = *(const lanes *)(panel + k * COLS + LANES);      \
            KEEP(left);                                                                                               \
            KEEP(right);                                                                                              \
            _Pragma("GCC unroll 32") for (int r = 0; r < R; r++) {                                                    \
                sum[r][0] += a[r * n + k] * left;                                                                     \
                sum[r][1] += a[r * n + k] * right;                                                                    \
            }                                                                                                         \
        }                                                                                                             \
        _Pragma("GCC unroll 32") for (int r = 0; r < R; r++) {                                                        \
            *(lanes *)(c + r * n) = sum[r][0];                                                                        \
            *(lanes *)(c + r * n + LANES) = sum[r][1];                                                                \
        }                                                                                                             \
    }                                                                                                                 \
    __attribute__((noinline)) static void rows_##R(const float *a, const float *b, float *c, int n)                   \
    {                                                                                                                 \
        product(a, b, c, n, n, n, R, tile_##R);                                                                       \
    }

typedef void tile(const float *, const float *, float *, int, int);

/* Panels of B are packed; A is taken in parts of height x depth, so that a part stays in the second-level cache. */
static inline __attribute__((always_inline)) void product(const float *a, const float *b, float *c, int n, int depth, int height, int rows, tile *run)
{
    float *panel = aligned_alloc(64, (size_t)depth * COLS * sizeof *panel);
    if (!panel) { perror("aligned_alloc"); exit(1); }
    for (int k0 = 0; k0 < n; k0 += depth) {
        int deep = n - k0 < depth ? n - k0 : depth;
        for (int i0 = 0; i0 < n; i0 += height)
            for (int j = 0; j < n; j += COLS) {
                int end = n - i0 < height ? n : i0 + height;
                for (int k = 0; k < deep; k++) memcpy(panel + k * COLS, b + (k0 + k) * n + j, COLS * sizeof *panel);
                for (int i = i0; i < end; i += rows) run(a + i * n + k0, panel, c + i * n + j, n, deep);
            }
    }
    free(panel);
}

TILES(1) TILES(2) TILES(4) TILES(8) TILES(16)

__attribute__((noinline)) static void blocked(const float *a, const float *b, float *c, int n)
{
    product(a, b, c, n, DEPTH, HEIGHT, 8, tile_8);
}

static const struct { const char *name; version *run; } own[] = {
    {"wide", rows_8}, {"blocked", blocked}, {"1", rows_1}, {"2", rows_2}, {"4", rows_4}, {"8", rows_8}, {"16", rows_16},
};

static version *by_name(const char *name)
{
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(name, versions[i].name)) return versions[i].run;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i].name)) return own[i].run;
    return NULL;
}

static int measure(int n, int repeats, int count_of, char **names)
{
    size_t count = (size_t)n * n;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), *c = malloc(count * sizeof *c);
    if (!a || !b || !c) { perror("malloc"); return 1; }
    for (size_t i = 0; i < count; i++) a[i] = (float)(i % 7) - 3, b[i] = (float)(i % 5) - 2;
    for (int i = 0; i < count_of; i++) {
        version *run = by_name(names[i]);
        double best = 1e30, sum = 0;
        if (!run) { fprintf(stderr, "%s: no such version\n", names[i]); return 2; }
        for (int r = 0; r < repeats; r++) {
            memset(c, 0, count * sizeof *c);
            double start = busy();
            run(a, b, c, n);
            double taken = busy() - start;
            best = taken < best ? taken : best;
        }
        for (size_t e = 0; e < count; e++) sum += c[e];
        printf("%-8s n %5d  ms %9.3f  GFLOP/s %8.3f  sum %.0f\n", names[i], n, 1e3 * best, 2e-9 * n * n * n / best, sum);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0, repeats = argc > 3 ? atoi(argv[3]) : 0;
    if (!strcmp(what, "clock")) {
        clock_rate();
    } else if (!strcmp(what, "chains")) {
        long count = 100000;
        for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
            double best = 1e30;
            for (int run = 0; run < 200; run++) {
                double taken = chains[i].run(count);
                best = taken < best ? taken : best;
            }
            printf("chains %2d  ns a step %6.3f  GFLOP/s %8.2f\n", chains[i].count, 1e9 * best / count, 2e-9 * LANES * chains[i].count * count / best);
        }
    } else if (!strcmp(what, "versions") && n >= TILE && n % TILE == 0 && repeats > 0) {
        return measure(n, repeats, argc - 4, argv + 4);
    } else if (!strcmp(what, "rows") && n >= TILE && n % TILE == 0) {
        char *names[] = {"1", "2", "4", "8", "16"};
        return measure(n, 20, 5, names);
    } else {
        fprintf(stderr, "usage: matmul_sweep clock | chains | versions N REPEATS NAME... | rows N\n");
        return 2;
    }
    return 0;
}
