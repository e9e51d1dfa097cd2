// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts an operation to an `mqs_pending_operation`, with lines of text about it (`extra_text`).
//!
//! Programs may parse these lines; the form of each is stable:
//!
//! | line | of an operation | of a call that waits |
//! |---|---|---|
//! | first | `send`, `receive` or `unexpected message`, and after `, ` its attributes | the function: `MPI_Probe` |
//! | second | its state | `waits for a message`, `waits for the other ranks`, `waits for requests that are not listed`, `waits` |
//! | then, if known | `10 of MPI_DOUBLE`: items of the buffer or the message, and their datatype | |
//! | then, of a collective, if known | `8 bytes a rank`: the size that must be equal on all ranks | the same |
//! | then, if a call waits for it | `in MPI_Wait, wait 17`, or `in MPI_Wait, wait 17, thread 4711` for a thread other than the main thread | the same |
//! | last, if the call has several requests | `requests: 3 done, 2 pending` | the same |
//!
//! Waits are numbered: a call with the same number in two snapshots is still in the same wait. `, alone` at the end of
//! the line means that the thread level is below `MPI_THREAD_MULTIPLE`: no other thread of the process can be in MPI at
//! the same time. During a wait in a collective, the number increases whenever further completions have arrived at the
//! rank. A line with `, moving` means that data of the collective are being copied.
//!
//! Persistent receives that are not started are in a queue of their own (`INACTIVE_RECEIVES`), which other libraries do not have.
//!
//! A further queue (`OTHER_OPERATIONS`) is read only by debuggers that support rmpi's extensions. First in this queue
//! are the nonblocking collectives in progress; the first line of each is like `nonblocking Bcast`. Then there is an
//! entry for each blocking call that waits for something other than listed requests: a probe, a collective,
//! `MPI_Finalize`. The entry of a call has no buffer; that of a probe has source and tag. A collective has its root, if
//! any, as its source, and the number of the call on its communicator as its tag: the same call has the same tag on all
//! ranks.

use queue_layout::{
    ANY_PEER, ANY_TAG, CALL_LIST, COLLECTIVES, FLAG_CANCELLED, FLAG_GATED, FLAG_ORPHAN,
    FLAG_PERSISTENT, FLAG_STRUCTURED, FLAG_SYNCHRONOUS, NO_BYTES, RequestState,
};

use crate::calls::{TargetCall, wait_reason};
use crate::interface::{
    COMPLETE, INVALID_PROCESS, MATCHED, PENDING, PENDING_SENDS, PendingOperation,
    UNEXPECTED_MESSAGES, Word,
};
use crate::types::TargetDatatype;
use crate::walk::TargetOperation;

/// Fills in the interface's structure. `ranks` are the world ranks of the communicator's peers, `datatype` is the
/// operation's datatype, and `call` is the blocking call that waits for the operation.
#[must_use]
pub fn pending_operation(
    operation: &TargetOperation,
    ranks: &[u32],
    datatype: Option<&TargetDatatype>,
    call: Option<&TargetCall>,
) -> PendingOperation {
    let arrived = operation.class == UNEXPECTED_MESSAGES;
    let known = arrived || operation.class == PENDING_SENDS;
    let (peer, tag, bytes) = match known {
        true => (operation.peer, operation.tag, operation.bytes),
        false => operation.matched,
    };
    let (desired, actual) = (rank(operation.peer, ranks), rank(peer, ranks));
    PendingOperation {
        status: status(operation),
        desired_local_rank: desired.0,
        desired_global_rank: desired.1,
        tag_wild: i32::from(operation.tag == ANY_TAG),
        desired_tag: operation.tag.into(),
        desired_length: length(operation).unwrap_or(0).cast_signed(),
        system_buffer: i32::from(arrived),
        buffer: operation.buffer,
        actual_local_rank: actual.0,
        actual_global_rank: actual.1,
        actual_tag: tag.into(),
        actual_length: bytes.cast_signed(),
        extra_text: text_lines(operation, datatype, call),
    }
}

