// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects programs that are linked to an MPI without support for this launcher. Such a program would run as separate
//! processes, each as rank 0 of 1. The user is warned before the start or, if it is detected later, while the program
//! runs. MPICH and its derivatives are supported ([PMI](crate::daemon)).

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef, StringTable};
use std::path::{Path, PathBuf};

/// Library dependencies of an ELF program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Values of `DT_NEEDED`, in order.
    pub(crate) libraries: Vec<String>,
    /// Folders of `DT_RPATH`, which the loader searches before `LD_LIBRARY_PATH`; empty if there is a `DT_RUNPATH`,
    /// since the loader then ignores `DT_RPATH`.
    pub(crate) rpath: Vec<String>,
}

impl Needs {
    /// Reads the dependencies of a program; `None` for a script, a static program or any other file that is not a
    /// 64-bit dynamic program.
    pub(crate) fn of(program: &Path) -> Option<Self> {
        let file = std::fs::File::open(program).ok()?;
        let cache = ReadCache::new(file);
        let data = &cache;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let entries = segments
            .iter()
            .find_map(|part| part.dynamic(endian, data).ok()?)?;
        let value = |tag: i64| {
            let entry = entries.iter().find(|entry| entry.d_tag(endian) == tag)?;
            Some(entry.d_val(endian))
        };
        let table = value(elf::DT_STRTAB)?;
        let segment = segments.iter().find(|part| {
            let start = part.p_vaddr(endian);
            part.p_type(endian) == elf::PT_LOAD
                && (start..start + part.p_filesz(endian)).contains(&table)
        })?;
        let offset = segment.p_offset(endian) + (table - segment.p_vaddr(endian));
        let strings = StringTable::new(data, offset, offset.checked_add(value(elf::DT_STRSZ)?)?);
        let mut needs = Self::default();
        let mut runpath = false;
        for entry in entries {
            let text = || text(&strings, entry.d_val(endian));
            match entry.d_tag(endian) {
                elf::DT_NEEDED => needs.libraries.extend(text()),
                elf::DT_RPATH => needs
                    .rpath
                    .extend(text().iter().flat_map(|path| folders(path, program))),
                elf::DT_RUNPATH => runpath = true,
                _ => (),
            }
        }
        if runpath {
            needs.rpath.clear();
        }
        Some(needs)
    }

    /// The first needed library of an unsupported MPI, with the name of that MPI.
    pub(crate) fn foreign(&self) -> Option<(&str, &'static str)> {
        self.libraries
            .iter()
            .find_map(|name| Some((name.as_str(), foreign_vendor(name)?)))
    }

    /// A `libmpi_abi` that the loader would find before the `libmpi_abi` in folder `ours`.
    pub(crate) fn shadowing(&self, ours: &Path) -> Option<PathBuf> {
        let name = self
            .libraries
            .iter()
            .find(|name| name.starts_with("libmpi_abi.so"))?;
        let found = self
            .rpath
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| path.exists())?;
        let same =
            same_file(&found, &ours.join(name)) || same_file(&found, &ours.join("libmpi_abi.so.1"));
        (!same).then_some(found)
    }
}

/// Name of the MPI that a library of this file name belongs to, if it does not support this launcher.
fn foreign_vendor(name: &str) -> Option<&'static str> {
    let maker = maker(name).filter(|maker| *maker != Maker::Mpich)?;
    Some(maker.name())
}

/// MPI implementations that this module distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// Includes Intel MPI and other derivatives that use MPICH's process management.
    Mpich,
    OpenMpi,
}

impl Maker {
    fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH, Intel MPI or MVAPICH",
            Self::OpenMpi => "Open MPI",
        }
    }
}

/// The MPI implementation to which a library of this file name belongs.
fn maker(name: &str) -> Option<Maker> {
    let stem = name.split(".so").next().unwrap_or(name);
    if stem == name || stem.ends_with("_abi") || stem.contains("_abi_") {
        return None;
    }
    let version = || {
        name.split(".so.")
            .nth(1)?
            .split('.')
            .next()?
            .parse::<u32>()
            .ok()
    };
    match stem {
        "libmpi" => Some(if version().is_some_and(|number| number == 12) {
            Maker::Mpich
        } else {
            Maker::OpenMpi
        }),
        "libmpich" | "libmpichf90" | "libmpichcxx" | "libmpicxx" | "libmpifort" | "libmpi_mt" => {
            Some(Maker::Mpich)
        }
        "libmpi_cxx"
        | "libmpi_mpifh"
        | "libmpi_usempi"
        | "libmpi_usempif08"
        | "libmpi_usempi_ignore_tkr" => Some(Maker::OpenMpi),
        _ => None,
    }
}

