// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between the application's noncontiguous data and *dense* bytes: the data without gaps.
//!
//! # Safety
//! The rules of `user_buf.rs` apply here too. A [`Structured`] buffer is made by the C layer with the promise of a
//! `UserMemory` (MPI 5.0 section 5.1: the application describes its own memory), and only the bytes that its datatype
//! covers are accessed.
#![allow(unsafe_code)]

use transport::copy::copy;

use crate::datatype::{Datatype, TypeLayout};
use crate::user_buf::UserMemory;

/// `count` items of a noncontiguous datatype in the application's memory.
#[derive(Clone, Debug)]
pub struct Structured {
    base: UserMemory,
    bytes: u64,
    layout: TypeLayout,
}

impl Structured {
    /// Data that the application lends. Displacements are relative to `base`.
    ///
    /// # Safety
    /// As for [`UserMemory::new`], for every byte that `count` items of `datatype` cover.
    #[must_use]
    pub unsafe fn new(base: *mut u8, count: u64, datatype: &Datatype) -> Self {
        // SAFETY: the range has length zero, so nothing is promised here. `walk` accesses the bytes around it by the
        // promise of the caller.
        let base = unsafe { UserMemory::new(base, 0) };
        Self {
            base,
            bytes: datatype.size.saturating_mul(count),
            layout: datatype.items(count),
        }
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A copy of the data as dense bytes.
    #[must_use]
    pub fn pack(&self) -> Box<[u8]> {
        let mut packed = vec![0u8; usize::try_from(self.bytes()).unwrap_or(0)].into_boxed_slice();
        self.pack_at(0, &mut packed);
        packed
    }

    /// Packs the data from offset `position` in the dense bytes on, until `packed` is full or the data end.
    pub fn pack_at(&self, position: u64, packed: &mut [u8]) {
        self.walk(
            position,
            packed.as_mut_ptr(),
            packed.len(),
            PackDirection::Out,
        );
    }

    /// Unpacks dense bytes to the blocks of the data, until `packed` or the data end.
    pub fn unpack(&self, packed: &[u8]) {
        self.unpack_at(0, packed);
    }

    /// Unpacks dense bytes to the blocks of the data from offset `position` in the dense bytes on, until `packed` or
    /// the data end.
    pub fn unpack_at(&self, position: u64, packed: &[u8]) {
        self.walk(
            position,
            packed.as_ptr().cast_mut(),
            packed.len(),
            PackDirection::In,
        );
    }

    fn walk(&self, position: u64, packed: *mut u8, bytes: usize, direction: PackDirection) {
        if position >= self.bytes {
            return;
        }
        let mut cursor = PackCursor {
            packed,
            left: bytes,
            direction,
        };
        cursor.walk(&self.layout, position, self.base.base());
    }
}

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackDirection {
    /// From the blocks to the dense bytes.
    Out,
    /// From the dense bytes to the blocks.
    In,
}

/// The position in the dense bytes.
struct PackCursor {
    packed: *mut u8,
    left: usize,
    direction: PackDirection,
}

impl PackCursor {
    /// Copies the bytes of `layout`, without the first `skip` bytes, until the dense bytes end. `skip` must be less
    /// than the number of bytes of the layout.
    fn walk(&mut self, layout: &TypeLayout, skip: u64, base: *mut u8) {
        match layout {
            TypeLayout::Dense { offset, bytes } => {
                let place = shifted(base, *offset).wrapping_add(usize::try_from(skip).unwrap_or(0));
                self.copy(place, bytes - skip);
            }
            TypeLayout::Repeat {
                offset,
                count,
                stride,
                each,
                inner,
            } => {
                let row = RepeatedRow {
                    stride: *stride,
                    each: *each,
                    inner,
                };
                self.repeat(&row, *count, skip, shifted(base, *offset));
            }
            TypeLayout::Sequence(parts) => {
                let (parts, mut skip) = parts.from(skip);
                for part in parts {
                    if self.left == 0 {
                        return;
                    }
                    self.walk(part, skip, base);
                    skip = 0;
                }
            }
        }
    }

    fn repeat(&mut self, row: &RepeatedRow<'_>, count: u64, skip: u64, mut base: *mut u8) {
        let (mut count, mut skip) = (count, skip);
        if skip != 0 {
            let passed = skip / row.each;
            base = row.behind(base, passed);
            (count, skip) = (count - passed, skip % row.each);
        }
        if skip != 0 {
            self.walk(row.inner, skip, base);
            base = shifted(base, row.stride);
            count -= 1;
        }
        if let TypeLayout::Dense { offset, bytes } = row.inner {
            return self.repeat_dense(count, row.stride, *bytes, shifted(base, *offset));
        }
        for _ in 0..count {
            if self.left == 0 {
                return;
            }
            self.walk(row.inner, 0, base);
            base = shifted(base, row.stride);
        }
    }

