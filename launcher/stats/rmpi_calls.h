// SPDX-License-Identifier: MIT OR Apache-2.0
// Interface from librmpi_calls.so to librmpi_stats.so, if both are in a process: number and names of the timed
// functions, their measurements, and the time without measurement. The last two may be called in a signal handler.
#ifndef RMPI_CALLS_H
#define RMPI_CALLS_H

#include <stdint.h>

enum { CALL_NUMBERS = 3 }; // calls, nanoseconds in them, nanoseconds of the longest

struct rmpi_calls {
    int count;
    const char *const *names;
    void (*read)(int call, uint64_t numbers[CALL_NUMBERS]);
    // Nanoseconds in which the program had turned the measurement off.
    uint64_t (*off_ns)(void);
};

#define RMPI_CALLS "rmpi_calls"

#endif
