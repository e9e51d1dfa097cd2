// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fortran: `librmpi_fortran.so.1`, `mpif.h`, and the sources of the modules, which are compiled here if gfortran is
//! installed.
//!
//! Compiled modules work with one version of one compiler. `rmpifort` compiles them for other compilers when it needs
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{STAYS, copy, relink, rename, shared_library, write};
use crate::process::{capture, show};
use crate::tree::{command, find_program, make_folder, read, root};

/// Links the library from cargo's static one, against the MPI library of the same tree, and installs the files that
/// compilers read.
pub(super) fn install(built: &Path, prefix: &Path, quick: bool) -> Result<(), String> {
    let generated = root().join("runtime/fortran/gen");
    copy(&generated.join("mpif.h"), &prefix.join("include/mpif.h"))?;
    let sources = prefix.join("share/rmpi/fortran");
    make_folder(&sources)?;
    for source in ["mpi.f90", "mpi_f08.f90"] {
        copy(&generated.join(source), &sources.join(source))?;
    }
    let lib = prefix.join("lib");
    let archive = built.join("librmpi_fortran_static.a");
    let fresh = lib.join(format!(".{SHARED}.new"));
    let mut link = link_command(&archive, &lib, &fresh);
    if !quick {
        link.arg("-Wl,--strip-debug");
    }
    show(link)?;
    rename(&fresh, &lib.join(SHARED))?;
    relink(SHARED, &lib.join("librmpi_fortran.so"))?;
    static_library(&archive, &lib)
}

/// `librmpi_fortran.a`: one object whose only symbols are those that the shared library has. A program is linked with
/// `libmpi_abi.a` too, and both archives contain Rust's standard library.
fn static_library(archive: &Path, lib: &Path) -> Result<(), String> {
    let object = lib.join(".librmpi_fortran.o");
    let names = lib.join(".librmpi_fortran.names");
    let fresh = lib.join(".librmpi_fortran.a");
    let script = read(&root().join("runtime/fortran/gen/librmpi_fortran.map"))?;
    write(&names, &kept(&script))?;
    let mut join = command("cc");
    join.args(["-r", "-nostdlib", "-Wl,--whole-archive"]);
    join.arg(archive);
    join.args(["-Wl,--no-whole-archive", "-o"]).arg(&object);
    show(join)?;
    let mut hide = command("objcopy");
    // Removes the debug information, and the sections with LLVM bitcode, which only the Rust compiler reads: joined
    // sections of several objects are of no use to it.
    hide.args(["--strip-debug", "-R", ".llvmbc", "-R", ".llvmcmd"]);
    hide.arg(format!("--keep-global-symbols={}", names.display()));
    hide.arg(&object);
    show(hide)?;
    let mut pack = command("ar");
    pack.arg("crs").arg(&fresh).arg(&object);
    show(pack)?;
    for file in [&object, &names] {
        fs::remove_file(file).map_err(|why| format!("cannot remove {}: {why}", file.display()))?;
    }
    rename(&fresh, &lib.join("librmpi_fortran.a"))
}

/// The global names that the static library keeps, one per line: those of the version script, and one that all objects
/// of a program share.
fn kept(script: &str) -> String {
    let lines = script
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'));
    let names = lines.filter(|name| name.contains("mpi_"));
    let shared = ["DW.ref.rust_eh_personality"];
    names
        .chain(shared)
        .map(|name| format!("{name}\n"))
        .collect()
}

const SHARED: &str = "librmpi_fortran.so.1";

fn link_command(archive: &Path, lib: &Path, to: &Path) -> Command {
    let script = root().join("runtime/fortran/gen/librmpi_fortran.map");
    let mut link = shared_library(archive, &script, SHARED, to);
    // The MPI library is in the same folder, wherever the tree is moved.
    link.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    link.arg(format!("-L{}", lib.display())).arg("-lmpi_abi");
    link.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", STAYS]);
    link
}

