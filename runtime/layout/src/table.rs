// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout table, by which a reader finds every field. The compiler computes it from the types.

use core::mem::offset_of;

use crate::call::{CALL_NAME_BYTES, CallRow};
use crate::comm::{COLLECTIVES, COMM_CHUNKS, COMM_NAME_BYTES, CommRow, CommTable};
use crate::datatype::{TYPE_CHUNKS, TYPE_NAME_BYTES, TypeRow, TypeTable};
use crate::group::{GROUP_CHUNKS, GroupRow, GroupTable};
use crate::slot::{CHUNK_SLOTS, Chunk, RequestFields, RequestSlot};

/// One row of the layout table, by which a reader finds a field without this crate and without debug information.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FieldRow {
    /// The number that identifies the structure: [`SLOT`], [`CHUNK`], [`COMM`], [`COMM_TABLE`], [`TYPE`],
    /// [`TYPE_TABLE`], [`CALL`], [`GROUP`] or [`GROUP_TABLE`].
    pub structure: u16,
    /// The number that identifies the field within the structure: a constant of [`field`], [`comm_field`],
    /// [`comm_table_field`], [`type_field`], [`type_table_field`], [`call_field`], [`group_field`] or
    /// [`group_table_field`]. A number is never reused for another field.
    pub field: u16,
    /// Byte offset from the structure's start.
    pub offset: u32,
    /// Bytes of the field.
    pub size: u32,
}

/// The number that identifies [`RequestSlot`] in the layout table.
pub const SLOT: u16 = 1;
/// The number that identifies [`Chunk`] in the layout table.
pub const CHUNK: u16 = 2;
/// The number that identifies [`CommRow`] in the layout table.
pub const COMM: u16 = 3;
/// The number that identifies [`CommTable`] in the layout table.
pub const COMM_TABLE: u16 = 4;
/// The number that identifies [`TypeRow`] in the layout table.
pub const TYPE: u16 = 5;
/// The number that identifies [`TypeTable`] in the layout table.
pub const TYPE_TABLE: u16 = 6;
/// The number that identifies [`CallRow`] in the layout table.
pub const CALL: u16 = 7;
/// The number that identifies [`GroupRow`] in the layout table.
pub const GROUP: u16 = 8;
/// The number that identifies [`GroupTable`] in the layout table.
pub const GROUP_TABLE: u16 = 9;

/// The numbers that identify the fields of a [`RequestSlot`] and of a [`Chunk`] in the layout table. [`RequestFields`]
/// explains the fields of a slot.
pub mod field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const STATE: u16 = 1;
    pub const KIND: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const PEER: u16 = 4;
    pub const CONTEXT: u16 = 5;
    pub const TAG: u16 = 6;
    pub const TOKEN: u16 = 7;
    pub const ERROR: u16 = 8;
    pub const PROTOCOL: u16 = 9;
    pub const BYTES: u16 = 10;
    pub const BUFFER: u16 = 11;
    pub const SEQUENCE: u16 = 12;
    pub const MATCHED_PEER: u16 = 13;
    pub const MATCHED_TAG: u16 = 14;
    pub const MATCHED_BYTES: u16 = 15;
    pub const DATATYPE: u16 = 16;

    /// In a chunk: its first slot.
    pub const CHUNK_SLOTS: u16 = 0;
}

/// The numbers that identify the fields of a [`CommRow`] in the layout table.
pub mod comm_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const KIND: u16 = 1;
    pub const CONTEXT: u16 = 2;
    pub const USES: u16 = 3;
    pub const RANK: u16 = 4;
    pub const SIZE: u16 = 5;
    pub const REMOTE_SIZE: u16 = 6;
    pub const GROUP: u16 = 7;
    pub const REMOTE: u16 = 8;
    pub const NAME: u16 = 9;
    pub const CALLED: u16 = 10;
    pub const ACTIVE: u16 = 11;
    pub const HANDLE: u16 = 12;
}

/// The numbers that identify the fields of a [`CommTable`] in the layout table.
pub mod comm_table_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const CHANGES: u16 = 0;
    pub const CHUNKS: u16 = 1;
}

/// The numbers that identify the fields of a [`TypeRow`] in the layout table.
pub mod type_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const HANDLE: u16 = 1;
    pub const COMMITTED: u16 = 2;
    pub const BYTES: u16 = 3;
    pub const EXTENT: u16 = 4;
    pub const NAME: u16 = 5;
}

/// The numbers that identify the fields of a [`TypeTable`] in the layout table.
pub mod type_table_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const CHUNKS: u16 = 0;
}

