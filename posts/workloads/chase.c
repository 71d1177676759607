/* Latency of dependent loads: one random cycle over the cache lines of a working set.
 *
 *   chase 4k|huge [largest working set in MB] [lines|pages]
 *
 * `huge` asks for huge pages (MADV_HUGEPAGE), `4k` refuses them (MADV_NOHUGEPAGE). `pages` visits one line of each 4 KB page:
 * the data then fits the caches, and what remains is the cost of address translation. Each load gives the next address, so
 * that neither the compiler nor the prefetchers can run ahead. Prints one JSON line a working set. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "markers.h"

#define LINE 64
#define PAGE 4096
#define HUGE_PAGE (2u << 20)
#define LOADS 4096
#define PIECES 501

static uint64_t state = 88172645463325252u;

static uint64_t drawn(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* Place of stop i: every line, or one line a page (another line in each page, so that the sets of a cache fill evenly). */
static size_t place(size_t i, size_t step)
{
    return i * step + (step > LINE ? i * LINE % step : 0);
}

/* Sattolo's shuffle: the stops form one cycle. */
static void link_stops(char *base, size_t stops, size_t step)
{
    size_t *order = malloc(stops * sizeof *order);
    if (!order) { perror("malloc"); exit(1); }
    for (size_t i = 0; i < stops; i++) order[i] = i;
    for (size_t i = stops - 1; i > 0; i--) {
        size_t j = drawn() % i, kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    for (size_t i = 0; i < stops; i++) *(void **)(base + place(order[i], step)) = base + place(order[(i + 1) % stops], step);
    free(order);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over short pieces, in CPU time: a piece that the scheduler interrupted does not decide. */
static double nanoseconds(char *base, size_t stops)
{
    static double pieces[PIECES];
    void **p = (void **)base;
    for (size_t i = 0; i < 2 * stops; i++) p = (void **)*p;
    for (int piece = 0; piece < PIECES; piece++) {
        double start = cpu_seconds();
        for (int i = 0; i < LOADS; i++) p = (void **)*p;
        pieces[piece] = cpu_seconds() - start;
    }
    __asm__ volatile("" : : "r"(p));
    qsort(pieces, PIECES, sizeof *pieces, ascending);
    return 1e9 * pieces[PIECES / 2] / LOADS;
}

/* Kilobytes of huge pages that the kernel gave: madvise is a request, and this says whether it was met. */
static long huge_kilobytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long found = -1;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "AnonHugePages: %ld", &found);
    if (file) fclose(file);
    return found;
}

int main(int argc, char **argv)
{
    int huge = argc > 1 && !strcmp(argv[1], "huge");
    size_t largest = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 20;
    size_t step = argc > 3 && !strcmp(argv[3], "pages") ? PAGE : LINE;
    if (argc < 2 || (!huge && strcmp(argv[1], "4k")) || largest == 0) {
        fprintf(stderr, "usage: chase 4k|huge [largest working set in MB] [lines|pages]\n");
        return 2;
    }
    size_t room = largest + HUGE_PAGE;
    char *area = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) { perror("mmap"); return 1; }
    char *base = (char *)(((uintptr_t)area + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (madvise(base, largest, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) perror("madvise");
    memset(base, 0, largest);
    printf("{\"pages\": \"%s\", \"largest_kB\": %zu, \"huge_kB\": %ld, \"step\": %zu}\n", argv[1], largest >> 10, huge_kilobytes(), step);
    mark("decode");
    for (size_t bytes = step == PAGE ? 16 * PAGE : PAGE; bytes <= largest; bytes *= 2) {
        link_stops(base, bytes / step, step);
        printf("{\"pages\": \"%s\", \"bytes\": %zu, \"ns\": %.2f}\n", argv[1], bytes, nanoseconds(base, bytes / step));
        fflush(stdout);
    }
    mark("end");
    return 0;
}
