// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a target's anchor and layout table, which give the addresses of its structures and the offsets of their
//! fields.

use core::ffi::{CStr, c_int};
use core::mem::offset_of;

use queue_layout::{
    Anchor, BEFORE, BYTE_ORDER, CALL, CHUNK, COMM, COMM_TABLE, FieldRow, MAGIC, ONE_THREAD,
    QUEUE_LAYOUT_VERSION, RUNNING, SLOT, TYPE, TYPE_TABLE, call_field, comm_field,
    comm_table_field, field, type_field, type_table_field,
};

use crate::interface::FIRST_USER_CODE;

/// The name of the anchor in a rank's library.
pub const ANCHOR_SYMBOL: &CStr = c"rmpi_debug_anchor";

/// The memory of a stopped process, as the debugger provides it.
pub trait StoppedProcess {
    /// Fills `into` from memory of the target; an error if not all bytes can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MqsError>;
    /// Converts an unsigned number of the target, of 1, 2, 4 or 8 bytes.
    fn number(&self, bytes: &[u8]) -> u64;
}

/// Why a call failed: the error codes of this library, from `mqs_first_user_code` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqsError {
    /// The debugger's allocator returned NULL.
    NoMemory,
    /// A required callback is missing from the debugger's table.
    NoCallback,
    /// The target's addresses do not have 8 bytes.
    Width,
    /// The debugger could not read memory of the target.
    Unreadable,
    /// There is no anchor at the symbol's address.
    NoAnchor,
    /// The anchor has another version: major and minor.
    Version(u16, u16),
    /// The debugger does not convert numbers from the target's byte order.
    ByteOrder,
    /// The anchor was read at an address other than the one that it stores as its own.
    Place,
    /// The layout table lacks a field, or has one outside its structure.
    Layout,
    /// The process or an iterator was not set up, or the pointer for a result is NULL.
    NotSetUp,
}

impl MqsError {
    /// The error code returned to the debugger.
    #[must_use]
    pub const fn code(self) -> c_int {
        FIRST_USER_CODE
            + match self {
                Self::NoMemory => 0,
                Self::NoCallback => 1,
                Self::Width => 2,
                Self::Unreadable => 3,
                Self::NoAnchor => 4,
                Self::Version(..) => 5,
                Self::ByteOrder => 6,
                Self::Place => 7,
                Self::Layout => 8,
                Self::NotSetUp => 9,
            }
    }

    /// The message of an error code; `None` for a code of another library.
    #[must_use]
    pub const fn message(code: c_int) -> Option<&'static CStr> {
        Some(match code.wrapping_sub(FIRST_USER_CODE) {
            0 => c"the debugger gave no memory",
            1 => c"the debugger's table of callbacks lacks one that is needed",
            2 => c"the process has addresses of another size than 8 bytes; use the debugger for its architecture",
            3 => c"memory of the process cannot be read",
            4 => c"the symbol rmpi_debug_anchor of the process does not lead to rmpi's anchor",
            5 => c"the rmpi of the process has message queues of another version than this librmpi_mqs.so; use the one that lies beside its libmpi_abi.so.1",
            6 => c"the debugger does not convert numbers of the process to those of this host",
            7 => c"the anchor of the process was read where it does not lie; the debugger has the wrong address of its libraries",
            8 => c"the layout table of the process makes no sense",
            9 => c"the iterator was not set up",
            _ => return None,
        })
    }
}