/// The numbers that identify the fields of a [`CallRow`] in the layout table.
pub mod call_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const WAITS_FOR: u16 = 1;
    pub const THREAD: u16 = 2;
    pub const CONTEXT: u16 = 3;
    pub const PEER: u16 = 4;
    pub const TAG: u16 = 5;
    pub const TOKENS: u16 = 6;
    pub const LIST: u16 = 7;
    pub const COUNT: u16 = 8;
    pub const BASE: u16 = 9;
    pub const FUNCTION: u16 = 10;
    pub const BYTES: u16 = 11;
}

/// The numbers that identify the fields of a [`GroupRow`] in the layout table.
pub mod group_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const VERSION: u16 = 0;
    pub const HANDLE: u16 = 1;
    pub const SIZE: u16 = 2;
    pub const MEMBERS: u16 = 3;
}

/// The numbers that identify the fields of a [`GroupTable`] in the layout table.
pub mod group_table_field {
    #![allow(missing_docs, reason = "each is explained by the field it numbers")]

    pub const CHUNKS: u16 = 0;
}

/// The location of every field that a debugger needs. It is computed from the types, so it is always up to date.
pub static LAYOUT: [FieldRow; 57] = [
    row(SLOT, field::VERSION, offset_of!(RequestSlot, version), 4),
    row(
        SLOT,
        field::STATE,
        FIELDS + offset_of!(RequestFields, state),
        1,
    ),
    row(
        SLOT,
        field::KIND,
        FIELDS + offset_of!(RequestFields, kind),
        1,
    ),
    row(
        SLOT,
        field::FLAGS,
        FIELDS + offset_of!(RequestFields, flags),
        2,
    ),
    row(
        SLOT,
        field::PEER,
        FIELDS + offset_of!(RequestFields, peer),
        4,
    ),
    row(
        SLOT,
        field::CONTEXT,
        FIELDS + offset_of!(RequestFields, context),
        4,
    ),
    row(SLOT, field::TAG, FIELDS + offset_of!(RequestFields, tag), 4),
    row(
        SLOT,
        field::TOKEN,
        FIELDS + offset_of!(RequestFields, token),
        4,
    ),
    row(
        SLOT,
        field::ERROR,
        FIELDS + offset_of!(RequestFields, error),
        1,
    ),
    row(
        SLOT,
        field::PROTOCOL,
        FIELDS + offset_of!(RequestFields, protocol),
        2,
    ),
    row(
        SLOT,
        field::BYTES,
        FIELDS + offset_of!(RequestFields, bytes),
        8,
    ),
    row(
        SLOT,
        field::BUFFER,
        FIELDS + offset_of!(RequestFields, buffer),
        8,
    ),
    row(
        SLOT,
        field::SEQUENCE,
        FIELDS + offset_of!(RequestFields, sequence),
        8,
    ),
    row(
        SLOT,
        field::MATCHED_PEER,
        FIELDS + offset_of!(RequestFields, matched_peer),
        4,
    ),
    row(
        SLOT,
        field::MATCHED_TAG,
        FIELDS + offset_of!(RequestFields, matched_tag),
        4,
    ),
    row(
        SLOT,
        field::MATCHED_BYTES,
        FIELDS + offset_of!(RequestFields, matched_bytes),
        8,
    ),
    row(SLOT, field::DATATYPE, offset_of!(RequestSlot, datatype), 4),
    row(
        CHUNK,
        field::CHUNK_SLOTS,
        offset_of!(Chunk, slots),
        CHUNK_SLOTS * size_of::<RequestSlot>(),
    ),
    row(COMM, comm_field::VERSION, offset_of!(CommRow, version), 4),
    row(COMM, comm_field::KIND, offset_of!(CommRow, kind), 4),
    row(COMM, comm_field::CONTEXT, offset_of!(CommRow, context), 4),
    row(COMM, comm_field::USES, offset_of!(CommRow, uses), 4),
    row(COMM, comm_field::RANK, offset_of!(CommRow, rank), 4),
    row(COMM, comm_field::SIZE, offset_of!(CommRow, size), 4),
    row(
        COMM,
        comm_field::REMOTE_SIZE,
        offset_of!(CommRow, remote_size),
        4,
    ),
    row(COMM, comm_field::GROUP, offset_of!(CommRow, group), 8),
    row(COMM, comm_field::REMOTE, offset_of!(CommRow, remote), 8),
    row(
        COMM,
        comm_field::NAME,
        offset_of!(CommRow, name),
        COMM_NAME_BYTES,
    ),
    row(
        COMM,
        comm_field::CALLED,
        offset_of!(CommRow, called),
        4 * COLLECTIVES.len(),
    ),
    row(
        COMM,
        comm_field::ACTIVE,
        offset_of!(CommRow, active),
        4 * COLLECTIVES.len(),
    ),
    row(COMM, comm_field::HANDLE, offset_of!(CommRow, handle), 4),
    row(
        COMM_TABLE,
        comm_table_field::CHANGES,
        offset_of!(CommTable, changes),
        4,
    ),
    row(
        COMM_TABLE,
        comm_table_field::CHUNKS,
        offset_of!(CommTable, chunks),
        8 * COMM_CHUNKS,
    ),
    row(TYPE, type_field::VERSION, offset_of!(TypeRow, version), 4),
    row(TYPE, type_field::HANDLE, offset_of!(TypeRow, handle), 4),
    row(
        TYPE,
        type_field::COMMITTED,
        offset_of!(TypeRow, committed),
        4,
    ),
    row(TYPE, type_field::BYTES, offset_of!(TypeRow, bytes), 8),
    row(TYPE, type_field::EXTENT, offset_of!(TypeRow, extent), 8),
    row(
        TYPE,
        type_field::NAME,
        offset_of!(TypeRow, name),
        TYPE_NAME_BYTES,
    ),
    row(
        TYPE_TABLE,
        type_table_field::CHUNKS,
        offset_of!(TypeTable, chunks),
        8 * TYPE_CHUNKS,
    ),
    row(CALL, call_field::VERSION, offset_of!(CallRow, version), 4),
    row(
        CALL,
        call_field::WAITS_FOR,
        offset_of!(CallRow, waits_for),
        4,
    ),
    row(CALL, call_field::THREAD, offset_of!(CallRow, thread), 4),
    row(CALL, call_field::CONTEXT, offset_of!(CallRow, context), 4),
    row(CALL, call_field::PEER, offset_of!(CallRow, peer), 4),
    row(CALL, call_field::TAG, offset_of!(CallRow, tag), 4),
    row(CALL, call_field::TOKENS, offset_of!(CallRow, tokens), 8),
    row(CALL, call_field::LIST, offset_of!(CallRow, list), 8),
    row(CALL, call_field::COUNT, offset_of!(CallRow, count), 8),
    row(CALL, call_field::BASE, offset_of!(CallRow, base), 8),
    row(
        CALL,
        call_field::FUNCTION,
        offset_of!(CallRow, function),
        CALL_NAME_BYTES,
    ),
    row(CALL, call_field::BYTES, offset_of!(CallRow, bytes), 8),
    row(
        GROUP,
        group_field::VERSION,
        offset_of!(GroupRow, version),
        4,
    ),
    row(GROUP, group_field::HANDLE, offset_of!(GroupRow, handle), 4),
    row(GROUP, group_field::SIZE, offset_of!(GroupRow, size), 4),
    row(
        GROUP,
        group_field::MEMBERS,
        offset_of!(GroupRow, members),
        8,
    ),
    row(
        GROUP_TABLE,
        group_table_field::CHUNKS,
        offset_of!(GroupTable, chunks),
        8 * GROUP_CHUNKS,
    ),
];

