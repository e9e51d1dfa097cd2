// SPDX-License-Identifier: MIT OR Apache-2.0
// A rank that repeatedly calls any function of MPI makes progress on the collectives that it has started: MPI 5.0
// sections 6.12 and 3.7.4. If it does not, these programs hang.
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READY = 1, OVER = 2, MYSELF = 3 };

static MPI_Request barrier;
static volatile int told;

// The last rank enters the barrier when all others have, and sends them a message when it has left.
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

// Waits that find their requests complete: messages that a rank sends to itself.
static void s3_7_4_waits_that_are_over_at_once_carry_it_on(void)
{
    for (int way = 0; way < 4; way++) {
        MPI_Request last, requests[2];
        told = 0;
        if (is_last_and_did_its_part())
            continue;
        MPI_Irecv((void *)&told, 1, MPI_INT, size - 1, OVER, MPI_COMM_WORLD, &last);
        while (!told) {
            long out = 7, in = 0;
            if (way == 0) {
                MPI_Send(&out, 1, MPI_LONG, rank, MYSELF, MPI_COMM_WORLD);
                MPI_Recv(&in, 1, MPI_LONG, rank, MYSELF, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                int flag = 0;
                MPI_Isend(&out, 1, MPI_LONG, rank, MYSELF, MPI_COMM_WORLD, &requests[0]);
                MPI_Irecv(&in, 1, MPI_LONG, rank, MYSELF, MPI_COMM_WORLD, &requests[1]);
                if (way == 1)
                    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
                else if (way == 2)
                    for (int i = 0; i < 2; i++)
                        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
                else
                    while (!flag)
                        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
            }
            EQUAL(in, 7);
        }
        MPI_Wait(&last, MPI_STATUS_IGNORE);
        MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    }
}

// A rank that receives so many messages that it never has to wait.
static void s3_7_4_a_flood_does_not_keep_it_from_going_on(void)
{
    long number = 0;
    if (size < 3)
        return;
    told = 0;
    if (is_last_and_did_its_part())
        return;
    MPI_Request last;
    if (rank == 0) {
        int over = 0;
        MPI_Irecv((void *)&told, 1, MPI_INT, size - 1, OVER, MPI_COMM_WORLD, &last);
        while (!over) {
            for (int i = 0; i < 100; i++)
                MPI_Send(&number, 1, MPI_LONG, 1, MYSELF, MPI_COMM_WORLD);
            MPI_Test(&last, &over, MPI_STATUS_IGNORE);
        }
        number = -1;
        MPI_Send(&number, 1, MPI_LONG, 1, MYSELF, MPI_COMM_WORLD);
    } else {
        while (rank == 1 && number >= 0)
            MPI_Recv(&number, 1, MPI_LONG, 0, MYSELF, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv((void *)&told, 1, MPI_INT, size - 1, OVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

// A start sends what it can before it returns: rank 0 does not call MPI until the others have received its data.
static void s6_13_a_start_begins_at_once(void)
{
    char name[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/coll_progress.XXXXXX", folder ? folder : "/tmp");
    int file = -1, values[2] = {rank == 0 ? 5 : -1, rank == 0 ? 6 : -1};
    MPI_Request requests[2];
    if (rank == 0)
        file = mkstemp(name);
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++)
        MPI_Bcast_init(&values[i], 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
    for (int all = 0; all < 2; all++) {
        if (all)
            MPI_Startall(2, requests);
        else
            for (int i = 0; i < 2; i++)
                MPI_Start(&requests[i]);
        if (rank == 0) {
            struct stat found = {0};
            while (found.st_size < (all + 1) * (size - 1) && fstat(file, &found) == 0)
                usleep(1000);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (rank != 0) {
            EQUAL(values[0], 5);
            EQUAL(values[1], 6);
            file = open(name, O_WRONLY | O_APPEND);
            EQUAL(write(file, "x", 1), 1);
            close(file);
        }
    }
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        close(file);
        unlink(name);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_1_probes_carry_it_on);
    RUN(s3_8_2_matched_probes_carry_it_on);
    RUN(s3_7_4_waits_that_are_over_at_once_carry_it_on);
    RUN(s3_7_4_a_flood_does_not_keep_it_from_going_on);
    // The standard allows that nothing is sent before the next call.
    if (argc > 1 && strcmp(argv[1], "starts") == 0)
        RUN(s6_13_a_start_begins_at_once);
    return finish();
}
