// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user should know, kept until somebody asks: complaints in words, and ports that have gone down or come back. Both
//! are bounded, since nobody may ever ask. No state of the network is in here.

use std::collections::VecDeque;

use locked_memory::LockedMemory;

use super::PortChange;
use super::error_text;
use super::port::{CallError, PortAttr};

/// Messages for the user and changes of ports, oldest first, until they are asked for.
#[derive(Debug, Default)]
pub(super) struct VerbsNotices {
    complaints: VecDeque<String>,
    changes: VecDeque<PortChange>,
    told_of_registration: bool,
    told_of_way: bool,
    /// What others of the job find too.
    remark: Option<String>,
}

impl VerbsNotices {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.complaints.is_empty() && self.changes.is_empty() && self.remark.is_none()
    }

    /// Keeps words for the user; there is an end to what anybody wants to read.
    pub(super) fn complain(&mut self, words: String) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push_back(words);
        }
    }

    /// Memory could not be registered. Large messages are slow then: told once.
    #[cold]
    pub(super) fn complain_of_registration(
        &mut self,
        error: &CallError,
        facts: &PortAttr,
        bytes: u64,
    ) {
        if std::mem::replace(&mut self.told_of_registration, true) {
            return;
        }
        let words = error_text::of_registration(error, facts, bytes, LockedMemory::now());
        self.complain(format!("{words}; such messages go through buffers"));
    }

    /// A way carries less than the ports at its ends. Large messages are slower then: told once, since others are most likely so for the
    /// same reason.
    pub(super) fn remark_on_way(&mut self, words: String) {
        if !std::mem::replace(&mut self.told_of_way, true) {
            self.remark = Some(words);
        }
    }

    pub(super) fn next_remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    pub(super) fn next_complaint(&mut self) -> Option<String> {
        self.complaints.pop_front()
    }

    /// Keeps that a port has gone down or come back.
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
    /// What is to be told from the beginning.
    fn from(complaints: Vec<String>) -> Self {
        Self {
            complaints: complaints.into(),
            ..Self::default()
        }
    }
}

const MOST_COMPLAINTS: usize = 16;
/// Of more that nobody has asked for the oldest are forgotten.
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
    fn the_oldest_complaints_are_kept() {
        let mut news = VerbsNotices::from(vec!["0".to_owned()]);
        for number in 1..=MOST_COMPLAINTS {
            news.complain(number.to_string());
        }
        let mut told = Vec::new();
        told.extend(std::iter::from_fn(|| news.next_complaint()));
        assert_eq!(told.len(), MOST_COMPLAINTS);
        assert_eq!((&*told[0], &*told[MOST_COMPLAINTS - 1]), ("0", "15"));
        assert!(news.is_empty());
    }

    #[test]
    fn a_narrow_way_is_told_once() {
        let mut news = VerbsNotices::default();
        news.remark_on_way("one".to_owned());
        assert!(!news.is_empty());
        assert_eq!(news.next_remark().as_deref(), Some("one"));
        news.remark_on_way("another".to_owned());
        assert!(news.is_empty() && news.next_remark().is_none());
    }

    #[test]
    fn the_newest_changes_are_kept() {
        let mut news = VerbsNotices::default();
        for number in 0..=64 {
            news.note_change(change(number));
        }
        assert!(!news.is_empty());
        let told = std::iter::from_fn(|| news.next_change());
        assert!(told.map(|change| change.serving).eq(1..=64));
    }
}
