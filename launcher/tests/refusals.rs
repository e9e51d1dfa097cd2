// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of errors that are found before any rank is started: the message quotes what was given, and states what was
//! expected and how to correct it.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Outcome, rmpiexec};
use std::path::Path;
use std::process::Command;

fn refused(arguments: &[&str], code: i32) -> Outcome {
    let outcome = rmpiexec(arguments).run().expect(code);
    assert_eq!(outcome.out, "");
    assert!(
        outcome.err.starts_with("rmpiexec: ") && outcome.err.lines().count() == 1,
        "{}",
        outcome.err
    );
    outcome
}

#[test]
fn an_unknown_option_error_names_the_nearest() {
    refused(&["--tag-ouput", "true"], 2)
        .reports("unknown option --tag-ouput; the nearest is --tag-output");
    refused(&["-timeot", "3", "true"], 2).reports("the nearest is --timeout");
}

#[test]
fn an_invalid_rank_count_error_states_the_range() {
    refused(&["-n", "0", "true"], 2).reports("-n 0: a job needs at least one rank");
    refused(&["-n", "x", "true"], 2).reports("-n x: expected a whole number from 1 to");
    refused(&["-n", "10000000", "true"], 2).reports("-n 10000000: one machine holds at most");
}

#[test]
fn a_missing_program_argument_error_shows_an_example() {
    refused(&["-n", "2"], 2)
        .reports("no program to start; type for example: rmpiexec -n 4 ./a.out");
}

#[test]
fn a_program_not_found_error_states_the_searched_path() {
    refused(&["-n", "2", "rmpi-no-such-program"], 127).reports("in PATH (looked in /");
    refused(&["-n", "2", "./rmpi-no-such-program"], 127).reports("(looked for /");
}

#[test]
fn a_program_in_the_current_folder_is_suggested() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy("/bin/true", folder.path().join("mine")).unwrap();
    let mut job = rmpiexec(["-n", "1", "mine"]);
    job.command.current_dir(folder.path());
    job.run().expect(127).reports("type ./mine");
}

#[test]
fn folders_and_non_executable_files_are_refused() {
    refused(&["-n", "1", "/etc"], 126).reports("/etc is a folder, not a program");
    refused(&["-n", "1", "/etc/passwd"], 126).reports("/etc/passwd is not executable");
}

#[test]
fn a_folder_that_cannot_be_entered_is_refused() {
    refused(&["-wdir", "/no/where", "-n", "1", "true"], 1)
        .reports("cannot start ranks in /no/where: no such file or directory");
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let arguments = ["-wdir", closed.to_str().unwrap(), "-n", "1", "true"];
    if nix::unistd::geteuid().is_root() {
        // Root may enter any folder, so the job runs as another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let copy = folder.path().join("rmpiexec");
        std::fs::copy(env!("CARGO_BIN_EXE_rmpiexec"), &copy).unwrap();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--clear-groups", copy.to_str().unwrap()])
            .args(arguments)
            .current_dir("/");
        common::Job::of(command)
            .run()
            .expect(1)
            .reports("closed: permission denied");
    } else {
        refused(&arguments, 1).reports("closed: permission denied");
    }
}

#[test]
fn a_missing_interpreter_is_distinguished_from_a_missing_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("prog");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let outcome = rmpiexec(["-n", "3", program.to_str().unwrap()])
        .run()
        .expect(127);
    let outcome = outcome.reports("could not be started: cannot execute");
    assert!(
        outcome
            .err
            .contains("the interpreter or loader that it names does not exist"),
        "{}",
        outcome.err
    );
}

