// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI's examples, from the distribution's source package: a token around the ring, and a message between each two
//! ranks.

use super::launch::launch;
use super::{Tally, sources};
use crate::process::quiet;
use crate::tree::{command, make_folder};
use std::path::Path;
use std::time::Duration;

/// An example, and the text that it prints on success.
struct Example {
    name: &'static str,
    prints: fn(u32) -> String,
    /// Whether each rank prints the text; otherwise it is printed once.
    each: bool,
}

const EXAMPLES: &[Example] = &[
    Example {
        name: "hello_c",
        prints: |ranks| format!(" of {ranks}, (rmpi "),
        each: true,
    },
    Example {
        name: "ring_c",
        prints: |_| " exiting".into(),
        each: true,
    },
    Example {
        name: "connectivity_c",
        prints: |ranks| format!("Connectivity test on {ranks} processes PASSED."),
        each: false,
    },
];

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let folder = sources::fetch("openmpi", &["*/examples/*"])?;
    let build = folder.join("build");
    make_folder(&build)?;
    for example in EXAMPLES {
        let program = build.join(example.name);
        let mut compiler = command(prefix.join("bin/rmpicc"));
        compiler.args(["-O2", "-o"]).arg(&program);
        compiler.arg(folder.join(format!("examples/{}.c", example.name)));
        let built = quiet(compiler, Duration::from_secs(300));
        for ranks in [4, 64] {
            tally.check(
                &format!("openmpi/examples/{} -n {ranks}", example.name),
                || {
                    built.clone()?;
                    let limit = Duration::from_secs(300);
                    let done = launch(prefix, ranks, &build, limit, |job| {
                        job.arg(&program);
                    })?;
                    example.judge(ranks, &done.stdout)
                },
            );
        }
    }
    Ok(())
}

impl Example {
    fn judge(&self, ranks: u32, output: &str) -> Result<(), String> {
        let (expected, prints) = (if self.each { ranks } else { 1 }, (self.prints)(ranks));
        let found = output.lines().filter(|line| line.contains(&prints)).count();
        if found == expected as usize {
            return Ok(());
        }
        Err(format!(
            "expected {expected} lines with `{prints}`, got {found}:\n{output}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_without_output_is_noticed() {
        let ring = &EXAMPLES[1];
        assert!(
            ring.judge(2, "Process 0 exiting\nProcess 1 exiting\n")
                .is_ok()
        );
        assert!(ring.judge(2, "Process 0 exiting\n").is_err());
    }

    #[test]
    fn ranks_that_ran_by_themselves_are_noticed() {
        let alone = "Hello, world, I am 0 of 1, (rmpi 0.1.0, 10)\n".repeat(2);
        assert!(EXAMPLES[0].judge(2, &alone).is_err());
    }
}
