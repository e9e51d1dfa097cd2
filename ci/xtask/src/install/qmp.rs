// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libqmp.so`, its headers, and the files by which build systems find them.

use std::path::Path;
use std::process::Command;

use super::{STAYS, copy, rename, shared_library, write};
use crate::process::show;
use crate::tree::{make_folder, read, root};

/// Links the library from cargo's static one and `print.c`, against the MPI library of the same tree, and installs the
/// other files.
pub(super) fn install(built: &Path, prefix: &Path, quick: bool) -> Result<(), String> {
    let source = root().join("qmp");
    for header in ["qmp.h", "qmp.hpp"] {
        copy(
            &source.join("include").join(header),
            &prefix.join("include").join(header),
        )?;
    }
    let script = built.join("libqmp.map");
    write(
        &script,
        &version_script(&read(&source.join("functions.tsv"))?),
    )?;
    let fresh = prefix.join("lib/.libqmp.so.new");
    let mut link = link_command(
        &built.join("libqmp_static.a"),
        &source.join("src/entry/print.c"),
        &script,
        &prefix.join("lib"),
        &fresh,
    );
    if !quick {
        link.arg("-Wl,--strip-debug");
    }
    show(link)?;
    rename(&fresh, &prefix.join("lib").join(SHARED))?;
    let config = prefix.join("bin/qmp-config");
    copy(&source.join("share/qmp-config"), &config)?;
    for (file, folder) in [
        ("qmp.pc", "lib/pkgconfig"),
        ("QMPConfig.cmake", CMAKE),
        ("QMPConfigVersion.cmake", CMAKE),
    ] {
        make_folder(&prefix.join(folder))?;
        copy(
            &source.join("share").join(file),
            &prefix.join(folder).join(file),
        )?;
    }
    for name in EXAMPLES {
        let to = prefix.join("share/rmpi/qmp").join(name);
        make_folder(to.parent().unwrap_or(prefix))?;
        copy(&source.join("examples").join(name), &to)?;
    }
    Ok(())
}

const EXAMPLES: [&str; 9] = [
    "qmp_lattice.h",
    "qmp_halo.c",
    "qmp_cg.c",
    "qmp_lattice.hpp",
    "qmp_halo_cxx.cc",
    "qmp_cg_cxx.cc",
    "qmp_lattice/mod.rs",
    "qmp_halo_rust.rs",
    "qmp_cg_rust.rs",
];
const SHARED: &str = "libqmp.so";
const CMAKE: &str = "lib/cmake/QMP";

/// The library exports only the functions of the table.
fn version_script(table: &str) -> String {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let names: String = rows
        .filter_map(|line| Some(format!("    {};\n", line.split('\t').next()?)))
        .collect();
    format!("{{\n  global:\n{names}  local: *;\n}};\n")
}

fn link_command(archive: &Path, print: &Path, script: &Path, lib: &Path, to: &Path) -> Command {
    let mut link = shared_library(archive, script, SHARED, to);
    link.args(["-fPIC", "-O2", "-std=gnu11", "-D_GNU_SOURCE"])
        .arg(print);
    // The MPI library is in the same folder, wherever the tree is moved.
    link.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    link.arg(format!("-L{}", lib.display())).arg("-lmpi_abi");
    link.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", STAYS]);
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_script_has_the_tables_names_and_no_other() {
        let script = version_script("# a table\nQMP_start\tdocument\nqmp2004_abort\t2004\n");
        assert_eq!(
            script,
            "{\n  global:\n    QMP_start;\n    qmp2004_abort;\n  local: *;\n};\n"
        );
    }

    #[test]
    fn the_library_never_embeds_another_mpi() {
        let path = Path::new("x");
        let args: Vec<String> = link_command(path, path, path, path, path)
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect();
        assert!(args.contains(&"-lmpi_abi".to_owned()), "{args:?}");
        assert!(
            args.contains(&"-Wl,-soname,libqmp.so".to_owned()),
            "{args:?}"
        );
    }
}
