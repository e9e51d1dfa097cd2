// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: initialisation and finalisation, the machine, communicators, topologies, layout, output.
#include "qmp_check.h"
#include <unistd.h>

static void qmp_052_qmp_053_qmp_054_qmpl_014_qmpl_015_qmpl_020_numbers_of_nodes(void)
{
    int mpi_rank, mpi_size;
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
    EQUAL(QMP_get_node_number(), mpi_rank);
    EQUAL(QMP_get_number_of_nodes(), mpi_size);
    EQUAL(QMP_is_primary_node(), mpi_rank == 0);
    QMP_comm_t comm = QMP_comm_get_default();
    EQUAL(QMP_comm_get_node_number(comm), mpi_rank);
    EQUAL(QMP_comm_get_number_of_nodes(comm), mpi_size);
    EQUAL(QMP_comm_is_primary_node(comm), mpi_rank == 0);
}

static void qmp_051_qmp_055_qmp_056_qmp_057_a_switch_has_no_grid(void)
{
    EQUAL(QMP_get_msg_passing_type(), QMP_SWITCH);
    EQUAL(QMP_get_allocated_number_of_dimensions(), 0);
    CHECK(QMP_get_allocated_dimensions() == NULL, "dimensions");
    CHECK(QMP_get_allocated_coordinates() == NULL, "coordinates");
}

static void qmpl_016_qmpl_017_qmpl_018_qmpl_019_qmpl_021_qmpl_022_one_job_and_io_nodes(void)
{
    EQUAL(QMP_get_number_of_jobs(), 1);
    EQUAL(QMP_get_job_number(), 0);
    EQUAL(QMP_get_number_of_job_geometry_dimensions(), 0);
    CHECK(QMP_get_job_geometry() == NULL, "geometry");
    EQUAL(QMP_io_node(size - 1), size - 1);
    EQUAL(QMP_master_io_node(), 0);
}

static void qmp_039_qmp_060_qmp_061_qmp_062_before_a_topology_there_are_no_neighbours(void)
{
    EQUAL(QMP_logical_topology_is_declared(), 0);
    EQUAL(QMP_get_logical_number_of_dimensions(), 0);
    CHECK(QMP_get_logical_dimensions() == NULL, "dimensions");
    CHECK(QMP_get_logical_coordinates() == NULL, "coordinates");
    int at[4] = {0};
    EQUAL(QMP_get_node_number_from(at), -1);
    EQUAL(QMP_get_error_number(NULL), QMP_NONEIGHBOR_INFO);
    CHECK(QMP_get_logical_coordinates_from(0) == NULL, "coordinates of a node");
    QMP_msgmem_t mem = QMP_declare_msgmem(at, sizeof at);
    NOTHING(QMP_declare_send_relative(mem, 0, 1, 0), QMP_NONEIGHBOR_INFO);
    QMP_free_msgmem(mem);
}

static void qmp_038_topologies_that_do_not_fit_are_refused(void)
{
    int wrong[2] = {size, 2}, bad[2] = {-1, -size}, map[2] = {0, 0}, fits[2] = {1, size};
    REFUSED(QMP_declare_logical_topology(wrong, 2), QMP_INVALID_TOPOLOGY);
    REFUSED(QMP_declare_logical_topology(bad, 2), QMP_INVALID_ARG);
    REFUSED(QMP_declare_logical_topology(NULL, 2), QMP_INVALID_ARG);
    REFUSED(QMP_declare_logical_topology(fits, -1), QMP_INVALID_ARG);
    WORKS(QMP_declare_logical_topology(NULL, 0));
    REFUSED(QMP_declare_logical_topology_map(fits, 2, map, 2), QMP_INVALID_TOPOLOGY);
    EQUAL(QMP_logical_topology_is_declared(), 0);
}

