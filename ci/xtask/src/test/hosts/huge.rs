// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserves huge pages for a check.

use std::fs;

/// Huge pages that are reserved until this value is dropped.
pub(super) struct Pages {
    before: u64,
}

impl Pages {
    /// Reserves [`PAGES`] huge pages in addition to those that are already reserved.
    ///
    /// # Errors
    /// If the system does not provide them.
    pub(super) fn reserve() -> Result<Self, String> {
        let before = number()?;
        let needed = before + PAGES;
        fs::write(FILE, needed.to_string()).map_err(|why| format!("{FILE}: {why}"))?;
        let pages = Self { before };
        match number()? {
            now if now >= needed => Ok(pages),
            now => Err(format!("of {needed} huge pages the system has {now}")),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // If pages are still in use, the kernel releases them when they become free.
        _ = fs::write(FILE, self.before.to_string());
    }
}

fn number() -> Result<u64, String> {
    let text = fs::read_to_string(FILE).map_err(|why| format!("{FILE}: {why}"))?;
    let number = text.trim().parse();
    number.map_err(|why| format!("{FILE}: {why}"))
}

const FILE: &str = "/proc/sys/vm/nr_hugepages";
/// The number of additional pages of 2 MiB: enough for two processes.
const PAGES: u64 = 256;
