// SPDX-License-Identifier: MIT OR Apache-2.0
//! As `qmp_cg.c`, in Rust through the C interface: conjugate gradients for (m^2 - Laplace) x = b on a 4-D lattice.
//! `rustc -O qmp_cg_rust.rs -L lib -l qmp` builds it.
//!
//! # Safety
//! The functions are called as `qmp.h` declares them; what they get lives until the messages are freed.
#![allow(unsafe_code, reason = "calls C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

unsafe extern "C" {
    fn QMP_init_msg_passing(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) -> c_int;
    fn QMP_finalize_msg_passing();
    fn QMP_layout_grid(dims: *const c_int, ndim: c_int) -> c_int;
    fn QMP_get_subgrid_dimensions() -> *const c_int;
    fn QMP_get_logical_coordinates() -> *const c_int;
    fn QMP_declare_msgmem(base: *const c_void, bytes: usize) -> *mut c_void;
    fn QMP_declare_strided_msgmem(base: *mut c_void, bytes: usize, blocks: c_int, stride: isize) -> *mut c_void;
    fn QMP_declare_send_relative(memory: *mut c_void, axis: c_int, sign: c_int, priority: c_int) -> *mut c_void;
    fn QMP_declare_receive_relative(memory: *mut c_void, axis: c_int, sign: c_int, priority: c_int) -> *mut c_void;
    fn QMP_declare_multiple(parts: *mut *mut c_void, count: c_int) -> *mut c_void;
    fn QMP_free_msgmem(memory: *mut c_void);
    fn QMP_free_msghandle(message: *mut c_void);
    fn QMP_start(message: *mut c_void) -> c_int;
    fn QMP_wait(message: *mut c_void) -> c_int;
    fn QMP_sum_double(value: *mut f64) -> c_int;
    fn QMP_max_double(value: *mut f64) -> c_int;
}

const AXES: usize = 4;
const LATTICE: [usize; AXES] = [8; AXES];
const MASS2: f64 = 0.25;
const STEPS: usize = 500;

/// A box of sites, the first axis fastest. Without neighbours it is a torus by itself.
struct Part {
    edges: [usize; AXES],
    ghosts: Vec<Vec<f64>>,
    faces: *mut c_void,
}

impl Part {
    fn new(edges: [usize; AXES]) -> Self {
        Self {
            edges,
            ghosts: Vec::new(),
            faces: null_mut(),
        }
    }

    fn sites(&self) -> usize {
        self.edges.iter().product()
    }

    /// From now on the layers of this field travel: sixteen messages with one handle.
    fn connect(&mut self, field: &mut [f64]) {
        let mut parts = Vec::new();
        for axis in 0..AXES {
            let (below, edge) = (self.edges[..axis].iter().product::<usize>(), self.edges[axis]);
            let above = self.sites() / below / edge;
            for (sign, layer) in [(-1, 0), (1, below * (edge - 1))] {
                let mut room = vec![0.0; below * above];
                let ghost = room.as_mut_ptr();
                self.ghosts.push(room);
                let first = field.as_mut_ptr().wrapping_add(layer).cast();
                // SAFETY: the layer lies in the field, `above` blocks of it.
                let out = unsafe { QMP_declare_strided_msgmem(first, below * 8, above as c_int, (below * edge * 8) as isize) };
                // SAFETY: the whole vector.
                let inside = unsafe { QMP_declare_msgmem(ghost.cast(), below * above * 8) };
                // SAFETY: handles that were just made.
                parts.push(unsafe { QMP_declare_send_relative(out, axis as c_int, sign, 0) });
                // SAFETY: as above.
                parts.push(unsafe { QMP_declare_receive_relative(inside, axis as c_int, sign, 0) });
                // SAFETY: the messages know the memory by themselves now.
                unsafe { QMP_free_msgmem(out) };
                // SAFETY: as above.
                unsafe { QMP_free_msgmem(inside) };
            }
        }
        // SAFETY: as many handles as are said.
        self.faces = unsafe { QMP_declare_multiple(parts.as_mut_ptr(), parts.len() as c_int) };
        assert!(!self.faces.is_null(), "the faces cannot be declared");
    }

