// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles: the numbers that C programs use for objects.
//!
//! A predefined handle is a number of the standard below 4096 (`MPI_Comm::WORLD`, generated from the standard's data
//! into `gen/constants.rs`). Any other handle packs the kind, the generation and the index of the object's slot:
//!
//! | bits   | field      | range |
//! |--------|------------|-----|
//! | 27..31 | kind       | 1 to 11 ([`HandleKind`]). So such a handle is at least 2^27, and differs from all handles of other kinds |
//! | 19..27 | generation | 0 to 255. It differs for successive objects in a slot, so that a freed handle is detected |
//! | 0..19  | index      | up to 524,288 objects of a kind |
//!
//! All handles fit in the 31 bits of a positive C `int`, so `MPI_Comm_toint` and similar functions are casts. No handle
//! is a pointer: a number that is not the handle of a live object causes an error, not undefined behaviour.
#![allow(non_camel_case_types, reason = "the standard's names")]

use core::ffi::c_int;

use crate::c::HANDLE_NAMES;
use crate::error::ErrorClass;

/// `MPI_Aint`: an address or a distance in bytes.
pub type MPI_Aint = isize;
/// `MPI_Count`.
pub type MPI_Count = i64;
/// `MPI_Offset`: a position in a file.
pub type MPI_Offset = i64;

/// The kind of a handle's object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HandleKind {
    /// A communicator.
    Comm = 1,
    /// A group.
    Group = 2,
    /// A datatype.
    Datatype = 3,
    /// A request.
    Request = 4,
    /// A reduction operation.
    Op = 5,
    /// An error handler.
    Errhandler = 6,
    /// An info object.
    Info = 7,
    /// A matched message.
    Message = 8,
    /// A window.
    Win = 9,
    /// A file.
    File = 10,
    /// A session.
    Session = 11,
}

impl HandleKind {
    const ALL: [Self; 11] = [
        Self::Comm,
        Self::Group,
        Self::Datatype,
        Self::Request,
        Self::Op,
        Self::Errhandler,
        Self::Info,
        Self::Message,
        Self::Win,
        Self::File,
        Self::Session,
    ];

    /// The noun in error messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Comm => "communicator",
            Self::Group => "group",
            Self::Datatype => "datatype",
            Self::Request => "request",
            Self::Op => "operation",
            Self::Errhandler => "error handler",
            Self::Info => "info object",
            Self::Message => "message",
            Self::Win => "window",
            Self::File => "file",
            Self::Session => "session",
        }
    }

    /// The noun with its article.
    pub const fn a_noun(self) -> &'static str {
        match self {
            Self::Comm => "a communicator",
            Self::Group => "a group",
            Self::Datatype => "a datatype",
            Self::Request => "a request",
            Self::Op => "an operation",
            Self::Errhandler => "an error handler",
            Self::Info => "an info object",
            Self::Message => "a message",
            Self::Win => "a window",
            Self::File => "a file",
            Self::Session => "a session",
        }
    }

    /// The class of an error about a handle of this kind.
    pub const fn error_class(self) -> ErrorClass {
        match self {
            Self::Comm => ErrorClass::COMM,
            Self::Group => ErrorClass::GROUP,
            Self::Datatype => ErrorClass::TYPE,
            // MPI 5.0 section 9.4 has no class for messages. A matched message is much like a receive request.
            Self::Request | Self::Message => ErrorClass::REQUEST,
            Self::Op => ErrorClass::OP,
            Self::Errhandler => ErrorClass::ERRHANDLER,
            Self::Info => ErrorClass::INFO,
            Self::Win => ErrorClass::WIN,
            Self::File => ErrorClass::FILE,
            Self::Session => ErrorClass::SESSION,
        }
    }

    /// The kind of the handle with this value, predefined or not; `None` if it is not a handle.
    pub fn of(bits: usize) -> Option<Self> {
        match bits {
            0x20..=0x3f => Some(Self::Op),
            0x100..=0x107 => Some(Self::Comm),
            0x108..=0x10f => Some(Self::Group),
            0x110..=0x117 => Some(Self::Win),
            0x118..=0x11f => Some(Self::File),
            0x120..=0x127 => Some(Self::Session),
            0x128..=0x12f => Some(Self::Message),
            0x130..=0x137 => Some(Self::Info),
            0x140..=0x147 => Some(Self::Errhandler),
            0x180..=0x187 => Some(Self::Request),
            0x200..=0x2ff => Some(Self::Datatype),
            _ => Self::ALL
                .into_iter()
                .find(|kind| bits >> KIND_SHIFT == *kind as usize),
        }
    }
}

/// A handle type.
pub trait Handle: Copy + PartialEq {
    /// The kind of the objects of these handles.
    const KIND: HandleKind;
    /// The handle with this value.
    fn from_bits(bits: usize) -> Self;
    /// The value of the handle.
    fn bits(self) -> usize;
}

macro_rules! handles {
    ($($name:ident is $kind:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl Handle for $name {
            const KIND: HandleKind = HandleKind::$kind;
            fn from_bits(bits: usize) -> Self {
                Self(bits)
            }
            fn bits(self) -> usize {
                self.0
            }
        }
    )*};
}

