// SPDX-License-Identifier: MIT OR Apache-2.0
//! The predefined datatypes: a table indexed by handle, for the 256 numbers from 0x200 on.
//!
//! Sizes are those of C on Linux with 64-bit pointers; Fortran types without a size in their name have the default
//! sizes of Fortran compilers (4 bytes for `INTEGER`, `REAL` and `LOGICAL`). A test compares the sizes with the size
//! bits of the standard's handles (MPI 5.0 section 20.3).

use std::sync::{Arc, OnceLock};

use runtime::Datatype;
pub use runtime::datatype::{Basic, BasicItem, Float, ScalarType};

use crate::handle::{MPI_Datatype, predefined_name};

/// The first datatype number.
const FIRST: usize = MPI_Datatype::NULL.0;

/// The entries, indexed by handle minus 0x200.
pub const fn table() -> [Option<Basic>; 256] {
    let mut table = [None; 256];
    let mut at = 0;
    while at < SCALARS.len() {
        let (datatype, scalar) = SCALARS[at];
        let mut basic = Basic::of_scalar(scalar);
        basic.external = external(datatype, scalar.bytes());
        table[datatype.0 - FIRST] = Some(basic);
        at += 1;
    }
    at = 0;
    while at < PAIRS.len() {
        let (datatype, value, index) = PAIRS[at];
        let mut basic = Basic::of_pair(value, index);
        if datatype.0 == MPI_Datatype::LONG_INT.0 {
            basic.external = external(MPI_Datatype::LONG, value.bytes()) + index.bytes();
        }
        table[datatype.0 - FIRST] = Some(basic);
        at += 1;
    }
    table[MPI_Datatype::PACKED.0 - FIRST] = Some(Basic::packed());
    table
}

/// Size in external32 (MPI 5.0 section 14.5.2) in bytes; for some types it differs from the native size `bytes`.
const fn external(datatype: MPI_Datatype, bytes: u8) -> u8 {
    const LONG: usize = MPI_Datatype::LONG.0;
    const UNSIGNED_LONG: usize = MPI_Datatype::UNSIGNED_LONG.0;
    const WCHAR: usize = MPI_Datatype::WCHAR.0;
    match datatype.0 {
        LONG | UNSIGNED_LONG => 4,
        WCHAR => 2,
        _ => bytes,
    }
}

const fn sizes() -> [u8; 256] {
    let table = table();
    let mut sizes = [0; 256];
    let mut at = 0;
    while at < sizes.len() {
        if let Some(basic) = table[at]
            && basic.is_dense()
        {
            sizes[at] = basic.size;
        }
        at += 1;
    }
    sizes
}

static COMPILED: [OnceLock<Arc<Datatype>>; 256] = [const { OnceLock::new() }; 256];

static TABLE: [Option<Basic>; 256] = table();

/// Bytes of each contiguous predefined datatype, indexed by handle minus 0x200; 0 for all others.
pub static SIZES: [u8; 256] = sizes();

/// The predefined datatype of this handle.
#[inline]
pub fn basic(datatype: MPI_Datatype) -> Option<&'static Basic> {
    TABLE.get(datatype.0.wrapping_sub(FIRST))?.as_ref()
}

/// The layout of the predefined datatype of this handle.
pub fn datatype(datatype: MPI_Datatype) -> Option<Arc<Datatype>> {
    let basic = basic(datatype)?;
    let made = COMPILED.get(datatype.0.wrapping_sub(FIRST))?;
    Some(Arc::clone(
        made.get_or_init(|| Arc::new(Datatype::of_basic(basic))),
    ))
}

/// Bytes of one item of a contiguous predefined datatype; 0 for all others.
#[inline]
pub fn dense_size(datatype: MPI_Datatype) -> usize {
    SIZES
        .get(datatype.0.wrapping_sub(FIRST))
        .map_or(0, |size| usize::from(*size))
}

/// The initial name of a predefined datatype (MPI 5.0 section 7.8). If a datatype has two names, it is the name that
/// MPI 5.0 section 3.2.2 does not call a synonym.
pub fn name(datatype: MPI_Datatype) -> Option<&'static str> {
    match datatype {
        MPI_Datatype::LONG_LONG => Some("MPI_LONG_LONG_INT"),
        MPI_Datatype::C_FLOAT_COMPLEX => Some("MPI_C_COMPLEX"),
        _ => basic(datatype).and_then(|_| predefined_name(datatype.0)),
    }
}

