// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for the user, kept until they are fetched.

use std::collections::VecDeque;

/// Messages for the user, oldest first.
#[derive(Debug, Default)]
pub(super) struct TcpNotices(VecDeque<String>);

impl TcpNotices {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Queues a message; their number is limited.
    pub(super) fn complain(&mut self, words: String) {
        if self.0.len() < MOST_COMPLAINTS {
            self.0.push_back(words);
        }
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }
}

const MOST_COMPLAINTS: usize = 16;
