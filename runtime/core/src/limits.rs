// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message sizes at which the protocol of a send changes. They come from the settings, and a tool may change them.

use engine::Engine;

use crate::EngineConfig;
use crate::var::live::live;
use crate::var::{Variable, VariableValues};

/// The sizes by which a send selects its protocol.
#[derive(Debug)]
pub(crate) struct SendLimits {
    eager_bytes: u64,
    /// Sends of fewer bytes than this may start without a request.
    at_once_below_bytes: u64,
    /// Whether the fast path of eight-byte messages is off, because the eager limit is below eight bytes.
    guards_words: bool,
    /// Largest number of bytes in a frame of the transport.
    most_bytes: u64,
}

impl SendLimits {
    /// The sizes by the limits in `config`, for frames of at most `most_bytes` bytes.
    pub(crate) fn of(config: &EngineConfig, most_bytes: u64) -> Self {
        Self {
            eager_bytes: config.eager_limit_bytes,
            at_once_below_bytes: config.eager_limit_bytes.saturating_add(1),
            guards_words: false,
            most_bytes,
        }
    }

    /// Whether a message of `bytes` bytes is sent in one frame with its envelope.
    #[inline]
    pub(crate) fn is_eager(&self, bytes: u64) -> bool {
        bytes <= self.eager_bytes
    }

    /// Whether a send of `bytes` bytes may start without a request.
    #[inline(always)]
    pub(crate) fn sends_at_once(&self, bytes: u64) -> bool {
        bytes < self.at_once_below_bytes
    }

    /// Gives every send a request from now on.
    pub(crate) fn keep_sends(&mut self) {
        self.at_once_below_bytes = 0;
    }

    /// Applies the values that a tool has written.
    pub(crate) fn renew(&mut self, engine: &mut Engine) {
        let eager = live(Variable::EagerLimit).min(self.most_bytes);
        let early = early_limit(eager, live(Variable::EarlyLimit));
        engine.set_limits(eager, early, live(Variable::UnexpectedBudget));
        self.eager_bytes = eager;
        if self.at_once_below_bytes != 0 {
            self.at_once_below_bytes = eager.saturating_add(1);
        }
        // The fast path of eight-byte messages compares no sizes. It is off while the eager limit is below eight bytes.
        let guards = eager < WORD_BYTES;
        if self.guards_words != guards {
            self.guards_words = guards;
            engine.guard_sends(guards);
        }
    }
}

/// The engine's limits from the settings, for frames of at most `most_bytes` bytes.
pub(crate) fn engine_config(values: &VariableValues, most_bytes: u64) -> EngineConfig {
    let eager_limit_bytes = values.get(Variable::EagerLimit).min(most_bytes);
    EngineConfig {
        eager_limit_bytes,
        early_limit_bytes: early_limit(eager_limit_bytes, values.get(Variable::EarlyLimit)),
        unexpected_budget_bytes: values.get(Variable::UnexpectedBudget),
        stream_chunk_bytes: values.get(Variable::StreamChunk).min(most_bytes),
        unexpected_messages: values.get(Variable::UnexpectedMessages),
        release_percent: values.get(Variable::UnexpectedRelease),
        max_records: usize::try_from(values.get(Variable::EventRecords)).unwrap_or(1024),
    }
}

/// The early limit: the size up to which large messages are sent without waiting for a CTS. It is `wanted`, but 0 if
/// the eager limit is 0: with that setting every message is announced with an RTS and waits.
fn early_limit(eager_limit_bytes: u64, wanted: u64) -> u64 {
    if eager_limit_bytes == 0 { 0 } else { wanted }
}

/// Number of bytes of a message on the fast path of eight-byte messages.
const WORD_BYTES: u64 = 8;
