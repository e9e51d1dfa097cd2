// SPDX-License-Identifier: MIT OR Apache-2.0
// No deadlock is reported: with MPI_THREAD_MULTIPLE another thread may send the awaited message, and here it does.
//
// ranks: 2
// expected: no verdict: ranks 0 and 1 wait; ranks 0 and 1 have threads that may be in MPI at any time
// unexpected: ever go on
#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static void *send_late(void *to)
{
    int value = 1;
    sleep(60);
    MPI_Send(&value, 1, MPI_INT, *(int *)to, 0, MPI_COMM_WORLD);
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, other, level, value = 0;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    pthread_create(&thread, NULL, send_late, &other);
    MPI_Recv(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
