// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask install`: builds rmpi and installs it as a tree that can be moved as a whole.

mod dpdk;
mod fortran;
mod mqs;
mod qmp;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::show;
use crate::tree::{cargo, command, find_program, make_folder, prefix, root, target};

const HELP: &str = "\
cargo xtask install [--prefix DIR] [--library-only] [--quick]

Builds and installs rmpi into DIR (target/rmpi unless given): bin, include, lib, libexec, share.
  --library-only   the libraries, their headers and the compiler wrappers, without launcher and benchmarks
  --quick          not optimized: quick to build, for tests of what is exported";

/// What to install, and how it is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Choice {
    library_only: bool,
    quick: bool,
}

impl Choice {
    /// The cargo profile and the name of its output folder.
    fn profile(self) -> (&'static str, &'static str) {
        if self.quick {
            ("dev", "debug")
        } else {
            ("release", "release")
        }
    }
}

/// An installed program: its package, its file, its other names, whether `--library-only` installs it, and whether it
/// keeps debug information because debuggers need it.
struct Program {
    package: &'static str,
    file: &'static str,
    links: &'static [&'static str],
    with_library: bool,
    is_debugged: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        package: "rmpicc",
        file: "rmpicc",
        links: &[
            "mpicc", "rmpicxx", "mpicxx", "mpic++", "rmpifort", "mpifort", "mpif90", "mpif77",
        ],
        with_library: true,
        is_debugged: false,
    },
    Program {
        package: "launcher",
        file: "rmpiexec",
        links: &["mpiexec", "mpirun"],
        with_library: false,
        is_debugged: true,
    },
    Program {
        package: "rmpi-info",
        file: "rmpi-info",
        links: &[],
        with_library: false,
        is_debugged: false,
    },
    Program {
        package: "rmpi-queues",
        file: "rmpi-queues",
        links: &[],
        with_library: false,
        is_debugged: false,
    },
    Program {
        package: "bench",
        file: "rmpi-bench",
        links: &[],
        with_library: false,
        is_debugged: false,
    },
    Program {
        package: "bench",
        file: "rmpi-compare",
        links: &[],
        with_library: false,
        is_debugged: false,
    },
];

/// `cargo xtask install`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let mut choice = Choice {
        library_only: false,
        quick: false,
    };
    let mut into = prefix();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            "--library-only" => choice.library_only = true,
            "--quick" => choice.quick = true,
            "--prefix" => into = folder(args.next().ok_or("--prefix needs a folder")?)?,
            other => match other.strip_prefix("--prefix=") {
                Some(path) => into = folder(path)?,
                None => return Err(format!("`{other}` is no option of install\n{HELP}")),
            },
        }
    }
    install(&into, choice)?;
    println!("installed into {}", into.display());
    println!(
        "put {} first in PATH, then: rmpicc -O2 -o hello hello.c && rmpiexec -n 4 ./hello",
        into.join("bin").display()
    );
    Ok(())
}

/// Builds optimized and installs everything into `prefix`.
pub(crate) fn build(prefix: &Path) -> Result<(), String> {
    install(
        prefix,
        Choice {
            library_only: false,
            quick: false,
        },
    )
}

/// Makes a folder's path absolute; a relative path counts from the caller's working directory.
fn folder(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("--prefix needs a folder, it was given an empty name".into());
    }
    std::path::absolute(path).map_err(|why| format!("--prefix {path}: {why}"))
}

fn install(prefix: &Path, choice: Choice) -> Result<(), String> {
    compiler()?;
    let programs: Vec<&Program> = PROGRAMS
        .iter()
        .filter(|p| p.with_library || !choice.library_only)
        .collect();
    compile(choice, &programs)?;
    let built = target().join(choice.profile().1);
    for folder in ["bin", "include", "lib/pkgconfig"] {
        make_folder(&prefix.join(folder))?;
    }
    for header in ["mpi.h", "qmpi.h"] {
        copy(
            &root().join("runtime/abi/gen").join(header),
            &prefix.join("include").join(header),
        )?;
    }
    copy_folder("runtime/abi/examples", &prefix.join("share/rmpi/tools"))?;
    library(&built, prefix, choice)?;
    fortran::install(&built, prefix, choice.quick)?;
    qmp::install(&built, prefix, choice.quick)?;
    mqs::install(prefix)?;
    dpdk::install(prefix)?;
    package_config(prefix)?;
    for program in programs {
        let to = prefix.join("bin").join(program.file);
        copy(&built.join(program.file), &to)?;
        for link in program.links {
            relink(program.file, &prefix.join("bin").join(link))?;
        }
    }
    fortran::modules(prefix)?;
    if choice.library_only {
        return Ok(());
    }
    statistics(prefix)?;
    documents(prefix)?;
    benchmarks(prefix)
}

