// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of this process's communicators for debuggers (`queue_layout::CommTable`).

use rustc_hash::FxHashMap;
use std::sync::Arc;

use queue_layout::{CommFacts, CommRow, CommTable, EngineCounters, FIRST_ROWS};

use crate::comm::{Comm, Group};

/// The table and its rows. Rows are never freed, so references to them stay valid.
#[derive(Debug, Default)]
pub(crate) struct CommRows {
    table: Box<CommTable>,
    chunks: usize,
    free: Vec<&'static CommRow>,
    /// The rows in use, by context id. Each is stored with the groups whose tables it points to, so that these stay
    /// allocated.
    used: FxHashMap<u32, (&'static CommRow, [Option<Group>; 2])>,
    /// Counters of communicators.
    counters: Arc<EngineCounters>,
}

impl CommRows {
    /// An empty table that counts its communicators in `counters`.
    pub(crate) fn with_counters(counters: Arc<EngineCounters>) -> Self {
        Self {
            counters,
            ..Self::default()
        }
    }

    /// The table that the debugger's anchor points to.
    pub(crate) fn table(&self) -> &CommTable {
        &self.table
    }

    /// Assigns a row to a communicator. A communicator without processes is still being made, and gets no row.
    pub(crate) fn open(&mut self, comm: &mut Comm) {
        if comm.size() == 0 {
            return;
        }
        if self.free.is_empty() {
            self.add_chunk();
        }
        let Some(row) = self.free.pop() else {
            return;
        };
        let of = |group: &Group| (group.size(), group.address());
        row.open(&CommFacts {
            context: comm.context.0,
            rank: comm.rank,
            group: of(&comm.group),
            remote: comm.remote.as_ref().map(of),
        });
        let groups = [Some(comm.group.clone()), comm.remote.clone()];
        self.used.insert(comm.context.0, (row, groups));
        self.table.changed();
        self.counters.communicators.add(1);
        self.counters.communicators_made.add(1);
        comm.row = Some(row);
    }

    /// Sets the name of a communicator.
    pub(crate) fn rename(&self, comm: &Comm, name: &str) {
        if let Some(row) = comm.row {
            row.rename(name);
            self.table.changed();
        }
    }

    /// Marks a communicator as freed. Its row stays until [`close`](Self::close), because operations on the
    /// communicator may be pending.
    pub(crate) fn retire(&self, context: u32) {
        if let Some((row, _)) = self.used.get(&context) {
            row.retire();
            self.table.changed();
        }
    }

    /// Frees the row of a communicator that was freed and has no pending operations.
    pub(crate) fn close(&mut self, context: u32) {
        if let Some((row, _)) = self.used.remove(&context) {
            row.close();
            self.counters.communicators.sub(1);
            self.free.push(row);
            self.table.changed();
        }
    }

    /// Adds rows. The table has room for more rows than there can be communicator handles, so every communicator with a
    /// handle gets a row.
    fn add_chunk(&mut self) {
        if self.chunks == queue_layout::COMM_CHUNKS {
            return;
        }
        let rows = (0..FIRST_ROWS << self.chunks).map(|_| CommRow::default());
        let rows: &'static [CommRow] = Vec::leak(rows.collect());
        self.table.add_chunk(self.chunks, rows);
        self.chunks += 1;
        self.free.extend(rows.iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{ContextId, Peer};

    fn comm(context: u32, ranks: &[u32]) -> Comm {
        let peers = ranks.iter().copied().map(Peer).collect();
        Comm::new(ContextId(context), Group::of(peers), 0)
    }

    #[test]
    fn communicator_rows_are_reused_and_grow_on_demand() {
        let mut rows = CommRows::default();
        let mut first = comm(4, &[0, 1]);
        rows.open(&mut first);
        rows.retire(4);
        rows.close(4);
        let mut second = comm(8, &[0]);
        rows.open(&mut second);
        assert!(core::ptr::eq(first.row.unwrap(), second.row.unwrap()));
        for context in 3..60 {
            rows.open(&mut comm(4 * context, &[1, 0]));
        }
        assert_eq!((rows.chunks, rows.used.len()), (3, 58));
    }

    #[test]
    fn an_unfinished_communicator_has_no_row() {
        let mut rows = CommRows::default();
        let mut unborn = comm(0, &[]);
        rows.open(&mut unborn);
        rows.close(0);
        assert!(unborn.row.is_none() && rows.chunks == 0);
    }

    #[test]
    fn the_world_ranks_of_a_group_have_a_stable_address() {
        assert_eq!(Group::world(3).address(), 0);
        let group = Group::of(vec![Peer(2), Peer(0)]);
        let first = group.address();
        assert!(first != 0 && group.clone().address() == first);
    }
}