/// Bytes of the buffer, message or collective; `None` if unknown.
fn length(operation: &TargetOperation) -> Option<u64> {
    let is_collective = operation.is_call || operation.collective != 0;
    let known = !is_collective || operation.bytes != NO_BYTES;
    known.then_some(operation.bytes)
}

fn status(operation: &TargetOperation) -> i32 {
    match operation.state {
        _ if operation.collective != 0 => PENDING,
        state if state == RequestState::Complete as u8 => COMPLETE,
        state if state == RequestState::Moving as u8 => MATCHED,
        _ => PENDING,
    }
}

/// Rank of a peer in the communicator, and in the world. Both are -1 for [`ANY_PEER`]; the first is also -1 if the peer
/// is not in the communicator.
fn rank(peer: u32, ranks: &[u32]) -> (Word, Word) {
    let none = Word::from(INVALID_PROCESS);
    if peer == ANY_PEER {
        return (none, none);
    }
    // In most groups, a rank in the group equals the world rank.
    let local = match ranks.get(peer as usize) {
        Some(rank) if *rank == peer => Some(peer as usize),
        _ => ranks.iter().position(|rank| *rank == peer),
    };
    let local = local.and_then(|rank| Word::try_from(rank).ok());
    (local.unwrap_or(none), peer.into())
}

/// The lines of `extra_text`: see the head of this file.
fn text_lines(
    operation: &TargetOperation,
    datatype: Option<&TargetDatatype>,
    call: Option<&TargetCall>,
) -> [[u8; 64]; 5] {
    let mut lines = [[0; 64]; 5];
    let [kind, progress, third, fourth, fifth] = &mut lines;
    let [mut kind, mut progress, mut awaited, mut last] =
        [kind, progress, third, fifth].map(TextLine::of);
    if let Some(datatype) = datatype {
        awaited.add_items(operation.bytes, datatype);
        awaited = TextLine::of(fourth);
    } else if (operation.is_call || operation.collective != 0)
        && let Some(bytes) = length(operation)
    {
        awaited.add_number(bytes);
        awaited.add(if bytes == 1 {
            " byte a rank"
        } else {
            " bytes a rank"
        });
        awaited = TextLine::of(fourth);
    }
    match call {
        Some(call) if operation.is_call => {
            kind.add_bytes(name_of(call));
            progress.add(wait_reason(call));
        }
        _ => describe(operation, &mut kind, &mut progress),
    }
    if let Some(call) = call {
        let (all, pending) = call.requests;
        if call.waits_for == CALL_LIST && all > 1 {
            last.add("requests: ");
            last.add_number(all.saturating_sub(pending).into());
            last.add(" done, ");
            last.add_number(pending.into());
            last.add(" pending");
        }
        awaited.add("in ");
        awaited.add_bytes(name_of(call));
        awaited.add(", wait ");
        awaited.add_number(call.wait.into());
        if call.thread != 0 && !call.is_main {
            awaited.add(", thread ");
            awaited.add_number(call.thread.into());
        }
        if call.is_moving {
            awaited.add(", moving");
        }
        if call.is_alone {
            awaited.add(", alone");
        }
    }
    lines
}

fn name_of(call: &TargetCall) -> &[u8] {
    until_zero(&call.function)
}

fn until_zero(text: &[u8]) -> &[u8] {
    let name = text.split(|byte| *byte == 0).next();
    name.unwrap_or_default()
}

