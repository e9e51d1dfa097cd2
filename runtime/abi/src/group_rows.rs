// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's groups, with their rows in the debugger's table (`queue_layout::GroupTable`).

use queue_layout::{FIRST_GROUP_ROWS, GROUP_CHUNKS, GroupRow, GroupTable};

use crate::error::Result;
use crate::handle::{Handle, MPI_Group};
use crate::registry::HandleRegistry;
use crate::rows::{DebuggerRow, Rows};
use crate::state::GroupObject;

/// The table that the debugger's anchor points to. Rows are never deallocated.
static TABLE: GroupTable = GroupTable::new();

impl DebuggerRow for GroupRow {
    const FIRST: usize = FIRST_GROUP_ROWS;
    const CHUNKS: usize = GROUP_CHUNKS;

    fn publish(number: usize, rows: &'static [Self]) {
        TABLE.add_chunk(number, rows);
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// The table of this process, for the anchor.
pub fn table() -> &'static GroupTable {
    &TABLE
}

/// Live groups.
#[derive(Default)]
pub struct Groups {
    objects: HandleRegistry<MPI_Group, GroupObject>,
    rows: Rows<GroupRow>,
}

impl Groups {
    /// Inserts a group and returns its handle.
    pub fn insert(&mut self, object: GroupObject) -> Result<MPI_Group> {
        let (size, members) = (object.members.size(), object.members.address());
        let handle = self.objects.insert(object)?;
        if let Some(row) = self.rows.row(handle.bits()) {
            row.fill(u32::try_from(handle.bits()).unwrap_or(0), size, members);
        }
        Ok(handle)
    }

    /// The group of a handle.
    pub fn get(&self, handle: MPI_Group) -> Result<&GroupObject> {
        self.objects.get(handle)
    }

    /// Removes a group; its handle becomes stale.
    pub fn remove(&mut self, handle: MPI_Group) -> Result<GroupObject> {
        let object = self.objects.remove(handle)?;
        // The row is closed before `object`, which owns the members, is dropped.
        self.rows.close(handle.bits());
        Ok(object)
    }
}