static void qmp_058_qmp_059_qmp_063_qmp_064_qmp_120_qmpl_031_a_grid_in_linear_order(void)
{
    int dims[3];
    two_thick(dims, 3);
    WORKS(QMP_declare_logical_topology(dims, 3));
    EQUAL(QMP_logical_topology_is_declared(), 1);
    EQUAL(QMP_get_logical_number_of_dimensions(), 3);
    EQUAL(QMP_get_node_number(), rank);
    const int *here = QMP_get_logical_coordinates();
    EQUAL(here[0] + dims[0] * (here[1] + dims[1] * here[2]), rank);
    for (int node = 0; node < size; node++) {
        int *at = QMP_get_logical_coordinates_from(node), again[3] = {-1, -1, -1};
        EQUAL(QMP_get_node_number_from(at), node);
        QMP_get_logical_coordinates_from2(again, node);
        CHECK(memcmp(at, again, sizeof again) == 0, "coordinates of node %d", node);
        free(at);
    }
    int round[3] = {here[0] - dims[0], here[1] + dims[1], here[2]};
    EQUAL(QMP_get_node_number_from(round), rank);
    CHECK(QMP_get_logical_coordinates_from(size) == NULL, "a node that is none");
    EQUAL(QMP_get_error_number(NULL), QMP_NODE_OUTRANGE);
    REFUSED(QMP_declare_logical_topology(dims, 3), QMP_TOPOLOGY_EXISTS);
}

static void qmp_065_qmp_066_qmp_067_a_forced_topology_divides_the_lattice(void)
{
    const int *dims = QMP_get_logical_dimensions();
    int lattice[4] = {4 * dims[0], 2 * dims[1], 6 * dims[2], 5};
    WORKS(QMP_layout_grid(lattice, 4));
    const int *sub = QMP_get_subgrid_dimensions();
    EQUAL(sub[0], 4);
    EQUAL(sub[1], 2);
    EQUAL(sub[2], 6);
    EQUAL(sub[3], 5);
    EQUAL(QMP_get_number_of_subgrid_sites(), 240);
    REFUSED(QMP_layout_grid(lattice, 2), QMP_INVALID_TOPOLOGY);
    REFUSED(QMP_layout_grid(lattice, 0), QMP_INVALID_ARG);
}

static void qmpl_006_qmpl_007_qmpl_008_qmpl_009_qmpl_010_qmpl_011_qmpl_012_parts(void)
{
    QMP_comm_t all = QMP_comm_get_default(), part = NULL;
    WORKS(QMP_comm_split(all, rank % 2, -rank, &part));
    EQUAL(QMP_comm_get_number_of_colors(part), size > 1 ? 2 : 1);
    EQUAL(QMP_comm_get_color(part), rank % 2);
    EQUAL(QMP_comm_get_key(part), -rank);
    EQUAL(QMP_comm_get_number_of_nodes(part), (size + 1 - rank % 2) / 2);
    EQUAL(QMP_comm_get_node_number(part), (QMP_comm_get_number_of_nodes(part) - 1) - rank / 2);
    WORKS(QMP_comm_set_default(part));
    CHECK(QMP_comm_get_default() == part, "default");
    EQUAL(QMP_get_number_of_nodes(), QMP_comm_get_number_of_nodes(part));
    EQUAL(QMP_logical_topology_is_declared(), 0);
    int sum = 1;
    WORKS(QMP_sum_int(&sum));
    EQUAL(sum, QMP_get_number_of_nodes());
    REFUSED(QMP_comm_free(part), QMP_INVALID_OP);
    WORKS(QMP_comm_set_default(all));
    WORKS(QMP_comm_free(part));
    REFUSED(QMP_comm_free(part), QMP_INVALID_ARG);
    REFUSED(QMP_comm_barrier(part), QMP_INVALID_ARG);
    REFUSED(QMP_comm_set_default(part), QMP_INVALID_ARG);
    REFUSED(QMP_comm_set_default((QMP_comm_t)(void *)&sum), QMP_INVALID_ARG);
}

