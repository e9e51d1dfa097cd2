// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `softroce`: boots a virtual machine for `ci/softroce/checks`, then two connected machines for
//! `ci/softroce/between`, then one with network cards for DPDK for `ci/softroce/cards`.

use super::{Context, Tally, cargo_tests, compiling};
use crate::process::seconds;
use crate::softroce::{Guest, GuestEnd, GuestOutcome, programs, soak};
use crate::tree::{cargo, make_folder, root};
use std::fs;
use std::path::Path;
use std::time::Duration;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    in_guests(tally, context, "AT_LENGTH=", LIMIT)
}

/// Runs the checks in guests. `how` is `AT_LENGTH=1` for all of them, `AT_LENGTH=` for the most important ones.
fn in_guests(
    tally: &mut Tally,
    context: &mut Context,
    how: &str,
    limit: Duration,
) -> Result<(), String> {
    let folder = programs::folder()?;
    let share = folder.join("share");
    make_folder(&share)?;
    let written = share.join(WRITTEN);
    let _ = fs::remove_file(&written);
    let prefix = context.prefix()?;
    compile(&prefix)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let script = |name: &str| text(&root().join("ci/softroce").join(name));
    let (rmpiexec, programs) = (text(&prefix.join("bin/rmpiexec")), text(&folder));
    let [transport, channels] = programs::conformance()?.map(|suite| text(&suite));
    let tests = text(&programs::tests_of("transport", &["--lib"])?);
    layout(tally)?;
    let guest = Guest::new()
        .kernel(context.kernel.unwrap_or_default())
        .limit(limit);
    let args = [
        "env",
        how,
        "sh",
        &script("checks"),
        &rmpiexec,
        &programs,
        &tests,
        &transport,
        &channels,
    ];
    let outcome = guest.clone().share(&share).run(&args)?;
    record(tally, "one guest", &outcome);
    tally.check("the guest writes to its share and to nothing else", || {
        let outside = Path::new("/etc").join(WRITTEN);
        match (written.exists(), outside.exists()) {
            (true, false) => Ok(()),
            (false, _) => Err(format!("{} was not written", written.display())),
            (true, true) => Err(format!("the guest wrote {}", outside.display())),
        }
    });
    let args = [
        "env",
        how,
        "sh",
        &script("between"),
        &rmpiexec,
        &programs,
        &transport,
        &channels,
    ];
    // Packets are larger here than in the check with one guest, so that both sizes are tested.
    let outcome = guest.clone().mtu(4200).run_beside(&args)?;
    record(tally, "two guests", &outcome);
    with_cards(tally, guest, [&rmpiexec, &programs], &prefix)
}

/// Compiles the C programs that run in the guests.
fn compile(prefix: &Path) -> Result<(), String> {
    let sources: Vec<String> = RANKS
        .iter()
        .map(|name| format!("ci/ranks/{name}.c"))
        .collect();
    let sources = sources.iter().map(String::as_str);
    let sources = sources.chain(OTHERS).collect();
    let broken = compiling::all(&sources, |source| programs::compile(prefix, source))?;
    match broken.first() {
        Some((program, why)) => Err(format!("{program} cannot be compiled: {why}")),
        None => Ok(()),
    }
}

/// Boots a guest whose network cards DPDK drives.
fn with_cards(
    tally: &mut Tally,
    guest: Guest,
    [rmpiexec, programs]: [&str; 2],
    prefix: &Path,
) -> Result<(), String> {
    if prefix.join("lib/rmpi/librmpi_dpdk.so").exists() {
        let script = root().join("ci/softroce/cards");
        let args = ["sh", &*script.to_string_lossy(), rmpiexec, programs];
        let outcome = guest.cards().memory(2048).run(&args)?;
        record(tally, "a guest with cards", &outcome);
    } else {
        let why = "DPDK is not installed".to_owned();
        tally.expected.push(("cards under DPDK".into(), why));
    }
    Ok(())
}

