// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predefined datatypes.

/// Properties of a predefined datatype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Basic {
    /// Bytes of data.
    pub size: u8,
    /// Distance between consecutive items, in bytes.
    pub extent: u8,
    /// Alignment in bytes.
    pub align: u8,
    /// Bytes of data in the external32 representation (MPI 5.0 section 14.5.2).
    pub external: u8,
    /// The type of its items, for arithmetic.
    pub shape: BasicItem,
}

impl Basic {
    /// A datatype of one number.
    #[must_use]
    pub const fn of_scalar(scalar: ScalarType) -> Self {
        let bytes = scalar.bytes();
        Self {
            size: bytes,
            extent: bytes,
            align: scalar.align(),
            external: bytes,
            shape: BasicItem::One(scalar),
        }
    }

    /// `struct { value; index; }` as C lays it out.
    #[must_use]
    pub const fn of_pair(value: ScalarType, index: ScalarType) -> Self {
        let index_at = value.bytes().next_multiple_of(index.align());
        let align = if value.align() > index.align() {
            value.align()
        } else {
            index.align()
        };
        Self {
            size: value.bytes() + index.bytes(),
            extent: (index_at + index.bytes()).next_multiple_of(align),
            align,
            external: value.bytes() + index.bytes(),
            shape: BasicItem::Pair {
                value,
                index,
                index_at,
            },
        }
    }

    /// `MPI_PACKED`.
    #[must_use]
    pub const fn packed() -> Self {
        Self {
            size: 1,
            extent: 1,
            align: 1,
            external: 1,
            shape: BasicItem::Packed,
        }
    }

    /// Whether consecutive items have no gap between them.
    #[must_use]
    pub const fn is_dense(&self) -> bool {
        self.size == self.extent
    }
}

/// The contents of an item of a basic datatype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BasicItem {
    /// One number.
    One(ScalarType),
    /// A value and its index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair {
        /// The value.
        value: ScalarType,
        /// The index.
        index: ScalarType,
        /// Offset of the index in bytes.
        index_at: u8,
    },
    /// `MPI_PACKED`.
    Packed,
}

/// The class of a number (MPI 5.0 section 6.9.2). A `u8` in a variant is the size in bytes; a [`Float`] is the format
/// of the number, or of each part of a complex number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScalarType {
    /// A signed integer.
    Signed(u8),
    /// An unsigned integer.
    Unsigned(u8),
    /// A floating-point number.
    Float(Float),
    /// A complex number: two floating-point numbers.
    Complex(Float),
    /// A truth value.
    Logical(u8),
    /// `MPI_BYTE`.
    Byte,
    /// A character. Reductions compute with it as with a signed integer.
    Char(u8),
}

/// A floating-point format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Float {
    /// IEEE binary16.
    Half,
    /// IEEE binary32.
    Single,
    /// IEEE binary64.
    Double,
    /// C's `long double`: on x86 the 80-bit format in 16 bytes, on other processors IEEE binary128.
    Long,
    /// IEEE binary128.
    Quad,
}

impl Float {
    /// Bytes of one number.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        match self {
            Self::Half => 2,
            Self::Single => 4,
            Self::Double => 8,
            Self::Long | Self::Quad => 16,
        }
    }
}

impl ScalarType {
    /// Bytes of one number.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        match self {
            Self::Signed(bytes)
            | Self::Unsigned(bytes)
            | Self::Logical(bytes)
            | Self::Char(bytes) => bytes,
            Self::Float(float) => float.bytes(),
            Self::Complex(float) => 2 * float.bytes(),
            Self::Byte => 1,
        }
    }

    /// Alignment of the number in C, in bytes.
    #[must_use]
    pub const fn align(self) -> u8 {
        match self {
            Self::Complex(float) => float.bytes(),
            other => other.bytes(),
        }
    }
}
