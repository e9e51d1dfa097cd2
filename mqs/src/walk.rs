// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a target's communicators and operations from their tables, row by row and slot by slot. No linked list is
//! followed, and every count is bounded.

use queue_layout::{
    CALL, CHUNK, COMM, COMM_NAME_BYTES, COMM_TABLE, FLAG_ORPHAN, NO_BYTES, ROW_FREE, ROW_FREED,
    ROW_INTER, RequestKind, RequestState, SLOT, call_field, comm_field, comm_table_field, field,
};

use crate::image::{AnchorFields, MAX_RECORD, Map, MqsError, StoppedProcess, low};
use crate::interface::{
    INACTIVE_RECEIVES, OTHER_OPERATIONS, PENDING_RECEIVES, PENDING_SENDS, UNEXPECTED_MESSAGES,
};

/// A communicator of the stopped process.
#[derive(Clone, Copy, Debug)]
pub struct TargetCommunicator {
    /// Context id of its messages.
    pub context: u32,
    /// Rank of the process in its local group.
    pub rank: u32,
    /// Size of the peers' group, which is the remote group of an intercommunicator.
    pub size: u32,
    /// Address of the world ranks of the peers' group; 0 if ranks in the group equal the world ranks.
    pub group: u64,
    /// Id that is equal on all ranks of the communicator, and different from that of every other communicator.
    pub unique_id: u64,
    /// Name of the communicator, zero-terminated.
    pub name: [u8; COMM_NAME_BYTES],
    /// Whether the program has freed the communicator.
    pub is_freed: bool,
    /// Address of the communicator's row.
    pub row: u64,
}

/// An operation of the stopped process.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetOperation {
    /// Context id of its communicator.
    pub context: u32,
    /// The queue: a number of `mqs_op_class`, [`OTHER_OPERATIONS`], [`INACTIVE_RECEIVES`] or [`NO_QUEUE`].
    pub class: i32,
    /// Place of the operation in its queue.
    pub sequence: u64,
    /// State of the operation: a number of [`RequestState`].
    pub state: u8,
    /// `FLAG_*` bits.
    pub flags: u16,
    /// Error code; 0 if it has not failed.
    pub error: u8,
    /// World rank of the peer, or `ANY_PEER`.
    pub peer: u32,
    /// Tag, or `ANY_TAG`.
    pub tag: i32,
    /// Bytes of buffer or message. For a collective: bytes per rank, if these must be equal on all ranks; else
    /// `NO_BYTES`.
    pub bytes: u64,
    /// Address of the data.
    pub buffer: u64,
    /// World rank, tag and bytes of the matched message.
    pub matched: (u32, i32, u64),
    /// Token of the operation's request.
    pub token: u32,
    /// Value of its datatype's handle; 0: unknown.
    pub datatype: u32,
    /// For a nonblocking collective, its index in `COLLECTIVES` plus 1; 0 otherwise. A collective's peer is its root, and its
    /// tag is the number of the call on its communicator.
    pub collective: u16,
    /// Index of the blocking call that waits for the operation; `None` if no call does.
    pub call: Option<u32>,
    /// Whether this entry is not an operation but stands for the call at index `call`.
    pub is_call: bool,
}

impl TargetOperation {
    /// The sort key: groups operations by communicator and queue, in queue order.
    #[must_use]
    pub fn key(&self) -> (u32, i32, u64) {
        (self.context, self.class, self.sequence)
    }
}

/// Passes every communicator to `take`.
///
/// # Errors
/// When memory cannot be read, or `take` fails.
pub fn communicators(
    target: &impl StoppedProcess,
    anchor: &AnchorFields,
    map: &Map,
    mut take: impl FnMut(TargetCommunicator) -> Result<(), MqsError>,
) -> Result<(), MqsError> {
    let chunks = map.place(COMM_TABLE, comm_table_field::CHUNKS);
    let mut rows = anchor.first_rows;
    for number in 0..chunks.size() / 8 {
        let entry = chunks
            .address(anchor.comms)
            .wrapping_add(8 * u64::from(number));
        let address = read_address(target, entry)?;
        if address == 0 || rows == 0 || rows > MAX_ROWS {
            return Ok(());
        }
        let records = RecordRun {
            address,
            count: rows,
            bytes: anchor.row_bytes,
        };
        records.each(target, |at, bytes| {
            let row = TargetRecord {
                target,
                map,
                bytes,
                structure: COMM,
            };
            match communicator(&row, at, anchor)? {
                Some(communicator) => take(communicator),
                None => Ok(()),
            }
        })?;
        rows = rows.wrapping_mul(2);
    }
    Ok(())
}

