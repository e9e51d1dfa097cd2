// SPDX-License-Identifier: MIT OR Apache-2.0
// A QMPI tool that counts calls, and prints the total of all ranks at the end.
//
//   rmpicc -shared -fPIC -o libcount.so tool_count.c
//   RMPI_TOOLS=$PWD/libcount.so rmpiexec -n 4 ./program
//
// It shows the three tasks of a tool: it registers itself, it calls the next function in the stack, and it uses MPI itself, below its
// own level, so that neither it nor the tools above intercept that call.
#include <qmpi.h>
#include <stdio.h>

static int tool_id;
static long counts[MPI_LAST_FUNC];
static const char *names[MPI_LAST_FUNC];

// The next function after this tool, in a variable `next` of the right type, and its context.
#define NEXT(name, NUMBER)                                                                                                      \
    QMPI_##name##_t *next;                                                                                                      \
    QMPI_Context below;                                                                                                         \
    int code = QMPI_Get_function(tool_id, NUMBER, (void (**)(void))&next, &below);                                              \
    if (code != MPI_SUCCESS)                                                                                                    \
        return code

// A function that counts and calls the next one.
#define COUNTED(name, NUMBER, parameters, ...)                                                                                  \
    static int count_##name parameters                                                                                          \
    {                                                                                                                           \
        (void)context;                                                                                                          \
        __atomic_fetch_add(&counts[NUMBER], 1, __ATOMIC_RELAXED);                                                               \
        NEXT(name, NUMBER);                                                                                                     \
        return next(below, __VA_ARGS__);                                                                                        \
    }

COUNTED(Send, MPI_SEND_T, (QMPI_Context context, const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), b, n, t,
        to, tag, c)
COUNTED(Recv, MPI_RECV_T,
        (QMPI_Context context, void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s), b, n, t, from, tag,
        c, s)
COUNTED(Isend, MPI_ISEND_T,
        (QMPI_Context context, const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r), b, n, t, to,
        tag, c, r)
COUNTED(Irecv, MPI_IRECV_T,
        (QMPI_Context context, void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r), b, n, t, from,
        tag, c, r)
COUNTED(Wait, MPI_WAIT_T, (QMPI_Context context, MPI_Request *r, MPI_Status *s), r, s)
COUNTED(Waitall, MPI_WAITALL_T, (QMPI_Context context, int n, MPI_Request r[], MPI_Status s[]), n, r, s)
COUNTED(Barrier, MPI_BARRIER_T, (QMPI_Context context, MPI_Comm c), c)
COUNTED(Bcast, MPI_BCAST_T, (QMPI_Context context, void *b, int n, MPI_Datatype t, int root, MPI_Comm c), b, n, t, root, c)
COUNTED(Reduce, MPI_REDUCE_T,
        (QMPI_Context context, const void *b, void *to, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c), b, to, n, t, op,
        root, c)
COUNTED(Allreduce, MPI_ALLREDUCE_T,
        (QMPI_Context context, const void *b, void *to, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), b, to, n, t, op, c)

// Adds the counts of all ranks, with MPI_Reduce below this tool.
static int total(long *sums)
{
    NEXT(Reduce, MPI_REDUCE_T);
    return next(below, counts, sums, MPI_LAST_FUNC, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
}

static int world_rank(int *rank)
{
    NEXT(Comm_rank, MPI_COMM_RANK_T);
    return next(below, MPI_COMM_WORLD, rank);
}

static int count_Finalize(QMPI_Context context)
{
    (void)context;
    long sums[MPI_LAST_FUNC] = {0};
    int rank = -1;
    world_rank(&rank);
    total(sums);
    for (int at = 0; rank == 0 && at < MPI_LAST_FUNC; at++)
        if (sums[at] > 0)
            printf("%-15s %8ld\n", names[at], sums[at]);
    NEXT(Finalize, MPI_FINALIZE_T);
    return next(below);
}

static void begin(int id)
{
    tool_id = id;
    struct {
        int number;
        const char *name;
        void (*function)(void);
    } all[] = {
        {MPI_SEND_T, "MPI_Send", (void (*)(void))count_Send},
        {MPI_RECV_T, "MPI_Recv", (void (*)(void))count_Recv},
        {MPI_ISEND_T, "MPI_Isend", (void (*)(void))count_Isend},
        {MPI_IRECV_T, "MPI_Irecv", (void (*)(void))count_Irecv},
        {MPI_WAIT_T, "MPI_Wait", (void (*)(void))count_Wait},
        {MPI_WAITALL_T, "MPI_Waitall", (void (*)(void))count_Waitall},
        {MPI_BARRIER_T, "MPI_Barrier", (void (*)(void))count_Barrier},
        {MPI_BCAST_T, "MPI_Bcast", (void (*)(void))count_Bcast},
        {MPI_REDUCE_T, "MPI_Reduce", (void (*)(void))count_Reduce},
        {MPI_ALLREDUCE_T, "MPI_Allreduce", (void (*)(void))count_Allreduce},
        {MPI_FINALIZE_T, "MPI_Finalize", (void (*)(void))count_Finalize},
    };
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        names[all[at].number] = all[at].name;
        QMPI_Register_tool_function(id, all[at].number, all[at].function);
    }
}

__attribute__((constructor)) static void announce(void)
{
    QMPI_Register_tool_name("count", begin);
}
