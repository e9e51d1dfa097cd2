// SPDX-License-Identifier: MIT OR Apache-2.0
//! The datatypes that the program made, with their rows in the debugger's table (`queue_layout::TypeTable`).

use queue_layout::{FIRST_TYPE_ROWS, TYPE_CHUNKS, TypeFacts, TypeRow, TypeTable};

use crate::c::HANDLE_NAMES;
use crate::datatype_table;
use crate::error::Result;
use crate::handle::{Handle, MPI_Datatype};
use crate::registry::HandleRegistry;
use crate::rows::{DebuggerRow, Rows};
use crate::state::TypeObject;

/// The table that the debugger's anchor points to. Rows are never deallocated.
static TABLE: TypeTable = TypeTable::new();

/// Rows of the predefined datatypes, in the order of their handles.
pub static PREDEFINED: [TypeRow; COUNT] = predefined();

#[allow(clippy::cast_possible_truncation, reason = "the standard's numbers")]
const fn predefined() -> [TypeRow; COUNT] {
    let table = datatype_table::table();
    let mut rows = [const { TypeRow::free() }; COUNT];
    let (mut number, mut used) = (0, 0);
    while number < table.len() {
        if let Some(basic) = &table[number] {
            rows[used] = TypeRow::predefined(&TypeFacts {
                handle: (MPI_Datatype::NULL.0 + number) as u32,
                committed: true,
                bytes: basic.size as u64,
                extent: basic.extent as i64,
                name: constant_name(MPI_Datatype::NULL.0 + number),
            });
            used += 1;
        }
        number += 1;
    }
    rows
}

/// Does what [`predefined_name`](crate::handle::predefined_name) does, as a const fn.
const fn constant_name(bits: usize) -> &'static str {
    let mut at = 0;
    while HANDLE_NAMES[at].0 != bits {
        at += 1;
    }
    HANDLE_NAMES[at].1
}

const COUNT: usize = {
    let table = datatype_table::table();
    let (mut number, mut count) = (0, 0);
    while number < table.len() {
        count += table[number].is_some() as usize;
        number += 1;
    }
    count
};

impl DebuggerRow for TypeRow {
    const FIRST: usize = FIRST_TYPE_ROWS;
    const CHUNKS: usize = TYPE_CHUNKS;

    fn publish(number: usize, rows: &'static [Self]) {
        TABLE.add_chunk(number, rows);
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// Live datatypes.
#[derive(Default)]
pub struct Types {
    objects: HandleRegistry<MPI_Datatype, TypeObject>,
    rows: Rows<TypeRow>,
}

/// The table of this process, for the anchor.
pub fn table() -> &'static TypeTable {
    &TABLE
}

impl Types {
    /// Inserts a datatype and returns its handle.
    pub fn insert(&mut self, object: TypeObject) -> Result<MPI_Datatype> {
        let handle = self.objects.insert(object)?;
        if let Ok(object) = self.objects.get(handle) {
            show(&mut self.rows, handle, object);
        }
        Ok(handle)
    }

    /// The datatype of a handle.
    pub fn get(&self, handle: MPI_Datatype) -> Result<&TypeObject> {
        self.objects.get(handle)
    }

    /// Changes the datatype of a handle.
    pub fn change(
        &mut self,
        handle: MPI_Datatype,
        change: impl FnOnce(&mut TypeObject),
    ) -> Result<()> {
        let object = self.objects.get_mut(handle)?;
        change(object);
        show(&mut self.rows, handle, object);
        Ok(())
    }

    /// Removes a datatype; its handle becomes stale.
    pub fn remove(&mut self, handle: MPI_Datatype) -> Result<TypeObject> {
        let object = self.objects.remove(handle)?;
        self.rows.close(handle.bits());
        Ok(object)
    }
}

/// Updates the debugger's row of a datatype.
fn show(rows: &mut Rows<TypeRow>, handle: MPI_Datatype, object: &TypeObject) {
    if let Some(row) = rows.row(handle.bits()) {
        row.fill(&TypeFacts {
            handle: number(handle),
            committed: object.committed,
            bytes: object.datatype.size,
            extent: object.datatype.extent,
            name: &object.name,
        });
    }
}

/// A handle's value as `u32`; it has 31 bits.
#[inline]
pub fn number(handle: MPI_Datatype) -> u32 {
    u32::try_from(handle.bits()).unwrap_or(0)
}