/// Passes every operation to `take`, in no particular order: also the messages of collectives, and active requests of
/// kind `Other`, although the latter are in none of the queues.
///
/// # Errors
/// When memory cannot be read, or `take` fails.
pub fn operations(
    target: &impl StoppedProcess,
    anchor: &AnchorFields,
    map: &Map,
    mut take: impl FnMut(TargetOperation) -> Result<(), MqsError>,
) -> Result<(), MqsError> {
    let slots = map.place(CHUNK, field::CHUNK_SLOTS);
    let most = MAX_SLOTS / anchor.chunk_slots.max(1);
    for number in 0..anchor.max_chunks.min(most) {
        let entry = anchor.chunks.wrapping_add(8 * u64::from(number));
        let chunk = read_address(target, entry)?;
        if chunk == 0 {
            return Ok(());
        }
        let records = RecordRun {
            address: slots.address(chunk),
            count: anchor.chunk_slots,
            bytes: anchor.slot_bytes,
        };
        records.each(target, |_, bytes| {
            let slot = TargetRecord {
                target,
                map,
                bytes,
                structure: SLOT,
            };
            match operation(&slot) {
                Some(operation) => take(operation),
                None => Ok(()),
            }
        })?;
    }
    Ok(())
}

/// Passes the world ranks of a communicator's peers to `take`, in rank order.
///
/// # Errors
/// When memory cannot be read, or `take` fails.
pub fn group(
    target: &impl StoppedProcess,
    communicator: &TargetCommunicator,
    mut take: impl FnMut(u32) -> Result<(), MqsError>,
) -> Result<(), MqsError> {
    if communicator.group == 0 {
        return (0..communicator.size).try_for_each(take);
    }
    let ranks = RecordRun {
        address: communicator.group,
        count: communicator.size,
        bytes: 4,
    };
    ranks.each(target, |_, bytes| take(low(target.number(bytes))))
}

/// For one collective on a communicator: the number of calls started, and how many of these are in progress. `None` if
/// calls of this collective are not counted.
///
/// # Errors
/// When memory cannot be read.
pub fn collective(
    target: &impl StoppedProcess,
    map: &Map,
    communicator: &TargetCommunicator,
    number: u32,
) -> Result<Option<(u32, u32)>, MqsError> {
    let counter = |field| {
        let place = map.place(COMM, field);
        let offset = number.checked_mul(4).filter(|at| at + 4 <= place.size());
        let Some(offset) = offset else {
            return Ok(None);
        };
        let mut bytes = [0; 4];
        let address = place.address(communicator.row);
        target.read(address.wrapping_add(u64::from(offset)), &mut bytes)?;
        Ok(Some(low(target.number(&bytes))))
    };
    let (called, active) = (counter(comm_field::CALLED)?, counter(comm_field::ACTIVE)?);
    Ok(called.zip(active))
}

