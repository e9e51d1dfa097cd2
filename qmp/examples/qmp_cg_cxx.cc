// SPDX-License-Identifier: MIT OR Apache-2.0
// As qmp_cg.c, with the classes of qmp.hpp: conjugate gradients for (m^2 - Laplace) x = b on a 4-D lattice.
#include <cmath>
#include <memory>
#include <qmp.hpp>
#include <vector>

namespace {

const int AXES = 4, STEPS = 500;
const double MASS2 = 0.25;
int lattice[AXES] = {8, 8, 8, 8};

// A box of sites, the first axis fastest. Without neighbours it is a torus by itself.
class Box {
  public:
    explicit Box(const int *edges) : sites(1)
    {
        for (int a = 0; a < AXES; a++)
            sites *= edge[a] = edges[a];
    }

    // From now on the layers of this field travel: sixteen messages as one operation.
    void connect(double *field)
    {
        QMP::SingleOperation parts[4 * AXES];
        for (int a = 0, below = 1; a < AXES; below *= edge[a++]) {
            for (int up = 0; up < 2; up++) {
                const int above = sites / below / edge[a], face = 2 * a + up;
                const QMP::SIGN sign = up ? QMP::PLUS : QMP::MINUS;
                ghosts.emplace_back(sizeof(double) * below * above);
                double *const layer = field + (up ? below * (edge[a] - 1) : 0);
                QMP::MessageMemory out(layer, sizeof(double) * below, above,
                                       std::ptrdiff_t(sizeof(double)) * below * edge[a]);
                QMP::MessageMemory in(ghosts.back());
                parts[2 * face].declareSend(&out, a, sign);
                parts[2 * face + 1].declareReceive(&in, a, sign);
            }
        }
        faces.reset(new QMP::MultiOperation(parts, 4 * AXES));
    }

    void apply(std::vector<double> &result, const double *field) const
    {
        if (faces && faces->start() != QMP_SUCCESS)
            QMP::abort();
        for (int i = 0; i < sites; i++)
            result[i] = (MASS2 + 2 * AXES) * field[i];
        if (faces && faces->wait() != QMP_SUCCESS)
            QMP::abort();
        for (int i = 0; i < sites; i++)
            for (int face = 0; face < 2 * AXES; face++)
                result[i] -= neighbour(field, i, face / 2, face % 2);
    }

    double product(const double *a, const double *b) const
    {
        double sum = 0;
        for (int i = 0; i < sites; i++)
            sum += a[i] * b[i];
        if (faces)
            QMP::sumDouble(&sum);
        return sum;
    }

    // The number in the whole lattice of a site here.
    int global(const int *here, int i) const
    {
        int number = 0;
        for (int a = 0, scale = 1; a < AXES; scale *= lattice[a++]) {
            number += scale * (here[a] * edge[a] + i % edge[a]);
            i /= edge[a];
        }
        return number;
    }

    int edge[AXES], sites;

  private:
    double neighbour(const double *field, int i, int axis, int up) const
    {
        int below = 1;
        for (int a = 0; a < axis; a++)
            below *= edge[a];
        const int at = i / below % edge[axis], to = at + (up ? 1 : -1);
        if (to >= 0 && to < edge[axis])
            return field[i + (to - at) * below];
        if (!faces)
            return field[i + ((to + edge[axis]) % edge[axis] - at) * below];
        const double *const ghost = static_cast<const double *>(ghosts[2 * axis + up].getBuffer());
        return ghost[i % below + i / (below * edge[axis]) * below];
    }

    std::vector<QMP::AlignedMemory> ghosts;
    std::unique_ptr<QMP::MultiOperation> faces;
};

std::vector<double> solve(const Box &box, const std::vector<double> &b, double *p)
{
    std::vector<double> x(box.sites), r(b), q(box.sites);
    for (int i = 0; i < box.sites; i++)
        p[i] = b[i];
    double now = box.product(r.data(), r.data());
    const double enough = 1e-24 * now;
    for (int step = 0; step < STEPS && now > enough; step++) {
        box.apply(q, p);
        const double alpha = now / box.product(p, q.data()), before = now;
        for (int i = 0; i < box.sites; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        now = box.product(r.data(), r.data());
        for (int i = 0; i < box.sites; i++)
            p[i] = r[i] + now / before * p[i];
    }
    return x;
}

double worst_difference()
{
    Box whole(lattice), part(QMP::getSubgridDimensions());
    const int *const here = QMP::getLogicalCoordinates();
    QMP::AlignedMemory memory(sizeof(double) * whole.sites);
    double *const p = static_cast<double *>(memory.getBuffer());
    std::vector<double> all(whole.sites), mine(part.sites);
    for (int i = 0; i < whole.sites; i++)
        all[i] = std::sin(1.0 + i * 0.37);
    for (int i = 0; i < part.sites; i++)
        mine[i] = all[part.global(here, i)];
    const std::vector<double> wanted = solve(whole, all, p);
    part.connect(p);
    const std::vector<double> x = solve(part, mine, p);
    double worst = 0;
    for (int i = 0; i < part.sites; i++)
        worst = std::fmax(worst, std::fabs(x[i] - wanted[part.global(here, i)]));
    QMP::maxDouble(&worst);
    return worst;
}

} // namespace

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP::initialize(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    if (!QMP::layoutGrid(lattice, AXES))
        QMP::abort();
    const double worst = worst_difference();
    if (QMP::isPrimaryNode())
        QMP::fprintf(stderr, "largest difference to a single process: %.1e", worst);
    if (worst < 1e-9)
        std::puts("ok");
    QMP::finalize();
    return worst < 1e-9 ? 0 : 1;
}
