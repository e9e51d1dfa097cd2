// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements declared memory and declared messages. A message handle is a list of one or more ends of gated channels.
//!
//! Between two nodes, the k-th started send of a class matches the k-th started receive of that class. Messages to or
//! from a node by number have class 0. Messages to or from a neighbour have a class for each axis and direction; from
//! the seventh axis on, all axes share two classes. So messages stay distinct if one node is several neighbours: on an
//! axis of two nodes the other node is the neighbour in both directions, and on axes of one node each node is its own
//! neighbour.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::gate::{self, MessageDirection, MessageFailureKind, StridedPiece};
use crate::machine::{QmpCommunicator, with_comm};
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
    /// Ids of the message's ends, in declared order.
    ids: Arc<[u64]>,
    /// The ends themselves.
    ends: Vec<MessageEnd>,
    outcome: OperationOutcome,
}

/// One end of a declared message.
#[derive(Debug)]
struct MessageEnd {
    memory: Vec<StridedPiece>,
    direction: MessageDirection,
    /// The peer node.
    node: c_int,
}

impl MessageEnd {
    /// The text of a failure of its message.
    fn describe(&self, wrong: &MessageFailureKind) -> String {
        let node = self.node;
        let sends = self.direction == MessageDirection::Send;
        match wrong {
            MessageFailureKind::TooLong {
                message,
                room,
                is_earlier,
            } => {
                let preposition = if sends { "to" } else { "from" };
                let (which, is, has) = match is_earlier {
                    true => ("an earlier message", "was", "had"),
                    false => ("the message", "is", "has"),
                };
                format!(
                    "{which} of {message} bytes {preposition} node {node} {is} longer than its receive, which {has} room for {room}"
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
    /// The neighbour along an axis.
    Neighbour {
        /// Counted from 0.
        axis: c_int,
        /// +1 for up or -1 for down.
        sign: c_int,
    },
}

/// Declares memory; returns its handle.
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
        let piece = piece.coalesced();
        match whole.last_mut() {
            Some(last) if last.is_followed_by(&piece) => *last = last.merged_with(&piece),
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

/// Declares one message; returns its handle.
pub fn declare(
    which: Option<usize>,
    memory: usize,
    direction: MessageDirection,
    peer: MessagePeer,
) -> Result<usize> {
    let (mpi, node, class) = with_comm(which, |comm| {
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
    insert_message([id].into(), vec![end])
}

fn insert_message(ids: Arc<[u64]>, ends: Vec<MessageEnd>) -> Result<usize> {
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
    Ok((node, class_of(axis, sign, direction)))
}

/// The class of messages along `axis`, 1 to 14, which is the same at both ends: a message sent up is received from
/// below.
fn class_of(axis: c_int, sign: c_int, direction: MessageDirection) -> c_int {
    let travels_up = (sign > 0) == (direction == MessageDirection::Send);
    1 + 2 * axis.min(AXES_WITH_OWN_CLASS - 1) + c_int::from(travels_up)
}

/// Number of axes with classes of their own. All further axes share the two classes of the last of these.
const AXES_WITH_OWN_CLASS: c_int = 7;

/// `QMP_declare_multiple`: joins handles into one new handle. The given handles become invalid.
pub fn join(handles: &[usize]) -> Result<usize> {
    let mut sorted = handles.to_vec();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let text = format!("the message handle {:#x} was given twice", twice[0]);
        return Err(QmpFailure::new(QmpStatus::BAD_MESSAGE, text));
    }
    let all = handles
        .iter()
        .map(|handle| require_idle(*handle))
        .collect::<Result<Vec<_>>>()?;
    let parts = state::running(|state| {
        Ok(handles
            .iter()
            .filter_map(|handle| state.messages.remove(*handle))
            .collect::<Vec<_>>())
    })?;
    let ids = all.iter().flat_map(|ids| ids.iter().copied()).collect();
    let ends = parts.into_iter().flat_map(|part| part.ends);
    insert_message(ids, ends.collect())
}

/// `QMP_free_msghandle`
pub fn free(handle: usize) -> Result<()> {
    let ids = require_idle(handle)?;
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

/// `QMP_is_complete`. Returns an error for a failed message; the entry point then returns true, since a failed message
/// will not change any more.
#[inline]
pub fn is_complete(handle: usize) -> Result<bool> {
    let known = look_up(handle)?;
    record(handle, &known, gate::test(&known.ids))
}

/// `QMP_wait`
#[inline]
pub fn wait(handle: usize) -> Result<()> {
    let known = look_up(handle)?;
    record(handle, &known, gate::wait(&known.ids, known.timeout_s))
}

/// The fields of a message that tests and waits need.
struct MessageSummary {
    ids: Arc<[u64]>,
    /// Whether the last operation succeeded. If so, the next success need not clear an error.
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

/// `QMP_wait_all`: waits for all messages, even if one fails; returns the first error.
pub fn wait_all(handles: &[usize]) -> Result<()> {
    handles
        .iter()
        .map(|handle| wait(*handle))
        .fold(Ok(()), Result::and)
}

/// `QMP_clear_to_send`: a hint. Only checks that the message is not in progress. It does not open the gate: another
/// handle of the class may be started first, and must then receive the next message.
pub fn clear_to_send(handle: usize) -> Result<()> {
    require_idle(handle).map(|_| ())
}

/// `QMP_change_address_multiple`: sets a new base address for the memory of each end, in declared order.
///
/// `moved` relocates a piece; its arguments are the piece, and the message's old and new base address.
pub fn change_addresses(
    handle: usize,
    bases: &[*mut c_void],
    moved: impl Fn(StridedPiece, *mut c_void, *mut c_void) -> StridedPiece,
) -> Result<()> {
    let ids = require_idle(handle)?;
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

/// Passes the outcome of a message's last operation to `visit`.
pub fn outcome<R>(handle: usize, visit: impl FnOnce(&OperationOutcome) -> R) -> Result<R> {
    of(handle, |message| visit(&message.outcome))
}

/// Number of messages of a handle.
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

/// Ids of the ends of a message that is not in progress; an error if the message is in progress. A failed message is
/// not in progress; its failure is recorded as its outcome.
fn require_idle(handle: usize) -> Result<Arc<[u64]>> {
    let known = look_up(handle)?;
    match gate::test(&known.ids) {
        Ok(false) => Err(QmpFailure::new(
            QmpStatus::INVALID_OP,
            "the message was started and is not complete yet: wait for it first",
        )),
        Ok(true) => Ok(known.ids),
        failed @ Err(_) => {
            let _ = store_outcome(handle, &known, failed);
            Ok(known.ids)
        }
    }
}

/// Records the outcome of an operation in its message; a success after a success changes nothing.
#[inline]
fn record<R>(handle: usize, known: &MessageSummary, result: Result<R>) -> Result<R> {
    if result.is_err() || !known.is_plain {
        return store_outcome(handle, known, result);
    }
    result
}

#[cold]
fn store_outcome<R>(handle: usize, known: &MessageSummary, result: Result<R>) -> Result<R> {
    // `last_failure` calls the MPI library, so it is called outside of the state's lock.
    let why = result
        .as_ref()
        .err()
        .and_then(|_| gate::last_failure(&known.ids));
    state::visit(|state| {
        let Some(message) = state.messages.get_mut(handle) else {
            return result;
        };
        let end = why.and_then(|why| Some(message.ends.get(why.index)?.describe(&why.kind)));
        let result = result.map_err(|failure| match end {
            Some(text) if failure.status != QmpStatus::TIMEOUT => {
                QmpFailure::new(failure.status, text)
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
    fn both_ends_of_a_message_have_the_same_class_and_others_have_others() {
        let ways = |axis| [(axis, 1), (axis, -1)];
        let sent: Vec<c_int> = (0..AXES_WITH_OWN_CLASS)
            .flat_map(ways)
            .map(|(axis, sign)| {
                let class = class_of(axis, sign, MessageDirection::Send);
                let received = class_of(axis, -sign, MessageDirection::Receive);
                assert_eq!(class, received, "axis {axis}, sign {sign}");
                class
            })
            .collect();
        let mut distinct = sent.clone();
        distinct.sort_unstable();
        assert_eq!(distinct, (1..=14).collect::<Vec<_>>());
        // Axes from the seventh on share its classes.
        for axis in [7, 8, 30] {
            let classes = [1, -1].map(|sign| class_of(axis, sign, MessageDirection::Send));
            assert_eq!(
                classes,
                [1, -1].map(|sign| class_of(6, sign, MessageDirection::Send))
            );
        }
    }

    #[test]
    fn errors_of_failed_messages_name_node_sizes_and_reason() {
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
        for (end, wrong, text) in cases {
            assert_eq!(end.describe(&wrong), text);
        }
    }
}
