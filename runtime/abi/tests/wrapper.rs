// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `rmpicc`, `rmpicxx`, the pkg-config file and CMake's FindMPI, with real compilers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{prefix, run, scratch, source, succeed};

const C: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(void) { int a, b; MPI_Get_version(&a, &b); printf(\"%d.%d\\n\", a, b); return 0; }\n";
const CXX: &str = "#include <mpi.h>\n#include <iostream>\n\
    int main() { int a, b; MPI_Get_version(&a, &b); std::cout << a << '.' << b << std::endl; }\n";

fn wrapper(name: &str) -> Command {
    let mut command = Command::new(prefix().join("bin").join(name));
    command.env_remove("RMPI_CC").env_remove("RMPI_CXX");
    command
}

#[test]
fn each_wrapper_compiles_a_program_that_runs() {
    let folder = scratch("names");
    for (names, file, text) in [
        (&["rmpicc", "mpicc"][..], "a.c", C),
        (&["rmpicxx", "mpicxx", "mpic++"][..], "a.cc", CXX),
    ] {
        let file = source(&folder, file, text);
        for name in names {
            let program = folder.join(name);
            succeed(
                wrapper(name)
                    .args(["-Wall", "-Wextra", "-Werror", "-o"])
                    .arg(&program)
                    .arg(&file),
            );
            assert_eq!(succeed(&mut Command::new(&program)), "5.0\n", "{name}");
        }
    }
}

#[test]
fn programs_get_a_runpath_and_no_rpath() {
    let folder = scratch("runpath");
    let program = folder.join("program");
    succeed(
        wrapper("rmpicc")
            .arg("-o")
            .arg(&program)
            .arg(source(&folder, "a.c", C)),
    );
    let dynamic = succeed(Command::new("readelf").arg("-dW").arg(&program));
    let lib = prefix().join("lib");
    let runpath = dynamic
        .lines()
        .find(|line| line.contains("(RUNPATH)"))
        .unwrap();
    assert!(runpath.contains(lib.to_str().unwrap()), "{dynamic}");
    assert!(!dynamic.contains("(RPATH)"), "{dynamic}");
}

#[test]
fn compile_only_does_not_link_and_the_object_links_later() {
    let folder = scratch("steps");
    let (object, program) = (folder.join("a.o"), folder.join("a"));
    succeed(
        wrapper("rmpicc")
            .args(["-c", "-Werror", "-o"])
            .arg(&object)
            .arg(source(&folder, "a.c", C)),
    );
    succeed(wrapper("rmpicc").arg("-o").arg(&program).arg(&object));
    assert_eq!(succeed(&mut Command::new(program)), "5.0\n");
    let shown = succeed(wrapper("rmpicc").args(["-show", "-c", "a.c"]));
    assert!(!shown.contains("mpi_abi"), "{shown}");
}

#[test]
fn compiler_exit_code_and_output_are_passed_through() {
    let folder = scratch("codes");
    let bad = run(wrapper("rmpicc").arg("-c").arg(source(
        &folder,
        "bad.c",
        "int main(void) { return x; }\n",
    )));
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("bad.c"));
    let compiler = fake_compiler(&folder, "exit 42");
    let odd = run(wrapper("rmpicc").env("RMPI_CC", compiler).arg("x.c"));
    assert_eq!(odd.status.code(), Some(42));
    let version = succeed(wrapper("rmpicc").arg("--version"));
    assert_eq!(version, succeed(Command::new("cc").arg("--version")));
}

#[test]
fn every_argument_reaches_the_compiler_unchanged() {
    let folder = scratch("arguments");
    let compiler = fake_compiler(&folder, "for word; do printf '<%s>\\n' \"$word\"; done");
    let odd = [
        "-DX=a b",
        "-DY=\"$z\"",
        "",
        "-c",
        "it's.c",
        "@x",
        "-Wl,-z,now",
    ];
    let shown = succeed(wrapper("rmpicc").env("RMPI_CC", compiler).args(odd));
    let after: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(
        after,
        [
            "<-DX=a b>",
            "<-DY=\"$z\">",
            "<>",
            "<-c>",
            "<it's.c>",
            "<@x>",
            "<-Wl,-z,now>"
        ]
    );
}

#[test]
fn missing_compiler_and_wrapper_as_its_own_compiler_are_errors() {
    let missing = run(wrapper("rmpicc")
        .env("RMPI_CC", "no-such-compiler")
        .arg("a.c"));
    let stderr = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(127), "{stderr}");
    assert!(
        stderr.contains("there is no C compiler `no-such-compiler`") && stderr.contains("RMPI_CC"),
        "{stderr}"
    );
    let own = prefix().join("bin/mpicc");
    let itself = run(wrapper("rmpicc").env("RMPI_CC", own).arg("a.c"));
    assert!(String::from_utf8_lossy(&itself.stderr).contains("RMPI_CC names the wrapper itself"));
}

