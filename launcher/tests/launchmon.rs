// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with LaunchMON's engine, simulated by `common::engine`: it starts `rmpiexec`, or attaches to a running
//! `rmpiexec`. The real engine is not tested here.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, unsafe_code)]

mod common;
use common::engine::{
    ABORTING, Engine, Event, Programs, SPAWNED, Table, as_engine, attach, launch, symbols,
};
use common::{Job, Running, rmpiexec, script, until};
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;

/// A job whose ranks each create a file and then run until the file `end` exists.
fn waiting(ranks: u32, folder: &Path) -> Job {
    let here = folder.display();
    let text =
        format!("touch {here}/$RMPI_RANK; until [ -e {here}/end ]; do sleep 0.02; done; echo end");
    script(ranks, &text)
}

fn marks(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn let_end(folder: &Path) {
    fs::write(folder.join("end"), "").unwrap();
}

/// The pids of the ranks, in rank order, after checks of the other columns of the table.
fn pids(table: &Table) -> Vec<i32> {
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert_eq!(table.keys().collect::<Vec<_>>(), [&host]);
    let rows = &table[&host];
    assert!(rows.iter().all(|(_, _, program)| program.ends_with("/sh")));
    assert!((0..).zip(rows).all(|(rank, row)| rank == row.0));
    rows.iter().map(|row| row.1).collect()
}

fn started(job: Job, programs: Programs) -> (Engine, Running) {
    let (engine, running) = launch(job, programs);
    let mut engine = engine.expect("the launcher's memory is where its symbols say");
    assert_eq!(engine.wait(), Ok(Event::Launched(SPAWNED)));
    (engine, running)
}

#[test]
fn launchmon_starts_a_job_reads_the_table_and_detaches() {
    let folder = tempfile::tempdir().unwrap();
    let running = as_engine(|| {
        let (mut engine, running) = started(waiting(2, folder.path()), Programs::OfTool);
        for pid in pids(&engine.table().unwrap()) {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            assert!(stat.contains(") T "), "it is held: {stat}");
        }
        assert_eq!(marks(folder.path()), 0);
        assert!(engine.libraries.iter().any(|name| name.contains("libc.")));
        engine.go_on();
        assert_eq!(engine.wait_until(|| marks(folder.path()) == 2), Ok(None));
        engine.leave().unwrap();
        running
    });
    let_end(folder.path());
    let outcome = running.finish().expect(0);
    assert_eq!(
        (outcome.out.as_str(), outcome.err.as_str()),
        ("end\nend\n", "")
    );
}

#[test]
fn launchmon_stays_until_the_job_ends() {
    let folder = tempfile::tempdir().unwrap();
    let running = as_engine(|| {
        let (mut engine, running) = started(waiting(3, folder.path()), Programs::OfTool);
        assert_eq!(pids(&engine.table().unwrap()).len(), 3);
        engine.go_on();
        let_end(folder.path());
        assert_eq!(engine.wait(), Ok(Event::Ended));
        running
    });
    assert_eq!(running.finish().expect(0).out, "end\n".repeat(3));
}

#[test]
fn launchmon_attaches_to_a_running_job_repeatedly() {
    let folder = tempfile::tempdir().unwrap();
    let running = both_run(folder.path());
    for _ in 0..2 {
        as_engine(|| {
            let engine = attach(&running, Programs::OfTool).unwrap();
            assert_eq!(pids(&engine.table().unwrap()).len(), 2);
            assert!(engine.libraries.iter().any(|name| name.contains("libc.")));
            engine.go_on();
            engine.leave().unwrap();
        });
    }
    let_end(folder.path());
    let outcome = running.finish().expect(0);
    assert_eq!(
        (outcome.out.as_str(), outcome.err.as_str()),
        ("end\nend\n", "")
    );
}

/// A job with two running ranks, whose process table is complete.
fn both_run(folder: &Path) -> Running {
    let running = waiting(2, folder).start();
    until("both ranks run", || (marks(folder) == 2).then_some(()));
    // The launcher fills the table shortly after the ranks have started.
    until("the table is there", || {
        let tool = common::tool::attach(&running);
        let ranks = tool.int("MPIR_proctable_size");
        tool.leave();
        (ranks == 2).then_some(())
    });
    running
}

#[test]
fn launchmon_is_notified_of_a_failure() {
    let running = as_engine(|| {
        let text = "[ $RMPI_RANK = 1 ] && exit 7; sleep 1000";
        let (mut engine, running) = started(script(2, text), Programs::OfTool);
        engine.go_on();
        assert_eq!(engine.wait(), Ok(Event::Launched(ABORTING)));
        running
    });
    running.finish().expect(7).reports("exited with code 7");
}

/// After it has detached from a job, the engine ends the job by the signal of `RM_signal_for_kill`.
#[test]
fn launchmon_signal_ends_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let running = as_engine(|| {
        let (engine, running) = started(waiting(2, folder.path()), Programs::OfTool);
        engine.leave().unwrap();
        running
    });
    running.signal(Signal::SIGINT);
    running.finish().expect(130).reports("SIGINT received");
}