#[allow(
    clippy::cast_possible_truncation,
    reason = "offsets inside one chunk fit 32 bits"
)]
const fn row(structure: u16, field: u16, offset: usize, size: usize) -> FieldRow {
    FieldRow {
        structure,
        field,
        offset: offset as u32,
        size: size as u32,
    }
}

const FIELDS: usize = offset_of!(RequestSlot, fields);

const _: () = assert!(
    FIELDS + offset_of!(RequestFields, bin) + 4 == 64,
    "what posting and matching touch is one line"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_table_covers_each_structure_without_overlap() {
        for (structure, size) in [
            (SLOT, size_of::<RequestSlot>()),
            (CHUNK, size_of::<Chunk>()),
            (COMM, size_of::<CommRow>()),
            (COMM_TABLE, size_of::<CommTable>()),
            (TYPE, size_of::<TypeRow>()),
            (TYPE_TABLE, size_of::<TypeTable>()),
            (CALL, size_of::<CallRow>()),
            (GROUP, size_of::<GroupRow>()),
            (GROUP_TABLE, size_of::<GroupTable>()),
        ] {
            let rows = || LAYOUT.iter().filter(|row| row.structure == structure);
            let ends_at = |row: &FieldRow| u64::from(row.offset) + u64::from(row.size);
            for (number, row) in rows().enumerate() {
                assert_eq!(usize::from(row.field), number);
                assert!(ends_at(row) <= size as u64);
                // A field that was added later may be in former padding, so rows need not be in the order of offsets.
                for other in rows().take(number) {
                    assert!(
                        ends_at(other) <= row.offset.into() || ends_at(row) <= other.offset.into(),
                        "fields {} and {number} of structure {structure}",
                        other.field
                    );
                }
            }
        }
    }
}
