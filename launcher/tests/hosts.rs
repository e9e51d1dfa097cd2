// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of hosts on the command line and in files: the displayed placement, error messages, and a job whose hosts are
//! all this machine. The rules themselves have unit tests.
#![allow(clippy::unwrap_used)]

mod common;
use common::rmpiexec;
use std::path::PathBuf;

/// A host file in a folder that is removed at the end of the test.
fn host_file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("hosts");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn a_dry_run_shows_which_host_gets_which_ranks() {
    let (_folder, file) = host_file("n1 slots=2\nn[2-3]:1 # the small ones\n");
    for option in ["--hostfile", "-f", "-hostfile", "-machinefile", "--machine"] {
        let arguments = ["--dry-run", option, &file, "-n", "5", "true"];
        let outcome = rmpiexec(arguments).run().expect(0);
        let map = "5 ranks on 3 hosts:\n\
                   host  slots  ranks\n\
                   n1        2  0-1,4\n\
                   n2        1  2\n\
                   n3        1  3\n";
        assert_eq!(outcome.out, map, "{option}");
        outcome
            .reports("there are more ranks than slots; host n1, which has 2 slots, gets 3 ranks");
    }
}

#[test]
fn a_dry_run_names_hosts_with_unknown_cores() {
    let (_folder, file) = host_file("n1:2\nn2\n");
    let outcome = rmpiexec(["--dry-run", "-f", &file, "true"]).run().expect(0);
    assert!(
        outcome
            .out
            .starts_with("ranks on 2 hosts:\nhost  slots\nn1        2\nn2    cores\n"),
        "{}",
        outcome.out
    );
    assert!(
        outcome
            .out
            .contains("the cores of n2 are asked when the job is started")
    );
}

#[test]
fn a_job_whose_hosts_are_all_this_machine_is_started() {
    let own = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let hosts = format!("localhost:2,{own}");
    let print = "echo $RMPI_RANK/$RMPI_SIZE";
    let outcome = rmpiexec(["-host", &hosts, "sh", "-c", print])
        .run()
        .expect(0);
    assert_eq!(outcome.sorted(), ["0/3", "1/3", "2/3"]);
    let (_folder, file) = host_file("127.0.0.1\n");
    let arguments = ["-f", &file, "-N", "2", "sh", "-c", print];
    assert_eq!(rmpiexec(arguments).run().expect(0).sorted(), ["0/2", "1/2"]);
}

#[test]
fn an_unreachable_host_is_named() {
    let outcome = rmpiexec(["--host", "localhost,no-such-host", "true"])
        .run()
        .expect(1);
    outcome.reports("host no-such-host: cannot be reached: ssh");
}

#[test]
fn host_errors_state_their_position() {
    let (_folder, file) = host_file("n1:2\nn2 slots=many\n");
    let refused = |arguments: &[&str], text: &str| {
        let outcome = rmpiexec(arguments).run().expect(2);
        assert_eq!(outcome.out, "");
        outcome.reports(text);
    };
    let message = "hosts, line 2, column 10: slots=many: `many` is no number of slots; expected a number from 1";
    refused(&["-f", &file, "true"], message);
    refused(
        &["--host", "a,b:x", "true"],
        "--host a,b:x: at character 5: `x` is no number",
    );
    refused(
        &["--host", "a:2000", "-n", "1025", "true"],
        "-n 1025: one machine holds at most",
    );
    refused(
        &["-ppn", "0", "true"],
        "--ranks-per-node 0: expected a whole number from 1 to 1024",
    );
}
