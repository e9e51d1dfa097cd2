// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: every stage in order of cost, each timed, with one count at the end.

mod abi;
mod cargo_tests;
mod compiling;
mod debuggers;
mod docs;
mod faults;
mod foreign;
mod fortran;
mod hardships;
mod hosts;
mod icount;
mod jobs;
mod late;
mod model;
mod over_hosts;
mod ranks;
mod softroce;
mod suites;
mod tally;
mod testlist;
mod tidy;
mod unit;

use crate::process::seconds;
use crate::softroce::KernelSeries;
use crate::stage::unknown;
use crate::tree::prefix;
use crate::{install, setup};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tally::Tally;

/// One stage of the tests.
struct TestStage {
    name: &'static str,
    budget: Duration,
    run: fn(&mut Tally, &mut Context) -> Result<(), String>,
}

/// Stages that take too long to run for every change: they run only if they are named.
const LONG_STAGES: &[TestStage] = &[
    TestStage {
        name: "deaths",
        budget: minutes(15),
        run: faults::run_long,
    },
    TestStage {
        name: "deaths-over-hosts",
        budget: minutes(60),
        run: hosts::run_long,
    },
    TestStage {
        name: "soak",
        budget: minutes(120),
        run: softroce::soak,
    },
];

/// The stages in order of cost. The budgets are those of CONTRIBUTING.md, on two cores.
const STAGES: &[TestStage] = &[
    TestStage {
        name: "tidy",
        budget: minutes(2),
        run: tidy::run,
    },
    TestStage {
        name: "unit",
        budget: minutes(7),
        run: unit::run,
    },
    TestStage {
        name: "model",
        budget: minutes(1),
        run: model::run,
    },
    TestStage {
        name: "abi",
        budget: minutes(2),
        run: abi::run,
    },
    TestStage {
        name: "ranks",
        budget: minutes(7),
        run: ranks::run,
    },
    TestStage {
        name: "debuggers",
        budget: minutes(2),
        run: debuggers::run,
    },
    TestStage {
        name: "docs",
        budget: minutes(1),
        run: docs::run,
    },
    TestStage {
        name: "icount",
        budget: minutes(1),
        run: icount::run,
    },
    TestStage {
        name: "faults",
        budget: minutes(1),
        run: faults::run,
    },
    TestStage {
        name: "softroce",
        budget: minutes(7),
        run: softroce::run,
    },
    TestStage {
        name: "hosts",
        budget: minutes(3),
        run: hosts::run,
    },
    TestStage {
        name: "suites",
        budget: minutes(8),
        run: suites::run,
    },
];

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// Options and state that the stages share.
#[derive(Default)]
pub(crate) struct Context {
    /// Another MPI to run the programs of `ranks` on.
    pub(crate) peer: Option<PathBuf>,
    /// The seed with which the ranks of all programs of `ranks` sleep (`--late`).
    pub(crate) late: Option<u64>,
    /// The number of hosts for the ranks of each job of `ranks` and `suites`; `None`: only this one.
    pub(crate) hosts: Option<u32>,
    /// The kernel of the virtual machine.
    pub(crate) kernel: Option<KernelSeries>,
    /// Parts of names; empty means every program.
    pub(crate) filters: Vec<String>,
    installed: Option<Result<(), String>>,
}

impl Context {
    /// The installed tree, built on first use.
    pub(crate) fn prefix(&mut self) -> Result<PathBuf, String> {
        let installed = self.installed.get_or_insert_with(|| {
            let start = Instant::now();
            let result = install::build(&prefix());
            println!(
                "  installed into {} ({})",
                prefix().display(),
                seconds(start.elapsed())
            );
            result
        });
        let result = installed.clone().map(|()| prefix());
        result.map_err(|why| format!("the product could not be installed: {why}"))
    }

    /// Whether a name is selected by the filters.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|part| name.contains(part.as_str()))
    }
}