/// Builds the libraries that `rmpiexec --stats` and `--stats-calls` preload into the ranks. They are not linked with an
/// MPI library: at run time they find the rank's MPI library.
fn statistics(prefix: &Path) -> Result<(), String> {
    let folder = prefix.join("lib/rmpi");
    make_folder(&folder)?;
    for name in ["rmpi_stats", "rmpi_calls"] {
        let fresh = folder.join(format!(".lib{name}.so.new"));
        let mut build = command("cc");
        build.args([
            "-std=c11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-s",
        ]);
        build.args(["-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack", "-ldl", "-I"]);
        build.arg(root().join("runtime/abi/gen"));
        build.arg(root().join(format!("launcher/stats/{name}.c")));
        build.arg("-o").arg(&fresh);
        show(build)?;
        rename(&fresh, &folder.join(format!("lib{name}.so")))?;
    }
    Ok(())
}

/// Installs man pages and shell completions, under the names for which man and the shells look.
fn documents(prefix: &Path) -> Result<(), String> {
    for (program, sources) in [
        ("rmpiexec", "launcher/share"),
        ("rmpi-info", "launcher/share"),
        ("rmpi-queues", "mqs/share"),
    ] {
        for (extension, folder, name) in DOCUMENTS {
            let folder = prefix.join("share").join(folder);
            make_folder(&folder)?;
            let file = format!("{program}.{extension}");
            let from = root().join(sources).join(&file);
            copy(&from, &folder.join(name.replace('*', program)))?;
        }
    }
    // `rm_rmpi.conf` is for LaunchMON, which reads descriptions of launchers from files.
    let folder = prefix.join("share/rmpi/launchmon");
    make_folder(&folder)?;
    let file = "rm_rmpi.conf";
    copy(
        &root().join("launcher/share").join(file),
        &folder.join(file),
    )
}

/// Copies the files of a folder of the tree.
fn copy_folder(from: &str, to: &Path) -> Result<(), String> {
    let from = root().join(from);
    make_folder(to)?;
    let files = fs::read_dir(&from);
    let files = files.map_err(|why| format!("cannot list {}: {why}", from.display()))?;
    for file in files.flatten() {
        copy(&file.path(), &to.join(file.file_name()))?;
    }
    Ok(())
}

/// For each kind of document: its extension, its folder below `share`, and its name there, with `*` for the program.
const DOCUMENTS: [(&str, &str, &str); 4] = [
    ("1", "man/man1", "*.1"),
    ("bash", "bash-completion/completions", "*"),
    ("zsh", "zsh/site-functions", "_*"),
    ("fish", "fish/vendor_completions.d", "*.fish"),
];

/// Checks that there is a C compiler, which links the libraries and which the wrappers call, before anything is built.
fn compiler() -> Result<(), String> {
    match find_program("cc") {
        Some(_) => Ok(()),
        None => {
            Err("there is no C compiler `cc`; install one: apt-get install gcc libc6-dev".into())
        }
    }
}

fn compile(choice: Choice, programs: &[&Program]) -> Result<(), String> {
    let profile = ["--quiet", "--profile", choice.profile().0];
    let mut build = cargo();
    build.arg("build").args(profile);
    build.args(["-p", "libmpi", "-p", "mpi-fortran", "-p", "qmp", "--lib"]);
    let (debugged, others): (Vec<&Program>, _) = programs.iter().partition(|p| p.is_debugged);
    for program in others {
        build.args(["-p", program.package, "--bin", program.file]);
    }
    show(build)?;
    for program in debugged {
        let mut build = cargo();
        build.arg("rustc").args(profile);
        build.args(["-p", program.package, "--bin", program.file]);
        // Cargo strips all debug information from a release build. Debuggers need the DWARF entries of the variables of
        // MPIR, which `launcher/src/mpir.rs` has as assembler text.
        build.args(["--", "-C", "strip=none"]);
        show(build)?;
    }
    Ok(())
}

