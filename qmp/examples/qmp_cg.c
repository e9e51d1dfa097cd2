// SPDX-License-Identifier: MIT OR Apache-2.0
// Conjugate gradients for (m^2 - Laplace) x = b on a 4-D lattice. The faces travel while the inner part is computed, and each
// node compares its part of the solution with that of a single process, which it computes too.
#include <math.h>
#include <qmp.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 4, STEPS = 500 };
static const double MASS2 = 0.25;
static int lattice[AXES] = {8, 8, 8, 8};

// A box of sites, the first axis fastest. Without neighbours it is a torus by itself.
struct box {
    int edge[AXES], sites;
    double *ghost[2 * AXES]; // layers of the neighbours: below and above along each axis
    QMP_msghandle_t faces;   // of the field that the operator is applied to
};

// The neighbour of site i: in the field, or on a face.
static double neighbour(const struct box *box, const double *field, int i, int axis, int up)
{
    int below = 1;
    for (int a = 0; a < axis; a++)
        below *= box->edge[a];
    int edge = box->edge[axis], at = i / below % edge, to = at + (up ? 1 : -1);
    if (to >= 0 && to < edge)
        return field[i + (to - at) * below];
    if (!box->faces)
        return field[i + ((to + edge) % edge - at) * below];
    return box->ghost[2 * axis + up][i % below + i / (below * edge) * below];
}

static void apply(const struct box *box, double *result, const double *field)
{
    if (box->faces && (QMP_start(box->faces) != QMP_SUCCESS))
        QMP_abort(1);
    for (int i = 0; i < box->sites; i++)
        result[i] = (MASS2 + 2 * AXES) * field[i];
    if (box->faces && QMP_wait(box->faces) != QMP_SUCCESS)
        QMP_abort(1);
    for (int i = 0; i < box->sites; i++)
        for (int face = 0; face < 2 * AXES; face++)
            result[i] -= neighbour(box, field, i, face / 2, face % 2);
}

static double product(const struct box *box, const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < box->sites; i++)
        sum += a[i] * b[i];
    if (box->faces)
        QMP_sum_double(&sum);
    return sum;
}

// The field `p` is the one whose faces travel. Returns the number of steps.
static int solve(const struct box *box, double *x, const double *b, double *p)
{
    size_t bytes = (size_t)box->sites * sizeof(double);
    double *r = malloc(bytes), *q = malloc(bytes);
    memset(x, 0, bytes);
    memcpy(r, b, bytes);
    memcpy(p, b, bytes);
    double now = product(box, r, r), enough = 1e-24 * now;
    int step = 0;
    for (; step < STEPS && now > enough; step++) {
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
    return step;
}

// The sixteen messages of a field as one handle: layers go out of the field as they lie there.
static void declare_faces(struct box *box, double *field)
{
    QMP_msghandle_t parts[4 * AXES];
    for (int a = 0, below = 1; a < AXES; below *= box->edge[a++]) {
        for (int up = 0; up < 2; up++) {
            int face = 2 * a + up, above = box->sites / below / box->edge[a], sign = up ? 1 : -1;
            size_t bytes = (size_t)below * above * sizeof(double);
            box->ghost[face] = QMP_get_memory_pointer(QMP_allocate_memory(bytes));
            QMP_msgmem_t layer = QMP_declare_strided_msgmem(field + (up ? below * (box->edge[a] - 1) : 0), below * sizeof(double),
                                                            above, (ptrdiff_t)(below * box->edge[a] * sizeof(double)));
            QMP_msgmem_t ghost = QMP_declare_msgmem(box->ghost[face], bytes);
            parts[2 * face] = QMP_declare_send_relative(layer, a, sign, 0);
            parts[2 * face + 1] = QMP_declare_receive_relative(ghost, a, sign, 0);
            QMP_free_msgmem(layer);
            QMP_free_msgmem(ghost);
        }
    }
    box->faces = QMP_declare_multiple(parts, 4 * AXES);
    if (!box->faces)
        QMP_abort_string(2, (char *)QMP_get_error_string(NULL));
}

// The number in the whole lattice of a site here.
static int global(const struct box *box, const int *here, int i)
{
    int number = 0;
    for (int a = 0, scale = 1; a < AXES; scale *= lattice[a++]) {
        number += scale * (here[a] * box->edge[a] + i % box->edge[a]);
        i /= box->edge[a];
    }
    return number;
}

static double source(int number) { return sin(1.0 + number * 0.37); }

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS)
        return 1;
    if (QMP_layout_grid(lattice, AXES) != QMP_SUCCESS)
        QMP_abort_string(1, (char *)QMP_get_error_string(NULL));

    struct box whole = {.sites = 1}, part = {.sites = QMP_get_number_of_subgrid_sites()};
    for (int a = 0; a < AXES; a++) {
        whole.sites *= whole.edge[a] = lattice[a];
        part.edge[a] = QMP_get_subgrid_dimensions()[a];
    }
    const int *here = QMP_get_logical_coordinates();
    double *b = malloc(sizeof *b * whole.sites), *x = malloc(sizeof *x * whole.sites), *wanted = malloc(sizeof *wanted * whole.sites);
    double *p = QMP_get_memory_pointer(QMP_allocate_memory(sizeof *p * whole.sites));

    for (int i = 0; i < whole.sites; i++)
        b[i] = source(i);
    solve(&whole, wanted, b, p);

    declare_faces(&part, p);
    for (int i = 0; i < part.sites; i++)
        b[i] = source(global(&part, here, i));
    int steps = solve(&part, x, b, p);

    double worst = 0;
    for (int i = 0; i < part.sites; i++)
        worst = fmax(worst, fabs(x[i] - wanted[global(&part, here, i)]));
    QMP_max_double(&worst);
    if (QMP_is_primary_node())
        QMP_fprintf(stderr, "%d steps, largest difference to a single process: %.1e", steps, worst);
    QMP_free_msghandle(part.faces);
    if (worst < 1e-9)
        puts("ok");
    QMP_finalize_msg_passing();
    free(b);
    free(x);
    free(wanted);
    return worst < 1e-9 ? 0 : 1;
}
