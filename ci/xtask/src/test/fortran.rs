// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fortran programs in the stage `ranks`. A program in a file `.F90` is compiled three times, once for each method
//! (mpif.h, `mpi`, `mpi_f08`).

use super::testlist::Entry;
use crate::tree::{command, make_folder};
use std::path::Path;
use std::process::Command;

/// A method: the suffix of the program's name, and the compiler's options.
struct FortranForm {
    ending: &'static str,
    flags: &'static [&'static str],
}

const METHODS: [FortranForm; 3] = [
    FortranForm {
        ending: ".mpif",
        // mpif.h cannot declare that a buffer may have any type, so newer compilers report buffers of different types
        // as errors.
        flags: &["-DBY_MPIF", "-fallow-argument-mismatch", "-w"],
    },
    FortranForm {
        ending: ".mpi",
        flags: &["-DBY_MPI", "-Werror"],
    },
    FortranForm {
        ending: ".f08",
        flags: &["-DBY_F08", "-Werror"],
    },
];

/// The name of the program's file: without the suffix of a method.
pub(crate) fn plain(program: &str) -> &str {
    let mut names = METHODS
        .iter()
        .map(|method| program.strip_suffix(method.ending));
    names.find_map(|name| name).unwrap_or(program)
}

/// If the program's file is for all methods (`.F90`), an entry for each method; otherwise only the given entry.
pub(crate) fn each_method(entry: Entry, source: &Path) -> Vec<Entry> {
    if source.extension().is_none_or(|ending| ending != "F90") {
        return vec![entry];
    }
    let named = |method: &FortranForm| Entry {
        program: entry.program.clone() + method.ending,
        ..entry.clone()
    };
    METHODS.iter().map(named).collect()
}

/// The compiler command for a program, without the names of the source and of the output.
pub(crate) fn compiler(wrapper: &Path, program: &str, build: &Path) -> Result<Command, String> {
    // Each program has its own folder for modules, because modules of several programs have the same names.
    let modules = build.join(format!("{program}.modules"));
    make_folder(&modules)?;
    let mut compiler = command(wrapper);
    compiler.args(
        "-O1 -g -Wall -Wno-unused-dummy-argument -fcheck=all -ffree-line-length-none".split(' '),
    );
    // The suffix of the method may be followed by `.late`.
    let method = METHODS.iter().find(|method| {
        let (name, rest) = program.rsplit_once(method.ending).unwrap_or_default();
        !name.is_empty() && (rest.is_empty() || rest == ".late")
    });
    compiler.args(method.into_iter().flat_map(|method| method.flags));
    compiler.arg("-J").arg(modules);
    Ok(compiler)
}

#[cfg(test)]
mod tests {
    use super::super::testlist;
    use super::*;

    #[test]
    fn a_program_for_all_methods_is_compiled_for_each() {
        let entry = testlist::parse("f_waits 1,2").unwrap().remove(0);
        let names = |file: &str| -> Vec<String> {
            let all = each_method(entry.clone(), Path::new(file)).into_iter();
            all.map(|entry| entry.program).collect()
        };
        let all = names("a/f_waits.F90");
        assert_eq!(all, ["f_waits.mpif", "f_waits.mpi", "f_waits.f08"]);
        assert!(all.iter().all(|name| plain(name) == "f_waits"));
        assert_eq!(names("a/f_waits.f90"), ["f_waits"]);
    }
}
