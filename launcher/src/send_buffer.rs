// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers bytes that a stream does not accept yet. This module does no I/O.

use std::ops::{Deref, DerefMut};

/// Send buffer: bytes are appended at its end and sent from its start. Bytes that were sent may stay at the start for a
/// while.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
    /// The bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Records that the stream accepted this many bytes. Frees the space of the sent bytes if no unsent byte is left,
    /// or if the sent bytes are at least `SENT_BYTES` and at least as many as the unsent bytes. Without the second
    /// rule, a buffer that is never empty would keep everything that was ever sent.
    pub(crate) fn consumed(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent >= SENT_BYTES && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Appends all bytes of `bytes`, which is empty afterwards.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) {
        match self.bytes.is_empty() {
            true => self.bytes = std::mem::take(bytes),
            false => self.bytes.append(&mut std::mem::take(bytes)),
        }
    }

    /// Discards all bytes, and frees memory beyond `KEPT_BYTES`.
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

/// With fewer sent bytes than this, the unsent bytes are not moved to the start.
const SENT_BYTES: usize = 64 << 10;
/// Capacity in bytes that is kept when the buffer is empty.
const KEPT_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_keep_order_and_their_memory_is_freed() {
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
