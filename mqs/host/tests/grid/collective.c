// SPDX-License-Identifier: MIT OR Apache-2.0
// One call of one collective by all ranks, of which one may make a mistake, and then a barrier.
//
// collective NAME MISTAKE RANK ROOT COUNT FORM
//   NAME     a row of the table below
//   MISTAKE  right: none; late: the rank comes a second later, and there are a few calls; root: the rank names the next root;
//            two: it names itself as the root; short, long: it names half or twice as many items; missing: it does not call;
//            other: it calls the collective two rows further down
//   RANK     who makes it
//   ROOT     the root that the others name
//   COUNT    integers for each rank
//   FORM     blocking, or nonblocking: the nonblocking call and MPI_Wait
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16 };

struct args {
    int *in, *out, n, root, rank, size, *counts, *offsets, *bytes;
    MPI_Datatype *types;
    int now;
    MPI_Request request;
};

#define WORLD MPI_COMM_WORLD

static void barrier(struct args *a)
{
    if (a->now)
        MPI_Barrier(WORLD);
    else
        MPI_Ibarrier(WORLD, &a->request);
}

static void twin(struct args *a)
{
    static MPI_Comm comm;
    if (a->now)
        MPI_Comm_dup(WORLD, &comm);
    else
        MPI_Comm_idup(WORLD, &comm, &a->request);
}

// There is no nonblocking form.
static void split(struct args *a)
{
    MPI_Comm part;
    MPI_Comm_split(WORLD, a->n % 2, 0, &part);
}


#define ALIKE(fn, Name, name, ...)                              \
    static void fn(struct args *a)                              \
    {                                                           \
        if (a->now)                                             \
            MPI_##Name(__VA_ARGS__, WORLD);                     \
        else                                                    \
            MPI_I##name(__VA_ARGS__, WORLD, &a->request);       \
    }

ALIKE(bcast, Bcast, bcast, a->in, a->n, MPI_INT, a->root)
ALIKE(gather, Gather, gather, a->in, a->n, MPI_INT, a->out, a->n, MPI_INT, a->root)
ALIKE(gatherv, Gatherv, gatherv, a->in, a->n, MPI_INT, a->out, a->counts, a->offsets, MPI_INT, a->root)
ALIKE(scatter, Scatter, scatter, a->in, a->n, MPI_INT, a->out, a->n, MPI_INT, a->root)
ALIKE(scatterv, Scatterv, scatterv, a->in, a->counts, a->offsets, MPI_INT, a->out, a->n, MPI_INT, a->root)
ALIKE(allgather, Allgather, allgather, a->in, a->n, MPI_INT, a->out, a->n, MPI_INT)
ALIKE(allgatherv, Allgatherv, allgatherv, a->in, a->n, MPI_INT, a->out, a->counts, a->offsets, MPI_INT)
ALIKE(alltoall, Alltoall, alltoall, a->in, a->n, MPI_INT, a->out, a->n, MPI_INT)
ALIKE(alltoallv, Alltoallv, alltoallv, a->in, a->counts, a->offsets, MPI_INT, a->out, a->counts, a->offsets, MPI_INT)
ALIKE(alltoallw, Alltoallw, alltoallw, a->in, a->counts, a->bytes, a->types, a->out, a->counts, a->bytes, a->types)
ALIKE(reduce, Reduce, reduce, a->in, a->out, a->n, MPI_INT, MPI_SUM, a->root)
ALIKE(allreduce, Allreduce, allreduce, a->in, a->out, a->n, MPI_INT, MPI_SUM)
ALIKE(reduce_scatter, Reduce_scatter, reduce_scatter, a->in, a->out, a->counts, MPI_INT, MPI_SUM)
ALIKE(reduce_scatter_block, Reduce_scatter_block, reduce_scatter_block, a->in, a->out, a->n, MPI_INT, MPI_SUM)
ALIKE(scan, Scan, scan, a->in, a->out, a->n, MPI_INT, MPI_SUM)
ALIKE(exscan, Exscan, exscan, a->in, a->out, a->n, MPI_INT, MPI_SUM)

static const struct {
    const char *name;
    void (*call)(struct args *);
} calls[] = {
    {"barrier", barrier}, {"bcast", bcast}, {"gather", gather}, {"gatherv", gatherv}, {"scatter", scatter},
    {"scatterv", scatterv}, {"allgather", allgather}, {"allgatherv", allgatherv}, {"alltoall", alltoall},
    {"alltoallv", alltoallv}, {"alltoallw", alltoallw}, {"reduce", reduce}, {"allreduce", allreduce},
    {"reduce_scatter", reduce_scatter}, {"reduce_scatter_block", reduce_scatter_block}, {"scan", scan},
    {"exscan", exscan}, {"dup", twin}, {"split", split},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void call(int which, struct args *a)
{
    a->request = MPI_REQUEST_NULL;
    calls[which].call(a);
    MPI_Wait(&a->request, MPI_STATUS_IGNORE);
}

static void fill(struct args *a)
{
    for (int i = 0; i < a->size; i++) {
        a->counts[i] = a->n;
        a->offsets[i] = a->n * i;
        a->bytes[i] = a->n * i * (int)sizeof(int);
        a->types[i] = MPI_INT;
    }
}

int main(int argc, char **argv)
{
    struct args a;
    int counts[MOST], offsets[MOST], bytes[MOST], which = 0, wrong;
    MPI_Datatype types[MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &a.rank);
    MPI_Comm_size(WORLD, &a.size);
    if (argc != 7 || a.size > MOST)
        return 9;
    while (which < CALLS && strcmp(calls[which].name, argv[1]))
        which++;
    if (which == CALLS)
        return 9;
    const char *mistake = argv[2];
    wrong = a.rank == atoi(argv[3]);
    a.root = atoi(argv[4]);
    a.n = atoi(argv[5]);
    a.now = !strcmp(argv[6], "blocking");
    a.counts = counts, a.offsets = offsets, a.bytes = bytes, a.types = types;
    a.in = calloc((size_t)a.n * 2 * MOST, sizeof(int));
    a.out = calloc((size_t)a.n * 2 * MOST, sizeof(int));
    if (!a.in || !a.out)
        return 9;
    if (wrong && !strcmp(mistake, "root"))
        a.root = (a.root + 1) % a.size;
    if (wrong && !strcmp(mistake, "two"))
        a.root = a.rank;
    if (wrong && !strcmp(mistake, "short"))
        a.n /= 2;
    if (wrong && !strcmp(mistake, "long"))
        a.n *= 2;
    fill(&a);
    if (wrong && !strcmp(mistake, "late"))
        sleep(1);
    if (wrong && !strcmp(mistake, "other"))
        call((which + 2) % CALLS, &a);
    else if (!wrong || strcmp(mistake, "missing"))
        call(which, &a);
    for (int step = 0; !strcmp(mistake, "late") && step < 8; step++) {
        if (a.rank == step % a.size)
            usleep(150000);
        call(which, &a);
    }
    MPI_Barrier(WORLD);
    MPI_Finalize();
    return 0;
}
