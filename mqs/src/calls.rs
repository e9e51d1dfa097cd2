// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the target that wait, and which operations they wait for.

use queue_layout::{
    ANY_PEER, ANY_TAG, CALL, CALL_FREE, CALL_LIST, CALL_MESSAGE, CALL_NAME_BYTES, CALL_OTHER,
    CALL_RANKS, CALL_REQUESTS, NO_BYTES, OF_COLLECTIVES, RequestState, call_field,
};

use crate::image::{AnchorFields, Map, StoppedProcess, Trouble, low};
use crate::interface::{INACTIVE_RECEIVES, OTHER_OPERATIONS, UNEXPECTED_MESSAGES};
use crate::list::{Allocator, GrowableList};
use crate::order;
use crate::walk::{RecordRun, TargetCommunicator, TargetOperation, TargetRecord};

/// A blocking call of the stopped process.
#[derive(Clone, Copy, Debug)]
pub struct TargetCall {
    /// What for: a `CALL_*` number.
    pub waits_for: u32,
    /// The thread, by the system's number.
    pub thread: u32,
    /// Which of the waits that were noted in its row this is.
    pub wait: u32,
    /// No other thread of the process can be in MPI meanwhile.
    pub is_alone: bool,
    /// It is the main thread.
    pub is_main: bool,
    /// The function's name, ended by a zero.
    pub function: [u8; CALL_NAME_BYTES],
    /// Of a call with a list of requests: those that are active or done, and those of them that are not complete.
    pub requests: (u32, u32),
    /// Data of a collective are just moving.
    pub is_moving: bool,
    /// Something that it waits for is not listed.
    is_hidden: bool,
    context: u32,
    peer: u32,
    tag: i32,
    tokens: [u32; 2],
    /// Address and number of the handles of a list, and what a handle is more than a token.
    list: (u64, u64, u64),
    /// Of a collective: bytes of its data, or [`NO_BYTES`].
    bytes: u64,
}

/// A request and the call that waits for it, by number.
type Mark = (u32, u32);

/// Hands every call that waits to `take`.
///
/// # Errors
/// When memory cannot be read, or `take` refuses.
pub fn calls(
    target: &impl StoppedProcess,
    found: &AnchorFields,
    map: &Map,
    mut take: impl FnMut(TargetCall) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    if found.call_rows == 0 || found.calls == 0 {
        return Ok(());
    }
    let records = RecordRun {
        address: found.calls,
        count: found.call_rows.min(MAX_CALLS),
        bytes: found.call_row_bytes,
    };
    records.each(target, |_, bytes| {
        let row = TargetRecord {
            target,
            map,
            bytes,
            structure: CALL,
        };
        call(&row, found).map_or(Ok(()), &mut take)
    })
}

/// A row, if a call waits there and it is not being changed.
fn call(row: &TargetRecord<'_, impl StoppedProcess>, found: &AnchorFields) -> Option<TargetCall> {
    let word = |field| low(row.get(field));
    let waits_for = word(call_field::WAITS_FOR);
    let version = word(call_field::VERSION);
    let whole = version.is_multiple_of(2);
    if waits_for == CALL_FREE || waits_for > CALL_OTHER || !whole {
        return None;
    }
    let mut function = [0; CALL_NAME_BYTES];
    let text = row.bytes_of(call_field::FUNCTION);
    let ended = text.iter().take(CALL_NAME_BYTES - 1);
    for (place, byte) in function.iter_mut().zip(ended.take_while(|it| **it != 0)) {
        *place = *byte;
    }
    let mut tokens = [0; 2];
    let words = row.bytes_of(call_field::TOKENS).chunks_exact(4);
    for (place, bytes) in tokens.iter_mut().zip(words) {
        *place = low(row.target.number(bytes));
    }
    Some(TargetCall {
        waits_for,
        thread: word(call_field::THREAD),
        // Two changes a wait, and the first of each makes it odd.
        wait: (version >> 2).wrapping_add(1),
        is_alone: found.one_thread,
        is_main: word(call_field::THREAD) == found.pid,
        function,
        requests: (0, 0),
        is_moving: false,
        is_hidden: false,
        context: word(call_field::CONTEXT),
        peer: word(call_field::PEER),
        tag: word(call_field::TAG).cast_signed(),
        tokens,
        list: (
            row.get(call_field::LIST),
            row.get(call_field::COUNT),
            row.get(call_field::BASE),
        ),
        // Before 1.5 it was not told.
        bytes: match row.map.place(CALL, call_field::BYTES).size() {
            0 => NO_BYTES,
            _ => row.get(call_field::BYTES),
        },
    })
}

impl TargetCall {
    /// Hands the tokens of all requests that this waits for to `take`: 0 for a send that was complete at once. What cannot be
    /// read of the program's list is left out.
    fn tokens(
        &self,
        target: &impl StoppedProcess,
        mut take: impl FnMut(u32) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut named = self.tokens.iter().filter(|token| **token != 0);
        named.try_for_each(|token| take(*token))?;
        if self.waits_for != CALL_LIST {
            return Ok(());
        }
        let (address, count, base) = self.list;
        let handles = RecordRun {
            address,
            count: low(count.min(MAX_HANDLES)),
            bytes: 8,
        };
        let mut refused = Ok(());
        let read = handles.each(target, |_, bytes| {
            let token = target.number(bytes).wrapping_sub(base);
            match u32::try_from(token) {
                Ok(token) if refused.is_ok() => refused = take(token),
                _ => {}
            }
            refused
        });
        match read {
            Err(Trouble::Unreadable) => refused,
            other => other.and(refused),
        }
    }

