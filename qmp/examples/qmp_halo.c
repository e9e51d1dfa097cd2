// SPDX-License-Identifier: MIT OR Apache-2.0
// The faces of a 4-D lattice go to all neighbours and back, straight from the field: strided memory, one handle for all
// sixteen messages, no packing. Each node checks what it got against what a single process would have.
#include <qmp.h>
#include <stdlib.h>

static int lattice[4] = {8, 8, 8, 16};

// What lies at a site of the whole lattice, which is a torus.
static double value(const int at[4], int step)
{
    double sum = step;
    for (int a = 0; a < 4; a++)
        sum = 100 * sum + (at[a] + lattice[a]) % lattice[a];
    return sum;
}

// Coordinates in the whole lattice of the site number `i` here, whose edges are `sub`.
static void site(int i, const int *sub, const int *here, int at[4])
{
    for (int a = 0; a < 4; a++) {
        at[a] = here[a] * sub[a] + i % sub[a];
        i /= sub[a];
    }
}

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    if (QMP_layout_grid(lattice, 4) != QMP_SUCCESS)
        QMP_abort_string(1, (char *)QMP_get_error_string(NULL));
    const int *sub = QMP_get_subgrid_dimensions(), *here = QMP_get_logical_coordinates();
    int sites = QMP_get_number_of_subgrid_sites(), wrong = 0;

    QMP_mem_t *memory = QMP_allocate_memory((size_t)sites * sizeof(double)), *ghosts[8];
    double *field = QMP_get_memory_pointer(memory), *ghost[8];
    QMP_msgmem_t mem[16];
    QMP_msghandle_t parts[16];
    for (int a = 0, below = 1; a < 4; below *= sub[a++]) {
        for (int up = 0; up < 2; up++) {
            int face = 2 * a + up, sign = up ? 1 : -1, above = sites / below / sub[a];
            // The last layer along the axis goes up, the first one down; the neighbour's arrives in memory of its own.
            double *layer = field + (up ? below * (sub[a] - 1) : 0);
            ghosts[face] = QMP_allocate_memory((size_t)below * above * sizeof(double));
            ghost[face] = QMP_get_memory_pointer(ghosts[face]);
            mem[2 * face] = QMP_declare_strided_msgmem(layer, below * sizeof(double), above,
                                                       (ptrdiff_t)(below * sub[a] * sizeof(double)));
            mem[2 * face + 1] = QMP_declare_msgmem(ghost[face], (size_t)below * above * sizeof(double));
            parts[2 * face] = QMP_declare_send_relative(mem[2 * face], a, sign, 0);
            parts[2 * face + 1] = QMP_declare_receive_relative(mem[2 * face + 1], a, sign, 0);
        }
    }
    QMP_msghandle_t all = QMP_declare_multiple(parts, 16);

    for (int step = 0; step < 10; step++) {
        int at[4];
        for (int i = 0; i < sites; i++) {
            site(i, sub, here, at);
            field[i] = value(at, step);
        }
        if (QMP_start(all) != QMP_SUCCESS || QMP_wait(all) != QMP_SUCCESS)
            QMP_abort_string(2, (char *)QMP_get_error_string(all));
        for (int a = 0, below = 1; a < 4; below *= sub[a++]) {
            for (int i = 0; i < sites / sub[a]; i++) {
                // The site of the first layer whose number on the face is i.
                int first = i % below + i / below * below * sub[a];
                site(first, sub, here, at);
                at[a] -= 1;
                wrong += ghost[2 * a][i] != value(at, step);
                at[a] += 1 + sub[a];
                wrong += ghost[2 * a + 1][i] != value(at, step);
            }
        }
    }

    QMP_free_msghandle(all);
    for (int i = 0; i < 16; i++)
        QMP_free_msgmem(mem[i]);
    for (int i = 0; i < 8; i++)
        QMP_free_memory(ghosts[i]);
    QMP_free_memory(memory);
    if (wrong > 0)
        QMP_error("%d sites of the faces are wrong", wrong);
    else
        puts("ok");
    QMP_finalize_msg_passing();
    return wrong > 0;
}
