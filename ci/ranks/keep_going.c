// SPDX-License-Identifier: MIT OR Apache-2.0
// Under `rmpiexec --keep-going` the last rank is killed. Requests of the other ranks that need the killed rank, pending
// or started later, end with an error that names it. Everything else works as before, MPI_Finalize included.
#include "killed.h"
#include <signal.h>
#include <unistd.h>

static MPI_Comm living;
static int value;

static void what_waits_ends(void)
{
    MPI_Request request;
    char *large = calloc(1, 1 << 20);
    switch (rank % 4) {
    case 0:
        told_of(MPI_Recv(&value, 1, MPI_INT, victim, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "receive");
        break;
    case 1:
        told_of(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                "receive from any source");
        break;
    case 2:
        MPI_Isend(large, 1 << 20, MPI_CHAR, victim, 5, MPI_COMM_WORLD, &request);
        told_of(MPI_Wait(&request, MPI_STATUS_IGNORE), "large send");
        break;
    case 3:
        told_of(MPI_Barrier(MPI_COMM_WORLD), "barrier");
        break;
    }
    free(large);
}

static void what_starts_later_ends(void)
{
    int sum = 1;
    told_of(MPI_Ssend(&value, 1, MPI_INT, victim, 5, MPI_COMM_WORLD), "synchronous send");
    told_of(MPI_Recv(&value, 1, MPI_INT, victim, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "receive");
    told_of(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "allreduce");
}

static void the_rest_goes_on(void)
{
    int sum = 1, next = (rank + 1) % (size - 1), before = (rank + size - 2) % (size - 1), got = -1;
    GOOD(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, living));
    EQUAL(sum, size - 1);
    GOOD(MPI_Sendrecv(&rank, 1, MPI_INT, next, 6, &got, 1, MPI_INT, before, 6, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    EQUAL(got, before);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    victim = size - 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank == victim, 0, &living);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        usleep(100000);
        raise(SIGKILL);
    }
    what_waits_ends();
    the_rest_goes_on();
    what_starts_later_ends();
    the_rest_goes_on();
    return finish_living(living);
}
