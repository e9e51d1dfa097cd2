// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message buffers of the ranks. There are guard bytes around each buffer, and in structured buffers also between
//! the blocks.
//!
//! # Safety
//! A buffer's bytes are in a vector that is neither grown nor freed while the buffer exists, and the ranks keep each
//! buffer until its operation has ended.
#![allow(unsafe_code)]

use runtime::datatype::{Basic, Datatype, ScalarType};
use runtime::{Payload, Structured, UserMemory};

/// The layout of a buffer: blocks of `block` bytes, at a distance of `stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub block: u64,
    pub stride: u64,
}

impl Shape {
    pub const DENSE: Self = Self {
        block: 1,
        stride: 1,
    };

    /// This shape, if `bytes` bytes are a whole number of its blocks; else a shape with gaps of the same size between
    /// blocks of one byte.
    pub fn for_bytes(self, bytes: u64) -> Self {
        match bytes % self.block {
            0 => self,
            _ => Self {
                block: 1,
                stride: self.stride - self.block + 1,
            },
        }
    }
}

/// Memory of a rank for one message.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    shape: Shape,
    pub bytes: u64,
}

impl Buffer {
    /// A buffer to receive a message. It is filled with a byte that shows which bytes were not written.
    pub fn empty(bytes: u64, shape: Shape) -> Self {
        let shape = shape.for_bytes(bytes);
        let span = bytes / shape.block * shape.stride;
        Self {
            memory: vec![UNTOUCHED; span as usize + 2 * GUARD],
            shape,
            bytes,
        }
    }

    /// A buffer that contains a message to be sent.
    pub fn holding(content: &[u8], shape: Shape) -> Self {
        let mut buffer = Self::empty(content.len() as u64, shape);
        buffer.fill(content);
        buffer
    }

    /// Sets new contents, for the next start of a persistent send.
    pub fn fill(&mut self, content: &[u8]) {
        let Shape { block, stride } = self.shape;
        if block == stride {
            self.memory[GUARD..GUARD + content.len()].copy_from_slice(content);
            return;
        }
        let places = self.memory[GUARD..].chunks_mut(stride as usize);
        for (place, bytes) in places.zip(content.chunks(block as usize)) {
            place[..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The message's bytes.
    pub fn content(&self) -> Vec<u8> {
        let Shape { block, stride } = self.shape;
        if block == stride {
            return self.memory[GUARD..GUARD + self.bytes as usize].to_vec();
        }
        let places = self.memory[GUARD..].chunks(stride as usize);
        let count = (self.bytes / block) as usize;
        let blocks = places.take(count).map(|place| &place[..block as usize]);
        blocks.flatten().copied().collect()
    }

    /// Whether the bytes around and between the blocks are unchanged.
    pub fn is_clean(&self) -> bool {
        let Shape { block, stride } = self.shape;
        let (head, rest) = self.memory.split_at(GUARD);
        let (body, tail) = rest.split_at(rest.len() - GUARD);
        let mut gaps = body
            .chunks(stride as usize)
            .map(|place| &place[block as usize..]);
        let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == UNTOUCHED);
        untouched(head) && untouched(tail) && (block == stride || gaps.all(untouched))
    }

    /// Lends a buffer without gaps.
    pub fn lend(&mut self) -> UserMemory {
        assert_eq!(self.shape.block, self.shape.stride, "a buffer with gaps");
        UserMemory::of(&mut self.memory[GUARD..GUARD + self.bytes as usize])
    }

    /// Lends a buffer of any shape.
    pub fn lend_structured(&mut self) -> Structured {
        let Shape { block, stride } = self.shape;
        let byte = Datatype::of_basic(&Basic::of_scalar(ScalarType::Byte));
        let datatype = byte.strided(self.bytes / block, block, stride as i64);
        let datatype = datatype.unwrap();
        let base = self.memory[GUARD..].as_mut_ptr();
        // SAFETY: the blocks end inside `memory`, which does not move until the operation has ended (see the head of
        // the file).
        unsafe { Structured::new(base, 1, &datatype) }
    }

    /// Lends the buffer for a send of any mode.
    pub fn lend_payload(&mut self) -> Payload {
        match self.shape.block == self.shape.stride {
            true => Payload::Dense(self.lend()),
            false => Payload::Structured(self.lend_structured()),
        }
    }
}

pub const UNTOUCHED: u8 = 0xEE;
const GUARD: usize = 16;
