// SPDX-License-Identifier: MIT OR Apache-2.0
// A rank that is in MPI again and again, whatever for, carries on the collectives that it has started: MPI 5.0 sections 6.12
// and 3.7.4. Where that fails these programs hang.
#include "check.h"

enum { READY = 1, OVER = 2, MYSELF = 3 };

static MPI_Request barrier;
static volatile int told;

// The last rank enters its barrier when all others are in theirs, and tells them when it is out.
static int is_last_and_did_its_part(void)
{
    if (rank != size - 1) {
        MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
        MPI_Send(NULL, 0, MPI_INT, size - 1, READY, MPI_COMM_WORLD);
        return 0;
    }
    for (int r = 0; r < size - 1; r++)
        MPI_Recv(NULL, 0, MPI_INT, r, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    for (int r = 0; r < size - 1; r++) {
        int one = 1;
        MPI_Send(&one, 1, MPI_INT, r, OVER, MPI_COMM_WORLD);
    }
    return 1;
}

static void s3_8_1_probes_carry_it_on(void)
{
    int flag = 0;
    if (is_last_and_did_its_part())
        return;
    while (!flag)
        MPI_Iprobe(size - 1, OVER, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Recv((void *)&told, 1, MPI_INT, size - 1, OVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

static void s3_8_2_matched_probes_carry_it_on(void)
{
    int flag = 0;
    MPI_Message message;
    if (is_last_and_did_its_part())
        return;
    while (!flag)
        MPI_Improbe(size - 1, OVER, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv((void *)&told, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_1_probes_carry_it_on);
    RUN(s3_8_2_matched_probes_carry_it_on);
    return finish();
}
