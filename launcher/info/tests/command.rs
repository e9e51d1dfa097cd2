// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that run the command as users type it; they pass on any host.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

#[test]
fn without_options_version_and_providers_are_shown() {
    let done = info(&[], &[]);
    assert_eq!(done.status.code(), Some(0));
    let text = stdout(&done);
    assert!(text.starts_with("rmpi 0."), "{text}");
    for part in ["MPI 5.0", "\n  self ", "\n  shm ", "\n  verbs "] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn net_option_exit_code_states_whether_verbs_is_usable() {
    let done = info(&["--net"], &[]);
    let text = stdout(&done);
    let cannot = text.contains("Ranks on this host cannot use InfiniBand or RoCE");
    assert_eq!(done.status.code(), Some(i32::from(cannot)), "{text}");
    assert!(
        cannot || text.contains("Ranks on this host would use"),
        "{text}"
    );
    assert!(text.contains("a process may lock"), "{text}");
}

#[test]
fn peer_is_resolved_and_an_unknown_one_is_refused() {
    let done = info(&["--net", "--peer", "127.0.0.1"], &[]);
    let text = stdout(&done);
    assert!(
        text.contains("127.0.0.1 is an address of this host.\n\ntcp,"),
        "{text}"
    );
    let done = info(&["--net", "--peer", "300.1"], &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).starts_with("rmpi-info: --peer 300.1: expected an address"));
}

#[test]
fn devices_that_are_not_in_the_list_are_not_used() {
    let done = info(&["--net"], &[("RMPI_NET_DEVICES", "no_such_device")]);
    assert_eq!(done.status.code(), Some(1));
    let stdout = stdout(&done);
    let expected = "cannot use InfiniBand or RoCE (RMPI_NET_DEVICES is \"no_such_device\")";
    assert!(stdout.contains(expected), "{stdout}");
}

#[test]
fn variables_are_shown_and_unknown_ones_reported() {
    let done = info(
        &["--vars"],
        &[("RMPI_WAIT", "spin"), ("RMPI_EAGER_LIMT", "1")],
    );
    assert_eq!(done.status.code(), Some(0));
    assert!(stdout(&done).contains("RMPI_WAIT  spin (set)\n"));
    let expected =
        "rmpi-info: RMPI_EAGER_LIMT is no variable of rmpi; did you mean RMPI_EAGER_LIMIT\n";
    assert_eq!(stderr(&done), expected);
}

#[test]
fn an_unknown_option_is_named() {
    let done = info(&["--netx"], &[]);
    assert_eq!(done.status.code(), Some(2));
    let stderr = stderr(&done);
    assert!(
        stderr.starts_with("rmpi-info: ") && stderr.contains("--netx") && stderr.contains("--net")
    );
}

fn info(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpi-info"));
    let own = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("RMPI_"));
    command
        .env_clear()
        .envs(own)
        .envs(environment.iter().copied());
    command.args(arguments).output().unwrap()
}

fn stdout(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn stderr(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn events_are_shown_with_their_elements() {
    let done = info(&["--events"], &[]);
    let text = stdout(&done);
    assert_eq!(done.status.code(), Some(0));
    let lines = "sleep_begin  in rmpi.waiting\n    (unsigned long long most_ns)\n";
    assert!(text.contains(lines), "{text}");
    assert!(!text.contains("RMPI_EAGER_LIMIT  "), "{text}");
}

#[test]
fn search_finds_variables_and_events_or_reports_none() {
    let done = info(&["--search", "UNEXPECTED queue"], &[]);
    let text = stdout(&done);
    assert!(
        text.contains("MPI_T_UMQ_LENGTH") || text.contains("unexpected_recvq"),
        "{text}"
    );
    assert!(!text.contains("communicator_size"), "{text}");
    let done = info(&["--search", "throttle"], &[]);
    assert!(
        stdout(&done).contains("senders_throttled") && stdout(&done).contains("sender_throttled")
    );
    let done = info(&["--search", "throttle", "--events"], &[]);
    assert!(!stdout(&done).contains("senders_throttled"));
    let done = info(&["--search", "no such thing"], &[]);
    assert_eq!(done.status.code(), Some(1));
    let complaint = stderr(&done);
    assert!(
        complaint.contains("is about \"no such thing\""),
        "{complaint}"
    );
}

#[test]
fn json_lists_variables_and_events() {
    let done = info(&["--json"], &[("RMPI_EAGER_LIMIT", "4K")]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&done)).unwrap();
    let named = |kind: &str, name: &str| {
        let all = json[kind].as_array().unwrap();
        let mut found = all.iter().filter(|entry| entry["name"] == name);
        found.next().unwrap().clone()
    };
    let limit = named("vars", "RMPI_EAGER_LIMIT");
    assert_eq!(
        (&limit["value"], &limit["set"]),
        (&4096.into(), &true.into())
    );
    assert_eq!(named("pvars", "MPI_T_UMQ_LENGTH")["of"], "communicator");
    assert_eq!(named("events", "peer_lost")["elements"][0]["name"], "peer");
    let done = info(&["--json", "--events", "--search", "sleep"], &[]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 1);
    assert_eq!(json["events"].as_array().unwrap().len(), 2);
}

#[test]
fn inside_a_batch_job_manager_and_pmi_are_shown() {
    let salloc = [
        ("SLURM_JOB_ID", "17"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "2,1"),
    ];
    let task = [("PMI_PORT", "vm:41907"), ("PMI_ID", "3")];
    let done = info(&[], &[&salloc[..], &task].concat());
    let text = stdout(&done);
    for part in [
        "job    of a batch system: job 17 of Slurm: 2 hosts with slots as SLURM_JOB_NODELIST says, reached by ",
        "\n         hosts: n1:2 n2:1\n         found: SLURM_JOB_ID=17, SLURM_JOB_NODELIST=n[1-2], ",
        "\n  peers  found by PMI-1 at vm:41907, as process 3\n  pmix   its library: ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let lost = info(&[], &[("RMPI_PMI", "pmix"), ("PMIX_NAMESPACE", "")]);
    let expected = "\n  peers  not found: RMPI_PMI asks for pmix: ";
    assert!(stdout(&lost).contains(expected), "{}", stdout(&lost));
    let library = info(&[], &[("RMPI_PMIX_LIBRARY", "/nowhere/libpmix.so.2")]);
    let expected = "\n  pmix   its library: not here: /nowhere/libpmix.so.2: cannot open";
    assert!(stdout(&library).contains(expected), "{}", stdout(&library));
}
