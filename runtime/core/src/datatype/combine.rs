// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datatypes of several blocks: indexed datatypes, structures, subarrays, and datatypes that only change the bounds.

use super::layout::{append, fold, repeat};
use super::{Datatype, TypeSignature};

/// One block of a datatype.
#[derive(Clone, Copy, Debug)]
pub struct TypeBlock<'a> {
    /// Number of items.
    pub count: u64,
    /// Displacement of the first item, in bytes.
    pub at: i64,
    /// Datatype of the items.
    pub of: &'a Datatype,
}

/// One dimension of an array and of a part of it (MPI 5.0 section 5.1.3).
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    /// Number of items in the whole array.
    pub size: u64,
    /// Number of items in the part.
    pub part: u64,
    /// Index of the first item of the part.
    pub start: u64,
}

/// One dimension of a distributed array, and a process in it (MPI 5.0 section 5.1.4).
#[derive(Clone, Copy, Debug)]
pub struct DarrayDimension {
    /// Number of items in the whole array.
    pub size: u64,
    /// The distribution.
    pub spread: Spread,
    /// Number of processes along this dimension.
    pub processes: u64,
    /// Index of the process along this dimension.
    pub process: u64,
}

/// The distribution of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Not distributed: each process has all items.
    None,
    /// One block of this length for each process.
    Block(u64),
    /// Blocks of this length for the processes in turn, cyclically.
    Cyclic(u64),
}

/// Lower and upper bound, in bytes.
#[derive(Clone, Copy)]
struct ExtentBounds(i64, i64);

impl Datatype {
    /// Blocks in sequence (`MPI_Type_indexed` and its variants, `MPI_Type_create_struct`). `None`: the result is too
    /// large to describe.
    pub fn blocks<'a>(blocks: impl Iterator<Item = TypeBlock<'a>>) -> Option<Self> {
        let (mut marked, mut plain, mut data): (
            Option<ExtentBounds>,
            Option<ExtentBounds>,
            Option<ExtentBounds>,
        ) = (None, None, None);
        let (mut pieces, mut items, mut align) = (Vec::new(), Vec::new(), 1);
        let (mut size, mut depth) = (0u64, 0);
        for TypeBlock { count, at, of } in blocks {
            if count == 0 || (of.size == 0 && !of.resized) {
                continue;
            }
            size = size.checked_add(of.size.checked_mul(count)?)?;
            let last = i64::try_from(count - 1).ok()?.checked_mul(of.extent)?;
            let (low, high) = (at.checked_add(last.min(0))?, at.checked_add(last.max(0))?);
            let spread = |lower: i64, extent: i64| {
                let upper = lower.checked_add(extent)?.checked_add(high)?;
                Some(ExtentBounds(lower.checked_add(low)?, upper))
            };
            let ends = spread(of.lb, of.extent)?;
            if of.resized {
                marked = Some(wider(marked, ends));
            } else {
                plain = Some(wider(plain, ends));
            }
            if of.size > 0 {
                data = Some(wider(data, spread(of.true_lb, of.true_extent)?));
                let block = repeat(count, of.extent, of.layout.clone());
                append(&mut pieces, block.moved(at)?);
                more_items(&mut items, count, of)?;
            }
            align = align.max(of.align);
            depth = depth.max(of.depth + 1);
        }
        let Some(ExtentBounds(lb, ub)) = marked.or(plain) else {
            return Some(Self::empty());
        };
        let ExtentBounds(true_lb, true_ub) = data.unwrap_or(ExtentBounds(0, 0));
        Self {
            size,
            lb,
            extent: ub.checked_sub(lb)?,
            true_lb,
            true_extent: true_ub.checked_sub(true_lb)?,
            align,
            depth,
            resized: marked.is_some(),
            layout: fold(pieces),
            signature: signature_of(&items)?,
        }
        .padded()
    }

    /// A part of an array (`MPI_Type_create_subarray`), with the extent of the whole array. `dimensions`: the first
    /// varies slowest, the last fastest. `None`: the result is too large to describe.
    #[must_use]
    pub fn subarray(&self, dimensions: &[Dimension]) -> Option<Self> {
        let mut made = self.clone();
        let (mut stride, mut at) = (self.extent, 0i64);
        for dimension in dimensions.iter().rev() {
            made = made.strided(dimension.part, 1, stride)?;
            let start = i64::try_from(dimension.start).ok()?;
            at = at.checked_add(start.checked_mul(stride)?)?;
            stride = stride.checked_mul(i64::try_from(dimension.size).ok()?)?;
        }
        Self {
            true_lb: made.true_lb.checked_add(at)?,
            layout: made.layout.moved(at)?,
            ..made
        }
        .resized(0, stride)
    }

    /// The part of a distributed array that one process has (`MPI_Type_create_darray`), with the extent of the whole
    /// array. `dimensions`: the first varies slowest, the last fastest. `None`: the result is too large to describe.
    #[must_use]
    pub fn share(&self, dimensions: &[DarrayDimension]) -> Option<Self> {
        let mut made = self.clone();
        let mut stride = self.extent;
        for dimension in dimensions.iter().rev() {
            made = dimension.of(&made.resized(0, stride)?)?;
            stride = stride.checked_mul(i64::try_from(dimension.size).ok()?)?;
        }
        made.resized(0, stride)
    }

    /// The same data with other bounds (`MPI_Type_create_resized`).
    #[must_use]
    pub fn resized(&self, lb: i64, extent: i64) -> Option<Self> {
        lb.checked_add(extent)?;
        Some(Self {
            lb,
            extent,
            resized: true,
            ..self.clone()
        })
    }
}

