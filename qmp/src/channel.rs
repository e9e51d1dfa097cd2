// SPDX-License-Identifier: MIT OR Apache-2.0
//! Declared memory and declared messages. A message handle is a list of ends of gated channels, one or many.
//!
//! The k-th started send of a class meets the k-th started receive of it. Messages to a numbered node are class 0; those to a
//! neighbour have a class for each axis and way, so that on a grid two nodes thick both ways, and on a grid one node thick
//! all axes, are kept apart.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::gate::{self, MessageDirection, MessageFailureKind, StridedPiece};
use crate::machine::{QmpCommunicator, ask};
use crate::state::{self, QmpState};
use crate::status::{OperationOutcome, QmpFailure, QmpStatus, Result};

/// Memory declared for messages.
#[derive(Debug)]
pub struct MessageMemory {
    pieces: Vec<StridedPiece>,
}

/// A declared message.
#[derive(Debug)]
pub struct DeclaredMessage {
    /// Its ends, in declared order.
    ids: Arc<[u64]>,
    /// What each of them is.
    ends: Vec<MessageEnd>,
    outcome: OperationOutcome,
}

/// One end of a declared message.
#[derive(Debug)]
struct MessageEnd {
    memory: Vec<StridedPiece>,
    direction: MessageDirection,
    /// The node at the other end.
    node: c_int,
}

impl MessageEnd {
    /// How its message has failed, in words.
    fn words(&self, wrong: &MessageFailureKind) -> String {
        let node = self.node;
        let sends = self.direction == MessageDirection::Send;
        match wrong {
            MessageFailureKind::TooLong {
                message,
                room,
                is_earlier,
            } => {
                let way = if sends { "to" } else { "from" };
                let (which, is, has) = match is_earlier {
                    true => ("an earlier message", "was", "had"),
                    false => ("the message", "is", "has"),
                };
                format!(
                    "{which} of {message} bytes {way} node {node} {is} longer than its receive, which {has} room for {room}"
                )
            }
            MessageFailureKind::Lost(why) if why.is_empty() => format!("node {node} is lost"),
            MessageFailureKind::Lost(why) => format!("node {node} is lost: {why}"),
            MessageFailureKind::Left => {
                let what = if sends {
                    "will never receive the message"
                } else {
                    "will never send the message"
                };
                format!("node {node} {what}: it has finalised QMP, or freed the communicator")
            }
        }
    }
}

/// The node that a message goes to or comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessagePeer {
    /// A node by its number.
    Node(c_int),
    /// The neighbour along an axis: +1 is up.
    Neighbour {
        /// Counted from 0.
        axis: c_int,
        /// +1 or -1.
        sign: c_int,
    },
}

/// Keeps declared memory: the handle.
pub fn declare_memory(pieces: Vec<StridedPiece>) -> Result<usize> {
    let mut bytes = 0usize;
    let mut whole: Vec<StridedPiece> = Vec::new();
    for piece in pieces {
        let piece_bytes = piece.bytes().unwrap_or(usize::MAX);
        bytes = bytes.saturating_add(piece_bytes);
        if piece_bytes == 0 {
            continue;
        }
        if piece.base().is_null() {
            return Err(QmpFailure::new(
                QmpStatus::BAD_MEMORY,
                format!("NULL was given for memory of {piece_bytes} bytes"),
            ));
        }
        let piece = piece.joined();
        match whole.last_mut() {
            Some(last) if last.meets(&piece) => *last = last.with(&piece),
            _ => whole.push(piece),
        }
    }
    if isize::try_from(bytes).is_err() {
        return Err(QmpFailure::new(
            QmpStatus::MEMSIZE_TOOBIG,
            "a message of more bytes than there are addresses was declared",
        ));
    }
    let full = || QmpFailure::new(QmpStatus::NOMEM_ERR, "there is too much declared memory");
    state::running(|state| {
        state
            .message_memories
            .insert(MessageMemory { pieces: whole })
            .ok_or_else(full)
    })
}