const SCALARS: &[(MPI_Datatype, ScalarType)] = &[
    (MPI_Datatype::AINT, ScalarType::Signed(8)),
    (MPI_Datatype::COUNT, ScalarType::Signed(8)),
    (MPI_Datatype::OFFSET, ScalarType::Signed(8)),
    (MPI_Datatype::SHORT, ScalarType::Signed(2)),
    (MPI_Datatype::INT, ScalarType::Signed(4)),
    (MPI_Datatype::LONG, ScalarType::Signed(8)),
    (MPI_Datatype::LONG_LONG, ScalarType::Signed(8)),
    (MPI_Datatype::UNSIGNED_SHORT, ScalarType::Unsigned(2)),
    (MPI_Datatype::UNSIGNED, ScalarType::Unsigned(4)),
    (MPI_Datatype::UNSIGNED_LONG, ScalarType::Unsigned(8)),
    (MPI_Datatype::UNSIGNED_LONG_LONG, ScalarType::Unsigned(8)),
    (MPI_Datatype::FLOAT, ScalarType::Float(Float::Single)),
    (
        MPI_Datatype::C_FLOAT_COMPLEX,
        ScalarType::Complex(Float::Single),
    ),
    (
        MPI_Datatype::CXX_FLOAT_COMPLEX,
        ScalarType::Complex(Float::Single),
    ),
    (MPI_Datatype::DOUBLE, ScalarType::Float(Float::Double)),
    (
        MPI_Datatype::C_DOUBLE_COMPLEX,
        ScalarType::Complex(Float::Double),
    ),
    (
        MPI_Datatype::CXX_DOUBLE_COMPLEX,
        ScalarType::Complex(Float::Double),
    ),
    (MPI_Datatype::LOGICAL, ScalarType::Logical(4)),
    (MPI_Datatype::INTEGER, ScalarType::Signed(4)),
    (MPI_Datatype::REAL, ScalarType::Float(Float::Single)),
    (MPI_Datatype::COMPLEX, ScalarType::Complex(Float::Single)),
    (
        MPI_Datatype::DOUBLE_PRECISION,
        ScalarType::Float(Float::Double),
    ),
    (
        MPI_Datatype::DOUBLE_COMPLEX,
        ScalarType::Complex(Float::Double),
    ),
    (MPI_Datatype::CHARACTER, ScalarType::Char(1)),
    (MPI_Datatype::LONG_DOUBLE, ScalarType::Float(Float::Long)),
    (
        MPI_Datatype::C_LONG_DOUBLE_COMPLEX,
        ScalarType::Complex(Float::Long),
    ),
    (
        MPI_Datatype::CXX_LONG_DOUBLE_COMPLEX,
        ScalarType::Complex(Float::Long),
    ),
    (MPI_Datatype::C_BOOL, ScalarType::Logical(1)),
    (MPI_Datatype::CXX_BOOL, ScalarType::Logical(1)),
    (MPI_Datatype::WCHAR, ScalarType::Char(4)),
    (MPI_Datatype::INT8_T, ScalarType::Signed(1)),
    (MPI_Datatype::UINT8_T, ScalarType::Unsigned(1)),
    (MPI_Datatype::CHAR, ScalarType::Char(1)),
    (MPI_Datatype::SIGNED_CHAR, ScalarType::Signed(1)),
    (MPI_Datatype::UNSIGNED_CHAR, ScalarType::Unsigned(1)),
    (MPI_Datatype::BYTE, ScalarType::Byte),
    (MPI_Datatype::INT16_T, ScalarType::Signed(2)),
    (MPI_Datatype::UINT16_T, ScalarType::Unsigned(2)),
    (MPI_Datatype::INT32_T, ScalarType::Signed(4)),
    (MPI_Datatype::UINT32_T, ScalarType::Unsigned(4)),
    (MPI_Datatype::INT64_T, ScalarType::Signed(8)),
    (MPI_Datatype::UINT64_T, ScalarType::Unsigned(8)),
    (MPI_Datatype::LOGICAL1, ScalarType::Logical(1)),
    (MPI_Datatype::INTEGER1, ScalarType::Signed(1)),
    (MPI_Datatype::LOGICAL2, ScalarType::Logical(2)),
    (MPI_Datatype::INTEGER2, ScalarType::Signed(2)),
    (MPI_Datatype::REAL2, ScalarType::Float(Float::Half)),
    (MPI_Datatype::LOGICAL4, ScalarType::Logical(4)),
    (MPI_Datatype::INTEGER4, ScalarType::Signed(4)),
    (MPI_Datatype::REAL4, ScalarType::Float(Float::Single)),
    (MPI_Datatype::COMPLEX4, ScalarType::Complex(Float::Half)),
    (MPI_Datatype::LOGICAL8, ScalarType::Logical(8)),
    (MPI_Datatype::INTEGER8, ScalarType::Signed(8)),
    (MPI_Datatype::REAL8, ScalarType::Float(Float::Double)),
    (MPI_Datatype::COMPLEX8, ScalarType::Complex(Float::Single)),
    (MPI_Datatype::LOGICAL16, ScalarType::Logical(16)),
    (MPI_Datatype::INTEGER16, ScalarType::Signed(16)),
    (MPI_Datatype::REAL16, ScalarType::Float(Float::Quad)),
    (MPI_Datatype::COMPLEX16, ScalarType::Complex(Float::Double)),
    (MPI_Datatype::COMPLEX32, ScalarType::Complex(Float::Quad)),
];

