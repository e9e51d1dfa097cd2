// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting calls: one row for each thread that has waited for a while.

use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, compiler_fence};

/// Value of `bytes` for a call in which the sizes of the ranks need not be equal.
pub const NO_BYTES: u64 = u64::MAX;

/// Number of rows of the table. If more threads than this wait, some are not listed.
pub const CALL_ROWS: usize = 64;

/// Room for a function's name in bytes, with the terminating zero.
pub const CALL_NAME_BYTES: usize = 48;

/// Value of `waits_for` in a row without a call.
pub const CALL_FREE: u32 = 0;
/// Value of `waits_for`: the call waits for its one or two requests ([`CallFacts::tokens`]).
pub const CALL_REQUESTS: u32 = 1;
/// Value of `waits_for`: the call waits for requests in an array of the application ([`CallFacts::list`]).
pub const CALL_LIST: u32 = 2;
/// Value of `waits_for`: the call waits for a message that it does not receive (a probe).
pub const CALL_MESSAGE: u32 = 3;
/// Value of `waits_for`: the call waits for other ranks (a collective).
pub const CALL_RANKS: u32 = 4;
/// Value of `waits_for`: the call waits for something else.
pub const CALL_OTHER: u32 = 5;

/// The waiting calls.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CallTable {
    /// The rows, in no order.
    pub rows: [CallRow; CALL_ROWS],
}

impl Default for CallTable {
    fn default() -> Self {
        Self {
            rows: [const { CallRow::new() }; CALL_ROWS],
        }
    }
}

impl CallTable {
    /// Records a waiting call. The result is the argument for [`renew`](Self::renew) and [`end`](Self::end); `None` if
    /// no row is free.
    pub fn begin(&self, facts: &CallFacts<'_>) -> Option<usize> {
        let free = |row: &CallRow| row.waits_for.load(Relaxed) == CALL_FREE;
        let number = self.rows.iter().position(free)?;
        self.rows[number].open(facts);
        Some(number)
    }

    /// Records that a waiting call has made progress. A reader that compares a sample from before with one from after
    /// then sees two different waits.
    pub fn renew(&self, number: usize) {
        let row = &self.rows[number];
        // Changes the row twice, as the end of one wait and the beginning of another do.
        row.change(|| ());
        row.change(|| ());
    }

    /// Ends the record of a waiting call.
    pub fn end(&self, number: usize) {
        let row = &self.rows[number];
        row.change(|| row.waits_for.store(CALL_FREE, Relaxed));
    }
}

/// One waiting call.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CallRow {
    /// Odd while the row is being changed.
    pub(crate) version: AtomicU32,
    /// A `CALL_*` number.
    pub(crate) waits_for: AtomicU32,
    /// Id of the waiting thread in the operating system.
    pub(crate) thread: AtomicU32,
    /// Context of the communicator's point-to-point messages; 0: none.
    pub(crate) context: AtomicU32,
    /// World rank of the awaited peer, or [`ANY_PEER`](crate::ANY_PEER).
    pub(crate) peer: AtomicU32,
    /// Tag, or [`ANY_TAG`](crate::ANY_TAG).
    pub(crate) tag: AtomicI32,
    /// Tokens of the requests; 0: none.
    pub(crate) tokens: [AtomicU32; 2],
    /// Address of the application's array of request handles, eight bytes each.
    pub(crate) list: AtomicU64,
    /// Number of handles in that array.
    pub(crate) count: AtomicU64,
    /// Difference between a request's handle and its token.
    pub(crate) base: AtomicU64,
    /// Bytes of the data of a collective, if they must be equal on all ranks; otherwise [`NO_BYTES`].
    pub(crate) bytes: AtomicU64,
    /// Name of the called function, terminated by a zero.
    pub(crate) function: [AtomicU8; CALL_NAME_BYTES],
}

/// Data about a call that begins to wait.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// A `CALL_*` number, but not [`CALL_FREE`].
    pub waits_for: u32,
    /// Name of the called function.
    pub function: &'a str,
    /// Id of the waiting thread in the operating system.
    pub thread: u32,
    /// Context of the communicator's point-to-point messages; 0: none.
    pub context: u32,
    /// World rank and tag of the awaited message, or [`ANY_PEER`](crate::ANY_PEER) and [`ANY_TAG`](crate::ANY_TAG).
    pub envelope: (u32, i32),
    /// Tokens of the requests; 0: none.
    pub tokens: [u32; 2],
    /// Address and length of an array of handles, and the difference between a handle and its token.
    pub list: (u64, u64, u64),
    /// Bytes of the data of a collective, if they must be equal on all ranks; otherwise [`NO_BYTES`].
    pub bytes: u64,
}

