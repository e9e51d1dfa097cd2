// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads how much memory a process may lock: registered memory of InfiniBand and RoCE devices counts against that
//! limit. The transport uses this when it registers memory, and `rmpiexec` to report hosts whose limit is too small.
//!
//! **Knows** the limit of a process, the memory it has pinned for devices, and which processes are exempt from the
//! limit.
//! **Never** locks memory or changes a limit: it only reads files of `/proc`.

/// The locked-memory limit of a process, and the memory that counts against it because devices use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedMemory {
    /// The limit in bytes; `None`: the process has no limit, is exempt from it, or the limit cannot be read.
    pub limit_bytes: Option<u64>,
    /// Memory pinned for devices, in bytes.
    pub used_bytes: u64,
}

impl LockedMemory {
    /// The current values of this process.
    #[must_use]
    pub fn now() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        Self::read(
            &read("/proc/self/limits"),
            &read("/proc/self/status"),
            &read("/proc/self/uid_map"),
        )
    }

    /// Parses the contents of three files of `/proc/self`: `limits`, `status` and `uid_map` (`users`).
    #[must_use]
    pub fn read(limits: &str, status: &str, users: &str) -> Self {
        let limit = limits.lines().find_map(|line| {
            let rest = line.strip_prefix("Max locked memory")?;
            rest.split_ascii_whitespace().next()
        });
        let limit = limit.filter(|_| !is_exempt(status, users));
        let used = first_field(status, "VmPin:").and_then(|field| field.parse::<u64>().ok());
        Self {
            limit_bytes: limit.and_then(|limit| limit.parse().ok()),
            used_bytes: used.unwrap_or(0).saturating_mul(1024),
        }
    }

    /// The smallest limit in bytes with which `bytes` more can be registered; `None`: the current limit suffices.
    #[must_use]
    pub fn needed(self, bytes: u64) -> Option<u64> {
        let needed = self.used_bytes.saturating_add(bytes);
        self.limit_bytes.filter(|limit| *limit < needed)?;
        Some(needed)
    }
}

/// Whether the limit does not apply to a process: it has `CAP_IPC_LOCK` in the initial user namespace. In other
/// namespaces the kernel ignores that capability.
fn is_exempt(status: &str, users: &str) -> bool {
    const IPC_LOCK: u32 = 14;
    let rights =
        first_field(status, "CapEff:").and_then(|field| u64::from_str_radix(field, 16).ok());
    let has_all_users = users.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    has_all_users && rights.is_some_and(|rights| rights >> IPC_LOCK & 1 != 0)
}

fn first_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit    Soft Limit   Hard Limit  Units\n\
                          Max locked memory         8388608              8388608              bytes     \n";

    #[test]
    fn memlock_limit_and_usage_are_parsed() {
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
    fn memlock_limit_does_not_apply_with_cap_ipc_lock() {
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
    fn memlock_limit_of_this_process_is_readable() {
        let memory = LockedMemory::now();
        assert!(memory.limit_bytes.is_none_or(|limit| limit < 1 << 62));
    }
}
