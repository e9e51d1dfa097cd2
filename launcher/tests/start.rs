// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of how ranks are started: environment, working directory and CPUs.
#![allow(clippy::unwrap_used)]

mod common;
use common::{rmpiexec, script};
use nix::libc;
use std::process::Command;

#[test]
fn sixty_four_ranks_start_and_end() {
    rmpiexec(["-n", "64", "true"]).run().expect(0);
}

#[test]
fn every_rank_gets_its_number() {
    let outcome = script(
        5,
        "echo $RMPI_RANK/$RMPI_SIZE $RMPI_LOCAL_RANK/$RMPI_LOCAL_SIZE",
    )
    .run()
    .expect(0);
    let expected: Vec<String> = (0..5).map(|rank| format!("{rank}/5 {rank}/5")).collect();
    assert_eq!(outcome.sorted(), expected);
}

#[test]
fn without_a_number_there_is_one_rank_per_allowed_cpu() {
    let all = rmpiexec(["sh", "-c", "echo $RMPI_SIZE"]).run().expect(0);
    let cpus = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let count = (0..1024).filter(|cpu| cpus.is_set(*cpu).unwrap()).count();
    assert_eq!(all.out.lines().count(), count.min(1024));
}

#[test]
fn several_programs_share_one_world_and_have_their_own_variables() {
    let print = "echo $RMPI_RANK/$RMPI_SIZE $ALL $ONE $TWO";
    let outcome = rmpiexec([
        "-genv", "ALL", "a", "-n", "1", "-x", "ONE=1", "sh", "-c", print, ":", "-np", "2", "-env",
        "TWO", "2", "sh", "-c", print,
    ])
    .run()
    .expect(0);
    assert_eq!(outcome.sorted(), ["0/3 a 1", "1/3 a 2", "2/3 a 2"]);
}

/// The job sent to the daemon is larger than a socket buffer.
#[test]
fn programs_get_a_mebibyte_of_environment_each() {
    let print = "echo ${#BIG1} ${#BIG9} $(echo \"$BIG5\" | cut -c 99990-)";
    let program = ["-n", "1", "sh", "-c", print, ":"];
    let mut arguments = program.repeat(8);
    arguments.pop();
    let mut job = rmpiexec(arguments);
    for number in 0..10 {
        job.command
            .env(format!("BIG{number}"), number.to_string().repeat(100_000));
    }
    let outcome = job.run().expect(0);
    assert_eq!(outcome.sorted(), ["100000 100000 55555555555"; 8]);
}

#[test]
fn the_boot_line_has_the_program_number() {
    let print = "echo $RMPI_BOOT | grep -o 'app=[0-9]*'";
    let outcome = rmpiexec([
        "-n", "1", "sh", "-c", print, ":", "-n", "1", "sh", "-c", print,
    ])
    .run()
    .expect(0);
    assert_eq!(outcome.sorted(), ["app=0", "app=1"]);
}

#[test]
fn the_environment_is_inherited_except_rank_variables() {
    let mut job = script(1, "echo $HANDED $RMPI_RANK");
    job.command.env("HANDED", "down").env("RMPI_RANK", "17");
    assert_eq!(job.run().expect(0).out, "down 0\n");
}

#[test]
fn a_job_can_start_another_job() {
    let inner = format!(
        "{} -n 3 sh -c 'echo $RMPI_RANK of $RMPI_SIZE'",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let outcome = script(2, &inner).run().expect(0);
    assert_eq!(
        outcome.sorted(),
        ["0 of 3", "0 of 3", "1 of 3", "1 of 3", "2 of 3", "2 of 3"]
    );
}

#[test]
fn x_option_with_an_unset_variable_gives_a_remark() {
    let outcome = rmpiexec(["-n", "1", "-x", "RMPI_TEST_UNSET", "true"])
        .run()
        .expect(0);
    assert!(
        outcome
            .err
            .contains("-x RMPI_TEST_UNSET: no such variable is set here"),
        "{}",
        outcome.err
    );
}

#[test]
fn a_program_with_a_slash_is_found_from_the_folder_of_the_rank() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("prog");
    std::fs::copy("/bin/pwd", &program).unwrap();
    let at = folder.path().to_str().unwrap();
    let outcome = rmpiexec(["-n", "2", "-wdir", at, "./prog"]).run().expect(0);
    let real = std::fs::canonicalize(at).unwrap();
    assert_eq!(outcome.out, format!("{0}\n{0}\n", real.display()));
}

#[test]
fn a_script_without_interpreter_line_runs_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("prog");
    std::fs::write(&program, "echo \"$1 from $RMPI_RANK\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let outcome = rmpiexec(["-n", "1", program.to_str().unwrap(), "hello"])
        .run()
        .expect(0);
    assert_eq!(outcome.out, "hello from 0\n");
}

