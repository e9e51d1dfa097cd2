// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates Fortran's part from the table of the MPI API: the library's entry points, `mpif.h`, and the sources of the
//! modules `mpi` and `mpi_f08` (MPI 5.0 chapter 19).
//!
//! **Knows** which C functions Fortran has, and their names for the linker. `library` writes the entry points,
//! `modules` the interfaces that compilers read, `constants` the named constants of all three methods.

mod constants;
mod library;
mod modules;
mod sizeof;
mod types;

use super::kinds::{self, Width};
use super::standard::Standard;
use super::table::{Api, Function, Param};

/// The generated files, for `runtime/fortran/gen`.
pub(super) fn files(api: &Api, standard: &Standard) -> Result<Vec<super::Generated>, String> {
    let all = procedures(api);
    let mut files = vec![
        ("c.rs".to_owned(), library::declarations(&all, standard)?),
        ("procedures.rs".to_owned(), library::list(api)?),
        (
            "librmpi_fortran.map".to_owned(),
            library::version_script(&all),
        ),
        ("mpif.h".to_owned(), constants::header(standard)),
        ("mpi.f90".to_owned(), modules::mpi(&all, standard)),
        ("mpi_f08.f90".to_owned(), modules::mpi_f08(&all, standard)),
    ];
    for chapter in &api.chapters {
        let of_chapter: Vec<&Procedure<'_>> = all
            .iter()
            .filter(|p| chapter.functions.iter().any(|f| f.name == p.function.name))
            .collect();
        if let Some(text) = library::chapter(&chapter.title, &of_chapter)? {
            files.push((format!("procedures_{}.rs", chapter.file), text));
        }
    }
    Ok(files)
}

/// A procedure of Fortran: a C function in one of its forms.
pub(super) struct Procedure<'a> {
    function: &'a Function,
    width: Width,
}

/// How a program declares the procedures (the methods of MPI 5.0 section 19.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// `include 'mpif.h'` and `use mpi`.
    Mpi,
    /// `use mpi_f08`.
    F08,
}

/// Functions that Fortran does not have (MPI 5.0 annex A.3): MPI_T, and the conversions of handles to and from
/// integers.
fn is_for_c_only(function: &Function) -> bool {
    let name = function.name.as_str();
    function.is_tool() || name.ends_with("_fromint") || name.ends_with("_toint")
}

/// Every procedure, in the order of the table. A large form is left out if its arguments have the same types as those
/// of the small form: a generic name could not distinguish the two.
fn procedures(api: &Api) -> Vec<Procedure<'_>> {
    let mut all = Vec::new();
    for function in api.functions().filter(|f| !is_for_c_only(f)) {
        let small = Procedure {
            function,
            width: Width::Int,
        };
        let large = Procedure {
            function,
            width: Width::Large,
        };
        let differs = function.has_twin() && small.shape() != large.shape();
        all.push(small);
        if differs {
            all.push(large);
        }
    }
    all
}

impl<'a> Procedure<'a> {
    /// `MPI_Send`, `MPI_Send_c`: the C function.
    fn c_name(&self) -> String {
        match self.width {
            Width::Int => self.function.name.clone(),
            Width::Large => format!("{}_c", self.function.name),
        }
    }

    /// The parameters that Fortran has too.
    fn params(&self) -> impl Iterator<Item = &'a Param> {
        let width = self.width;
        let params = self.function.params.iter();
        // Programs in Fortran have no argc and argv to pass.
        let has_argc = self.function.params.iter().any(|p| p.name == "argc");
        params.filter(move |p| {
            let of_main = has_argc && matches!(p.name.as_str(), "argc" | "argv");
            !of_main && p.kind != "..." && (!p.large_only || width == Width::Large)
        })
    }

    /// The types by which a generic name distinguishes its forms. Addresses and large counts are the same type here:
    /// integers of one kind.
    fn shape(&self) -> Vec<String> {
        let declared = self
            .params()
            .map(|p| types::declared(p, self.width, Method::F08));
        declared
            .map(|fortran| fortran.replace("MPI_ADDRESS_KIND", "MPI_COUNT_KIND"))
            .collect()
    }

    /// The methods that have an entry point for the procedure: large forms exist only with `mpi_f08`; the `MPI_Keyval_`
    /// procedures, from before MPI-2.0, have one entry point for all methods.
    fn methods(&self) -> &'static [Method] {
        let old = self.function.name.starts_with("MPI_Keyval_");
        match (self.width, old) {
            (Width::Large, _) => &[Method::F08],
            (Width::Int, true) => &[Method::Mpi],
            (Width::Int, false) => &[Method::Mpi, Method::F08],
        }
    }

    /// The specific name in Fortran: `MPI_Send`, `MPI_Send_f08`, `MPI_Send_c_f08` (MPI 5.0 section 19.1.5).
    fn specific(&self, method: Method) -> String {
        match method {
            Method::Mpi => self.c_name(),
            Method::F08 => format!("{}_f08", self.c_name()),
        }
    }

    /// The name that programs call. If a callback has two widths, the form for large counts has a separate name.
    fn generic(&self) -> String {
        let own = self
            .function
            .params
            .iter()
            .any(|p| p.kind.starts_with("VarFn("));
        match own {
            true => self.c_name(),
            false => self.function.name.clone(),
        }
    }

    /// The name for the linker: lower case with an underscore at the end, as compilers on Linux have it.
    fn symbol(&self, method: Method) -> String {
        linker_name(&self.specific(method))
    }
}

/// Whether `MPI_X_cptr` is another name for the same body: with `use mpi`, such a procedure returns the address of
/// memory as an integer or as a `TYPE(C_PTR)`.
fn takes_c_pointer(function: &Function) -> bool {
    function
        .params
        .iter()
        .any(|p| p.kind == "State" && p.name == "baseptr")
}

/// `mpi_send_` for `MPI_Send`.
fn linker_name(specific: &str) -> String {
    format!("{}_", specific.to_lowercase())
}

/// Procedures that have no row in the table.
const FORTRAN_ONLY: [&str; 3] = ["MPI_Status_f2f08", "MPI_Status_f082f", "MPI_F_sync_reg"];

/// The predefined callbacks (MPI 5.0 section 7.7).
const PREDEFINED: [&str; 14] = [
    "MPI_NULL_COPY_FN",
    "MPI_DUP_FN",
    "MPI_NULL_DELETE_FN",
    "MPI_COMM_NULL_COPY_FN",
    "MPI_COMM_DUP_FN",
    "MPI_COMM_NULL_DELETE_FN",
    "MPI_TYPE_NULL_COPY_FN",
    "MPI_TYPE_DUP_FN",
    "MPI_TYPE_NULL_DELETE_FN",
    "MPI_WIN_NULL_COPY_FN",
    "MPI_WIN_DUP_FN",
    "MPI_WIN_NULL_DELETE_FN",
    "MPI_CONVERSION_FN_NULL",
    "MPI_CONVERSION_FN_NULL_C",
];

/// Whether the parameter is an array.
fn is_array(param: &Param) -> bool {
    param.length != super::table::Length::One
}

/// Whether the kind is a handle.
fn is_handle(kind: &str) -> bool {
    kinds::scalar(kind).is_some_and(|scalar| types::HANDLES.iter().any(|(_, c)| *c == scalar.int))
}
