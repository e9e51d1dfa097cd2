// SPDX-License-Identifier: MIT OR Apache-2.0
// The traffic matrix: the bytes and messages that each rank has sent to each other rank, by any path.
#include "check.h"

static MPI_T_pvar_session session;
static MPI_T_pvar_handle early;

static MPI_T_pvar_handle begin(const char *name, int class, int expected)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_get_index(name, class, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    EQUAL(count, expected);
    GOOD(MPI_T_pvar_start(session, handle));
    return handle;
}

// A handle that is made before MPI is initialized has as many numbers as there will be ranks.
static void before_mpi_nothing_was_sent(void)
{
    const char *text = getenv("RMPI_SIZE");
    int count = text ? atoi(text) : 1;
    early = begin("sent_bytes_to", MPI_T_PVAR_CLASS_AGGREGATE, count);
    unsigned long long bytes[count];
    GOOD(MPI_T_pvar_read(session, early, bytes));
    for (int to = 0; to < count; to++)
        EQUAL(bytes[to], 0);
}

struct sent {
    unsigned long long *messages, *bytes;
};

static struct sent expected;

static void counted(int to, int messages, unsigned long long bytes)
{
    expected.messages[to] += messages;
    expected.bytes[to] += bytes * messages;
}

// Sends to the next rank, receives from the one before: `count` messages of `bytes` bytes, however a message can be sent.
static void around(int count, int bytes)
{
    static char out[1 << 20], in[1 << 20];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request both[2];
    for (int turn = 0; turn < count; turn++) {
        GOOD(MPI_Irecv(in, bytes, MPI_BYTE, before, 1, MPI_COMM_WORLD, &both[0]));
        GOOD(MPI_Isend(out, bytes, MPI_BYTE, next, 1, MPI_COMM_WORLD, &both[1]));
        GOOD(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
    }
    counted(next, count, bytes);
}

static void persistent_and_structured(void)
{
    static double out[300], in[300];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Datatype column;
    MPI_Request both[2];
    MPI_Type_vector(100, 1, 3, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    GOOD(MPI_Recv_init(in, 1, column, before, 2, MPI_COMM_WORLD, &both[0]));
    GOOD(MPI_Send_init(out, 100, MPI_DOUBLE, next, 2, MPI_COMM_WORLD, &both[1]));
    for (int turn = 0; turn < 5; turn++) {
        GOOD(MPI_Startall(2, both));
        GOOD(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
    }
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
    counted(next, 5, 800);
    GOOD(MPI_Sendrecv(out, 1, column, next, 3, in, 100, MPI_DOUBLE, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    counted(next, 1, 800);
    MPI_Type_free(&column);
}

// The ranks of the matrix are world ranks, not those of the communicator.
static void in_another_communicator(void)
{
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &turned);
    int mine, word = 0;
    MPI_Comm_rank(turned, &mine);
    EQUAL(mine, size - 1 - rank);
    MPI_Barrier(MPI_COMM_WORLD);
    // Making the communicator sent messages, too.
    for (int to = 0; to < size; to++)
        expected.messages[to] = expected.bytes[to] = 0;
    MPI_T_pvar_handle messages = begin("sent_messages_to", MPI_T_PVAR_CLASS_COUNTER, size);
    MPI_Request both[2];
    int next = (mine + 1) % size, before = (mine + size - 1) % size, in = 0;
    GOOD(MPI_Irecv(&in, 1, MPI_INT, before, 1, turned, &both[0]));
    GOOD(MPI_Isend(&word, 1, MPI_INT, next, 1, turned, &both[1]));
    GOOD(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
    counted(size - 1 - next, 1, 4);
    unsigned long long seen[size];
    GOOD(MPI_T_pvar_read(session, messages, seen));
    for (int to = 0; to < size; to++)
        EQUAL(seen[to], expected.messages[to]);
    GOOD(MPI_T_pvar_handle_free(session, &messages));
    MPI_Comm_free(&turned);
}

int main(int argc, char **argv)
{
    int level;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    before_mpi_nothing_was_sent();
    start(&argc, &argv);
    unsigned long long messages[size], bytes[size], all[size], none[size];
    unsigned long long room[2][size];
    expected = (struct sent){room[0], room[1]};
    for (int to = 0; to < size; to++)
        none[to] = room[0][to] = room[1][to] = 0;

    MPI_T_pvar_handle count = begin("sent_messages_to", MPI_T_PVAR_CLASS_COUNTER, size);
    MPI_T_pvar_handle sum = begin("sent_bytes_to", MPI_T_PVAR_CLASS_AGGREGATE, size);
    GOOD(MPI_T_pvar_reset(session, early));
    // Messages of eight and four bytes take the fast path, which counts nothing itself: more messages than a ring has
    // slots, so that wrap-arounds are counted.
    around(1000, 8);
    around(333, 4);
    around(20, 100);
    around(10, 5000);
    around(5, 30000);
    around(3, 1 << 20);
    around(4, 0);
    persistent_and_structured();
    GOOD(MPI_T_pvar_read(session, count, messages));
    GOOD(MPI_T_pvar_read(session, sum, bytes));
    for (int to = 0; to < size; to++) {
        EQUAL(messages[to], expected.messages[to]);
        EQUAL(bytes[to], expected.bytes[to]);
    }
    GOOD(MPI_T_pvar_read(session, early, bytes));
    for (int to = 0; to < size; to++)
        EQUAL(bytes[to], expected.bytes[to]);

    // A value is written for each rank, from which counting continues.
    for (int to = 0; to < size; to++)
        all[to] = 1000 * to;
    GOOD(MPI_T_pvar_write(session, count, all));
    GOOD(MPI_T_pvar_readreset(session, sum, bytes));
    around(10, 8);
    GOOD(MPI_T_pvar_stop(session, count));
    around(10, 8);
    GOOD(MPI_T_pvar_read(session, count, messages));
    GOOD(MPI_T_pvar_read(session, sum, bytes));
    int next = (rank + 1) % size;
    for (int to = 0; to < size; to++) {
        EQUAL(messages[to], 1000ull * to + (to == next ? 10 : 0));
        EQUAL(bytes[to], to == next ? 160ull : 0ull);
    }
    GOOD(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    GOOD(MPI_T_pvar_read(session, sum, bytes));
    for (int to = 0; to < size; to++)
        EQUAL(bytes[to], none[to]);
    in_another_communicator();
    MPI_Finalize();
    // The counts remain readable.
    GOOD(MPI_T_pvar_read(session, sum, bytes));
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    return 0;
}
