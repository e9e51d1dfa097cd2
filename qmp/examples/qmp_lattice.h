/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// Shared by the examples in C: the part of a 4-D lattice on a node, and its faces, which are sent to the neighbours.
#ifndef QMP_LATTICE_H
#define QMP_LATTICE_H

#include <qmp.h>
#include <stdlib.h>

enum { AXES = 4, FACES = 2 * AXES };

static const int lattice[AXES] = {8, 8, 8, 16};

// A box of sites, the first axis fastest. The lower face along an axis has the number 2 * axis, the upper one the next.
struct box {
    int edge[AXES], corner[AXES], sites; // corner: its first site in the lattice, which is a torus
    QMP_mem_t *memory[FACES];
    double *ghost[FACES];  // the layers of the neighbours behind each face
    QMP_msghandle_t faces; // all messages; NULL for a box without neighbours, which is the whole lattice
};

static inline void must(QMP_status_t status)
{
    if (status != QMP_SUCCESS)
        QMP_abort_string(1, (char *)QMP_get_error_string(NULL));
}

static inline struct box whole_lattice(void)
{
    struct box box = {.sites = 1};
    for (int a = 0; a < AXES; a++)
        box.sites *= box.edge[a] = lattice[a];
    return box;
}

// The box of this node.
static inline struct box part_of_lattice(void)
{
    must(QMP_layout_grid(lattice, AXES));
    struct box box = {.sites = QMP_get_number_of_subgrid_sites()};
    for (int a = 0; a < AXES; a++) {
        box.edge[a] = QMP_get_subgrid_dimensions()[a];
        box.corner[a] = QMP_get_logical_coordinates()[a] * box.edge[a];
    }
    return box;
}

// Distance in a field of neighbours along an axis.
static inline int step(const struct box *box, int axis)
{
    int step = 1;
    for (int a = 0; a < axis; a++)
        step *= box->edge[a];
    return step;
}

// The number in the whole lattice of site i of a box, moved along an axis.
static inline int number(const struct box *box, int i, int axis, int distance)
{
    int number = 0;
    for (int a = 0, scale = 1; a < AXES; scale *= lattice[a++]) {
        int at = box->corner[a] + i % box->edge[a] + (a == axis ? distance : 0);
        number += scale * ((at + lattice[a]) % lattice[a]);
        i /= box->edge[a];
    }
    return number;
}

// Declares the sixteen messages of a field as one handle. Layers are sent from the field without packing.
static inline void declare_faces(struct box *box, double *field)
{
    QMP_msghandle_t parts[2 * FACES];
    for (int face = 0; face < FACES; face++) {
        int axis = face / 2, sign = face % 2 ? 1 : -1, below = step(box, axis), edge = box->edge[axis];
        int blocks = box->sites / below / edge;
        size_t block = below * sizeof(double);
        box->memory[face] = QMP_allocate_memory(blocks * block);
        box->ghost[face] = QMP_get_memory_pointer(box->memory[face]);
        double *layer = field + (sign > 0 ? below * (edge - 1) : 0);
        QMP_msgmem_t out = QMP_declare_strided_msgmem(layer, block, blocks, (ptrdiff_t)(edge * block));
        QMP_msgmem_t in = QMP_declare_msgmem(box->ghost[face], blocks * block);
        parts[2 * face] = QMP_declare_send_relative(out, axis, sign, 0);
        parts[2 * face + 1] = QMP_declare_receive_relative(in, axis, sign, 0);
        QMP_free_msgmem(out);
        QMP_free_msgmem(in);
    }
    box->faces = QMP_declare_multiple(parts, 2 * FACES);
    must(QMP_get_error_number(NULL));
}

static inline void free_faces(struct box *box)
{
    QMP_free_msghandle(box->faces);
    for (int face = 0; face < FACES; face++)
        QMP_free_memory(box->memory[face]);
}

#endif
