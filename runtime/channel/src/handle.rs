// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of channels, and the table of them.

use crate::chain::Aim;
use crate::class::SizeMismatch;
use crate::line::{ArrivalWord, GateNote, OwnLine};
use crate::memory::{ChannelMemory, Landing, MemorySpan};
use crate::wire::MOST_HANDLES;
use crate::{ChannelDirection, ChannelError, ChannelFailure, ChannelId};
use transport::{LocalKey, RemoteKey};

/// One end of a channel. More than twenty fields: what a start reads, of which nothing may be looked up.
#[derive(Debug)]
pub(crate) struct ChannelEnd {
    pub(crate) direction: ChannelDirection,
    pub(crate) class: u32,
    pub(crate) memory: ChannelMemory,
    /// A place of our own, where the memory is not one stretch or cannot be reached.
    pub(crate) landing: Option<Landing>,
    /// The stretch that is moved: the landing, or the memory.
    pub(crate) span: MemorySpan,
    /// Where its starts are told, of a receive from a rank of this node.
    pub(crate) line: Option<OwnLine>,
    /// Whether the gate of the last start was a line, of a receive.
    pub(crate) is_lined: bool,
    /// A receive that was started before.
    pub(crate) is_used: bool,
    /// Of a send: which of the peer's lines it met last.
    pub(crate) hint: Option<usize>,
    /// What to say when the write has ended, if not by an immediate.
    pub(crate) word: Option<ArrivalWord>,
    /// What the peer knows it by, of a receive.
    pub(crate) key: Option<RemoteKey>,
    /// What the transport knows it by, of a send.
    pub(crate) local: Option<LocalKey>,
    /// What the peer knows its blocks by, of a receive where it may write to them, and whether it was told.
    pub(crate) blocks: Box<[RemoteKey]>,
    pub(crate) is_layout_told: bool,
    /// What the transport knows its blocks by, of a send that writes them one by one.
    pub(crate) locals: Box<[Option<LocalKey>]>,
    /// Where the message goes that is being written.
    pub(crate) aim: Option<Aim>,
    /// Writes that have not ended.
    pub(crate) under_way: u32,
    /// One of them could not be.
    pub(crate) has_failed: bool,
    /// The number of its last start.
    pub(crate) number: u64,
    pub(crate) is_started: bool,
    pub(crate) phase: ChannelPhase,
    /// How it ended, until that is collected.
    pub(crate) end: Option<Result<(), ChannelError>>,
    /// Of what is too long, until that is collected.
    pub(crate) sizes: Option<SizeMismatch>,
    /// How the message that was collected last has failed.
    pub(crate) failed: Option<ChannelFailure>,
}

/// What the current start of a channel end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelPhase {
    /// Nothing, or a receive that waits.
    Idle,
    /// A send that waits for its gate, or for room.
    Pended,
    /// A send whose write, or last write, is under way.
    Writing,
    /// A send that goes in several writes, and how many of its bytes were posted.
    Chained(usize),
    /// A message that goes in frames, and how much of it has gone, or come.
    Streaming(usize),
}

impl ChannelEnd {
    pub(crate) fn new(direction: ChannelDirection, class: u32, memory: ChannelMemory) -> Self {
        Self {
            direction,
            class,
            memory,
            landing: None,
            span: MemorySpan::EMPTY,
            line: None,
            is_lined: false,
            is_used: false,
            hint: None,
            word: None,
            key: None,
            local: None,
            blocks: Box::default(),
            is_layout_told: false,
            locals: Box::default(),
            aim: None,
            under_way: 0,
            has_failed: false,
            number: 0,
            is_started: false,
            phase: ChannelPhase::Idle,
            end: None,
            sizes: None,
            failed: None,
        }
    }

    /// Is started.
    pub(crate) fn begin(&mut self) -> Result<(), ChannelError> {
        if self.is_started {
            return Err(ChannelError::Active);
        }
        self.is_started = true;
        Ok(())
    }

    /// Was started with a list, and maybe has ended too.
    pub(crate) fn begin_run(&mut self, number: u64, is_started: bool) {
        self.number = number;
        self.is_started = is_started;
        self.phase = ChannelPhase::Idle;
        self.end = None;
    }

    /// What the sender has said of the last message, in its line.
    pub(crate) fn noted(&self) -> Option<GateNote> {
        let line = self.line.as_ref().filter(|_| self.is_lined);
        line.and_then(|line| line.noted(self.number))
    }

    /// Copies what has landed in a place of ours to where it belongs: at most so many bytes. Answers how many.
    pub(crate) fn unpack(&self, landed: usize) -> u64 {
        let Some(landing) = &self.landing else {
            return 0;
        };
        let bytes = landed.min(self.memory.bytes());
        self.memory.scatter(landing.span(), bytes);
        bytes as u64
    }

    /// Whether there is nothing to wait for.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        !self.is_started || self.end.is_some() || self.is_written()
    }

    /// Whether the sender has said so on its line.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        let line = self.line.as_ref().filter(|_| self.is_lined);
        line.is_some_and(|line| line.is_written(self.number))
    }

    /// Whether it is one of the sends that progress looks at.
    pub(crate) fn is_pended(&self) -> bool {
        self.direction == ChannelDirection::Send
            && matches!(
                self.phase,
                ChannelPhase::Pended | ChannelPhase::Chained(_) | ChannelPhase::Streaming(_)
            )
    }

    /// Ends.
    pub(crate) fn finish(&mut self, end: Result<(), ChannelError>) {
        self.phase = ChannelPhase::Idle;
        self.end = Some(end);
    }

    /// Ends, since the message is too long.
    pub(crate) fn finish_too_long(&mut self, sizes: SizeMismatch) {
        self.sizes = Some(sizes);
        self.finish(Err(ChannelError::SizesDiffer));
    }

    /// Its peer is lost. A write that is under way comes to its own end.
    pub(crate) fn lose(&mut self) {
        if matches!(self.phase, ChannelPhase::Chained(_)) && self.under_way > 0 {
            self.phase = ChannelPhase::Writing;
            self.has_failed = true;
        }
        let goes_on = self.end.is_none() && self.phase != ChannelPhase::Writing;
        if self.is_started && goes_on && !self.is_written() {
            self.finish(Err(ChannelError::Lost));
        }
    }

    /// Gives the end away, for another start.
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

/// A place for a channel end, with the number of its use.
#[derive(Debug)]
struct ChannelEndSlot {
    generation: u32,
    handle: Option<ChannelEnd>,
}

impl ChannelEnds {
    pub(crate) fn is_full(&self) -> bool {
        self.len() == MOST_HANDLES
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Where the next one goes.
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
        // Never 0, so that no name is.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.handle = Some(handle);
        ChannelId(u64::from(index) | u64::from(slot.generation) << 32)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<ChannelEnd> {
        let handle = self.slots.get_mut(index as usize)?.handle.take()?;
        self.free.push(index);
        Some(handle)
    }

    /// The handle of a name.
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

    /// A handle, by an index from a table of ours.
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

    /// The same for an index from anywhere.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut ChannelEnd> {
        self.slots.get_mut(index as usize)?.handle.as_mut()
    }

    /// The index behind the last.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_zero_and_never_come_back() {
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
    fn a_handle_is_started_once_and_its_end_is_taken_once() {
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
