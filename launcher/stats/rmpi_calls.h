// SPDX-License-Identifier: MIT OR Apache-2.0
// What librmpi_calls.so tells librmpi_stats.so, if both are in a process: how many functions it times, their names, what was
// measured so far, and for how long it was not. The last two may be asked in a signal handler.
#ifndef RMPI_CALLS_H
#define RMPI_CALLS_H

#include <stdint.h>

enum { CALL_NUMBERS = 3 }; // calls, nanoseconds in them, nanoseconds of the longest

struct rmpi_calls {
    int count;
    const char *const *names;
    void (*read)(int call, uint64_t numbers[CALL_NUMBERS]);
    // Nanoseconds in which nothing was timed, since the program did not want it.
    uint64_t (*off_ns)(void);
};

#define RMPI_CALLS "rmpi_calls"

#endif
