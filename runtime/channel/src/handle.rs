// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channel ends, and the table of all ends of a process.

use crate::chain::WriteTarget;
use crate::class::SizeMismatch;
use crate::line::{ArrivalWord, GateNote, OwnLine};
use crate::memory::{ChannelMemory, MemorySpan, StagingBuffer};
use crate::wire::HANDLES_MAX;
use crate::{ChannelDirection, ChannelError, ChannelFailure, ChannelId};
use transport::{LocalKey, RemoteKey};

/// One end of a channel. It has more than twenty fields, because a start reads all its state from here without further
/// look-ups.
#[derive(Debug)]
pub(crate) struct ChannelEnd {
    pub(crate) direction: ChannelDirection,
    pub(crate) class: u32,
    pub(crate) memory: ChannelMemory,
    /// A staging buffer, if the memory is not contiguous or the peer cannot map it.
    pub(crate) staging: Option<StagingBuffer>,
    /// The contiguous memory that is transferred: the staging buffer, or the memory itself.
    pub(crate) span: MemorySpan,
    /// The gate line of a receive from a rank of this node.
    pub(crate) line: Option<OwnLine>,
    /// Whether the last start of a receive opened its gate by the line.
    pub(crate) is_lined: bool,
    /// Whether a receive has opened a gate by a frame before.
    pub(crate) is_used: bool,
    /// Index of the peer's gate line that a send used last.
    pub(crate) hint: Option<usize>,
    /// The word that completes the message on its gate line, to be stored when all writes have completed.
    pub(crate) word: Option<ArrivalWord>,
    /// Key of a receive's memory, for the peer.
    pub(crate) key: Option<RemoteKey>,
    /// Local key of a send's memory.
    pub(crate) local: Option<LocalKey>,
    /// Keys of a receive's blocks, for the peer; empty if the peer must not write to the blocks.
    pub(crate) blocks: Box<[RemoteKey]>,
    /// Whether the layout of a receive's blocks was sent to the peer.
    pub(crate) is_layout_sent: bool,
    /// Local keys of a send's blocks, if they are written one by one.
    pub(crate) locals: Box<[Option<LocalKey>]>,
    /// Destination of the message being written.
    pub(crate) target: Option<WriteTarget>,
    /// Number of outstanding writes.
    pub(crate) outstanding: u32,
    /// Whether a write of the current message has failed.
    pub(crate) has_failed: bool,
    /// Number of the last start.
    pub(crate) number: u64,
    pub(crate) is_started: bool,
    pub(crate) phase: ChannelPhase,
    /// Outcome of the last start, until it is collected.
    pub(crate) end: Option<Result<(), ChannelError>>,
    /// Sizes of a message that is too long, until its outcome is collected.
    pub(crate) sizes: Option<SizeMismatch>,
    /// Failure of the message that was collected last.
    pub(crate) failed: Option<ChannelFailure>,
}

/// State of the current start of a channel end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelPhase {
    /// Not started, complete, or a receive that waits for its message.
    Idle,
    /// A send that waits for its gate or for room in the transport.
    Pending,
    /// A send whose writes are all posted; some have not completed yet.
    Writing,
    /// A send by several writes, some of which are not posted yet; with the number of bytes posted.
    Chained(usize),
    /// A message in frames, with the number of bytes sent or received so far.
    Streaming(usize),
}

impl ChannelEnd {
    pub(crate) fn new(direction: ChannelDirection, class: u32, memory: ChannelMemory) -> Self {
        Self {
            direction,
            class,
            memory,
            staging: None,
            span: MemorySpan::EMPTY,
            line: None,
            is_lined: false,
            is_used: false,
            hint: None,
            word: None,
            key: None,
            local: None,
            blocks: Box::default(),
            is_layout_sent: false,
            locals: Box::default(),
            target: None,
            outstanding: 0,
            has_failed: false,
            number: 0,
            is_started: false,
            phase: ChannelPhase::Idle,
            end: None,
            sizes: None,
            failed: None,
        }
    }

    /// Marks the end as started.
    pub(crate) fn begin(&mut self) -> Result<(), ChannelError> {
        if self.is_started {
            return Err(ChannelError::Active);
        }
        self.is_started = true;
        Ok(())
    }

    /// Sets the state that the end has after a run of a list.
    pub(crate) fn begin_run(&mut self, number: u64, is_started: bool) {
        self.number = number;
        self.is_started = is_started;
        self.phase = ChannelPhase::Idle;
        self.end = None;
    }

    /// The sender's note about the last message, if the gate line has one.
    pub(crate) fn noted(&self) -> Option<GateNote> {
        let line = self.line.as_ref().filter(|_| self.is_lined);
        line.and_then(|line| line.noted(self.number))
    }

    /// Unpacks at most `staged` bytes from the staging buffer, if there is one. Returns the number of bytes unpacked.
    pub(crate) fn unpack(&self, staged: usize) -> u64 {
        let Some(staging) = &self.staging else {
            return 0;
        };
        let bytes = staged.min(self.memory.bytes());
        self.memory.scatter(staging.span(), bytes);
        bytes as u64
    }