/// The fields of the anchor (`queue_layout::Anchor`).
#[derive(Clone, Copy, Debug)]
pub struct AnchorFields {
    /// Whether MPI is initialized and not finalized. Only then are the addresses and counts below valid.
    pub running: bool,
    /// Whether MPI was initialized; it may have been finalized since. Only then are `world_rank` and `world_size`
    /// valid.
    pub began: bool,
    /// Rank in `MPI_COMM_WORLD`.
    pub world_rank: u32,
    /// Size of `MPI_COMM_WORLD`.
    pub world_size: u32,
    /// The process id in its own namespace.
    pub pid: u32,
    /// Whether at most one thread is in MPI at a time.
    pub one_thread: bool,
    /// Address of the chunk table. The next three fields: its number of entries, slots per chunk, and bytes per slot.
    pub chunks: u64,
    /// See `chunks`.
    pub max_chunks: u32,
    /// See `chunks`.
    pub chunk_slots: u32,
    /// See `chunks`.
    pub slot_bytes: u32,
    /// Address of the table of communicators. The next two fields: rows of its first chunk, and bytes per row.
    pub comms: u64,
    /// See `comms`.
    pub first_rows: u32,
    /// See `comms`.
    pub row_bytes: u32,
    /// Address of the rows of blocking calls. The next two fields: number of rows, and bytes per row. No rows before
    /// version 1.3.
    pub calls: u64,
    /// See `calls`.
    pub call_rows: u32,
    /// See `calls`.
    pub call_row_bytes: u32,
    /// Address of the table of datatypes. The next two fields: rows of its first chunk, and bytes per row.
    pub types: u64,
    /// See `types`.
    pub type_first_rows: u32,
    /// See `types`.
    pub type_row_bytes: u32,
    /// Address of the rows of predefined datatypes. The next field: number of rows. No rows before version 1.4.
    pub predefined: u64,
    /// See `predefined`.
    pub predefined_rows: u32,
    layout: u64,
    layout_rows: u32,
    layout_row_bytes: u32,
}

impl AnchorFields {
    /// Reads and checks the anchor at an address.
    ///
    /// # Errors
    /// When memory cannot be read, or contains no anchor of a known version.
    // tidy: long (a line for each field)
    pub fn read(target: &impl StoppedProcess, address: u64) -> Result<Self, MqsError> {
        let mut bytes = [0; size_of::<Anchor>()];
        let (head, rest) = bytes.split_at_mut(HEAD);
        target.read(address, head)?;
        let number = |bytes: &[u8], offset, size| number_at(target, bytes, offset, size);
        let number32 = |bytes: &[u8], offset| number(bytes, offset, 4).map(low);
        if !head.starts_with(&MAGIC) {
            return Err(MqsError::NoAnchor);
        }
        if number32(head, offset_of!(Anchor, byte_order))? != BYTE_ORDER {
            return Err(MqsError::ByteOrder);
        }
        let half = |offset| number(head, offset, 2).map(|word| (word & 0xffff) as u16);
        let (major, minor) = (
            half(offset_of!(Anchor, major))?,
            half(offset_of!(Anchor, minor))?,
        );
        let size = number32(head, offset_of!(Anchor, size))?;
        if major != QUEUE_LAYOUT_VERSION || (size as usize) < SMALLEST {
            return Err(MqsError::Version(major, minor));
        }
        // Fields that an older, smaller anchor lacks stay zero.
        let there = (size as usize).min(size_of::<Anchor>()) - HEAD;
        if number32(head, offset_of!(Anchor, pointer_bytes))? != 8 {
            return Err(MqsError::Width);
        }
        let rest = rest.get_mut(..there).ok_or(MqsError::Layout)?;
        target.read(address.wrapping_add(HEAD as u64), rest)?;
        let long = |offset| number(&bytes, offset, 8);
        let word = |offset| number32(&bytes, offset);
        let state = word(offset_of!(Anchor, state))?;
        let running = state == RUNNING;
        if running && long(offset_of!(Anchor, self_address))? != address {
            return Err(MqsError::Place);
        }
        Ok(Self {
            running,
            began: state != BEFORE,
            world_rank: word(offset_of!(Anchor, world_rank))?,
            world_size: word(offset_of!(Anchor, world_size))?,
            pid: word(offset_of!(Anchor, pid))?,
            one_thread: word(offset_of!(Anchor, threads))? == ONE_THREAD,
            chunks: long(offset_of!(Anchor, chunks))?,
            max_chunks: word(offset_of!(Anchor, max_chunks))?,
            chunk_slots: word(offset_of!(Anchor, chunk_slots))?,
            slot_bytes: word(offset_of!(Anchor, slot_bytes))?,
            comms: long(offset_of!(Anchor, comms))?,
            first_rows: word(offset_of!(Anchor, comm_first_rows))?,
            row_bytes: word(offset_of!(Anchor, comm_row_bytes))?,
            calls: long(offset_of!(Anchor, calls))?,
            call_rows: word(offset_of!(Anchor, call_rows))?,
            call_row_bytes: word(offset_of!(Anchor, call_row_bytes))?,
            types: long(offset_of!(Anchor, types))?,
            type_first_rows: word(offset_of!(Anchor, type_first_rows))?,
            type_row_bytes: word(offset_of!(Anchor, type_row_bytes))?,
            predefined: long(offset_of!(Anchor, predefined))?,
            predefined_rows: word(offset_of!(Anchor, predefined_rows))?,
            layout: long(offset_of!(Anchor, layout))?,
            layout_rows: word(offset_of!(Anchor, layout_rows))?,
            layout_row_bytes: word(offset_of!(Anchor, layout_row_bytes))?,
        })
    }
}