#[test]
fn a_program_for_another_machine_is_not_given_to_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("prog");
    let mut bytes = std::fs::read("/bin/true").unwrap();
    // The machine field of an ELF header; no machine has this number.
    bytes[18..20].copy_from_slice(&[0xfe, 0xfe]);
    std::fs::write(&program, bytes).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let mut job = rmpiexec(["-n", "2", "./prog"]);
    job.command.current_dir(folder.path());
    let outcome = job.run().expect(127);
    let path = std::fs::canonicalize(&program).unwrap();
    let outcome = outcome.reports(&format!("cannot execute {}: exec", path.display()));
    outcome.reports("built for another kind of machine, or damaged");
}

#[test]
fn arguments_are_passed_unchanged() {
    let outcome = rmpiexec(["-n", "1", "printf", "<%s>", "a b", "", "-n", "$x"])
        .run()
        .expect(0);
    assert_eq!(outcome.out, "<a b><><-n><$x>");
}

#[test]
fn the_installed_library_folder_is_searched_first() {
    let prefix = tempfile::tempdir().unwrap();
    let (bin, lib) = (prefix.path().join("bin"), prefix.path().join("lib"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&lib).unwrap();
    std::fs::write(lib.join("libmpi_abi.so.1"), "").unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_rmpiexec"), bin.join("rmpiexec")).unwrap();
    // The name that users type is a symbolic link. The library is searched beside the target of the link.
    let link = prefix.path().join("mpirun");
    std::os::unix::fs::symlink(bin.join("rmpiexec"), &link).unwrap();
    let mut command = Command::new(&link);
    command
        .args(["-n", "1", "sh", "-c", "echo $LD_LIBRARY_PATH"])
        .env("LD_LIBRARY_PATH", "/mine");
    let outcome = common::Job::of(command).run().expect(0);
    let lib = std::fs::canonicalize(lib).unwrap();
    assert_eq!(outcome.out, format!("{}:/mine\n", lib.display()));
}

#[test]
fn ranks_get_default_signals_and_the_callers_limit_of_files() {
    let print = "grep -E \"SigBlk|SigIgn\" /proc/self/status; ulimit -Sn";
    let mut plain = Command::new("sh");
    plain.args([
        "-c",
        &format!(
            "ulimit -Sn 300; exec {} -n 100 sh -c '{print}'",
            env!("CARGO_BIN_EXE_rmpiexec")
        ),
    ]);
    let outcome = common::Job::of(plain).run().expect(0);
    let lines = outcome.sorted();
    assert_eq!(lines.len(), 300);
    assert_eq!(lines[0], "300");
    assert!(lines.contains(&"SigBlk:\t0000000000000000"), "{lines:?}");
    let ignored = lines
        .iter()
        .find_map(|line| line.strip_prefix("SigIgn:\t"))
        .unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0, "{ignored:x}");
}

#[test]
fn only_the_ranks_own_descriptors_are_inherited() {
    let script_text = "ls /proc/self/fd | sort -n | tr '\\n' ' '";
    let outcome = rmpiexec(["-n", "1", "env", "-i", "/bin/sh", "-c", script_text])
        .run()
        .expect(0);
    let mut numbers: Vec<u32> = outcome
        .out
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    // Descriptors that the parents of this test left open are inherited, as by any program, and do not count.
    numbers.retain(|number| {
        std::fs::metadata(format!("/proc/self/fd/{number}")).is_err() || *number < 3
    });
    assert!(numbers.starts_with(&[0, 1, 2]), "{numbers:?}");
    // The segment, the control socket and the PMI socket are inherited. `ls` also has the folder open that it reads.
    assert!(
        (100..103).all(|number| numbers.contains(&number)),
        "{numbers:?}"
    );
    assert!(numbers.len() <= 7, "{numbers:?}");
}

#[test]
fn the_boot_line_has_the_mask_before_binding() {
    let outcome = script(1, "echo $RMPI_BOOT").run().expect(0);
    let boot = wireup::Boot::parse(outcome.out.trim()).unwrap();
    let cpus: Vec<u32> = (0..64 * u32::try_from(boot.mask.len()).unwrap())
        .filter(|cpu| boot.mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1)
        .collect();
    assert_eq!(cpus, common::own_mask());
}

#[test]
fn verbose_shows_the_started_programs() {
    let outcome = rmpiexec(["-v", "-n", "2", "true"]).run().expect(0);
    assert!(
        outcome.err.contains("starting 2 ranks of /"),
        "{}",
        outcome.err
    );
    assert!(
        outcome.err.contains("rank 1 is process "),
        "{}",
        outcome.err
    );
}