/// `QMP_free_msgmem`
pub fn free_memory(handle: usize) -> Result<()> {
    state::running(|state| {
        let memory = state.message_memories.remove(handle);
        memory.map(|_| ()).ok_or_else(|| no_memory(handle))
    })
}

/// Declares one message: the handle.
pub fn declare(
    which: Option<usize>,
    memory: usize,
    direction: MessageDirection,
    peer: MessagePeer,
) -> Result<usize> {
    let (mpi, node, class) = ask(which, |comm| {
        let (node, class) = find(comm, direction, peer)?;
        Ok((*comm.mpi, node, class))
    })?;
    let pieces = state::running(|state| {
        let found = state.message_memories.get(memory);
        found
            .map(|found| found.pieces.clone())
            .ok_or_else(|| no_memory(memory))
    })?;
    let id = gate::declare(mpi, direction, node, class, &pieces)?;
    let end = MessageEnd {
        memory: pieces,
        direction,
        node,
    };
    keep([id].into(), vec![end])
}

fn keep(ids: Arc<[u64]>, ends: Vec<MessageEnd>) -> Result<usize> {
    let handle = DeclaredMessage {
        ids,
        ends,
        outcome: OperationOutcome::default(),
    };
    let full = || QmpFailure::new(QmpStatus::NOMEM_ERR, "there are too many messages");
    state::running(|state| state.messages.insert(handle).ok_or_else(full))
}

/// The node and the class of a message.
fn find(
    comm: &QmpCommunicator,
    direction: MessageDirection,
    peer: MessagePeer,
) -> Result<(c_int, c_int)> {
    let (axis, sign) = match peer {
        MessagePeer::Node(node) => {
            comm.check_node(node)?;
            return Ok((node, 0));
        }
        MessagePeer::Neighbour { axis, sign } => (axis, sign),
    };
    let declared = comm.topology()?;
    let axes = declared.dims.len();
    let wrong = |text| QmpFailure::new(QmpStatus::INVALID_ARG, text);
    if sign != 1 && sign != -1 {
        return Err(wrong(format!(
            "the direction {sign} was given, expected 1 or -1"
        )));
    }
    let index = usize::try_from(axis).ok().filter(|axis| *axis < axes);
    let index = index.ok_or_else(|| {
        wrong(format!(
            "axis {axis} was given, the logical machine has {axes}, counted from 0"
        ))
    })?;
    let here = usize::try_from(comm.node).unwrap_or_default();
    let node = declared.topology.neighbour(here, index, sign > 0);
    let node = node.and_then(|node| c_int::try_from(node).ok());
    let node = node
        .ok_or_else(|| QmpFailure::new(QmpStatus::NONEIGHBOR_INFO, "there is no such neighbour"))?;
    // What is sent up arrives from below.
    let travels_up = (sign > 0) == (direction == MessageDirection::Send);
    Ok((
        node,
        1 + 2 * axis.min(AXES_APART - 1) + c_int::from(travels_up),
    ))
}

/// How many axes have classes of their own; all from the last of them on share its classes.
const AXES_APART: c_int = 7;

/// `QMP_declare_multiple`: one handle of many, which are dead from now on.
pub fn join(handles: &[usize]) -> Result<usize> {
    let mut sorted = handles.to_vec();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let text = format!("the message handle {:#x} was given twice", twice[0]);
        return Err(QmpFailure::new(QmpStatus::BAD_MESSAGE, text));
    }
    let all = handles
        .iter()
        .map(|handle| must_rest(*handle))
        .collect::<Result<Vec<_>>>()?;
    let parts = state::running(|state| {
        Ok(handles
            .iter()
            .filter_map(|handle| state.messages.remove(*handle))
            .collect::<Vec<_>>())
    })?;
    let ids = all.iter().flat_map(|ids| ids.iter().copied()).collect();
    let ends = parts.into_iter().flat_map(|part| part.ends);
    keep(ids, ends.collect())
}

