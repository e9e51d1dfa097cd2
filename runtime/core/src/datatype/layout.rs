// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locations of an item's bytes: a tree no larger than the constructors that made it. Adjacent parts are merged,
//! and equal parts at equal distances are stored once.

use std::sync::Arc;

/// The locations of an item's bytes, relative to its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeLayout {
    /// Bytes without a gap.
    Dense {
        /// Displacement of the first byte.
        offset: i64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Equal parts at equal distances.
    Repeat {
        /// Displacement of the first repetition.
        offset: i64,
        /// Number of repetitions.
        count: u64,
        /// Distance between repetitions, in bytes.
        stride: i64,
        /// Bytes of data in one repetition.
        each: u64,
        /// Layout of one repetition.
        inner: Arc<Self>,
    },
    /// Parts in sequence.
    Sequence(Arc<LayoutSequence>),
}

/// The parts of a sequence. A part can be found by an offset in the dense bytes: the data without gaps.
#[derive(Debug, PartialEq, Eq)]
pub struct LayoutSequence {
    list: Box<[TypeLayout]>,
    /// The end of each part, as an offset in the dense bytes.
    ends: Box<[u64]>,
}

impl LayoutSequence {
    fn new(list: Vec<TypeLayout>) -> Self {
        let ends = list.iter().scan(0u64, |end, part| {
            *end = end.saturating_add(part.bytes());
            Some(*end)
        });
        Self {
            ends: ends.collect(),
            list: list.into(),
        }
    }

    /// The parts in order.
    #[must_use]
    pub fn list(&self) -> &[TypeLayout] {
        &self.list
    }

    /// The parts from the one that contains byte `skip` of the dense bytes on, and the offset of that byte in the first
    /// of these parts.
    #[must_use]
    pub fn from(&self, skip: u64) -> (&[TypeLayout], u64) {
        if skip == 0 {
            return (&self.list, 0);
        }
        let first = self.ends.partition_point(|end| *end <= skip);
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.list[first..], skip - start)
    }
}

impl TypeLayout {
    /// No bytes.
    pub(super) const EMPTY: Self = Self::Dense {
        offset: 0,
        bytes: 0,
    };

    /// Number of bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense { bytes, .. } => *bytes,
            Self::Repeat { count, each, .. } => count.saturating_mul(*each),
            Self::Sequence(parts) => parts.ends.last().copied().unwrap_or(0),
        }
    }

    /// This layout at a displacement larger by `by`; `None` on overflow.
    pub(super) fn moved(self, by: i64) -> Option<Self> {
        if by == 0 {
            return Some(self);
        }
        Some(match self {
            Self::Dense { offset, bytes } => Self::Dense {
                offset: offset.checked_add(by)?,
                bytes,
            },
            Self::Repeat {
                offset,
                count,
                stride,
                each,
                inner,
            } => Self::Repeat {
                offset: offset.checked_add(by)?,
                count,
                stride,
                each,
                inner,
            },
            Self::Sequence(_) => Self::Repeat {
                offset: by,
                count: 1,
                stride: 0,
                each: self.bytes(),
                inner: self.into(),
            },
        })
    }

    /// The distance to `next`, if `next` is this layout at another displacement; else `None`.
    fn distance_to(&self, next: &Self) -> Option<i64> {
        match (self, next) {
            (
                Self::Dense { offset, bytes },
                Self::Dense {
                    offset: there,
                    bytes: same,
                },
            ) if bytes == same => there.checked_sub(*offset),
            (
                Self::Repeat {
                    offset,
                    count,
                    stride,
                    inner,
                    ..
                },
                Self::Repeat {
                    offset: there,
                    count: same_count,
                    stride: same_stride,
                    inner: same,
                    ..
                },
            ) if count == same_count && stride == same_stride && inner == same => {
                there.checked_sub(*offset)
            }
            _ => None,
        }
    }
}

/// `count` repetitions of `inner`, in the simplest form. The caller must have checked that the size does not overflow.
pub(super) fn repeat(count: u64, stride: i64, inner: TypeLayout) -> TypeLayout {
    match inner {
        _ if count == 1 => inner,
        _ if count == 0 || inner.bytes() == 0 => TypeLayout::EMPTY,
        TypeLayout::Dense { offset, bytes } if i128::from(bytes) == i128::from(stride) => {
            TypeLayout::Dense {
                offset,
                bytes: bytes * count,
            }
        }
        TypeLayout::Repeat {
            offset,
            count: times,
            stride: step,
            each,
            inner,
        } if i128::from(step) * i128::from(times) == i128::from(stride) => TypeLayout::Repeat {
            offset,
            count: times * count,
            stride: step,
            each,
            inner,
        },
        _ => TypeLayout::Repeat {
            offset: 0,
            count,
            stride,
            each: inner.bytes(),
            inner: Arc::new(inner),
        },
    }
}

