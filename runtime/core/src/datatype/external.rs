// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts data to and from the external32 representation (MPI 5.0 section 14.5.2), which is big-endian, byte-aligned
//! and equal on every machine.

use super::basic::{Float, ScalarType};
use super::signature::TypeSignature;

impl TypeSignature {
    /// Converts `count` items to external32. `native`: their bytes without gaps. The result ends before the first element
    /// that is incomplete.
    #[must_use]
    pub fn encode(&self, count: u64, native: &[u8]) -> Vec<u8> {
        let mut from = native;
        let mut to = Vec::with_capacity(native.len());
        self.for_each_run(count, &mut |scalar, external, elements| {
            let turn = ElementConversion::of(scalar, external);
            for _ in 0..elements {
                let Some((element, rest)) = from.split_at_checked(turn.native) else {
                    // The elements of the next runs may be smaller than what is left.
                    from = &[];
                    return;
                };
                turn.encode(element, &mut to);
                from = rest;
            }
        });
        to
    }

    /// Converts `count` items from external32 to native bytes without gaps. `external` must have the bytes of `count`
    /// items; if it is shorter, the result ends before the first element that is incomplete.
    #[must_use]
    pub fn decode(&self, count: u64, external: &[u8]) -> Vec<u8> {
        let mut from = external;
        let mut to = Vec::with_capacity(external.len());
        self.for_each_run(count, &mut |scalar, bytes, elements| {
            let turn = ElementConversion::of(scalar, bytes);
            for _ in 0..elements {
                let Some((element, rest)) = from.split_at_checked(turn.external) else {
                    // The elements of the next runs may be smaller than what is left.
                    from = &[];
                    return;
                };
                turn.decode(element, &mut to);
                from = rest;
            }
        });
        to
    }
}

/// The conversion of an element to and from external32. The parts of a complex number are converted one after the
/// other.
struct ElementConversion {
    native: usize,
    external: usize,
    parts: usize,
    kind: ConversionKind,
}

/// What the conversion does apart from reversing the order of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConversionKind {
    /// Nothing: the number has the same format in external32.
    Plain,
    /// Extends the sign of a signed integer.
    Signed,
    /// Converts between the 80-bit float of x86 and a binary128, its format in external32.
    X87,
}

impl ElementConversion {
    fn of(scalar: ScalarType, external: u64) -> Self {
        let kind = match scalar {
            ScalarType::Signed(_) => ConversionKind::Signed,
            ScalarType::Float(Float::Long) | ScalarType::Complex(Float::Long) if IS_X87 => {
                ConversionKind::X87
            }
            _ => ConversionKind::Plain,
        };
        Self {
            native: scalar.bytes().into(),
            external: usize::try_from(external).unwrap_or(0),
            parts: if matches!(scalar, ScalarType::Complex(_)) {
                2
            } else {
                1
            },
            kind,
        }
    }

    fn encode(&self, element: &[u8], to: &mut Vec<u8>) {
        let length = self.external / self.parts;
        for part in element.chunks_exact(self.native / self.parts) {
            let value = match self.kind {
                ConversionKind::X87 => quad_of_x87(read_native(part, ConversionKind::Plain)),
                kind => read_native(part, kind),
            };
            to.extend_from_slice(&value.to_be_bytes()[16 - length..]);
        }
    }

    fn decode(&self, element: &[u8], to: &mut Vec<u8>) {
        let length = self.native / self.parts;
        for part in element.chunks_exact(self.external / self.parts) {
            let mut value = [extension(part.first(), self.kind); 16];
            value[16 - part.len()..].copy_from_slice(part);
            let value = u128::from_be_bytes(value);
            let value = match self.kind {
                ConversionKind::X87 => x87_of_quad(value),
                ConversionKind::Plain | ConversionKind::Signed => value,
            };
            if cfg!(target_endian = "big") {
                to.extend_from_slice(&value.to_be_bytes()[16 - length..]);
            } else {
                to.extend_from_slice(&value.to_le_bytes()[..length]);
            }
        }
    }
}

fn read_native(part: &[u8], kind: ConversionKind) -> u128 {
    if cfg!(target_endian = "big") {
        let mut value = [extension(part.first(), kind); 16];
        value[16 - part.len()..].copy_from_slice(part);
        return u128::from_be_bytes(value);
    }
    let mut value = [extension(part.last(), kind); 16];
    value[..part.len()].copy_from_slice(part);
    u128::from_le_bytes(value)
}

/// The byte by which a number is extended before its most significant byte.
fn extension(highest: Option<&u8>, kind: ConversionKind) -> u8 {
    match highest {
        Some(byte) if kind == ConversionKind::Signed && byte & 0x80 != 0 => 0xff,
        _ => 0,
    }
}

/// Converts an 80-bit float to a binary128, which does not store the leading bit of the significand. The 80-bit format
/// has 1 sign bit, 15 bits of exponent, and a significand with 1 bit before and 63 bits after the binary point.
fn quad_of_x87(value: u128) -> u128 {
    let (head, leading) = ((value >> 64) & 0xffff, (value >> 63) & 1);
    let fraction = value & LOW_63;
    // If an 80-bit float has exponent 0 and its leading bit is set, its value is the same as with exponent 1.
    let head = if head & 0x7fff == 0 {
        head | leading
    } else {
        head
    };
    head << 112 | fraction << QUAD_MORE_BITS
}