handles! {
    MPI_Comm is Comm,
    MPI_Group is Group,
    MPI_Datatype is Datatype,
    MPI_Request is Request,
    MPI_Op is Op,
    MPI_Errhandler is Errhandler,
    MPI_Info is Info,
    MPI_Message is Message,
    MPI_Win is Win,
    MPI_File is File,
    MPI_Session is Session,
}

macro_rules! tool_handles {
    ($($name:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($name), "`, of the tool interface.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub usize);
    )*};
}

tool_handles! {
    MPI_T_enum,
    MPI_T_cvar_handle,
    MPI_T_pvar_handle,
    MPI_T_pvar_session,
    MPI_T_event_registration,
    MPI_T_event_instance,
}

const KIND_SHIFT: u32 = 27;
const GENERATION_SHIFT: u32 = 19;
const INDEX_MASK: usize = (1 << GENERATION_SHIFT) - 1;

/// Maximum number of objects of one kind at a time.
pub const MAX_OBJECTS: usize = INDEX_MASK + 1;

/// The index and generation in a handle that is not predefined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleParts {
    /// Index of the slot.
    pub index: usize,
    /// Generation of the slot.
    pub generation: u8,
}

impl HandleParts {
    /// Decodes a handle's value; `None` for a predefined handle or a handle of another kind.
    pub fn of(kind: HandleKind, bits: usize) -> Option<Self> {
        let ours = bits >> KIND_SHIFT == kind as usize;
        let generation = u8::try_from((bits >> GENERATION_SHIFT) & 0xff).ok()?;
        ours.then_some(Self {
            index: bits & INDEX_MASK,
            generation,
        })
    }

    /// Encodes the handle's value.
    pub const fn bits(self, kind: HandleKind) -> usize {
        (kind as usize) << KIND_SHIFT | (self.generation as usize) << GENERATION_SHIFT | self.index
    }
}

/// The standard's name of a predefined handle.
pub fn predefined_name(bits: usize) -> Option<&'static str> {
    let found = HANDLE_NAMES.binary_search_by_key(&bits, |(number, _)| *number);
    found.ok().map(|at| HANDLE_NAMES[at].1)
}

/// The text for a handle in error messages: the standard's name, or the number.
pub fn describe(bits: usize) -> String {
    match predefined_name(bits) {
        Some(name) => name.to_owned(),
        None if bits == 0 => "NULL".to_owned(),
        None => format!("{bits:#x}"),
    }
}

/// `MPI_Comm_toint` and similar functions (MPI 5.0 section 20.4).
#[allow(clippy::cast_possible_truncation, reason = "a handle fits in 31 bits")]
#[allow(clippy::cast_possible_wrap, reason = "the same")]
pub fn toint<H: Handle>(handle: H) -> c_int {
    handle.bits() as c_int
}

/// `MPI_Comm_fromint` and similar functions (MPI 5.0 section 20.4).
pub fn fromint<H: Handle>(value: c_int) -> H {
    // A negative number becomes 0, which is not a handle either.
    H::from_bits(usize::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_handle_is_a_positive_int_above_the_first_page() {
        for kind in HandleKind::ALL {
            for place in [
                HandleParts {
                    index: 0,
                    generation: 0,
                },
                HandleParts {
                    index: MAX_OBJECTS - 1,
                    generation: 255,
                },
            ] {
                let bits = place.bits(kind);
                assert!(
                    bits > 4096 && i32::try_from(bits).is_ok_and(|int| int > 0),
                    "{bits:#x}"
                );
                assert_eq!(HandleParts::of(kind, bits), Some(place));
                assert_eq!(HandleKind::of(bits), Some(kind));
            }
        }
    }

    #[test]
    fn toint_and_fromint_are_inverse() {
        let live = MPI_Comm(
            HandleParts {
                index: 77,
                generation: 3,
            }
            .bits(HandleKind::Comm),
        );
        for comm in [MPI_Comm::NULL, MPI_Comm::WORLD, MPI_Comm::SELF, live] {
            assert_eq!(fromint::<MPI_Comm>(toint(comm)), comm);
        }
        assert_eq!(fromint::<MPI_Comm>(-1), MPI_Comm(0));
    }

    #[test]
    fn each_predefined_handle_has_its_kind_and_its_name() {
        for (bits, name) in HANDLE_NAMES {
            let kind = HandleKind::of(*bits).unwrap();
            assert_eq!(predefined_name(*bits), Some(*name));
            let prefix = format!("MPI_{:?}_", kind).to_uppercase();
            if name.ends_with("_NULL") {
                assert!(name.starts_with(&prefix), "{name} is decoded as {kind:?}");
            }
        }
        assert_eq!(describe(0), "NULL");
        assert_eq!(describe(MPI_Datatype::TWO_INT.0), "MPI_2INT");
    }

    #[test]
    fn a_handle_of_another_kind_is_not_decoded() {
        let bits = HandleParts {
            index: 1,
            generation: 1,
        }
        .bits(HandleKind::Comm);
        assert_eq!(HandleParts::of(HandleKind::Group, bits), None);
        assert_eq!(HandleParts::of(HandleKind::Comm, MPI_Comm::WORLD.0), None);
    }
}
