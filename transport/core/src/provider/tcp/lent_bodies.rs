// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of frames that are lent to the caller until it returns them.

/// The body of a frame that is lent to the caller. Its memory is reused.
#[derive(Debug, Default)]
struct LentBody {
    bytes: Vec<u8>,
    is_lent: bool,
}

/// All lent bodies.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    all: Vec<LentBody>,
    free: Vec<u32>,
}

impl Bodies {
    /// Stores a copy of a body.
    pub(super) fn lend(&mut self, bytes: &[u8]) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(LentBody::default());
            u32::try_from(self.all.len() - 1).expect("peers have few each")
        });
        let body = &mut self.all[index as usize];
        body.bytes.clear();
        body.bytes.extend_from_slice(bytes);
        body.is_lent = true;
        index
    }

    /// As [`lend`](Self::lend), for the body of a frame that came in a list.
    pub(super) fn lend_listed(&mut self, bytes: &[u8]) -> u32 {
        self.lend(bytes) | LISTED
    }

    /// Copies a body, or as much as fits.
    pub(super) fn copy(&self, index: u32, target: &mut [u8]) -> usize {
        let index = index & !LISTED;
        let body = self.all.get(index as usize).filter(|body| body.is_lent);
        let body = body.map_or(&[][..], |body| &body.bytes);
        let bytes = body.len().min(target.len());
        target[..bytes].copy_from_slice(&body[..bytes]);
        bytes
    }

    /// Takes a body back. `false`: it was not lent, or came in a list: such bodies do not count as lent buffers.
    pub(super) fn release(&mut self, index: u32) -> bool {
        let (index, is_listed) = (index & !LISTED, index & LISTED != 0);
        let body = self.all.get_mut(index as usize);
        let was_lent = body.is_some_and(|body| std::mem::replace(&mut body.is_lent, false));
        if was_lent {
            self.free.push(index);
        }
        was_lent && !is_listed
    }

    pub(super) fn bytes(&self) -> usize {
        let each = self.all.iter().map(|body| body.bytes.capacity());
        each.sum::<usize>() + self.all.capacity() * size_of::<LentBody>()
    }
}

/// Marks the index of a body that came in a list.
const LISTED: u32 = 1 << 31;
