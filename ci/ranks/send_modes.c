// SPDX-License-Identifier: MIT OR Apache-2.0
// The four modes of blocking send, at every size where a protocol changes.
#include "check.h"

enum { READY = 1, DATA = 2 };

static char *out, *in;

typedef int (*send_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm);

// Even ranks send first, so that no mode depends on buffering.
static void exchange(send_function send, int bytes, int round)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    for (int turn = 0; turn < 2; turn++) {
        unsigned seed = (unsigned)(round * 4 + turn);
        if ((rank & 1) == turn) {
            fill(out, (size_t)bytes, seed);
            GOOD(send(out, bytes, MPI_BYTE, peer, DATA + round, MPI_COMM_WORLD));
            // The buffer may be used again: what is written now must not arrive.
            memset(out, 0xAA, (size_t)bytes);
        } else {
            MPI_Status status;
            memset(in, 0x55, (size_t)bytes + 1);
            GOOD(MPI_Recv(in, bytes, MPI_BYTE, peer, DATA + round, MPI_COMM_WORLD, &status));
            STATUS(&status, peer, DATA + round, bytes);
            PAYLOAD(in, (size_t)bytes, seed);
            EQUAL(in[bytes], 0x55);
        }
    }
}

static void all_sizes(send_function send)
{
    for (int i = 0; i < check_size_count(); i++)
        for (int round = 0; round < 3; round++)
            exchange(send, check_sizes[i], round);
}

static void s3_4_standard_mode(void)
{
    all_sizes(MPI_Send);
}

static void s3_4_synchronous_mode(void)
{
    all_sizes(MPI_Ssend);
}

static void s3_4_buffered_mode(void)
{
    int bytes = 8 * check_size_max() + 64 * MPI_BSEND_OVERHEAD;
    void *buffer = allocate((size_t)bytes), *back;
    MPI_Buffer_attach(buffer, bytes);
    all_sizes(MPI_Bsend);
    int got;
    MPI_Buffer_detach(&back, &got);
    CHECK(back == buffer, "detached %p, attached %p", back, buffer);
    EQUAL(got, bytes);
    free(buffer);
}

// MPI 5.0 section 3.4: the receive is posted before the send starts, which the receiver reports by a message.
static void s3_4_ready_mode(void)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(in, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &request);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, READY, NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        fill(out, (size_t)bytes, (unsigned)(rank + i));
        GOOD(MPI_Rsend(out, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD));
        MPI_Wait(&request, &status);
        STATUS(&status, peer, DATA, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(peer + i));
    }
}

// The receive buffer may be larger than the message (section 3.2.4).
static void s3_2_4_shorter_message_than_buffer(void)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    int room = check_size_max();
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Status status;
        fill(out, (size_t)bytes, 9);
        memset(in, 0x77, (size_t)room);
        MPI_Sendrecv(out, bytes, MPI_BYTE, peer, DATA, in, room, MPI_BYTE, peer, DATA,
                     MPI_COMM_WORLD, &status);
        STATUS(&status, peer, DATA, bytes);
        PAYLOAD(in, (size_t)bytes, 9);
        CHECK(bytes == room || in[bytes] == 0x77, "the byte behind %d bytes was written", bytes);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate((size_t)check_size_max() + 1);
    in = allocate((size_t)check_size_max() + 1);
    RUN(s3_4_standard_mode);
    RUN(s3_4_synchronous_mode);
    RUN(s3_4_buffered_mode);
    RUN(s3_4_ready_mode);
    RUN(s3_2_4_shorter_message_than_buffer);
    free(out);
    free(in);
    return finish();
}