/// The communicator of a row; `None` if the row is free or is being changed.
fn communicator(
    row: &TargetRecord<'_, impl StoppedProcess>,
    address: u64,
    anchor: &AnchorFields,
) -> Result<Option<TargetCommunicator>, MqsError> {
    let word = |field| low(row.get(field));
    let known = word(comm_field::KIND);
    let (kind, is_freed) = (known & !ROW_FREED, known & ROW_FREED != 0);
    let (size, remote_size) = (word(comm_field::SIZE), word(comm_field::REMOTE_SIZE));
    let whole = word(comm_field::VERSION).is_multiple_of(2);
    let fits = |size: u32| size <= anchor.world_size && size <= MAX_RANKS;
    if kind == ROW_FREE || kind > ROW_INTER || !whole || !fits(size) || !fits(remote_size) {
        return Ok(None);
    }
    let (local, remote) = (row.get(comm_field::GROUP), row.get(comm_field::REMOTE));
    let mut leader = first_rank(row.target, local)?;
    let (mut size, mut group) = (size, local);
    if kind == ROW_INTER {
        leader = leader.min(first_rank(row.target, remote)?);
        (size, group) = (remote_size, remote);
    }
    let context = word(comm_field::CONTEXT);
    let mut name = [0; COMM_NAME_BYTES];
    let text = row.map.place(COMM, comm_field::NAME).of(row.bytes);
    let ended = text.into_iter().flatten().take(COMM_NAME_BYTES - 1);
    for (place, byte) in name.iter_mut().zip(ended.take_while(|byte| **byte != 0)) {
        *place = *byte;
    }
    if is_freed {
        append_freed(&mut name);
    }
    Ok(Some(TargetCommunicator {
        context,
        rank: word(comm_field::RANK),
        size,
        group,
        unique_id: u64::from(leader) << 32 | u64::from(context),
        name,
        is_freed,
        row: address,
    }))
}

/// Appends ` (freed)` to a name, and truncates the name if there is no room.
fn append_freed(name: &mut [u8; COMM_NAME_BYTES]) {
    let suffix = b" (freed)";
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    // An empty name becomes `(freed)`, without the space.
    let suffix = suffix.get(usize::from(length == 0)..).unwrap_or_default();
    let room = COMM_NAME_BYTES - 1 - b" (freed)".len();
    let places = name.iter_mut().skip(length.min(room));
    for (place, byte) in places.zip(suffix.iter().chain([&0])) {
        *place = *byte;
    }
}

/// World rank of a group's first process. By it, communicators that share a context id are distinguished.
fn first_rank(target: &impl StoppedProcess, group: u64) -> Result<u32, MqsError> {
    if group == 0 {
        return Ok(0);
    }
    let mut bytes = [0; 4];
    target.read(group, &mut bytes)?;
    Ok(low(target.number(&bytes)))
}

/// The operation in a slot. `None` if the slot is free or is being changed. A request in none of the queues is returned
/// only if it is active and of kind `Other`; for any other such request the result is `None`.
fn operation(slot: &TargetRecord<'_, impl StoppedProcess>) -> Option<TargetOperation> {
    let state = slot.byte(field::STATE);
    if state == RequestState::Free as u8 || !slot.get(field::VERSION).is_multiple_of(2) {
        return None;
    }
    let flags = (slot.get(field::FLAGS) & 0xffff) as u16;
    let kind = slot.byte(field::KIND);
    let is_other = kind == RequestKind::Other as u8 && state != RequestState::Inactive as u8;
    let word = |field| low(slot.get(field));
    let under_way = is_other && state == RequestState::Moving as u8;
    let collective = (word(field::PROTOCOL) & 0xffff) as u16;
    let collective = if under_way { collective } else { 0 };
    let class = match (class(kind, state, flags), collective) {
        (Some(class), _) => class,
        (None, 1..) => OTHER_OPERATIONS,
        (None, 0) => is_other.then_some(NO_QUEUE)?,
    };
    // Slots of collectives have their bytes since layout 1.5.
    let has_bytes = slot.map.place(CALL, call_field::BYTES).size() != 0;
    let bytes = match collective == 0 || has_bytes {
        true => slot.get(field::BYTES),
        false => NO_BYTES,
    };
    Some(TargetOperation {
        context: word(field::CONTEXT),
        class,
        sequence: slot.get(field::SEQUENCE),
        state,
        flags,
        error: slot.byte(field::ERROR),
        peer: word(field::PEER),
        tag: word(field::TAG).cast_signed(),
        bytes,
        buffer: if collective == 0 {
            slot.get(field::BUFFER)
        } else {
            0
        },
        matched: (
            word(field::MATCHED_PEER),
            word(field::MATCHED_TAG).cast_signed(),
            slot.get(field::MATCHED_BYTES),
        ),
        token: word(field::TOKEN),
        datatype: word(field::DATATYPE),
        collective,
        call: None,
        is_call: false,
    })
}