#[test]
fn the_cc_option_selects_the_compiler() {
    let folder = scratch("option");
    let compiler = fake_compiler(&folder, "echo chosen");
    let option = format!("-cc={}", compiler.display());
    assert_eq!(
        succeed(
            wrapper("rmpicc")
                .env("RMPI_CC", "false")
                .args([&option, "a.c"])
        ),
        "chosen\n"
    );
}

#[test]
fn a_moved_tree_works_through_a_symlink() {
    let folder = scratch("moved place");
    let moved = folder.join("rmpi");
    succeed(Command::new("cp").arg("-a").arg(prefix()).arg(&moved));
    let link = folder.join("mpicc");
    symlink(moved.join("bin/mpicc"), &link).unwrap();
    let program = folder.join("program");
    succeed(
        Command::new(&link)
            .arg("-o")
            .arg(&program)
            .arg(source(&folder, "a.c", C)),
    );
    assert_eq!(succeed(&mut Command::new(&program)), "5.0\n");
    let loaded = succeed(Command::new("ldd").arg(&program));
    assert!(loaded.contains(moved.to_str().unwrap()), "{loaded}");
}

#[test]
fn a_wrapper_outside_an_installed_tree_is_an_error() {
    let folder = scratch("lost/bin");
    fs::copy(prefix().join("bin/rmpicc"), folder.join("rmpicc")).unwrap();
    let lost = run(Command::new(folder.join("rmpicc")).arg("a.c"));
    assert!(
        String::from_utf8_lossy(&lost.stderr).contains("cargo xtask install"),
        "{lost:?}"
    );
}

#[test]
fn pkg_config_flags_point_at_the_installed_tree() {
    let folder = scratch("pkgconfig");
    let flags_of = |name: &str| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        succeed(command.args(["--cflags", "--libs", name]))
    };
    assert_eq!(flags_of("rmpi"), flags_of("mpi"));
    let program = folder.join("program");
    let mut compile = Command::new("cc");
    compile
        .arg("-o")
        .arg(&program)
        .arg(source(&folder, "a.c", C))
        .args(flags_of("rmpi").split_whitespace());
    succeed(&mut compile);
    assert_eq!(succeed(&mut Command::new(&program)), "5.0\n");
}

const CMAKE: &str = "cmake_minimum_required(VERSION 3.16)\nproject(probe C CXX)\n\
    find_package(MPI REQUIRED COMPONENTS C CXX)\n\
    message(STATUS \"versions: ${MPI_C_VERSION} ${MPI_CXX_VERSION}\")\n\
    add_executable(in_c a.c)\ntarget_link_libraries(in_c MPI::MPI_C)\n\
    add_executable(in_cxx a.cc)\ntarget_link_libraries(in_cxx MPI::MPI_CXX)\n";