static void qmpl_002_qmpl_003_qmpl_004_qmpl_005_allocated_and_job(void)
{
    QMP_comm_t allocated = QMP_comm_get_allocated(), job = QMP_comm_get_job();
    CHECK(allocated && job, "communicators");
    WORKS(QMP_comm_set_job(allocated));
    CHECK(QMP_comm_get_job() == allocated, "job");
    WORKS(QMP_comm_set_job(job));
    WORKS(QMP_comm_set_allocated(job));
    CHECK(QMP_comm_get_allocated() == job, "allocated");
    WORKS(QMP_comm_set_allocated(allocated));
    REFUSED(QMP_comm_set_job(NULL), QMP_INVALID_ARG);
}

static void qmpl_013_qmpl_069_the_communicator_of_mpi(void)
{
    void *hidden = NULL, *place = NULL;
    WORKS(QMP_get_hidden_comm(QMP_comm_get_default(), &hidden));
    WORKS(QMP_get_mpi_comm(QMP_comm_get_default(), &place));
    CHECK(hidden == place, "two places");
    MPI_Comm comm = *(MPI_Comm *)place;
    int result, sum = rank, wanted = size * (size - 1) / 2;
    GOOD(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result));
    EQUAL(result, MPI_CONGRUENT);
    GOOD(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm));
    EQUAL(sum, wanted);
    REFUSED(QMP_get_mpi_comm(NULL, &place), QMP_INVALID_ARG);
    REFUSED(QMP_get_mpi_comm(QMP_comm_get_job(), NULL), QMP_INVALID_ARG);
}

static void qmpl_023_qmpl_024_qmpl_025_qmpl_026_qmpl_027_qmpl_028_qmpl_029_topologies_of_communicators(void)
{
    QMP_comm_t comm;
    WORKS(QMP_comm_split(QMP_comm_get_default(), 0, 0, &comm));
    EQUAL(QMP_comm_logical_topology_is_declared(comm), 0);
    int dims[2], map[1] = {1};
    two_thick(dims, 2);
    WORKS(QMP_comm_declare_logical_topology_map(comm, dims, 2, map, 1));
    EQUAL(QMP_comm_logical_topology_is_declared(comm), 1);
    EQUAL(QMP_comm_get_logical_number_of_dimensions(comm), 2);
    EQUAL(QMP_comm_get_logical_dimensions(comm)[1], dims[1]);
    const int *here = QMP_comm_get_logical_coordinates(comm);
    EQUAL(here[1] + dims[1] * here[0], rank);
    REFUSED(QMP_comm_declare_logical_topology(comm, dims, 2), QMP_TOPOLOGY_EXISTS);
    WORKS(QMP_comm_free(comm));
    WORKS(QMP_comm_split(QMP_comm_get_default(), 0, 0, &comm));
    WORKS(QMP_comm_declare_logical_topology(comm, dims, 2));
    EQUAL(QMP_comm_get_logical_coordinates(comm)[0], rank % dims[0]);
    QMP_comm_t before = QMP_comm_get_default();
    WORKS(QMP_comm_free(comm));
    WORKS(QMP_comm_split(before, 0, 0, &comm));
    WORKS(QMP_comm_set_default(comm));
    WORKS(QMP_declare_logical_topology_map(dims, 2, map, 1));
    EQUAL(QMP_get_logical_coordinates()[1], rank % dims[1]);
    WORKS(QMP_comm_set_default(before));
    WORKS(QMP_comm_free(comm));
}

static void qmpl_030_qmpl_032_qmpl_033_coordinates_in_communicators(void)
{
    QMP_comm_t comm = QMP_comm_get_default();
    int *at = QMP_comm_get_logical_coordinates_from(comm, size - 1), again[3] = {-1, -1, -1};
    QMP_comm_get_logical_coordinates_from2(comm, again, size - 1);
    CHECK(memcmp(at, again, sizeof again) == 0, "coordinates");
    EQUAL(QMP_comm_get_node_number_from(comm, at), size - 1);
    free(at);
}

