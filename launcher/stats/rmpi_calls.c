// SPDX-License-Identifier: MIT OR Apache-2.0
// What `rmpiexec --stats-calls` preloads beside librmpi_stats.so: it takes the names of MPI's functions, and measures how long
// each call of the program takes. librmpi_stats.so reads that when a rank is through.
//
// It needs no MPI library to be loaded: each function finds the next one of its name when it is called first. What MPI calls in
// turn (a program's own operations and callbacks, and what these call) belongs to the call that it happens in.
//
// MPI_Pcontrol(0) turns it off, MPI_Pcontrol(1) on: each call of a program that began while it was on is measured.
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
    AT_MPI_Pcontrol = ALL, // which is not timed
    FOUND
};
#undef CALL

#define CALL(NAME, PARAMETERS, ARGUMENTS) #NAME,
static const char *const names[] = {
#include "calls.h"
};
#undef CALL

typedef void any_function(void);

static struct tally {
    _Atomic uint64_t calls, ns, longest_ns;
} tallies[ALL];
// By name, and by name with a P.
static _Atomic(any_function *) found[2][FOUND];
// A call that came through another tool comes here twice.
static _Thread_local int depth;
// Turned off by the program, since when, and for how long before that.
static atomic_int is_off;
static _Atomic uint64_t off_since_ns, off_before_ns;
// The call that began last and has not ended, and when it began: a rank may be ended in it.
static atomic_int current = ALL;
static _Atomic uint64_t current_ns;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The function that a call would have come to without this library. MPI may be loaded so that only who loaded it sees its names.
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

// When a call of the program began; 0 of another.
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
    struct tally *tally = &tallies[call];
    uint64_t ns = now_ns() - start;
    atomic_store_explicit(&current, ALL, RELAXED);
    atomic_fetch_add_explicit(&tally->calls, 1, RELAXED);
    atomic_fetch_add_explicit(&tally->ns, ns, RELAXED);
    if (ns > atomic_load_explicit(&tally->longest_ns, RELAXED))
        atomic_store_explicit(&tally->longest_ns, ns, RELAXED);
}

static void read_call(int call, uint64_t numbers[CALL_NUMBERS])
{
    numbers[0] = atomic_load_explicit(&tallies[call].calls, RELAXED);
    numbers[1] = atomic_load_explicit(&tallies[call].ns, RELAXED);
    numbers[2] = atomic_load_explicit(&tallies[call].longest_ns, RELAXED);
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

// What the program wants by a level; others are those of other tools.
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

// A function, by this name; `has_p` is 1 of those with a P, which tools call and, through another tool, the program.
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
