// SPDX-License-Identifier: MIT OR Apache-2.0
/* Token ring: one message is passed round all ranks; the time is that of one hop. Ranks wait for the message in
 * MPI_Recv, or poll for it. */
#include "report.h"

static int by_test, by_testall, by_iprobe;
static const struct flag ways[] = {
    {"--test", &by_test, "ranks poll with MPI_Test"},
    {"--testall", &by_testall, "ranks poll with MPI_Testall of two requests, one of them null"},
    {"--iprobe", &by_iprobe, "ranks poll with MPI_Iprobe, from any source"},
    {0},
};

struct ring {
    char *token;
    int size, rank, ranks;
};

/* Waits for the token in the selected way. */
static void take(struct ring *ring, int previous) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int flag = 0;
    if (by_test || by_testall)
        MPI_Irecv(ring->token, ring->size, MPI_BYTE, previous, 1, MPI_COMM_WORLD, requests);
    if (by_test)
        while (!flag)
            MPI_Test(requests, &flag, MPI_STATUS_IGNORE);
    else if (by_testall)
        while (!flag)
            MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
    else {
        while (by_iprobe && !flag)
            MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        MPI_Recv(ring->token, ring->size, MPI_BYTE, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void rounds(void *state, long count) {
    struct ring *ring = state;
    int next = (ring->rank + 1) % ring->ranks, previous = (ring->rank + ring->ranks - 1) % ring->ranks;
    for (long i = 0; i < count; i++) {
        if (ring->rank == 0)
            MPI_Send(ring->token, ring->size, MPI_BYTE, next, 1, MPI_COMM_WORLD);
        take(ring, previous);
        if (ring->rank != 0)
            MPI_Send(ring->token, ring->size, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    }
}

/* Every rank adds 1 to the first byte of the message; rank 0 must receive the number of ranks. */
static void validate(struct ring *ring) {
    if (ring->size == 0)
        return;
    memset(ring->token, 0, (size_t)ring->size);
    if (ring->rank == 0)
        MPI_Send(ring->token, ring->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(ring->token, ring->size, MPI_BYTE, (ring->rank + ring->ranks - 1) % ring->ranks, 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (ring->token[0] != (char)(ring->rank == 0 ? ring->ranks - 1 : ring->rank - 1))
        die(BAD_PAYLOAD, "ring: the token was changed on its way");
    ring->token[0]++;
    if (ring->rank != 0)
        MPI_Send(ring->token, ring->size, MPI_BYTE, (ring->rank + 1) % ring->ranks, 1, MPI_COMM_WORLD);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct ring ring = {.size = (int)size};
    struct buffers memory = new_buffers(options, size, 1);
    ring.token = (char *)buffer(&memory, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &ring.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ring.ranks);
    if (options->validate)
        validate(&ring);
    *per_iteration = ring.ranks;
    struct timing timing = measure(options, rounds, &ring, CLOCK_OF_RANK_0);
    free_buffers(&memory);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "ring",
        "a token passed from rank to rank, time per hop",
        ways,
        {{8}, 1, 0, 3, 1.0, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Hop (us)", "us", TIME_US, 1}, 2, one_size);
}