static void qmp_122_a_free_layout_covers_the_lattice(void)
{
    QMP_comm_t before = QMP_comm_get_default(), comm;
    WORKS(QMP_comm_split(before, 0, 0, &comm));
    WORKS(QMP_comm_set_default(comm));
    int lattice[4] = {2 * 64, 64, 3 * 64, 64}, nodes = 1;
    if (size % 5 && size % 7)
        WORKS(QMP_layout_grid(lattice, 4));
    for (int i = 0; i < 4 && size % 5 && size % 7; i++) {
        EQUAL(QMP_get_logical_dimensions()[i] * QMP_get_subgrid_dimensions()[i], lattice[i]);
        nodes *= QMP_get_logical_dimensions()[i];
    }
    EQUAL(nodes, size % 5 && size % 7 ? size : 1);
    WORKS(QMP_comm_set_default(before));
    WORKS(QMP_comm_free(comm));
}

// Even edges, for codes with even-odd sites, have precedence over hosts.
static void qmp_065_parts_are_even_and_square(void)
{
    QMP_comm_t before = QMP_comm_get_default(), comm;
    int lattice[4] = {4, 4, 4, 4}, is_power = (size & (size - 1)) == 0 && size <= 16;
    WORKS(QMP_comm_split(before, 0, 0, &comm));
    WORKS(QMP_comm_set_default(comm));
    if (is_power)
        WORKS(QMP_layout_grid(lattice, 4));
    for (int i = 0; i < 4 && is_power; i++)
        CHECK(QMP_get_subgrid_dimensions()[i] % 2 == 0, "edge %d is %d", i, QMP_get_subgrid_dimensions()[i]);
    WORKS(QMP_comm_set_default(before));
    WORKS(QMP_comm_free(comm));
}

static void qmp_103_qmp_104_setting_levels_returns_the_old_ones(void)
{
    EQUAL(QMP_verbose(3), 0);
    EQUAL(QMP_verbose(0), 3);
    EQUAL(QMP_profcontrol(2), 0);
    EQUAL(QMP_profcontrol(0), 2);
}

static void qmp_105_qmp_106_printed_lines_name_the_node_and_the_host(void)
{
    char host[256] = "", line[1024] = "", wanted[400];
    gethostname(host, sizeof host - 1);
    FILE *file = tmpfile();
    CHECK(QMP_fprintf(file, "%s %d", "of text", 42) == 10, "length");
    rewind(file);
    CHECK(fgets(line, sizeof line, file) != NULL, "no line");
    fclose(file);
    snprintf(wanted, sizeof wanted, "QMP m%d,n%d@%s: of text 42\n", rank, size, host);
    CHECK(strcmp(line, wanted) == 0, "%s", line);
    CHECK(QMP_printf("to stdout, %d", 7) == 12, "length");
}

static void qmp_107_qmp_108_info_and_errors_are_printed(void)
{
    CHECK(QMP_info("an info, %d", 7) == 10, "length");
    CHECK(QMP_error("an error, %d", 7) == 11, "length");
}

static void qmpl_064_qmpl_065_qmpl_066_time_goes_on_and_is_counted_while_profiling(void)
{
    double start = QMP_time();
    QMP_reset_total_qmp_time();
    WORKS(QMP_barrier());
    CHECK(QMP_get_total_qmp_time() == 0.0, "counted without profiling");
    QMP_profcontrol(1);
    while (QMP_time() == start)
        ;
    WORKS(QMP_barrier());
    CHECK(QMP_get_total_qmp_time() > 0.0 && QMP_get_total_qmp_time() <= QMP_time() - start, "%g", QMP_get_total_qmp_time());
    QMP_profcontrol(0);
    QMP_reset_total_qmp_time();
    CHECK(QMP_get_total_qmp_time() == 0.0, "not reset");
}

static void qmpl_067_qmpl_068_versions_agree(void)
{
    int major, minor, bug;
    EQUAL(sscanf(QMP_version_str(), "%d.%d.%d", &major, &minor, &bug), 3);
    EQUAL(QMP_version_int(), major * 1000000 + minor * 1000 + bug);
}

