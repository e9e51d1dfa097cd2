// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by the examples in C++: the part of a 4-D lattice on a node, and its faces, which are sent to the neighbours.
#ifndef QMP_LATTICE_HPP
#define QMP_LATTICE_HPP

#include <memory>
#include <qmp.hpp>
#include <vector>

const int AXES = 4, FACES = 2 * AXES;

inline const int *lattice()
{
    static const int edges[AXES] = {8, 8, 8, 16};
    return edges;
}

inline void must(QMP_status_t status)
{
    if (status != QMP_SUCCESS) {
        QMP::error("%s", QMP::errorString(status));
        QMP::abort();
    }
}

// A box of sites, the first axis fastest. The lower face along an axis has the number 2 * axis, the upper one the next.
class Box {
  public:
    static Box whole()
    {
        const int corner[AXES] = {};
        return Box(lattice(), corner);
    }

    // The box of this node.
    static Box part()
    {
        std::vector<int> edges(lattice(), lattice() + AXES);
        if (!QMP::layoutGrid(edges.data(), AXES))
            QMP::abort();
        return Box(QMP::getSubgridDimensions(), QMP::getLogicalCoordinates());
    }

    // Distance in a field of neighbours along an axis.
    int step(int axis) const
    {
        int step = 1;
        for (int a = 0; a < axis; a++)
            step *= edge[a];
        return step;
    }

    // The number in the whole lattice, which is a torus, of site i here, moved along an axis.
    int number(int i, int axis = 0, int distance = 0) const
    {
        int number = 0;
        for (int a = 0, scale = 1; a < AXES; scale *= lattice()[a++]) {
            const int at = corner[a] + i % edge[a] + (a == axis ? distance : 0);
            number += scale * ((at + lattice()[a]) % lattice()[a]);
            i /= edge[a];
        }
        return number;
    }

    // Declares the sixteen messages of a field as one operation. Layers are sent from the field without packing.
    void connect(double *field)
    {
        QMP::SingleOperation parts[2 * FACES];
        for (int face = 0; face < FACES; face++) {
            const int axis = face / 2, below = step(axis), blocks = sites / below / edge[axis];
            const QMP::SIGN sign = face % 2 ? QMP::PLUS : QMP::MINUS;
            const std::size_t block = sizeof(double) * below;
            ghosts.emplace_back(block * blocks);
            double *const layer = field + (sign > 0 ? below * (edge[axis] - 1) : 0);
            QMP::MessageMemory out(layer, block, blocks, std::ptrdiff_t(block) * edge[axis]), in(ghosts.back());
            must(parts[2 * face].declareSend(&out, axis, sign));
            must(parts[2 * face + 1].declareReceive(&in, axis, sign));
        }
        faces.reset(new QMP::MultiOperation(parts, 2 * FACES));
    }

    // The layer received from behind a face.
    const double *ghost(int face) const { return static_cast<const double *>(ghosts[face].getBuffer()); }

    int edge[AXES], sites;
    std::unique_ptr<QMP::MultiOperation> faces; // none for a box without neighbours, which is the whole lattice

  private:
    Box(const int *edges, const int *place) : sites(1)
    {
        for (int a = 0; a < AXES; a++) {
            sites *= edge[a] = edges[a];
            corner[a] = edges[a] * place[a];
        }
    }

    int corner[AXES];
    std::vector<QMP::AlignedMemory> ghosts;
};

#endif
