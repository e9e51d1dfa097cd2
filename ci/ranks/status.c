// SPDX-License-Identifier: MIT OR Apache-2.0
// What a status holds: MPI 5.0 sections 3.2.5 and 3.2.6.
#include "check.h"

enum { TAG = 3 };

static void s3_2_5_count_in_several_types(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, count;
    char out[24] = {0}, in[24];
    MPI_Count large;
    MPI_Status status;
    MPI_Sendrecv(out, 24, MPI_BYTE, right, TAG, in, 24, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    EQUAL(count, 24);
    MPI_Get_count(&status, MPI_INT, &count);
    EQUAL(count, 6);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    EQUAL(count, 3);
    MPI_Get_count(&status, MPI_LONG_DOUBLE, &count);
    EQUAL(count, MPI_UNDEFINED);
    MPI_Get_elements(&status, MPI_INT, &count);
    EQUAL(count, 6);
    GOOD(MPI_Get_count_c(&status, MPI_SHORT, &large));
    EQUAL(large, 12);
    GOOD(MPI_Get_elements_c(&status, MPI_SHORT, &large));
    EQUAL(large, 12);
}

// The single-completion calls do not touch MPI_ERROR (section 3.2.5).
static void s3_2_5_the_error_field_is_left_alone(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in;
    MPI_Status status;
    status.MPI_ERROR = 1234;
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &status);
    EQUAL(status.MPI_ERROR, 1234);
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
    MPI_Send(&rank, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    status.MPI_ERROR = 1234;
    MPI_Wait(&request, &status);
    EQUAL(status.MPI_ERROR, 1234);
}

static void s3_2_5_a_copy_of_a_status_is_a_status(void)
{
    int in, right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Status status, copy;
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &status);
    memcpy(&copy, &status, sizeof copy);
    STATUS(&copy, left, TAG, 4);
    EQUAL(sizeof(MPI_Status), 32);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_2_5_count_in_several_types);
    RUN(s3_2_5_the_error_field_is_left_alone);
    RUN(s3_2_5_a_copy_of_a_status_is_a_status);
    return finish();
}
