// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datatypes as byte layouts (MPI 5.0 chapter 5): the extent of an item, the locations of its bytes, its basic
//! elements.

mod basic;
mod combine;
mod external;
mod layout;
mod signature;

use layout::{join, repeat};

pub use basic::{Basic, BasicItem, Float, ScalarType};
pub use combine::{DarrayDimension, Dimension, Spread, TypeBlock};
pub use layout::{LayoutSequence, TypeLayout};
pub use signature::{Elements, TypeSignature};

/// A datatype in compiled form: sizes and displacements in bytes.
#[derive(Clone, Debug)]
pub struct Datatype {
    /// Bytes of data in one item.
    pub size: u64,
    /// Lower bound, in bytes.
    pub lb: i64,
    /// Extent: distance between consecutive items, in bytes.
    pub extent: i64,
    /// Displacement of the first byte of data.
    pub true_lb: i64,
    /// Distance from the first byte of data to the end of the last.
    pub true_extent: i64,
    /// The largest alignment of its elements, in bytes.
    pub align: u8,
    /// Nesting depth of its constructors, not counting those that only copy or change bounds.
    pub depth: u32,
    /// Whether the application has set the bounds. Then datatypes derived from this one do not pad their extent (MPI
    /// 5.0 section 5.1.6).
    pub resized: bool,
    /// The locations of the bytes.
    pub layout: TypeLayout,
    /// The basic datatypes of the elements, in the order of the type map.
    pub signature: TypeSignature,
}

