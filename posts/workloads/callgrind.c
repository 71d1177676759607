/* Client requests for ctypes: callgrind counts only what runs between start() and stop(). */
#include <valgrind/callgrind.h>

void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
int under_valgrind(void) { return RUNNING_ON_VALGRIND; }
