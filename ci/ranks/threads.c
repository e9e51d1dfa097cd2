// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_THREAD_MULTIPLE: MPI 5.0 section 11.6. Many threads send and receive at the same time.
#include "check.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 150, LARGE = 100000 };

static MPI_Comm comms[THREADS];

static void in_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, body, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

// Thread `id` of each rank exchanges with thread `id` of its neighbours, by a tag of its own.
static void *ring_by_tag(void *argument)
{
    int id = (int)(long)argument, right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out = allocate(LARGE), *in = allocate(LARGE);
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = round % 10 == 9 ? LARGE : 8 + round;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank * 100 + id + round));
        MPI_Sendrecv(out, bytes, MPI_BYTE, right, id, in, bytes, MPI_BYTE, left, id, MPI_COMM_WORLD, &status);
        STATUS(&status, left, id, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(left * 100 + id + round));
    }
    free(out);
    free(in);
    return NULL;
}

// Nonblocking, waited for in several ways; all threads on one communicator and one pair of ranks.
static void *nonblocking_by_tag(void *argument)
{
    enum { BATCH = 8 };
    int id = (int)(long)argument, right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int round = 0; round < ROUNDS / 3; round++) {
        int out[BATCH], in[BATCH], index, flag = 0;
        MPI_Request requests[2 * BATCH];
        for (int i = 0; i < BATCH; i++) {
            out[i] = rank * 10000 + id * 1000 + i;
            in[i] = -1;
            MPI_Irecv(&in[i], 1, MPI_INT, left, id, MPI_COMM_WORLD, &requests[i]);
            MPI_Isend(&out[i], 1, MPI_INT, right, id, MPI_COMM_WORLD, &requests[BATCH + i]);
        }
        if (round % 3 == 0)
            MPI_Waitall(2 * BATCH, requests, MPI_STATUSES_IGNORE);
        else if (round % 3 == 1)
            for (int i = 0; i < 2 * BATCH; i++)
                MPI_Waitany(2 * BATCH, requests, &index, MPI_STATUS_IGNORE);
        else
            while (!flag)
                MPI_Testall(2 * BATCH, requests, &flag, MPI_STATUSES_IGNORE);
        for (int i = 0; i < BATCH; i++)
            EQUAL(in[i], left * 10000 + id * 1000 + i);
    }
    return NULL;
}

// Each thread has a communicator, and collectives run on all of them at once.
static void *collectives(void *argument)
{
    int id = (int)(long)argument;
    for (int round = 0; round < ROUNDS / 3; round++) {
        int value = rank + id + round, sum = -1, root = round % size, told = rank == root ? id * 77 + round : -1;
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comms[id]);
        EQUAL(sum, size * (size - 1) / 2 + size * (id + round));
        MPI_Bcast(&told, 1, MPI_INT, root, comms[id]);
        EQUAL(told, id * 77 + round);
        MPI_Barrier(comms[id]);
    }
    return NULL;
}

// A blocked receive in one thread must not keep another thread from sending the message.
static void *blocked_beside_sending(void *argument)
{
    int id = (int)(long)argument, value = -1;
    if (id == 0) {
        for (int i = 1; i < THREADS; i++) {
            MPI_Recv(&value, 1, MPI_INT, rank, 500, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value >= 1 && value < THREADS, "got %d", value);
        }
    } else {
        value = id;
        MPI_Send(&value, 1, MPI_INT, rank, 500, MPI_COMM_WORLD);
    }
    return NULL;
}

// Section 3.8: matched probe exists for this. Each message is taken by exactly one thread.
static long taken;

static void *matched_probes(void *argument)
{
    int id = (int)(long)argument, right = (rank + 1) % size;
    for (int i = 0; i < ROUNDS / 3; i++) {
        char out[64], in[64];
        int bytes = 8 + (id * 7 + i) % 50, got;
        MPI_Request request;
        MPI_Message message;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)bytes);
        MPI_Isend(out, bytes, MPI_BYTE, right, 700, MPI_COMM_WORLD, &request);
        MPI_Mprobe(MPI_ANY_SOURCE, 700, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        MPI_Mrecv(in, got, MPI_BYTE, &message, &status);
        PAYLOAD(in, (size_t)got, (unsigned)got);
        __atomic_fetch_add(&taken, got, __ATOMIC_RELAXED);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void s11_6_threads_with_tags_of_their_own(void)
{
    in_threads(ring_by_tag);
}

static void s11_6_nonblocking_in_all_threads(void)
{
    in_threads(nonblocking_by_tag);
}

static void s11_6_collectives_on_communicators_of_their_own(void)
{
    in_threads(collectives);
}

static void s11_6_a_blocked_thread_blocks_no_other(void)
{
    for (int i = 0; i < 20; i++)
        in_threads(blocked_beside_sending);
}

static void s3_8_each_message_is_matched_once(void)
{
    long wanted = 0;
    taken = 0;
    in_threads(matched_probes);
    for (int id = 0; id < THREADS; id++)
        for (int i = 0; i < ROUNDS / 3; i++)
            wanted += 8 + (id * 7 + i) % 50;
    EQUAL(taken, wanted);
}

static void *not_main(void *argument)
{
    int flag = 9;
    MPI_Is_thread_main(&flag);
    EQUAL(flag, 0);
    return argument;
}

static void s11_6_only_one_thread_is_main(void)
{
    int flag = 0;
    MPI_Is_thread_main(&flag);
    EQUAL(flag, 1);
    in_threads(not_main);
}

int main(int argc, char **argv)
{
    start_threads(&argc, &argv);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    RUN(s11_6_only_one_thread_is_main);
    RUN(s11_6_threads_with_tags_of_their_own);
    RUN(s11_6_nonblocking_in_all_threads);
    RUN(s11_6_collectives_on_communicators_of_their_own);
    RUN(s11_6_a_blocked_thread_blocks_no_other);
    RUN(s3_8_each_message_is_matched_once);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&comms[i]);
    return finish();
}
