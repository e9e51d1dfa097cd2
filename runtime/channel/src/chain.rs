// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a message by one-sided writes: by a single write or, if either end has large blocks, by one write for each
//! segment that is contiguous at both ends.
//!
//! Writes may be repeated when a path breaks, so the receiver must be notified only after all of them have completed.
//! If the last write notifies the receiver, it is posted after all others have completed.

use crate::handle::{ChannelEnd, ChannelPhase};
use crate::layout::{CopySegment, RemoteBlocks, StridedBlocks, segments};
use crate::line::GateNote;
use crate::memory::UserBlocks;
use crate::{ChannelError, Channels, OWNER, wire};
use transport::{Fabric, Lease, LocalKey, RemoteKey, WorkId, WorkOutcome};

/// Destination of a message: the memory that a [gate](crate) names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTarget {
    /// The memory of the gate.
    pub(crate) key: RemoteKey,
    pub(crate) bytes: u64,
    /// Whether the memory of the gate is a staging buffer of the receiver.
    pub(crate) is_staging: bool,
    /// If the message is written to the blocks of the receive instead of the memory of the gate: handle of the receive
    /// in the receiving process.
    pub(crate) layout: Option<u32>,
    /// Token for the immediate data of the last write. `None`: a gate line completes the receive.
    pub(crate) token: Option<u32>,
}

impl Channels {
    /// Begins to write a message. `false`: `progress` must continue the send.
    pub(crate) fn begin_chain(
        &mut self,
        fabric: &mut Fabric,
        index: u32,
        target: WriteTarget,
    ) -> bool {
        let handle = self.handles.at_mut(index);
        let bytes = handle.memory.bytes() as u64;
        if handle.is_packed() {
            handle.pack();
            self.counters.packed_bytes.add(bytes);
        }
        handle.target = Some(target);
        handle.outstanding = 0;
        handle.has_failed = false;
        self.chain(fabric, index, 0)
    }

    /// Posts the writes after the first `posted_bytes` bytes. `false`: `progress` must continue the send.
    pub(crate) fn chain(&mut self, fabric: &mut Fabric, index: u32, posted_bytes: usize) -> bool {
        let handle = self.handles.at_mut(index);
        let layouts = &self.classes[handle.class as usize].out.layouts;
        let Some(target) = handle.target else {
            return true;
        };
        let whole = [target.place()];
        let blocks = target
            .layout
            .map(|owner| layouts.of(owner, target.bytes).unwrap_or_default());
        let peer = self.classes[handle.class as usize].peer;
        let mut post = |lease, to: (RemoteKey, u64), token: Option<u32>| {
            let token = token.map(|token| OWNER.immediate(token));
            let work = work_of(index);
            fabric
                .post_write(peer, lease, to.0, to.1, work, token)
                .is_ok()
        };
        let before = handle.outstanding;
        let end = handle.post_segments(&target, blocks.unwrap_or(&whole), posted_bytes, &mut post);
        self.counters
            .writes
            .add(u64::from(handle.outstanding - before));
        match end {
            PostedWrites::All => handle.phase = ChannelPhase::Writing,
            PostedWrites::NoRoom(posted_bytes) | PostedWrites::Waits(posted_bytes) => {
                handle.phase = ChannelPhase::Chained(posted_bytes)
            }
            PostedWrites::Lost => {
                // The receiver has withdrawn the layout.
                handle.has_failed = true;
                handle.phase = ChannelPhase::Writing;
                if handle.outstanding == 0 {
                    self.begin_stream(index);
                    return false;
                }
            }
        }
        !matches!(end, PostedWrites::NoRoom(_))
    }

    /// Begins to send the message in frames: they are posted by `stream`.
    pub(crate) fn begin_stream(&mut self, index: u32) {
        let handle = self.handles.at_mut(index);
        if handle.staging.is_some() {
            handle.pack();
            self.counters.packed_bytes.add(handle.memory.bytes() as u64);
        }
        handle.word = None;
        handle.phase = ChannelPhase::Streaming(0);
    }

    /// Handles the completion of a write. If a write of the message has failed, the message is sent in frames after the
    /// last completion; if the peer is lost too, the send fails instead.
    pub(crate) fn end_write(&mut self, fabric: &mut Fabric, index: u32, outcome: WorkOutcome) {
        let Some(handle) = self.handles.get_mut(index) else {
            return;
        };
        let peer = self.classes[handle.class as usize].peer;
        if !matches!(
            handle.phase,
            ChannelPhase::Writing | ChannelPhase::Chained(_)
        ) || handle.outstanding == 0
        {
            return;
        }
        handle.outstanding -= 1;
        handle.has_failed |= outcome != WorkOutcome::Done;
        let is_dead = self.dead.contains(&peer);
        if outcome == WorkOutcome::Unreachable && !is_dead && !self.unwritable.contains(&peer) {
            self.unwritable.push(peer);
        }
        if handle.outstanding > 0 {
            return;
        }
        match handle.phase {
            _ if is_dead && handle.has_failed => handle.finish(Err(ChannelError::Lost)),
            _ if handle.has_failed => {
                self.begin_stream(index);
                self.await_turn(index);
            }
            ChannelPhase::Chained(posted_bytes) => {
                if !self.pending.contains(&index) && !self.chain(fabric, index, posted_bytes) {
                    self.await_turn(index);
                }
            }
            _ => {
                handle.publish_written();
                fabric.nudge(peer);
                handle.finish(Ok(()));
                if handle.is_direct() {
                    self.counters.direct_bytes.add(handle.memory.bytes() as u64);
                }
            }
        }
    }

