// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared by the examples in Rust: bindings to `qmp.h`, the part of a 4-D lattice on a node, and its faces, which are sent to the
//! neighbours.
//!
//! # Safety
//! The functions are called as `qmp.h` declares them; their memory outlives the messages.
#![allow(unsafe_code, reason = "calls C")]
#![allow(dead_code, reason = "each example uses a part")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};

unsafe extern "C" {
    fn QMP_init_msg_passing(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) -> c_int;
    fn QMP_finalize_msg_passing();
    fn QMP_get_error_string(message: *mut c_void) -> *const c_char;
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

/// Axes of the lattice.
pub const AXES: usize = 4;
/// Faces of a box. Along an axis, the lower face has the number 2 * axis, the upper face the number 2 * axis + 1.
pub const FACES: usize = 2 * AXES;
const LATTICE: [usize; AXES] = [8, 8, 8, 16];

/// An initialised QMP, finalised on drop.
pub struct Qmp;

impl Qmp {
    /// Initialises QMP.
    pub fn start() -> Self {
        let mut level = 0;
        // SAFETY: the command line may be NULL.
        must(unsafe { QMP_init_msg_passing(null_mut(), null_mut(), 0, &mut level) });
        Self
    }

    /// The sum over all nodes.
    pub fn sum(&self, mut value: f64) -> f64 {
        // SAFETY: one number.
        must(unsafe { QMP_sum_double(&mut value) });
        value
    }

    /// The largest value of all nodes.
    pub fn max(&self, mut value: f64) -> f64 {
        // SAFETY: one number.
        must(unsafe { QMP_max_double(&mut value) });
        value
    }
}

impl Drop for Qmp {
    fn drop(&mut self) {
        // SAFETY: no argument.
        unsafe { QMP_finalize_msg_passing() };
    }
}

fn must(status: c_int) {
    // SAFETY: NULL means the last operation, whose text is a string.
    let words = || unsafe { CStr::from_ptr(QMP_get_error_string(null_mut())) };
    assert_eq!(status, 0, "{}", words().to_string_lossy());
}

/// A box of sites, numbered such that the first axis runs fastest.
#[derive(Clone, Copy)]
pub struct LatticeBox {
    /// Dimensions of the box.
    pub edges: [usize; AXES],
    /// First site of the box in the lattice, which is a torus.
    corner: [usize; AXES],
}

impl LatticeBox {
    /// The whole lattice.
    pub fn whole() -> Self {
        Self { edges: LATTICE, corner: [0; AXES] }
    }

    /// The part on this node.
    pub fn part(_: &Qmp) -> Self {
        let dims = LATTICE.map(|edge| edge as c_int);
        // SAFETY: four numbers.
        must(unsafe { QMP_layout_grid(dims.as_ptr(), AXES as c_int) });
        // SAFETY: after the layout.
        let (edges, place) = (unsafe { QMP_get_subgrid_dimensions() }, unsafe { QMP_get_logical_coordinates() });
        // SAFETY: four numbers each.
        let (edges, place) = (unsafe { four(edges) }, unsafe { four(place) });
        Self { edges, corner: std::array::from_fn(|axis| edges[axis] * place[axis]) }
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.edges.iter().product()
    }

    /// Distance, in the memory of a field, between neighbours along an axis.
    pub fn step(&self, axis: usize) -> usize {
        self.edges[..axis].iter().product()
    }

    /// The number, in the whole lattice, of the site that is `distance` steps along an axis from the site `site` of
    /// this box.
    pub fn number(&self, site: usize, axis: usize, distance: isize) -> usize {
        let (mut number, mut scale, mut rest) = (0, 1, site);
        for a in 0..AXES {
            let moved = if a == axis { distance } else { 0 };
            let at = (self.corner[a] + rest % self.edges[a]) as isize + moved;
            number += scale * at.rem_euclid(LATTICE[a] as isize) as usize;
            scale *= LATTICE[a];
            rest /= self.edges[a];
        }
        number
    }
}

/// # Safety
/// `numbers` points to four numbers.
unsafe fn four(numbers: *const c_int) -> [usize; AXES] {
    // SAFETY: the caller's obligation.
    let numbers = unsafe { &*slice_from_raw_parts(numbers, AXES) };
    std::array::from_fn(|axis| numbers[axis] as usize)
}

/// A field whose faces are exchanged: sixteen messages with one handle.
pub struct HaloField {
    field: Vec<f64>,
    ghosts: Vec<Vec<f64>>,
    faces: *mut c_void,
}

impl HaloField {
    /// A field of zeros. Its layers are sent without packing.
    pub fn new(shape: &LatticeBox) -> Self {
        let mut all = Self { field: vec![0.0; shape.sites()], ghosts: Vec::new(), faces: null_mut() };
        let mut parts: Vec<*mut c_void> = (0..FACES).flat_map(|face| all.declare(shape, face)).collect();
        // SAFETY: an array of that many handles.
        all.faces = unsafe { QMP_declare_multiple(parts.as_mut_ptr(), parts.len() as c_int) };
        assert!(!all.faces.is_null(), "the faces cannot be declared");
        all
    }

    /// Declares the two messages of a face: its layer is sent, and the neighbour's layer is received.
    fn declare(&mut self, shape: &LatticeBox, face: usize) -> [*mut c_void; 2] {
        let (axis, is_upper) = (face / 2, face % 2 == 1);
        let (below, edge) = (shape.step(axis), shape.edges[axis]);
        let blocks = shape.sites() / below / edge;
        let first = if is_upper { below * (edge - 1) } else { 0 };
        let (axis, sign) = (axis as c_int, if is_upper { 1 } else { -1 });
        self.ghosts.push(vec![0.0; below * blocks]);
        let (layer, ghost) = (self.field[first..].as_mut_ptr(), self.ghosts[face].as_mut_ptr());
        let (block, distance) = (size_of::<f64>() * below, (size_of::<f64>() * below * edge) as isize);
        // SAFETY: the layer is in the field, whose memory is stable until the messages are freed.
        let out = unsafe { QMP_declare_strided_msgmem(layer.cast(), block, blocks as c_int, distance) };
        // SAFETY: a complete vector, whose memory is stable until the messages are freed.
        let inside = unsafe { QMP_declare_msgmem(ghost.cast(), block * blocks) };
        // SAFETY: handles that were just made; a failed declaration is reported when all are joined.
        let messages = unsafe { [QMP_declare_send_relative(out, axis, sign, 0), QMP_declare_receive_relative(inside, axis, sign, 0)] };
        for memory in [out, inside] {
            // SAFETY: the messages have copied the declaration.
            unsafe { QMP_free_msgmem(memory) };
        }
        messages
    }

    /// The field.
    pub fn field(&mut self) -> &mut [f64] {
        &mut self.field
    }

    /// Exchanges the faces while a function that only reads the field runs.
    pub fn exchange<R>(&mut self, meanwhile: impl FnOnce(&[f64]) -> R) -> R {
        // SAFETY: a valid handle; the field is only read until the wait.
        must(unsafe { QMP_start(self.faces) });
        let result = meanwhile(&self.field);
        // SAFETY: as above.
        must(unsafe { QMP_wait(self.faces) });
        result
    }

    /// The field, and the layer received from behind each face.
    pub fn parts(&self) -> (&[f64], &[Vec<f64>]) {
        (&self.field, &self.ghosts)
    }
}

impl Drop for HaloField {
    fn drop(&mut self) {
        // SAFETY: no message is in progress.
        unsafe { QMP_free_msghandle(self.faces) };
    }
}
