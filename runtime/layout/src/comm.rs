// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communicators: one row each, in chunks that never move.

use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, compiler_fence};

/// Number of rows of the first chunk; each further chunk has twice as many as the one before.
pub const FIRST_ROWS: usize = 16;

/// Maximum number of chunks of a table. Together the chunks have more rows than there can be handles.
pub const COMM_CHUNKS: usize = 16;

/// Room for a communicator's name in bytes, with the terminating zero.
pub const COMM_NAME_BYTES: usize = 64;

/// Value of `kind` in a row without a communicator.
pub const ROW_FREE: u32 = 0;
/// Value of `kind` in the row of an intracommunicator.
pub const ROW_INTRA: u32 = 1;
/// Value of `kind` in the row of an intercommunicator.
pub const ROW_INTER: u32 = 2;
/// Added to [`ROW_INTRA`] or [`ROW_INTER`] if the application has freed the communicator while operations on it were
/// pending.
pub const ROW_FREED: u32 = 4;

/// The context id of a communicator's collectives minus that of its point-to-point messages.
pub const OF_COLLECTIVES: u32 = 1;

/// The collectives that are counted, by number. The first fourteen have the numbers of `mqs_get_comm_coll_state`.
pub const COLLECTIVES: [&str; 22] = [
    "Barrier",
    "Bcast",
    "Allgather",
    "Allgatherv",
    "Allreduce",
    "Alltoall",
    "Alltoallv",
    "Reduce_scatter",
    "Reduce",
    "Gather",
    "Gatherv",
    "Scan",
    "Scatter",
    "Scatterv",
    "Alltoallw",
    "Exscan",
    "Reduce_scatter_block",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
];

/// The number of a collective.
///
/// # Panics
/// If there is no collective of that name. Meant for constants.
#[must_use]
pub const fn collective(name: &str) -> usize {
    let mut number = 0;
    while number < COLLECTIVES.len() {
        if same(COLLECTIVES[number].as_bytes(), name.as_bytes()) {
            return number;
        }
        number += 1;
    }
    panic!("no collective has this name")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The table of communicators.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CommTable {
    /// Incremented when a communicator is made, named or freed.
    pub(crate) changes: AtomicU32,
    /// The addresses of the chunks; the first 0 ends the table.
    pub(crate) chunks: [AtomicU64; COMM_CHUNKS],
}

impl CommTable {
    /// Publishes a chunk. The chunk must not move as long as the table exists.
    pub fn add_chunk(&self, number: usize, rows: &[CommRow]) {
        assert_eq!(rows.len(), FIRST_ROWS << number, "rows of chunk {number}");
        let address = rows.as_ptr().addr() as u64;
        // PAIR(chunk-table): a reader that reads the address finds free rows there.
        crate::publish(|| self.chunks[number].store(address, Relaxed));
    }

    /// Records that a row was changed.
    pub fn changed(&self) {
        let changes = self.changes.load(Relaxed);
        self.changes.store(changes.wrapping_add(1), Relaxed);
    }
}

/// One communicator.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CommRow {
    /// Odd while the row is being changed. The counters of collectives change without a change of the version.
    pub(crate) version: AtomicU32,
    /// [`ROW_FREE`], or [`ROW_INTRA`] or [`ROW_INTER`], perhaps with [`ROW_FREED`].
    pub(crate) kind: AtomicU32,
    /// Context of the communicator's point-to-point messages.
    pub(crate) context: AtomicU32,
    /// Number of communicators that had this row before.
    pub(crate) uses: AtomicU32,
    /// Rank of this process.
    pub(crate) rank: AtomicU32,
    /// Size of the local group.
    pub(crate) size: AtomicU32,
    /// Size of the remote group of an intercommunicator.
    pub(crate) remote_size: AtomicU32,
    reserved: u32,
    /// Address of the world ranks of the local group, four bytes each; 0 if the ranks equal the world ranks.
    pub(crate) group: AtomicU64,
    /// Address of the world ranks of the remote group, four bytes each; 0 if the ranks equal the world ranks.
    pub(crate) remote: AtomicU64,
    /// Name of the communicator, terminated by a zero.
    pub(crate) name: [AtomicU8; COMM_NAME_BYTES],
    /// Number of calls of each collective.
    pub(crate) called: [AtomicU32; COLLECTIVES.len()],
    /// Number of calls of each collective that are in progress.
    pub(crate) active: [AtomicU32; COLLECTIVES.len()],
    /// Number of the communicator's handle; 0: it has no handle yet.
    pub(crate) handle: AtomicU32,
    /// Nanoseconds spent in calls of each collective, if they were timed. For tools in the process.
    took: [AtomicU64; COLLECTIVES.len()],
}

