// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_Probe and MPI_Iprobe: MPI 5.0 section 3.8.1.
#include "check.h"

enum { TAG = 3, GO = 4 };

// The receive gets what the probe reported, at every size.
static void s3_8_1_probe_tells_size_source_and_tag(void)
{
    char *buffer = allocate((size_t)check_size_max());
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i], got;
        char *out = allocate((size_t)bytes);
        MPI_Request request;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)i);
        MPI_Isend(out, bytes, MPI_BYTE, right, TAG + i, MPI_COMM_WORLD, &request);
        if (i % 2)
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        else
            MPI_Probe(left, TAG + i, MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG + i, bytes);
        MPI_Get_count(&status, MPI_BYTE, &got);
        MPI_Recv(buffer, got, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG + i, bytes);
        PAYLOAD(buffer, (size_t)bytes, (unsigned)i);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free(out);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(buffer);
}

static void s3_8_1_iprobe_sees_nothing_before_and_something_after(void)
{
    int flag = 7;
    MPI_Status status;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    GOOD(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    EQUAL(flag, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request request;
    int value = rank, got = -1;
    MPI_Isend(&value, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request);
    // "A call to MPI_IPROBE must eventually return flag = true" once the message was sent.
    do
        MPI_Iprobe(left, TAG, MPI_COMM_WORLD, &flag, &status);
    while (!flag);
    STATUS(&status, left, TAG, 4);
    MPI_Iprobe(left, TAG + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
    MPI_Recv(&got, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(got, left);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iprobe(left, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
}

// A probed message remains the next to be received: two messages of one tag are probed and received in order.
static void s3_8_1_probe_does_not_take_the_message(void)
{
    if (rank == 0 && size > 1)
        for (int i = 0; i < 2; i++)
            MPI_Send(&i, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    if (rank == 1)
        for (int i = 0; i < 2; i++) {
            int value;
            for (int twice = 0; twice < 2; twice++)
                MPI_Probe(0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(value, i);
        }
}

// A message that matches a posted receive is never seen by a probe.
static void s3_8_1_probe_does_not_see_what_a_posted_receive_takes(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int got = -1, value = rank, flag = 1;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&value, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(left, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(got, left);
}

// Blocking probe waits for a message that is not there yet.
static void s3_8_1_probe_waits(void)
{
    if (size < 2)
        return;
    if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double until = MPI_Wtime() + 0.02;
        while (MPI_Wtime() < until) {
        }
        MPI_Send("late", 5, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
    }
    if (rank == 1) {
        MPI_Status status;
        char text[5];
        MPI_Send(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD);
        MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
        STATUS(&status, 0, TAG, 5);
        MPI_Recv(text, 5, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(!strcmp(text, "late"), "got %s", text);
    }
}

// Section 3.10: a probe of MPI_PROC_NULL returns at once.
static void s3_10_probe_of_proc_null(void)
{
    MPI_Status status;
    int flag = 0;
    GOOD(MPI_Probe(MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &status));
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    GOOD(MPI_Iprobe(MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &flag, &status));
    EQUAL(flag, 1);
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_1_probe_tells_size_source_and_tag);
    RUN(s3_8_1_iprobe_sees_nothing_before_and_something_after);
    RUN(s3_8_1_probe_does_not_take_the_message);
    RUN(s3_8_1_probe_does_not_see_what_a_posted_receive_takes);
    RUN(s3_8_1_probe_waits);
    RUN(s3_10_probe_of_proc_null);
    return finish();
}
