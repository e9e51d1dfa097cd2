// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that wait for room in a stream. Sans-IO.

use std::ops::{Deref, DerefMut};

/// Send buffer: bytes are appended at its end and sent from its start. Sent bytes may still be in front.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
    /// Bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Records that the stream accepted this many bytes. Frees the space of sent bytes where it exceeds what is left: a
    /// buffer that is never empty would otherwise keep everything that was ever sent.
    pub(crate) fn consumed(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent >= SENT_BYTES && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Moves all bytes out of a list.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) {
        match self.bytes.is_empty() {
            true => self.bytes = std::mem::take(bytes),
            false => self.bytes.append(&mut std::mem::take(bytes)),
        }
    }

    /// Drops everything, and frees the memory of a burst.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.sent = 0;
    }
}

impl Deref for SendBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Minimum of sent bytes for which the rest is moved.
const SENT_BYTES: usize = 64 << 10;
/// Capacity that is kept when the buffer is empty.
const KEPT_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order_and_their_room_is_given_back() {
        let mut outbox = SendBuffer::default();
        let all: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        outbox.take(&mut all.clone());
        let mut sent = Vec::new();
        while !outbox.unsent().is_empty() {
            let part = outbox.unsent().len().min(50_000);
            sent.extend_from_slice(&outbox.unsent()[..part]);
            outbox.consumed(part);
            assert!(outbox.len() <= 2 * outbox.unsent().len() + SENT_BYTES);
        }
        assert_eq!(sent, all);
        assert!(outbox.is_empty() && outbox.capacity() <= KEPT_BYTES);
    }
}