#[test]
fn cmake_findmpi_finds_the_wrappers_and_its_targets_run() {
    let folder = scratch("cmake");
    source(&folder, "CMakeLists.txt", CMAKE);
    source(&folder, "a.c", C);
    source(&folder, "a.cc", CXX);
    let build = folder.join("build");
    // FindMPI searches in the folder of the first mpiexec in PATH. The installed library has no mpiexec.
    let ours = folder.join("rmpi");
    succeed(Command::new("cp").arg("-a").arg(prefix()).arg(&ours));
    symlink("rmpicc", ours.join("bin/mpiexec")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", ours.join("bin").display());
    let cmake = || {
        let mut command = Command::new("cmake");
        command
            .env("PATH", &path)
            .env_remove("MPI_HOME")
            .env_remove("CC")
            .env_remove("CXX");
        command
    };
    let stdout = succeed(cmake().arg("-S").arg(&folder).arg("-B").arg(&build));
    assert!(stdout.contains("versions: 5.0 5.0"), "{stdout}");
    let cache = fs::read_to_string(build.join("CMakeCache.txt")).unwrap();
    let ours = ours.to_str().unwrap();
    for line in cache.lines().filter(|line| {
        line.starts_with("MPI_C_COMPILER:") || line.starts_with("MPI_mpi_abi_LIBRARY:")
    }) {
        assert!(line.contains(ours), "{line}");
    }
    succeed(cmake().arg("--build").arg(&build));
    for program in ["in_c", "in_cxx"] {
        assert_eq!(
            succeed(&mut Command::new(build.join(program))),
            "5.0\n",
            "{program}"
        );
    }
}

/// A Makefile like that of the Intel MPI Benchmarks and others: it adds an option only for the compiler names in its
/// list.
const MAKEFILE: &str = "ifneq (,$(filter mpicc mpicxx,$(notdir $(CC))))
override CFLAGS += -fopenmp
endif
ifneq (,$(filter mpicc mpicxx,$(notdir $(CXX))))
override CXXFLAGS += -fopenmp
endif
all: in_c in_cxx
in_c: threads.c
\t$(CC) $(CFLAGS) -o $@ threads.c
in_cxx: threads.cc
\t$(CXX) $(CXXFLAGS) -o $@ threads.cc
";

const THREADS: &str = "#include <mpi.h>\n#include <omp.h>\n#include <stdio.h>\nint main(int argc, char **argv)\n{\n\
    int got, count = 0;\n\
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &got);\n\
    omp_set_num_threads(3);\n\
    _Pragma(\"omp parallel reduction(+ : count)\") count += 1;\n\
    printf(\"%d threads\\n\", count);\n\
    MPI_Finalize();\n    return 0;\n}\n";

#[test]
fn makefiles_that_detect_mpicc_by_name_add_openmp() {
    let folder = scratch("wrapper-makefile");
    source(&folder, "Makefile", MAKEFILE);
    source(&folder, "threads.c", THREADS);
    source(&folder, "threads.cc", THREADS);
    let bin = prefix().join("bin");
    let make = |[c, cxx]: [&str; 2], more: &[&str]| {
        let mut make = Command::new("make");
        make.arg("-C").arg(&folder).arg("-B");
        make.arg(format!("CC={}", bin.join(c).display()));
        make.arg(format!("CXX={}", bin.join(cxx).display()));
        succeed(make.args(more).env_remove("MAKEFLAGS"));
        ["in_c", "in_cxx"].map(|name| succeed(&mut Command::new(folder.join(name))))
    };
    let threads = ["3 threads\n", "3 threads\n"];
    assert_eq!(make(["mpicc", "mpicxx"], &[]), threads);
    // With rmpi's names the option must be given, as documented in docs/build.md.
    let flags = ["CFLAGS=-fopenmp", "CXXFLAGS=-fopenmp"];
    assert_eq!(make(["rmpicc", "rmpicxx"], &flags), threads);
}

#[test]
fn cmake_accepts_the_wrappers_as_its_compilers() {
    let folder = scratch("cmake-compiler");
    source(
        &folder,
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.16)\nproject(probe C CXX)\nadd_executable(in_c a.c)\nadd_executable(in_cxx a.cc)\n",
    );
    source(&folder, "a.c", C);
    source(&folder, "a.cc", CXX);
    let build = folder.join("build");
    let bin = prefix().join("bin");
    let mut configure = Command::new("cmake");
    configure.arg(format!(
        "-DCMAKE_C_COMPILER={}",
        bin.join("mpicc").display()
    ));
    configure.arg(format!(
        "-DCMAKE_CXX_COMPILER={}",
        bin.join("mpicxx").display()
    ));
    succeed(configure.arg("-S").arg(&folder).arg("-B").arg(&build));
    succeed(Command::new("cmake").arg("--build").arg(&build));
    assert_eq!(succeed(&mut Command::new(build.join("in_cxx"))), "5.0\n");
}

/// A shell script in place of a compiler.
fn fake_compiler(folder: &Path, line: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = source(folder, "compiler", &format!("#!/bin/sh\n{line}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}
