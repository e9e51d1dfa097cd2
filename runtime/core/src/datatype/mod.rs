// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datatypes as byte layouts (MPI 5.0 chapter 5): what an item covers, where its bytes lie, what it is made of.

mod basic;

use std::sync::Arc;

pub use basic::{Basic, Float, Scalar, Shape};

/// One basic element of a type signature: its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Bytes of each.
    pub bytes: u32,
    /// How many follow each other.
    pub count: u64,
}

/// A datatype, compiled: sizes and displacements in bytes.
#[derive(Clone, Debug)]
pub struct Datatype {
    /// Bytes of data in one item.
    pub size: u64,
    /// Lower bound.
    pub lb: i64,
    /// Distance from one item to the next.
    pub extent: i64,
    /// First byte of data.
    pub true_lb: i64,
    /// From the first byte of data to the last.
    pub true_extent: i64,
    /// Where the bytes lie.
    pub layout: Layout,
    /// What the bytes are, in the order of the type map.
    pub signature: Arc<[Element]>,
}

/// Where the bytes of an item lie, relative to its address.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// Bytes without a gap.
    Dense {
        /// Displacement of the first.
        offset: i64,
        /// How many.
        bytes: u64,
    },
    /// The same again and again.
    Repeat {
        /// How often.
        count: u64,
        /// Distance from one to the next.
        stride: i64,
        /// What.
        inner: Arc<Self>,
    },
    /// One after the other.
    Sequence(Arc<[Self]>),
}

impl Datatype {
    /// A predefined datatype.
    #[must_use]
    pub fn of_basic(basic: &Basic) -> Self {
        let (size, extent) = (u64::from(basic.size), i64::from(basic.extent));
        let (layout, signature) = match basic.shape {
            Shape::Pair {
                value,
                index,
                index_at,
            } => {
                let piece = |offset: u8, bytes: u8| Layout::Dense {
                    offset: offset.into(),
                    bytes: bytes.into(),
                };
                let pieces = [piece(0, value.bytes()), piece(index_at, index.bytes())];
                let element = |bytes: u8| Element {
                    bytes: bytes.into(),
                    count: 1,
                };
                (
                    join(pieces.to_vec()),
                    vec![element(value.bytes()), element(index.bytes())],
                )
            }
            _ => {
                let element = Element {
                    bytes: basic.size.into(),
                    count: 1,
                };
                (
                    Layout::Dense {
                        offset: 0,
                        bytes: size,
                    },
                    vec![element],
                )
            }
        };
        let true_extent = match basic.shape {
            Shape::Pair {
                index, index_at, ..
            } => i64::from(index_at) + i64::from(index.bytes()),
            _ => extent,
        };
        Self {
            size,
            lb: 0,
            extent,
            true_lb: 0,
            true_extent,
            layout,
            signature: signature.into(),
        }
    }

    /// `count` items one after the other (`MPI_Type_contiguous`); `None` if the result is too large to describe.
    #[must_use]
    pub fn contiguous(&self, count: u64) -> Option<Self> {
        self.strided(count, 1, self.extent)
    }

    /// `count` blocks of `block` items, `stride` bytes from one block's start to the next (`MPI_Type_vector` with the
    /// stride in bytes); `None` if the result is too large to describe.
    #[must_use]
    pub fn strided(&self, count: u64, block: u64, stride: i64) -> Option<Self> {
        let items = count.checked_mul(block)?;
        if items == 0 {
            return Some(Self::empty());
        }
        let last_in_block = i64::try_from(block - 1).ok()?.checked_mul(self.extent)?;
        let last_block = i64::try_from(count - 1).ok()?.checked_mul(stride)?;
        let low = 0.min(last_in_block).checked_add(0.min(last_block))?;
        let high = 0.max(last_in_block).checked_add(0.max(last_block))?;
        let span = high.checked_sub(low)?;
        let inner = repeat(block, self.extent, self.layout.clone());
        Some(Self {
            size: self.size.checked_mul(items)?,
            lb: self.lb.checked_add(low)?,
            extent: self.extent.checked_add(span)?,
            true_lb: self.true_lb.checked_add(low)?,
            true_extent: self.true_extent.checked_add(span)?,
            layout: repeat(count, stride, inner),
            signature: repeat_signature(&self.signature, items)?,
        })
    }

    /// Where `count` items lie.
    #[must_use]
    pub fn items(&self, count: u64) -> Layout {
        repeat(count, self.extent, self.layout.clone())
    }

    /// The whole as one stretch `(displacement, bytes)`, if `count` items have no gap.
    #[must_use]
    pub fn dense(&self, count: u64) -> Option<(i64, u64)> {
        match self.layout {
            Layout::Dense { offset, bytes }
                if count <= 1 || i128::from(self.extent) == i128::from(bytes) =>
            {
                Some((offset, bytes.checked_mul(count)?))
            }
            _ if self.size == 0 || count == 0 => Some((0, 0)),
            _ => None,
        }
    }

