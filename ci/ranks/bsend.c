// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory for buffered sends: MPI 5.0 section 3.6.
#include "check.h"

#include <unistd.h>

enum { TAG = 3, BYTES = 1000, MANY = 20 };

static void s3_6_buffered_sends_complete_without_a_receive(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int room = MANY * (BYTES + MPI_BSEND_OVERHEAD);
    char *buffer = allocate((size_t)room), out[BYTES], in[BYTES];
    GOOD(MPI_Buffer_attach(buffer, room));
    for (int i = 0; i < MANY; i++) {
        fill(out, BYTES, (unsigned)(rank + i));
        GOOD(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, MPI_COMM_WORLD));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) {
        MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, BYTES, (unsigned)(left + i));
    }
    void *back = NULL;
    int bytes = 0;
    GOOD(MPI_Buffer_detach(&back, &bytes));
    CHECK(back == buffer, "another buffer came back");
    EQUAL(bytes, room);
    free(buffer);
}

// Room is used again: many more messages than the buffer could hold at once.
static void s3_6_room_is_used_again(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int room = 2 * (BYTES + MPI_BSEND_OVERHEAD);
    char *buffer = allocate((size_t)room), out[BYTES], in[BYTES];
    MPI_Buffer_attach(buffer, room);
    for (int i = 0; i < 200; i++) {
        fill(out, BYTES, (unsigned)(rank + i));
        MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, BYTES, (unsigned)(left + i));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
}

// Detach waits until every buffered message has left (section 3.6).
static void s3_6_detach_waits_for_the_messages(void)
{
    if (size < 2 || rank > 1)
        return;
    enum { LARGE = 400000 };
    if (rank == 0) {
        int room = LARGE + MPI_BSEND_OVERHEAD;
        char *buffer = allocate((size_t)room), *out = allocate(LARGE);
        fill(out, LARGE, 8);
        MPI_Buffer_attach(buffer, room);
        MPI_Bsend(out, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Send(NULL, 0, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
        MPI_Buffer_detach(&buffer, &room);
        // The message has left: what happens to the memory now does not matter.
        memset(buffer, 0, (size_t)room);
        free(buffer);
        free(out);
    } else {
        char *in = allocate(LARGE);
        MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(in, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, LARGE, 8);
        free(in);
    }
}

static void s3_6_too_little_room_is_an_error(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    char buffer[64 + MPI_BSEND_OVERHEAD], out[4096] = {0};
    void *back;
    int bytes;
    MPI_Buffer_attach(buffer, sizeof buffer);
    FAILS(MPI_Bsend(out, sizeof out, MPI_BYTE, rank, TAG, comm), MPI_ERR_BUFFER);
    MPI_Buffer_detach(&back, &bytes);
    MPI_Comm_free(&comm);
}

// MPI 4.1 and 5.0: a buffer of a communicator's own, flushing, and automatic buffers.
static void s3_6_buffers_of_a_communicator(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, bytes;
    int room = MANY * (BYTES + MPI_BSEND_OVERHEAD);
    char *buffer = allocate((size_t)room), out[BYTES], in[BYTES];
    void *back;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    GOOD(MPI_Comm_attach_buffer(comm, buffer, room));
    for (int i = 0; i < MANY; i++) {
        fill(out, BYTES, (unsigned)(rank + i));
        GOOD(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm));
    }
    for (int i = 0; i < MANY; i++) {
        MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, comm, MPI_STATUS_IGNORE);
        PAYLOAD(in, BYTES, (unsigned)(left + i));
    }
    GOOD(MPI_Comm_flush_buffer(comm));
    MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm);
    MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, comm, MPI_STATUS_IGNORE);
    GOOD(MPI_Comm_detach_buffer(comm, &back, &bytes));
    CHECK(back == buffer, "another buffer came back");
    EQUAL(bytes, room);
    free(buffer);
    MPI_Comm_free(&comm);
}

static void s3_6_flush_of_the_process_buffer(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    int room = 256 + MPI_BSEND_OVERHEAD;
    void *buffer = allocate((size_t)room);
    MPI_Request request;
    MPI_Buffer_attach(buffer, room);
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
    MPI_Bsend(&rank, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    GOOD(MPI_Buffer_flush());
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(in, left);
    MPI_Request flushed;
    GOOD(MPI_Buffer_iflush(&flushed));
    GOOD(MPI_Wait(&flushed, MPI_STATUS_IGNORE));
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
}

static void s3_6_automatic_buffers(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, bytes = 0;
    char *out = allocate(100000), *in = allocate(100000);
    void *back;
    GOOD(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    for (int i = 0; i < MANY; i++) {
        fill(out, 100000, (unsigned)(rank + i));
        GOOD(MPI_Bsend(out, 100000, MPI_BYTE, right, TAG, MPI_COMM_WORLD));
    }
    for (int i = 0; i < MANY; i++) {
        MPI_Recv(in, 100000, MPI_BYTE, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, 100000, (unsigned)(left + i));
    }
    GOOD(MPI_Buffer_detach(&back, &bytes));
    CHECK(back == MPI_BUFFER_AUTOMATIC, "detached %p", back);
    free(out);
    free(in);
}

static int told(const char *name)
{
    return access(name, F_OK) == 0;
}

// A message that was received takes no room any more, although the notice of that is queued behind other messages and
// this rank has not called MPI since. `bsend news`: the standard does not promise it.
static void s3_6_room_of_what_was_received(void)
{
    enum { LARGE = 400000, SMALL = 40, NAP_US = 1000, NAPS = 5000 };
    char name[4096], *in = allocate(LARGE), *out = allocate(LARGE), *buffer = allocate(LARGE + MPI_BSEND_OVERHEAD);
    const char *folder = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/bsend.%d", folder ? folder : "/tmp", (int)getpid());
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        int room = LARGE + MPI_BSEND_OVERHEAD, naps = 0, value;
        MPI_Buffer_attach(buffer, room);
        fill(out, LARGE, 1);
        GOOD(MPI_Bsend(out, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        // If the receiver needs the sender to transfer the message, the other rank waits for this one.
        while (!told(name) && naps++ < NAPS)
            usleep(NAP_US);
        if (naps > NAPS)
            MPI_Buffer_flush();
        fill(out, LARGE, 2);
        GOOD(MPI_Bsend(out, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        for (int i = 0; i < SMALL; i++) {
            MPI_Recv(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(value, i);
        }
        MPI_Buffer_detach(&buffer, &room);
        unlink(name);
    }
    if (rank == 1) {
        for (int i = 0; i < SMALL; i++)
            MPI_Send(&i, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, LARGE, 1);
        FILE *file = fopen(name, "w");
        CHECK(file, "%s cannot be made", name);
        if (file)
            fclose(file);
        MPI_Recv(in, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(in, LARGE, 2);
    }
    free(buffer);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc > 1 && !strcmp(argv[1], "news")) {
        RUN(s3_6_room_of_what_was_received);
        return finish();
    }
    RUN(s3_6_buffered_sends_complete_without_a_receive);
    RUN(s3_6_room_is_used_again);
    RUN(s3_6_detach_waits_for_the_messages);
    RUN(s3_6_too_little_room_is_an_error);
    RUN(s3_6_buffers_of_a_communicator);
    RUN(s3_6_flush_of_the_process_buffer);
    RUN(s3_6_automatic_buffers);
    return finish();
}