/// A library of an unsupported MPI that process `pid` has mapped, with the MPI's name.
pub(crate) fn loaded(pid: u32) -> Option<(PathBuf, &'static str)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let path = Path::new(line.get(line.find('/')?..)?);
        let name = path.file_name()?.to_str()?;
        Some((path.to_owned(), foreign_vendor(name)?))
    })
}

fn text<'a, R: ReadRef<'a>>(strings: &StringTable<'a, R>, at: u64) -> Option<String> {
    let bytes = strings.get(u32::try_from(at).ok()?).ok()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn folders(path: &str, program: &Path) -> Vec<String> {
    let own = program
        .parent()
        .map(|folder| folder.to_string_lossy().into_owned());
    let own = own.unwrap_or_default();
    path.split(':')
        .map(|part| part.replace("${ORIGIN}", &own).replace("$ORIGIN", &own))
        .collect()
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(one).is_some() && real(one) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn mpi_vendor_is_recognized_by_the_library_name() {
        assert_eq!(maker("libmpi.so.40"), Some(Maker::OpenMpi));
        assert_eq!(maker("libmpi.so.12.3.1"), Some(Maker::Mpich));
        assert_eq!(maker("libmpifort.so.12"), Some(Maker::Mpich));
        assert_eq!(foreign_vendor("libmpi.so.40"), Some("Open MPI"));
        assert_eq!(foreign_vendor("libmpi.so.12.3.1"), None);
        for ours in [
            "libmpi_abi.so.1",
            "libmpi_abi.so",
            "libmpifort_abi.so.0",
            "libm.so.6",
            "libmpi",
            "libmpihelper.so",
        ] {
            assert_eq!(maker(ours), None, "{ours}");
        }
    }

    /// Builds a program that needs an empty library of the given soname, which the loader finds by the given tag.
    fn program(folder: &Path, soname: &str, tags: &str) -> PathBuf {
        let source = folder.join("main.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let (library, program) = (folder.join(soname), folder.join("main"));
        let run = |arguments: &[&str]| {
            assert!(
                Command::new("cc")
                    .args(arguments)
                    .status()
                    .unwrap()
                    .success()
            )
        };
        let (source, library) = (source.to_str().unwrap(), library.to_str().unwrap());
        let name = format!("-Wl,-soname,{soname}");
        run(&["-shared", "-xc", "/dev/null", &name, "-o", library]);
        let rpath = format!("-Wl,-rpath,$ORIGIN,{tags}");
        run(&[
            source,
            "-Wl,--no-as-needed",
            "-xnone",
            library,
            &rpath,
            "-o",
            program.to_str().unwrap(),
        ]);
        program
    }

    #[test]
    fn needed_libraries_are_read_from_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(folder.path(), "libmpi.so.40", "--enable-new-dtags");
        let needs = Needs::of(&path).unwrap();
        assert_eq!(needs.foreign(), Some(("libmpi.so.40", "Open MPI")));
        assert_eq!(needs.rpath, [""; 0]);
    }

    #[test]
    fn a_foreign_library_shadowing_ours_by_rpath_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(folder.path(), "libmpi_abi.so.1", "--disable-new-dtags");
        let needs = Needs::of(&path).unwrap();
        assert_eq!(needs.foreign(), None);
        assert_eq!(
            needs.shadowing(Path::new("/nowhere")),
            Some(folder.path().join("libmpi_abi.so.1"))
        );
        assert_eq!(needs.shadowing(folder.path()), None);
        let path = program(folder.path(), "libmpi_abi.so.1", "--enable-new-dtags");
        assert_eq!(
            Needs::of(&path).unwrap().shadowing(Path::new("/nowhere")),
            None
        );
    }

    #[test]
    fn scripts_and_text_need_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(Needs::of(&script), None);
        assert_eq!(Needs::of(Path::new("/nowhere")), None);
    }
}
