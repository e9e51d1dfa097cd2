// SPDX-License-Identifier: MIT OR Apache-2.0
// Two ranks call collectives of two communicators in different order.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: MPI_Barrier, call 1 of it on rows: rank 0 has come, rank 1 has not (it is in MPI_Barrier)
// expected: MPI_Barrier, call 1 of it on columns: rank 1 has come, rank 0 has not (it is in MPI_Barrier)
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm rows, columns;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &rows);
    MPI_Comm_set_name(rows, "rows");
    MPI_Comm_dup(MPI_COMM_WORLD, &columns);
    MPI_Comm_set_name(columns, "columns");
    MPI_Barrier(rank == 0 ? rows : columns);
    MPI_Barrier(rank == 0 ? columns : rows);
    MPI_Comm_free(&rows);
    MPI_Comm_free(&columns);
    MPI_Finalize();
    return 0;
}
