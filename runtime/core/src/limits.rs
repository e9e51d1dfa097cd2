// SPDX-License-Identifier: MIT OR Apache-2.0
//! Up to which sizes messages go in which way, as the settings say and a tool may change them.

use engine::Engine;

use crate::EngineConfig;
use crate::var::live::live;
use crate::var::{Variable, VariableValues};

/// The sizes by which a send chooses its protocol.
#[derive(Debug)]
pub(crate) struct SendLimits {
    eager_bytes: u64,
    /// Sends of fewer bytes than this may go without a request.
    at_once_below_bytes: u64,
    /// Words go no faster than others, since the limit is below theirs.
    guards_words: bool,
    /// Bytes of a frame at most, as the transport takes them.
    most_bytes: u64,
}

impl SendLimits {
    /// As the engine has them.
    pub(crate) fn of(config: &EngineConfig, most_bytes: u64) -> Self {
        Self {
            eager_bytes: config.eager_limit_bytes,
            at_once_below_bytes: config.eager_limit_bytes.saturating_add(1),
            guards_words: false,
            most_bytes,
        }
    }

    /// Whether so many bytes go in a frame with their envelope.
    #[inline]
    pub(crate) fn is_eager(&self, bytes: u64) -> bool {
        bytes <= self.eager_bytes
    }

    /// Whether a send of so many bytes may go without a request.
    #[inline(always)]
    pub(crate) fn sends_at_once(&self, bytes: u64) -> bool {
        bytes < self.at_once_below_bytes
    }

    /// From now on every send has a request.
    pub(crate) fn keep_sends(&mut self) {
        self.at_once_below_bytes = 0;
    }

    /// Takes over what a tool has written.
    pub(crate) fn renew(&mut self, engine: &mut Engine) {
        let eager = live(Variable::EagerLimit).min(self.most_bytes);
        let early = early_limit(eager, live(Variable::EarlyLimit));
        engine.set_limits(eager, early, live(Variable::UnexpectedBudget));
        self.eager_bytes = eager;
        if self.at_once_below_bytes != 0 {
            self.at_once_below_bytes = eager.saturating_add(1);
        }
        // The fast path of words asks for no limit.
        let guards = eager < WORD_BYTES;
        if self.guards_words != guards {
            self.guards_words = guards;
            engine.guard_sends(guards);
        }
    }
}

/// What the engine is told of the settings, where a frame takes so many bytes at most.
pub(crate) fn engine_config(values: &VariableValues, most_bytes: u64) -> EngineConfig {
    let eager_limit_bytes = values.get(Variable::EagerLimit).min(most_bytes);
    EngineConfig {
        eager_limit_bytes,
        early_limit_bytes: early_limit(eager_limit_bytes, values.get(Variable::EarlyLimit)),
        unexpected_budget_bytes: values.get(Variable::UnexpectedBudget),
        stream_chunk_bytes: values.get(Variable::StreamChunk).min(most_bytes),
        unexpected_messages: values.get(Variable::UnexpectedMessages),
        release_percent: values.get(Variable::UnexpectedRelease),
        most_records: usize::try_from(values.get(Variable::EventRecords)).unwrap_or(1024),
    }
}

/// Who wants every message announced means also those that would go at once in several frames.
fn early_limit(eager_limit_bytes: u64, wanted: u64) -> u64 {
    if eager_limit_bytes == 0 { 0 } else { wanted }
}

/// What the fast path carries at most.
const WORD_BYTES: u64 = 8;
