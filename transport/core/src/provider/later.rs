// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of this node that were attached after a fabric was opened: each is shared memory like the first segment,
//! with rings, a pool and a bell of its own. Only the first segment has fast paths, boards and gate lines.

use super::shm::Shm;
use super::wire::Provider;
use crate::wait_set::WaitSet;
use crate::{Completions, Node};

/// The segments attached after opening, by index.
#[derive(Debug, Default)]
pub(super) struct Later(Vec<Shm>);

impl Later {
    /// Attaches a further segment for a process that has `peers` peers now. Returns the segment's index.
    pub(super) fn attach(&mut self, first: &mut Shm, node: Node, peers: u32) -> u32 {
        let number = self.next();
        self.make_room_for(first, peers);
        self.0.push(first.beside(node, peers));
        number
    }

    /// Makes room for new peers, so that there are `peers` in all; the new ones share none of the segments attached so
    /// far.
    pub(super) fn make_room_for(&mut self, first: &mut Shm, peers: u32) {
        for shm in [first].into_iter().chain(&mut self.0) {
            shm.make_room_for(peers);
        }
    }

    /// The index of the next segment.
    pub(super) fn next(&self) -> u32 {
        u32::try_from(self.0.len()).expect("each takes a mapping")
    }

    #[cold]
    #[inline(never)]
    pub(super) fn of(&self, segment: u32) -> &Shm {
        &self.0[segment as usize]
    }

    #[cold]
    #[inline(never)]
    pub(super) fn of_mut(&mut self, segment: u32) -> &mut Shm {
        &mut self.0[segment as usize]
    }

    pub(super) fn poll(&mut self, completions: &mut Completions) {
        self.0.iter_mut().for_each(|shm| shm.poll(completions));
    }

    pub(super) fn set_attentive(&mut self, attentive: bool) {
        self.0
            .iter_mut()
            .for_each(|shm| shm.set_attentive(attentive));
    }

    pub(super) fn set_sleepless(&mut self, sleepless: bool) {
        self.0
            .iter_mut()
            .for_each(|shm| shm.set_sleepless(sleepless));
    }

    /// Announces a sleep on the bells of all segments, and returns `true`. If something is pending, ends these
    /// announcements and returns `false`.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        let awake = self.0.iter_mut().position(|shm| !shm.prepare_sleep());
        if let Some(awake) = awake {
            self.0[..awake].iter_mut().for_each(Provider::wake);
        }
        awake.is_none()
    }

    pub(super) fn fall_asleep(&mut self, waits: &mut WaitSet) {
        self.0.iter_mut().for_each(|shm| shm.fall_asleep(waits));
    }

    pub(super) fn wake(&mut self) {
        self.0.iter_mut().for_each(Provider::wake);
    }

    /// Frames posted.
    pub(super) fn sent(&self) -> u64 {
        self.0.iter().map(Shm::sent).sum()
    }
}
