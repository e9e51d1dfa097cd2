// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects lost completions. Whatever happens on the path, the timeouts and retry limits of a queue pair lead to a
//! completion, so posted requests have no further timer here. But Soft-RoCE can lose its timer when a link goes down at
//! the wrong moment, and then waits forever. A queue pair without a completion for longer than all its limits allow is
//! broken here, as its device should have done.

use super::posted::PostedRequests;

/// Detects that the completions of a queue pair have stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompletionWatch {
    /// The last value of [`PostedRequests::progress`]; `since_ns` is the time since which it has not changed.
    progress: (u32, bool),
    since_ns: u64,
}

impl CompletionWatch {
    /// Whether a completion is overdue; records the present progress. `timeout_exp`: the queue pair's acknowledgement
    /// timeout, as an exponent.
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

/// Longest wait for an answer in nanoseconds, with a timeout exponent of 0 (4.096 µs): a queue pair sends a packet at
/// most eight times, and may wait four times its timeout each time.
const MOST_ANSWERS: u64 = 8 * 4 * 4_096;
/// Extra time for peers without buffers and slow devices.
const GRACE_NS: u64 = 5_000_000_000;
/// Maximum time per byte, in nanoseconds: that of a network of 10 MB/s. Any supported network is faster.
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
    fn a_device_is_late_without_completions_for_long() {
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
        assert!(!watch.is_late(&requests, 14, 209 * SECOND), "completed");
        assert!(watch.is_late(&requests, 14, 217 * SECOND));
    }

    #[test]
    fn a_device_is_not_late_with_a_new_request() {
        let (mut watch, mut requests) = (CompletionWatch::default(), PostedRequests::default());
        requests.push(PART, false);
        assert!(!watch.is_late(&requests, 14, 0));
        assert!(
            !watch.is_late(&requests, 14, 8 * SECOND),
            "no completion requested"
        );
        requests.push(PART, true);
        assert!(!watch.is_late(&requests, 14, 9 * SECOND));
    }

    #[test]
    fn more_bytes_in_flight_allow_more_time() {
        let (mut watch, mut requests) = (CompletionWatch::default(), PostedRequests::default());
        for _ in 0..256 {
            requests.push(PART, true);
        }
        assert!(!watch.is_late(&requests, 14, 0));
        assert!(!watch.is_late(&requests, 14, 30 * SECOND));
        assert!(watch.is_late(&requests, 14, 40 * SECOND));
    }
}
