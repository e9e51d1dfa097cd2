// SPDX-License-Identifier: MIT OR Apache-2.0
// One message of more than 2 GiB: sizes that no int holds. MPI 5.0 section 2.5.8.
#include "check.h"

#include <unistd.h>

static const size_t bytes = ((size_t)1 << 31) + 12345;

// Checking every byte would take longer than the message, so one number in each page is checked.
enum { STEP = 4096 };

static void s2_5_8_more_than_two_gib(void)
{
    unsigned char *buffer = allocate(bytes);
    MPI_Status status;
    MPI_Count count = -1;
    if (rank == 0) {
        for (size_t i = 0; i < bytes; i += STEP)
            buffer[i] = payload_byte(i, 6);
        buffer[bytes - 1] = 77;
        GOOD(MPI_Send_c(buffer, (MPI_Count)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    }
    if (rank == 1) {
        GOOD(MPI_Recv_c(buffer, (MPI_Count)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status));
        GOOD(MPI_Get_count_c(&status, MPI_BYTE, &count));
        EQUAL(count, bytes);
        int small = 0;
        GOOD(MPI_Get_count(&status, MPI_BYTE, &small));
        EQUAL(small, MPI_UNDEFINED);
        long wrong = 0;
        for (size_t i = 0; i < bytes - 1; i += STEP)
            wrong += buffer[i] != payload_byte(i, 6);
        EQUAL(wrong, 0);
        EQUAL(buffer[bytes - 1], 77);
    }
    free(buffer);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long long free_bytes = (long long)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int enough = free_bytes > 6LL << 30, all = 0;
    MPI_Allreduce(&enough, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all)
        RUN(s2_5_8_more_than_two_gib);
    else if (rank == 0)
        printf("left out: only %lld MiB are free\n", free_bytes >> 20);
    return finish();
}