impl CallRow {
    const fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            waits_for: AtomicU32::new(CALL_FREE),
            thread: AtomicU32::new(0),
            context: AtomicU32::new(0),
            peer: AtomicU32::new(0),
            tag: AtomicI32::new(0),
            tokens: [const { AtomicU32::new(0) }; 2],
            list: AtomicU64::new(0),
            count: AtomicU64::new(0),
            base: AtomicU64::new(0),
            bytes: AtomicU64::new(NO_BYTES),
            function: [const { AtomicU8::new(0) }; CALL_NAME_BYTES],
        }
    }

    /// Number of the present wait among all waits recorded in this row, counted from 1. Readers use the same formula.
    #[must_use]
    pub fn wait(&self) -> u32 {
        // Each wait changes the row twice, and each change makes the version odd and then even again.
        (self.version.load(Relaxed) >> 2).wrapping_add(1)
    }

    fn open(&self, facts: &CallFacts<'_>) {
        self.change(|| {
            self.waits_for.store(facts.waits_for, Relaxed);
            self.thread.store(facts.thread, Relaxed);
            self.context.store(facts.context, Relaxed);
            self.peer.store(facts.envelope.0, Relaxed);
            self.tag.store(facts.envelope.1, Relaxed);
            for (place, token) in self.tokens.iter().zip(facts.tokens) {
                place.store(token, Relaxed);
            }
            self.list.store(facts.list.0, Relaxed);
            self.count.store(facts.list.1, Relaxed);
            self.base.store(facts.list.2, Relaxed);
            self.bytes.store(facts.bytes, Relaxed);
            let (end, bytes) = self.function.split_last().expect("an array with elements");
            let name = facts.function.bytes().chain(core::iter::repeat(0));
            for (place, byte) in bytes.iter().zip(name) {
                place.store(byte, Relaxed);
            }
            end.store(0, Relaxed);
        });
    }

    fn change(&self, change: impl FnOnce()) {
        self.advance_version();
        // PAIR(call-version): the change lies between two fences of the compiler.
        compiler_fence(Ordering::SeqCst);
        change();
        // PAIR(call-version): the second fence.
        compiler_fence(Ordering::SeqCst);
        self.advance_version();
    }

    /// Increments the version. The increment is not atomic, because only one thread at a time changes a row.
    fn advance_version(&self) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
    }
}

const _: () = assert!(size_of::<CallRow>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(function: &str) -> CallFacts<'_> {
        CallFacts {
            waits_for: CALL_MESSAGE,
            function,
            thread: 7,
            context: 4,
            envelope: (1, 2),
            tokens: [0; 2],
            list: (0, 0, 0),
            bytes: NO_BYTES,
        }
    }

    #[test]
    fn a_call_row_has_an_even_version_and_is_reused() {
        let table = CallTable::default();
        let first = table.begin(&facts("MPI_Probe"));
        assert_eq!(
            (first, table.begin(&facts("MPI_Mprobe"))),
            (Some(0), Some(1))
        );
        table.end(0);
        assert_eq!(table.begin(&facts("MPI_Wait")), Some(0));
        let row = &table.rows[0];
        assert_eq!(row.version.load(Relaxed), 6);
        let name = row.function.each_ref().map(|byte| byte.load(Relaxed));
        assert!(
            name.starts_with(b"MPI_Wait\0\0"),
            "nothing is left of MPI_Probe"
        );
    }

    #[test]
    fn a_renewed_wait_increments_its_counter() {
        let table = CallTable::default();
        table.begin(&facts("MPI_Bcast"));
        let row = &table.rows[0];
        assert_eq!(row.wait(), 1);
        table.renew(0);
        assert_eq!(row.wait(), 2);
        assert_eq!(row.waits_for.load(Relaxed), CALL_MESSAGE);
        table.end(0);
        table.begin(&facts("MPI_Bcast"));
        assert_eq!(row.wait(), 3);
    }

    #[test]
    fn long_call_names_are_truncated_and_a_full_table_refuses() {
        let table = CallTable::default();
        let long = [b'x'; 100];
        let long = core::str::from_utf8(&long).expect("ASCII");
        for number in 0..CALL_ROWS {
            assert_eq!(table.begin(&facts(long)), Some(number));
        }
        assert_eq!(table.begin(&facts("MPI_Recv")), None);
        assert_eq!(table.rows[3].function[CALL_NAME_BYTES - 1].load(Relaxed), 0);
    }
}
