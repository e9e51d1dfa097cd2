// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and work requests for tests of the simulated port and of the user-space RoCE port.
//!
//! # Safety
//! A [`Block`] is never borrowed: it is only read and written by copies. Its owner drops the port that can access it
//! before the block.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::super::super::port::{Sge, WorkBody, WorkOpcode, WorkRequest};

/// Memory at a fixed address.
#[derive(Debug)]
pub(in crate::provider::verbs) struct Block(NonNull<[u64]>);

impl Block {
    /// Allocates `bytes` bytes of zeros, a multiple of 8.
    pub(in crate::provider::verbs) fn new(bytes: usize) -> Self {
        let all = vec![0u64; bytes / 8].into_boxed_slice();
        Self(NonNull::from(Box::leak(all)))
    }

    pub(in crate::provider::verbs) fn address(&self) -> u64 {
        self.at(0, 0).as_ptr().expose_provenance() as u64
    }

    pub(in crate::provider::verbs) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset + bytes <= 8 * self.0.len());
        // SAFETY: inside the block.
        unsafe { self.0.cast::<u8>().add(offset) }
    }

    pub(in crate::provider::verbs) fn put(&self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        // SAFETY: inside the block; the source is a slice.
        unsafe { target.copy_from(NonNull::from(bytes).cast(), bytes.len()) };
    }

    pub(in crate::provider::verbs) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        let source = self.at(offset, bytes);
        // SAFETY: inside the block; the target is a new vector.
        unsafe { source.copy_to(NonNull::from(&mut copy[..]).cast(), bytes) };
        copy
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` of `new`; the port that could access it was dropped before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A signaled send with an inline body.
pub(in crate::provider::verbs) fn inline(work: u64, bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest {
        work,
        operation: WorkOpcode::Send,
        body: WorkBody::Inline(bytes),
        signaled: true,
    }
}

/// A signaled request with registered memory.
pub(in crate::provider::verbs) fn request(
    work: u64,
    operation: WorkOpcode,
    piece: Sge,
) -> WorkRequest<'static> {
    WorkRequest {
        work,
        operation,
        body: WorkBody::Piece(piece),
        signaled: true,
    }
}
