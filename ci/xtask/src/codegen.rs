// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask codegen [--check]`: generates all files that are derived from the table of the MPI API.
//!
//! **Knows** `runtime/abi/mpi.api` and the standard's data beside it. **Never** touches a file outside
//! `runtime/abi/gen` and `runtime/fortran/gen`.

mod constants;
mod convert;
mod entry;
mod fortran;
mod header;
mod kinds;
mod lists;
mod qmpi;
mod standard;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use crate::tree::root;
use standard::Standard;
use table::Api;

const HELP: &str = "\
cargo xtask codegen [--check]

Writes runtime/abi/gen (entry points, mpi.h, qmpi.h, version script, coverage page) and runtime/fortran/gen (entry points, mpif.h,
the modules mpi and mpi_f08) from runtime/abi/mpi.api, after holding every signature against the standard's data in runtime/abi/standard. Numbers of functions for tools are in runtime/abi/qmpi.order.
  --check   write nothing; fail where a generated file is not what the table gives";

/// `cargo xtask codegen`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let check = match args[..] {
        [] => false,
        ["--check"] => true,
        ["--help" | "-h"] => {
            println!("{HELP}");
            return Ok(());
        }
        _ => {
            return Err(format!(
                "`{}` is no option of codegen\n{HELP}",
                args.join(" ")
            ));
        }
    };
    for GeneratedFolder { name, files } in generate(&root().join("runtime/abi"))? {
        match check {
            true => compare(&root().join(name), &files)?,
            false => write(&root().join(name), &files)?,
        }
    }
    Ok(())
}

/// A generated file: its name and its text.
type Generated = (String, String);

/// A folder that holds only generated files.
struct GeneratedFolder {
    /// Relative to the root of the repository.
    name: &'static str,
    files: Vec<Generated>,
}

fn generate(abi: &Path) -> Result<[GeneratedFolder; 2], String> {
    let api = Api::parse(&read(&abi.join("mpi.api"))?)?;
    let of_standard = |name: &str| read(&abi.join("standard").join(name));
    let standard = Standard::parse(
        &of_standard("functions.tsv")?,
        &of_standard("constants.tsv")?,
        &of_standard("callbacks.tsv")?,
    );
    let differences = standard.differences(&api);
    if !differences.is_empty() {
        return Err(format!(
            "mpi.api is not the standard:\n{}",
            differences.join("\n")
        ));
    }
    let numbers = qmpi::Numbers::parse(&read(&abi.join("qmpi.order"))?, &api)?;
    let mut files = vec![
        ("entry.rs".to_owned(), entry::list(&api)?),
        ("constants.rs".to_owned(), constants::constants(&standard)?),
        ("callback.rs".to_owned(), constants::callbacks(&standard)?),
        ("mpi.h".to_owned(), header::header(&api, &standard)),
        ("qmpi.h".to_owned(), qmpi::header(&api, &numbers)),
        ("qmpi_table.rs".to_owned(), qmpi::table(&api, &numbers)?),
        ("libmpi_abi.map".to_owned(), lists::version_script(&api)),
        ("calls.h".to_owned(), lists::calls(&api)),
        ("coverage.md".to_owned(), lists::coverage(&api)),
    ];
    for chapter in &api.chapters {
        files.push((
            format!("entry_{}.rs", chapter.file),
            entry::chapter(chapter, &numbers)?,
        ));
    }
    let of_fortran = fortran::files(&api, &standard)?;
    Ok([
        GeneratedFolder {
            name: "runtime/abi/gen",
            files,
        },
        GeneratedFolder {
            name: "runtime/fortran/gen",
            files: of_fortran,
        },
    ])
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

fn write(folder: &Path, files: &[Generated]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    let mut written = 0;
    for (name, text) in files {
        let path = folder.join(name);
        // An unchanged file keeps its modification time, so that cargo rebuilds nothing because of it.
        if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        written += 1;
    }
    for stray in strays(folder, files)? {
        fs::remove_file(&stray).map_err(|e| format!("cannot remove {}: {e}", stray.display()))?;
    }
    println!(
        "codegen: {}: {} files, {written} of them new or changed",
        folder.display(),
        files.len()
    );
    Ok(())
}

fn compare(folder: &Path, files: &[Generated]) -> Result<(), String> {
    let mut stale: Vec<String> = files
        .iter()
        .filter(|(name, text)| fs::read_to_string(folder.join(name)).ok().as_ref() != Some(text))
        .map(|(name, _)| name.clone())
        .collect();
    let strays = strays(folder, files)?;
    stale.extend(
        strays
            .iter()
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned)),
    );
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} is stale: {}; run `cargo xtask codegen` and commit the result",
        folder.display(),
        stale.join(", ")
    ))
}

/// Files in `folder` that are not among the generated `files`.
fn strays(folder: &Path, files: &[Generated]) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(folder).map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let unknown = paths.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        !files.iter().any(|(ours, _)| Some(ours.as_str()) == name)
    });
    Ok(unknown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_standard_and_has_all_664_functions() {
        let abi = root().join("runtime/abi");
        let api = Api::parse(&read(&abi.join("mpi.api")).unwrap()).unwrap();
        let functions = read(&abi.join("standard/functions.tsv")).unwrap();
        let standard = Standard::parse(&functions, "", "");
        assert_eq!(standard.functions.len(), 664);
        assert_eq!(standard.differences(&api), Vec::<String>::new());
    }

    #[test]
    fn what_is_checked_in_is_what_the_table_gives() {
        let abi = root().join("runtime/abi");
        for GeneratedFolder { name, files } in generate(&abi).unwrap() {
            compare(&root().join(name), &files).unwrap();
        }
    }

    #[test]
    fn a_changed_or_extra_file_is_stale() {
        let folder = std::env::temp_dir().join(format!("codegen-{}", std::process::id()));
        let files = vec![("a.rs".to_owned(), "text".to_owned())];
        write(&folder, &files).unwrap();
        assert!(compare(&folder, &files).is_ok());
        fs::write(folder.join("a.rs"), "other").unwrap();
        fs::write(folder.join("b.rs"), "stray").unwrap();
        let error = compare(&folder, &files).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("a.rs") && error.contains("b.rs"), "{error}");
    }
}
