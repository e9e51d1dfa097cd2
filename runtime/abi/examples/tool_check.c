// SPDX-License-Identifier: MIT OR Apache-2.0
// A QMPI tool that finds three errors with nonblocking messages which an MPI cannot detect, since they concern memory:
//
//   - a receive into memory that another operation in progress uses (MPI 5.0 section 3.7.2);
//   - a send whose buffer is changed before the send is complete;
//   - requests that were never completed when MPI is finalized.
//
//   rmpicc -shared -fPIC -o libcheck.so tool_check.c
//   RMPI_TOOLS=$PWD/libcheck.so rmpiexec -n 4 ./program
//
// It tracks MPI_Isend and MPI_Irecv of contiguous data, and MPI_Wait, MPI_Waitall and MPI_Test.
#include <pthread.h>
#include <qmpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4096 };

struct pending {
    MPI_Request request;
    const char *name;
    const unsigned char *buffer;
    size_t bytes;
    uint64_t sum;
    int is_send;
};

static int tool_id, used, lost, rank = -1;
static struct pending pending[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NEXT(name, NUMBER)                                                                                                      \
    QMPI_##name##_t *next;                                                                                                      \
    QMPI_Context below;                                                                                                         \
    int code = QMPI_Get_function(tool_id, NUMBER, (void (**)(void))&next, &below);                                              \
    if (code != MPI_SUCCESS)                                                                                                    \
        return code

static int my_rank(void)
{
    if (rank < 0) {
        NEXT(Comm_rank, MPI_COMM_RANK_T);
        next(below, MPI_COMM_WORLD, &rank);
    }
    return rank;
}

// Bytes of the data, or 0 if they have gaps.
static size_t bytes_of(int count, MPI_Datatype type)
{
    int size = 0;
    MPI_Aint low = 0, extent = 0;
    {
        NEXT(Type_size, MPI_TYPE_SIZE_T);
        next(below, type, &size);
    }
    NEXT(Type_get_extent, MPI_TYPE_GET_EXTENT_T);
    next(below, type, &low, &extent);
    return low == 0 && extent == size ? (size_t)count * size : 0;
}

static uint64_t sum_of(const unsigned char *bytes, size_t length)
{
    uint64_t sum = 1469598103934665603u;
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ bytes[at]) * 1099511628211u;
    return sum;
}

static void begins(struct pending it)
{
    if (it.bytes == 0)
        return;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < used; at++) {
        struct pending *other = &pending[at];
        int apart = it.buffer + it.bytes <= other->buffer || other->buffer + other->bytes <= it.buffer;
        if (!apart && !(it.is_send && other->is_send))
            fprintf(stderr, "check: rank %d: %s of %zu bytes at %p uses memory of %s of %zu bytes at %p, which is under way\n",
                    my_rank(), it.name, it.bytes, (void *)it.buffer, other->name, other->bytes, (void *)other->buffer);
    }
    if (it.is_send)
        it.sum = sum_of(it.buffer, it.bytes);
    if (used < MOST)
        pending[used++] = it;
    else
        lost++;
    pthread_mutex_unlock(&lock);
}

// Checks a request before its completion: the data of a send must be unchanged. Requests of operations that were complete at once may
// be equal; then the first started one counts.
static void ends(MPI_Request request)
{
    pthread_mutex_lock(&lock);
    for (int at = 0; at < used; at++) {
        struct pending *it = &pending[at];
        if (it->request != request)
            continue;
        if (it->is_send && sum_of(it->buffer, it->bytes) != it->sum)
            fprintf(stderr, "check: rank %d: the %zu bytes at %p were changed while %s of them was under way\n", my_rank(),
                    it->bytes, (void *)it->buffer, it->name);
        used--;
        memmove(it, it + 1, (used - at) * sizeof *it);
        break;
    }
    pthread_mutex_unlock(&lock);
}

static int check_Isend(QMPI_Context context, const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
    (void)context;
    NEXT(Isend, MPI_ISEND_T);
    code = next(below, b, n, t, to, tag, c, r);
    if (code == MPI_SUCCESS)
        begins((struct pending){*r, "MPI_Isend", b, bytes_of(n, t), 0, 1});
    return code;
}

static int check_Irecv(QMPI_Context context, void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
    (void)context;
    NEXT(Irecv, MPI_IRECV_T);
    code = next(below, b, n, t, from, tag, c, r);
    if (code == MPI_SUCCESS)
        begins((struct pending){*r, "MPI_Irecv", b, bytes_of(n, t), 0, 0});
    return code;
}

static int check_Wait(QMPI_Context context, MPI_Request *r, MPI_Status *s)
{
    (void)context;
    ends(*r);
    NEXT(Wait, MPI_WAIT_T);
    return next(below, r, s);
}

static int check_Waitall(QMPI_Context context, int n, MPI_Request r[], MPI_Status s[])
{
    (void)context;
    for (int at = 0; at < n; at++)
        ends(r[at]);
    NEXT(Waitall, MPI_WAITALL_T);
    return next(below, n, r, s);
}

static int check_Test(QMPI_Context context, MPI_Request *r, int *flag, MPI_Status *s)
{
    (void)context;
    MPI_Request before = *r;
    NEXT(Test, MPI_TEST_T);
    code = next(below, r, flag, s);
    if (code == MPI_SUCCESS && *flag)
        ends(before);
    return code;
}

static int check_Finalize(QMPI_Context context)
{
    (void)context;
    for (int at = 0; at < used; at++)
        fprintf(stderr, "check: rank %d: %s of %zu bytes at %p was never completed\n", my_rank(), pending[at].name,
                pending[at].bytes, (void *)pending[at].buffer);
    if (lost)
        fprintf(stderr, "check: rank %d: more than %d operations were under way; %d were not looked at\n", my_rank(), MOST, lost);
    NEXT(Finalize, MPI_FINALIZE_T);
    return next(below);
}

static void begin(int id)
{
    tool_id = id;
    QMPI_Register_tool_function(id, MPI_ISEND_T, (void (*)(void))check_Isend);
    QMPI_Register_tool_function(id, MPI_IRECV_T, (void (*)(void))check_Irecv);
    QMPI_Register_tool_function(id, MPI_WAIT_T, (void (*)(void))check_Wait);
    QMPI_Register_tool_function(id, MPI_WAITALL_T, (void (*)(void))check_Waitall);
    QMPI_Register_tool_function(id, MPI_TEST_T, (void (*)(void))check_Test);
    QMPI_Register_tool_function(id, MPI_FINALIZE_T, (void (*)(void))check_Finalize);
}

__attribute__((constructor)) static void announce(void)
{
    QMPI_Register_tool_name("check", begin);
}
