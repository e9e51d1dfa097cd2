// SPDX-License-Identifier: MIT OR Apache-2.0
/* Halo exchange on a periodic 4-D grid of ranks: in each iteration every rank sends one face to each of its eight
 * neighbours and receives one from each. The size is that of a face. If the grid is only one rank wide along an axis, a
 * rank sends those faces to itself.
 *
 * The exchange uses persistent requests of MPI. A build with BENCH_QMP uses QMP's channels instead, unless --mpi is
 * given. */
#include "report.h"
#ifdef BENCH_QMP
#include <qmp.h>
#endif

enum { AXES = 4, FACES = 2 * AXES };

static int over_mpi;
#ifdef BENCH_QMP
static const struct flag flags[] = {
    {"--mpi", &over_mpi, "persistent requests of MPI instead of QMP's channels"},
    {NULL, NULL, NULL},
};
#else
static const struct flag flags[] = {
    {"--mpi", &over_mpi, "persistent requests of MPI (which is all that this build does)"},
    {NULL, NULL, NULL},
};
#endif

struct halo {
    int rank, neighbours[FACES]; /* for each axis: below, above */
    int size;
    unsigned char *out[FACES], *in[FACES];
    struct buffers faces;
    MPI_Request requests[2 * FACES];
#ifdef BENCH_QMP
    QMP_mem_t *memory;
    QMP_msgmem_t msgmem[2 * FACES];
    QMP_msghandle_t all;
#endif
};

/* The receiver's index of a face: a face that is sent upwards is received from below. */
static int opposite(int face) { return face ^ 1; }

static void find_neighbours(struct halo *halo) {
    int ranks, dims[AXES] = {0}, at[AXES], stride = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &halo->rank);
    MPI_Dims_create(ranks, AXES, dims);
    for (int axis = 0, rest = halo->rank; axis < AXES; rest /= dims[axis++])
        at[axis] = rest % dims[axis];
    for (int axis = 0; axis < AXES; stride *= dims[axis++])
        for (int up = 0; up < 2; up++) {
            int there = (at[axis] + (up ? 1 : dims[axis] - 1)) % dims[axis];
            halo->neighbours[2 * axis + up] = halo->rank + (there - at[axis]) * stride;
        }
}

static void open_mpi(struct halo *halo, const struct options *options) {
    halo->faces = new_buffers(options, (size_t)halo->size, 2 * FACES);
    for (int face = 0; face < FACES; face++) {
        halo->out[face] = buffer(&halo->faces, face);
        halo->in[face] = buffer(&halo->faces, FACES + face);
        MPI_Recv_init(halo->in[face], halo->size, MPI_BYTE, halo->neighbours[face], opposite(face), MPI_COMM_WORLD,
                      &halo->requests[face]);
        MPI_Send_init(halo->out[face], halo->size, MPI_BYTE, halo->neighbours[face], face, MPI_COMM_WORLD,
                      &halo->requests[FACES + face]);
    }
}

static void exchange_mpi(void *state, long count) {
    struct halo *halo = state;
    for (long i = 0; i < count; i++) {
        MPI_Startall(2 * FACES, halo->requests);
        MPI_Waitall(2 * FACES, halo->requests, MPI_STATUSES_IGNORE);
    }
}

static void close_mpi(struct halo *halo) {
    for (int i = 0; i < 2 * FACES; i++)
        MPI_Request_free(&halo->requests[i]);
    free_buffers(&halo->faces);
}

#ifdef BENCH_QMP
static void must(int good, const char *what) {
    if (!good)
        die(FAILED, what);
}

/* QMP matches the channels between two ranks in the order of their starts. If below and above are the same rank, the
 * receive from below has to match that rank's send upwards. */
static void open_qmp(struct halo *halo) {
    static char *no_arguments[] = {NULL};
    char **arguments = no_arguments;
    int count = 0;
    QMP_thread_level_t provided;
    must(QMP_is_initialized() || QMP_init_msg_passing(&count, &arguments, QMP_THREAD_SINGLE, &provided) == QMP_SUCCESS,
         "QMP_init_msg_passing failed");
    size_t face_bytes = ((size_t)halo->size + 63) / 64 * 64;
    QMP_msghandle_t handles[2 * FACES];
    halo->memory = QMP_allocate_memory(2 * FACES * face_bytes + 64);
    must(halo->memory != NULL, "QMP_allocate_memory failed");
    unsigned char *base = QMP_get_memory_pointer(halo->memory);
    memset(base, 1, 2 * FACES * face_bytes); /* written here, so that no page fault is timed */
    for (int face = 0; face < FACES; face++) {
        halo->out[face] = base + (size_t)face * face_bytes;
        halo->in[face] = base + (size_t)(FACES + face) * face_bytes;
        halo->msgmem[face] = QMP_declare_msgmem(halo->in[face], (size_t)halo->size);
        halo->msgmem[FACES + face] = QMP_declare_msgmem(halo->out[face], (size_t)halo->size);
    }
    for (int face = 0; face < FACES; face++) {
        int from = opposite(face);
        handles[face] = QMP_declare_receive_from(halo->msgmem[from], halo->neighbours[from], 0);
        handles[FACES + face] = QMP_declare_send_to(halo->msgmem[FACES + face], halo->neighbours[face], 0);
        must(handles[face] != NULL && handles[FACES + face] != NULL, "a declaration of QMP failed");
    }
    halo->all = QMP_declare_multiple(handles, 2 * FACES);
    must(halo->all != NULL, "QMP_declare_multiple failed");
}

static void exchange_qmp(void *state, long count) {
    struct halo *halo = state;
    for (long i = 0; i < count; i++) {
        must(QMP_start(halo->all) == QMP_SUCCESS, "QMP_start failed");
        must(QMP_wait(halo->all) == QMP_SUCCESS, "QMP_wait failed");
    }
}

static void close_qmp(struct halo *halo) {
    QMP_free_msghandle(halo->all);
    for (int i = 0; i < 2 * FACES; i++)
        QMP_free_msgmem(halo->msgmem[i]);
    QMP_free_memory(halo->memory);
}
#else
static void open_qmp(struct halo *halo) { (void)halo; }
static void exchange_qmp(void *state, long count) { (void)state, (void)count; }
static void close_qmp(struct halo *halo) { (void)halo; }
#endif

static void validate(struct halo *halo, run_fn *run) {
    for (unsigned round = 0; round < 3; round++) {
        for (int face = 0; face < FACES; face++)
            fill(halo->out[face], (size_t)halo->size, (unsigned)(halo->rank * FACES + face) + round);
        run(halo, 1);
        for (int face = 0; face < FACES; face++)
            check(halo->in[face], (size_t)halo->size,
                  (unsigned)(halo->neighbours[face] * FACES + opposite(face)) + round);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct halo halo = {.size = (int)size};
    run_fn *run = over_mpi ? exchange_mpi : exchange_qmp;
    find_neighbours(&halo);
    if (over_mpi)
        open_mpi(&halo, options);
    else
        open_qmp(&halo);
    if (options->validate)
        validate(&halo, run);
    struct timing timing = measure(options, run, &halo, CLOCK_OF_SLOWEST);
    if (over_mpi)
        close_mpi(&halo);
    else
        close_qmp(&halo);
    *per_iteration = 1;
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "halo",
        "halo exchange on a 4-D grid, the size is one face's, the slowest rank's time",
        flags,
        {{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10}, 5, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
#ifndef BENCH_QMP
    over_mpi = 1;
#endif
    return bench_main(argc, argv, &program, (struct column){"Halo (us)", "us", TIME_US, 1}, 1, one_size);
}
