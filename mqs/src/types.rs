// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datatypes of the target that operations refer to.

use queue_layout::{TYPE, TYPE_NAME_BYTES, TYPE_TABLE, type_field, type_table_field};

use crate::image::{AnchorFields, Map, MqsError, StoppedProcess, low};
use crate::list::{Allocator, GrowableList};
use crate::order;
use crate::walk::{MAX_ROWS, RecordRun, TargetOperation, TargetRecord, read_address};

/// A datatype of the stopped process.
#[derive(Clone, Copy, Debug)]
pub struct TargetDatatype {
    /// Value of the datatype's handle.
    pub handle: u32,
    /// Bytes of data per item.
    pub bytes: u64,
    /// Name of the datatype, zero-terminated.
    pub name: [u8; TYPE_NAME_BYTES],
}

/// Finds the datatypes that operations refer to, sorted by handle.
///
/// # Errors
/// When memory cannot be read or allocated.
pub fn find(
    target: &impl StoppedProcess,
    allocator: Allocator,
    (anchor, map): (&AnchorFields, &Map),
    operations: &[TargetOperation],
    types: &mut GrowableList<TargetDatatype>,
) -> Result<(), MqsError> {
    let mut used: GrowableList<u32> = GrowableList::new();
    let done = named(allocator, operations, &mut used).and_then(|()| {
        let used = used.as_slice();
        if used.is_empty() || anchor.type_row_bytes == 0 {
            return Ok(());
        }
        rows(target, anchor, map, |it| {
            match used.binary_search(&it.handle) {
                Ok(_) => types.push(allocator, it),
                Err(_) => Ok(()),
            }
        })
    });
    used.clear(allocator);
    order::sort_by_key(types.as_mut_slice(), |it| it.handle);
    done
}

/// Looks a handle up in `types`, which are sorted by handle.
#[must_use]
pub fn of(types: &[TargetDatatype], handle: u32) -> Option<&TargetDatatype> {
    let at = types.partition_point(|it| it.handle < handle);
    types.get(at).filter(|it| it.handle == handle)
}

/// Collects the handles of the operations' datatypes, sorted.
fn named(
    allocator: Allocator,
    operations: &[TargetOperation],
    used: &mut GrowableList<u32>,
) -> Result<(), MqsError> {
    let mut last = 0;
    for it in operations.iter().filter(|it| it.datatype != 0) {
        // Most operations have the datatype of the previous one.
        if it.datatype != last {
            last = it.datatype;
            used.push(allocator, last)?;
        }
    }
    order::sort_by_key(used.as_mut_slice(), |handle| *handle);
    Ok(())
}

/// Passes every datatype to `take`: the predefined ones, then the program's.
fn rows(
    target: &impl StoppedProcess,
    anchor: &AnchorFields,
    map: &Map,
    mut take: impl FnMut(TargetDatatype) -> Result<(), MqsError>,
) -> Result<(), MqsError> {
    let mut read_rows = |address, count| {
        let records = RecordRun {
            address,
            count,
            bytes: anchor.type_row_bytes,
        };
        records.each(target, |_, bytes| {
            let row = TargetRecord {
                target,
                map,
                bytes,
                structure: TYPE,
            };
            datatype(&row).map_or(Ok(()), &mut take)
        })
    };
    if anchor.predefined != 0 {
        read_rows(
            anchor.predefined,
            anchor.predefined_rows.min(MAX_PREDEFINED),
        )?;
    }
    if anchor.types == 0 {
        return Ok(());
    }
    let chunks = map.place(TYPE_TABLE, type_table_field::CHUNKS);
    let mut count = anchor.type_first_rows;
    for number in 0..chunks.size() / 8 {
        let entry = chunks
            .address(anchor.types)
            .wrapping_add(8 * u64::from(number));
        let address = read_address(target, entry)?;
        if address == 0 || count == 0 || count > MAX_ROWS {
            return Ok(());
        }
        read_rows(address, count)?;
        count = count.wrapping_mul(2);
    }
    Ok(())
}

/// The datatype of a row; `None` if the row is free or is being changed.
fn datatype(row: &TargetRecord<'_, impl StoppedProcess>) -> Option<TargetDatatype> {
    let handle = low(row.get(type_field::HANDLE));
    if handle == 0 || !row.get(type_field::VERSION).is_multiple_of(2) {
        return None;
    }
    let mut name = [0; TYPE_NAME_BYTES];
    let text = row.bytes_of(type_field::NAME);
    let ended = text.iter().take(TYPE_NAME_BYTES - 1);
    for (place, byte) in name.iter_mut().zip(ended.take_while(|it| **it != 0)) {
        *place = *byte;
    }
    Some(TargetDatatype {
        handle,
        bytes: row.get(type_field::BYTES),
        name,
    })
}

/// More than the number of predefined datatypes of any version. It bounds the walk.
const MAX_PREDEFINED: u32 = 256;
