// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `rmpifort`, the compiled modules, the Fortran library and its PMPI names, with gfortran.
//!
//! PMPI-001, PMPI-003, PMPI-004, PMPI-005, PMPI-006.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{prefix, root, run, scratch, source, succeed};

/// The three Fortran interfaces: a name, the statement before `implicit none`, and the statement after it.
const METHODS: [(&str, &str, &str); 3] = [
    ("mpif", "", "include 'mpif.h'"),
    ("mpi", "use mpi", ""),
    ("f08", "use mpi_f08", ""),
];

/// A program for one of [`METHODS`] that sends itself a number.
fn program(method: (&str, &str, &str)) -> String {
    let (_, before, behind) = method;
    format!(
        "program to_itself\n  {before}\n  implicit none\n  {behind}\n\
         integer :: rank, got, ierror, version, subversion\n\
         call MPI_Init(ierror)\n\
         call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)\n\
         call MPI_Get_version(version, subversion, ierror)\n\
         call MPI_Send(version, 1, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, ierror)\n\
         call MPI_Recv(got, 1, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)\n\
         call MPI_Finalize(ierror)\n\
         print '(i0, a, i0)', got, '.', subversion\n\
         end program\n"
    )
}

fn wrapper(name: &str) -> Command {
    wrapper_of(prefix(), name)
}

fn wrapper_of(prefix: &Path, name: &str) -> Command {
    let mut command = Command::new(prefix.join("bin").join(name));
    command.env_remove("RMPI_FC");
    command
}

/// A copy of the installed tree that a test may modify.
fn copied_tree(folder: &Path) -> PathBuf {
    let tree = folder.join("rmpi");
    succeed(Command::new("cp").arg("-a").arg(prefix()).arg(&tree));
    tree
}

/// The dynamic symbols that a library defines, with their kind: `W` is weak, `T` strong.
fn defined(library: &str) -> Vec<(char, String)> {
    let library = prefix().join("lib").join(library);
    let listed = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let words = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .map(|words| (words[1].chars().next().unwrap(), words[2].to_owned()))
        .collect()
}

#[test]
fn each_fortran_wrapper_compiles_a_program_that_runs() {
    let folder = scratch("fortran-names");
    for (method, name) in METHODS.into_iter().zip(["mpif77", "mpif90", "rmpifort"]) {
        let file = source(&folder, &format!("{}.f90", method.0), &program(method));
        let made = folder.join(name);
        succeed(wrapper(name).arg("-o").arg(&made).arg(&file));
        assert_eq!(succeed(&mut Command::new(&made)), "5.0\n", "{name}");
    }
}

#[test]
fn a_statically_linked_fortran_program_needs_no_shared_mpi_library() {
    let folder = scratch("fortran-static");
    for method in METHODS {
        let file = source(&folder, &format!("{}.f90", method.0), &program(method));
        let made = folder.join(method.0);
        succeed(
            wrapper("rmpifort")
                .arg("-static-mpi")
                .arg("-o")
                .arg(&made)
                .arg(&file),
        );
        assert_eq!(succeed(&mut Command::new(&made)), "5.0\n", "{}", method.0);
        let loaded = succeed(Command::new("ldd").arg(&made));
        assert!(
            !loaded.contains("libmpi_abi") && !loaded.contains("librmpi"),
            "{loaded}"
        );
    }
}

#[test]
fn modules_are_compiled_once_and_installed_for_gfortran() {
    let listing = run(wrapper("rmpifort").arg("--modules"));
    let folder = String::from_utf8(listing.stdout).unwrap();
    let folder = Path::new(folder.trim());
    assert!(listing.stderr.is_empty() && folder.starts_with(prefix()));
    for file in ["mpi.mod", "mpi_f08.mod", "librmpi_modules.a"] {
        assert!(folder.join(file).is_file(), "{file}");
    }
}

