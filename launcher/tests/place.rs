// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the ranks' CPU affinity and of its display, on this machine. The policies have unit tests with simulated
//! machines.
#![allow(clippy::unwrap_used)]

mod common;
use common::rmpiexec;
use std::process::Command;

fn masks(ranks: &str, options: &[&str]) -> Vec<String> {
    let print = "echo $RMPI_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f 2)";
    let mut arguments = vec!["-n", ranks];
    arguments.extend(options);
    arguments.extend(["sh", "-c", print]);
    let outcome = rmpiexec(arguments).run().expect(0);
    outcome.sorted().into_iter().map(str::to_owned).collect()
}

/// The CPUs that this process may use; `None` if some core has several hardware threads.
fn single_threaded_cores() -> Option<Vec<u32>> {
    let cpus = common::own_mask();
    let alone = |cpu: &u32| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(file).map_or(true, |list| list.trim() == cpu.to_string())
    };
    cpus.iter().all(alone).then_some(cpus)
}

#[test]
fn one_rank_per_core_is_bound_to_it() {
    let Some(cpus) = single_threaded_cores() else {
        return;
    };
    let ranks = cpus.len().to_string();
    let mut expected: Vec<String> = cpus
        .iter()
        .enumerate()
        .map(|(rank, cpu)| format!("{rank} {cpu}"))
        .collect();
    expected.sort_unstable();
    assert_eq!(masks(&ranks, &[]), expected);
    assert_eq!(masks(&ranks, &["--bind-to", "core"]), expected);
}

#[test]
fn oversubscribed_ranks_outside_mpi_keep_the_mask() {
    let one = masks("1", &[]);
    let (_, mask) = one[0].split_once(' ').unwrap();
    let ranks = common::own_mask().len() * 2;
    let mut expected: Vec<String> = (0..ranks).map(|rank| format!("{rank} {mask}")).collect();
    expected.sort_unstable();
    assert_eq!(masks(&ranks.to_string(), &[]), expected);
}

#[test]
fn oversubscribed_ranks_are_bound_to_a_core_on_request() {
    let Some(cpus) = single_threaded_cores() else {
        return;
    };
    let ranks = cpus.len() * 2;
    let mut expected: Vec<String> = (0..ranks)
        .map(|rank| format!("{rank} {}", cpus[rank / 2]))
        .collect();
    expected.sort_unstable();
    assert_eq!(masks(&ranks.to_string(), &["--bind-to", "core"]), expected);
}

#[test]
fn no_binding_leaves_the_mask_alone() {
    let plain = Command::new("sh")
        .args(["-c", "grep Cpus_allowed_list /proc/self/status | cut -f 2"])
        .output()
        .unwrap();
    let mask = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(
        masks("2", &["--bind-to", "none"]),
        [format!("0 {}", mask.trim()), format!("1 {}", mask.trim())]
    );
}

#[test]
fn the_inherited_mask_is_never_widened() {
    let cpu = common::own_mask()[0].to_string();
    let mut command = Command::new("taskset");
    let print = "grep Cpus_allowed_list /proc/self/status | cut -f 2";
    command.args([
        "-c",
        &cpu,
        env!("CARGO_BIN_EXE_rmpiexec"),
        "-n",
        "3",
        "sh",
        "-c",
        print,
    ]);
    let outcome = common::Job::of(command).run().expect(0);
    assert_eq!(outcome.out, format!("{cpu}\n{cpu}\n{cpu}\n"));
}

#[test]
fn a_dry_run_prints_the_map_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let text = format!("touch {}", mark.display());
    let arguments = [
        "--dry-run",
        "-n",
        "3",
        "--topology",
        "socket:2 core:2 pu:2",
        "sh",
        "-c",
        &text,
    ];
    let outcome = rmpiexec(arguments).run().expect(0);
    assert_eq!(
        outcome.out,
        "3 ranks on the machine of --topology: 2 sockets, 1 NUMA node, 4 cores, CPUs 0-7\n\
         rank 0 of sh is bound to CPUs 0-1 (core 0, NUMA node 0, socket 0)\n\
         rank 1 of sh is bound to CPUs 2-3 (core 1, NUMA node 0, socket 0)\n\
         rank 2 of sh is bound to CPUs 4-7 (cores 2-3, NUMA node 0, socket 1)\n"
    );
    assert_eq!(outcome.err, "");
    assert!(!mark.exists());
}

#[test]
fn every_policy_gives_its_documented_map() {
    let machine = "socket:2 numa:1 core:2 pu:2";
    for (options, expected) in [
        (["--map-by", "slot", "--bind-to", "core"], ["0-1", "4-5"]),
        (["--map-by", "core", "--bind-to", "core"], ["0-1", "2-3"]),
        (["--map-by", "core", "--bind-to", "hwthread"], ["0", "1"]),
        (
            ["--map-by", "socket", "--bind-to", "socket"],
            ["0-3", "4-7"],
        ),
        (["--map-by", "numa", "--bind-to", "core"], ["0-1", "4-5"]),
        (["--map-by", "node", "--bind-to", "numa"], ["0-3", "4-7"]),
        (["--map-by", "slot", "--bind-to", "none"], ["0-7", "0-7"]),
    ] {
        let arguments =
            options
                .into_iter()
                .chain(["--dry-run", "-n", "2", "--topology", machine, "true"]);
        let outcome = rmpiexec(arguments).run().expect(0);
        let cpus = |line: &str| Some(line.split_once(" CPU")?.1.split(' ').nth(1)?.to_owned());
        let seen: Vec<String> = outcome.out.lines().skip(1).filter_map(cpus).collect();
        assert_eq!(seen, expected, "{options:?}: {}", outcome.out);
    }
}

#[test]
fn a_dry_run_refuses_a_missing_program() {
    let outcome = rmpiexec(["--dry-run", "-n", "2", "./nowhere"])
        .run()
        .expect(127);
    outcome.reports("no program ./nowhere");
}

#[test]
fn report_bindings_agrees_with_the_masks() {
    let print = "grep Cpus_allowed_list /proc/self/status | cut -f 2";
    let arguments = [
        "--report-bindings",
        "--bind-to",
        "core",
        "-n",
        "1",
        "sh",
        "-c",
        print,
    ];
    let outcome = rmpiexec(arguments).run().expect(0);
    if common::own_mask().len() > 1 {
        let mask = outcome.out.trim();
        let expected = "rmpiexec: rank 0 of sh is bound to CPU";
        assert!(outcome.err.contains(expected), "{}", outcome.err);
        assert!(
            outcome.err.contains(&format!(" {mask} (core")),
            "{mask}: {}",
            outcome.err
        );
    }
    assert!(
        outcome.err.starts_with("rmpiexec: 1 rank on host "),
        "{}",
        outcome.err
    );
}

#[test]
fn oversubscription_by_bind_to_gives_a_remark() {
    let ranks = (common::own_mask().len() * 2).to_string();
    let outcome = rmpiexec(["-n", &ranks, "--bind-to", "core", "true"])
        .run()
        .expect(0);
    if common::own_mask().len() > 1 {
        outcome.reports("leave --bind-to out to let them move");
    }
}
