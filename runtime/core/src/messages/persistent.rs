// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent sends and receives (MPI 5.0 section 3.9): made once, inactive at first, and started any number of times.

use engine::{ContextId, Peer, RequestFields, RequestId, wire};
use queue_layout::{ANY_PEER, ANY_TAG, FLAG_SYNCHRONOUS};

use super::Messages;
use crate::Error;
use crate::operation::{Mode, ReceiveSource, SendTarget, described, exhausted, scattered, wanted};
use crate::pack::Structured;
use crate::user_buf::UserMemory;

impl Messages {
    /// Makes an inactive persistent send.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_send(
        &mut self,
        target: SendTarget,
        memory: UserMemory,
        mode: Mode,
    ) -> Result<RequestId, Error> {
        let send = described(target, memory, mode);
        let request = self
            .pump
            .engine
            .prepare_send(send)
            .map_err(|_| exhausted())?;
        if mode.is_standard() {
            self.gates.admit_send(&mut self.pump, request);
        }
        Ok(request)
    }

    /// Starts an inactive persistent send.
    pub fn restart_send(&mut self, request: RequestId) {
        let fields = self.pump.engine.arena().fields(request);
        self.pump.traffic.count(Peer(fields.peer), fields.bytes);
        match self.gates.class_of(request) {
            Some(class) if self.gates.restart_out(&mut self.pump, request, class) => return,
            None if self.gates.tracks_sends() => {
                let target = target_of(self.pump.engine.arena().fields(request));
                self.gates.before_send(&mut self.pump, target);
            }
            _ => {}
        }
        if self.pump.post_whole(request) {
            return self.pump.engine.restart_sent(request);
        }
        let fields = self.pump.engine.arena().fields(request);
        let (peer, buffer, bytes) = (Peer(fields.peer), fields.buffer, fields.bytes);
        let is_synchronous = fields.flags & FLAG_SYNCHRONOUS != 0;
        let key = match self.pump.goes_whole(bytes, is_synchronous) {
            true => wire::NO_KEY,
            false => self.pump.export(peer, buffer, bytes),
        };
        // Whether the message is sent early is determined at each start, because that may change while the request
        // exists.
        let early = self.pump.goes_early(peer, bytes, key);
        self.pump.engine.restart_send(request, key, early);
        self.pump.lend(request, key);
        self.pump.drain_outbox(peer);
    }

    /// Makes an inactive persistent receive.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_receive(
        &mut self,
        source: ReceiveSource,
        memory: UserMemory,
    ) -> Result<RequestId, Error> {
        let receive = wanted(source, memory);
        let (request, _) = self
            .pump
            .engine
            .start_receive(receive, true)
            .map_err(|_| exhausted())?;
        self.gates.admit_receive(request, source);
        Ok(request)
    }

    /// Makes an inactive persistent receive of noncontiguous data.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_receive_structured(
        &mut self,
        source: ReceiveSource,
        data: Structured,
    ) -> Result<RequestId, Error> {
        let (request, _) = self
            .pump
            .engine
            .start_receive(scattered(source, &data), true)
            .map_err(|_| exhausted())?;
        self.pump.keep_structured(request, data);
        Ok(request)
    }

    /// Starts an inactive persistent receive.
    pub fn restart_receive(&mut self, request: RequestId) {
        if let Some(class) = self.gates.class_of(request) {
            return self.gates.restart_into(&mut self.pump, request, class);
        }
        if self.gates.tracks_receives() {
            let source = source_of(self.pump.engine.arena().fields(request));
            self.gates.before_receive(&mut self.pump, source);
        }
        if let Some(output) = self.pump.engine.restart_receive(request) {
            self.pump.carry_out_at_once(output);
        }
    }
}

/// The target of a persistent send.
fn target_of(fields: &RequestFields) -> SendTarget {
    SendTarget {
        context: ContextId(fields.context),
        peer: Peer(fields.peer),
        tag: fields.tag,
    }
}

/// The source of a persistent receive.
fn source_of(fields: &RequestFields) -> ReceiveSource {
    ReceiveSource {
        context: ContextId(fields.context),
        peer: (fields.peer != ANY_PEER).then_some(Peer(fields.peer)),
        tag: (fields.tag != ANY_TAG).then_some(fields.tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::messages_alone;

    #[test]
    fn s3_9_a_small_persistent_send_is_complete_when_it_is_started() {
        let mut messages = messages_alone();
        let (context, peer, tag) = (ContextId(0), Peer(0), 1);
        let target = SendTarget { context, peer, tag };
        let mut large = vec![1u8; 1 << 20];
        let mut starts = |bytes: usize, mode| {
            let memory = UserMemory::of(&mut large[..bytes]);
            let request = messages.prepare_send(target, memory, mode).unwrap();
            messages.restart_send(request);
            messages.is_complete(request)
        };
        assert!(starts(8, Mode::Standard));
        assert!(!starts(8, Mode::Synchronous));
        assert!(!starts(1 << 20, Mode::Standard));
    }
}
