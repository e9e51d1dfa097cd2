// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP on simulated hosts: the program decides which nodes share a host. `turns N`: the nodes are assigned to N hosts cyclically;
// `blocks N`: consecutive nodes share a host; `uneven N`: the same, but the first host has twice as many. `plain`: linear order,
// set on the command line.
#include "qmp_check.h"

enum { AXES = 3 };
static const char *how = "turns";
static int hosts = 1;

static int host_of(int node)
{
    if (strcmp(how, "turns") == 0 || strcmp(how, "plain") == 0)
        return node % hosts;
    if (strcmp(how, "blocks") == 0)
        return node * hosts / size;
    int host = node * (hosts + 1) / size;
    return host > 0 ? host - 1 : 0;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *new)
{
    (void)info;
    EQUAL(type, MPI_COMM_TYPE_SHARED);
    return MPI_Comm_split(comm, host_of(rank), key, new);
}

// Linear index of coordinates in a grid.
static int in_turn(const int dims[], const int at[])
{
    int number = 0;
    for (int a = AXES - 1; a >= 0; a--)
        number = number * dims[a] + (at[a] + dims[a]) % dims[a];
    return number;
}

// Number of neighbour pairs on different hosts: in the declared order, or in linear order.
static int crossings(const int dims[], int is_plain)
{
    int count = 0;
    for (int place = 0; place < size; place++) {
        int at[AXES] = {place % dims[0], place / dims[0] % dims[1], place / dims[0] / dims[1]};
        int here = host_of(is_plain ? in_turn(dims, at) : QMP_get_node_number_from(at));
        for (int a = 0; a < AXES; a++) {
            at[a]++;
            count += host_of(is_plain ? in_turn(dims, at) : QMP_get_node_number_from(at)) != here;
            at[a]--;
        }
    }
    return count;
}

// A message to a neighbour arrives at the node whose coordinates differ by one.
static void neighbours_match_coordinates(void)
{
    for (int face = 0; face < 2 * AXES; face++) {
        int axis = face / 2, sign = face % 2 ? 1 : -1, got = -1, at[AXES];
        QMP_msgmem_t out = QMP_declare_msgmem(&rank, sizeof rank), in = QMP_declare_msgmem(&got, sizeof got);
        QMP_msghandle_t parts[2] = {QMP_declare_send_relative(out, axis, sign, 0), QMP_declare_receive_relative(in, axis, -sign, 0)};
        QMP_msghandle_t both = QMP_declare_multiple(parts, 2);
        WORKS(QMP_start(both));
        WORKS(QMP_wait(both));
        QMP_get_logical_coordinates_from2(at, rank);
        at[axis] -= sign;
        EQUAL(got, QMP_get_node_number_from(at));
        QMP_free_msghandle(both);
        QMP_free_msgmem(out);
        QMP_free_msgmem(in);
    }
}

static void check_grid(const int *dims, int must_be_less)
{
    int plain = crossings(dims, 1), found = crossings(dims, 0), seen[64] = {0}, mpi_rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    EQUAL(QMP_get_node_number(), mpi_rank);
    for (int node = 0; node < size; node++) {
        int at[AXES];
        QMP_get_logical_coordinates_from2(at, node);
        EQUAL(QMP_get_node_number_from(at), node);
        seen[in_turn(dims, at)]++;
        if (strcmp(how, "plain") == 0)
            EQUAL(in_turn(dims, at), node);
    }
    for (int place = 0; place < size; place++)
        EQUAL(seen[place], 1);
    CHECK(must_be_less ? found < plain : found <= plain, "%d crossings, in turn %d", found, plain);
    neighbours_match_coordinates();
}

static void qmp_122_a_declared_grid_keeps_neighbours_on_a_host(void)
{
    int dims[AXES] = {size / 4, 2, 2};
    WORKS(QMP_declare_logical_topology(dims, AXES));
    check_grid(dims, strcmp(how, "turns") == 0 || strcmp(how, "uneven") == 0);
}

static void qmp_122_the_grid_of_a_lattice_keeps_neighbours_on_a_host(void)
{
    int lattice[AXES] = {48, 48, 48};
    WORKS(QMP_layout_grid(lattice, AXES));
    check_grid(QMP_get_logical_dimensions(), 0);
}

static void qmpl_024_a_map_is_kept(void)
{
    int dims[AXES] = {size / 4, 2, 2}, map[AXES] = {0, 1, 2};
    WORKS(QMP_declare_logical_topology_map(dims, AXES, map, AXES));
    EQUAL(in_turn(dims, QMP_get_logical_coordinates()), rank);
    neighbours_match_coordinates();
}

// Each topology in a communicator of its own, since it can be declared only once.
#define RUN_ALONE(function)                                                                        \
    do {                                                                                           \
        QMP_comm_t before = QMP_comm_get_default(), comm;                                          \
        WORKS(QMP_comm_split(before, 0, 0, &comm));                                                \
        WORKS(QMP_comm_set_default(comm));                                                         \
        RUN(function);                                                                             \
        WORKS(QMP_comm_set_default(before));                                                       \
        WORKS(QMP_comm_free(comm));                                                                \
    } while (0)

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc == 3) {
        how = argv[1];
        hosts = atoi(argv[2]);
    }
    RUN_ALONE(qmp_122_a_declared_grid_keeps_neighbours_on_a_host);
    RUN_ALONE(qmp_122_the_grid_of_a_lattice_keeps_neighbours_on_a_host);
    RUN_ALONE(qmpl_024_a_map_is_kept);
    return end();
}