/// `cargo xtask test [STAGE...] [-- FILTER...]`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (stages, mut context) = parse(args)?;
    let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    setup::ensure(&names)?;
    foreign::come_first()?;
    let mut rows = Vec::new();
    for stage in &stages {
        println!("== {} ==", stage.name);
        let mut tally = Tally::default();
        let start = Instant::now();
        if let Err(why) = (stage.run)(&mut tally, &mut context) {
            tally.check(stage.name, || Err(why));
        }
        rows.push((stage, tally, start.elapsed()));
    }
    summary(&rows)
}

/// Prints the table, and as the last line the counts.
fn summary(rows: &[(&&TestStage, Tally, Duration)]) -> Result<(), String> {
    println!("\nstage     passed  failed  expected to fail       time     budget");
    for (stage, tally, time) in rows {
        let over = if *time > stage.budget {
            "  over budget"
        } else {
            ""
        };
        println!(
            "{:<9} {:>6}  {:>6}  {:>16} {:>10} {:>10}{over}",
            stage.name,
            tally.passed,
            tally.failed.len(),
            tally.expected.len(),
            seconds(*time),
            seconds(stage.budget),
        );
    }
    let total: Duration = rows.iter().map(|(_, _, time)| *time).sum();
    println!("in all {}", seconds(total));
    for (stage, tally, _) in rows {
        for (name, reason) in &tally.expected {
            println!("expected to fail: {} {name}: {reason}", stage.name);
        }
    }
    for (stage, tally, _) in rows {
        for name in &tally.failed {
            println!("FAILED: {} {name}", stage.name);
        }
    }
    let passed: usize = rows.iter().map(|(_, tally, _)| tally.passed).sum();
    let failed: usize = rows.iter().map(|(_, tally, _)| tally.failed.len()).sum();
    println!("\n{passed} passed, {failed} failed");
    match (passed, failed) {
        (0, 0) => Err("no test was run".into()),
        (_, 0) => Ok(()),
        (_, 1) => Err("one test failed".into()),
        _ => Err(format!("{failed} tests failed")),
    }
}

fn parse(args: &[String]) -> Result<(Vec<&'static TestStage>, Context), String> {
    let mut context = Context::default();
    let mut stages: Vec<&TestStage> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--" => context.filters = args.by_ref().cloned().collect(),
            "--mpi" => {
                let given = args
                    .next()
                    .ok_or("--mpi needs the folder where an MPI is installed")?;
                context.peer = Some(std::path::absolute(given).unwrap_or_else(|_| given.into()));
            }
            "--late" => {
                let given = args.next().ok_or("--late needs a seed, a whole number")?;
                let seed = given.parse();
                context.late = Some(seed.map_err(|_| {
                    format!("--late `{given}` is no seed, expected a whole number: --late 7")
                })?);
            }
            "--hosts" => {
                let given = args.next().ok_or("--hosts needs a number of hosts")?;
                let hosts = given.parse().ok().filter(|hosts| (2..=64).contains(hosts));
                context.hosts = Some(
                    hosts.ok_or_else(|| format!("--hosts takes 2 to 64 hosts, not `{given}`"))?,
                );
            }
            "--kernel" => {
                let given = args.next().ok_or("--kernel needs 6.1 or 6.12")?;
                context.kernel = Some(KernelSeries::named(given)?);
            }
            name => stages.push(stage_named(name)?),
        }
    }
    fits(&stages, &context)?;
    if stages.is_empty() {
        stages = STAGES.iter().collect();
    }
    Ok((stages, context))
}

