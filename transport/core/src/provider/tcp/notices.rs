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

    /// Queues a message; drops it if [`MOST_COMPLAINTS`] are queued.
    pub(super) fn complain(&mut self, message: String) {
        if self.0.len() < MOST_COMPLAINTS {
            self.0.push_back(message);
        }
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }
}

const MOST_COMPLAINTS: usize = 16;