/// The queue that a slot belongs to; `None` if it is in no queue, like a message that a matched probe (`MPI_Mprobe`)
/// has claimed.
fn class(kind: u8, state: u8, flags: u16) -> Option<i32> {
    let is = |known: RequestKind| kind == known as u8;
    if is(RequestKind::Receive) && state == RequestState::Inactive as u8 {
        return Some(INACTIVE_RECEIVES);
    }
    let within =
        |first: RequestState, last: RequestState| (first as u8..=last as u8).contains(&state);
    let collected = state == RequestState::Complete as u8 && flags & FLAG_ORPHAN != 0;
    let ended_or = |known: bool| (known || state == RequestState::Complete as u8) && !collected;
    if is(RequestKind::Send) && ended_or(within(RequestState::Queued, RequestState::Moving)) {
        return Some(PENDING_SENDS);
    }
    if is(RequestKind::Receive)
        && ended_or(state == RequestState::Posted as u8 || state == RequestState::Moving as u8)
    {
        return Some(PENDING_RECEIVES);
    }
    let unexpected =
        is(RequestKind::Unexpected) && within(RequestState::Kept, RequestState::Envelope);
    unexpected.then_some(UNEXPECTED_MESSAGES)
}

/// Consecutive records of the same size.
pub(crate) struct RecordRun {
    pub(crate) address: u64,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
}

impl RecordRun {
    /// Reads the records, several at a time, and passes each with its address to `take`.
    pub(crate) fn each(
        &self,
        target: &impl StoppedProcess,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), MqsError>,
    ) -> Result<(), MqsError> {
        let mut buffer = [0; MAX_RECORD as usize];
        let size = u64::from(self.bytes);
        let together = u64::from(MAX_RECORD).checked_div(size).unwrap_or(0);
        let (mut address, mut left) = (self.address, u64::from(self.count));
        while left > 0 {
            let count = together.min(left);
            let Some(piece) = buffer.get_mut(..low(count.wrapping_mul(size)) as usize) else {
                return Err(MqsError::Layout);
            };
            if piece.is_empty() {
                return Err(MqsError::Layout);
            }
            target.read(address, piece)?;
            for record in piece.chunks_exact((self.bytes as usize).max(1)) {
                take(address, record)?;
                address = address.wrapping_add(size);
            }
            left = left.saturating_sub(count);
        }
        Ok(())
    }
}

/// The bytes of one slot or row.
pub(crate) struct TargetRecord<'a, T> {
    pub(crate) target: &'a T,
    pub(crate) map: &'a Map,
    pub(crate) bytes: &'a [u8],
    pub(crate) structure: u16,
}

impl<T: StoppedProcess> TargetRecord<'_, T> {
    /// The number in a field.
    pub(crate) fn get(&self, field: u16) -> u64 {
        self.target.number(self.bytes_of(field))
    }

    /// The bytes of a field. [`Map::read`] has checked that each field lies within its record.
    pub(crate) fn bytes_of(&self, field: u16) -> &[u8] {
        let place = self.map.place(self.structure, field);
        place.of(self.bytes).unwrap_or_default()
    }

    fn byte(&self, field: u16) -> u8 {
        (self.get(field) & 0xff) as u8
    }
}

pub(crate) fn read_address(target: &impl StoppedProcess, at: u64) -> Result<u64, MqsError> {
    let mut bytes = [0; 8];
    target.read(at, &mut bytes)?;
    Ok(target.number(&bytes))
}

/// The [`class`](TargetOperation::class) of a request that is in none of the queues.
pub const NO_QUEUE: i32 = UNEXPECTED_MESSAGES + 1;

/// Limits that no valid number exceeds. They bound a walk, whatever the target's memory contains.
const MAX_SLOTS: u32 = 1 << 19;
pub(crate) const MAX_ROWS: u32 = 1 << 19;
const MAX_RANKS: u32 = 1 << 24;