const PAIRS: &[(MPI_Datatype, ScalarType, ScalarType)] = &[
    (
        MPI_Datatype::FLOAT_INT,
        ScalarType::Float(Float::Single),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::DOUBLE_INT,
        ScalarType::Float(Float::Double),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::LONG_INT,
        ScalarType::Signed(8),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::TWO_INT,
        ScalarType::Signed(4),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::SHORT_INT,
        ScalarType::Signed(2),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::LONG_DOUBLE_INT,
        ScalarType::Float(Float::Long),
        ScalarType::Signed(4),
    ),
    (
        MPI_Datatype::TWO_REAL,
        ScalarType::Float(Float::Single),
        ScalarType::Float(Float::Single),
    ),
    (
        MPI_Datatype::TWO_DOUBLE_PRECISION,
        ScalarType::Float(Float::Double),
        ScalarType::Float(Float::Double),
    ),
    (
        MPI_Datatype::TWO_INTEGER,
        ScalarType::Signed(4),
        ScalarType::Signed(4),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c::HANDLE_NAMES;

    #[test]
    fn the_table_has_exactly_the_datatypes_of_the_standard() {
        for bits in 0x1f0..0x310 {
            let named = HANDLE_NAMES.iter().any(|(number, _)| *number == bits);
            let datatype = (0x201..0x300).contains(&bits) && named;
            assert_eq!(basic(MPI_Datatype(bits)).is_some(), datatype, "{bits:#x}");
        }
        assert!(basic(MPI_Datatype(usize::MAX)).is_none());
    }

    #[test]
    fn the_size_code_in_a_datatype_handle_is_the_datatypes_size() {
        for bits in (0x240..0x300).filter(|bits| basic(MPI_Datatype(*bits)).is_some()) {
            let coded = 1 << ((bits >> 3) & 7);
            assert_eq!(
                dense_size(MPI_Datatype(bits)),
                coded,
                "{:?}",
                name(MPI_Datatype(bits))
            );
        }
    }

    #[test]
    fn pair_datatypes_have_the_layout_of_c_structs() {
        let layout = |datatype| {
            basic(datatype)
                .map(|b| (b.size, b.extent, b.align))
                .unwrap()
        };
        assert_eq!(layout(MPI_Datatype::SHORT_INT), (6, 8, 4));
        assert_eq!(layout(MPI_Datatype::DOUBLE_INT), (12, 16, 8));
        assert_eq!(layout(MPI_Datatype::LONG_DOUBLE_INT), (20, 32, 16));
        assert_eq!(layout(MPI_Datatype::TWO_INT), (8, 8, 4));
        assert_eq!(dense_size(MPI_Datatype::DOUBLE_INT), 0);
        assert_eq!(dense_size(MPI_Datatype::FLOAT_INT), 8);
    }

    #[test]
    fn external32_lengths_differ_from_native_lengths() {
        let external = |datatype| basic(datatype).unwrap().external;
        assert_eq!(external(MPI_Datatype::LONG), 4);
        assert_eq!(external(MPI_Datatype::LONG_INT), 8);
        assert_eq!(external(MPI_Datatype::WCHAR), 2);
        assert_eq!(external(MPI_Datatype::C_LONG_DOUBLE_COMPLEX), 32);
        assert_eq!(external(MPI_Datatype::SHORT_INT), 6);
        assert_eq!(external(MPI_Datatype::AINT), 8);
    }

    #[test]
    fn datatype_names_are_those_of_the_standard() {
        assert_eq!(name(MPI_Datatype::TWO_INT), Some("MPI_2INT"));
        assert_eq!(name(MPI_Datatype::LONG_LONG), Some("MPI_LONG_LONG_INT"));
        assert_eq!(name(MPI_Datatype::NULL), None);
    }
}
