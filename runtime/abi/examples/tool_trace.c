// SPDX-License-Identifier: MIT OR Apache-2.0
// A QMPI tool that writes the times of sends, receives and waits of each rank as JSON for trace viewers (Perfetto: ui.perfetto.dev, or
// chrome://tracing), with one track for each rank.
//
//   rmpicc -shared -fPIC -o libtrace.so tool_trace.c
//   RMPI_TOOLS=$PWD/libtrace.so TRACE_FILE=trace.json rmpiexec -n 4 ./program
//
// Each rank stores its events in memory; rank 0 collects them at the end. The clock of a host is common to all its ranks.
#include <pthread.h>
#include <qmpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event {
    const char *name;
    double begin, end;
    int peer, tag; // -1: none, or any
    long long bytes;
};

static int tool_id;
static struct event *events;
static int count, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NEXT(name, NUMBER)                                                                                                      \
    QMPI_##name##_t *next;                                                                                                      \
    QMPI_Context below;                                                                                                         \
    int code = QMPI_Get_function(tool_id, NUMBER, (void (**)(void))&next, &below);                                              \
    if (code != MPI_SUCCESS)                                                                                                    \
        return code

static double now(void)
{
    QMPI_Wtime_t *next;
    QMPI_Context below;
    if (QMPI_Get_function(tool_id, MPI_WTIME_T, (void (**)(void))&next, &below) != MPI_SUCCESS)
        return 0;
    return next(below);
}

static long long bytes_of(int n, MPI_Datatype type)
{
    int size = 0;
    NEXT(Type_size, MPI_TYPE_SIZE_T);
    next(below, type, &size);
    return (long long)n * size;
}

static void note(struct event event)
{
    event.end = now();
    pthread_mutex_lock(&lock);
    if (count == room) {
        int more = room ? 2 * room : 1024;
        struct event *grown = realloc(events, more * sizeof *events);
        if (grown) {
            events = grown;
            room = more;
        }
    }
    if (count < room)
        events[count++] = event;
    pthread_mutex_unlock(&lock);
}