impl DarrayDimension {
    /// The items that the process has in this dimension. `item`: the datatype of the items of the dimension.
    fn of(&self, item: &Datatype) -> Option<Datatype> {
        let (length, turns) = match self.spread {
            Spread::None => return item.contiguous(self.size),
            Spread::Block(length) => (length, 1),
            Spread::Cyclic(length) => (length, u64::MAX),
        };
        let start = self.process.checked_mul(length)?;
        let round = self.processes.checked_mul(length)?;
        let behind = self.size.saturating_sub(start);
        // Number of whole blocks of this process, and the number of items of a last block that is not whole.
        let whole = ((behind + (round - length)) / round).min(turns);
        let rest = (behind - (whole * round).min(behind)).min(length);
        let rest = if whole < turns { rest } else { 0 };
        let at = |items: u64| i64::try_from(items).ok()?.checked_mul(item.extent);
        let stretches = item.strided(whole, length, at(round)?)?;
        Datatype::blocks(
            [
                TypeBlock {
                    count: 1,
                    at: at(start)?,
                    of: &stretches,
                },
                TypeBlock {
                    count: rest,
                    at: at(start.checked_add(whole.checked_mul(round)?)?)?,
                    of: item,
                },
            ]
            .into_iter(),
        )
    }
}

/// Adds `count` items of a datatype. If the previous block has the same datatype, the two are merged.
fn more_items<'a>(
    items: &mut Vec<(u64, &'a Datatype)>,
    count: u64,
    of: &'a Datatype,
) -> Option<()> {
    match items.last_mut() {
        Some((known, last)) if std::ptr::eq(*last, of) => *known = known.checked_add(count)?,
        _ => items.push((count, of)),
    }
    Some(())
}

fn signature_of(items: &[(u64, &Datatype)]) -> Option<TypeSignature> {
    let parts: Option<Vec<TypeSignature>> = items
        .iter()
        .map(|(count, of)| of.signature.repeat(*count))
        .collect();
    TypeSignature::sequence(parts?)
}

fn wider(known: Option<ExtentBounds>, more: ExtentBounds) -> ExtentBounds {
    known.map_or(more, |known| {
        ExtentBounds(known.0.min(more.0), known.1.max(more.1))
    })
}