static void qmp_082_qmp_083_qmp_084_qmp_127_texts_of_codes(void)
{
    CHECK(strncmp(QMP_error_string(QMP_SUCCESS), "QMP_SUCCESS", 11) == 0, "success");
    CHECK(strncmp(QMP_error_string(QMP_TIMEOUT), "QMP_TIMEOUT", 11) == 0, "timeout");
    static const int not_codes[] = {QMP_MAX_STATUS, 0x1000, 9999, 1 << 30, -1, -77, -1 - 0x7fffffff};
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
    CHECK(strcmp(QMP_error_string((QMP_status_t)MPI_ERR_TRUNCATE), text) == 0, "%s", QMP_error_string((QMP_status_t)MPI_ERR_TRUNCATE));
    for (int at = 0; at < COUNT_OF(not_codes); at++) {
        snprintf(text, sizeof text, "%d is no status", not_codes[at]);
        const char *got = QMP_error_string((QMP_status_t)not_codes[at]);
        CHECK(strncmp(got, text, strlen(text)) == 0, "%s", got);
    }
    REFUSED(QMP_comm_barrier(NULL), QMP_INVALID_ARG);
    WORKS(QMP_barrier());
    EQUAL(QMP_get_error_number(NULL), QMP_SUCCESS);
    CHECK(strncmp(QMP_get_error_string(NULL), "QMP_SUCCESS", 11) == 0, "%s", QMP_get_error_string(NULL));
}

// A pointer to an error text stays valid.
static void qmp_083_error_texts_stay_unchanged(void)
{
    enum { MANY = 100 };
    const char *texts[MANY];
    char copies[MANY][200];
    for (int k = 0; k < MANY; k++) {
        CHECK(QMP_declare_msgmem(NULL, 10 + (size_t)k) == NULL, "memory at NULL");
        texts[k] = QMP_get_error_string(NULL);
        snprintf(copies[k], sizeof copies[k], "%s", texts[k]);
        WORKS(QMP_barrier());
    }
    int out = rank;
    QMP_msgmem_t mem = QMP_declare_msgmem(&out, sizeof out);
    QMP_msghandle_t receive = QMP_declare_receive_from(mem, rank, 0), send = QMP_declare_send_to(mem, rank, 0);
    WORKS(QMP_start(receive));
    REFUSED(QMP_start(receive), QMP_INVALID_OP);
    const char *of_message = QMP_get_error_string(receive);
    WORKS(QMP_start(send));
    WORKS(QMP_wait(receive));
    WORKS(QMP_wait(send));
    QMP_free_msghandle(receive);
    QMP_free_msghandle(send);
    QMP_free_msgmem(mem);
    CHECK(strncmp(of_message, "QMP_INVALID_OP: the message was started", 39) == 0, "%s", of_message);
    for (int k = 0; k < MANY; k++) {
        CHECK(strcmp(texts[k], copies[k]) == 0, "%s, they were %s", texts[k], copies[k]);
        CHECK(k == 0 || strcmp(texts[k], texts[k - 1]) != 0, "%s", texts[k]);
    }
}

// A node with a negative color is in none of the parts, and no node waits for it.
static void qmpl_006_nodes_without_a_part(void)
{
    QMP_comm_t all = QMP_comm_get_default(), part = (QMP_comm_t)(void *)&all;
    static const int none[] = {-1, -2, -32766, -1 - 0x7fffffff};
    for (int at = 0; at < COUNT_OF(none); at++) {
        WORKS(QMP_comm_split(all, rank == 0 ? none[at] : rank % 2, 0, &part));
        if (rank == 0) {
            CHECK(part == NULL, "%p", (void *)part);
            REFUSED(QMP_comm_barrier(part), QMP_INVALID_ARG);
            CHECK(strstr(QMP_get_error_string(NULL), "negative color"), "%s", QMP_get_error_string(NULL));
            continue;
        }
        EQUAL(QMP_comm_get_number_of_colors(part), size > 2 ? 2 : 1);
        EQUAL(QMP_comm_get_number_of_nodes(part), rank % 2 ? size / 2 : (size - 1) / 2);
        WORKS(QMP_comm_barrier(part));
        WORKS(QMP_comm_free(part));
    }
}

