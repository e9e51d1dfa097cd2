// SPDX-License-Identifier: MIT OR Apache-2.0
// As qmp_halo.c, with the classes of qmp.hpp: the faces of a 4-D lattice are sent to all neighbours, directly from the field.
#include "qmp_lattice.hpp"

// The value at a site of the whole lattice.
static double value(int number, int round) { return 1e5 * round + number; }

static int wrong_sites()
{
    Box box = Box::part();
    QMP::AlignedMemory memory(sizeof(double) * box.sites);
    double *const field = static_cast<double *>(memory.getBuffer());
    box.connect(field);
    int wrong = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < box.sites; i++)
            field[i] = value(box.number(i), round);
        must(box.faces->start());
        must(box.faces->wait());
        for (int face = 0; face < FACES; face++) {
            const int axis = face / 2, below = box.step(axis), edge = box.edge[axis];
            for (int i = 0; i < box.sites / edge; i++) {
                const int first = i % below + i / below * below * edge;
                wrong += box.ghost(face)[i] != value(box.number(first, axis, face % 2 ? edge : -1), round);
            }
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP::initialize(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    const int wrong = wrong_sites();
    if (wrong > 0)
        QMP::error("%d sites of the faces are wrong", wrong);
    else
        std::puts("ok");
    QMP::finalize();
    return wrong > 0;
}