    fn repeat_dense(&mut self, count: u64, stride: i64, bytes: u64, mut base: *mut u8) {
        let whole = count.min(self.left as u64 / bytes.max(1));
        // These lengths are the sizes of numbers and of short vectors. For blocks as short as these, a copy whose
        // length is not known at compile time takes several times as long.
        base = match bytes {
            1 => self.repeat_fixed::<1>(whole, stride, base),
            2 => self.repeat_fixed::<2>(whole, stride, base),
            4 => self.repeat_fixed::<4>(whole, stride, base),
            8 => self.repeat_fixed::<8>(whole, stride, base),
            12 => self.repeat_fixed::<12>(whole, stride, base),
            16 => self.repeat_fixed::<16>(whole, stride, base),
            24 => self.repeat_fixed::<24>(whole, stride, base),
            32 => self.repeat_fixed::<32>(whole, stride, base),
            48 => self.repeat_fixed::<48>(whole, stride, base),
            64 => self.repeat_fixed::<64>(whole, stride, base),
            _ if bytes.is_multiple_of(64) && bytes <= SHORT_BYTES => {
                self.repeat_lines(whole, stride, bytes / 64, base)
            }
            _ => {
                for _ in 0..whole {
                    self.copy(base, bytes);
                    base = shifted(base, stride);
                }
                base
            }
        };
        if whole < count {
            self.copy(base, bytes);
        }
    }

    /// Copies `count` blocks of `N` bytes. The dense bytes must have room for all of them. Returns the address of the
    /// next block.
    #[inline(always)]
    fn repeat_fixed<const N: usize>(&mut self, count: u64, stride: i64, base: *mut u8) -> *mut u8 {
        let stride = isize::try_from(stride).unwrap_or(0);
        match self.direction {
            PackDirection::Out => self.repeat_blocks::<N, false>(count, stride, base),
            PackDirection::In => self.repeat_blocks::<N, true>(count, stride, base),
        }
    }

    /// Copies blocks as [`repeat_fixed`](Self::repeat_fixed) does. `IN`: whether the direction is from the dense bytes
    /// to the blocks. Loop variables are locals: if they were fields of the cursor, the compiler would have to assume
    /// that the blocks overlap it.
    #[inline(never)]
    fn repeat_blocks<const N: usize, const IN: bool>(
        &mut self,
        count: u64,
        stride: isize,
        mut base: *mut u8,
    ) -> *mut u8 {
        let mut packed = self.packed;
        for _ in 0..count {
            let (from, to) = if IN { (packed, base) } else { (base, packed) };
            // SAFETY: as in `copy`: `N` bytes of the structure are accessed, and `count * N <= left` of the dense
            // bytes.
            let block = unsafe { from.cast::<[u8; N]>().read() };
            // SAFETY: as above.
            unsafe { to.cast::<[u8; N]>().write(block) };
            packed = packed.wrapping_add(N);
            base = base.wrapping_offset(stride);
        }
        self.left -= packed.addr() - self.packed.addr();
        self.packed = packed;
        base
    }

    /// Copies `count` blocks of a multiple of 64 bytes. The dense bytes must have room for all of them. Returns the
    /// address of the next block.
    fn repeat_lines(&mut self, count: u64, stride: i64, lines: u64, mut base: *mut u8) -> *mut u8 {
        for _ in 0..count {
            self.repeat_fixed::<64>(lines, 64, base);
            base = shifted(base, stride);
        }
        base
    }

    fn copy(&mut self, place: *mut u8, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.left);
        let (from, to) = self.ends(place);
        // SAFETY:
        // - the structure's side: `place` and `bytes` come from the datatype's layout, whose bytes are lent
        //   (`Structured::new`), readable for `Out`, writable for `In`.
        // - the dense side: `left` bytes from `packed` are inside the slice that `walk` was given, mutable for `Out`.
        // - no overlap: the dense bytes are in memory of the library, or in an arrived frame.
        unsafe { copy(from, to, bytes) };
        self.packed = self.packed.wrapping_add(bytes);
        self.left -= bytes;
    }

    fn ends(&self, place: *mut u8) -> (*const u8, *mut u8) {
        match self.direction {
            PackDirection::Out => (place, self.packed),
            PackDirection::In => (self.packed, place),
        }
    }
}

