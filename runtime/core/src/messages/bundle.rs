// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests composed of other requests: one handle for several operations (`MPI_Isendrecv`), and persistent sends that
//! are packed or copied at each start. Also buffered sends, and the flush of their buffers.
//!
//! A bundle has its own slot, so the application holds an ordinary request. It completes when all its parts have
//! completed.

use rustc_hash::FxHashMap;

use engine::{ContextId, Engine, RequestArena, RequestId, RequestKind};

use super::Messages;
use crate::operation::exhausted;
use crate::{Error, Mode, Payload, SendTarget};

/// The bundles, buffered sends and given-up requests in progress, and the templates of persistent sends.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    open: Vec<Bundle>,
    replays: FxHashMap<u32, SendTemplate>,
    /// Buffered sends that are not complete.
    buffered: Vec<Buffered>,
    /// Requests that the application has freed before they were complete, and that have data outside their slots, such
    /// as data to be unpacked.
    given_up: Vec<RequestId>,
}

/// A request that is complete when all its parts are.
#[derive(Debug)]
struct Bundle {
    request: RequestId,
    parts: Vec<RequestId>,
    /// The part whose status becomes the status of the bundle.
    status_part: Option<RequestId>,
    /// A buffer for buffered sends: the bundle completes only when no message is left in this buffer.
    flush: Option<u64>,
}

/// The parameters with which each start of a persistent send starts a send.
#[derive(Clone, Debug)]
struct SendTemplate {
    target: Option<SendTarget>,
    data: Payload,
    mode: SendMode,
}

/// A buffered send in progress: `bytes` of the buffer with the number `buffer` are in use.
#[derive(Debug)]
struct Buffered {
    request: RequestId,
    buffer: u64,
    bytes: u64,
}

/// The modes of a send (MPI 5.0 section 3.4); a ready send is sent as a standard send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// With the standard or synchronous protocol.
    Direct(Mode),
    /// From a copy. The bytes of the copy count as used in `buffer`.
    Buffered {
        /// Number of the buffer, which the C layer assigns.
        buffer: u64,
    },
}

impl Bundles {
    /// Whether [`Messages::settle_bundles`] has nothing to do.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.buffered.is_empty() && self.given_up.is_empty()
    }

    /// The operations of a bundle's request; empty if it is not a bundle.
    pub(crate) fn parts_of(&self, request: RequestId) -> &[RequestId] {
        let mut open = self.open.iter();
        let bundle = open.find(|bundle| bundle.request == request);
        bundle.map_or(&[], |bundle| &bundle.parts)
    }

    /// Whether a request was [given up](Self::give_up) and is not complete yet.
    #[inline]
    pub(crate) fn has_given_up(&self, request: RequestId) -> bool {
        self.given_up.contains(&request)
    }

    /// Makes the runtime free a request as soon as it is complete, because the application has freed it before.
    pub(crate) fn give_up(&mut self, request: RequestId) {
        self.given_up.push(request);
    }

    /// Whether sends are in progress whose requests the runtime frees, not the application.
    pub(crate) fn has_unfinished_copies(&self, arena: &RequestArena) -> bool {
        let is_send = |request: &RequestId| arena.fields(*request).kind == RequestKind::Send;
        !self.buffered.is_empty() || self.given_up.iter().any(is_send)
    }

    /// Drops the template of a request that was freed.
    pub(crate) fn drop_replay(&mut self, request: RequestId, arena: &RequestArena) {
        if !self.replays.is_empty() {
            self.replays.remove(&arena.token(request));
        }
    }

    fn is_done(&self, at: usize, engine: &Engine) -> bool {
        let bundle = &self.open[at];
        let is_empty = |buffer| self.buffered.iter().all(|send| send.buffer != buffer);
        let mut parts = bundle.parts.iter();
        bundle.flush.is_none_or(is_empty) && parts.all(|part| engine.is_complete(*part))
    }
}