/// `libmpi_abi.a` as cargo made it, and `libmpi_abi.so.1` linked from it.
fn library(built: &Path, prefix: &Path, choice: Choice) -> Result<(), String> {
    let archive = built.join("librmpi_static.a");
    let lib = prefix.join("lib");
    copy(&archive, &lib.join("libmpi_abi.a"))?;
    let shared = lib.join(SHARED);
    let fresh = lib.join(format!(".{SHARED}.new"));
    let mut link = link_command(&archive, &fresh);
    if !choice.quick {
        link.arg("-Wl,--strip-debug");
    }
    show(link)?;
    rename(&fresh, &shared)?;
    // `.so` is for the linker, `.so.0` for programs that were built with an MPI whose standard ABI library has this
    // name.
    for link in ["libmpi_abi.so", "libmpi_abi.so.0"] {
        relink(SHARED, &lib.join(link))?;
    }
    Ok(())
}

const SHARED: &str = "libmpi_abi.so.1";

fn link_command(archive: &Path, to: &Path) -> Command {
    let script = root().join("runtime/abi/gen/libmpi_abi.map");
    let mut link = shared_library(archive, &script, SHARED, to);
    link.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lrt"]);
    link.arg(STAYS);
    link
}

/// The library is never unloaded, because its threads and signal handlers may be running.
const STAYS: &str = "-Wl,-z,nodelete";

/// Links a shared library from cargo's static one; the caller adds the libraries that it needs.
///
/// It contains only what the entry points reach. Its symbols are bound when it is loaded, so that no first call is
/// slow. Calls within the library are not interposed.
fn shared_library(archive: &Path, script: &Path, name: &str, to: &Path) -> Command {
    let mut link = command("cc");
    link.args(["-shared", "-o"]).arg(to);
    link.arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive");
    link.arg(format!("-Wl,--version-script={}", script.display()));
    link.arg(format!("-Wl,-soname,{name}"));
    link.args([
        "-Wl,--gc-sections",
        "-Wl,-z,relro,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,-Bsymbolic-functions",
        "-Wl,--hash-style=gnu",
        "-Wl,-O1",
        "-Wl,--build-id",
        "-Wl,--no-undefined",
        "-Wl,--as-needed",
    ]);
    link
}

/// The pkg-config file; its paths are relative to its own folder.
fn package_config(prefix: &Path) -> Result<(), String> {
    let text = format!(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n\
         prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: rmpi\n\
         Description: MPI 5.0 (standard ABI)\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--enable-new-dtags -lmpi_abi\n\
         Libs.private: -lpthread -ldl -lm -lrt\n",
        version = env!("CARGO_PKG_VERSION")
    );
    let folder = prefix.join("lib/pkgconfig");
    let file = folder.join("rmpi.pc");
    write(&file, &text)?;
    relink("rmpi.pc", &folder.join("mpi.pc"))
}

/// Builds the benchmark programs in C, for `rmpi-bench`: ordinary MPI programs, which find the library by a path
/// relative to their own folder. Their sources are installed too, so that other MPIs' compilers can build the same
/// programs.
fn benchmarks(prefix: &Path) -> Result<(), String> {
    let folder = prefix.join("libexec/rmpi");
    let shared = prefix.join("share/rmpi/bench");
    make_folder(&folder)?;
    make_folder(&shared)?;
    for source in sources_of_benchmarks()? {
        copy(
            &source,
            &shared.join(source.file_name().unwrap_or_default()),
        )?;
        if source.extension().is_some_and(|extension| extension == "h") {
            continue;
        }
        let name = source.file_stem().unwrap_or_default();
        let fresh = folder.join(format!(".{}.new", name.to_string_lossy()));
        let mut compile = command("cc");
        compile
            .args(["-O2", "-std=gnu11", "-o"])
            .arg(&fresh)
            .arg(&source);
        compile.arg(format!("-I{}", prefix.join("include").display()));
        compile.arg(format!("-L{}", prefix.join("lib").display()));
        compile.args([
            "-Wl,-rpath,$ORIGIN/../../lib",
            "-Wl,--enable-new-dtags",
            "-lmpi_abi",
            "-lm",
        ]);
        if name == "halo" || name == "start_count" {
            compile.args(["-DBENCH_QMP", "-lqmp"]);
        }
        show(compile)?;
        rename(&fresh, &folder.join(name))?;
    }
    Ok(())
}

