// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that make communicators at the same time, of groups that overlap: MPI 5.0 sections 7.2.3 and 11.6. No two of
// these communicators may have the same context id, although different leaders make them.
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40, TAG = 1 };

static MPI_Comm parents[THREADS];

// All threads use the same tag and source: only the communicator distinguishes their messages.
static void talk(MPI_Comm comm, int value)
{
    int n, me, in = -1;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &me);
    int right = (me + 1) % n, left = (me + n - 1) % n;
    MPI_Sendrecv(&value, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, comm, MPI_STATUS_IGNORE);
    EQUAL(in, value);
    MPI_Allreduce(&value, &in, 1, MPI_INT, MPI_MAX, comm);
    EQUAL(in, value);
}

static void *work(void *argument)
{
    int thread = *(int *)argument;
    MPI_Comm kept[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm *place = &kept[i % 2];
        if (*place != MPI_COMM_NULL)
            MPI_Comm_free(place);
        if (i % 3 == 0) {
            MPI_Comm_split(parents[thread], 0, -rank, place);
        } else if (i % 3 == 1) {
            MPI_Request request;
            MPI_Comm_idup(parents[thread], place, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Comm_dup(parents[thread], place);
        }
        for (int k = 0; k < 2; k++)
            if (kept[k] != MPI_COMM_NULL)
                talk(kept[k], 1000 * thread + i);
    }
    for (int k = 0; k < 2; k++)
        if (kept[k] != MPI_COMM_NULL)
            MPI_Comm_free(&kept[k]);
    return NULL;
}

static void s11_6_communicators_of_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    // Pairs that are shifted from thread to thread, and the whole world.
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_split(MPI_COMM_WORLD, i == 0 ? 0 : (rank + i) % size / 2, rank, &parents[i]);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&parents[i]);
}

int main(int argc, char **argv)
{
    start_threads(&argc, &argv);
    RUN(s11_6_communicators_of_threads);
    return finish();
}
