// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs under another launcher. `children start COMMAND`: rank 0 runs this program as a child process, which is a
// job of one rank, and then the command, which starts a job of two; `children late`: MPI_Finalize is called by an exit
// handler that was registered before MPI_Init.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void finalize(void)
{
    MPI_Finalize();
    if (rank == 0)
        puts("finalized late");
}

static int run(const char *command)
{
    fflush(stdout);
    int status = system(command);
    return status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    int wrong = 0, all = 0;
    int is_late = argc > 1 && !strcmp(argv[1], "late");
    if (is_late)
        atexit(finalize);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (is_late)
        return 0;
    if (rank == 0)
        printf("a job of %d\n", size);
    if (rank == 0 && argc > 2) {
        wrong = run(argv[0]);
        wrong += run(argv[2]);
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all != 0;
}