/// `QMP_free_msghandle`
pub fn free(handle: usize) -> Result<()> {
    let ids = must_rest(handle)?;
    state::running(|state| Ok(state.messages.remove(handle)))?;
    ids.iter().try_for_each(|id| gate::free(*id))
}

/// `QMP_start`
#[inline]
pub fn start(handle: usize) -> Result<()> {
    state::running(|state| {
        let message = state.messages.get_mut(handle);
        let message = message.ok_or_else(|| no_message(handle))?;
        let started = gate::start(&message.ids);
        message.outcome.set(&started);
        started
    })
}

/// `QMP_is_complete`: also true for what has failed, since nothing more will come.
#[inline]
pub fn is_complete(handle: usize) -> Result<bool> {
    let known = look_up(handle)?;
    told(handle, &known, gate::test(&known.ids))
}

/// `QMP_wait`
#[inline]
pub fn wait(handle: usize) -> Result<()> {
    let known = look_up(handle)?;
    told(handle, &known, gate::wait(&known.ids, known.timeout_s))
}

/// What an operation needs to know of a message.
struct MessageSummary {
    ids: Arc<[u64]>,
    /// The last operation went well: there is nothing to be wiped.
    is_plain: bool,
    timeout_s: Option<f64>,
}

#[inline]
fn look_up(handle: usize) -> Result<MessageSummary> {
    state::running(|state| {
        let message = message(state, handle)?;
        Ok(MessageSummary {
            ids: Arc::clone(&message.ids),
            is_plain: message.outcome.is_success(),
            timeout_s: state.settings.timeout_s,
        })
    })
}

/// `QMP_wait_all`: waits for all, whatever becomes of one; the first error is told.
pub fn wait_all(handles: &[usize]) -> Result<()> {
    handles
        .iter()
        .map(|handle| wait(*handle))
        .fold(Ok(()), Result::and)
}

/// `QMP_clear_to_send`: a hint, of which only the start makes something. The gate is not opened now: the next start of another
/// handle of the class may come first, and its message would go here.
pub fn clear_to_send(handle: usize) -> Result<()> {
    must_rest(handle).map(|_| ())
}

