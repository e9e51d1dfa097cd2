// SPDX-License-Identifier: MIT OR Apache-2.0
// Control variables of protocols and memory that a tool writes before MPI_Init, and their effect on performance
// variables: MPI 5.0 section 15.3.6. `mpit_tune early` sets gates after 4 starts and a limit of 1000 unexpected
// messages; `mpit_tune late` gates after 1000 starts and a limit of 30.
#include "counting.h"

static void set(const char *name, unsigned long long value)
{
    MPI_T_cvar_handle handle;
    int index = -1, count = 0;
    GOOD(MPI_T_cvar_get_index(name, &index));
    GOOD(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    GOOD(MPI_T_cvar_write(handle, &value));
    GOOD(MPI_T_cvar_handle_free(&handle));
}

static int is_early;

// The same exchange forty times, which is enough for a gate or not.
static void s15_3_6_starts_before_a_gate(void)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    char *out, *in;
    MPI_Request both[2];
    if (size == 1)
        return;
    GOOD(MPI_Alloc_mem(1000, MPI_INFO_NULL, &out));
    GOOD(MPI_Alloc_mem(1000, MPI_INFO_NULL, &in));
    GOOD(MPI_Recv_init(in, 1000, MPI_BYTE, before, 1, MPI_COMM_WORLD, &both[0]));
    GOOD(MPI_Send_init(out, 1000, MPI_BYTE, next, 1, MPI_COMM_WORLD, &both[1]));
    MPI_T_pvar_handle gated = begin("gate_sends");
    for (int turn = 0; turn < 40; turn++) {
        memset(out, turn, 1000);
        // The receive is started first, so that its gate is open, if it has one.
        GOOD(MPI_Start(&both[0]));
        GOOD(MPI_Barrier(MPI_COMM_WORLD));
        GOOD(MPI_Start(&both[1]));
        GOOD(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
        CHECK(in[0] == turn && in[999] == turn, "turn %d", turn);
    }
    unsigned long long through = end(gated);
    CHECK(is_early ? through > 0 : through == 0, "%llu messages went through gates", through);
    GOOD(MPI_Request_free(&both[0]));
    GOOD(MPI_Request_free(&both[1]));
    GOOD(MPI_Free_mem(out));
    GOOD(MPI_Free_mem(in));
}

// A hundred unexpected messages exceed the limit or not; all of them are received.
static void s15_3_6_messages_that_nobody_expects(void)
{
    enum { MANY = 100 };
    int word = 0;
    MPI_Request requests[MANY];
    MPI_T_pvar_handle throttles = begin("senders_throttled");
    if (rank == 1)
        for (int i = 0; i < MANY; i++)
            GOOD(MPI_Isend(&rank, 1, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]));
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        int flag = 0;
        while (!flag)
            GOOD(MPI_Iprobe(1, MANY - 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        unsigned long long asked = end(throttles);
        CHECK(is_early ? asked == 0 : asked > 0, "senders were throttled %llu times", asked);
        for (int i = MANY - 1; i >= 0; i--) {
            GOOD(MPI_Recv(&word, 1, MPI_INT, 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            EQUAL(word, 1);
        }
    }
    if (rank == 1)
        GOOD(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
}

int main(int argc, char **argv)
{
    int provided;
    is_early = argc > 1 && !strcmp(argv[1], "early");
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    set("RMPI_GATE_STARTS", is_early ? 4 : 1000);
    set("RMPI_UNEXPECTED_MESSAGES", is_early ? 1000 : 30);
    set("RMPI_UNEXPECTED_RELEASE", 10);
    GOOD(MPI_T_pvar_session_create(&session));
    start(&argc, &argv);
    RUN(s15_3_6_starts_before_a_gate);
    if (size > 1)
        RUN(s15_3_6_messages_that_nobody_expects);
    GOOD(MPI_T_pvar_session_free(&session));
    return finish();
}
