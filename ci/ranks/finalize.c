// SPDX-License-Identifier: MIT OR Apache-2.0
// What may be open when MPI_Finalize is called: MPI 5.0 section 11.2.2. `finalize CASE`.
#include "check.h"

#include <unistd.h>

enum { TAG = 3, BYTES = 500000 };

static char big_out[BYTES], big_in[BYTES];

// Messages that are never received: small sends were complete.
static void unreceived(void)
{
    if (rank != 0)
        for (int i = 0; i < 50; i++)
            MPI_Send(&i, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
}

// Receives that were never matched, freed or cancelled and not waited for.
static void open_receives(void)
{
    static int value;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
}

// An inactive persistent request and objects that were not freed.
static void unfreed_objects(void)
{
    static int value;
    MPI_Request request;
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Send_init(&value, 1, MPI_INT, 0, TAG, MPI_COMM_SELF, &request);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_contiguous(4, MPI_INT, &type);
    MPI_Type_commit(&type);
}

// A freed large send whose receiver is late: "MPI_Finalize completes all pending communication".
static void late_receiver_of_a_freed_send(void)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    if (rank & 1) {
        MPI_Request request;
        fill(big_out, BYTES, (unsigned)rank);
        MPI_Isend(big_out, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else {
        usleep(50000);
        MPI_Recv(big_in, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(big_in, BYTES, (unsigned)peer);
    }
}

// A buffered send is delivered, although its sender is already in MPI_Finalize.
static void buffered(void)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    if (rank & 1) {
        int room = BYTES + MPI_BSEND_OVERHEAD;
        MPI_Buffer_attach(allocate((size_t)room), room);
        fill(big_out, BYTES, (unsigned)rank);
        MPI_Bsend(big_out, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    } else {
        usleep(50000);
        MPI_Recv(big_in, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(big_in, BYTES, (unsigned)peer);
    }
}

// Some ranks call it much earlier than others, and the last message is eager.
static void at_different_times(void)
{
    if (rank == 0) {
        for (int from = 1; from < size; from++) {
            int value = -1;
            MPI_Recv(&value, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(value, from);
            usleep(1000);
        }
    } else {
        MPI_Send(&rank, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"nothing", NULL},
    {"unreceived", unreceived},
    {"open-receives", open_receives},
    {"unfreed", unfreed_objects},
    {"late-receiver", late_receiver_of_a_freed_send},
    {"buffered", buffered},
    {"different-times", at_different_times},
};

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *wanted = argc > 1 ? argv[1] : "nothing";
    int found = 0;
    for (int i = 0; i < COUNT_OF(cases); i++)
        if (!strcmp(wanted, cases[i].name)) {
            found = 1;
            check_test = cases[i].name;
            if (cases[i].run)
                cases[i].run();
        }
    CHECK(found, "no case is called %s", wanted);
    return finish();
}
