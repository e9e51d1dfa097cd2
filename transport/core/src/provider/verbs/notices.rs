// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notices for the user, kept until they are taken: warnings as text, and ports that went down or came back. Both
//! queues are bounded, since they may never be read.

use std::collections::VecDeque;

use locked_memory::LockedMemory;

use super::PortChange;
use super::error_text;
use super::port::{CallError, PortAttr};

/// Warnings and port changes, oldest first, until they are taken.
#[derive(Debug, Default)]
pub(super) struct VerbsNotices {
    warnings: VecDeque<String>,
    changes: VecDeque<PortChange>,
    has_reported_registration: bool,
    has_reported_path: bool,
    /// A message that other processes of the job report too.
    remark: Option<String>,
}

impl VerbsNotices {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.warnings.is_empty() && self.changes.is_empty() && self.remark.is_none()
    }

    /// Queues a warning; drops it when the queue is full.
    pub(super) fn warn(&mut self, message: String) {
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push_back(message);
        }
    }

    /// Queues a warning that memory could not be registered and large messages are therefore slow; only once per
    /// process.
    #[cold]
    pub(super) fn warn_of_registration(&mut self, error: &CallError, facts: &PortAttr, bytes: u64) {
        if std::mem::replace(&mut self.has_reported_registration, true) {
            return;
        }
        let message = error_text::of_registration(error, facts, bytes, LockedMemory::now());
        self.warn(format!("{message}; such messages go through buffers"));
    }

    /// Keeps the remark that a path MTU is below that of the ports, and large messages are therefore slower. Only the
    /// first remark is kept, since other paths most likely share the cause.
    pub(super) fn remark_on_path(&mut self, message: String) {
        if !std::mem::replace(&mut self.has_reported_path, true) {
            self.remark = Some(message);
        }
    }

    pub(super) fn next_remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    pub(super) fn next_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Queues a port change.
    pub(super) fn note_change(&mut self, change: PortChange) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    pub(super) fn next_change(&mut self) -> Option<PortChange> {
        self.changes.pop_front()
    }
}

impl From<Vec<String>> for VerbsNotices {
    /// Starts with the warnings from the opening of the ports.
    fn from(warnings: Vec<String>) -> Self {
        Self {
            warnings: warnings.into(),
            ..Self::default()
        }
    }
}

const MOST_WARNINGS: usize = 16;
/// Maximum number of port changes kept; when another one occurs, the oldest is dropped.
const MOST_CHANGES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn change(serving: u32) -> PortChange {
        PortChange {
            rail: 0,
            port: 1,
            is_up: false,
            serving,
        }
    }

    #[test]
    fn the_oldest_warnings_are_kept() {
        let mut notices = VerbsNotices::from(vec!["0".to_owned()]);
        for number in 1..=MOST_WARNINGS {
            notices.warn(number.to_string());
        }
        let mut texts = Vec::new();
        texts.extend(std::iter::from_fn(|| notices.next_warning()));
        assert_eq!(texts.len(), MOST_WARNINGS);
        assert_eq!((&*texts[0], &*texts[MOST_WARNINGS - 1]), ("0", "15"));
        assert!(notices.is_empty());
    }

    #[test]
    fn a_narrow_path_is_reported_once() {
        let mut notices = VerbsNotices::default();
        notices.remark_on_path("one".to_owned());
        assert!(!notices.is_empty());
        assert_eq!(notices.next_remark().as_deref(), Some("one"));
        notices.remark_on_path("another".to_owned());
        assert!(notices.is_empty() && notices.next_remark().is_none());
    }

    #[test]
    fn the_newest_changes_are_kept() {
        let mut notices = VerbsNotices::default();
        for number in 0..=64 {
            notices.note_change(change(number));
        }
        assert!(!notices.is_empty());
        let texts = std::iter::from_fn(|| notices.next_change());
        assert!(texts.map(|change| change.serving).eq(1..=64));
    }
}
