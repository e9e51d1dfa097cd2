// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP with the document's signatures of five functions.
#define QMP_API 2004
#include "qmp_check.h"

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    begin(&argc, &argv);
    (void)provided;
    // qmp_058, qmp_065: true is success here.
    int wrong[2] = {size, 2}, dims[2] = {size, 1}, lattice[2] = {4 * size, 4};
    EQUAL(QMP_declare_logical_topology(wrong, 2), QMP_FALSE);
    EQUAL(QMP_get_error_number(NULL), QMP_INVALID_TOPOLOGY);
    EQUAL(QMP_declare_logical_topology(dims, 2), QMP_TRUE);
    EQUAL(QMP_declare_logical_topology(dims, 2), QMP_FALSE);
    EQUAL(QMP_get_error_number(NULL), QMP_TOPOLOGY_EXISTS);
    EQUAL(QMP_layout_grid(lattice, 2), QMP_TRUE);
    EQUAL(QMP_get_number_of_subgrid_sites(), 16);
    // qmp_064: the memory of the coordinates is the library's, the same in every call.
    const int *at = QMP_get_logical_coordinates_from(size - 1);
    EQUAL(at[0], size - 1);
    CHECK(at == QMP_get_logical_coordinates_from(size - 1), "other coordinates");
    CHECK(QMP_get_logical_coordinates_from(size) == NULL, "a node that is none");
    // qmp_074: no count.
    char data[4] = "abcd";
    void *bases[2] = {data, NULL};
    size_t sizes[1] = {2};
    int blocks[1] = {2};
    ptrdiff_t strides[1] = {2};
    QMP_msgmem_t mem = QMP_declare_strided_array_msgmem(bases, sizes, blocks, strides);
    CHECK(mem != NULL, "%s", QMP_get_error_string(NULL));
    QMP_free_msgmem(mem);
    // qmp_109: without a code.
    if (argc > 1 && rank == 0)
        QMP_abort();
    if (argc > 1)
        QMP_barrier();
    return end();
}
