// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: the command line. The first word selects the test.
#include "qmp_check.h"

// `grid a b c -qmp-geom 4 2`: the allocated machine is a mesh, and a layout adopts it.
static void qmpl_073_qmp_010_a_grid_of_nodes(void)
{
    EQUAL(QMP_get_msg_passing_type(), QMP_MESH);
    EQUAL(QMP_get_allocated_number_of_dimensions(), 2);
    EQUAL(QMP_get_allocated_dimensions()[0], 4);
    EQUAL(QMP_get_allocated_dimensions()[1], 2);
    EQUAL(QMP_get_allocated_coordinates()[0], rank % 4);
    EQUAL(QMP_get_allocated_coordinates()[1], rank / 4);
    int lattice[3] = {8, 8, 8};
    WORKS(QMP_layout_grid(lattice, 3));
    EQUAL(QMP_get_logical_number_of_dimensions(), 3);
    EQUAL(QMP_get_logical_dimensions()[0], 4);
    EQUAL(QMP_get_logical_dimensions()[2], 1);
    EQUAL(QMP_get_logical_coordinates()[2], 0);
    EQUAL(QMP_get_subgrid_dimensions()[0], 2);
    EQUAL(QMP_get_subgrid_dimensions()[2], 8);
}

// `maps -qmp-geom 4 2 -qmp-alloc-map 1 -qmp-logic-map 2 0`
static void qmpl_074_qmpl_075_maps_of_axes(void)
{
    EQUAL(QMP_get_allocated_coordinates()[1], rank % 2);
    EQUAL(QMP_get_allocated_coordinates()[0], rank / 2);
    int dims[3] = {2, 2, 2};
    WORKS(QMP_declare_logical_topology(dims, 3));
    EQUAL(QMP_get_logical_coordinates()[2], rank % 2);
    EQUAL(QMP_get_logical_coordinates()[0], rank / 2 % 2);
    EQUAL(QMP_get_logical_coordinates()[1], rank / 4);
}

// `jobs -qmp-job 2`
static void qmpl_076_jobs_of_a_line(void)
{
    EQUAL(QMP_get_number_of_jobs(), 2);
    EQUAL(QMP_get_number_of_job_geometry_dimensions(), 0);
    CHECK(QMP_get_job_geometry() == NULL, "a grid of nodes in a line");
    EQUAL(size, 4);
    EQUAL(QMP_comm_get_node_number(QMP_comm_get_allocated()), QMP_get_job_number() * 4 + rank);
    int sum = QMP_get_job_number();
    WORKS(QMP_sum_int(&sum));
    EQUAL(sum, QMP_get_job_number() * 4);
}

// `blocks -qmp-geom 4 2 -qmp-job 4 1`: the geometry is that of this job's nodes.
static void qmpl_076_jobs_of_a_grid(void)
{
    EQUAL(QMP_get_number_of_jobs(), 4);
    EQUAL(QMP_get_job_number(), QMP_get_allocated_coordinates()[0]);
    EQUAL(QMP_get_number_of_job_geometry_dimensions(), 2);
    EQUAL(QMP_get_job_geometry()[0], 1);
    EQUAL(QMP_get_job_geometry()[1], 2);
    int lattice[3] = {4, 4, 4};
    WORKS(QMP_layout_grid(lattice, 3));
    EQUAL(QMP_get_logical_dimensions()[0], 1);
    EQUAL(QMP_get_logical_dimensions()[1], 2);
    EQUAL(QMP_get_logical_dimensions()[2], 1);
}

// `unfit`: a grid that does not fit is refused with a printed message, since many programs ignore the status.
static void qmp_065_refused_layouts_are_reported(void)
{
    int lattice[4] = {3, 3, 3, 3}, grid[2] = {7, 7};
    REFUSED(QMP_layout_grid(lattice, 4), QMP_INVALID_TOPOLOGY);
    REFUSED(QMP_declare_logical_topology(grid, 2), QMP_INVALID_TOPOLOGY);
    CHECK(QMP_get_logical_dimensions() == NULL, "a grid that was refused");
}

// `fewer -qmp-nmpi 3`: the other processes have exited.
static void qmpl_077_fewer_processes(void)
{
    EQUAL(size, 3);
    int sum = 1;
    WORKS(QMP_sum_int(&sum));
    EQUAL(sum, 3);
    int all;
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    // The value of the processes that have exited.
    for (int missing = size; rank == 0 && missing < all; missing++)
        puts("ok");
}

// `wrong ...`: refused with a message.
static int refused(int argc, char **argv)
{
    QMP_thread_level_t provided;
    int code = QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided);
    CHECK(code != QMP_SUCCESS && code == (int)QMP_get_error_number(NULL), "status %#x", code);
    CHECK(strstr(QMP_get_error_string(NULL), "QMP_"), "%s", QMP_get_error_string(NULL));
    EQUAL(QMP_is_initialized(), QMP_FALSE);
    fprintf(stderr, "%s\n", QMP_get_error_string(NULL));
    return finish();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "wrong") == 0)
        return refused(argc, argv);
    if (strcmp(what, "abort") == 0) {
        char message[] = "the lattice is broken";
        begin(&argc, &argv);
        if (rank == 0)
            QMP_abort_string(7, message); // qmpl_001
        QMP_barrier();
    }
    if (strcmp(what, "code") == 0) {
        begin(&argc, &argv);
        if (rank == 0)
            QMP_abort(9); // qmp_109
        QMP_barrier();
    }
    begin(&argc, &argv);
    EQUAL(argc, 3);
    CHECK(strcmp(argv[2], "last") == 0, "%s", argv[2]);
    CHECK(argv[3] == NULL, "the command line has no end");
    if (strcmp(what, "grid") == 0)
        qmpl_073_qmp_010_a_grid_of_nodes();
    else if (strcmp(what, "maps") == 0)
        qmpl_074_qmpl_075_maps_of_axes();
    else if (strcmp(what, "unfit") == 0)
        qmp_065_refused_layouts_are_reported();
    else if (strcmp(what, "jobs") == 0)
        qmpl_076_jobs_of_a_line();
    else if (strcmp(what, "blocks") == 0)
        qmpl_076_jobs_of_a_grid();
    else
        qmpl_077_fewer_processes();
    return end();
}