/// Data about a new communicator.
#[derive(Clone, Copy, Debug)]
pub struct CommFacts {
    /// Context of the communicator's point-to-point messages.
    pub context: u32,
    /// Rank of this process.
    pub rank: u32,
    /// Size of the local group, and the address of its world ranks; 0 if the ranks equal the world ranks.
    pub group: (u32, u64),
    /// Size of the remote group, and the address of its world ranks; 0 if the ranks equal the world ranks. `None` for
    /// an intracommunicator.
    pub remote: Option<(u32, u64)>,
}

impl Default for CommRow {
    fn default() -> Self {
        Self {
            version: AtomicU32::new(0),
            kind: AtomicU32::new(ROW_FREE),
            context: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            rank: AtomicU32::new(0),
            size: AtomicU32::new(0),
            remote_size: AtomicU32::new(0),
            reserved: 0,
            group: AtomicU64::new(0),
            remote: AtomicU64::new(0),
            name: [const { AtomicU8::new(0) }; COMM_NAME_BYTES],
            called: Default::default(),
            active: Default::default(),
            handle: AtomicU32::new(0),
            took: Default::default(),
        }
    }
}

impl CommRow {
    /// Fills the row of a new communicator.
    pub fn open(&self, facts: &CommFacts) {
        let kind = match facts.remote {
            Some(_) => ROW_INTER,
            None => ROW_INTRA,
        };
        let (remote_size, remote) = facts.remote.unwrap_or_default();
        self.change(|| {
            self.context.store(facts.context, Relaxed);
            self.rank.store(facts.rank, Relaxed);
            self.size.store(facts.group.0, Relaxed);
            self.group.store(facts.group.1, Relaxed);
            self.remote_size.store(remote_size, Relaxed);
            self.remote.store(remote, Relaxed);
            self.handle.store(0, Relaxed);
            self.set_name("");
            for counter in self.called.iter().chain(&self.active) {
                counter.store(0, Relaxed);
            }
            for time in &self.took {
                time.store(0, Relaxed);
            }
            self.kind.store(kind, Relaxed);
        });
    }

    /// Frees the row. From then on readers do not read at the group addresses that were passed to `open`.
    pub fn close(&self) {
        self.change(|| {
            self.kind.store(ROW_FREE, Relaxed);
            let uses = self.uses.load(Relaxed);
            self.uses.store(uses.wrapping_add(1), Relaxed);
        });
    }

    /// Records that the application has freed the communicator while operations on it are pending. Its groups must stay
    /// readable until [`close`](Self::close).
    pub fn retire(&self) {
        let kind = self.kind.load(Relaxed);
        self.change(|| self.kind.store(kind | ROW_FREED, Relaxed));
    }

    /// Sets the name, truncated between two characters if it does not fit.
    pub fn rename(&self, name: &str) {
        self.change(|| self.set_name(name));
    }

    /// Records the communicator's handle.
    pub fn set_handle(&self, handle: u32) {
        self.change(|| self.handle.store(handle, Relaxed));
    }

    /// Records the start of a collective call. The result is an argument of [`end`](Self::end).
    #[must_use]
    pub fn begin(&self, collective: usize) -> u32 {
        add(&self.active[collective], 1);
        add(&self.called[collective], 1);
        self.uses.load(Relaxed)
    }

    /// Records the end of a collective call. `begun` is the result of [`begin`](Self::begin); if the row has been
    /// reused since, this does nothing.
    pub fn end(&self, collective: usize, begun: u32) {
        if self.uses.load(Relaxed) == begun {
            add(&self.active[collective], u32::MAX);
        }
    }

    /// Adds `ns`, the duration in nanoseconds of a collective call that ends now; `begun` is the result of
    /// [`begin`](Self::begin).
    pub fn took(&self, collective: usize, begun: u32, ns: u64) {
        if self.uses.load(Relaxed) == begun {
            let took = &self.took[collective];
            took.store(took.load(Relaxed).wrapping_add(ns), Relaxed);
        }
    }

    /// Nanoseconds spent in those calls of a collective that were timed.
    #[must_use]
    pub fn time_ns(&self, collective: usize) -> u64 {
        let took = self.took.get(collective);
        took.map_or(0, |took| took.load(Relaxed))
    }

    /// Number of this use of the row, to be checked with [`is_in_use`](Self::is_in_use).
    #[must_use]
    pub fn use_number(&self) -> u32 {
        self.uses.load(Relaxed)
    }

