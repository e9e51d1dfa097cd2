// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP on an MPI that the program has initialised itself, with several threads in both.
#include "qmp_check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 100, INTS = 3000 };

// Each thread declares and frees messages of its own, in a communicator of its own.
static QMP_comm_t comms[THREADS];

static void *talk(void *argument)
{
    int me = *(int *)argument, next = (rank + 1) % size, before = (rank + size - 1) % size;
    int *out = allocate(INTS * sizeof *out), *in = allocate(INTS * sizeof *in);
    for (int k = 0; k < ROUNDS; k++) {
        int count = k % 3 == 0 ? INTS : 1 + k % 7;
        for (int i = 0; i < count; i++)
            out[i] = rank * 1000000 + me * 100000 + k * 100 + i % 100;
        QMP_msgmem_t mems[2] = {QMP_declare_msgmem(in, count * sizeof *in), QMP_declare_msgmem(out, count * sizeof *out)};
        QMP_msghandle_t pair[2] = {QMP_comm_declare_receive_from(comms[me], mems[0], before, 0),
                                   QMP_comm_declare_send_to(comms[me], mems[1], next, 0)};
        QMP_msghandle_t both = QMP_declare_multiple(pair, 2);
        CHECK(both != NULL, "%s", QMP_get_error_string(NULL));
        WORKS(QMP_start(both));
        WORKS(QMP_wait(both));
        for (int i = 0; i < count; i++)
            CHECK(in[i] == before * 1000000 + me * 100000 + k * 100 + i % 100, "[%d] is %d", i, in[i]);
        // The last error is this thread's own.
        REFUSED(QMP_start(pair[0]), QMP_BAD_MESSAGE);
        QMP_free_msghandle(both);
        QMP_free_msgmem(mems[0]);
        QMP_free_msgmem(mems[1]);
    }
    free(out);
    free(in);
    return NULL;
}

static void qmp_016_threads_send_concurrently(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++)
        WORKS(QMP_comm_split(QMP_comm_get_default(), 0, 0, &comms[i]));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, talk, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        WORKS(QMP_comm_free(comms[i]));
}

int main(int argc, char **argv)
{
    start_threads(&argc, &argv);
    QMP_thread_level_t provided = QMP_THREAD_SINGLE;
    // qmp_048: an initialised MPI is used as it is.
    WORKS(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided));
    EQUAL(provided, QMP_THREAD_MULTIPLE);
    EQUAL(QMP_get_node_number(), rank);
    EQUAL(QMP_get_number_of_nodes(), size);
    RUN(qmp_016_threads_send_concurrently);
    int lattice[2] = {2 * size, 3};
    WORKS(QMP_layout_grid(lattice, 2));
    EQUAL(QMP_get_number_of_subgrid_sites(), 6);
    // qmp_050: and is not finalised.
    QMP_finalize_msg_passing();
    int sum = 1, finalized = 1;
    MPI_Finalized(&finalized);
    EQUAL(finalized, 0);
    GOOD(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EQUAL(sum, size);
    // Once more, on the same MPI.
    WORKS(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided));
    WORKS(QMP_sum_int(&sum));
    EQUAL(sum, size * size);
    EQUAL(QMP_logical_topology_is_declared(), QMP_FALSE);
    EQUAL(QMP_get_number_of_subgrid_sites(), 0);
    QMP_finalize_msg_passing();
    return finish();
}
