// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `softroce`: one boot of the virtual machine, and `ci/softroce/checks` in it; then two machines on one wire, and
//! `ci/softroce/between`; then one with network cards for DPDK, and `ci/softroce/cards`.

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

/// What is tried in guests; with `AT_LENGTH=1` all of it.
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
    let words = [
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
    let outcome = guest.clone().share(&share).run(&words)?;
    told(tally, "one guest", &outcome);
    tally.check("the guest writes to its share and to nothing else", || {
        let outside = Path::new("/etc").join(WRITTEN);
        match (written.exists(), outside.exists()) {
            (true, false) => Ok(()),
            (false, _) => Err(format!("{} was not written", written.display())),
            (true, true) => Err(format!("the guest wrote {}", outside.display())),
        }
    });
    let words = [
        "env",
        how,
        "sh",
        &script("between"),
        &rmpiexec,
        &programs,
        &transport,
        &channels,
    ];
    // Larger packets than one guest has: both sizes are tried.
    let outcome = guest.clone().mtu(4200).run_beside(&words)?;
    told(tally, "two guests", &outcome);
    with_cards(tally, guest, [&rmpiexec, &programs], &prefix)
}

/// The programs in C that run in the guests.
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

/// One boot of a guest whose cards DPDK has.
fn with_cards(
    tally: &mut Tally,
    guest: Guest,
    [rmpiexec, programs]: [&str; 2],
    prefix: &Path,
) -> Result<(), String> {
    if prefix.join("lib/rmpi/librmpi_dpdk.so").exists() {
        let script = root().join("ci/softroce/cards");
        let words = ["sh", &*script.to_string_lossy(), rmpiexec, programs];
        let outcome = guest.cards().memory(2048).run(&words)?;
        told(tally, "a guest with cards", &outcome);
    } else {
        let why = "DPDK is not installed".to_owned();
        tally.expected.push(("cards under DPDK".into(), why));
    }
    Ok(())
}

/// Records the checks of one boot.
fn told(tally: &mut Tally, who: &str, outcome: &GuestOutcome) {
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

/// Stage `soak`: an hour of what the stage `unit` has some seconds of, on a simulated network; its jobs of 10,000 hosts with more that is
/// said; 10 GiB over a bad link, 100 million changed packets and
/// Wireshark's word on each opcode for the engine of RoCE; all that guests are for, where the stage `softroce` has the most telling
/// part; and ten minutes of its random traffic.
pub(crate) fn soak(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let mut simulated = cargo();
    simulated
        .args(["test", "--quiet", "--release", "--package", "testbed"])
        .args(["--test", "soak", "--", "--nocapture"])
        .env("RMPI_TEST_SIMULATED_SECONDS", "3600");
    cargo_tests::run(tally, "an hour on a simulated network", simulated)?;
    let mut scale = cargo();
    scale
        .args(["test", "--quiet", "--release", "--package", "launcher"])
        .args(["--lib", "tests::scale", "--", "--ignored"]);
    cargo_tests::run(tally, "jobs of 640,000 ranks that talk to many", scale)?;
    let mut roce = cargo();
    roce.args(["test", "--quiet", "--release", "--package", "roce"])
        .args(["--test", "lossy", "--test", "hostile", "--test", "tshark"])
        .args(["--", "--ignored", "--nocapture"]);
    cargo_tests::run(
        tally,
        "RoCE over a bad link, changed packets, and what Wireshark says",
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
        Err(format!("{}\n{out}{err}", outcome.in_words()))
    };
    tally.record(
        "random traffic with loss and reordering",
        result,
        outcome.wall,
    );
    Ok(())
}

/// The bindings of crate `verbs-sys` against the header that rdma-core has installed.
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

/// One check inside the guest.
struct Check<'a> {
    name: &'a str,
    passed: bool,
    time: Duration,
    printed: String,
}

/// Reads `== NAME`, what the check printed, `== ok 123` or `== failed 123` (hundredths of a second). One that never
/// ended has failed.
fn checks(told: &str) -> Vec<Check<'_>> {
    let mut all: Vec<Check<'_>> = Vec::new();
    for line in told.lines() {
        let Some(words) = line.strip_prefix("== ") else {
            if let Some(check) = all.last_mut() {
                check.printed += &format!("{line}\n");
            }
            continue;
        };
        match (verdict(words), all.last_mut()) {
            (Some((passed, time)), Some(check)) => (check.passed, check.time) = (passed, time),
            _ => all.push(Check {
                name: words,
                passed: false,
                time: Duration::ZERO,
                printed: String::new(),
            }),
        }
    }
    all
}

fn verdict(words: &str) -> Option<(bool, Duration)> {
    let (word, time) = words.split_once(' ')?;
    let time = Duration::from_millis(10 * time.parse::<u64>().ok()?);
    ["ok", "failed"]
        .contains(&word)
        .then_some((word == "ok", time))
}

/// The script's last line is `exit 7`.
fn code(outcome: &GuestOutcome) -> Result<(), String> {
    if outcome.end == GuestEnd::Code(7) {
        return Ok(());
    }
    let (end, told) = (outcome.in_words(), &outcome.stderr);
    Err(format!("expected the code 7, the command {end}\n{told}"))
}

/// What the guest creates, at two places.
const WRITTEN: &str = "softroce-was-here";
/// All that the guest does; a machine with other work emulates several times slower.
const LIMIT: Duration = Duration::from_secs(1200);
/// All that it does at length, with 10 GiB over a bad link.
const LONG_LIMIT: Duration = Duration::from_secs(7200);
/// Programs of the stage `ranks` that run there, by their names in `ci/softroce/checks` and `between`.
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
/// Programs from other places.
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
        let told =
            "noise\n== one\n12 packets\n== ok 123\n== two 2\nwhy\n== failed 0\n== three\nhung\n";
        let found = checks(told);
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
