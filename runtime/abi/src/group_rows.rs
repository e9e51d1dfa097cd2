// SPDX-License-Identifier: MIT OR Apache-2.0
//! The groups that the program has, and the rows by which a debugger knows them (`queue_layout::GroupTable`).

use queue_layout::{FIRST_GROUP_ROWS, GROUP_CHUNKS, GroupRow, GroupTable};

use crate::error::Result;
use crate::handle::{Handle, MPI_Group};
use crate::registry::HandleRegistry;
use crate::rows::{DebuggerRow, Rows};
use crate::state::GroupObject;

/// What the debugger's anchor points to. Rows live as long as the process.
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
    /// Keeps a group and names it.
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

    /// Takes a group out; its handle is stale from here on.
    pub fn remove(&mut self, handle: MPI_Group) -> Result<GroupObject> {
        let object = self.objects.remove(handle)?;
        // Before its members go: they are in `object`.
        self.rows.close(handle.bits());
        Ok(object)
    }
}
