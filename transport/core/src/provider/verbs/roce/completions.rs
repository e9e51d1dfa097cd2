// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has ended and was not asked for yet: completions in the port's words, and what happened to queue pairs.

use std::collections::VecDeque;

use roce::WorkCompletion;

use super::super::port::{CqKind, Done, PortEvent, WorkStatus};

/// The completions and events of one port that were not polled. There are no more than requests and buffers that its process
/// has posted.
#[derive(Debug, Default)]
pub(super) struct RoceCompletions {
    sends: VecDeque<Done>,
    receives: VecDeque<Done>,
    events: VecDeque<PortEvent>,
}

impl RoceCompletions {
    /// A request has ended.
    pub(super) fn sent(&mut self, completion: &WorkCompletion) {
        self.sends.push_back(done(completion, 0));
    }

    /// A buffer of a reliable queue pair is filled.
    pub(super) fn received(&mut self, completion: &WorkCompletion) {
        self.receives.push_back(done(completion, 0));
    }

    /// A datagram has come from this queue pair.
    pub(super) fn received_from(&mut self, completion: &WorkCompletion, source: u32) {
        self.receives.push_back(done(completion, source));
    }

    /// Something happened.
    pub(super) fn happened(&mut self, event: PortEvent) {
        self.events.push_back(event);
    }

    /// The next thing that happened.
    pub(super) fn next_event(&mut self) -> Option<PortEvent> {
        self.events.pop_front()
    }

    /// Takes completions; answers how many.
    pub(super) fn take(&mut self, which: CqKind, places: &mut [Done]) -> usize {
        let queue = match which {
            CqKind::Sends => &mut self.sends,
            CqKind::Receives => &mut self.receives,
        };
        let count = queue.len().min(places.len());
        for (place, done) in places.iter_mut().zip(queue.drain(..count)) {
            *place = done;
        }
        count
    }

    /// Forgets the completions of requests of a queue pair.
    pub(super) fn forget_sends(&mut self, number: u32) {
        self.sends.retain(|done| done.number != number);
    }

    /// Whether something happened to a queue pair.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.events.is_empty()
    }
}

/// A completion in the port's words, of a datagram from this queue pair if it is one that has come.
pub(super) fn done(completion: &WorkCompletion, source: u32) -> Done {
    Done {
        work: completion.work,
        status: status(completion.status),
        bytes: completion.bytes,
        number: completion.number,
        source,
        vendor: 0,
    }
}

/// How something ended, for the provider.
fn status(status: roce::CompletionStatus) -> WorkStatus {
    match status {
        roce::CompletionStatus::Success => WorkStatus::Success,
        roce::CompletionStatus::Flushed => WorkStatus::Flushed,
        roce::CompletionStatus::RetryExceeded => WorkStatus::RetryExceeded,
        roce::CompletionStatus::RnrRetryExceeded => WorkStatus::NotReady,
        roce::CompletionStatus::RemoteAccess => WorkStatus::RemoteAccess,
        roce::CompletionStatus::RemoteInvalid => WorkStatus::RemoteInvalid,
        roce::CompletionStatus::RemoteOperation => WorkStatus::RemoteOperation,
        roce::CompletionStatus::LocalProtection => WorkStatus::LocalProtection,
        roce::CompletionStatus::LocalLength => WorkStatus::LocalLength,
    }
}