#[test]
fn modules_go_into_the_cache_if_the_tree_is_read_only() {
    let folder = scratch("fortran-cache");
    let tree = copied_tree(&folder);
    let kept = tree.join("lib/rmpi/fortran");
    fs::remove_dir_all(&kept).unwrap();
    // A file in the place of the folder stops even root from making the folder.
    fs::write(&kept, "").unwrap();
    let cache = folder.join("cache");
    let file = source(&folder, "a.f90", &program(METHODS[2]));
    let compile = || {
        let mut compile = wrapper_of(&tree, "rmpifort");
        compile.env("XDG_CACHE_HOME", &cache).arg(&file);
        compile.arg("-o").arg(folder.join("a"));
        let done = run(&mut compile);
        assert!(done.status.success());
        String::from_utf8(done.stderr).unwrap()
    };
    let stderr = compile();
    assert!(
        stderr.starts_with("rmpifort: compiling the modules") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert!(stderr.contains(cache.to_str().unwrap()), "{stderr}");
    assert_eq!(compile(), "");
    assert_eq!(succeed(&mut Command::new(folder.join("a"))), "5.0\n");
    let shown = run(wrapper_of(&tree, "rmpifort")
        .env("XDG_CACHE_HOME", "/dev/null")
        .env_remove("HOME")
        .args(["-show", "a.f90"]));
    assert!(
        shown.status.success() && shown.stderr.is_empty(),
        "{shown:?}"
    );
}

#[test]
fn missing_fortran_compiler_error_names_the_compiler_and_the_remedy() {
    let missing = run(wrapper("rmpifort")
        .env("RMPI_FC", "no-such-compiler")
        .arg("a.f90"));
    let stderr = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(127), "{stderr}");
    assert!(
        stderr.contains("there is no Fortran compiler `no-such-compiler`"),
        "{stderr}"
    );
    assert!(stderr.contains("RMPI_FC or -fc="), "{stderr}");
}

/// A program that calls one procedure with buffers of different types, as programs with `mpif.h` do; gfortran has
/// rejected this since version 10.
const OLD_PROGRAM: &str = "      program old
      implicit none
      include 'mpif.h'
      integer rank, ierror, number, requests(2)
      double precision weight, got
      call MPI_Init(ierror)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
      call MPI_Irecv(number, 1, MPI_INTEGER, rank, 0,
     &  MPI_COMM_WORLD, requests(1), ierror)
      call MPI_Irecv(got, 1, MPI_DOUBLE_PRECISION, rank, 1,
     &  MPI_COMM_WORLD, requests(2), ierror)
      weight = 2.5d0
      call MPI_Send(7, 1, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, ierror)
      call MPI_Send(weight, 1, MPI_DOUBLE_PRECISION, rank, 1,
     &  MPI_COMM_WORLD, ierror)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
      print '(i0, 1x, f3.1)', number, got
      call MPI_Finalize(ierror)
      end
";

#[test]
fn legacy_fortran_with_mismatched_buffer_types_compiles() {
    let folder = scratch("fortran-old");
    let file = source(&folder, "old.f", OLD_PROGRAM);
    let made = folder.join("old");
    for name in ["rmpifort", "mpif77"] {
        succeed(wrapper(name).arg("-o").arg(&made).arg(&file));
        assert_eq!(succeed(&mut Command::new(&made)), "7 2.5\n", "{name}");
    }
    // The caller can still request the compiler's check.
    let mut strict = wrapper("rmpifort");
    strict.arg("-fno-allow-argument-mismatch").arg("-o");
    let refused = run(strict.arg(&made).arg(&file));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{stderr}");
    assert!(stderr.contains("Type mismatch"), "{stderr}");
    // The wrapper's option is invalid for C, so it must not be added for a C file.
    let file = source(&folder, "part.c", "int part(void) { return 7; }\n");
    let mut mixed = wrapper("rmpifort");
    mixed.args(["-Wall", "-Werror", "-c", "-o"]);
    succeed(mixed.arg(folder.join("part.o")).arg(&file));
}