fn describe(operation: &TargetOperation, kind: &mut TextLine<'_>, progress: &mut TextLine<'_>) {
    if operation.collective != 0 {
        let at = usize::from(operation.collective).wrapping_sub(1);
        kind.add("nonblocking ");
        kind.add(COLLECTIVES.get(at).copied().unwrap_or("collective"));
        return progress.add("waits for the other ranks");
    }
    kind.add(match operation.class {
        PENDING_SENDS => "send",
        UNEXPECTED_MESSAGES => "unexpected message",
        _ => "receive",
    });
    for (flag, name) in FLAGS {
        if operation.flags & flag != 0 {
            kind.add(name);
        }
    }
    let state = usize::from(operation.state);
    let is_gated =
        operation.flags & FLAG_GATED != 0 && operation.state == RequestState::Queued as u8;
    progress.add(match (operation.error, operation.flags & FLAG_CANCELLED) {
        (0, 0) if is_gated => "waits for its receive",
        (0, 0) => STATES.get(state).copied().unwrap_or_default(),
        (0, _) => "cancelled; not collected yet",
        _ => "failed; not collected yet",
    });
}

const FLAGS: [(u16, &str); 4] = [
    (FLAG_SYNCHRONOUS, ", synchronous"),
    (FLAG_PERSISTENT, ", persistent"),
    (FLAG_STRUCTURED, ", not contiguous"),
    (FLAG_ORPHAN, ", request freed"),
];

/// Texts, indexed by the number of a [`RequestState`].
const STATES: [&str; 10] = [
    "",
    "not started",
    "posted; waits for its message",
    "waits for room towards its receiver",
    "announced; waits for its receive",
    "matched; data are moving",
    "arrived with its data",
    "announced; its data are with the sender",
    "taken by a matched probe",
    "complete; not collected yet",
];

/// A line of text, truncated to 63 bytes.
struct TextLine<'a> {
    text: &'a mut [u8; 64],
    len: usize,
}

impl<'a> TextLine<'a> {
    fn of(text: &'a mut [u8; 64]) -> Self {
        Self { text, len: 0 }
    }

    fn add(&mut self, text: &str) {
        self.add_bytes(text.as_bytes());
    }

    /// Adds a text like `10 of MPI_DOUBLE`. The number is left out if `bytes` is not a multiple of the datatype's size.
    fn add_items(&mut self, bytes: u64, datatype: &TargetDatatype) {
        let whole = bytes.checked_rem(datatype.bytes) == Some(0);
        if let Some(items) = bytes.checked_div(datatype.bytes).filter(|_| whole) {
            self.add_number(items);
            self.add(" ");
        }
        self.add("of ");
        match until_zero(&datatype.name) {
            [] => self.add("a datatype without a name"),
            name => self.add_bytes(name),
        }
    }