impl Datatype {
    /// A predefined datatype.
    #[must_use]
    pub fn of_basic(basic: &Basic) -> Self {
        let (size, extent) = (u64::from(basic.size), i64::from(basic.extent));
        let layout = match basic.shape {
            BasicItem::Pair {
                value,
                index,
                index_at,
            } => {
                let piece = |offset: u8, bytes: u8| TypeLayout::Dense {
                    offset: offset.into(),
                    bytes: bytes.into(),
                };
                join(vec![
                    piece(0, value.bytes()),
                    piece(index_at, index.bytes()),
                ])
            }
            _ => TypeLayout::Dense {
                offset: 0,
                bytes: size,
            },
        };
        let true_extent = match basic.shape {
            BasicItem::Pair {
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
            align: basic.align,
            depth: 0,
            resized: false,
            layout,
            signature: TypeSignature::of_basic(basic),
        }
    }

    /// `count` items in sequence (`MPI_Type_contiguous`); `None` if the result is too large to describe.
    #[must_use]
    pub fn contiguous(&self, count: u64) -> Option<Self> {
        self.strided(count, 1, self.extent)
    }

    /// `count` blocks of `block` items, with `stride` bytes from the start of one block to that of the next
    /// (`MPI_Type_vector` with the stride in bytes). `None`: the result is too large to describe.
    #[must_use]
    pub fn strided(&self, count: u64, block: u64, stride: i64) -> Option<Self> {
        let items = count.checked_mul(block)?;
        if items == 0 || (self.size == 0 && !self.resized) {
            return Some(Self::empty());
        }
        let size = self.size.checked_mul(items)?;
        let last_in_block = i64::try_from(block - 1).ok()?.checked_mul(self.extent)?;
        let last_block = i64::try_from(count - 1).ok()?.checked_mul(stride)?;
        let low = 0.min(last_in_block).checked_add(0.min(last_block))?;
        let high = 0.max(last_in_block).checked_add(0.max(last_block))?;
        let span = high.checked_sub(low)?;
        let has_data = size > 0;
        let inner = repeat(block, self.extent, self.layout.clone());
        Self {
            size,
            lb: self.lb.checked_add(low)?,
            extent: self.extent.checked_add(span)?,
            true_lb: if has_data {
                self.true_lb.checked_add(low)?
            } else {
                0
            },
            true_extent: if has_data {
                self.true_extent.checked_add(span)?
            } else {
                0
            },
            align: self.align,
            depth: self.depth + 1,
            resized: self.resized,
            layout: repeat(count, stride, inner),
            signature: self.signature.repeat(items)?,
        }
        .padded()
    }

    /// This datatype with its extent enlarged so that consecutive items are aligned. If the application has set the
    /// bounds, the extent stays as it is (MPI 5.0 section 5.1.6).
    fn padded(self) -> Option<Self> {
        let align = i64::from(self.align);
        let rest = self.extent.rem_euclid(align);
        if self.resized || rest == 0 {
            return Some(self);
        }
        let extent = self.extent.checked_add(align - rest)?;
        Some(Self { extent, ..self })
    }

    /// The layout of `count` items.
    #[must_use]
    pub fn items(&self, count: u64) -> TypeLayout {
        repeat(count, self.extent, self.layout.clone())
    }

    /// `count` items as one contiguous range `(displacement, bytes)`; `None`: they have gaps.
    #[must_use]
    pub fn dense(&self, count: u64) -> Option<(i64, u64)> {
        match self.layout {
            TypeLayout::Dense { offset, bytes }
                if count <= 1 || i128::from(self.extent) == i128::from(bytes) =>
            {
                Some((offset, bytes.checked_mul(count)?))
            }
            _ if self.size == 0 || count == 0 => Some((0, 0)),
            _ => None,
        }
    }

    /// Number of basic elements in `bytes` bytes of received data; `None`: the data end inside an element (MPI 5.0
    /// section 5.1.11).
    #[must_use]
    pub fn elements(&self, bytes: u64) -> Option<u64> {
        if self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        let (more, rest) = self.signature.elements_in(bytes % self.size);
        let whole = (bytes / self.size).checked_mul(self.signature.elements)?;
        (rest == 0).then_some(whole.checked_add(more)?)
    }

    /// Bytes of `elements` basic elements from the start of an item: the inverse of [`elements`](Self::elements).
    #[must_use]
    pub fn bytes_of(&self, elements: u64) -> u64 {
        let per_item = self.signature.elements;
        if per_item == 0 {
            return 0;
        }
        (elements / per_item)
            .saturating_mul(self.size)
            .saturating_add(self.signature.bytes_of(elements % per_item))
    }

    fn empty() -> Self {
        Self {
            size: 0,
            lb: 0,
            extent: 0,
            true_lb: 0,
            true_extent: 0,
            align: 1,
            depth: 0,
            resized: false,
            layout: TypeLayout::EMPTY,
            signature: TypeSignature::empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int() -> Datatype {
        Datatype::of_basic(&Basic::of_scalar(ScalarType::Signed(4)))
    }

    fn double_int() -> Datatype {
        Datatype::of_basic(&Basic::of_pair(
            ScalarType::Float(Float::Double),
            ScalarType::Signed(4),
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
    fn an_empty_datatype_is_valid() {
        let none = int().strided(0, 5, 100).unwrap();
        assert_eq!(
            (none.size, none.dense(7), none.elements(0), none.elements(1)),
            (0, Some((0, 0)), Some(0), None)
        );
    }

    fn blocks(list: &[(u64, i64)], of: &Datatype) -> Datatype {
        let blocks = list.iter().map(|&(count, at)| TypeBlock { count, at, of });
        Datatype::blocks(blocks).unwrap()
    }

    #[test]
    fn adjacent_blocks_merge_and_equidistant_blocks_repeat() {
        let row = blocks(&[(2, 0), (3, 8), (1, 20)], &int());
        assert_eq!((row.extent, row.dense(2)), (24, Some((0, 48))));
        let far = blocks(&[(1, 8), (1, 24), (0, 1000), (1, 40)], &int());
        assert_eq!((far.lb, far.extent, far.size), (8, 36, 12));
        let TypeLayout::Repeat { count, stride, .. } = far.layout else {
            panic!("{:?}", far.layout);
        };
        assert_eq!((count, stride), (3, 16));
        let odd = blocks(&[(1, 0), (1, 12), (1, 20)], &int());
        assert!(matches!(odd.layout, TypeLayout::Sequence(parts) if parts.list().len() == 3));
    }

    #[test]
    fn resized_bounds_apply_to_derived_datatypes() {
        let wide = int().resized(-3, 12).unwrap();
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        let parts = [
            TypeBlock {
                count: 2,
                at: 0,
                of: &wide,
            },
            TypeBlock {
                count: 1,
                at: 100,
                of: &byte,
            },
        ];
        let made = Datatype::blocks(parts.into_iter()).unwrap();
        assert_eq!((made.lb, made.extent), (-3, 24));
        assert_eq!((made.true_lb, made.true_extent), (0, 101));
        assert_eq!(made.contiguous(2).unwrap().extent, 48);
    }

    #[test]
    fn a_structure_is_padded_to_its_alignment() {
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        let parts = [
            TypeBlock {
                count: 1,
                at: 0,
                of: &int(),
            },
            TypeBlock {
                count: 1,
                at: 4,
                of: &byte,
            },
        ];
        let made = Datatype::blocks(parts.into_iter()).unwrap();
        assert_eq!((made.size, made.extent, made.true_extent), (5, 8, 5));
        assert_eq!(
            (made.elements(6), made.elements(9), made.bytes_of(3)),
            (None, Some(3), 9)
        );
    }

    #[test]
    fn a_subarray_has_the_extent_of_the_whole_array() {
        let dimension = |size, part, start| Dimension { size, part, start };
        let part = int()
            .subarray(&[dimension(4, 2, 1), dimension(6, 3, 2)])
            .unwrap();
        assert_eq!((part.size, part.lb, part.extent), (24, 0, 96));
        assert_eq!((part.true_lb, part.true_extent), (32, 36));
    }

    #[test]
    fn overflowing_datatype_sizes_are_rejected() {
        assert!(int().strided(u64::MAX, 2, 4).is_none());
        assert!(int().strided(1 << 40, 1, i64::MAX / 2).is_none());
    }
}
