/* Reads memory and only adds it up: a library for ctypes, so that one process times this and a model in turns. */
#include <stddef.h>
#include <stdint.h>

/* Sixteen sums hide the latency of the addition; integers, so that the compiler may reorder them. */
uint64_t read_words(const uint64_t *x, size_t bytes, size_t rounds)
{
    uint64_t sum[16] = {0};
    for (size_t r = 0; r < rounds; r++) {
        for (size_t i = 0; i < bytes / sizeof *x / 16 * 16; i += 16)
            for (int lane = 0; lane < 16; lane++) sum[lane] += x[i + lane];
        __asm__ volatile("" : : "r"(x) : "memory");
    }
    for (int lane = 1; lane < 16; lane++) sum[0] += sum[lane];
    return sum[0];
}
