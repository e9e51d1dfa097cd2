// SPDX-License-Identifier: MIT OR Apache-2.0
// Conjugate gradients for (m^2 - Laplace) x = b on a 4-D lattice. The faces are exchanged while the inner part is computed, and each
// node compares its part of the solution with that of a single process, which it computes too.
#include "qmp_lattice.h"
#include <math.h>
#include <string.h>

enum { STEPS = 500 };
static const double MASS2 = 0.25;

// The neighbour of site i: in the field, or behind a face.
static double neighbour(const struct box *box, const double *field, int i, int face)
{
    int axis = face / 2, below = step(box, axis), edge = box->edge[axis];
    int at = i / below % edge, to = at + (face % 2 ? 1 : -1);
    if (to >= 0 && to < edge)
        return field[i + (to - at) * below];
    if (!box->faces)
        return field[i + ((to + edge) % edge - at) * below];
    return box->ghost[face][i % below + i / (below * edge) * below];
}

static void apply(const struct box *box, double *result, const double *field)
{
    if (box->faces)
        must(QMP_start(box->faces));
    for (int i = 0; i < box->sites; i++)
        result[i] = (MASS2 + FACES) * field[i];
    if (box->faces)
        must(QMP_wait(box->faces));
    for (int i = 0; i < box->sites; i++)
        for (int face = 0; face < FACES; face++)
            result[i] -= neighbour(box, field, i, face);
}

static double product(const struct box *box, const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < box->sites; i++)
        sum += a[i] * b[i];
    if (box->faces)
        must(QMP_sum_double(&sum));
    return sum;
}

// The faces of the field `p` are exchanged. Returns the number of steps.
static int solve(const struct box *box, double *x, const double *b, double *p)
{
    size_t bytes = box->sites * sizeof(double);
    double *r = malloc(bytes), *q = malloc(bytes);
    memset(x, 0, bytes);
    memcpy(r, b, bytes);
    memcpy(p, b, bytes);
    double now = product(box, r, r), enough = 1e-24 * now;
    int done = 0;
    for (; done < STEPS && now > enough; done++) {
        apply(box, q, p);
        double alpha = now / product(box, p, q), before = now;
        for (int i = 0; i < box->sites; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        now = product(box, r, r);
        for (int i = 0; i < box->sites; i++)
            p[i] = r[i] + now / before * p[i];
    }
    free(r);
    free(q);
    return done;
}

static double source(int number) { return sin(1.0 + number * 0.37); }

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    struct box whole = whole_lattice(), part = part_of_lattice();
    size_t bytes = whole.sites * sizeof(double);
    double *b = malloc(bytes), *x = malloc(bytes), *wanted = malloc(bytes);
    QMP_mem_t *memory = QMP_allocate_memory(bytes);
    double *p = QMP_get_memory_pointer(memory);

    for (int i = 0; i < whole.sites; i++)
        b[i] = source(i);
    solve(&whole, wanted, b, p);

    declare_faces(&part, p);
    for (int i = 0; i < part.sites; i++)
        b[i] = source(number(&part, i, 0, 0));
    int steps = solve(&part, x, b, p);

    double worst = 0;
    for (int i = 0; i < part.sites; i++)
        worst = fmax(worst, fabs(x[i] - wanted[number(&part, i, 0, 0)]));
    must(QMP_max_double(&worst));
    if (QMP_is_primary_node())
        QMP_fprintf(stderr, "%d steps, largest difference to a single process: %.1e", steps, worst);
    if (worst < 1e-9)
        puts("ok");
    free_faces(&part);
    QMP_free_memory(memory);
    QMP_finalize_msg_passing();
    free(b);
    free(x);
    free(wanted);
    return worst < 1e-9 ? 0 : 1;
}
