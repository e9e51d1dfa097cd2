// SPDX-License-Identifier: MIT OR Apache-2.0
// Under `rmpiexec --keep-going` the last rank is killed. All other ranks have persistent requests with it that use
// gates: active requests and requests that are started later end with an error that names the killed rank. The gates
// between the other ranks still work.
#include "counting.h"
#include "killed.h"
#include <signal.h>
#include <unistd.h>

enum { WARM = 12, SMALL = 64, LARGE = 300000, PAIRS = 2 };

static int partner;
static MPI_Comm living;

struct pair {
    MPI_Request send, receive;
    char *out, *in;
    int bytes;
};

static struct pair open_pair(int peer, int bytes, int tag)
{
    struct pair it = {.bytes = bytes};
    GOOD(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &it.out));
    GOOD(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &it.in));
    GOOD(MPI_Send_init(it.out, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &it.send));
    GOOD(MPI_Recv_init(it.in, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &it.receive));
    return it;
}

static void exchange(struct pair *it, int peer, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        memset(it->out, rank + round, (size_t)it->bytes);
        GOOD(MPI_Start(&it->receive));
        GOOD(MPI_Start(&it->send));
        GOOD(MPI_Wait(&it->receive, MPI_STATUS_IGNORE));
        GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
        EQUAL(it->in[it->bytes - 1], (char)(peer + round));
    }
}

static void close_pair(struct pair *it)
{
    if (it->send != MPI_REQUEST_NULL)
        GOOD(MPI_Request_free(&it->send));
    if (it->receive != MPI_REQUEST_NULL)
        GOOD(MPI_Request_free(&it->receive));
    GOOD(MPI_Free_mem(it->out));
    GOOD(MPI_Free_mem(it->in));
}

static int start_and_wait(MPI_Request *request)
{
    int started = MPI_Start(request);
    return started ? started : MPI_Wait(request, MPI_STATUS_IGNORE);
}

// The victim has started no further receive, so the gates are as the last exchange left them.
static void what_waits_ends(struct pair *small, struct pair *large)
{
    int flag;
    MPI_Status status;
    switch (rank % 4) {
    case 0:
        told_of(start_and_wait(&small->receive), "receive");
        told_of(start_and_wait(&large->receive), "large receive");
        break;
    case 1:
        told_of(start_and_wait(&large->send), "large send");
        break;
    case 2:
        GOOD(MPI_Start(&large->receive));
        GOOD(MPI_Cancel(&large->receive));
        GOOD(MPI_Wait(&large->receive, &status));
        GOOD(MPI_Test_cancelled(&status, &flag));
        CHECK(flag, "a receive without a message is cancelled");
        told_of(start_and_wait(&small->receive), "receive after a cancelled one");
        break;
    case 3:
        GOOD(MPI_Start(&large->send));
        GOOD(MPI_Request_free(&large->send));
        GOOD(MPI_Start(&large->receive));
        GOOD(MPI_Request_free(&large->receive));
        told_of(start_and_wait(&small->receive), "receive beside freed ones");
        break;
    }
}

static void what_starts_later_ends(struct pair *small, struct pair *large)
{
    told_of(start_and_wait(&small->receive), "receive, started later");
    if (large->send != MPI_REQUEST_NULL)
        told_of(start_and_wait(&large->send), "large send, started later");
    if (large->receive != MPI_REQUEST_NULL)
        told_of(start_and_wait(&large->receive), "large receive, started later");
}

// The victim has one pair of each size with every other rank; of these each has one with its neighbour too.
int main(int argc, char **argv)
{
    struct pair own = {0};
    int level;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    victim = size - 1;
    partner = rank ^ 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank == victim, 0, &living);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle gates = begin("gate_sends");
    int has_partner = rank != victim && partner < victim;
    if (has_partner) {
        own = open_pair(partner, LARGE, 7);
        exchange(&own, partner, WARM);
    }
    struct pair pairs[PAIRS];
    for (int turn = 0; turn < victim; turn++) {
        if (rank != victim && rank != turn)
            continue;
        int peer = rank == victim ? turn : victim;
        pairs[0] = open_pair(peer, SMALL, 5);
        pairs[1] = open_pair(peer, LARGE, 6);
        exchange(&pairs[0], peer, WARM);
        exchange(&pairs[1], peer, WARM);
    }
    // Over a network, messages do not use gates.
    uint64_t through = end(gates);
    CHECK(through > 0 || !on_one_host(), "nothing went through a gate");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        usleep(100000);
        raise(SIGKILL);
    }
    what_waits_ends(&pairs[0], &pairs[1]);
    if (has_partner)
        exchange(&own, partner, WARM);
    what_starts_later_ends(&pairs[0], &pairs[1]);
    close_pair(&pairs[0]);
    close_pair(&pairs[1]);
    if (has_partner) {
        gates = begin("gate_sends");
        exchange(&own, partner, WARM);
        through = end(gates);
        CHECK(through >= WARM || !on_one_host(), "the gates of the living are closed");
        close_pair(&own);
    }
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish_living(living);
}