/// Records the checks of one boot.
fn record(tally: &mut Tally, who: &str, outcome: &GuestOutcome) {
    println!("  {who}, all of it ({})", seconds(outcome.wall));
    for check in checks(&outcome.stdout) {
        let result = if check.passed {
            Ok(())
        } else {
            Err(format!("{}{}", check.printed, outcome.stderr))
        };
        tally.record(check.name, result, check.time);
    }
    tally.check(&format!("the command's code arrives from {who}"), || {
        code(outcome)
    });
}

/// Stage `soak`: one hour of the traffic on a simulated network of which the stage `unit` runs some seconds; the
/// conformance suites with all seeds, of which `unit` runs a third; simulated jobs of 10,000 hosts whose ranks have
/// many peers; for the engine of RoCE, 10 GiB over a lossy link, 100 million modified packets, and a check of each
/// opcode by Wireshark; all checks in guests, of which the stage `softroce` runs the most important; and ten minutes of
/// random traffic in a guest.
pub(crate) fn soak(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let mut simulated = cargo();
    simulated
        .args(["test", "--quiet", "--release", "--package", "testbed"])
        .args(["--test", "soak", "--", "--nocapture"])
        .env("RMPI_TEST_SIMULATED_SECONDS", "3600");
    cargo_tests::run(tally, "an hour on a simulated network", simulated)?;
    let mut suites = cargo();
    suites
        .args(["test", "--quiet", "--release", "--test", "conformance"])
        .args(["--package", "testbed", "--package", "channel"])
        .env("RMPI_TEST_AT_LENGTH", "1");
    cargo_tests::run(tally, "the conformance suites with all seeds", suites)?;
    let mut scale = cargo();
    scale
        .args(["test", "--quiet", "--release", "--package", "launcher"])
        .args(["--lib", "tests::scale", "--", "--ignored"]);
    cargo_tests::run(tally, "jobs of 640,000 ranks with many peers", scale)?;
    let mut roce = cargo();
    roce.args(["test", "--quiet", "--release", "--package", "roce"])
        .args(["--test", "lossy", "--test", "hostile", "--test", "tshark"])
        .args(["--", "--ignored", "--nocapture"]);
    cargo_tests::run(
        tally,
        "RoCE over a bad link, changed packets, and Wireshark's verdict",
        roce,
    )?;
    in_guests(tally, context, "AT_LENGTH=1", LONG_LIMIT)?;
    let command = soak::command_line(&context.prefix()?, SOAK, None)?;
    let guest = Guest::new().kernel(context.kernel.unwrap_or_default());
    let outcome = soak::guest(guest, SOAK).run(&command)?;
    let last = outcome.stdout.lines().last().unwrap_or_default();
    println!("  {last}");
    let result = if outcome.end == GuestEnd::Code(0) {
        Ok(())
    } else {
        let (out, err) = (&outcome.stdout, &outcome.stderr);
        Err(format!("{}\n{out}{err}", outcome.ending()))
    };
    tally.record(
        "random traffic with loss and reordering",
        result,
        outcome.wall,
    );
    Ok(())
}

/// Compares the bindings of the crate `verbs-sys` with rdma-core's header.
fn layout(tally: &mut Tally) -> Result<(), String> {
    let mut cargo = cargo();
    cargo
        .args([
            "test",
            "--quiet",
            "--package",
            "verbs-sys",
            "--test",
            "layout",
        ])
        .args(["--", "--include-ignored"])
        .env("RMPI_VERBS_INCLUDE", Guest::new().include()?);
    cargo_tests::run(
        tally,
        "the bindings of rdma-core, against its header",
        cargo,
    )
}

/// A check inside the guest.
struct Check<'a> {
    name: &'a str,
    passed: bool,
    time: Duration,
    printed: String,
}

