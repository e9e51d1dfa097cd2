// SPDX-License-Identifier: MIT OR Apache-2.0
// Says whose library it runs on, and that messages and reductions work there. Built with one MPI's
// compiler wrapper and run on another's library: both follow the standard ABI.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { TAG = 3, BYTES = 200000 };

static char out[BYTES], in[BYTES];

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int rank, size, length, sum = -1, count = -1, good = 1;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(version, &length);
    if (rank == 0)
        printf("library: %s\n", version);

    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    memset(out, rank + 1, BYTES);
    MPI_Sendrecv(out, BYTES, MPI_CHAR, right, TAG, in, BYTES, MPI_CHAR, left, TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    good &= status.MPI_SOURCE == left && status.MPI_TAG == TAG && count == BYTES;
    good &= in[0] == (char)(left + 1) && in[BYTES - 1] == (char)(left + 1);

    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    good &= sum == size * (size - 1) / 2;

    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Bcast(&sum, 1, MPI_INT, size - 1, copy);
    good &= sum == size * (size - 1) / 2;
    MPI_Comm_free(&copy);

    // One number from all ranks, so that one line tells.
    int all = 0;
    MPI_Reduce(&good, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s on %d ranks\n", all ? "good" : "WRONG", size);
    MPI_Finalize();
    return good ? 0 : 1;
}