    /// Whether the end is not started, or its message is complete.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        !self.is_started || self.end.is_some() || self.is_written()
    }

    /// Whether the sender has completed the message on the gate line.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        let line = self.line.as_ref().filter(|_| self.is_lined);
        line.is_some_and(|line| line.is_written(self.number))
    }

    /// Whether the end is a send that `progress` must continue.
    pub(crate) fn is_pending(&self) -> bool {
        self.direction == ChannelDirection::Send
            && matches!(
                self.phase,
                ChannelPhase::Pending | ChannelPhase::Chained(_) | ChannelPhase::Streaming(_)
            )
    }

    /// Completes the current start.
    pub(crate) fn finish(&mut self, end: Result<(), ChannelError>) {
        self.phase = ChannelPhase::Idle;
        self.end = Some(end);
    }

    /// Completes the current start with an error: the message is too long.
    pub(crate) fn finish_too_long(&mut self, sizes: SizeMismatch) {
        self.sizes = Some(sizes);
        self.finish(Err(ChannelError::SizesDiffer));
    }

    /// Handles the loss of the peer: completes the current start with an error, unless its message is complete. A start
    /// with outstanding writes completes after these have completed.
    pub(crate) fn lose(&mut self) {
        if matches!(self.phase, ChannelPhase::Chained(_)) && self.outstanding > 0 {
            self.phase = ChannelPhase::Writing;
            self.has_failed = true;
        }
        let goes_on = self.end.is_none() && self.phase != ChannelPhase::Writing;
        if self.is_started && goes_on && !self.is_written() {
            self.finish(Err(ChannelError::Lost));
        }
    }

    /// Takes the outcome. The end can then be started again.
    pub(crate) fn collect(&mut self) -> Result<(), ChannelError> {
        if !self.is_started {
            return Ok(());
        }
        self.is_started = false;
        self.end.take().unwrap_or(Ok(()))
    }
}

/// All channel ends of a process.
#[derive(Debug, Default)]
pub(crate) struct ChannelEnds {
    slots: Vec<ChannelEndSlot>,
    free: Vec<u32>,
}

/// A slot for a channel end, with its generation.
#[derive(Debug)]
struct ChannelEndSlot {
    generation: u32,
    handle: Option<ChannelEnd>,
}

impl ChannelEnds {
    pub(crate) fn is_full(&self) -> bool {
        self.len() == HANDLES_MAX
    }

    /// Number of ends.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The index that the next added end will have.
    pub(crate) fn next_index(&self) -> u32 {
        let end = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.free.last().copied().unwrap_or(end)
    }

    pub(crate) fn add(&mut self, handle: ChannelEnd) -> ChannelId {
        let index = self.next_index();
        if self.free.pop().is_none() {
            self.slots.push(ChannelEndSlot {
                generation: 0,
                handle: None,
            });
        }
        let slot = &mut self.slots[index as usize];
        // The generation is never 0, so no id is 0.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.handle = Some(handle);
        ChannelId(u64::from(index) | u64::from(slot.generation) << 32)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<ChannelEnd> {
        let handle = self.slots.get_mut(index as usize)?.handle.take()?;
        self.free.push(index);
        Some(handle)
    }

    /// The end with this id.
    #[inline]
    pub(crate) fn find(&self, id: ChannelId) -> Result<&ChannelEnd, ChannelError> {
        self.slots
            .get(id.index() as usize)
            .filter(|slot| u64::from(slot.generation) == id.0 >> 32)
            .and_then(|slot| slot.handle.as_ref())
            .ok_or(ChannelError::Stale)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, id: ChannelId) -> Result<&mut ChannelEnd, ChannelError> {
        self.slots
            .get_mut(id.index() as usize)
            .filter(|slot| u64::from(slot.generation) == id.0 >> 32)
            .and_then(|slot| slot.handle.as_mut())
            .ok_or(ChannelError::Stale)
    }

    /// The end at an index that is known to be valid.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &ChannelEnd {
        let handle = &self.slots[index as usize].handle;
        handle.as_ref().expect("our tables name handles that exist")
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut ChannelEnd {
        let handle = &mut self.slots[index as usize].handle;
        handle.as_mut().expect("our tables name handles that exist")
    }

    /// The end at an index, if there is one.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut ChannelEnd> {
        self.slots.get_mut(index as usize)?.handle.as_mut()
    }

    /// The index behind that of the last end.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_ids_are_nonzero_and_never_reused() {
        let mut handles = ChannelEnds::default();
        let memory = || ChannelMemory::new([]).unwrap();
        let make = || ChannelEnd::new(ChannelDirection::Send, 0, memory());
        let first = handles.add(make());
        assert_ne!(first.0, 0);
        assert!(handles.find(first).is_ok());
        assert!(handles.remove(first.index()).is_some());
        let second = handles.add(make());
        assert_eq!(first.index(), second.index());
        assert_eq!(handles.find(first).unwrap_err(), ChannelError::Stale);
        for id in [0, 1, u64::MAX, second.0 ^ 1 << 32, second.0 + 1] {
            assert_eq!(
                handles.find(ChannelId(id)).unwrap_err(),
                ChannelError::Stale
            );
        }
    }

    #[test]
    fn a_channel_end_starts_once_and_is_collected_once() {
        let mut handle = ChannelEnd::new(
            ChannelDirection::Receive,
            0,
            ChannelMemory::new([]).unwrap(),
        );
        assert!(handle.is_done() && !handle.is_started);
        assert_eq!(handle.begin(), Ok(()));
        assert_eq!(handle.begin(), Err(ChannelError::Active));
        assert!(!handle.is_done());
        handle.finish(Err(ChannelError::SizesDiffer));
        assert!(handle.is_done() && handle.is_started);
        assert_eq!(handle.collect(), Err(ChannelError::SizesDiffer));
        assert_eq!(handle.collect(), Ok(()));
        assert!(!handle.is_started);
    }
}