/// Appends a piece; merges it with the last piece if there is no gap between them.
pub(super) fn append(joined: &mut Vec<TypeLayout>, piece: TypeLayout) {
    match (joined.last_mut(), &piece) {
        (
            Some(TypeLayout::Dense { offset, bytes }),
            TypeLayout::Dense {
                offset: next,
                bytes: more,
            },
        ) if i128::from(*offset) + i128::from(*bytes) == i128::from(*next) => {
            *bytes += more;
        }
        _ => joined.push(piece),
    }
}

/// Joins pieces in sequence. Adjacent pieces are merged; equal pieces at equal distances become one `Repeat`.
pub(super) fn join(pieces: impl IntoIterator<Item = TypeLayout>) -> TypeLayout {
    let mut joined = Vec::new();
    for piece in pieces {
        append(&mut joined, piece);
    }
    fold(joined)
}

/// Makes one layout from pieces that were appended. Equal pieces at equal distances become one `Repeat`.
pub(super) fn fold(joined: Vec<TypeLayout>) -> TypeLayout {
    let mut joined = fold_runs(joined);
    match joined.len() {
        0 => TypeLayout::EMPTY,
        1 => joined.swap_remove(0),
        _ => TypeLayout::Sequence(Arc::new(LayoutSequence::new(joined))),
    }
}

/// Replaces each run of three or more equal pieces at equal distances by a `Repeat`; also a run of two, if there are no
/// other pieces.
fn fold_runs(pieces: Vec<TypeLayout>) -> Vec<TypeLayout> {
    let begins_run = |three: &[TypeLayout]| {
        let stride = three[0].distance_to(&three[1]);
        stride.is_some() && stride == three[1].distance_to(&three[2])
    };
    if pieces.len() > 2 && !pieces.windows(3).any(begins_run) {
        return pieces;
    }
    let mut folded = Vec::new();
    let mut rest = &pieces[..];
    while let [first, others @ ..] = rest {
        let stride = others.first().and_then(|next| first.distance_to(next));
        let same = rest
            .windows(2)
            .take_while(|two| stride.is_some() && two[0].distance_to(&two[1]) == stride)
            .count();
        let whole = same + 1;
        match stride {
            Some(stride) if whole >= 3 || whole == pieces.len() => {
                folded.push(repeat(whole as u64, stride, first.clone()));
                rest = &rest[whole..];
            }
            _ => {
                folded.push(first.clone());
                rest = others;
            }
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(offset: i64, bytes: u64) -> TypeLayout {
        TypeLayout::Dense { offset, bytes }
    }

    #[test]
    fn a_dense_offset_locates_its_part() {
        let TypeLayout::Sequence(parts) = join(vec![dense(0, 4), dense(10, 8), dense(30, 2)])
        else {
            panic!("three parts do not merge");
        };
        let found = |skip| {
            let (rest, into) = parts.from(skip);
            (rest.len(), into)
        };
        assert_eq!((found(0), found(3), found(4)), ((3, 0), (3, 3), (2, 0)));
        assert_eq!((found(11), found(12), found(14)), ((2, 7), (1, 0), (0, 0)));
    }

    #[test]
    fn nested_repeats_with_equal_strides_merge() {
        let column = repeat(4, 16, dense(0, 4));
        assert_eq!(repeat(3, 64, column.clone()), repeat(12, 16, dense(0, 4)));
        let apart = repeat(3, 80, column);
        assert!(matches!(
            apart,
            TypeLayout::Repeat {
                count: 3,
                each: 16,
                ..
            }
        ));
        assert_eq!(apart.bytes(), 48);
    }

    #[test]
    fn equidistant_sequences_fold_into_a_repeat() {
        let pair = join(vec![dense(0, 4), dense(8, 2)]);
        let at = |place: i64| pair.clone().moved(place).unwrap();
        let folded = join(vec![at(100), at(120), at(140), at(160)]);
        assert!(
            matches!(
                folded,
                TypeLayout::Repeat {
                    count: 4,
                    stride: 20,
                    ..
                }
            ),
            "{folded:?}"
        );
        assert_eq!(folded.bytes(), 24);
    }
}
