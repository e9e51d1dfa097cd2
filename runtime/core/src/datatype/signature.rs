// SPDX-License-Identifier: MIT OR Apache-2.0
//! Type signatures (MPI 5.0 section 5.1): the basic elements of an item in order, whatever their displacements are.

use std::sync::Arc;

use super::basic::{Basic, BasicItem, ScalarType};

/// A type signature: the basic elements of an item, as a tree no larger than the constructors that made it.
#[derive(Clone, Debug)]
pub struct TypeSignature {
    /// Number of bytes of all elements.
    pub bytes: u64,
    /// Number of bytes of all elements in the external32 representation (MPI 5.0 section 14.5.2).
    pub external: u64,
    /// Number of elements.
    pub elements: u64,
    /// The types of the elements.
    pub shape: Elements,
}

/// The contents of a signature.
#[derive(Clone, Debug)]
pub enum Elements {
    /// One element.
    One(ScalarType),
    /// A signature repeated this many times.
    Repeat(u64, Arc<TypeSignature>),
    /// Signatures in sequence.
    Sequence(Arc<[TypeSignature]>),
}

impl TypeSignature {
    /// The empty signature.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            bytes: 0,
            external: 0,
            elements: 0,
            shape: Elements::Sequence(Arc::new([])),
        }
    }

    /// The signature of a predefined datatype.
    #[must_use]
    pub fn of_basic(basic: &Basic) -> Self {
        let one = |scalar: ScalarType, external: u8| Self {
            bytes: scalar.bytes().into(),
            external: external.into(),
            elements: 1,
            shape: Elements::One(scalar),
        };
        match basic.shape {
            BasicItem::One(scalar) => one(scalar, basic.external),
            BasicItem::Packed => one(ScalarType::Byte, 1),
            BasicItem::Pair { value, index, .. } => {
                let external = index.bytes();
                let parts = [one(value, basic.external - external), one(index, external)];
                Self {
                    bytes: basic.size.into(),
                    external: basic.external.into(),
                    elements: 2,
                    shape: Elements::Sequence(parts.into()),
                }
            }
        }
    }

    /// This signature repeated `times` times; `None` on overflow.
    #[must_use]
    pub fn repeat(&self, times: u64) -> Option<Self> {
        if times == 1 {
            return Some(self.clone());
        }
        if times == 0 || self.elements == 0 {
            return Some(Self::empty());
        }
        let (count, inner) = match &self.shape {
            Elements::Repeat(count, inner) => (count.checked_mul(times)?, inner.clone()),
            _ => (times, Arc::new(self.clone())),
        };
        Some(Self {
            bytes: self.bytes.checked_mul(times)?,
            external: self.external.checked_mul(times)?,
            elements: self.elements.checked_mul(times)?,
            shape: Elements::Repeat(count, inner),
        })
    }

    /// Signatures in sequence; `None` on overflow.
    #[must_use]
    pub fn sequence(parts: Vec<Self>) -> Option<Self> {
        let sum = |what: fn(&Self) -> u64| {
            parts
                .iter()
                .try_fold(0u64, |sum, part| sum.checked_add(what(part)))
        };
        let (bytes, elements) = (sum(|part| part.bytes)?, sum(|part| part.elements)?);
        let external = sum(|part| part.external)?;
        let mut parts = parts;
        parts.retain(|part| part.elements > 0);
        if parts.len() == 1 {
            return parts.pop();
        }
        Some(Self {
            bytes,
            external,
            elements,
            shape: Elements::Sequence(parts.into()),
        })
    }

    /// The number of whole elements in the first `bytes` bytes, and the number of bytes after the last whole element.
    #[must_use]
    pub fn elements_in(&self, bytes: u64) -> (u64, u64) {
        if bytes >= self.bytes {
            return (self.elements, bytes - self.bytes);
        }
        match &self.shape {
            Elements::One(_) => (0, bytes),
            Elements::Repeat(_, inner) => {
                let whole = bytes / inner.bytes;
                let (more, rest) = inner.elements_in(bytes % inner.bytes);
                (whole * inner.elements + more, rest)
            }
            Elements::Sequence(parts) => {
                let (mut elements, mut left) = (0, bytes);
                for part in parts.iter() {
                    let (more, rest) = part.elements_in(left);
                    elements += more;
                    left = rest;
                    if more < part.elements {
                        break;
                    }
                }
                (elements, left)
            }
        }
    }

    /// Bytes of the first `elements` elements.
    #[must_use]
    pub fn bytes_of(&self, elements: u64) -> u64 {
        if elements >= self.elements {
            return self.bytes;
        }
        match &self.shape {
            Elements::One(_) => 0,
            Elements::Repeat(_, inner) => {
                (elements / inner.elements) * inner.bytes
                    + inner.bytes_of(elements % inner.elements)
            }
            Elements::Sequence(parts) => {
                let (mut bytes, mut left) = (0, elements);
                for part in parts.iter() {
                    bytes += part.bytes_of(left);
                    left = left.saturating_sub(part.elements);
                }
                bytes
            }
        }
    }

    /// Calls `each` for every run of equal elements in `times` items, in order: with their type, the bytes of each
    /// element in external32, and their number.
    pub fn for_each_run(&self, times: u64, each: &mut dyn FnMut(ScalarType, u64, u64)) {
        match &self.shape {
            Elements::One(scalar) => each(*scalar, self.external, times),
            Elements::Repeat(count, inner) => inner.for_each_run(count.saturating_mul(times), each),
            Elements::Sequence(parts) => {
                for _ in 0..times {
                    for part in parts.iter() {
                        part.for_each_run(1, each);
                    }
                }
            }
        }
    }
}
