// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent sends and receives (MPI 5.0 section 3.9): made once, inactive, and started often.

use engine::{Peer, RequestId};

use crate::p2p::{Mode, Source, Target, exhausted, scattered, wanted};
use crate::pack::Structured;
use crate::user_buf::UserMemory;
use crate::{Error, Universe};

impl Universe {
    /// Makes an inactive persistent send.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_send(
        &mut self,
        target: Target,
        memory: UserMemory,
        mode: Mode,
    ) -> Result<RequestId, Error> {
        let send = self.describe(target, memory, mode);
        self.engine.prepare_send(send).map_err(|_| exhausted())
    }

    /// Starts an inactive persistent send.
    pub fn restart_send(&mut self, request: RequestId) {
        let fields = self.engine.arena().fields(request);
        let (peer, buffer, bytes) = (Peer(fields.peer), fields.buffer, fields.bytes);
        let key = self.export(peer, buffer, bytes);
        self.engine.restart_send(request, key);
        self.lend(request, key);
        self.drain_outbox(peer);
    }

    /// Makes an inactive persistent receive.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_receive(
        &mut self,
        source: Source,
        memory: UserMemory,
    ) -> Result<RequestId, Error> {
        let receive = wanted(source, memory);
        self.engine
            .start_receive(receive, true)
            .map(|(request, _)| request)
            .map_err(|_| exhausted())
    }

    /// Makes an inactive persistent receive of structured data.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_receive_structured(
        &mut self,
        source: Source,
        data: Structured,
    ) -> Result<RequestId, Error> {
        let (request, _) = self
            .engine
            .start_receive(scattered(source, &data), true)
            .map_err(|_| exhausted())?;
        self.keep_structured(request, data);
        Ok(request)
    }

    /// Starts an inactive persistent receive.
    pub fn restart_receive(&mut self, request: RequestId) {
        if let Some(output) = self.engine.restart_receive(request) {
            self.carry_out(output);
        }
    }
}
