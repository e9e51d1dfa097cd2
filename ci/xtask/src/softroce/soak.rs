// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask softroce --soak MINUTES` and the stage `soak`: what `ci/softroce/soak` needs, and its command line.

use super::guest::Guest;
use super::programs;
use crate::tree::root;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Builds the programs and returns the command that runs for `time`. Without a seed, it uses a new one.
pub(crate) fn command_line(
    prefix: &Path,
    time: Duration,
    seed: Option<u64>,
) -> Result<Vec<String>, String> {
    programs::compile(prefix, "ci/ranks/stress.c")?;
    let [conformance, channels] = programs::conformance()?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(vec![
        "sh".into(),
        text(&root().join("ci/softroce/soak")),
        text(&prefix.join("bin/rmpiexec")),
        text(&programs::folder()?),
        text(&conformance),
        text(&channels),
        time.as_secs().to_string(),
        seed.unwrap_or_else(new_seed).to_string(),
    ])
}

/// A guest whose limit is long enough for a soak of `time` and a last run that begins shortly before `time` is over.
pub(crate) fn guest(guest: Guest, time: Duration) -> Guest {
    guest.limit(time + Duration::from_secs(1500))
}

/// A seed that changes each second; it is printed with every run.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() % 1_000_000_000)
}