/// A repeated part of a layout.
struct RepeatedRow<'a> {
    stride: i64,
    /// Number of bytes of data in one repetition; never 0.
    each: u64,
    inner: &'a TypeLayout,
}

impl RepeatedRow<'_> {
    /// The start of repetition number `passed`, if `base` is that of number 0.
    fn behind(&self, base: *mut u8, passed: u64) -> *mut u8 {
        let passed = i64::try_from(passed).unwrap_or(0);
        shifted(base, passed.wrapping_mul(self.stride))
    }
}

/// For longer blocks than this, a copy whose length is not known at compile time is as fast as one of constant length.
const SHORT_BYTES: u64 = 1024;

fn shifted(base: *mut u8, offset: i64) -> *mut u8 {
    base.wrapping_offset(isize::try_from(offset).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Basic, Float, ScalarType, TypeBlock};

    fn structured(memory: &mut [u8], count: u64, datatype: Datatype) -> Structured {
        // SAFETY: the tests provide memory that covers the items and outlives the value.
        unsafe { Structured::new(memory.as_mut_ptr(), count, &datatype) }
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "numbers below 252")]
    fn packed_columns_unpack_to_the_same_bytes() {
        let mut matrix: Vec<u8> = (0..1024u32).map(|at| (at % 251) as u8 + 1).collect();
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        for width in [1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 100, 128] {
            let column = byte.strided(8, width, 128).unwrap();
            let packed = structured(&mut matrix, 1, column.clone()).pack();
            let expected: Vec<u8> = (0..8u64)
                .flat_map(|r| (0..width).map(move |c| ((r * 128 + c) % 251) as u8 + 1))
                .collect();
            assert_eq!(&packed[..], &expected[..], "width {width}");
            let mut back = vec![0u8; 1024];
            structured(&mut back, 1, column).unpack(&packed);
            let again: Vec<u8> = (0..8u64)
                .flat_map(|r| (0..width).map(move |c| r * 128 + c))
                .map(|i| back[usize::try_from(i).unwrap()])
                .collect();
            assert_eq!(again, expected);
            assert_eq!(
                back.iter().filter(|b| **b != 0).count(),
                expected.iter().filter(|b| **b != 0).count()
            );
        }
    }

    #[test]
    fn unpacking_a_short_message_fills_only_its_bytes() {
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        let column = byte.strided(4, 4, 8).unwrap();
        let mut memory = [9u8; 32];
        structured(&mut memory, 1, column).unpack(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(
            memory[..16],
            [1, 2, 3, 4, 9, 9, 9, 9, 5, 6, 9, 9, 9, 9, 9, 9]
        );
    }

    #[test]
    fn packed_pairs_have_no_padding() {
        let pair = Datatype::of_basic(&Basic::of_pair(
            ScalarType::Float(Float::Double),
            ScalarType::Signed(4),
        ));
        let mut memory: Vec<u8> = (0..32).collect();
        let packed = structured(&mut memory, 2, pair).pack();
        let expected: Vec<u8> = (0..12).chain(16..28).collect();
        assert_eq!(&packed[..], &expected[..]);
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "numbers below 252")]
    fn packing_any_window_equals_a_slice_of_the_whole() {
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        let column = byte.strided(5, 3, 7).unwrap();
        let parts = [
            TypeBlock {
                count: 2,
                at: 3,
                of: &column,
            },
            TypeBlock {
                count: 4,
                at: 100,
                of: &byte,
            },
            TypeBlock {
                count: 1,
                at: 140,
                of: &column,
            },
        ];
        let mixed = Datatype::blocks(parts.into_iter())
            .unwrap()
            .resized(0, 200)
            .unwrap();
        let mut memory: Vec<u8> = (0..600u32).map(|at| (at % 251) as u8 + 1).collect();
        let before = memory.clone();
        let data = structured(&mut memory, 3, mixed.clone());
        let whole = data.pack();
        let mut back = vec![0u8; 600];
        let target = structured(&mut back, 3, mixed);
        for start in 0..whole.len() {
            for length in [1, 2, 5, 16, 60, whole.len() - start] {
                let end = (start + length).min(whole.len());
                let mut window = vec![0u8; end - start];
                data.pack_at(start as u64, &mut window);
                assert_eq!(window, whole[start..end], "{start}..{end}");
                target.unpack_at(start as u64, &window);
            }
        }
        assert_eq!(target.pack(), whole);
        let touched = back.iter().filter(|byte| **byte != 0).count();
        assert_eq!(touched, whole.len());
        assert!(back.iter().zip(&before).all(|(b, a)| *b == 0 || b == a));
    }
}
