// SPDX-License-Identifier: MIT OR Apache-2.0
// Many nonblocking sends in a row: MPI 5.0 section 3.7. When the sender has completed them, whichever way, their
// messages arrive although it makes no further MPI calls. Rank 1 tells rank 0 through a file that it has all of them.
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 24, TAG = 3, MOST = 240, PATIENCE_S = 60 };

static char out[COUNT][MOST];
static MPI_Request requests[COUNT];
static int indices[COUNT];
static int told = -1, turns;

static void wait_each(void)
{
    for (int i = 0; i < COUNT; i++)
        GOOD(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
}

static void wait_backwards(void)
{
    for (int i = COUNT; i-- > 0;)
        GOOD(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
}

static void waitall(void)
{
    GOOD(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
}

static void waitany(void)
{
    int index;
    do
        GOOD(MPI_Waitany(COUNT, requests, &index, MPI_STATUS_IGNORE));
    while (index != MPI_UNDEFINED);
}

static void waitsome(void)
{
    int done;
    do
        GOOD(MPI_Waitsome(COUNT, requests, &done, indices, MPI_STATUSES_IGNORE));
    while (done != MPI_UNDEFINED);
}

static void test(void)
{
    for (int i = 0, flag = 0; i < COUNT; i += flag)
        GOOD(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
}

static void testall(void)
{
    int flag = 0;
    while (!flag)
        GOOD(MPI_Testall(COUNT, requests, &flag, MPI_STATUSES_IGNORE));
}

static void testany(void)
{
    int flag, index = 0;
    while (index != MPI_UNDEFINED)
        do
            GOOD(MPI_Testany(COUNT, requests, &index, &flag, MPI_STATUS_IGNORE));
        while (!flag);
}

static void testsome(void)
{
    int done;
    do
        GOOD(MPI_Testsome(COUNT, requests, &done, indices, MPI_STATUSES_IGNORE));
    while (done != MPI_UNDEFINED);
}

static void get_status(void)
{
    for (int i = 0, flag = 0; i < COUNT; i += flag)
        GOOD(MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE));
}

static void free_each(void)
{
    for (int i = 0; i < COUNT; i++)
        GOOD(MPI_Request_free(&requests[i]));
}

static const struct {
    const char *name;
    void (*complete)(void);
} ways[] = {
    {"MPI_Wait", wait_each},         {"MPI_Wait, last first", wait_backwards},
    {"MPI_Waitall", waitall},        {"MPI_Waitany", waitany},
    {"MPI_Waitsome", waitsome},      {"MPI_Test", test},
    {"MPI_Testall", testall},        {"MPI_Testany", testany},
    {"MPI_Testsome", testsome},      {"MPI_Request_get_status", get_status},
    {"MPI_Request_free", free_each},
};

// Waits, outside MPI, until rank 1 has received everything.
static void await_receiver(const char *way, int bytes)
{
    time_t until = time(NULL) + PATIENCE_S;
    struct stat file = {0};
    while (fstat(told, &file) == 0 && file.st_size < turns && time(NULL) < until)
        usleep(1000);
    CHECK(file.st_size >= turns, "%d messages of %d bytes completed by %s have not arrived after %d s", COUNT,
          bytes, way, PATIENCE_S);
}

static void send_burst(int way, int bytes)
{
    for (int i = 0; i < COUNT; i++) {
        fill(out[i], (size_t)bytes, (unsigned)(i + bytes));
        GOOD(MPI_Isend(out[i], bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]));
    }
    ways[way].complete();
    await_receiver(ways[way].name, bytes);
    // MPI_Request_get_status has left the requests.
    GOOD(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
}

static void receive_burst(int bytes)
{
    static char in[MOST];
    for (int i = 0; i < COUNT; i++) {
        MPI_Status status;
        GOOD(MPI_Recv(in, MOST, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status));
        STATUS(&status, 0, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(i + bytes));
    }
    CHECK(write(told, "x", 1) == 1, "rank 0 cannot be told");
}

static void s3_7_3_completed_sends_arrive_without_further_calls(void)
{
    static const int sizes[] = {0, 4, 8, 9, 48, 49, MOST};
    for (int way = 0; way < COUNT_OF(ways); way++)
        for (int at = 0; at < COUNT_OF(sizes); at++) {
            turns++;
            // Nothing of the burst before is under way.
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0)
                send_burst(way, sizes[at]);
            if (rank == 1)
                receive_burst(sizes[at]);
        }
}

// A blocking send, or a send to another rank, comes behind a burst; the receiver takes messages in any order.
static void s3_5_bursts_keep_their_order(void)
{
    for (int round = 0; round < 20; round++) {
        int numbers[COUNT], next[2] = {0, 0};
        for (int i = 0; i < COUNT; i++) {
            numbers[i] = i;
            int to = (rank + 1 + i % 2) % size;
            if (i % 13 == 12)
                MPI_Send(&numbers[i], 1, MPI_INT, to, i % 2, MPI_COMM_WORLD);
            else
                MPI_Isend(&numbers[i], 1, MPI_INT, to, i % 2, MPI_COMM_WORLD, &requests[i]);
            if (i % 13 == 12)
                requests[i] = MPI_REQUEST_NULL;
        }
        for (int i = 0; i < COUNT; i++) {
            MPI_Status status;
            int number = -1;
            MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            EQUAL(number, 2 * next[status.MPI_TAG] + status.MPI_TAG);
            next[status.MPI_TAG]++;
        }
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "threads"))
        start_threads(&argc, &argv);
    else
        start(&argc, &argv);
    char name[] = "isend_bursts.XXXXXX";
    if (rank == 0)
        told = mkstemp(name);
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 1)
        told = open(name, O_WRONLY | O_APPEND);
    CHECK(rank > 1 || told >= 0, "the file %s cannot be opened", name);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(name);
    RUN(s3_7_3_completed_sends_arrive_without_further_calls);
    RUN(s3_5_bursts_keep_their_order);
    return finish();
}
