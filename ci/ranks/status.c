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

// But the empty status has MPI_SUCCESS there: nothing was completed.
static void s3_7_3_the_empty_status_says_success(void)
{
    enum { MANY = 3 };
    MPI_Request request = MPI_REQUEST_NULL, requests[MANY];
    MPI_Status status, statuses[MANY];
    int flag, index;
    for (int i = 0; i < MANY; i++)
        requests[i] = MPI_REQUEST_NULL;
#define SAYS_SUCCESS(call)                     \
    do {                                       \
        status.MPI_ERROR = 1234;               \
        GOOD(call);                            \
        EQUAL(status.MPI_ERROR, MPI_SUCCESS);  \
    } while (0)
    SAYS_SUCCESS(MPI_Wait(&request, &status));
    SAYS_SUCCESS(MPI_Test(&request, &flag, &status));
    SAYS_SUCCESS(MPI_Request_get_status(request, &flag, &status));
    SAYS_SUCCESS(MPI_Waitany(MANY, requests, &index, &status));
    SAYS_SUCCESS(MPI_Testany(MANY, requests, &index, &flag, &status));
    SAYS_SUCCESS(MPI_Request_get_status_any(MANY, requests, &index, &flag, &status));
#define ALL_SAY_SUCCESS(call)                          \
    do {                                               \
        for (int i = 0; i < MANY; i++)                 \
            statuses[i].MPI_ERROR = 1234;              \
        GOOD(call);                                    \
        for (int i = 0; i < MANY; i++)                 \
            EQUAL(statuses[i].MPI_ERROR, MPI_SUCCESS); \
    } while (0)
    ALL_SAY_SUCCESS(MPI_Waitall(MANY, requests, statuses));
    ALL_SAY_SUCCESS(MPI_Testall(MANY, requests, &flag, statuses));
    ALL_SAY_SUCCESS(MPI_Request_get_status_all(MANY, requests, &flag, statuses));
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
    RUN(s3_7_3_the_empty_status_says_success);
    RUN(s3_2_5_a_copy_of_a_status_is_a_status);
    return finish();
}
