/* Markers of phases: short writes to /dev/null, so that strace, perf trace and bpftrace see them. */
#ifndef MARKERS_H
#define MARKERS_H
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void mark(const char *phase)
{
    static int fd = -1;
    char text[32];
    if (fd < 0) fd = open("/dev/null", O_WRONLY);
    int length = snprintf(text, sizeof text, "@@%s\n", phase);
    if (write(fd, text, (size_t)length) != length) perror("marker");
}

static inline double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double seconds(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

/* CPU time of the process: for programs of one thread. What the scheduler gives to other processes does not count. */
static inline double cpu_seconds(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}
#endif
