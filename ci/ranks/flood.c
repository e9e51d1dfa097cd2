// SPDX-License-Identifier: MIT OR Apache-2.0
// Floods of unexpected messages: the message for which rank 0 waits arrives, the others are stored, and memory stays
// within bounds. `flood BYTES MESSAGES [MIB]`: each of the other ranks sends that many messages of that size with tag A
// before the one with tag B that rank 0 waits for; rank 0 may grow by MIB.
#include "check.h"

enum { TAG_A = 1, TAG_B = 2, GO = 3 };

// The largest resident size of this process so far, in KiB.
static long peak_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %ld", &kib);
    if (file)
        fclose(file);
    return kib;
}

static int bytes, messages;
static long budget_mib;

static void send_flood(void)
{
    char *out = allocate((size_t)bytes * 16);
    MPI_Request requests[64];
    MPI_Recv(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fill(out, (size_t)bytes, (unsigned)rank);
    // In windows of 64, as programs do; blocking sends would stop at the first large message.
    for (int i = 0; i < messages; i++) {
        if (i >= 64)
            MPI_Wait(&requests[i % 64], MPI_STATUS_IGNORE);
        // There are no receives yet, so the window may fill: then send first the message for which rank 0 waits.
        if (i == 63 || i == messages - 1)
            MPI_Send(&i, 1, MPI_INT, 0, TAG_B, MPI_COMM_WORLD);
        MPI_Isend(out, bytes, MPI_BYTE, 0, TAG_A, MPI_COMM_WORLD, &requests[i % 64]);
    }
    MPI_Waitall(messages < 64 ? messages : 64, requests, MPI_STATUSES_IGNORE);
    free(out);
}

// Small messages, all sent before the one that is waited for.
static void send_eager_flood(void)
{
    char *out = allocate((size_t)bytes);
    MPI_Recv(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Request *requests = allocate((size_t)messages * sizeof *requests);
    fill(out, (size_t)bytes, (unsigned)rank);
    for (int i = 0; i < messages; i++)
        MPI_Isend(out, bytes, MPI_BYTE, 0, TAG_A, MPI_COMM_WORLD, &requests[i]);
    int last = messages;
    MPI_Send(&last, 1, MPI_INT, 0, TAG_B, MPI_COMM_WORLD);
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    free(requests);
    free(out);
}

static void receive_flood(int markers)
{
    char *in = allocate((size_t)bytes + 1);
    long before = peak_kib();
    for (int to = 1; to < size; to++)
        MPI_Send(NULL, 0, MPI_BYTE, to, GO, MPI_COMM_WORLD);
    // The messages for which rank 0 waits arrive, although others precede them.
    for (int from = 1; from < size; from++) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, from, TAG_B, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(value, markers == 1 ? messages : 63);
    }
    for (int from = 1; from < size; from++)
        for (int i = 0; i < messages; i++) {
            MPI_Status status;
            MPI_Recv(in, bytes, MPI_BYTE, from, TAG_A, MPI_COMM_WORLD, &status);
            STATUS(&status, from, TAG_A, bytes);
            PAYLOAD(in, (size_t)bytes, (unsigned)from);
        }
    for (int from = 1; markers == 2 && from < size; from++) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, from, TAG_B, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(value, messages - 1);
    }
    long grown_mib = (peak_kib() - before) / 1024;
    CHECK(budget_mib == 0 || grown_mib <= budget_mib, "grew by %ld MiB, allowed are %ld", grown_mib, budget_mib);
    free(in);
}

static void s3_5_the_awaited_message_passes_the_flood(void)
{
    if (rank == 0)
        receive_flood(1);
    else
        send_eager_flood();
}

static void s3_5_a_window_of_open_sends_is_no_deadlock(void)
{
    if (messages < 128)
        return;
    if (rank == 0)
        receive_flood(2);
    else
        send_flood();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    bytes = argc > 1 ? atoi(argv[1]) : 64;
    messages = argc > 2 ? atoi(argv[2]) : 1000;
    budget_mib = argc > 3 ? atol(argv[3]) : 0;
    RUN(s3_5_the_awaited_message_passes_the_flood);
    RUN(s3_5_a_window_of_open_sends_is_no_deadlock);
    return finish();
}