#[test]
fn open_files_limit_error_states_both_numbers() {
    let line = format!(
        "ulimit -n 100; exec {} -n 64 true",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let outcome = common::Job::of(command).run().expect(1);
    assert!(
        outcome
            .err
            .contains("64 ranks need 296 open files in the launcher, the limit is 100"),
        "{}",
        outcome.err
    );
}

/// `rmpiexec` with these arguments, as the last command of a shell line.
fn after(line: &str, arguments: &str) -> common::Job {
    let line = format!(
        "{line}; exec {} {arguments}",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    common::Job::of(command)
}

#[test]
fn a_soft_file_size_limit_does_not_apply_to_shared_memory() {
    let outcome = after("ulimit -Sf 8", "-n 4 sh -c 'ulimit -Sf'")
        .run()
        .expect(0);
    assert_eq!(outcome.out, "8\n8\n8\n8\n");
    let expected =
        "the limit of file size is 4096 bytes: raise it (ulimit -Hf) or start fewer ranks";
    after("ulimit -f 8", "-n 4 true")
        .run()
        .expect(1)
        .reports(expected);
}

#[test]
fn open_files_limit_at_startup_error_has_a_remedy() {
    let outcome = after("ulimit -n 5", "-n 1 true").run().expect(1);
    outcome.reports("cannot start: too many open files; raise the limit of open files (ulimit -n)");
}

#[test]
fn a_removed_current_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let removed_folder = format!(
        "mkdir {0}/gone; cd {0}/gone; rmdir {0}/gone",
        folder.path().display()
    );
    let outcome = after(&removed_folder, "-n 1 true").run().expect(1);
    outcome.reports("cannot determine the current folder: no such file or directory; go to one that exists, or name one");
    let outcome = after(&removed_folder, "-wdir / -n 1 pwd").run().expect(0);
    assert_eq!(outcome.out, "/\n");
}

#[test]
fn a_too_small_process_limit_ends_the_job_cleanly() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    // The job runs as another user, since the limit does not apply to root.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let copy = folder.path().join("rmpiexec");
    std::fs::copy(env!("CARGO_BIN_EXE_rmpiexec"), &copy).unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--nproc=20", "setpriv", "--reuid=65533", "--clear-groups"]);
    command
        .arg(&copy)
        .args(["-n", "64", "sleep", "100"])
        .current_dir("/");
    let outcome = common::Job::of(command).run().expect(1);
    assert!(outcome.err.contains(" of 64 ranks: "), "{}", outcome.err);
    assert!(outcome.err.contains("ulimit -u"), "{}", outcome.err);
}

/// Builds an empty library with this soname and a program that needs it.
fn program_with(folder: &Path, soname: &str, tags: &str) -> String {
    let (source, library, program) = (
        folder.join("main.c"),
        folder.join(soname),
        folder.join("main"),
    );
    std::fs::write(
        &source,
        "#include <unistd.h>\nint main(void) { sleep(3); return 0; }\n",
    )
    .unwrap();
    let cc = |arguments: &[&str]| {
        assert!(
            Command::new("cc")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        )
    };
    let [source, library, program] =
        [&source, &library, &program].map(|path| path.to_str().unwrap());
    cc(&[
        "-shared",
        "-xc",
        "/dev/null",
        &format!("-Wl,-soname,{soname}"),
        "-o",
        library,
    ]);
    let rpath = format!("-Wl,-rpath,{},{tags}", folder.display());
    cc(&[
        source,
        "-Wl,--no-as-needed",
        "-xnone",
        library,
        &rpath,
        "-o",
        program,
    ]);
    program.to_owned()
}

#[test]
fn a_program_of_another_mpi_is_refused_for_more_than_one_rank() {
    let folder = tempfile::tempdir().unwrap();
    let program = program_with(folder.path(), "libmpi.so.40", "--enable-new-dtags");
    let outcome =
        refused(&["-n", "2", &program], 1).reports("needs libmpi.so.40, a library of Open MPI");
    assert!(
        outcome
            .err
            .contains("rank 0 of 1. Build the program with rmpicc"),
        "{}",
        outcome.err
    );
    rmpiexec(["-n", "1", &program]).run().expect(0);
}

#[test]
fn a_program_that_would_load_another_standard_library_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = program_with(folder.path(), "libmpi_abi.so.0", "--disable-new-dtags");
    let prefix = tempfile::tempdir().unwrap();
    let (bin, lib) = (prefix.path().join("bin"), prefix.path().join("lib"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&lib).unwrap();
    std::fs::write(lib.join("libmpi_abi.so.1"), "").unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_rmpiexec"), bin.join("rmpiexec")).unwrap();
    let mut command = Command::new(bin.join("rmpiexec"));
    command.args(["-n", "2", &program]);
    let outcome = common::Job::of(command).run().expect(1);
    assert!(
        outcome.err.contains("because it was linked with DT_RPATH"),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("-x LD_PRELOAD="), "{}", outcome.err);
}

#[test]
fn another_mpi_in_a_script_is_detected_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = program_with(folder.path(), "libmpi.so.40", "--enable-new-dtags");
    let script = format!("{program}; true");
    let outcome = rmpiexec(["-n", "3", "sh", "-c", &script]).run().expect(0);
    assert_eq!(
        outcome.err.matches("has loaded").count(),
        1,
        "{}",
        outcome.err
    );
    assert!(
        outcome.err.contains("libmpi.so.40, a library of Open MPI"),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("rank 0 of 1"), "{}", outcome.err);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = rmpiexec(["--help"]).run().expect(0);
    assert!(
        help.out.contains("Examples:\n  rmpiexec -n 64 ./a.out"),
        "{}",
        help.out
    );
    let version = rmpiexec(["-V"]).run().expect(0);
    assert!(version.out.starts_with("rmpiexec "), "{}", version.out);
}
