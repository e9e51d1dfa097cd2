// SPDX-License-Identifier: MIT OR Apache-2.0
//! Like `qmp_halo.c`, but in Rust through the C interface: the faces of a 4-D lattice are sent to all neighbours,
//! directly from the field. `rustc --edition 2024 -O qmp_halo_rust.rs -L lib -l qmp` builds it.

mod qmp_lattice;

use qmp_lattice::{HaloField, FACES, Qmp, LatticeBox};

/// The value at a site of the whole lattice.
fn value(number: usize, round: usize) -> f64 {
    1e5 * round as f64 + number as f64
}

/// Number of sites behind a face that differ from those of a single process.
fn wrong(shape: &LatticeBox, ghost: &[f64], face: usize, round: usize) -> usize {
    let (axis, is_upper) = (face / 2, face % 2 == 1);
    let (below, edge) = (shape.step(axis), shape.edges[axis]);
    let is_wrong = |site: &usize| {
        let first = site % below + site / below * below * edge;
        let distance = if is_upper { edge as isize } else { -1 };
        ghost[*site] != value(shape.number(first, axis, distance), round)
    };
    (0..ghost.len()).filter(is_wrong).count()
}

fn main() {
    let qmp = Qmp::start();
    let shape = LatticeBox::part(&qmp);
    let mut faces = HaloField::new(&shape);
    for round in 0..10 {
        for (site, at) in faces.field().iter_mut().enumerate() {
            *at = value(shape.number(site, 0, 0), round);
        }
        faces.exchange(|_| ());
        let (_, ghosts) = faces.parts();
        let wrong: usize = (0..FACES).map(|face| wrong(&shape, &ghosts[face], face, round)).sum();
        assert_eq!(wrong, 0, "sites of the faces are wrong in round {round}");
    }
    drop(faces);
    println!("ok");
}