/// The engine keeps the launcher stopped in `MPIR_Breakpoint` until the tool's programs are running, so the launcher
/// must start them before it stops there.
#[test]
fn launchmon_tool_programs_start_before_ranks_are_released() {
    let folder = tempfile::tempdir().unwrap();
    let came = folder.path().join("came");
    let running = as_engine(|| {
        let programs = touching(&came);
        let (mut engine, running) = started(rmpiexec(["-n", "2", "true"]), programs);
        until("the program has come", || came.exists().then_some(()));
        assert_eq!(engine.table().unwrap().values().flatten().count(), 2);
        engine.go_on();
        assert_eq!(engine.wait(), Ok(Event::Ended));
        running
    });
    running.finish().expect(0);
}

fn touching(file: &Path) -> Programs {
    Programs::OfLauncher("/bin/touch".to_owned(), file.display().to_string())
}

/// In a running job the engine requests the programs through the FIFO, and reads the table in `MPIR_Breakpoint`.
#[test]
fn launchmon_tool_programs_start_in_a_running_job() {
    let folder = tempfile::tempdir().unwrap();
    let running = both_run(folder.path());
    let came = folder.path().join("came");
    as_engine(|| {
        let mut engine = attach(&running, touching(&came)).unwrap();
        assert_eq!(engine.wait(), Ok(Event::Launched(SPAWNED)));
        assert_eq!(pids(&engine.table().unwrap()).len(), 2);
        until("the program has come", || came.exists().then_some(()));
        engine.leave().unwrap();
    });
    let_end(folder.path());
    running.finish().expect(0);
}

/// LaunchMON identifies a launcher by its file name and a symbol, which it reads from a file of keys and values.
#[test]
fn launchmon_configuration_matches_this_launcher() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("share/rm_rmpi.conf");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs: Vec<(&str, &str)> = lines.map(|line| line.split_once('=').unwrap()).collect();
    let values = |key: &str| {
        let found = pairs.iter().filter(|(known, _)| *known == key);
        found.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let known = [
        "RM",
        "RM_MPIR",
        "RM_launcher",
        "RM_launcher_id",
        "RM_launch_helper",
        "RM_signal_for_kill",
        "RM_fail_detection",
        "RM_launch_str",
    ];
    assert!(
        pairs.iter().all(|(key, _)| known.contains(key)),
        "{pairs:?}"
    );
    assert_eq!(values("RM_MPIR"), ["STD"]);
    let launcher = Path::new(env!("CARGO_BIN_EXE_rmpiexec"));
    let symbols = symbols(launcher);
    for rule in values("RM_launcher_id") {
        let symbol = rule.strip_prefix("RM_launcher|sym|").unwrap();
        assert!(symbols.contains_key(symbol), "{symbol}");
        assert!(!symbol.starts_with("MPIR_"), "other launchers have it too");
    }
    assert!(values("RM_launcher").contains(&"rmpiexec"));
    // The command line by which LaunchMON starts its own programs, one per host, with the placeholders replaced.
    let mut command = values("RM_launch_str")[0].replace("%n", "1");
    for (placeholder, value) in [("%d", "echo"), ("%o", "came"), ("%s", "1"), ("%c", "2")] {
        command = command.replace(placeholder, value);
    }
    assert_eq!(values("RM_launch_helper"), ["rmpiexec"]);
    let outcome = rmpiexec(command.split_whitespace()).run().expect(0);
    assert_eq!(outcome.out, "came --lmonsharedsec=1 --lmonsecchk=2\n");
}