impl Messages {
    /// Starts a send. `None`: the send is complete already.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn send_payload(
        &mut self,
        target: SendTarget,
        data: &Payload,
        mode: SendMode,
    ) -> Result<Option<RequestId>, Error> {
        match (mode, data) {
            (SendMode::Direct(mode), Payload::Dense(memory)) => self.send(target, *memory, mode),
            (SendMode::Direct(mode), Payload::Structured(data)) => {
                self.send_structured(target, data, mode)
            }
            (SendMode::Buffered { buffer }, _) => {
                let bytes = data.bytes();
                if let Some(request) = self.send_owned(target, data.copy(), Mode::Standard)? {
                    self.bundles.buffered.push(Buffered {
                        request,
                        buffer,
                        bytes,
                    });
                }
                Ok(None)
            }
        }
    }

    /// Makes a persistent send. If `target` is `None` (`MPI_PROC_NULL`), each start is complete immediately.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_payload(
        &mut self,
        target: Option<SendTarget>,
        data: Payload,
        mode: SendMode,
    ) -> Result<RequestId, Error> {
        if let (Some(target), Payload::Dense(memory), SendMode::Direct(mode)) =
            (target, &data, mode)
        {
            return self.prepare_send(target, *memory, mode);
        }
        let context = target.map_or(NO_CONTEXT, |target| target.context);
        let request = self
            .pump
            .engine
            .prepare_other(context)
            .map_err(|_| exhausted())?;
        let token = self.pump.engine.arena().token(request);
        self.bundles
            .replays
            .insert(token, SendTemplate { target, data, mode });
        Ok(request)
    }

    /// Starts a persistent request that is not a plain send or receive, and not a task. If it has a template, starts
    /// that send; else it is complete immediately.
    pub(crate) fn restart_other(&mut self, request: RequestId) -> Result<(), Error> {
        let token = self.pump.engine.arena().token(request);
        let replay = self.bundles.replays.get(&token).cloned();
        // The send is started before the request: if it fails, the request stays inactive, and no operation is in
        // progress.
        let part = match replay {
            Some(SendTemplate {
                target: Some(target),
                data,
                mode,
            }) => self.send_payload(target, &data, mode)?,
            _ => None,
        };
        if let Some(part) = part {
            self.pump.engine.copy_datatype(part, request);
        }
        self.pump.engine.restart_other(request);
        match part {
            None => self.pump.engine.finish_other(request, None),
            Some(part) => {
                self.bundles.open.push(Bundle {
                    request,
                    parts: vec![part],
                    status_part: None,
                    flush: None,
                });
            }
        }
        Ok(())
    }

    /// Makes one request that completes when all of `parts` have completed. Its status is that of `status_part`, which
    /// must be one of `parts`.
    ///
    /// # Errors
    /// When no request slot is left; the parts continue.
    pub fn bundle(
        &mut self,
        parts: Vec<RequestId>,
        status_part: Option<RequestId>,
    ) -> Result<RequestId, Error> {
        let request = self
            .pump
            .engine
            .start_other(NO_CONTEXT)
            .map_err(|_| exhausted())?;
        self.bundles.open.push(Bundle {
            request,
            parts,
            status_part,
            flush: None,
        });
        Ok(request)
    }

    /// Makes a request that completes when a buffer has no messages left (`MPI_Buffer_iflush`).
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn flush_request(&mut self, buffer: u64) -> Result<RequestId, Error> {
        let request = self
            .pump
            .engine
            .start_other(NO_CONTEXT)
            .map_err(|_| exhausted())?;
        let flush = Some(buffer);
        self.bundles.open.push(Bundle {
            request,
            parts: Vec::new(),
            status_part: None,
            flush,
        });
        Ok(request)
    }

    /// Makes a generalized request, which the application completes (`MPI_Grequest_start`).
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn start_general(&mut self, context: ContextId) -> Result<RequestId, Error> {
        self.pump
            .engine
            .start_other(context)
            .map_err(|_| exhausted())
    }

    /// Completes a generalized request.
    pub fn finish_general(&mut self, request: RequestId) {
        self.pump.engine.finish_other(request, None);
    }

    /// Number of bytes that unfinished buffered sends occupy in a buffer, and number of these sends.
    pub fn buffered_bytes(&mut self, buffer: u64) -> (u64, u64) {
        self.settle_buffered();
        let held = self
            .bundles
            .buffered
            .iter()
            .filter(|send| send.buffer == buffer);
        held.fold((0, 0), |(bytes, count), send| {
            (bytes + send.bytes, count + 1)
        })
    }

    /// Buffer and bytes of a persistent buffered send; `None`: the request is not such a send, or has no target.
    #[must_use]
    pub fn buffered_replay(&self, request: RequestId) -> Option<(u64, u64)> {
        let replay = self.bundles.replays.get(&self.token(request))?;
        match replay.mode {
            SendMode::Buffered { buffer } if replay.target.is_some() => {
                Some((buffer, replay.data.bytes()))
            }
            _ => None,
        }
    }

    /// Completes bundles whose parts have completed.
    #[inline(never)]
    pub(crate) fn settle_bundles(&mut self) {
        self.settle_buffered();
        self.settle_given_up();
        let mut at = 0;
        while at < self.bundles.open.len() {
            if self.bundles.is_done(at, &self.pump.engine) {
                let bundle = self.bundles.open.swap_remove(at);
                self.pump
                    .engine
                    .finish_other(bundle.request, bundle.status_part);
                bundle.parts.into_iter().for_each(|part| self.release(part));
            } else {
                at += 1;
            }
        }
    }

    fn settle_buffered(&mut self) {
        let sends = std::mem::take(&mut self.bundles.buffered);
        let (done, open) = sends
            .into_iter()
            .partition(|send| self.pump.engine.is_complete(send.request));
        self.bundles.buffered = open;
        let done: Vec<Buffered> = done;
        for send in done {
            self.release(send.request);
        }
    }

    fn settle_given_up(&mut self) {
        let requests = std::mem::take(&mut self.bundles.given_up);
        for request in requests {
            if !self.pump.engine.is_complete(request) {
                self.bundles.given_up.push(request);
                continue;
            }
            self.release(request);
            if self.is_persistent(request) {
                self.free(request);
            }
        }
    }
}

/// Context id of a request without a communicator. A request that [`Messages::bundle`] makes has it too; the parts of
/// such a request have the context ids of their communicators.
const NO_CONTEXT: ContextId = ContextId(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReceiveSource;
    use crate::UserMemory;
    use crate::testing::messages_alone;
    use engine::{ContextId, Peer, RequestState};

    #[test]
    fn a_persistent_send_that_cannot_be_started_stays_inactive() {
        let mut messages = messages_alone();
        let (context, peer, tag) = (ContextId(0), Peer(0), 1);
        let target = SendTarget { context, peer, tag };
        let mut bytes = vec![1u8; 1 << 20];
        let data = Payload::Dense(UserMemory::of(&mut bytes));
        let mode = SendMode::Buffered { buffer: 0 };
        let request = messages.prepare_payload(Some(target), data, mode).unwrap();
        let source = ReceiveSource {
            context,
            peer: Some(peer),
            tag: Some(tag),
        };
        // Fills all slots, so that none is left for the send itself.
        while messages
            .prepare_receive(source, UserMemory::nothing())
            .is_ok()
        {}
        assert!(messages.restart_other(request).is_err());
        assert!(
            messages.engine().arena().fields(request).state == RequestState::Inactive,
            "it would never complete"
        );
    }
}
