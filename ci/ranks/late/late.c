// SPDX-License-Identifier: MIT OR Apache-2.0
// Delays ranks as on a busy machine: each rank sleeps before or after some of the program's MPI calls, independently of
// the others. This exposes assumptions of tests about the order of events. `cargo xtask test ranks --late SEED` links
// this to every program; `calls.h`, one wrapper per function of mpi.h, is made from the header. The wrappers are weak:
// wrappers of the program replace them.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// A rank sleeps around a call of a function with a probability of one in OFTEN, which decreases after SOME calls, so
// that a loop of a million calls still ends.
enum { OFTEN = 4, SOME = 128, SHORT_US = 3000, SPELL_CALLS = 24, LONG_US = 60000 };

static uint64_t seed;
static unsigned threads;

static __thread struct {
    uint64_t state;
    // The number of further calls around which this thread sleeps.
    unsigned spell;
} own;

// splitmix64.
static uint64_t draw(void)
{
    uint64_t z = own.state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int one_in(uint64_t chance)
{
    return draw() % chance == 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("LATE_SEED"), *rank = getenv("RMPI_RANK");
    seed = given ? strtoull(given, NULL, 0) : 0;
    seed = seed * 1000003u + (rank ? strtoull(rank, NULL, 10) : 0) + 1;
}

static void sleep_us(uint64_t us)
{
    struct timespec time = {.tv_nsec = (long)us * 1000};
    nanosleep(&time, NULL);
}

// `calls` counts the calls of this function; a race between threads only makes the count inexact.
static void late(unsigned *calls)
{
    if (!own.state)
        own.state = seed + ((uint64_t)__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) << 40);
    unsigned count = __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    uint64_t chance = OFTEN * (uint64_t)(1 + count / SOME);
    if (one_in(100 * chance / OFTEN))
        own.spell = SPELL_CALLS;
    if (own.spell > 0) {
        own.spell--;
        sleep_us(draw() % SHORT_US);
    } else if (one_in(chance)) {
        sleep_us(one_in(64) ? draw() % LONG_US : draw() % SHORT_US);
    }
}

// A wrapper, which returns what the call returns.
#define CALL(result_type, name, parameters, arguments)                                             \
    __attribute__((weak)) result_type name parameters                                              \
    {                                                                                              \
        static unsigned before, after;                                                             \
        late(&before);                                                                             \
        result_type result_ = P##name arguments;                                                   \
        late(&after);                                                                              \
        return result_;                                                                            \
    }

#include "calls.h"