/// An error if the options do not fit together or do not fit the stages.
fn fits(stages: &[&TestStage], context: &Context) -> Result<(), String> {
    let has_guest = |stage: &&TestStage| ["softroce", "soak"].contains(&stage.name);
    if context.kernel.is_some() && !stages.iter().any(has_guest) {
        return Err(
            "--kernel is for the stage softroce: cargo xtask test softroce --kernel 6.12".into(),
        );
    }
    let only_ranks = stages.iter().all(|stage| stage.name == "ranks") && !stages.is_empty();
    if context.peer.is_some() && !only_ranks {
        return Err("--mpi is for the stage ranks alone: cargo xtask test ranks --mpi DIR".into());
    }
    if context.late.is_some() && (!only_ranks || context.peer.is_some()) {
        return Err(
            "--late is for the stage ranks alone and for this MPI: cargo xtask test ranks --late 7"
                .into(),
        );
    }
    let may_be_far = |stage: &&TestStage| ["ranks", "suites"].contains(&stage.name);
    let is_far = context.hosts.is_some();
    if is_far && (stages.is_empty() || !stages.iter().all(may_be_far) || context.peer.is_some()) {
        let usage = "cargo xtask test ranks --hosts 2";
        return Err(format!(
            "--hosts is for the stages ranks and suites and for this MPI: {usage}"
        ));
    }
    let is_filtered = matches!(stages, [one] if FILTERED.contains(&one.name));
    if !context.filters.is_empty() && !is_filtered {
        let names = FILTERED.join(", ");
        return Err(format!(
            "names after -- are for one of the stages {names} alone: cargo xtask test ranks -- NAME"
        ));
    }
    Ok(())
}

/// Stages that take names after `--`.
const FILTERED: &[&str] = &["ranks", "suites", "hosts"];

fn stage_named(name: &str) -> Result<&'static TestStage, String> {
    let all = || STAGES.iter().chain(LONG_STAGES);
    let names = all().map(|stage| stage.name);
    let found = all().find(|stage| stage.name == name);
    found.ok_or_else(|| unknown("test stage", name, names, "cargo xtask test --help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn no_name_means_every_stage_and_names_pick() {
        assert_eq!(parse(&[]).unwrap().0.len(), STAGES.len());
        assert_eq!(parse(&split("deaths")).unwrap().0[0].name, "deaths");
        let (stages, _) = parse(&split("tidy abi")).unwrap();
        assert_eq!(
            stages.iter().map(|stage| stage.name).collect::<Vec<_>>(),
            ["tidy", "abi"]
        );
    }

    #[test]
    fn an_unknown_stage_suggests_the_nearest() {
        let error = parse(&split("rank")).map(|_| ()).unwrap_err();
        assert_eq!(error, "unknown test stage `rank`: did you mean `ranks`?");
    }

    #[test]
    fn filters_and_peers_are_for_single_stages() {
        assert!(parse(&split("--mpi /opt/mpi")).is_err());
        assert!(parse(&split("tidy -- send")).is_err());
        assert!(parse(&split("suites ranks -- send")).is_err());
        assert!(
            parse(&split("suites -- mpi4py"))
                .unwrap()
                .1
                .selects("mpi4py")
        );
        assert!(parse(&split("hosts -- hello")).unwrap().1.selects("hello"));
        assert!(parse(&split("ranks --kernel 6.12")).is_err());
        assert!(parse(&split("softroce --kernel 4.9")).is_err());
        let (_, context) = parse(&split("softroce --kernel 6.12")).unwrap();
        assert!(context.kernel.is_some());
        assert!(parse(&split("--late 7")).is_err());
        assert!(parse(&split("ranks --late soon")).is_err());
        assert!(parse(&split("ranks --late 7 --mpi /opt/mpi")).is_err());
        let (_, context) = parse(&split("ranks --late 7")).unwrap();
        assert_eq!(context.late, Some(7));
        let (_, context) = parse(&split("ranks --mpi /opt/mpi -- send")).unwrap();
        assert_eq!(context.peer, Some(PathBuf::from("/opt/mpi")));
        assert!(context.selects("send_modes") && !context.selects("probe"));
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        assert!(summary(&[]).is_err());
    }
}
