// SPDX-License-Identifier: MIT OR Apache-2.0
//! Like `qmp_cg.c`, but in Rust through the C interface: conjugate gradients for (m^2 - Laplace) x = b on a 4-D
//! lattice. `rustc --edition 2024 -O qmp_cg_rust.rs -L lib -l qmp` builds it.

mod qmp_lattice;

use qmp_lattice::{HaloField, FACES, Qmp, LatticeBox};

const MASS2: f64 = 0.25;
const STEPS: usize = 500;

/// The operations that differ between the whole lattice in one process and a part of it on each node.
trait LatticeOperator {
    /// The field that the operator is applied to.
    fn field(&mut self) -> &mut [f64];
    fn apply(&mut self, result: &mut [f64]);
    fn sum(&self, mine: f64) -> f64;
}

struct Single {
    shape: LatticeBox,
    field: Vec<f64>,
}

impl LatticeOperator for Single {
    fn field(&mut self) -> &mut [f64] {
        &mut self.field
    }

    fn apply(&mut self, result: &mut [f64]) {
        inner(result, &self.field);
        outer(result, &self.shape, &self.field, |_, _, inside| self.field[inside]);
    }

    fn sum(&self, mine: f64) -> f64 {
        mine
    }
}

struct LatticeNode<'a> {
    qmp: &'a Qmp,
    shape: LatticeBox,
    faces: HaloField,
}

impl LatticeOperator for LatticeNode<'_> {
    fn field(&mut self) -> &mut [f64] {
        self.faces.field()
    }

    fn apply(&mut self, result: &mut [f64]) {
        self.faces.exchange(|field| inner(result, field));
        let (field, ghosts) = self.faces.parts();
        outer(result, &self.shape, field, |face, behind, _| ghosts[face][behind]);
    }

    fn sum(&self, mine: f64) -> f64 {
        self.qmp.sum(mine)
    }
}

/// The part of the operator that needs no neighbour.
fn inner(result: &mut [f64], field: &[f64]) {
    for (result, at) in result.iter_mut().zip(field) {
        *result = (MASS2 + FACES as f64) * at;
    }
}

/// The part of the operator with neighbours. `beyond` returns the value at a neighbour outside the box. Its arguments
/// are the face, the neighbour's number on the face, and the site on the opposite side of the box. If the box is the
/// whole torus, this site is the neighbour.
fn outer(result: &mut [f64], shape: &LatticeBox, field: &[f64], beyond: impl Fn(usize, usize, usize) -> f64) {
    for (site, result) in result.iter_mut().enumerate() {
        for face in 0..FACES {
            let (axis, is_upper) = (face / 2, face % 2 == 1);
            let (below, edge) = (shape.step(axis), shape.edges[axis]);
            let at = site / below % edge;
            *result -= match (at, is_upper) {
                (0, false) => beyond(face, site % below + site / (below * edge) * below, site + below * (edge - 1)),
                (_, true) if at + 1 == edge => beyond(face, site % below + site / (below * edge) * below, site - below * at),
                (_, false) => field[site - below],
                (_, true) => field[site + below],
            };
        }
    }
}

fn solve(machine: &mut impl LatticeOperator, b: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let (mut x, mut r, mut q) = (vec![0.0; b.len()], b.to_vec(), vec![0.0; b.len()]);
    machine.field().copy_from_slice(b);
    let mut now = machine.sum(dot(&r, &r));
    let enough = 1e-24 * now;
    for _ in 0..STEPS {
        if now <= enough {
            break;
        }
        machine.apply(&mut q);
        let product = dot(machine.field(), &q);
        let alpha = now / machine.sum(product);
        for (site, p) in machine.field().iter().enumerate() {
            x[site] += alpha * p;
            r[site] -= alpha * q[site];
        }
        let before = now;
        now = machine.sum(dot(&r, &r));
        for (p, r) in machine.field().iter_mut().zip(&r) {
            *p = r + now / before * *p;
        }
    }
    x
}

fn main() {
    let qmp = Qmp::start();
    let whole = LatticeBox::whole();
    let all: Vec<f64> = (0..whole.sites()).map(|site| (1.0 + site as f64 * 0.37).sin()).collect();
    let wanted = solve(&mut Single { shape: whole, field: vec![0.0; whole.sites()] }, &all);

    let shape = LatticeBox::part(&qmp);
    let mine: Vec<f64> = (0..shape.sites()).map(|site| all[shape.number(site, 0, 0)]).collect();
    let x = solve(&mut LatticeNode { qmp: &qmp, shape, faces: HaloField::new(&shape) }, &mine);

    let difference = |site: usize| (x[site] - wanted[shape.number(site, 0, 0)]).abs();
    let worst = qmp.max((0..x.len()).map(difference).fold(0.0, f64::max));
    assert!(worst < 1e-9, "the largest difference to a single process is {worst:e}");
    println!("ok");
}
