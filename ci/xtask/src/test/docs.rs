// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `docs`: runs every command of README and of the pages in `docs/`, and compares the output with that on the
//! page.

use super::{Context, Tally};
use crate::process::quiet;
use crate::tree::{command, root};
use std::time::Duration;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    let mut pages = command(root().join("docs/run-commands"));
    pages.arg(&prefix);
    match quiet(pages, Duration::from_secs(1800)) {
        Ok(output) => tally.add(passed(&output)?, Vec::new()),
        Err(why) => tally.check("the commands of the pages", || Err(why)),
    }
    Ok(())
}

/// The count in the last line, `docs: N passed, 0 failed`.
fn passed(output: &str) -> Result<usize, String> {
    let last = output.lines().last().unwrap_or_default();
    let count = last
        .strip_prefix("docs: ")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(count, _)| count.parse().ok());
    count.ok_or_else(|| format!("docs/run-commands ended with `{last}`, expected its count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_the_last_line() {
        assert_eq!(passed("x\ndocs: 112 passed, 0 failed"), Ok(112));
        assert!(passed("nothing").is_err());
    }
}