    fn add_number(&mut self, number: u64) {
        let mut divisor = 10_000_000_000_000_000_000;
        while divisor > 1 && number < divisor {
            divisor /= 10;
        }
        while divisor > 0 {
            let digit = number / divisor % 10;
            self.add_bytes(&[b'0' + (digit & 0xf) as u8]);
            divisor /= 10;
        }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        // The last byte stays zero: the terminator.
        let end = self.len.saturating_add(bytes.len()).min(63);
        let room = self.text.get_mut(self.len..end).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.len = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(class: i32) -> TargetOperation {
        TargetOperation {
            context: 4,
            class,
            sequence: 1,
            state: RequestState::Posted as u8,
            flags: 0,
            error: 0,
            peer: 7,
            tag: 3,
            bytes: 16,
            buffer: 0x1000,
            matched: (5, 9, 8),
            ..TargetOperation::default()
        }
    }

    #[test]
    fn mqs_036_037_peers_have_a_local_and_a_world_rank() {
        let shown_in = |ranks: &[u32]| {
            let it = pending_operation(&operation(PENDING_SENDS), ranks, None, None);
            (it.desired_local_rank, it.desired_global_rank)
        };
        assert_eq!(shown_in(&[7, 2]), (0, 7));
        assert_eq!(shown_in(&[0, 1, 2, 3, 4, 5, 6, 7]), (7, 7));
        assert_eq!(shown_in(&[1, 2]), (-1, 7), "a rank outside the group");
    }

    #[test]
    fn mqs_038_047_wildcards_and_text_lines_of_a_receive() {
        let mut wild = operation(1);
        (wild.peer, wild.tag) = (ANY_PEER, ANY_TAG);
        wild.flags = FLAG_PERSISTENT | FLAG_STRUCTURED | FLAG_SYNCHRONOUS | FLAG_ORPHAN;
        let it = pending_operation(&wild, &[0, 1], None, None);
        assert_eq!((it.desired_local_rank, it.desired_global_rank), (-1, -1));
        assert_eq!((it.tag_wild, it.desired_tag), (1, -2));
        let line = |number: usize| {
            let text = it.extra_text[number].split(|byte| *byte == 0).next();
            core::str::from_utf8(text.unwrap()).unwrap()
        };
        assert_eq!(
            line(0),
            "receive, synchronous, persistent, not contiguous, request freed"
        );
        assert_eq!(line(1), "posted; waits for its message");
        assert_eq!(line(2), "");
    }

    #[test]
    fn a_gated_send_is_shown_as_waiting_for_its_receive() {
        let mut send = operation(PENDING_SENDS);
        let line_of = |it: &TargetOperation| pending_operation(it, &[], None, None).extra_text[1];
        let is = |text: [u8; 64], expected: &str| {
            assert_eq!(core::str::from_utf8(until_zero(&text)).unwrap(), expected);
        };
        send.state = RequestState::Queued as u8;
        is(line_of(&send), "waits for room towards its receiver");
        send.flags = FLAG_GATED;
        is(line_of(&send), "waits for its receive");
        send.state = RequestState::Complete as u8;
        is(line_of(&send), "complete; not collected yet");
    }

    #[test]
    fn mqs_047_count_and_datatype_are_shown() {
        let line_of = |bytes, size, name: &str| {
            let mut datatype = TargetDatatype {
                handle: 5,
                bytes: size,
                name: [0; 64],
            };
            for (place, byte) in datatype.name.iter_mut().zip(name.bytes()) {
                *place = byte;
            }
            let mut it = operation(1);
            it.bytes = bytes;
            pending_operation(&it, &[], Some(&datatype), None).extra_text[2]
        };
        let is = |text: [u8; 64], expected: &str| {
            let text = core::str::from_utf8(until_zero(&text)).unwrap();
            assert_eq!(text, expected);
        };
        is(line_of(80, 8, "MPI_DOUBLE"), "10 of MPI_DOUBLE");
        is(line_of(0, 8, "MPI_DOUBLE"), "0 of MPI_DOUBLE");
        is(line_of(81, 8, "MPI_DOUBLE"), "of MPI_DOUBLE");
        is(line_of(0, 0, "empty"), "of empty");
        let most = "18446744073709551615 of a datatype without a name";
        is(line_of(u64::MAX, 1, ""), most);
        let long = [b'x'; 70];
        let long = line_of(8, 8, core::str::from_utf8(&long).unwrap());
        assert_eq!(until_zero(&long).len(), 63);
    }

    #[test]
    fn mqs_035_043_046_actual_and_desired_envelopes_are_separate() {
        let mut receive = operation(1);
        receive.state = RequestState::Moving as u8;
        let it = pending_operation(&receive, &[0, 5, 7], None, None);
        assert_eq!(it.status, MATCHED);
        assert_eq!(
            (it.desired_local_rank, it.desired_tag, it.desired_length),
            (2, 3, 16)
        );
        assert_eq!((it.actual_local_rank, it.actual_global_rank), (1, 5));
        assert_eq!((it.actual_tag, it.actual_length), (9, 8));
        receive.state = RequestState::Complete as u8;
        assert_eq!(
            pending_operation(&receive, &[], None, None).status,
            COMPLETE
        );
        let unexpected = pending_operation(&operation(UNEXPECTED_MESSAGES), &[7], None, None);
        assert_eq!((unexpected.status, unexpected.system_buffer), (PENDING, 1));
        assert_eq!(
            (unexpected.actual_local_rank, unexpected.actual_length),
            (0, 16)
        );
    }
}