    fn apply(&self, result: &mut [f64], field: *const f64) {
        if !self.faces.is_null() {
            // SAFETY: a live handle; the field is left alone until the wait.
            assert_eq!(unsafe { QMP_start(self.faces) }, 0);
            // SAFETY: as above.
            assert_eq!(unsafe { QMP_wait(self.faces) }, 0);
        }
        // SAFETY: the field has as many sites, and nobody changes it now.
        let field = unsafe { std::slice::from_raw_parts(field, self.sites()) };
        for (site, result) in result.iter_mut().enumerate() {
            let around = (0..2 * AXES).map(|face| self.neighbour(field, site, face / 2, face % 2 == 1));
            *result = (MASS2 + 2.0 * AXES as f64) * field[site] - around.sum::<f64>();
        }
    }

    fn neighbour(&self, field: &[f64], site: usize, axis: usize, up: bool) -> f64 {
        let (below, edge) = (self.edges[..axis].iter().product::<usize>(), self.edges[axis]);
        let at = site / below % edge;
        let to = if up { (at + 1) % edge } else { (at + edge - 1) % edge };
        let leaves = if up { at + 1 == edge } else { at == 0 };
        if leaves && !self.faces.is_null() {
            return self.ghosts[2 * axis + usize::from(up)][site % below + site / (below * edge) * below];
        }
        field[site - at * below + to * below]
    }

    fn product(&self, a: &[f64], b: &[f64]) -> f64 {
        let mut sum = a.iter().zip(b).map(|(a, b)| a * b).sum();
        if !self.faces.is_null() {
            // SAFETY: one number.
            assert_eq!(unsafe { QMP_sum_double(&mut sum) }, 0);
        }
        sum
    }

    /// The number in the whole lattice of a site here.
    fn global(&self, here: &[usize; AXES], site: usize) -> usize {
        let (mut number, mut scale, mut rest) = (0, 1, site);
        for axis in 0..AXES {
            number += scale * (here[axis] * self.edges[axis] + rest % self.edges[axis]);
            scale *= LATTICE[axis];
            rest /= self.edges[axis];
        }
        number
    }
}

fn solve(part: &Part, b: &[f64], p: &mut [f64]) -> Vec<f64> {
    let (mut x, mut r, mut q) = (vec![0.0; b.len()], b.to_vec(), vec![0.0; b.len()]);
    p.copy_from_slice(b);
    let mut now = part.product(&r, &r);
    let enough = 1e-24 * now;
    for _ in 0..STEPS {
        if now <= enough {
            break;
        }
        part.apply(&mut q, p.as_ptr());
        let alpha = now / part.product(p, &q);
        for site in 0..b.len() {
            x[site] += alpha * p[site];
            r[site] -= alpha * q[site];
        }
        let before = now;
        now = part.product(&r, &r);
        for site in 0..b.len() {
            p[site] = r[site] + now / before * p[site];
        }
    }
    x
}

/// Four numbers that the library keeps.
fn four(numbers: *const c_int) -> [usize; AXES] {
    // SAFETY: one number of each axis.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, AXES) };
    std::array::from_fn(|axis| numbers[axis] as usize)
}

fn main() {
    let mut level = 0;
    // SAFETY: there may be no command line.
    assert_eq!(unsafe { QMP_init_msg_passing(null_mut(), null_mut(), 0, &mut level) }, 0);
    let dims = LATTICE.map(|edge| edge as c_int);
    // SAFETY: four numbers.
    assert_eq!(unsafe { QMP_layout_grid(dims.as_ptr(), AXES as c_int) }, 0);
    // SAFETY: after the layout.
    let (edges, here) = (unsafe { QMP_get_subgrid_dimensions() }, unsafe { QMP_get_logical_coordinates() });
    assert!(edges != null() && here != null());
    let (whole, mut part, here) = (Part::new(LATTICE), Part::new(four(edges)), four(here));

    let all: Vec<f64> = (0..whole.sites()).map(|site| (1.0 + site as f64 * 0.37).sin()).collect();
    let wanted = solve(&whole, &all, &mut vec![0.0; all.len()]);
    let mine: Vec<f64> = (0..part.sites()).map(|site| all[part.global(&here, site)]).collect();
    let mut p = vec![0.0; mine.len()];
    part.connect(&mut p);
    let x = solve(&part, &mine, &mut p);

    let difference = |site: usize| (x[site] - wanted[part.global(&here, site)]).abs();
    let mut worst = (0..x.len()).map(difference).fold(0.0, f64::max);
    // SAFETY: one number.
    assert_eq!(unsafe { QMP_max_double(&mut worst) }, 0);
    assert!(worst < 1e-9, "the largest difference to a single process is {worst:e}");
    // SAFETY: nothing is under way.
    unsafe { QMP_free_msghandle(part.faces) };
    println!("ok");
    // SAFETY: the last call.
    unsafe { QMP_finalize_msg_passing() };
}
