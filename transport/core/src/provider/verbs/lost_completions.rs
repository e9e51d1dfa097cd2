// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lost completions. A queue pair's own timeouts and retry limits end in a completion whatever happens on the path, so
//! posted requests have no further timer here. But Soft-RoCE can lose its timer when a link goes down at the wrong
//! moment, and then waits forever. A queue pair without a completion for longer than all its limits allow is broken
//! here, as its device should have done.

use super::posted::PostedRequests;

/// Detects that the completions of a queue pair have stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompletionWatch {
    /// [`PostedRequests::progress`], and the time since which it has had this value.
    progress: (u32, bool),
    since_ns: u64,
}

impl CompletionWatch {
    /// Whether a completion is overdue. `timeout_exp`: the queue pair's acknowledgement timeout, as an exponent.
    pub(super) fn is_late(
        &mut self,
        requests: &PostedRequests,
        timeout_exp: u8,
        now_ns: u64,
    ) -> bool {
        let progress = requests.progress();
        if !progress.1 || progress != self.progress {
            *self = Self {
                progress,
                since_ns: now_ns,
            };
            return false;
        }
        let waited_ns = now_ns.saturating_sub(self.since_ns);
        let limit_ns = GRACE_NS + (MOST_ANSWERS << timeout_exp);
        waited_ns > limit_ns && waited_ns > limit_ns + NS_OF_BYTE * requests.bytes()
    }
}

/// A queue pair sends a packet at most eight times, and may wait four times its timeout each time; the timeout is a
/// power of two times 4.096 µs.
const MOST_ANSWERS: u64 = 8 * 4 * 4_096;
/// Extra time for peers without buffers and slow devices.
const GRACE_NS: u64 = 5_000_000_000;
/// A network of 10 MB/s is slower than any supported one.
const NS_OF_BYTE: u64 = 100;

#[cfg(test)]
mod tests {
    use super::super::posted::PostedRequest;
    use super::*;

    const PART: PostedRequest = PostedRequest::Part {
        work: 0,
        bytes: 1 << 20,
        unproven: false,
    };
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_device_is_late_when_nothing_was_told_for_long() {
        let (mut watch, mut requests) = (CompletionWatch::default(), PostedRequests::default());
        assert!(
            !watch.is_late(&requests, 14, 100 * SECOND),
            "nothing posted"
        );
        requests.push(PART, true);
        assert!(!watch.is_late(&requests, 14, 200 * SECOND), "just seen");
        assert!(!watch.is_late(&requests, 14, 205 * SECOND));
        assert!(watch.is_late(&requests, 14, 208 * SECOND));
        assert!(!watch.is_late(&requests, 18, 208 * SECOND), "more patience");
        requests.push(PART, true);
        assert!(watch.is_late(&requests, 14, 208 * SECOND), "all the same");
        assert!(requests.ended(0).is_some());
        assert!(!watch.is_late(&requests, 14, 209 * SECOND), "told");
        assert!(watch.is_late(&requests, 14, 217 * SECOND));
    }

    #[test]
    fn nobody_is_late_with_what_was_just_asked_for() {
        let (mut watch, mut requests) = (CompletionWatch::default(), PostedRequests::default());
        requests.push(PART, false);
        assert!(!watch.is_late(&requests, 14, 0));
        assert!(!watch.is_late(&requests, 14, 8 * SECOND), "not asked for");
        requests.push(PART, true);
        assert!(!watch.is_late(&requests, 14, 9 * SECOND));
    }

    #[test]
    fn what_is_large_takes_its_time() {
        let (mut watch, mut requests) = (CompletionWatch::default(), PostedRequests::default());
        for _ in 0..256 {
            requests.push(PART, true);
        }
        assert!(!watch.is_late(&requests, 14, 0));
        assert!(!watch.is_late(&requests, 14, 30 * SECOND));
        assert!(watch.is_late(&requests, 14, 40 * SECOND));
    }
}
