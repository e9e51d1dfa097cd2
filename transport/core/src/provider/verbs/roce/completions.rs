// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the completions and events of queue pairs that were not polled yet, as the port's types.

use std::collections::VecDeque;

use roce::WorkCompletion;

use super::super::port::{CqKind, PortCompletion, PortEvent, WorkStatus};

/// The completions and events of one port that were not polled yet. Their number is bounded by the posted requests and
/// buffers.
#[derive(Debug, Default)]
pub(super) struct RoceCompletions {
    sends: VecDeque<PortCompletion>,
    receives: VecDeque<PortCompletion>,
    events: VecDeque<PortEvent>,
}

impl RoceCompletions {
    /// Adds the completion of a request.
    pub(super) fn sent(&mut self, completion: &WorkCompletion) {
        self.sends.push_back(done(completion, 0));
    }

    /// Adds the completion of a receive on a reliable queue pair.
    pub(super) fn received(&mut self, completion: &WorkCompletion) {
        self.receives.push_back(done(completion, 0));
    }

    /// Adds the completion of a datagram receive, with the sending queue pair.
    pub(super) fn received_from(&mut self, completion: &WorkCompletion, source: u32) {
        self.receives.push_back(done(completion, source));
    }

    /// Adds an event.
    pub(super) fn push_event(&mut self, event: PortEvent) {
        self.events.push_back(event);
    }

    /// Takes the next event.
    pub(super) fn next_event(&mut self) -> Option<PortEvent> {
        self.events.pop_front()
    }

    /// Takes completions; returns how many.
    pub(super) fn take(&mut self, which: CqKind, places: &mut [PortCompletion]) -> usize {
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

    /// Discards the send completions of a queue pair.
    pub(super) fn forget_sends(&mut self, number: u32) {
        self.sends.retain(|done| done.number != number);
    }

    /// Whether there are events.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether there are neither completions nor events.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.events.is_empty()
    }
}

/// A completion as the port's type; `source`: the sending queue pair of a datagram.
pub(super) fn done(completion: &WorkCompletion, source: u32) -> PortCompletion {
    PortCompletion {
        work: completion.work,
        status: status(completion.status),
        bytes: completion.bytes,
        number: completion.number,
        source,
        vendor: 0,
    }
}

/// The status as the provider's type.
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
