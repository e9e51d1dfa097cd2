// SPDX-License-Identifier: MIT OR Apache-2.0
// As qmp_cg.c, with the classes of qmp.hpp: conjugate gradients for (m^2 - Laplace) x = b on a 4-D lattice.
#include "qmp_lattice.hpp"
#include <cmath>

namespace {

const int STEPS = 500;
const double MASS2 = 0.25;

// The neighbour of site i: in the field, or behind a face.
double neighbour(const Box &box, const double *field, int i, int face)
{
    const int axis = face / 2, below = box.step(axis), edge = box.edge[axis];
    const int at = i / below % edge, to = at + (face % 2 ? 1 : -1);
    if (to >= 0 && to < edge)
        return field[i + (to - at) * below];
    if (!box.faces)
        return field[i + ((to + edge) % edge - at) * below];
    return box.ghost(face)[i % below + i / (below * edge) * below];
}

void apply(const Box &box, std::vector<double> &result, const double *field)
{
    if (box.faces)
        must(box.faces->start());
    for (int i = 0; i < box.sites; i++)
        result[i] = (MASS2 + FACES) * field[i];
    if (box.faces)
        must(box.faces->wait());
    for (int i = 0; i < box.sites; i++)
        for (int face = 0; face < FACES; face++)
            result[i] -= neighbour(box, field, i, face);
}

double product(const Box &box, const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < box.sites; i++)
        sum += a[i] * b[i];
    if (box.faces)
        must(QMP::sumDouble(&sum));
    return sum;
}

// The faces of the field `p` are exchanged.
std::vector<double> solve(const Box &box, const std::vector<double> &b, double *p)
{
    std::vector<double> x(box.sites), r(b), q(box.sites);
    for (int i = 0; i < box.sites; i++)
        p[i] = b[i];
    double now = product(box, r.data(), r.data());
    const double enough = 1e-24 * now;
    for (int done = 0; done < STEPS && now > enough; done++) {
        apply(box, q, p);
        const double alpha = now / product(box, p, q.data()), before = now;
        for (int i = 0; i < box.sites; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        now = product(box, r.data(), r.data());
        for (int i = 0; i < box.sites; i++)
            p[i] = r[i] + now / before * p[i];
    }
    return x;
}

double worst_difference()
{
    Box whole = Box::whole(), part = Box::part();
    QMP::AlignedMemory memory(sizeof(double) * whole.sites);
    double *const p = static_cast<double *>(memory.getBuffer());
    std::vector<double> all(whole.sites), mine(part.sites);
    for (int i = 0; i < whole.sites; i++)
        all[i] = std::sin(1.0 + i * 0.37);
    for (int i = 0; i < part.sites; i++)
        mine[i] = all[part.number(i)];
    const std::vector<double> wanted = solve(whole, all, p);
    part.connect(p);
    const std::vector<double> x = solve(part, mine, p);
    double worst = 0;
    for (int i = 0; i < part.sites; i++)
        worst = std::fmax(worst, std::fabs(x[i] - wanted[part.number(i)]));
    must(QMP::maxDouble(&worst));
    return worst;
}

} // namespace

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP::initialize(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    const double worst = worst_difference();
    if (QMP::isPrimaryNode())
        QMP::fprintf(stderr, "largest difference to a single process: %.1e", worst);
    if (worst < 1e-9)
        std::puts("ok");
    QMP::finalize();
    return worst < 1e-9 ? 0 : 1;
}
