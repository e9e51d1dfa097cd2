// SPDX-License-Identifier: MIT OR Apache-2.0
// Large data with gaps are sent without a copy of the whole message on either side, as the peak of the process's memory
// shows. MPI 5.0 sections 3.4, 3.7, 3.8.3, 3.9 and 5.1.
#include "check.h"

enum { TAG = 7, NUMBERS = 4 << 20, STRIDE = 2, KIB_ALLOWED = 8 << 10 };

static double *out, *in;
static MPI_Datatype gaps, dense;
static int right, left;

// The most memory that this process ever had, in KiB.
static long peak_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

static void fresh(int round)
{
    for (int i = 0; i < NUMBERS * STRIDE; i++) {
        out[i] = rank * 1e8 + i + round;
        in[i] = -1;
    }
}

static void arrived(int round, int sent_step, int step)
{
    int wrong = 0;
    for (int i = 0; i < NUMBERS * STRIDE; i++) {
        double wanted = i % step || i / step >= NUMBERS ? -1 : left * 1e8 + i / step * sent_step + round;
        wrong += in[i] != wanted;
    }
    EQUAL(wrong, 0);
}

static void both_ways(MPI_Datatype sent, MPI_Datatype received, int synchronous)
{
    MPI_Request requests[2];
    static int round;
    fresh(++round);
    GOOD(MPI_Irecv(in, 1, received, left, TAG, MPI_COMM_WORLD, &requests[0]));
    if (synchronous)
        GOOD(MPI_Issend(out, 1, sent, right, TAG, MPI_COMM_WORLD, &requests[1]));
    else
        GOOD(MPI_Isend(out, 1, sent, right, TAG, MPI_COMM_WORLD, &requests[1]));
    GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    arrived(round, sent == gaps ? STRIDE : 1, received == gaps ? STRIDE : 1);
}

static void s5_1_gaps_on_both_sides(void)
{
    both_ways(gaps, gaps, 0);
}

static void s3_4_synchronous(void)
{
    both_ways(gaps, gaps, 1);
}

static void s5_1_gaps_here_dense_there(void)
{
    both_ways(gaps, dense, 0);
    both_ways(dense, gaps, 0);
}

// The message arrives before its receive.
static void s3_8_3_matched_probe(void)
{
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    int count = -1;
    fresh(50);
    GOOD(MPI_Isend(out, 1, gaps, right, TAG, MPI_COMM_WORLD, &request));
    GOOD(MPI_Mprobe(left, TAG, MPI_COMM_WORLD, &message, &status));
    GOOD(MPI_Get_elements(&status, gaps, &count));
    EQUAL(count, NUMBERS);
    GOOD(MPI_Mrecv(in, 1, gaps, &message, MPI_STATUS_IGNORE));
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    arrived(50, STRIDE, STRIDE);
}

static void s3_9_persistent(void)
{
    MPI_Request requests[2];
    GOOD(MPI_Recv_init(in, 1, gaps, left, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Send_init(out, 1, gaps, right, TAG, MPI_COMM_WORLD, &requests[1]));
    for (int round = 60; round < 62; round++) {
        fresh(round);
        GOOD(MPI_Startall(2, requests));
        GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        arrived(round, STRIDE, STRIDE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

// A receive that is longer than its message, and one that is shorter.
static void s3_2_4_other_lengths(void)
{
    MPI_Datatype half;
    MPI_Request request;
    MPI_Status status;
    int count = -1;
    MPI_Type_vector(NUMBERS / 2, 1, STRIDE, MPI_DOUBLE, &half);
    MPI_Type_commit(&half);
    fresh(70);
    GOOD(MPI_Isend(out, 1, half, right, TAG, MPI_COMM_WORLD, &request));
    GOOD(MPI_Recv(in, 1, gaps, left, TAG, MPI_COMM_WORLD, &status));
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    GOOD(MPI_Get_elements(&status, gaps, &count));
    EQUAL(count, NUMBERS / 2);
    CHECK(in[NUMBERS - STRIDE] == left * 1e8 + NUMBERS - STRIDE + 70, "%g", in[NUMBERS - STRIDE]);
    CHECK(in[NUMBERS] == -1, "%g", in[NUMBERS]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    fresh(71);
    GOOD(MPI_Isend(out, 1, gaps, right, TAG, MPI_COMM_WORLD, &request));
    FAILS(MPI_Recv(in, 1, half, left, TAG, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(in[NUMBERS] == -1, "%g", in[NUMBERS]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&half);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    out = allocate(sizeof(double) * NUMBERS * STRIDE);
    in = allocate(sizeof(double) * NUMBERS * STRIDE);
    MPI_Type_vector(NUMBERS, 1, STRIDE, MPI_DOUBLE, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Type_contiguous(NUMBERS, MPI_DOUBLE, &dense);
    MPI_Type_commit(&dense);
    fresh(0);
    long before = peak_kib();
    RUN(s5_1_gaps_on_both_sides);
    RUN(s3_4_synchronous);
    RUN(s5_1_gaps_here_dense_there);
    RUN(s3_8_3_matched_probe);
    RUN(s3_9_persistent);
    RUN(s3_2_4_other_lengths);
    long more = peak_kib() - before;
    check_test = "s5_1_no_copy_of_the_whole";
    CHECK(before > 0 && more <= KIB_ALLOWED, "%ld KiB more than the buffers, at most %d are right", more,
          KIB_ALLOWED);
    MPI_Type_free(&gaps);
    MPI_Type_free(&dense);
    free(out);
    free(in);
    return finish();
}
