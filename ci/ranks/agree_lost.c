// SPDX-License-Identifier: MIT OR Apache-2.0
// Under `rmpiexec --keep-going` the last rank is killed while the other ranks agree with it on the context of an
// intercommunicator. The call ends with an error on all of them, also in the group that the killed rank is not in: the
// leaders' communicator does not contain it either.
#include "killed.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Comm living, side, leaders, inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    victim = size - 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank == victim, 0, &living);
    // Ranks 1 and 2 are the group without the victim.
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 || rank == 2, 0, &side);
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, 0, &leaders);
    MPI_Comm_set_errhandler(side, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        // By then the others wait in the agreement.
        sleep(1);
        raise(SIGKILL);
    }
    int error = MPI_Intercomm_create(side, 0, leaders, 1 - rank, 5, &inter);
    CHECK(error != MPI_SUCCESS, "the intercommunicator was made without rank %d", victim);
    return finish_living(living);
}