    /// The entry of a call of which no operation tells, among what is pending on its communicator besides messages.
    fn entry(&self, number: u32, comms: &[TargetCommunicator]) -> Option<TargetOperation> {
        let its = comms.iter().find(|it| it.context == self.context);
        // What has no communicator is shown with the first, which is that of all ranks.
        let context = its.or_else(|| comms.first())?.context;
        let (peer, tag) = match self.waits_for {
            CALL_MESSAGE | CALL_RANKS => (self.peer, self.tag),
            _ => (ANY_PEER, ANY_TAG),
        };
        Some(TargetOperation {
            context,
            class: OTHER_OPERATIONS,
            sequence: BEHIND.wrapping_add(number.into()),
            state: RequestState::Posted as u8,
            peer,
            tag,
            bytes: match self.waits_for {
                CALL_RANKS => self.bytes,
                _ => NO_BYTES,
            },
            call: Some(number),
            is_call: true,
            ..TargetOperation::default()
        })
    }
}

/// Marks the operations that a call waits for, and adds entries for calls of which none tells.
///
/// # Errors
/// When memory cannot be read, or there is none.
pub fn mark(
    target: &impl StoppedProcess,
    allocator: Allocator,
    calls: &mut [TargetCall],
    comms: &[TargetCommunicator],
    operations: &mut GrowableList<TargetOperation>,
) -> Result<(), Trouble> {
    let mut marks: GrowableList<Mark> = GrowableList::new();
    let marked = gather(target, allocator, calls, &mut marks);
    order::sort_by_key(marks.as_mut_slice(), |mark| *mark);
    let active = |it: &&mut TargetOperation| it.class != INACTIVE_RECEIVES;
    for operation in operations.as_mut_slice().iter_mut().filter(active) {
        let place = marks.as_slice();
        let first = place.partition_point(|(token, _)| *token < operation.token);
        let Some((_, number)) = place.get(first).filter(|mark| mark.0 == operation.token) else {
            continue;
        };
        operation.call = Some(*number);
        if operation.state == RequestState::Complete as u8 {
            continue;
        }
        let in_queue = |class| class <= UNEXPECTED_MESSAGES || class == OTHER_OPERATIONS;
        let listed =
            in_queue(operation.class) && comms.iter().any(|it| it.context == operation.context);
        if let Some(call) = calls.get_mut(*number as usize) {
            call.requests.1 = call.requests.1.saturating_add(1);
            call.is_hidden |= !listed;
            if call.context == 0 {
                call.context = operation.context;
            }
        }
    }
    marks.clear(allocator);
    marked?;
    note_moving(calls, comms, operations.as_slice());
    for (number, call) in (0..).zip(calls.iter()) {
        // Requests that are all listed, or complete so that it is about to return, tell of it.
        let by_requests = matches!(call.waits_for, CALL_REQUESTS | CALL_LIST);
        if by_requests && !call.is_hidden {
            continue;
        }
        if let Some(entry) = call.entry(number, comms) {
            operations.push(allocator, entry)?;
        }
    }
    Ok(())
}

/// Notes which calls wait in a collective whose data are just moving.
fn note_moving(
    calls: &mut [TargetCall],
    comms: &[TargetCommunicator],
    operations: &[TargetOperation],
) {
    let moving =
        |it: &&TargetOperation| it.state == RequestState::Moving as u8 && it.collective == 0;
    for operation in operations.iter().filter(moving) {
        let of = |context: u32| context.wrapping_add(OF_COLLECTIVES) == operation.context;
        for call in calls.iter_mut() {
            call.is_moving |= match call.waits_for {
                CALL_RANKS => of(call.context),
                // It may wait for several, of any communicator.
                CALL_REQUESTS | CALL_LIST => comms.iter().any(|it| of(it.context)),
                _ => false,
            };
        }
    }
}

fn gather(
    target: &impl StoppedProcess,
    allocator: Allocator,
    calls: &mut [TargetCall],
    marks: &mut GrowableList<Mark>,
) -> Result<(), Trouble> {
    let mut room = MAX_HANDLES;
    for (number, call) in (0..).zip(calls) {
        let mut all = 0u32;
        call.tokens(target, |token| {
            all = all.saturating_add(1);
            room = room.saturating_sub(1);
            match (room, token) {
                (0, _) | (_, 0) => Ok(()),
                _ => marks.push(allocator, (token, number)),
            }
        })?;
        call.requests.0 = all;
    }
    Ok(())
}

/// What a call of which no operation tells waits for.
#[must_use]
pub fn purpose(call: &TargetCall) -> &'static str {
    match call.waits_for {
        CALL_MESSAGE => "waits for a message",
        CALL_RANKS => "waits for the other ranks",
        CALL_OTHER => "waits",
        _ => "waits for requests that are not listed",
    }
}

/// More than there can be, so that a walk ends whatever the target says.
const MAX_CALLS: u32 = 4096;
/// Where calls stand: behind nonblocking collectives.
const BEHIND: u64 = u64::MAX - MAX_CALLS as u64;
const MAX_HANDLES: u64 = 1 << 19;