/// Converts a binary128 to the nearest 80-bit float; ties go to even.
fn x87_of_quad(value: u128) -> u128 {
    let (head, fraction) = (value >> 112, value & ((1 << 112) - 1));
    let exponent = head & 0x7fff;
    let (kept, lost) = (
        fraction >> QUAD_MORE_BITS,
        fraction & ((1 << QUAD_MORE_BITS) - 1),
    );
    if exponent == 0x7fff {
        // A NaN remains a NaN.
        let quiet = u128::from(fraction != 0) << 62;
        return head << 64 | 1 << 63 | kept | quiet;
    }
    let half = 1 << (QUAD_MORE_BITS - 1);
    let up = u128::from(lost > half || (lost == half && kept & 1 == 1));
    let rounded = (head << 63 | kept) + up;
    let (head, kept) = (rounded >> 63, rounded & LOW_63);
    head << 64 | u128::from(head & 0x7fff != 0) << 63 | kept
}

/// Number of fraction bits that a binary128 has in addition to those of an 80-bit float.
const QUAD_MORE_BITS: u32 = 112 - 63;
const LOW_63: u128 = (1 << 63) - 1;
const IS_X87: bool = cfg!(any(target_arch = "x86_64", target_arch = "x86"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Basic, Datatype, TypeBlock};

    fn basic(scalar: ScalarType, external: u8) -> Datatype {
        Datatype::of_basic(&Basic {
            external,
            ..Basic::of_scalar(scalar)
        })
    }

    #[test]
    fn external32_is_big_endian_with_4_byte_longs() {
        let (short, long) = (
            basic(ScalarType::Signed(2), 2),
            basic(ScalarType::Signed(8), 4),
        );
        let blocks =
            [(&short, 0, 2), (&long, 8, 1)].map(|(of, at, count)| TypeBlock { count, at, of });
        let both = Datatype::blocks(blocks.into_iter()).unwrap();
        let mut native = Vec::new();
        native.extend(0x0102i16.to_ne_bytes());
        native.extend((-2i16).to_ne_bytes());
        native.extend((-5i64).to_ne_bytes());
        let external = both.signature.encode(1, &native);
        assert_eq!(external, [1, 2, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfb]);
        assert_eq!(both.signature.external, 8);
        assert_eq!(both.signature.decode(1, &external), native);
        assert_eq!(both.signature.decode(1, &external[..5]).len(), 4);
    }

    #[test]
    fn external32_ends_before_an_incomplete_element_even_if_smaller_ones_follow() {
        let (long, byte) = (
            basic(ScalarType::Signed(8), 4),
            basic(ScalarType::Signed(1), 1),
        );
        let blocks =
            [(&long, 0, 1), (&byte, 8, 2)].map(|(of, at, count)| TypeBlock { count, at, of });
        let both = Datatype::blocks(blocks.into_iter()).unwrap();
        assert!(both.signature.decode(1, &[1, 2, 3]).is_empty());
        assert_eq!(both.signature.decode(2, &[0, 0, 0, 1, 2, 3, 4]).len(), 10);
        assert!(both.signature.encode(1, &[1, 2, 3]).is_empty());
    }

    #[test]
    fn external32_keeps_the_order_of_complex_parts() {
        let complex = basic(ScalarType::Complex(Float::Single), 8);
        let native: Vec<u8> = [1.5f32, -2.0]
            .iter()
            .flat_map(|x| x.to_ne_bytes())
            .collect();
        let external = complex.signature.encode(1, &native);
        let expected: Vec<u8> = [1.5f32, -2.0]
            .iter()
            .flat_map(|x| x.to_be_bytes())
            .collect();
        assert_eq!(external, expected);
        assert_eq!(complex.signature.decode(1, &external), native);
    }

    #[test]
    fn external32_converts_x87_to_quad_and_back() {
        // Values: 1.0, -2.5, the smallest normal number, the smallest denormal number, infinity.
        let known: [(u128, u128); 5] = [
            (0x3fff_8000_0000_0000_0000, 0x3fff << 112),
            (0xc000_a000_0000_0000_0000, 0xc000_4000 << 96),
            (0x0001_8000_0000_0000_0000, 1 << 112),
            (1, 1 << 49),
            (0x7fff_8000_0000_0000_0000, 0x7fff << 112),
        ];
        for (x87, quad) in known {
            assert_eq!(quad_of_x87(x87), quad, "{x87:#x}");
            assert_eq!(x87_of_quad(quad), x87, "{quad:#x}");
        }
        let nan = x87_of_quad(0x7fff << 112 | 1);
        assert_eq!(nan >> 62, 0x7fff << 2 | 3);
        // Two ties, which go to even, and a carry into the exponent.
        assert_eq!(
            x87_of_quad(0x3fff << 112 | 1 << 48),
            0x3fff_8000_0000_0000_0000
        );
        assert_eq!(
            x87_of_quad(0x3fff << 112 | 3 << 48),
            0x3fff_8000_0000_0000_0002
        );
        assert_eq!(
            x87_of_quad(0x3fff << 112 | ((1 << 112) - 1)),
            0x4000_8000_0000_0000_0000
        );
    }
}
