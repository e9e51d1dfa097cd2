// SPDX-License-Identifier: MIT OR Apache-2.0
// Statuses that the program fills in, and their fields through functions: MPI 5.0 sections 3.2.5, 13.3.
#include "check.h"

static void s13_3_filled_in_by_the_program(void)
{
    MPI_Status status;
    int count, flag;
    memset(&status, 0, sizeof status);
    GOOD(MPI_Status_set_elements(&status, MPI_INT, 7));
    GOOD(MPI_Get_count(&status, MPI_INT, &count));
    EQUAL(count, 7);
    GOOD(MPI_Status_set_elements_c(&status, MPI_BYTE, 3000000000LL));
    MPI_Count large;
    GOOD(MPI_Get_count_c(&status, MPI_BYTE, &large));
    EQUAL(large, 3000000000LL);
    // It does not fit an int: MPI_UNDEFINED (section 3.2.5).
    GOOD(MPI_Get_count(&status, MPI_BYTE, &count));
    EQUAL(count, MPI_UNDEFINED);
    GOOD(MPI_Status_set_cancelled(&status, 1));
    GOOD(MPI_Test_cancelled(&status, &flag));
    EQUAL(flag, 1);
    GOOD(MPI_Status_set_cancelled(&status, 0));
    GOOD(MPI_Test_cancelled(&status, &flag));
    EQUAL(flag, 0);
}

// MPI 4.1 and 5.0: the fields through functions.
static void s3_2_5_fields_through_functions(void)
{
    MPI_Status status;
    int value;
    memset(&status, 0, sizeof status);
    GOOD(MPI_Status_set_source(&status, 3));
    GOOD(MPI_Status_set_tag(&status, 9));
    GOOD(MPI_Status_set_error(&status, MPI_ERR_OTHER));
    EQUAL(status.MPI_SOURCE, 3);
    EQUAL(status.MPI_TAG, 9);
    EQUAL(status.MPI_ERROR, MPI_ERR_OTHER);
    GOOD(MPI_Status_get_source(&status, &value));
    EQUAL(value, 3);
    GOOD(MPI_Status_get_tag(&status, &value));
    EQUAL(value, 9);
    GOOD(MPI_Status_get_error(&status, &value));
    EQUAL(value, MPI_ERR_OTHER);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s13_3_filled_in_by_the_program);
    RUN(s3_2_5_fields_through_functions);
    return finish();
}
