// SPDX-License-Identifier: MIT OR Apache-2.0
// Stacked tools: each call of the program passes through all tools exactly once, whatever the library calls internally
// and whichever path the call would take.
#include "check.h"
#include <qmpi.h>
#include <pthread.h>

enum { MOST = 8 };
static int instances;
static int seen[MOST + 1][MPI_LAST_FUNC];

// A function of the tool: counts, and calls the next.
#define COUNTS(name, NUMBER, params, ...)                                                      \
    static int counted_##name params                                                           \
    {                                                                                          \
        QMPI_##name##_t *next;                                                                 \
        QMPI_Context below;                                                                    \
        int id = -1;                                                                           \
        QMPIX_Context_get_tool_id(context, &id);                                               \
        __atomic_fetch_add(&seen[id][NUMBER], 1, __ATOMIC_RELAXED);                            \
        int code = QMPI_Get_function(id, NUMBER, (void (**)(void))&next, &below);              \
        return code ? code : next(below, __VA_ARGS__);                                         \
    }

COUNTS(Init_thread, MPI_INIT_THREAD_T, (QMPI_Context context, int *argc, char ***argv, int required, int *provided), argc,
       argv, required, provided)
COUNTS(Send, MPI_SEND_T,
       (QMPI_Context context, const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm), buffer, count,
       type, to, tag, comm)
COUNTS(Isend, MPI_ISEND_T,
       (QMPI_Context context, const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
        MPI_Request *request),
       buffer, count, type, to, tag, comm, request)
COUNTS(Irecv, MPI_IRECV_T,
       (QMPI_Context context, void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
        MPI_Request *request),
       buffer, count, type, from, tag, comm, request)
COUNTS(Recv, MPI_RECV_T,
       (QMPI_Context context, void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
        MPI_Status *status),
       buffer, count, type, from, tag, comm, status)
COUNTS(Wait, MPI_WAIT_T, (QMPI_Context context, MPI_Request *request, MPI_Status *status), request, status)
COUNTS(Waitall, MPI_WAITALL_T, (QMPI_Context context, int count, MPI_Request requests[], MPI_Status statuses[]), count,
       requests, statuses)
COUNTS(Comm_rank, MPI_COMM_RANK_T, (QMPI_Context context, MPI_Comm comm, int *out), comm, out)
COUNTS(Comm_dup, MPI_COMM_DUP_T, (QMPI_Context context, MPI_Comm comm, MPI_Comm *made), comm, made)
COUNTS(Allreduce, MPI_ALLREDUCE_T,
       (QMPI_Context context, const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), from, to,
       count, type, op, comm)

static void begin(int id)
{
    instances++;
    QMPI_Register_tool_function(id, MPI_INIT_THREAD_T, (void (*)(void))counted_Init_thread);
    QMPI_Register_tool_function(id, MPI_SEND_T, (void (*)(void))counted_Send);
    QMPI_Register_tool_function(id, MPI_ISEND_T, (void (*)(void))counted_Isend);
    QMPI_Register_tool_function(id, MPI_IRECV_T, (void (*)(void))counted_Irecv);
    QMPI_Register_tool_function(id, MPI_RECV_T, (void (*)(void))counted_Recv);
    QMPI_Register_tool_function(id, MPI_WAIT_T, (void (*)(void))counted_Wait);
    QMPI_Register_tool_function(id, MPI_WAITALL_T, (void (*)(void))counted_Waitall);
    QMPI_Register_tool_function(id, MPI_COMM_RANK_T, (void (*)(void))counted_Comm_rank);
    QMPI_Register_tool_function(id, MPI_COMM_DUP_T, (void (*)(void))counted_Comm_dup);
    QMPI_Register_tool_function(id, MPI_ALLREDUCE_T, (void (*)(void))counted_Allreduce);
}

__attribute__((constructor)) static void announce(void)
{
    QMPI_Register_tool_name("count", begin);
}

static void each_saw(int function, int calls)
{
    for (int id = 1; id <= instances; id++)
        EQUAL(seen[id][function], calls);
    for (int id = 1; id <= instances; id++)
        seen[id][function] = 0;
}

// Messages of eight bytes, which would take the fast path, in MPI_COMM_WORLD and in another communicator.
static void qmpi_014_every_call_passes_all_tools_once(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Comm own;
    each_saw(MPI_COMM_DUP_T, 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    each_saw(MPI_COMM_DUP_T, 1);
    for (int round = 0; round < 100; round++) {
        MPI_Comm comm = round % 2 ? own : MPI_COMM_WORLD;
        double out = 100 * rank + round, in = -1;
        MPI_Request requests[2];
        MPI_Irecv(&in, 1, MPI_DOUBLE, left, 3, comm, &requests[0]);
        MPI_Isend(&out, 1, MPI_DOUBLE, right, 3, comm, &requests[1]);
        if (round % 4 < 2)
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        else {
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        }
        EQUAL((int)in, 100 * left + round);
    }
    each_saw(MPI_IRECV_T, 100);
    each_saw(MPI_ISEND_T, 100);
    each_saw(MPI_WAITALL_T, 50);
    each_saw(MPI_WAIT_T, 100);
    MPI_Comm_free(&own);
}

static void what_a_collective_does_inside_passes_none(void)
{
    int sum = 0;
    each_saw(MPI_SEND_T, 0);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, size * (size - 1) / 2);
    each_saw(MPI_ALLREDUCE_T, 1);
    each_saw(MPI_SEND_T, 0);
    each_saw(MPI_RECV_T, 0);
}

// Calls by the PMPI names, which PMPI tools make, pass the tools, too.
static void qmpi_017_calls_by_the_shifted_name_pass_them_too(void)
{
    int mine = -1;
    each_saw(MPI_COMM_RANK_T, 0);
    PMPI_Comm_rank(MPI_COMM_WORLD, &mine);
    EQUAL(mine, rank);
    each_saw(MPI_COMM_RANK_T, 1);
}

static void *thousand_calls(void *nothing)
{
    for (int i = 0; i < 1000; i++) {
        int mine;
        MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    }
    return nothing;
}

static void threads_pass_them_without_losing_a_call(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, thousand_calls, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    each_saw(MPI_COMM_RANK_T, 4000);
}

int main(int argc, char **argv)
{
    int with_threads = argc > 1;
    if (with_threads) {
        int provided;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    } else
        start(&argc, &argv);
    EQUAL(instances, 2);
    each_saw(MPI_INIT_THREAD_T, with_threads);
    each_saw(MPI_COMM_RANK_T, 1);
    RUN(qmpi_014_every_call_passes_all_tools_once);
    RUN(what_a_collective_does_inside_passes_none);
    RUN(qmpi_017_calls_by_the_shifted_name_pass_them_too);
    if (with_threads)
        RUN(threads_pass_them_without_losing_a_call);
    return finish();
}