// A function that records an event.
#define TRACED(name, NUMBER, parameters, peer, tag, bytes, ...)                                                                 \
    static int trace_##name parameters                                                                                          \
    {                                                                                                                           \
        (void)context;                                                                                                          \
        struct event event = {"MPI_" #name, now(), 0, peer, tag, bytes};                                                        \
        NEXT(name, NUMBER);                                                                                                     \
        code = next(below, __VA_ARGS__);                                                                                        \
        note(event);                                                                                                            \
        return code;                                                                                                            \
    }

TRACED(Send, MPI_SEND_T, (QMPI_Context context, const void *b, int n, MPI_Datatype t, int to, int g, MPI_Comm c), to, g,
       bytes_of(n, t), b, n, t, to, g, c)
TRACED(Recv, MPI_RECV_T, (QMPI_Context context, void *b, int n, MPI_Datatype t, int from, int g, MPI_Comm c, MPI_Status *s),
       from, g, bytes_of(n, t), b, n, t, from, g, c, s)
TRACED(Isend, MPI_ISEND_T,
       (QMPI_Context context, const void *b, int n, MPI_Datatype t, int to, int g, MPI_Comm c, MPI_Request *r), to, g,
       bytes_of(n, t), b, n, t, to, g, c, r)
TRACED(Irecv, MPI_IRECV_T,
       (QMPI_Context context, void *b, int n, MPI_Datatype t, int from, int g, MPI_Comm c, MPI_Request *r), from, g,
       bytes_of(n, t), b, n, t, from, g, c, r)
TRACED(Wait, MPI_WAIT_T, (QMPI_Context context, MPI_Request *r, MPI_Status *s), -1, -1, 0, r, s)
TRACED(Waitall, MPI_WAITALL_T, (QMPI_Context context, int n, MPI_Request r[], MPI_Status s[]), -1, -1, 0, n, r, s)
TRACED(Barrier, MPI_BARRIER_T, (QMPI_Context context, MPI_Comm c), -1, -1, 0, c)
TRACED(Allreduce, MPI_ALLREDUCE_T,
       (QMPI_Context context, const void *b, void *to, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), -1, -1, bytes_of(n, t), b,
       to, n, t, op, c)

static int place(int *rank, int *size)
{
    {
        NEXT(Comm_rank, MPI_COMM_RANK_T);
        next(below, MPI_COMM_WORLD, rank);
    }
    NEXT(Comm_size, MPI_COMM_SIZE_T);
    return next(below, MPI_COMM_WORLD, size);
}

static int gather(char *text, int length, int *lengths, char *all, int *starts)
{
    if (!all) {
        NEXT(Gather, MPI_GATHER_T);
        return next(below, &length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    NEXT(Gatherv, MPI_GATHERV_T);
    return next(below, text, length, MPI_CHAR, all, lengths, starts, MPI_CHAR, 0, MPI_COMM_WORLD);
}

// The events of this rank, each followed by a comma.
static char *in_words(int rank)
{
    char *text = malloc((size_t)count * 256 + 1), *end = text;
    for (int at = 0; text && at < count; at++) {
        struct event *it = &events[at];
        end += snprintf(end, 256,
                        "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                        "\"args\":{\"peer\":%d,\"tag\":%d,\"bytes\":%lld}},\n",
                        it->name, rank, it->begin * 1e6, (it->end - it->begin) * 1e6, it->peer, it->tag, it->bytes);
    }
    if (text)
        *end = 0;
    return text;
}

static void write_all(const char *text, long long length)
{
    const char *name = getenv("TRACE_FILE");
    FILE *file = fopen(name ? name : "trace.json", "w");
    if (!file || fprintf(file, "{\"traceEvents\":[\n") < 0 || fwrite(text, 1, length, file) != (size_t)length
        || fprintf(file, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"MPI_COMM_WORLD\"}}]}\n") < 0)
        perror(name ? name : "trace.json");
    if (file && fclose(file))
        perror(name ? name : "trace.json");
}

static int trace_Finalize(QMPI_Context context)
{
    (void)context;
    int rank = 0, size = 1;
    place(&rank, &size);
    char *text = in_words(rank);
    int length = text ? (int)strlen(text) : 0;
    int *lengths = calloc(size, sizeof *lengths), *starts = calloc(size, sizeof *starts);
    gather(NULL, length, lengths, NULL, NULL);
    long long sum = 0;
    for (int at = 0; at < size; at++) {
        starts[at] = (int)sum;
        sum += lengths[at];
    }
    char *all = malloc(sum + 1);
    gather(text, length, lengths, all, starts);
    if (rank == 0)
        write_all(all, sum);
    free(all);
    free(starts);
    free(lengths);
    free(text);
    NEXT(Finalize, MPI_FINALIZE_T);
    return next(below);
}

static void begin(int id)
{
    tool_id = id;
    QMPI_Register_tool_function(id, MPI_SEND_T, (void (*)(void))trace_Send);
    QMPI_Register_tool_function(id, MPI_RECV_T, (void (*)(void))trace_Recv);
    QMPI_Register_tool_function(id, MPI_ISEND_T, (void (*)(void))trace_Isend);
    QMPI_Register_tool_function(id, MPI_IRECV_T, (void (*)(void))trace_Irecv);
    QMPI_Register_tool_function(id, MPI_WAIT_T, (void (*)(void))trace_Wait);
    QMPI_Register_tool_function(id, MPI_WAITALL_T, (void (*)(void))trace_Waitall);
    QMPI_Register_tool_function(id, MPI_BARRIER_T, (void (*)(void))trace_Barrier);
    QMPI_Register_tool_function(id, MPI_ALLREDUCE_T, (void (*)(void))trace_Allreduce);
    QMPI_Register_tool_function(id, MPI_FINALIZE_T, (void (*)(void))trace_Finalize);
}

__attribute__((constructor)) static void announce(void)
{
    QMPI_Register_tool_name("trace", begin);
}
