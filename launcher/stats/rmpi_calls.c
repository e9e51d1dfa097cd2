// SPDX-License-Identifier: MIT OR Apache-2.0
// Preloaded by `rmpiexec --stats-calls` beside librmpi_stats.so: interposes MPI's functions, and measures how long
// each call of the program takes. librmpi_stats.so reads the results when a rank finalizes.
//
// It does not require that an MPI library is loaded: each function looks the next one of its name up at its first
// call. Calls that MPI makes in turn (a program's own operations and callbacks, and their calls) count as part of the
// call in which they happen.
//
// MPI_Pcontrol(0) turns the measurement off, MPI_Pcontrol(1) on; a call is measured if it is on when the call starts.
#define _GNU_SOURCE
#include "rmpi_calls.h"

#include <mpi.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#define LIBRARY "libmpi_abi.so.1"
#define PUBLIC __attribute__((visibility("default")))
#define RELAXED memory_order_relaxed

#define CALL(NAME, PARAMETERS, ARGUMENTS) AT_##NAME,
enum {
#include "calls.h"
    ALL,
    AT_MPI_Pcontrol = ALL, // not timed
    FOUND
};
#undef CALL

#define CALL(NAME, PARAMETERS, ARGUMENTS) #NAME,
static const char *const names[] = {
#include "calls.h"
};
#undef CALL

typedef void any_function(void);

static struct call_count {
    _Atomic uint64_t calls, ns, longest_ns;
} call_counts[ALL];
// Next functions: MPI_ names, and PMPI_ names.
static _Atomic(any_function *) found[2][FOUND];
// A call through another tool arrives here twice.
static _Thread_local int depth;
// Turned off by the program: whether, since when, and for how long before that.
static atomic_int is_off;
static _Atomic uint64_t off_since_ns, off_before_ns;
// The call in progress and its start: a rank may be ended inside it.
static atomic_int current = ALL;
static _Atomic uint64_t current_ns;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The function that would have been called without this library. MPI may be loaded with RTLD_LOCAL.
__attribute__((cold, noinline)) static any_function *find(int call, int has_p, const char *name)
{
    void *address = dlsym(RTLD_NEXT, name);
    if (address == NULL) {
        void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
        address = library == NULL ? NULL : dlsym(library, name);
    }
    atomic_store_explicit(&found[has_p][call], (any_function *)address, RELAXED);
    return (any_function *)address;
}

static any_function *next_of(int call, int has_p, const char *name)
{
    any_function *next = atomic_load_explicit(&found[has_p][call], RELAXED);
    return next != NULL ? next : find(call, has_p, name);
}

// Start of a call of the program; 0 for a nested call, or if the measurement is off.
static uint64_t begin(int call)
{
    if (depth++ != 0 || atomic_load_explicit(&is_off, RELAXED) != 0)
        return 0;
    uint64_t now = now_ns();
    atomic_store_explicit(&current_ns, now, RELAXED);
    atomic_store_explicit(&current, call, memory_order_release);
    return now;
}

static void end(int call, uint64_t start)
{
    depth--;
    if (start == 0)
        return;
    struct call_count *call_count = &call_counts[call];
    uint64_t ns = now_ns() - start;
    atomic_store_explicit(&current, ALL, RELAXED);
    atomic_fetch_add_explicit(&call_count->calls, 1, RELAXED);
    atomic_fetch_add_explicit(&call_count->ns, ns, RELAXED);
    if (ns > atomic_load_explicit(&call_count->longest_ns, RELAXED))
        atomic_store_explicit(&call_count->longest_ns, ns, RELAXED);
}

static void read_call(int call, uint64_t numbers[CALL_NUMBERS])
{
    numbers[0] = atomic_load_explicit(&call_counts[call].calls, RELAXED);
    numbers[1] = atomic_load_explicit(&call_counts[call].ns, RELAXED);
    numbers[2] = atomic_load_explicit(&call_counts[call].longest_ns, RELAXED);
    if (atomic_load_explicit(&current, memory_order_acquire) != call)
        return;
    uint64_t ns = now_ns() - atomic_load_explicit(&current_ns, RELAXED);
    numbers[0]++;
    numbers[1] += ns;
    if (ns > numbers[2])
        numbers[2] = ns;
}

static uint64_t off_ns(void)
{
    uint64_t before = atomic_load_explicit(&off_before_ns, RELAXED);
    return atomic_load_explicit(&is_off, RELAXED) == 0 ? before : before + now_ns() - atomic_load_explicit(&off_since_ns, RELAXED);
}

PUBLIC const struct rmpi_calls rmpi_calls = {ALL, names, read_call, off_ns};

// Handles the level of MPI_Pcontrol; other levels belong to other tools.
static void turn(int level)
{
    if (level == 0 && atomic_load(&is_off) == 0) {
        atomic_store_explicit(&off_since_ns, now_ns(), RELAXED);
        atomic_store(&is_off, 1);
    } else if (level == 1 && atomic_load(&is_off) != 0) {
        atomic_store_explicit(&off_before_ns, off_ns(), RELAXED);
        atomic_store(&is_off, 0);
    }
}

#define PCONTROL(CALLED, has_p)                                                                                                           \
    PUBLIC int CALLED(const int level, ...)                                                                                               \
    {                                                                                                                                     \
        int (*next)(int, ...) = (int (*)(int, ...))next_of(AT_MPI_Pcontrol, has_p, #CALLED);                                              \
        turn(level);                                                                                                                      \
        return next == NULL ? MPI_ERR_OTHER : next(level);                                                                                \
    }
PCONTROL(MPI_Pcontrol, 0)
PCONTROL(PMPI_Pcontrol, 1)

// Defines an interposed function; `has_p` is 1 for PMPI_ names, which are called by tools and, through another tool,
// by the program.
#define TIMED(CALLED, has_p, NAME, PARAMETERS, ARGUMENTS)                                                                                 \
    PUBLIC int CALLED PARAMETERS                                                                                                          \
    {                                                                                                                                     \
        int(*next) PARAMETERS = (int(*) PARAMETERS)next_of(AT_##NAME, has_p, #CALLED);                                                    \
        if (next == NULL)                                                                                                                 \
            return MPI_ERR_OTHER;                                                                                                         \
        uint64_t start = begin(AT_##NAME);                                                                                                \
        int code = next ARGUMENTS;                                                                                                        \
        end(AT_##NAME, start);                                                                                                            \
        return code;                                                                                                                      \
    }
#define CALL(NAME, PARAMETERS, ARGUMENTS)                                                                                                 \
    TIMED(NAME, 0, NAME, PARAMETERS, ARGUMENTS)                                                                                           \
    TIMED(P##NAME, 1, NAME, PARAMETERS, ARGUMENTS)
#include "calls.h"
