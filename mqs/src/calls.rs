// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking calls of the target, and the operations that they wait for.

use queue_layout::{
    ANY_PEER, ANY_TAG, CALL, CALL_FREE, CALL_LIST, CALL_MESSAGE, CALL_NAME_BYTES, CALL_OTHER,
    CALL_RANKS, CALL_REQUESTS, NO_BYTES, OF_COLLECTIVES, RequestState, call_field,
};

use crate::image::{AnchorFields, Map, MqsError, StoppedProcess, low};
use crate::interface::{INACTIVE_RECEIVES, OTHER_OPERATIONS, UNEXPECTED_MESSAGES};
use crate::list::{Allocator, GrowableList};
use crate::order;
use crate::walk::{RecordRun, TargetCommunicator, TargetOperation, TargetRecord};

/// A blocking call of the stopped process.
#[derive(Clone, Copy, Debug)]
pub struct TargetCall {
    /// The kind of condition that the call waits for: a `CALL_*` number.
    pub waits_for: u32,
    /// The thread's number in the system (`gettid`).
    pub thread: u32,
    /// Number of this wait among those recorded in the call's row of the call table, counted from 1.
    pub wait: u32,
    /// Whether no other thread of the process can be in MPI at the same time.
    pub is_alone: bool,
    /// Whether the calling thread is the main thread.
    pub is_main: bool,
    /// The function's name, zero-terminated.
    pub function: [u8; CALL_NAME_BYTES],
    /// Number of requests that the call waits for, and how many of these are not complete.
    pub requests: (u32, u32),
    /// Whether the call waits in a collective whose data are being transferred.
    pub is_moving: bool,
    /// Whether the call waits for a request that is not listed.
    is_hidden: bool,
    context: u32,
    peer: u32,
    tag: i32,
    tokens: [u32; 2],
    /// For `CALL_LIST`: address and length of the array of request handles, and the number to subtract from a handle to
    /// get its token.
    list: (u64, u64, u64),
    /// For a collective: bytes of data per rank, if these must be equal on all ranks; else [`NO_BYTES`].
    bytes: u64,
}

/// Token of a request, and index of the call that waits for it.
type Mark = (u32, u32);

/// Passes every blocking call to `take`.
///
/// # Errors
/// When memory cannot be read, or `take` fails.
pub fn calls(
    target: &impl StoppedProcess,
    anchor: &AnchorFields,
    map: &Map,
    mut take: impl FnMut(TargetCall) -> Result<(), MqsError>,
) -> Result<(), MqsError> {
    if anchor.call_rows == 0 || anchor.calls == 0 {
        return Ok(());
    }
    let records = RecordRun {
        address: anchor.calls,
        count: anchor.call_rows.min(MAX_CALLS),
        bytes: anchor.call_row_bytes,
    };
    records.each(target, |_, bytes| {
        let row = TargetRecord {
            target,
            map,
            bytes,
            structure: CALL,
        };
        call(&row, anchor).map_or(Ok(()), &mut take)
    })
}

/// The call of a row; `None` if the row is free or is being changed.
fn call(row: &TargetRecord<'_, impl StoppedProcess>, anchor: &AnchorFields) -> Option<TargetCall> {
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
    let pairs = row.bytes_of(call_field::TOKENS).chunks_exact(4);
    for (place, bytes) in tokens.iter_mut().zip(pairs) {
        *place = low(row.target.number(bytes));
    }
    Some(TargetCall {
        waits_for,
        thread: word(call_field::THREAD),
        // A wait changes the row twice, at its begin and end; each change increments the version by 2, and the version
        // is odd during the change.
        wait: (version >> 2).wrapping_add(1),
        is_alone: anchor.one_thread,
        is_main: word(call_field::THREAD) == anchor.pid,
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
        // Layouts before 1.5 have no such field.
        bytes: match row.map.place(CALL, call_field::BYTES).size() {
            0 => NO_BYTES,
            _ => row.get(call_field::BYTES),
        },
    })
}

impl TargetCall {
    /// Passes to `take` the token of each request that this call waits for. The token is 0 for a send that was complete
    /// when it was started. Handles in unreadable memory are left out.
    fn tokens(
        &self,
        target: &impl StoppedProcess,
        mut take: impl FnMut(u32) -> Result<(), MqsError>,
    ) -> Result<(), MqsError> {
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
            Err(MqsError::Unreadable) => refused,
            other => other.and(refused),
        }
    }

    /// The entry that stands for this call in the queue [`OTHER_OPERATIONS`]; `None` if the process has no listed
    /// communicator.
    fn entry(&self, number: u32, comms: &[TargetCommunicator]) -> Option<TargetOperation> {
        let its = comms.iter().find(|it| it.context == self.context);
        // A call without a communicator is listed with the first one, which contains all ranks.
        let context = its.or_else(|| comms.first())?.context;
        let (peer, tag) = match self.waits_for {
            CALL_MESSAGE | CALL_RANKS => (self.peer, self.tag),
            _ => (ANY_PEER, ANY_TAG),
        };
        Some(TargetOperation {
            context,
            class: OTHER_OPERATIONS,
            sequence: FIRST_CALL_SEQUENCE.wrapping_add(number.into()),
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

/// Records in each operation the call that waits for it. Adds an entry for each call that waits for something other
/// than requests, or for a request that is not listed.
///
/// # Errors
/// When memory cannot be read or allocated.
pub fn mark_awaited(
    target: &impl StoppedProcess,
    allocator: Allocator,
    calls: &mut [TargetCall],
    comms: &[TargetCommunicator],
    operations: &mut GrowableList<TargetOperation>,
) -> Result<(), MqsError> {
    let mut marks: GrowableList<Mark> = GrowableList::new();
    let marked = collect_marks(target, allocator, calls, &mut marks);
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
        // A call that waits only for listed requests needs no entry of its own: the entries of these requests contain
        // the call's name. If all its requests are complete, the call is about to return.
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

/// Sets `is_moving` for calls that wait in a collective whose data are being transferred.
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
                // The call's requests may belong to any communicator.
                CALL_REQUESTS | CALL_LIST => comms.iter().any(|it| of(it.context)),
                _ => false,
            };
        }
    }
}

fn collect_marks(
    target: &impl StoppedProcess,
    allocator: Allocator,
    calls: &mut [TargetCall],
    marks: &mut GrowableList<Mark>,
) -> Result<(), MqsError> {
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

/// What a call waits for: the second line of the entry that stands for the call.
#[must_use]
pub fn wait_reason(call: &TargetCall) -> &'static str {
    match call.waits_for {
        CALL_MESSAGE => "waits for a message",
        CALL_RANKS => "waits for the other ranks",
        CALL_OTHER => "waits",
        _ => "waits for requests that are not listed",
    }
}

/// More than the number of rows of any valid table. It bounds the walk, whatever the target's memory contains.
const MAX_CALLS: u32 = 4096;
/// Sequence number of the first call's entry. It is so large that in the queue the calls follow the nonblocking
/// collectives.
const FIRST_CALL_SEQUENCE: u64 = u64::MAX - MAX_CALLS as u64;
const MAX_HANDLES: u64 = 1 << 19;
