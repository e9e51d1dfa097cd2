// SPDX-License-Identifier: MIT OR Apache-2.0
// A function without a body is called by a program that ignores error codes and then fails for another reason: the
// launcher's last line names the function.
#include "check.h"

int main(int argc, char **argv)
{
    MPI_File file;
    start(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_File_open(MPI_COMM_SELF, "data", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
        if (argc > 1)
            MPI_Abort(MPI_COMM_WORLD, 3);
        exit(3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return finish();
}