    /// Whether the row still belongs to the communicator that had it at this [use](Self::use_number).
    #[must_use]
    pub fn is_in_use(&self, use_number: u32) -> bool {
        self.kind.load(Relaxed) != ROW_FREE && self.uses.load(Relaxed) == use_number
    }

    /// Size of the local group, and this process's rank in it.
    #[must_use]
    pub fn size_and_rank(&self) -> (u32, u32) {
        (self.size.load(Relaxed), self.rank.load(Relaxed))
    }

    /// Number of calls of a collective so far, and how many of these are in progress.
    #[must_use]
    pub fn calls(&self, collective: usize) -> (u32, u32) {
        let count = |counts: &[AtomicU32]| {
            counts
                .get(collective)
                .map_or(0, |count| count.load(Relaxed))
        };
        (count(&self.called), count(&self.active))
    }

    fn set_name(&self, name: &str) {
        put_name(&self.name, name);
    }

    fn change(&self, change: impl FnOnce()) {
        add(&self.version, 1);
        // PAIR(row-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        change();
        // PAIR(row-version): the second fence.
        compiler_fence(Ordering::SeqCst);
        add(&self.version, 1);
    }
}

/// Stores a name with a terminating zero, truncated between two characters if it does not fit.
pub(crate) fn put_name(places: &[AtomicU8], name: &str) {
    let mut length = name.len().min(places.len() - 1);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    let bytes = name.as_bytes().iter().copied().take(length);
    let zeros = core::iter::repeat(0);
    for (place, byte) in places.iter().zip(bytes.chain(zeros)) {
        place.store(byte, Relaxed);
    }
}

/// Adds to a word, wrapping. The addition is not atomic, because only one thread at a time changes a row.
pub(crate) fn add(word: &AtomicU32, number: u32) {
    word.store(word.load(Relaxed).wrapping_add(number), Relaxed);
}

const _: () = assert!(size_of::<CommRow>() == 512);

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(row: &CommRow) -> [u8; COMM_NAME_BYTES] {
        row.name.each_ref().map(|byte| byte.load(Relaxed))
    }

    #[test]
    fn a_row_has_an_even_version_and_its_last_communicator() {
        let row = CommRow::default();
        for turn in 1..4 {
            let facts = CommFacts {
                context: turn,
                rank: 1,
                group: (2, 0),
                remote: None,
            };
            row.open(&facts);
            let _ = row.begin(collective("Bcast"));
            row.rename("halo");
            assert!(row.version.load(Relaxed).is_multiple_of(2));
            assert_eq!(row.context.load(Relaxed), turn);
            assert_eq!(row.called[1].load(Relaxed), 1);
            assert_eq!(row.kind.load(Relaxed), ROW_INTRA);
            row.retire();
            assert_eq!(row.kind.load(Relaxed), ROW_INTRA | ROW_FREED);
            row.close();
            assert_eq!(row.kind.load(Relaxed), ROW_FREE);
            assert_eq!(row.uses.load(Relaxed), turn);
        }
    }

    #[test]
    fn a_long_name_is_truncated_at_a_character_boundary() {
        let row = CommRow::default();
        row.rename("ééééééééééééééééééééééééééééééééé and more");
        let name = name_of(&row);
        let length = name.iter().position(|byte| *byte == 0);
        assert_eq!(length, Some(62));
        row.rename("x");
        assert_eq!(name_of(&row)[..3], [b'x', 0, 0]);
    }

    #[test]
    fn collectives_are_counted_and_timed_by_name() {
        let row = CommRow::default();
        let barrier = collective("Barrier");
        let [first, _] = [row.begin(barrier), row.begin(barrier)];
        row.took(barrier, first, 30);
        row.took(barrier, first, 12);
        assert_eq!((row.time_ns(barrier), row.time_ns(99)), (42, 0));
        row.end(barrier, first);
        assert_eq!(row.called[barrier].load(Relaxed), 2);
        assert_eq!(row.active[barrier].load(Relaxed), 1);
        row.close();
        row.end(barrier, first);
        row.took(barrier, first, 7);
        assert_eq!(row.time_ns(barrier), 42, "of another life");
        assert_eq!(row.active[barrier].load(Relaxed), 1, "of another life");
        assert_eq!((barrier, collective("Scatterv")), (0, 13));
    }

    #[test]
    #[should_panic = "rows of chunk 1"]
    fn a_chunk_of_the_wrong_size_is_refused() {
        let rows: [CommRow; FIRST_ROWS] = core::array::from_fn(|_| CommRow::default());
        CommTable::default().add_chunk(1, &rows);
    }
}