/// The offset and size of a field in its structure.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldPlace {
    offset: u32,
    size: u32,
}

impl FieldPlace {
    /// The field's bytes in the bytes of its structure.
    #[must_use]
    pub fn of<'a>(&self, structure: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.offset as usize;
        structure.get(from..from.checked_add(self.size as usize)?)
    }

    /// The address of the field in a structure at an address.
    #[must_use]
    pub fn address(&self, structure: u64) -> u64 {
        structure.wrapping_add(u64::from(self.offset))
    }

    /// Bytes of the field.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }
}

/// Offset and size of every field that is used, by structure and field number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Map {
    places: [[FieldPlace; FIELDS]; STRUCTURES],
}

impl Map {
    /// Reads the layout table; rows of unknown structures and fields, which belong to a newer version, are skipped.
    ///
    /// # Errors
    /// When a required field is missing or lies outside its structure.
    pub fn read(target: &impl StoppedProcess, anchor: &AnchorFields) -> Result<Self, MqsError> {
        let row_bytes = anchor.layout_row_bytes as usize;
        let mut buffer = [0; MAX_LAYOUT_ROW];
        let row = buffer.get_mut(..row_bytes).ok_or(MqsError::Layout)?;
        if row_bytes < size_of::<FieldRow>() || anchor.layout_rows > MAX_LAYOUT_ROWS {
            return Err(MqsError::Layout);
        }
        let mut map = Self::default();
        for index in 0..u64::from(anchor.layout_rows) {
            let address = anchor.layout.wrapping_add(index * row_bytes as u64);
            target.read(address, row)?;
            let get = |offset, size| number_at(target, row, offset, size);
            let structure = get(offset_of!(FieldRow, structure), 2)?;
            let field = get(offset_of!(FieldRow, field), 2)?;
            let place = FieldPlace {
                offset: low(get(offset_of!(FieldRow, offset), 4)?),
                size: low(get(offset_of!(FieldRow, size), 4)?),
            };
            let fields = map.places.get_mut(low(structure) as usize);
            if let Some(known) = fields.and_then(|fields| fields.get_mut(low(field) as usize)) {
                *known = place;
            }
        }
        map.check(anchor)?;
        Ok(map)
    }

    /// The place of a field.
    #[must_use]
    pub fn place(&self, structure: u16, field: u16) -> FieldPlace {
        let fields = self.places.get(structure as usize);
        let place = fields.and_then(|fields| fields.get(field as usize));
        place.copied().unwrap_or_default()
    }