    /// Queues a send for `progress`, unless it is queued already.
    fn await_turn(&mut self, index: u32) {
        if !self.pending.contains(&index) {
            self.pending.push(index);
        }
    }
}

impl WriteTarget {
    /// The memory of the gate, as a piece with one block.
    fn place(&self) -> RemoteBlocks {
        RemoteBlocks {
            owner: 0,
            key: self.key,
            shape: StridedBlocks::one(usize::try_from(self.bytes).unwrap_or(0)),
            span: None,
        }
    }
}

/// How far the writes of a message were posted. The number in a variant is the number of bytes posted so far.
enum PostedWrites {
    All,
    /// There is no room for the next write.
    NoRoom(usize),
    /// The next write waits until others have completed.
    Waits(usize),
    /// The rest of the message has no destination.
    Lost,
}

impl ChannelEnd {
    /// Posts the writes after the first `posted_bytes` bytes, as many as possible.
    fn post_segments(
        &mut self,
        target: &WriteTarget,
        to: &[RemoteBlocks],
        mut posted_bytes: usize,
        post: &mut impl FnMut(Lease, (RemoteKey, u64), Option<u32>) -> bool,
    ) -> PostedWrites {
        let bytes = self.memory.bytes();
        let direct = if target.layout.is_some() {
            wire::DIRECT
        } else {
            0
        };
        if bytes == 0 {
            // An empty message needs a write too, to notify the receiver. `direct` prevents the receiver from unpacking
            // its staging buffer.
            let token = target.token.map(|token| token | direct);
            let posted = post(self.span.lease(0), (target.key, 0), token);
            self.outstanding += u32::from(posted);
            return if posted {
                PostedWrites::All
            } else {
                PostedWrites::NoRoom(0)
            };
        }
        let stretch = [self.span.as_blocks()];
        let one = [self.local];
        let (from, locals): (&[UserBlocks], &[Option<LocalKey>]) = match self.locals.is_empty() {
            true => (&stretch, &one),
            false => (self.memory.pieces(), &self.locals),
        };
        let segments = segments(from, to, posted_bytes, bytes);
        for CopySegment {
            from: out,
            to: into,
            bytes: part,
        } in segments
        {
            let is_last = posted_bytes + part == bytes;
            let must_wait = is_last && target.token.is_some() && self.outstanding > 0;
            if must_wait || self.outstanding == OUTSTANDING_WRITES_MAX {
                return PostedWrites::Waits(posted_bytes);
            }
            let lease = from[out.piece].lease(out, part);
            let lease = lease.with_key(locals[out.piece]);
            let token = target.token.filter(|_| is_last).map(|token| token | direct);
            let place = (to[into.piece].key, into.offset as u64);
            if !post(lease, place, token) {
                return PostedWrites::NoRoom(posted_bytes);
            }
            self.outstanding += 1;
            posted_bytes += part;
        }
        match posted_bytes == bytes {
            true => PostedWrites::All,
            false => PostedWrites::Lost,
        }
    }

    /// Whether the message is written from a staging buffer.
    fn is_packed(&self) -> bool {
        self.staging.is_some() && self.locals.is_empty()
    }

    /// Whether the message is written without a staging buffer on either side.
    fn is_direct(&self) -> bool {
        let reaches = |target: WriteTarget| target.layout.is_some() || !target.is_staging;
        !self.is_packed() && self.target.is_some_and(reaches)
    }

    /// Maximum number of outstanding writes of the message.
    pub(crate) fn outstanding_max(&self) -> usize {
        match self.memory.bytes() > CHAINED_BLOCK {
            true => OUTSTANDING_WRITES_MAX as usize,
            false => 1,
        }
    }

    /// Copies the blocks to the staging buffer, if there is one.
    fn pack(&self) {
        if let Some(staging) = &self.staging {
            self.memory.gather(staging.span());
        }
    }

    /// Completes the receive on its gate line, if the message is sent through one.
    fn publish_written(&mut self) {
        let (Some(word), Some(target)) = (self.word.take(), self.target) else {
            return;
        };
        let bytes = self.memory.bytes();
        let is_direct = target.layout.is_some();
        if is_direct || target.is_staging && (bytes as u64) < target.bytes {
            word.note(GateNote::new(bytes, is_direct));
        }
        word.publish();
    }
}

/// The work id of a handle's writes.
pub(crate) fn work_of(index: u32) -> WorkId {
    OWNER.work(index.into())
}

/// Smallest block, in bytes, that is written on its own: for a smaller block, a write costs more than a copy.
pub(crate) const CHAINED_BLOCK: usize = 16 * 1024;
/// Maximum number of outstanding writes of one message.
const OUTSTANDING_WRITES_MAX: u32 = 16;
