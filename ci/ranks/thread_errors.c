// SPDX-License-Identifier: MIT OR Apache-2.0
// Errors while other threads are in MPI: MPI 5.0 sections 9.3 and 11.6. A call that returns an error to its thread does
// not affect other threads, and does not end the job.
#include "check.h"

#include <pthread.h>

enum { CALLS = 20000, TALKERS = 2 };

static volatile int over;
static int handled;

static void count_it(MPI_Comm *comm, int *code, ...)
{
    int n = 0, class = -1;
    // The handler may call MPI, as other threads do.
    MPI_Comm_size(*comm, &n);
    MPI_Error_class(*code, &class);
    EQUAL(n, size);
    EQUAL(class, MPI_ERR_RANK);
    handled++;
}

static void *fails(void *unused)
{
    int value = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < CALLS; i++)
        FAILS(MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(count_it, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int i = 0; i < CALLS; i++)
        FAILS(MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    over = 1;
    return unused;
}

static void *talks(void *argument)
{
    int tag = *(int *)argument, in = -1;
    while (!over) {
        MPI_Sendrecv(&tag, 1, MPI_INT, 0, tag, &in, 1, MPI_INT, 0, tag, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        EQUAL(in, tag);
    }
    return NULL;
}

static void s9_3_errors_return_while_others_talk(void)
{
    pthread_t failing, talking[TALKERS];
    int tags[TALKERS];
    pthread_create(&failing, NULL, fails, NULL);
    for (int i = 0; i < TALKERS; i++) {
        tags[i] = i;
        pthread_create(&talking[i], NULL, talks, &tags[i]);
    }
    pthread_join(failing, NULL);
    for (int i = 0; i < TALKERS; i++)
        pthread_join(talking[i], NULL);
    EQUAL(handled, CALLS);
}

int main(int argc, char **argv)
{
    start_threads(&argc, &argv);
    RUN(s9_3_errors_return_while_others_talk);
    return finish();
}