    /// Basic elements in `bytes` bytes of received data; `None` if they end inside an element (MPI 5.0 section 5.1.11).
    #[must_use]
    pub fn elements(&self, bytes: u64) -> Option<u64> {
        if self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        let per_item: u64 = self.signature.iter().map(|run| run.count).sum();
        let mut count = (bytes / self.size).checked_mul(per_item)?;
        let mut rest = bytes % self.size;
        for run in self.signature.iter() {
            let whole = (rest / u64::from(run.bytes.max(1))).min(run.count);
            count += whole;
            rest -= whole * u64::from(run.bytes);
            if whole < run.count {
                break;
            }
        }
        (rest == 0).then_some(count)
    }

    /// Bytes that `elements` basic elements have, from the start of an item: the inverse of [`elements`](Self::elements).
    #[must_use]
    pub fn bytes_of(&self, elements: u64) -> u64 {
        let per_item: u64 = self.signature.iter().map(|run| run.count).sum();
        if per_item == 0 {
            return 0;
        }
        let mut bytes = (elements / per_item).saturating_mul(self.size);
        let mut rest = elements % per_item;
        for run in self.signature.iter() {
            let taken = rest.min(run.count);
            bytes += taken * u64::from(run.bytes);
            rest -= taken;
        }
        bytes
    }

    fn empty() -> Self {
        Self {
            size: 0,
            lb: 0,
            extent: 0,
            true_lb: 0,
            true_extent: 0,
            layout: Layout::Dense {
                offset: 0,
                bytes: 0,
            },
            signature: Arc::new([]),
        }
    }
}

/// `count` times the same, in the simplest form.
fn repeat(count: u64, stride: i64, inner: Layout) -> Layout {
    match inner {
        _ if count == 1 => inner,
        Layout::Dense { offset, bytes } if i128::from(bytes) == i128::from(stride) => {
            Layout::Dense {
                offset,
                bytes: bytes * count,
            }
        }
        _ => Layout::Repeat {
            count,
            stride,
            inner: Arc::new(inner),
        },
    }
}

/// One after the other, neighbours without a gap merged.
fn join(pieces: Vec<Layout>) -> Layout {
    let mut joined: Vec<Layout> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (joined.last_mut(), &piece) {
            (
                Some(Layout::Dense { offset, bytes }),
                Layout::Dense {
                    offset: next,
                    bytes: more,
                },
            ) if i128::from(*offset) + i128::from(*bytes) == i128::from(*next) => {
                *bytes += more;
            }
            _ => joined.push(piece),
        }
    }
    match joined.len() {
        1 => joined.swap_remove(0),
        _ => Layout::Sequence(joined.into()),
    }
}

fn repeat_signature(signature: &Arc<[Element]>, times: u64) -> Option<Arc<[Element]>> {
    match &**signature {
        [] => Some(Arc::new([])),
        [only] => Some(Arc::new([Element {
            count: only.count.checked_mul(times)?,
            ..*only
        }])),
        // Mixed signatures stay as they are: `elements` takes them item by item.
        _ if times == 1 => Some(signature.clone()),
        _ => {
            let length = signature.len() as u64 * times;
            (length <= LONGEST_SIGNATURE).then(|| {
                let runs = (0..times).flat_map(|_| signature.iter().copied());
                runs.collect()
            })
        }
    }
}

const LONGEST_SIGNATURE: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn int() -> Datatype {
        Datatype::of_basic(&Basic::of_scalar(Scalar::Signed(4)))
    }

    fn double_int() -> Datatype {
        Datatype::of_basic(&Basic::of_pair(
            Scalar::Float(Float::Double),
            Scalar::Signed(4),
        ))
    }

    #[test]
    fn contiguous_types_are_dense() {
        let row = int().contiguous(10).unwrap();
        assert_eq!(
            (row.size, row.extent, row.dense(3)),
            (40, 40, Some((0, 120)))
        );
    }

    #[test]
    fn a_vector_has_gaps_and_the_extent_of_its_span() {
        let column = int().strided(3, 2, 16).unwrap();
        assert_eq!((column.size, column.extent, column.lb), (24, 40, 0));
        assert_eq!(column.dense(1), None);
        assert_eq!(column.elements(24), Some(6));
        assert_eq!(column.elements(23), None);
        let backwards = int().strided(3, 1, -8).unwrap();
        assert_eq!(
            (backwards.lb, backwards.extent, backwards.true_lb),
            (-16, 20, -16)
        );
    }

    #[test]
    fn pairs_count_two_elements_and_skip_padding() {
        let pair = double_int();
        assert_eq!((pair.size, pair.extent, pair.true_extent), (12, 16, 12));
        assert_eq!(
            (pair.elements(12), pair.elements(20), pair.elements(21)),
            (Some(2), Some(3), None)
        );
        assert_eq!(
            (pair.bytes_of(2), pair.bytes_of(3), pair.bytes_of(0)),
            (12, 20, 0)
        );
        assert_eq!(pair.dense(1), Some((0, 12)));
        assert_eq!(pair.dense(2), None);
    }

    #[test]
    fn nothing_is_a_type_too() {
        let none = int().strided(0, 5, 100).unwrap();
        assert_eq!(
            (none.size, none.dense(7), none.elements(0), none.elements(1)),
            (0, Some((0, 0)), Some(0), None)
        );
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(int().strided(u64::MAX, 2, 4).is_none());
        assert!(int().strided(1 << 40, 1, i64::MAX / 2).is_none());
    }
}
