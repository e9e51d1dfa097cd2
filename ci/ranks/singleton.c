// SPDX-License-Identifier: MIT OR Apache-2.0
// A program started without a launcher has an MPI_COMM_WORLD of one rank: MPI 5.0 section 11.8.2.
#include "check.h"

enum { TAG = 3 };

static void s11_8_2_a_world_of_one(void)
{
    char *out = allocate(300000), *in = allocate(300000);
    EQUAL(size, 1);
    EQUAL(rank, 0);
    fill(out, 300000, 1);
    MPI_Sendrecv(out, 300000, MPI_BYTE, 0, TAG, in, 300000, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    PAYLOAD(in, 300000, 1);
    int sum = -1, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, 1);
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s11_8_2_a_world_of_one);
    return finish();
}