#[test]
fn pkg_config_flags_compile_with_gfortran() {
    let folder = scratch("fortran-pkgconfig");
    let mut query = Command::new("pkg-config");
    query.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = succeed(query.args(["--cflags", "--libs", "rmpi-fortran"]));
    for method in METHODS {
        let file = source(&folder, &format!("{}.f90", method.0), &program(method));
        let made = folder.join(method.0);
        let mut compile = Command::new("gfortran");
        compile.arg("-o").arg(&made).arg(&file);
        succeed(compile.args(flags.split_whitespace()));
        assert_eq!(succeed(&mut Command::new(&made)), "5.0\n", "{}", method.0);
    }
}

const CMAKE: &str = "cmake_minimum_required(VERSION 3.16)\nproject(probe Fortran)\n\
    find_package(MPI REQUIRED COMPONENTS Fortran)\n\
    message(STATUS \"has: ${MPI_Fortran_HAVE_F77_HEADER} ${MPI_Fortran_HAVE_F90_MODULE} ${MPI_Fortran_HAVE_F08_MODULE}\")\n\
    foreach(method mpif mpi f08)\n\
    add_executable(${method} ${method}.f90)\ntarget_link_libraries(${method} MPI::MPI_Fortran)\n\
    endforeach()\n";

#[test]
fn cmake_findmpi_finds_all_three_fortran_interfaces() {
    let folder = scratch("fortran-cmake");
    source(&folder, "CMakeLists.txt", CMAKE);
    for method in METHODS {
        source(&folder, &format!("{}.f90", method.0), &program(method));
    }
    let build = folder.join("build");
    let ours = copied_tree(&folder);
    // FindMPI searches in the folder of the first mpiexec in PATH. The installed library has no mpiexec, so a link
    // stands in for it.
    symlink("rmpicc", ours.join("bin/mpiexec")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", ours.join("bin").display());
    let cmake = || {
        let mut command = Command::new("cmake");
        command
            .env("PATH", &path)
            .env_remove("MPI_HOME")
            .env_remove("FC");
        command
    };
    let stdout = succeed(cmake().arg("-S").arg(&folder).arg("-B").arg(&build));
    assert!(stdout.contains("has: TRUE TRUE TRUE"), "{stdout}");
    succeed(cmake().arg("--build").arg(&build));
    for (method, ..) in METHODS {
        assert_eq!(
            succeed(&mut Command::new(build.join(method))),
            "5.0\n",
            "{method}"
        );
    }
}

/// Names of the procedures that a module's source declares, in lower case like linker names.
fn procedures(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("runtime/fortran/gen").join(file)).unwrap();
    let starts = |line: &str| {
        let line = line.trim().to_lowercase();
        let rest = match line.strip_prefix("subroutine ") {
            Some(rest) => rest.to_owned(),
            // The elemental functions, operators for handles, are not in the library: they are compiled into the
            // modules.
            None if line.starts_with("end ") || line.starts_with("elemental") => return None,
            None => line.split_once("function ")?.1.to_owned(),
        };
        let name = rest.split('(').next()?.trim().to_owned();
        let is_mpi = name.starts_with("mpi_") || name.starts_with("pmpi_");
        is_mpi.then_some(name)
    };
    text.lines().filter_map(starts).collect()
}