int main(int argc, char **argv)
{
    QMP_thread_level_t provided = QMP_THREAD_SINGLE;
    // qmp_024, qmp_049: before initialisation every function returns, and none crashes.
    EQUAL(QMP_is_initialized(), 0);
    REFUSED(QMP_barrier(), QMP_NOT_INITED);
    NOTHING(QMP_allocate_memory(8), QMP_NOT_INITED);
    NOTHING(QMP_declare_msgmem(&provided, 4), QMP_NOT_INITED);
    EQUAL(QMP_get_node_number(), -1);
    EQUAL(QMP_get_number_of_nodes(), 0);
    QMP_finalize_msg_passing();
    // qmp_048, qmp_012: the provided level may be higher than the required one.
    REFUSED(QMP_init_msg_passing(&argc, &argv, (QMP_thread_level_t)9, &provided), QMP_INVALID_ARG);
    WORKS(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_MULTIPLE, &provided));
    CHECK(provided <= QMP_THREAD_MULTIPLE, "level %d", provided);
    EQUAL(QMP_is_initialized(), 1);
    REFUSED(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided), QMP_INVALID_OP);
    rank = QMP_get_node_number();
    size = QMP_get_number_of_nodes();
    RUN(qmp_052_qmp_053_qmp_054_qmpl_014_qmpl_015_qmpl_020_numbers_of_nodes);
    RUN(qmp_051_qmp_055_qmp_056_qmp_057_a_switch_has_no_grid);
    RUN(qmpl_016_qmpl_017_qmpl_018_qmpl_019_qmpl_021_qmpl_022_one_job_and_io_nodes);
    RUN(qmp_039_qmp_060_qmp_061_qmp_062_before_a_topology_there_are_no_neighbours);
    RUN(qmp_038_topologies_that_do_not_fit_are_refused);
    RUN(qmp_058_qmp_059_qmp_063_qmp_064_qmp_120_qmpl_031_a_grid_in_linear_order);
    RUN(qmp_065_qmp_066_qmp_067_a_forced_topology_divides_the_lattice);
    RUN(qmpl_006_qmpl_007_qmpl_008_qmpl_009_qmpl_010_qmpl_011_qmpl_012_parts);
    RUN(qmpl_002_qmpl_003_qmpl_004_qmpl_005_allocated_and_job);
    RUN(qmpl_013_qmpl_069_the_communicator_of_mpi);
    RUN(qmpl_023_qmpl_024_qmpl_025_qmpl_026_qmpl_027_qmpl_028_qmpl_029_topologies_of_communicators);
    RUN(qmpl_030_qmpl_032_qmpl_033_coordinates_in_communicators);
    RUN(qmp_122_a_free_layout_covers_the_lattice);
    RUN(qmp_065_parts_are_even_and_square);
    RUN(qmp_103_qmp_104_setting_levels_returns_the_old_ones);
    RUN(qmp_105_qmp_106_printed_lines_name_the_node_and_the_host);
    RUN(qmp_107_qmp_108_info_and_errors_are_printed);
    RUN(qmpl_064_qmpl_065_qmpl_066_time_goes_on_and_is_counted_while_profiling);
    RUN(qmpl_067_qmpl_068_versions_agree);
    RUN(qmp_082_qmp_083_qmp_084_qmp_127_texts_of_codes);
    RUN(qmp_083_error_texts_stay_unchanged);
    RUN(qmpl_006_nodes_without_a_part);
    int code = end();
    // qmp_050: after finalisation.
    REFUSED(QMP_barrier(), QMP_NOT_INITED);
    REFUSED(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided), QMP_RTENV_ERR);
    int finalized = 0;
    MPI_Finalized(&finalized);
    return code || !finalized || check_errors;
}