/// Parses the output of a script: for each check a line `== NAME`, the output of the check, and `== ok 123` or `==
/// failed 123` (hundredths of a second). A check without its last line has failed.
fn checks(output: &str) -> Vec<Check<'_>> {
    let mut all: Vec<Check<'_>> = Vec::new();
    for line in output.lines() {
        let Some(text) = line.strip_prefix("== ") else {
            if let Some(check) = all.last_mut() {
                check.printed += &format!("{line}\n");
            }
            continue;
        };
        match (verdict(text), all.last_mut()) {
            (Some((passed, time)), Some(check)) => (check.passed, check.time) = (passed, time),
            _ => all.push(Check {
                name: text,
                passed: false,
                time: Duration::ZERO,
                printed: String::new(),
            }),
        }
    }
    all
}

fn verdict(text: &str) -> Option<(bool, Duration)> {
    let (result, time) = text.split_once(' ')?;
    let time = Duration::from_millis(10 * time.parse::<u64>().ok()?);
    ["ok", "failed"]
        .contains(&result)
        .then_some((result == "ok", time))
}

/// An error unless the code is 7: the script's last line is `exit 7`.
fn code(outcome: &GuestOutcome) -> Result<(), String> {
    if outcome.end == GuestEnd::Code(7) {
        return Ok(());
    }
    let (end, stderr) = (outcome.ending(), &outcome.stderr);
    Err(format!("expected the code 7, the command {end}\n{stderr}"))
}

/// The file that the guest creates, in two folders.
const WRITTEN: &str = "softroce-was-here";
/// The limit for a guest: a busy machine emulates several times slower.
const LIMIT: Duration = Duration::from_secs(1200);
/// The limit for a guest with all checks, with 10 GiB over a lossy link.
const LONG_LIMIT: Duration = Duration::from_secs(7200);
/// Programs of the stage `ranks` that run in guests.
const RANKS: [&str; 23] = [
    "cancel",
    "channel",
    "coll_data",
    "coll_ops",
    "coll_random",
    "coll_scan",
    "coll_v",
    "coll_ways",
    "comm_idup",
    "comm_lanes",
    "comm_make",
    "faults/victim",
    "intercomm",
    "keep_going",
    "mprobe",
    "neighbours",
    "nonblocking",
    "order",
    "persistent",
    "send_modes",
    "sendrecv",
    "stress",
    "wildcards",
];
/// Programs from other folders.
const OTHERS: [&str; 7] = [
    "ci/hosts/bulk.c",
    "ci/hosts/computes.c",
    "ci/demo/hello.c",
    "ci/hosts/far.c",
    "mqs/examples/receive_first.c",
    "qmp/examples/qmp_halo.c",
    "qmp/tests/ranks/qmp_messages.c",
];
const SOAK: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_failed_or_never_ended_is_seen() {
        let output =
            "noise\n== one\n12 packets\n== ok 123\n== two 2\nwhy\n== failed 0\n== three\nhung\n";
        let found = checks(output);
        let seen: Vec<_> = found
            .iter()
            .map(|check| {
                let time = check.time.as_millis();
                (check.name, check.passed, time, check.printed.as_str())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("one", true, 1230, "12 packets\n"),
                ("two 2", false, 0, "why\n"),
                ("three", false, 0, "hung\n")
            ]
        );
    }

    #[test]
    fn any_other_end_is_no_code() {
        let outcome = |end| GuestOutcome {
            end,
            stdout: String::new(),
            stderr: "words".into(),
            wall: LIMIT,
        };
        assert_eq!(code(&outcome(GuestEnd::Code(7))), Ok(()));
        let why = code(&outcome(GuestEnd::Code(0))).unwrap_err();
        assert!(why.contains("ended with code 0\nwords"), "{why}");
        let why = code(&outcome(GuestEnd::TimedOut)).unwrap_err();
        assert!(why.contains("was stopped after 20 min 00 s"), "{why}");
    }
}
