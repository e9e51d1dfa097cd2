// SPDX-License-Identifier: MIT OR Apache-2.0
// The faces of a 4-D lattice are sent to all neighbours, directly from the field. Each node compares the received sites with those of
// a single process.
#include "qmp_lattice.h"

// The value at a site of the whole lattice.
static double value(int number, int round) { return 1e5 * round + number; }

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    struct box box = part_of_lattice();
    QMP_mem_t *memory = QMP_allocate_memory(box.sites * sizeof(double));
    double *field = QMP_get_memory_pointer(memory);
    declare_faces(&box, field);

    int wrong = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < box.sites; i++)
            field[i] = value(number(&box, i, 0, 0), round);
        must(QMP_start(box.faces));
        must(QMP_wait(box.faces));
        for (int face = 0; face < FACES; face++) {
            int axis = face / 2, below = step(&box, axis), edge = box.edge[axis];
            for (int i = 0; i < box.sites / edge; i++) {
                int first = i % below + i / below * below * edge;
                wrong += box.ghost[face][i] != value(number(&box, first, axis, face % 2 ? edge : -1), round);
            }
        }
    }

    free_faces(&box);
    QMP_free_memory(memory);
    if (wrong > 0)
        QMP_error("%d sites of the faces are wrong", wrong);
    else
        puts("ok");
    QMP_finalize_msg_passing();
    return wrong > 0;
}
