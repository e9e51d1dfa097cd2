// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory a process may lock, which InfiniBand and RoCE devices need: for the transport, which registers memory,
//! and for `rmpiexec`, which reports hosts whose limit is too small.
//!
//! **Knows** the limit of a process, the memory it has pinned for devices, and which processes are exempt from the
//! limit.
//! **Never** locks memory or changes a limit: it only reads files of `/proc`.

/// The locked-memory limit of this process, and the part of it that is used by devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedMemory {
    /// `None`: unlimited.
    pub limit_bytes: Option<u64>,
    /// Memory pinned for devices.
    pub used_bytes: u64,
}

impl LockedMemory {
    /// The current values.
    #[must_use]
    pub fn now() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        Self::read(
            &read("/proc/self/limits"),
            &read("/proc/self/status"),
            &read("/proc/self/uid_map"),
        )
    }

    /// Parses the contents of these files of `/proc/self`.
    #[must_use]
    pub fn read(limits: &str, status: &str, users: &str) -> Self {
        let limit = limits.lines().find_map(|line| {
            let words = line.strip_prefix("Max locked memory")?;
            words.split_ascii_whitespace().next()
        });
        let limit = limit.filter(|_| !is_exempt(status, users));
        let used = first_word(status, "VmPin:").and_then(|word| word.parse::<u64>().ok());
        Self {
            limit_bytes: limit.and_then(|limit| limit.parse().ok()),
            used_bytes: used.unwrap_or(0).saturating_mul(1024),
        }
    }

    /// The smallest limit with which `bytes` more can be registered, if the current one is too small.
    #[must_use]
    pub fn needed(self, bytes: u64) -> Option<u64> {
        let needed = self.used_bytes.saturating_add(bytes);
        self.limit_bytes.filter(|limit| *limit < needed)?;
        Some(needed)
    }
}

/// Whether the limit does not apply to a process: it has `CAP_IPC_LOCK` in the initial user namespace; the kernel
/// ignores the capability in other ones.
fn is_exempt(status: &str, users: &str) -> bool {
    const IPC_LOCK: u32 = 14;
    let rights = first_word(status, "CapEff:").and_then(|word| u64::from_str_radix(word, 16).ok());
    let has_all_users = users.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    has_all_users && rights.is_some_and(|rights| rights >> IPC_LOCK & 1 != 0)
}

fn first_word<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit    Soft Limit   Hard Limit  Units\n\
                          Max locked memory         8388608              8388608              bytes     \n";

    #[test]
    fn the_limit_and_what_is_locked_are_read() {
        let memory = LockedMemory::read(LIMITS, "VmLck:\t 0 kB\nVmPin:\t    8000 kB\n", "");
        assert_eq!(memory.limit_bytes, Some(8 << 20));
        assert_eq!(memory.used_bytes, 8000 << 10);
        assert_eq!(memory.needed(100 << 10), None);
        assert_eq!(memory.needed(1 << 20), Some((8000 << 10) + (1 << 20)));
        let unlimited = LockedMemory::read("Max locked memory unlimited unlimited bytes\n", "", "");
        assert_eq!(unlimited.limit_bytes, None);
        assert_eq!(unlimited.needed(u64::MAX), None);
    }

    #[test]
    fn limits_do_not_hold_for_whoever_may_lock_all_memory() {
        let limit = |status: &str, users| LockedMemory::read(LIMITS, status, users).limit_bytes;
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\nThreads:\t1\n";
        let (all, some) = ("         0          0 4294967295\n", Some(8 << 20));
        assert_eq!(limit(root, all), None);
        assert_eq!(limit(root, "0 1000 1\n"), some, "root only in a container");
        assert_eq!(limit("CapEff:\t000001ffffffbfff\n", all), some);
        assert_eq!(limit("CapEff:\t0000000000000000\n", all), some);
        assert_eq!(limit("", ""), some);
    }

    #[test]
    fn this_process_has_a_limit_or_none() {
        let memory = LockedMemory::now();
        assert!(memory.limit_bytes.is_none_or(|limit| limit < 1 << 62));
    }
}