#[test]
fn pmpi_001_003_every_fortran_procedure_has_a_weak_mpi_and_a_pmpi_name() {
    let symbols: BTreeSet<(char, String)> = defined("librmpi_fortran.so.1").into_iter().collect();
    let has = |kind: char, name: &str| symbols.contains(&(kind, name.to_owned()));
    let names: BTreeSet<&String> = symbols.iter().map(|(_, name)| name).collect();
    // Callback functions, such as MPI_COMM_DUP_FN, are not called by programs.
    let called = |name: &&String| {
        let is_callback = name.ends_with("_fn_") || name.contains("_fn_null_");
        name.starts_with("mpi_") && !is_callback
    };
    let mut missing = Vec::new();
    for name in names.iter().copied().filter(called) {
        if !has('W', name) || !has('T', &format!("p{name}")) {
            missing.push(name.clone());
        }
    }
    for name in names.iter().filter_map(|name| name.strip_prefix('p')) {
        if !names.contains(&name.to_owned()) {
            missing.push(format!("{name}, which has only the name for tools"));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    // Every procedure that a module declares can be linked.
    let of_mpi = procedures("mpi.f90");
    let of_f08 = procedures("mpi_f08.f90");
    assert!(
        of_mpi.len() > 700 && of_f08.len() > 900,
        "{} {}",
        of_mpi.len(),
        of_f08.len()
    );
    for name in of_mpi.iter().chain(&of_f08) {
        let is_ours = names.contains(&format!("{name}_"));
        // These names are not in the library: they are code in the modules themselves, or types of callbacks.
        let is_modules = name.contains("sizeof") || name.contains("_function");
        assert!(
            is_ours || is_modules,
            "{name} is declared and cannot be linked"
        );
    }
    for name in of_mpi.iter().filter(|name| name.starts_with("mpi_")) {
        assert!(
            of_mpi.contains(&format!("p{name}")),
            "{name} has no name for tools"
        );
    }
    assert!(of_f08.contains("mpi_send_f08") && of_f08.contains("pmpi_send_c_f08"));
}

/// A tool in Fortran for one of [`METHODS`]: a procedure that replaces `MPI_Send`, prints a line, and calls
/// `PMPI_Send`.
fn fortran_tool(method: (&str, &str, &str)) -> String {
    // The module also declares the procedure that the tool defines, so the tool imports only other names.
    let (replaced, before, behind) = match method.0 {
        "mpif" => ("MPI_Send", "", "external PMPI_Send"),
        "mpi" => ("MPI_Send", "use mpi, only: PMPI_Send", ""),
        _ => (
            "MPI_Send_f08",
            "use mpi_f08, only: PMPI_Send, MPI_Datatype, MPI_Comm",
            "",
        ),
    };
    let (datatype, comm, optional) = match method.0 {
        "f08" => ("type(MPI_Datatype)", "type(MPI_Comm)", ", optional"),
        _ => ("integer", "integer", ""),
    };
    format!(
        "subroutine {replaced}(buf, count, datatype, dest, tag, comm, ierror)\n\
         {before}\nimplicit none\n{behind}\n\
         integer :: buf(*), count, dest, tag\n{datatype} :: datatype\n{comm} :: comm\n\
         integer{optional} :: ierror\n\
         print '(a)', 'a tool in Fortran'\n\
         call PMPI_Send(buf, count, datatype, dest, tag, comm, ierror)\n\
         end subroutine\n"
    )
}

#[test]
fn pmpi_003_a_fortran_tool_replaces_a_procedure_of_each_interface() {
    let folder = scratch("fortran-tools");
    for method in METHODS {
        let file = source(&folder, &format!("{}.f90", method.0), &program(method));
        let tool = source(
            &folder,
            &format!("tool_{}.f90", method.0),
            &fortran_tool(method),
        );
        for word in ["-O", "-static-mpi"] {
            let made = folder.join(format!("{}{word}", method.0));
            succeed(
                wrapper("rmpifort")
                    .arg(word)
                    .arg("-o")
                    .arg(&made)
                    .arg(&file)
                    .arg(&tool),
            );
            let stdout = succeed(&mut Command::new(&made));
            assert_eq!(stdout, "a tool in Fortran\n5.0\n", "{} {word}", method.0);
        }
    }
}

const C_TOOL: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int MPI_Send(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)\n\
    { puts(\"a tool in C\"); fflush(stdout); return PMPI_Send(b, n, t, to, tag, c); }\n";

#[test]
fn pmpi_005_a_c_tool_intercepts_each_fortran_call_once() {
    let folder = scratch("fortran-c-tool");
    let tool = folder.join("tool.so");
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    compile.args(["-shared", "-fPIC", "-o"]).arg(&tool);
    succeed(compile.arg(source(&folder, "tool.c", C_TOOL)));
    for method in METHODS {
        let file = source(&folder, &format!("{}.f90", method.0), &program(method));
        let made = folder.join(method.0);
        succeed(wrapper("rmpifort").arg("-o").arg(&made).arg(&file));
        let stdout = succeed(Command::new(&made).env("LD_PRELOAD", &tool));
        assert_eq!(stdout, "a tool in C\n5.0\n", "{}", method.0);
    }
}

/// A function in C to which a Fortran program passes its constants.
const C_PART: &str = "#include <mpi.h>\n\
    int mine_(MPI_Fint *one, MPI_Fint *several) {\n\
    return one == MPI_F_STATUS_IGNORE && several == MPI_F_STATUSES_IGNORE && one == (MPI_Fint *) MPI_F08_STATUS_IGNORE\n\
    && several == (MPI_Fint *) MPI_F08_STATUSES_IGNORE; }\n";

#[test]
fn s19_3_5_c_variables_hold_fortrans_status_ignore_addresses() {
    let folder = scratch("fortran-ignored");
    let object = folder.join("c.o");
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    compile.args(["-c", "-o"]).arg(&object);
    succeed(compile.arg(source(&folder, "c.c", C_PART)));
    let text = "program constants\n  implicit none\n  include 'mpif.h'\n  integer, external :: mine\n\
                integer :: major, minor, ierror\n\
                call MPI_Get_version(major, minor, ierror)\n\
                print '(i0)', mine(MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE)\nend program\n";
    let file = source(&folder, "f.f90", text);
    for how in [
        &[][..],
        &["-static-libgfortran", "-fPIE", "-pie"],
        &["-no-pie"],
    ] {
        let made = folder.join("program");
        let mut link = wrapper("rmpifort");
        link.args(how).arg("-o").arg(&made).arg(&file).arg(&object);
        succeed(&mut link);
        assert_eq!(succeed(&mut Command::new(&made)), "1\n", "{how:?}");
    }
}

#[test]
fn pmpi_006_the_fortran_library_calls_only_public_c_functions() {
    let folder = scratch("fortran-separable");
    let made = folder.join("a");
    let text = "#include <mpi.h>\nint main(void) { return MPI_Init(0, 0) || MPI_Finalize(); }\n";
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    succeed(
        compile
            .arg("-o")
            .arg(&made)
            .arg(source(&folder, "a.c", text)),
    );
    let loaded = succeed(Command::new("ldd").arg(&made));
    assert!(
        loaded.contains("libmpi_abi") && !loaded.contains("fortran"),
        "{loaded}"
    );
    let c: BTreeSet<String> = defined("libmpi_abi.so.1")
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    assert!(
        !c.iter()
            .any(|name| name.starts_with("mpi_") || name.starts_with("pmpi_"))
    );
    let header = fs::read_to_string(prefix().join("include/mpi.h")).unwrap();
    let library = prefix().join("lib/librmpi_fortran.so.1");
    let needed = succeed(
        Command::new("nm")
            .args(["-D", "--undefined-only"])
            .arg(library),
    );
    let called: Vec<&str> = needed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| c.contains(*name))
        .collect();
    assert!(called.len() > 300, "{called:?}");
    for name in &called {
        // The header declares the name as a function, or as a variable that the Fortran library fills in.
        let is_declared = [format!(" {name}("), format!(" *{name};")];
        let is_declared = is_declared.iter().any(|it| header.contains(it));
        assert!(is_declared, "{name} is not in mpi.h");
        // A call by the PMPI name bypasses tools, which is right only for calls that the library makes for itself. For
        // the program's calls it must use the MPI name too.
        if let Some(public) = name.strip_prefix('P') {
            assert!(
                called.contains(&public),
                "{name} is called, and {public} is not"
            );
        }
    }
}