/// `QMP_change_address_multiple`: a new begin for the memory of each end, in declared order.
///
/// `moved` makes a piece of another place, from where its message began to where it begins.
pub fn change_addresses(
    handle: usize,
    bases: &[*mut c_void],
    moved: impl Fn(StridedPiece, *mut c_void, *mut c_void) -> StridedPiece,
) -> Result<()> {
    let ids = must_rest(handle)?;
    if bases.len() != ids.len() {
        let text = format!(
            "{} addresses were given for a handle of {} messages",
            bases.len(),
            ids.len()
        );
        return Err(QmpFailure::new(QmpStatus::INVALID_ARG, text));
    }
    if bases.iter().any(|base| base.is_null()) {
        return Err(QmpFailure::new(
            QmpStatus::BAD_MEMORY,
            "NULL was given as an address of a message",
        ));
    }
    for (index, (id, base)) in ids.iter().zip(bases).enumerate() {
        let mut pieces = of(handle, |message| message.ends[index].memory.clone())?;
        let Some(from) = pieces.first().map(StridedPiece::base) else {
            continue;
        };
        pieces
            .iter_mut()
            .for_each(|piece| *piece = moved(*piece, from, *base));
        gate::change(*id, &pieces)?;
        state::running(|state| {
            if let Some(message) = state.messages.get_mut(handle) {
                message.ends[index].memory = pieces;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Visits how the last operation of a message ended.
pub fn outcome<R>(handle: usize, visit: impl FnOnce(&OperationOutcome) -> R) -> Result<R> {
    of(handle, |message| visit(&message.outcome))
}

/// How many messages a handle has.
pub fn count(handle: usize) -> Result<usize> {
    of(handle, |message| message.ids.len())
}

fn of<R>(handle: usize, visit: impl FnOnce(&DeclaredMessage) -> R) -> Result<R> {
    state::running(|state| message(state, handle).map(visit))
}

#[inline]
fn message(state: &QmpState, handle: usize) -> Result<&DeclaredMessage> {
    state.messages.get(handle).ok_or_else(|| no_message(handle))
}

/// The ends of a message that is not under way. One that has failed rests too, and its words say how.
fn must_rest(handle: usize) -> Result<Arc<[u64]>> {
    let known = look_up(handle)?;
    match gate::test(&known.ids) {
        Ok(false) => Err(QmpFailure::new(
            QmpStatus::INVALID_OP,
            "the message was started and is not complete yet: wait for it first",
        )),
        Ok(true) => Ok(known.ids),
        failed @ Err(_) => {
            let _ = write_down(handle, &known, failed);
            Ok(known.ids)
        }
    }
}

/// Keeps with a handle how an operation ended; a success after a success changes nothing.
#[inline]
fn told<R>(handle: usize, known: &MessageSummary, result: Result<R>) -> Result<R> {
    if result.is_err() || !known.is_plain {
        return write_down(handle, known, result);
    }
    result
}

#[cold]
fn write_down<R>(handle: usize, known: &MessageSummary, result: Result<R>) -> Result<R> {
    // Asked for outside of the state: it is a call of the library below.
    let why = result.as_ref().err().and_then(|_| gate::why(&known.ids));
    state::visit(|state| {
        let Some(message) = state.messages.get_mut(handle) else {
            return result;
        };
        let end = why.and_then(|why| Some(message.ends.get(why.index)?.words(&why.kind)));
        let result = result.map_err(|failure| match end {
            Some(words) if failure.status != QmpStatus::TIMEOUT => {
                QmpFailure::new(failure.status, words)
            }
            _ => failure,
        });
        message.outcome.set(&result);
        result
    })
}

#[cold]
fn no_message(handle: usize) -> QmpFailure {
    let text =
        format!("{handle:#x} is no message handle, or one that was freed or joined with others");
    QmpFailure::new(QmpStatus::BAD_MESSAGE, text)
}

fn no_memory(handle: usize) -> QmpFailure {
    let text = format!("{handle:#x} is no declared memory, or was freed");
    QmpFailure::new(QmpStatus::BAD_MEMORY, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_failed_messages_name_node_sizes_and_reason() {
        let [send, receive] =
            [MessageDirection::Send, MessageDirection::Receive].map(|direction| MessageEnd {
                memory: Vec::new(),
                direction,
                node: 7,
            });
        let too_long = |is_earlier| MessageFailureKind::TooLong {
            message: 10,
            room: 5,
            is_earlier,
        };
        let cases = [
            (
                &send,
                too_long(false),
                "the message of 10 bytes to node 7 is longer than its receive, which has room for 5",
            ),
            (
                &receive,
                too_long(false),
                "the message of 10 bytes from node 7 is longer than its receive, which has room for 5",
            ),
            (
                &send,
                too_long(true),
                "an earlier message of 10 bytes to node 7 was longer than its receive, which had room for 5",
            ),
            (
                &send,
                MessageFailureKind::Lost("it was killed".to_owned()),
                "node 7 is lost: it was killed",
            ),
            (
                &receive,
                MessageFailureKind::Lost(String::new()),
                "node 7 is lost",
            ),
            (
                &send,
                MessageFailureKind::Left,
                "node 7 will never receive the message: it has finalised QMP, or freed the communicator",
            ),
            (
                &receive,
                MessageFailureKind::Left,
                "node 7 will never send the message: it has finalised QMP, or freed the communicator",
            ),
        ];
        for (end, wrong, words) in cases {
            assert_eq!(end.words(&wrong), words);
        }
    }
}
