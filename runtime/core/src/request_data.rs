// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores the data of requests that a request's slot cannot describe, by token: copies that are being sent, and
//! noncontiguous data, which are packed and unpacked frame by frame in reused memory. Nothing here sends.

use std::collections::HashSet;

use engine::RequestArena;
use rustc_hash::FxHashMap;

use crate::pack::Structured;

/// The data that are stored for one request.
#[derive(Debug)]
pub(crate) enum RequestData {
    /// A copy that is being sent.
    Sent {
        /// The copy. It is not read; it is here so that its memory stays allocated.
        _bytes: Box<[u8]>,
    },
    /// Noncontiguous data that are being sent.
    Streamed {
        /// The data.
        data: Structured,
    },
    /// The destination of data that are being received.
    Received {
        /// The noncontiguous data.
        data: Structured,
    },
}

/// The data that are stored for requests, and buffers to pack and unpack them.
#[derive(Debug, Default)]
pub(crate) struct RequestDataTable {
    by_token: FxHashMap<u32, RequestData>,
    /// Buffer of a frame whose bytes are being unpacked.
    arriving: Vec<u8>,
    /// Buffer of the frame of noncontiguous data that was packed last.
    packed: Vec<u8>,
    /// The frame in `packed`: token of its request, offset in the data, and number of bytes. `None`: there is none, or
    /// it was posted.
    packed_of: Option<(u32, u64, u64)>,
    /// Tokens of receives for whose data only one rendezvous protocol was possible. The durations of these receives are
    /// not used to select protocols.
    unmeasured: HashSet<u32>,
}

impl RequestDataTable {
    /// Whether no request has data here.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(crate) fn insert(&mut self, token: u32, side: RequestData) {
        self.by_token.insert(token, side);
    }

    pub(crate) fn remove(&mut self, token: u32) {
        self.by_token.remove(&token);
    }

    pub(crate) fn has(&self, token: u32) -> bool {
        self.by_token.contains_key(&token)
    }

    /// If the table has more than `MANY` entries, drops those of requests that were freed.
    pub(crate) fn forget_stale(&mut self, arena: &RequestArena) {
        if self.by_token.len() > MANY {
            self.by_token
                .retain(|token, _| arena.find(*token).is_some());
        }
    }

    /// The destination blocks of a receive, if they have gaps.
    pub(crate) fn received(&self, token: u32) -> Option<&Structured> {
        match self.by_token.get(&token) {
            Some(RequestData::Received { data }) => Some(data),
            _ => None,
        }
    }

    /// The destination blocks of a receive, and a buffer of `bytes` bytes to unpack from; `None`: the data of the
    /// receive have no gaps.
    pub(crate) fn arriving(&mut self, token: u32, bytes: u64) -> Option<(&Structured, &mut [u8])> {
        let Some(RequestData::Received { data }) = self.by_token.get(&token) else {
            return None;
        };
        Some((data, window(&mut self.arriving, bytes)))
    }

    /// A buffer of `bytes` bytes for data that the caller packs and posts immediately. Forgets the packed frame,
    /// because the buffer uses the memory of that frame.
    pub(crate) fn room(&mut self, bytes: u64) -> &mut [u8] {
        self.forget_packed();
        window(&mut self.packed, bytes)
    }

    /// Calls `post` with a frame of a send's noncontiguous data: `bytes` bytes from offset `at`. Packs the frame,
    /// unless it is still packed from an earlier attempt; only the last frame stays packed. Returns the result of
    /// `post`: whether the frame was posted.
    pub(crate) fn post_frame(
        &mut self,
        (token, at, bytes): (u32, u64, u64),
        post: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let Some(RequestData::Streamed { data }) = self.by_token.get(&token) else {
            unreachable!(
                "a send without a buffer has its data beside its slot until it is complete"
            )
        };
        let frame = window(&mut self.packed, bytes);
        if self.packed_of != Some((token, at, bytes)) {
            data.pack_at(at, frame);
        }
        let is_posted = post(frame);
        // If there was no room, this frame is posted again soon. A frame that was posted must not be reused, because
        // the application may change its data afterwards.
        self.packed_of = (!is_posted).then_some((token, at, bytes));
        is_posted
    }

    /// Forgets the packed frame. To be called if it will not be posted again.
    pub(crate) fn forget_packed(&mut self) {
        self.packed_of = None;
    }

    /// Records whether both [rendezvous protocols](crate::rendezvous_protocol::RendezvousProtocol) are possible for the
    /// data of a receive (`chooses`).
    pub(crate) fn note_choice(&mut self, token: u32, chooses: bool) {
        if !chooses {
            self.unmeasured.insert(token);
        } else if !self.unmeasured.is_empty() {
            self.unmeasured.remove(&token);
        }
    }

    /// Whether both rendezvous protocols were possible for the data of a receive. Removes the record, so it must be
    /// called once, after the data have arrived.
    pub(crate) fn could_choose(&mut self, token: u32) -> bool {
        self.unmeasured.is_empty() || !self.unmeasured.remove(&token)
    }
}

/// The first `bytes` bytes of a reused buffer, which grows as needed.
fn window(memory: &mut Vec<u8>, bytes: u64) -> &mut [u8] {
    let bytes = usize::try_from(bytes).unwrap_or(0);
    if memory.len() < bytes {
        memory.resize(bytes, 0);
    }
    &mut memory[..bytes]
}

/// Number of entries above which the entries of freed requests are dropped.
const MANY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_protocol_choice_is_used_once() {
        let mut sides = RequestDataTable::default();
        sides.note_choice(7, false);
        sides.note_choice(9, false);
        sides.note_choice(9, true);
        assert_eq!(
            [7, 9, 7].map(|token| sides.could_choose(token)),
            [false, true, true]
        );
    }

    #[test]
    fn the_window_buffer_grows_and_is_reused() {
        let mut sides = RequestDataTable::default();
        sides.room(3).fill(1);
        let place = sides.room(2).as_ptr();
        assert_eq!(sides.room(3), [1, 1, 1]);
        assert_eq!(sides.room(1).as_ptr(), place);
        assert_eq!(sides.room(8).len(), 8);
    }
}