/// Compiles the modules for gfortran with the installed wrapper, removes those of older sources, and writes the
/// pkg-config file.
pub(super) fn modules(prefix: &Path) -> Result<(), String> {
    let made = match find_program("gfortran") {
        Some(_) => Some(compile(prefix)?),
        None => {
            println!(
                "there is no gfortran: rmpifort compiles the modules `mpi` and `mpi_f08` when it first needs them"
            );
            None
        }
    };
    if let Some(made) = &made {
        remove_old(made);
    }
    package_config(prefix, made.as_deref())
}

/// Compiles the modules and returns their folder.
fn compile(prefix: &Path) -> Result<PathBuf, String> {
    let mut wrapper = command(prefix.join("bin/rmpifort"));
    wrapper.arg("--modules").env("RMPI_FC", "gfortran");
    let done = capture(wrapper, Duration::from_secs(300), |_| ())?;
    if done.success() {
        return Ok(PathBuf::from(done.stdout.trim()));
    }
    Err(format!(
        "the Fortran modules could not be compiled\n{}",
        done.stderr
    ))
}

/// Removes modules of sources that are no longer installed: the folder's name ends with a hash of the sources.
fn remove_old(made: &Path) {
    let sources = |path: &Path| Some(path.file_name()?.to_str()?.rsplit_once('-')?.1.to_owned());
    let all = made.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in all.into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && sources(&path) != sources(made) {
            // A folder of another user that cannot be removed does no harm: nothing uses it.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// The pkg-config file `rmpi-fortran`, with gfortran's modules if they are in the tree.
fn package_config(prefix: &Path, made: Option<&Path>) -> Result<(), String> {
    let folder = made.and_then(Path::file_name);
    // If the tree is read-only, the compiled modules are in the user's cache.
    let is_here = made.is_some_and(|made| made.starts_with(prefix));
    let folder = folder.filter(|_| is_here);
    let (modules, include, library) = match folder {
        Some(folder) => (
            format!("modules=${{libdir}}/rmpi/fortran/{}\n", folder.display()),
            "-I${modules}",
            "-L${modules} -lrmpi_modules ",
        ),
        None => (String::new(), "", ""),
    };
    let text = format!(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n\
         prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         {modules}\
         \n\
         Name: rmpi-fortran\n\
         Description: MPI 5.0 for Fortran (mpif.h; the modules mpi and mpi_f08 for gfortran)\n\
         Version: {version}\n\
         Requires: rmpi\n\
         Cflags: {include}\n\
         Libs: {library}-L${{libdir}} -lrmpi_fortran\n",
        version = env!("CARGO_PKG_VERSION")
    );
    write(&prefix.join("lib/pkgconfig/rmpi-fortran.pc"), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_linked_against_that_of_c_and_never_embeds_it() {
        let path = Path::new("x");
        let link = link_command(path, path, path);
        let args: Vec<_> = link.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert!(args.contains(&"-lmpi_abi".into()), "{args:?}");
        assert!(
            args.contains(&"-Wl,-soname,librmpi_fortran.so.1".into()),
            "{args:?}"
        );
    }

    #[test]
    fn the_static_library_keeps_the_names_of_the_version_script() {
        let kept = kept("{\n  global:\n    mpi_send_;\n    pmpi_send_;\n  local: *;\n};\n");
        assert_eq!(kept, "mpi_send_\npmpi_send_\nDW.ref.rust_eh_personality\n");
    }

    #[test]
    fn modules_of_other_sources_go_and_those_of_other_compilers_stay() {
        let folder = std::env::temp_dir().join(format!("modules-old-{}", std::process::id()));
        let names = ["gfortran-12.2.0-0000aaaa", "flang-19.1.7-0000aaaa"];
        let old = folder.join("gfortran-12.2.0-0000bbbb");
        for made in names.map(|name| folder.join(name)).iter().chain([&old]) {
            make_folder(made).unwrap();
        }
        remove_old(&folder.join(names[0]));
        let kept = names.map(|name| folder.join(name).is_dir());
        let removed = !old.exists();
        fs::remove_dir_all(&folder).unwrap();
        assert!(kept == [true, true] && removed);
    }
}