    fn check(&self, anchor: &AnchorFields) -> Result<(), MqsError> {
        let is_number = |structure, field, limit: u32| {
            let FieldPlace { offset, size } = self.place(structure, field);
            matches!(size, 1 | 2 | 4 | 8)
                && offset.checked_add(size).is_some_and(|end| end <= limit)
        };
        let is_array = |structure, field, limit: u32| {
            let FieldPlace { offset, size } = self.place(structure, field);
            size > 0 && offset.checked_add(size).is_some_and(|end| end <= limit)
        };
        let slots = field::VERSION..=field::MATCHED_BYTES;
        let mut rows = comm_field::VERSION..=comm_field::REMOTE;
        let mut arrays = [comm_field::NAME, comm_field::CALLED, comm_field::ACTIVE].into_iter();
        let mut calls = [
            call_field::VERSION..=call_field::TAG,
            call_field::LIST..=call_field::BASE,
        ]
        .into_iter()
        .flatten();
        let mut call_arrays = [call_field::TOKENS, call_field::FUNCTION].into_iter();
        let chunk = self.place(CHUNK, field::CHUNK_SLOTS);
        // Operations have a datatype since layout 1.4; collectives have their bytes since layout 1.5.
        let has_types = self.place(SLOT, field::DATATYPE).size != 0;
        let has_bytes = self.place(CALL, call_field::BYTES).size != 0;
        let mut types = [type_field::VERSION, type_field::HANDLE, type_field::BYTES].into_iter();
        let good = anchor.slot_bytes <= MAX_RECORD
            && anchor.row_bytes <= MAX_RECORD
            && slots
                .into_iter()
                .all(|it| is_number(SLOT, it, anchor.slot_bytes))
            && rows.all(|it| is_number(COMM, it, anchor.row_bytes))
            && arrays.all(|it| is_array(COMM, it, anchor.row_bytes))
            && chunk.size > 0
            && is_number(COMM_TABLE, comm_table_field::CHANGES, MAX_RECORD)
            && is_array(COMM_TABLE, comm_table_field::CHUNKS, MAX_RECORD)
            && (anchor.call_rows == 0
                || anchor.call_row_bytes <= MAX_RECORD
                    && calls.all(|it| is_number(CALL, it, anchor.call_row_bytes))
                    && call_arrays.all(|it| is_array(CALL, it, anchor.call_row_bytes))
                    && (!has_bytes || is_number(CALL, call_field::BYTES, anchor.call_row_bytes)))
            && (!has_types || is_number(SLOT, field::DATATYPE, anchor.slot_bytes))
            && (!has_types
                || anchor.type_row_bytes == 0
                || anchor.type_row_bytes <= MAX_RECORD
                    && types.all(|it| is_number(TYPE, it, anchor.type_row_bytes))
                    && is_array(TYPE, type_field::NAME, anchor.type_row_bytes)
                    && is_array(TYPE_TABLE, type_table_field::CHUNKS, MAX_RECORD));
        good.then_some(()).ok_or(MqsError::Layout)
    }
}

/// The number at an offset in `bytes`.
fn number_at(
    target: &impl StoppedProcess,
    bytes: &[u8],
    offset: usize,
    size: usize,
) -> Result<u64, MqsError> {
    let bytes = bytes.get(offset..offset.wrapping_add(size));
    bytes
        .map(|bytes| target.number(bytes))
        .ok_or(MqsError::Layout)
}

/// The low 32 bits of a number. To be called only if the number fits into these, or its high half is irrelevant.
#[must_use]
pub fn low(number: u64) -> u32 {
    (number & 0xffff_ffff) as u32
}

/// Bytes of the anchor's head, which is the same in every version.
const HEAD: usize = offset_of!(Anchor, self_address);
/// Bytes of the anchor of version 1.1, which has neither datatypes nor calls.
const SMALLEST: usize = offset_of!(Anchor, types);
/// Number of known structures (number 0 is unused), and number of fields per structure.
const STRUCTURES: usize = CALL as usize + 1;
const FIELDS: usize = field::DATATYPE as usize + 1;
/// Limits of a layout table: rows, and bytes per row.
const MAX_LAYOUT_ROWS: u32 = 1024;
const MAX_LAYOUT_ROW: usize = 64;
/// Largest slot or row in bytes; a read has at most this many bytes.
pub const MAX_RECORD: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqs_070_every_error_code_has_a_message_and_no_other_code_has() {
        let all = [
            MqsError::NoMemory,
            MqsError::NoCallback,
            MqsError::Width,
            MqsError::Unreadable,
            MqsError::NoAnchor,
            MqsError::Version(2, 0),
            MqsError::ByteOrder,
            MqsError::Place,
            MqsError::Layout,
            MqsError::NotSetUp,
        ];
        for (number, trouble) in (100..).zip(all) {
            assert_eq!(trouble.code(), number);
            assert!(MqsError::message(number).is_some());
        }
        assert_eq!(
            (MqsError::message(99), MqsError::message(110)),
            (None, None)
        );
    }
}
