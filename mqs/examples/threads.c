// SPDX-License-Identifier: MIT OR Apache-2.0
// Other threads compute, as with OpenMP, while the threads in MPI wait for each other.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static void *compute(void *nothing)
{
    sleep(60);
    return nothing;
}

int main(int argc, char **argv)
{
    int rank, level, value = 0;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pthread_create(&thread, NULL, compute, NULL);
    MPI_Recv(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
