// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that wait for room in a stream. Sans-IO.

use std::ops::{Deref, DerefMut};

/// What is to be sent, as bytes to which more are appended. Those that were sent at last may still stand in front.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// What was not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The stream has taken so many bytes. Gives back the room of what was sent, where that is more than what is left: an outbox in
    /// which always something waits would keep all that was ever sent.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent >= SENT_BYTES && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes over all bytes of a list, which stays empty.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) {
        match self.bytes.is_empty() {
            true => self.bytes = std::mem::take(bytes),
            false => self.bytes.append(&mut std::mem::take(bytes)),
        }
    }

    /// Forgets everything, and gives back the memory of a flood.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.sent = 0;
    }
}

impl Deref for Outbox {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Outbox {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Less than this is not worth moving what is left.
const SENT_BYTES: usize = 64 << 10;
/// So much is kept for what comes next.
const KEPT_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order_and_their_room_is_given_back() {
        let mut outbox = Outbox::default();
        let all: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        outbox.take(&mut all.clone());
        let mut sent = Vec::new();
        while !outbox.unsent().is_empty() {
            let part = outbox.unsent().len().min(50_000);
            sent.extend_from_slice(&outbox.unsent()[..part]);
            outbox.took(part);
            assert!(outbox.len() <= 2 * outbox.unsent().len() + SENT_BYTES);
        }
        assert_eq!(sent, all);
        assert!(outbox.is_empty() && outbox.capacity() <= KEPT_BYTES);
    }
}
