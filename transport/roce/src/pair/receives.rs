// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared receive queue of all queue pairs of a user.

use std::collections::VecDeque;

use crate::memory::RoceSge;

/// Receive buffers that several queue pairs share; they are taken in the order of posting.
#[derive(Debug)]
pub struct ReceiveQueue {
    buffers: VecDeque<PostedReceive>,
    depth: usize,
}

/// A posted receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostedReceive {
    pub(crate) work: u64,
    pub(crate) sge: RoceSge,
}

impl ReceiveQueue {
    /// An empty queue for up to `depth` buffers.
    pub fn new(depth: usize) -> Self {
        Self {
            buffers: VecDeque::new(),
            depth,
        }
    }

    /// Posts a buffer, whose completion returns the id `work`. `false`: the queue is full, and nothing was posted.
    pub fn post(&mut self, work: u64, sge: RoceSge) -> bool {
        let has_room = self.buffers.len() < self.depth;
        if has_room {
            self.buffers.push_back(PostedReceive { work, sge });
        }
        has_room
    }

    /// Number of posted buffers that were not taken.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether no buffer is left.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<PostedReceive> {
        self.buffers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_taken_in_order_and_no_more_than_the_depth_are_held() {
        let mut queue = ReceiveQueue::new(2);
        let posted = [1, 2, 3].map(|work| queue.post(work, RoceSge::default()));
        assert_eq!(posted, [true, true, false]);
        let mut next = || queue.take().map(|receive| receive.work);
        assert_eq!([next(), next(), next()], [Some(1), Some(2), None]);
    }
}
