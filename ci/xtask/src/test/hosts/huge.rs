// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages for a check, as far as the system can spare them.

use std::fs;

/// Pages that are reserved until this is dropped.
pub(super) struct Pages {
    before: u64,
}

impl Pages {
    /// Reserves [`WANTED`] more.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) fn reserve() -> Result<Self, String> {
        let before = number()?;
        let wanted = before + WANTED;
        fs::write(FILE, wanted.to_string()).map_err(|why| format!("{FILE}: {why}"))?;
        let pages = Self { before };
        match number()? {
            now if now >= wanted => Ok(pages),
            now => Err(format!("of {wanted} huge pages the system has {now}")),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // What is still used goes back when it is free.
        _ = fs::write(FILE, self.before.to_string());
    }
}

fn number() -> Result<u64, String> {
    let text = fs::read_to_string(FILE).map_err(|why| format!("{FILE}: {why}"))?;
    let number = text.trim().parse();
    number.map_err(|why| format!("{FILE}: {why}"))
}

const FILE: &str = "/proc/sys/vm/nr_hugepages";
/// Of 2 MiB, for two processes.
const WANTED: u64 = 256;
