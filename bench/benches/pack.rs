// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares packing and unpacking of strided vectors with loops that a user would write by hand.
//!
//! # Safety
//! The datatypes are used on a matrix of this file, which covers them (asserted) and outlives the measurement.
#![allow(
    unsafe_code,
    missing_docs,
    reason = "the runtime is given plain memory, as the C layer does; criterion's macros make functions without docs"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use runtime::datatype::{Basic, Float, ScalarType};
use runtime::{Datatype, Structured};

const DOUBLE_BYTES: usize = size_of::<f64>();

/// `MPI_Type_vector(count, block, stride, MPI_DOUBLE)`.
#[derive(Clone, Copy)]
struct Vector {
    name: &'static str,
    count: usize,
    block: usize,
    stride: usize,
}

const VECTORS: &[Vector] = &[
    Vector {
        name: "column of a matrix, 1024 x 1 of 64",
        count: 1024,
        block: 1,
        stride: 64,
    },
    Vector {
        name: "every second double, 4096 x 1 of 2",
        count: 4096,
        block: 1,
        stride: 2,
    },
    Vector {
        name: "3 of 5, 2048 x 3 of 5",
        count: 2048,
        block: 3,
        stride: 5,
    },
    Vector {
        name: "face of a lattice, 64 x 64 of 1024",
        count: 64,
        block: 64,
        stride: 1024,
    },
];

impl Vector {
    fn datatype(self) -> Datatype {
        let double = Datatype::of_basic(&Basic::of_scalar(ScalarType::Float(Float::Double)));
        let stride = i64::try_from(self.stride * DOUBLE_BYTES).expect("a small stride");
        double
            .strided(self.count as u64, self.block as u64, stride)
            .expect("a small vector")
    }

    fn matrix(self) -> Vec<f64> {
        let length = u32::try_from(self.count * self.stride).expect("a small matrix");
        (0..length).map(f64::from).collect()
    }

    /// The matrix as a [`Structured`], which must not be used after the matrix is gone.
    fn lend(self, matrix: &mut [f64]) -> Structured {
        let datatype = self.datatype();
        let covered = usize::try_from(datatype.true_extent).expect("no gap in front");
        assert!(datatype.true_lb == 0 && covered <= size_of_val(matrix));
        // SAFETY: the single item begins at the start of the matrix and ends inside it, as asserted. While callers use
        // the returned value, they keep the matrix, and do not read or write it in any other way.
        unsafe { Structured::new(matrix.as_mut_ptr().cast(), 1, &datatype) }
    }

    fn pack_by_hand(self, matrix: &[f64]) -> Box<[f64]> {
        let mut packed = vec![0.0; self.count * self.block].into_boxed_slice();
        if self.block == 1 {
            let column = matrix.iter().step_by(self.stride);
            packed.iter_mut().zip(column).for_each(|(to, x)| *to = *x);
            return packed;
        }
        let rows = matrix.chunks_exact(self.stride);
        for (to, from) in packed.chunks_exact_mut(self.block).zip(rows) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
        packed
    }

    fn unpack_by_hand(self, packed: &[f64], matrix: &mut [f64]) {
        if self.block == 1 {
            let column = matrix.iter_mut().step_by(self.stride);
            column.zip(packed).for_each(|(to, x)| *to = *x);
            return;
        }
        let rows = matrix.chunks_exact_mut(self.stride);
        for (from, to) in packed.chunks_exact(self.block).zip(rows) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
    }
}

fn bytes_of(numbers: &[f64]) -> Box<[u8]> {
    numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn pack(c: &mut Criterion) {
    for vector in VECTORS {
        let mut group = c.benchmark_group(format!("pack/{}", vector.name));
        group.throughput(Throughput::Bytes(vector.datatype().size));
        let mut matrix = vector.matrix();
        let by_hand = bytes_of(&vector.pack_by_hand(&matrix));
        let structured = vector.lend(&mut matrix);
        assert_eq!(structured.pack(), by_hand);
        group.bench_function("datatype", |b| b.iter(|| black_box(&structured).pack()));
        group.bench_function("loop", |b| {
            b.iter(|| vector.pack_by_hand(black_box(&matrix)));
        });
        group.finish();
    }
}

fn unpack(c: &mut Criterion) {
    for vector in VECTORS {
        let mut group = c.benchmark_group(format!("unpack/{}", vector.name));
        group.throughput(Throughput::Bytes(vector.datatype().size));
        let packed = vector.pack_by_hand(&vector.matrix());
        let (bytes, empty) = (bytes_of(&packed), vec![0.0; vector.count * vector.stride]);
        let (mut by_datatype, mut by_hand) = (empty.clone(), empty);
        vector.unpack_by_hand(&packed, &mut by_hand);
        let structured = vector.lend(&mut by_datatype);
        group.bench_function("datatype", |b| {
            b.iter(|| structured.unpack(black_box(&bytes)));
        });
        // This call unpacks once more for the comparison below, because a filter on the benchmark's command line may
        // have skipped the measurement.
        structured.unpack(&bytes);
        drop(structured);
        assert_eq!(by_datatype, by_hand);
        group.bench_function("loop", |b| {
            b.iter(|| vector.unpack_by_hand(black_box(&packed), black_box(&mut by_hand)));
        });
        group.finish();
    }
}

criterion_group!(benches, pack, unpack);
criterion_main!(benches);
