// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_Abort and other ways of ending too early: MPI 5.0 section 9.3 "MPI_ABORT", 11.2. `abort WAY RANK CODE`: rank RANK
// ends itself in the way that WAY names, with the exit code CODE, while the others wait for a message.
#include "check.h"

#include <signal.h>
#include <unistd.h>

// An exit handler of the program may call the MPI that is being ended.
static void at_exit(void)
{
    _exit(77);
}

// A heap that stays locked, as in the handler of a signal that a crash in malloc raised.
static volatile int heap_is_locked;
extern void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    while (heap_is_locked)
        pause();
    return __libc_malloc(bytes);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "abort";
    int who = argc > 2 ? atoi(argv[2]) : 0, code = argc > 3 ? atoi(argv[3]) : 1;
    if (!strcmp(way, "abort-before-init"))
        MPI_Abort(MPI_COMM_WORLD, code);
    if (!strcmp(way, "before-init") && getenv("RMPI_RANK") && atoi(getenv("RMPI_RANK")) == who)
        return code;
    start(&argc, &argv);
    if (!strcmp(way, "after-finalize")) {
        MPI_Finalize();
        return rank == who ? code : 0;
    }
    if (!strcmp(way, "abort-after-finalize")) {
        MPI_Finalize();
        if (rank == who)
            MPI_Abort(MPI_COMM_WORLD, code);
        return 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strncmp(way, "at-exit", 7)) {
        atexit(at_exit);
        printf("printed before");
    }
    if (rank == who) {
        if (!strcmp(way, "at-exit"))
            MPI_Abort(MPI_COMM_WORLD, code);
        if (!strcmp(way, "at-exit-fatal"))
            MPI_Barrier(MPI_COMM_NULL);
        if (!strcmp(way, "abort"))
            MPI_Abort(MPI_COMM_WORLD, code);
        if (!strcmp(way, "abort-self"))
            MPI_Abort(MPI_COMM_SELF, code);
        if (!strcmp(way, "locked-heap")) {
            heap_is_locked = 1;
            MPI_Abort(MPI_COMM_WORLD, code);
        }
        if (!strcmp(way, "exit"))
            exit(code);
        if (!strcmp(way, "_exit"))
            _exit(code);
        if (!strcmp(way, "segv"))
            *(volatile int *)0 = 0;
        if (!strcmp(way, "signal"))
            raise(code);
    }
    MPI_Recv(&code, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
