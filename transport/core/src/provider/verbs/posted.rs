// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the outstanding work requests of one send queue. Few of them are signaled; a completion also ends all requests
//! before its own.

use std::collections::VecDeque;

use session::Slot;

/// A posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostedRequest {
    /// A packet of a peer's stream; with its slot if the device reads the slot after the post.
    Packet {
        peer: u32,
        number: u32,
        read: Option<Slot>,
    },
    /// A part of a read, write or atomic operation. `unproven`: its success counts only after a later request has
    /// completed (W3 of `work.rs`).
    Part {
        work: u32,
        bytes: u32,
        unproven: bool,
    },
    /// A request whose completion matters only for the requests before it; with its slot if the device reads the slot
    /// after the post.
    Mark { read: Option<Slot> },
}

/// The outstanding work requests of one send queue, oldest first.
#[derive(Debug, Default)]
pub(super) struct PostedRequests {
    posted: VecDeque<PostedRequest>,
    /// Number of the oldest outstanding request, counted from the first request ever posted.
    first: u32,
    /// Number of unsignaled requests at the end of the queue.
    unsignaled: u32,
}

impl PostedRequests {
    /// Number of the next work request: the low half of its `wr_id`.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "queues have some hundreds")]
        self.first.wrapping_add(self.posted.len() as u32)
    }

    /// Whether all work requests before `number` have ended.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        number.wrapping_sub(self.first).cast_signed() <= 0
    }

    /// Number of outstanding work requests.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Number of unsignaled requests at the end of the queue: no completion ends them until a signaled request is
    /// posted.
    #[inline(always)]
    pub(super) fn unsignaled(&self) -> u32 {
        self.unsignaled
    }

    /// Progress: the number of the oldest request, and whether a completion is pending. It changes with each
    /// completion, and when the first signaled request is posted.
    pub(super) fn progress(&self) -> (u32, bool) {
        (self.first, self.awaited().is_some())
    }

    /// Bytes of all outstanding parts of reads, writes and atomics.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |posted: &PostedRequest| match posted {
            PostedRequest::Part { bytes, .. } => u64::from(*bytes),
            PostedRequest::Packet { .. } | PostedRequest::Mark { .. } => 0,
        };
        self.posted.iter().map(bytes).sum()
    }

    /// Whether any outstanding read is unproven.
    pub(super) fn has_unproven(&self) -> bool {
        let is_doubted =
            |posted: &PostedRequest| matches!(posted, PostedRequest::Part { unproven: true, .. });
        self.posted.iter().any(is_doubted)
    }

    /// The oldest outstanding request, if a completion is pending.
    pub(super) fn awaited(&self) -> Option<PostedRequest> {
        let is_signaled = self.posted.len() > self.unsignaled as usize;
        self.posted.front().copied().filter(|_| is_signaled)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, posted: PostedRequest, signaled: bool) {
        self.posted.push_back(posted);
        self.unsignaled = if signaled { 0 } else { self.unsignaled + 1 };
    }

    /// Handles a successful completion of work request `number`. Returns the last request that has certainly succeeded,
    /// for [`ended`](Self::ended), and whether a request must be posted behind `number`: `true` if `number` is an
    /// unproven read, and no later completion is pending that could prove it.
    #[inline(always)]
    pub(super) fn completed(&mut self, number: u32) -> (u32, bool) {
        let far = number.wrapping_sub(self.first) as usize;
        match self.posted.get(far) {
            Some(PostedRequest::Part { unproven: true, .. }) => self.withhold(number, far),
            _ => (number, false),
        }
    }

    #[inline(never)]
    fn withhold(&mut self, number: u32, far: usize) -> (u32, bool) {
        let behind = u32::try_from(self.posted.len() - far - 1).unwrap_or(u32::MAX);
        let is_last = self.unsignaled >= behind;
        if is_last {
            // The read counts as unsignaled now.
            self.unsignaled = behind + 1;
        }
        (number.wrapping_sub(1), is_last)
    }

    /// Takes the oldest request if the completion of work request `number` ends it; call it until it returns `None`. A
    /// number that was never posted ends nothing.
    #[inline(always)]
    pub(super) fn ended(&mut self, number: u32) -> Option<PostedRequest> {
        let far = number.wrapping_sub(self.first) as usize;
        if far >= self.posted.len() {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        self.posted.pop_front()
    }

    /// Takes the oldest request, although no completion has come.
    pub(super) fn oldest(&mut self) -> Option<PostedRequest> {
        self.ended(self.first)
    }

    /// Takes work request `number`, which failed; those before it must have been taken with
    /// [`ended`](Self::ended)`(number - 1)`.
    pub(super) fn failed(&mut self, number: u32) -> Option<PostedRequest> {
        if number != self.first {
            return None;
        }
        self.unsignaled = self
            .unsignaled
            .min(u32::try_from(self.posted.len().saturating_sub(1)).unwrap_or(u32::MAX));
        self.ended(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(work: u32, unproven: bool) -> PostedRequest {
        let bytes = 1;
        PostedRequest::Part {
            work,
            bytes,
            unproven,
        }
    }

    #[test]
    fn unproven_completions_are_confirmed_by_a_later_one() {
        const PACKET: PostedRequest = PostedRequest::Packet {
            peer: 1,
            number: 7,
            read: None,
        };
        let mut requests = PostedRequests::default();
        for work in 0..2 {
            requests.push(part(work, true), true);
        }
        requests.push(PACKET, false);
        assert!(requests.has_unproven());
        assert_eq!(
            requests.completed(0),
            (u32::MAX, false),
            "another is behind it"
        );
        assert_eq!(requests.ended(u32::MAX), None);
        assert_eq!(
            requests.completed(1),
            (0, true),
            "no signaled request behind it"
        );
        assert_eq!(requests.ended(0), Some(part(0, true)));
        assert_eq!(requests.ended(0), None);
        assert_eq!(requests.unsignaled(), 2, "the part and the packet");
        assert_eq!(requests.awaited(), None);
        requests.push(PostedRequest::Mark { read: None }, true);
        assert_eq!(requests.awaited(), Some(part(1, true)));
        assert_eq!(requests.completed(3), (3, false), "a mark is believed");
        let ended: Vec<_> = std::iter::from_fn(|| requests.ended(3)).collect();
        assert_eq!(ended[..2], [part(1, true), PACKET]);
        assert!(requests.is_empty() && !requests.has_unproven());
    }

    #[test]
    fn one_completion_ends_all_requests_before_it() {
        let mut requests = PostedRequests::default();
        for work in 0..4 {
            requests.push(part(work, false), work == 2);
        }
        assert_eq!((requests.next(), requests.unsignaled()), (4, 1));
        let mut ended = Vec::new();
        while let Some(posted) = requests.ended(2) {
            ended.push(posted);
        }
        assert_eq!(ended.len(), 3);
        assert_eq!(requests.len(), 1);
        assert_eq!(requests.ended(2), None, "once");
        assert_eq!(requests.ended(77), None, "never posted");
        assert_eq!(requests.failed(3), Some(part(3, false)));
        assert!(requests.is_empty());
        assert_eq!(requests.unsignaled(), 0);
    }
}