/// The C files of `bench` and their headers.
fn sources_of_benchmarks() -> Result<Vec<PathBuf>, String> {
    let sources = root().join("bench");
    let entries = fs::read_dir(&sources)
        .map_err(|why| format!("cannot list {}: {why}", sources.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    let is_c = |path: &PathBuf| {
        let extension = path.extension();
        extension.is_some_and(|extension| extension == "c" || extension == "h")
    };
    files.retain(is_c);
    files.sort();
    Ok(files)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

/// Copies to a new file, which then replaces the old one: a program that runs from the old file is not disturbed.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let fresh = to.with_file_name(format!(".{name}.new"));
    fs::copy(from, &fresh).map_err(|why| {
        format!(
            "cannot copy {} to {}: {why}",
            from.display(),
            fresh.display()
        )
    })?;
    let mode = if from.extension().is_none() {
        0o755
    } else {
        0o644
    };
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))
        .map_err(|why| format!("cannot set the mode of {}: {why}", fresh.display()))?;
    rename(&fresh, to)
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    fs::rename(from, to).map_err(|why| format!("cannot put {} in its place: {why}", to.display()))
}

/// Makes `link` a symbolic link to `target`, which is in the same folder.
fn relink(target: &str, link: &Path) -> Result<(), String> {
    if fs::read_link(link).is_ok_and(|old| old == Path::new(target)) {
        return Ok(());
    }
    // An error is expected if there was nothing of this name.
    let _ = fs::remove_file(link);
    symlink(target, link).map_err(|why| format!("cannot link {}: {why}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_is_named_and_the_right_ones_are_shown() {
        let why = run(&["--perfix=x".to_owned()]).unwrap_err();
        assert!(
            why.contains("`--perfix=x` is no option") && why.contains("--prefix DIR"),
            "{why}"
        );
        assert!(
            run(&["--prefix".to_owned()])
                .unwrap_err()
                .contains("needs a folder")
        );
    }

    #[test]
    fn the_shared_library_is_linked_with_our_soname_and_script() {
        let link = link_command(Path::new("a.a"), Path::new("b.so"));
        let args: Vec<_> = link
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect();
        assert!(
            args.contains(&"-Wl,-soname,libmpi_abi.so.1".to_owned()),
            "{args:?}"
        );
        assert!(
            args.iter().any(|arg| arg.ends_with("gen/libmpi_abi.map")),
            "{args:?}"
        );
    }

    #[test]
    fn man_page_and_completions_lie_where_they_are_looked_for() {
        let prefix = std::env::temp_dir().join(format!("documents-{}", std::process::id()));
        documents(&prefix).unwrap();
        let there = |name: &str| fs::metadata(prefix.join("share").join(name));
        let page = there("man/man1/rmpiexec.1").unwrap();
        assert_eq!(page.permissions().mode() & 0o777, 0o644);
        assert!(there("zsh/site-functions/_rmpiexec").is_ok());
        assert!(there("bash-completion/completions/rmpiexec").is_ok());
        assert!(there("fish/vendor_completions.d/rmpiexec.fish").is_ok());
        assert!(there("man/man1/rmpi-info.1").is_ok());
        assert!(there("man/man1/rmpi-queues.1").is_ok());
        assert!(there("zsh/site-functions/_rmpi-info").is_ok());
        fs::remove_dir_all(&prefix).unwrap();
    }

    #[test]
    fn a_link_is_put_right_and_a_copy_replaces() {
        let folder = std::env::temp_dir().join(format!("install-{}", std::process::id()));
        make_folder(&folder).unwrap();
        fs::write(folder.join("new"), "text").unwrap();
        symlink("old", folder.join("name")).unwrap();
        relink("new", &folder.join("name")).unwrap();
        let through_link = fs::read_to_string(folder.join("name")).unwrap();
        copy(&folder.join("new"), &folder.join("other")).unwrap();
        let copied = fs::read_to_string(folder.join("other")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((through_link.as_str(), copied.as_str()), ("text", "text"));
    }
}
