// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard's own data (`runtime/abi/standard/*.tsv`), and the check that the table agrees with it.

use std::collections::BTreeMap;

use super::kinds::{self, Width};
use super::table::{Api, Function};

/// A C parameter: type and name, as the standard spells them.
pub(crate) type CParam = (String, String);

/// A function of the standard, or a callback type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) returns: String,
    pub(crate) params: Vec<CParam>,
    pub(crate) deprecated: Option<String>,
}

/// A named constant: its C type and its value.
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) c_type: String,
    /// The integer; for an alias, the name of the other constant.
    pub(crate) value: String,
}

/// The contents of the three files.
pub(crate) struct Standard {
    pub(crate) functions: BTreeMap<String, Signature>,
    pub(crate) callbacks: Vec<(String, Signature)>,
    pub(crate) constants: Vec<Constant>,
}

impl Standard {
    pub(crate) fn parse(functions: &str, constants: &str, callbacks: &str) -> Self {
        let mut parsed = Self {
            functions: BTreeMap::new(),
            callbacks: callbacks.lines().skip(1).filter_map(callback).collect(),
            constants: constants.lines().skip(1).filter_map(constant).collect(),
        };
        parsed
            .functions
            .extend(functions.lines().skip(1).filter_map(function));
        parsed
    }

    /// Every difference between the table's signatures and the standard's.
    pub(crate) fn differences(&self, api: &Api) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut found = BTreeMap::new();
        for function in api.functions() {
            found.insert(function.name.clone(), signature(function, Width::Int));
            if function.has_twin() {
                found.insert(
                    format!("{}_c", function.name),
                    signature(function, Width::Large),
                );
            }
        }
        for (name, ours) in &found {
            match self.functions.get(name) {
                None => wrong.push(format!("{name} is not a function of the standard")),
                Some(theirs) if ours != theirs => wrong.push(format!(
                    "{name} differs\n  table:    {ours:?}\n  standard: {theirs:?}"
                )),
                Some(_) => {}
            }
        }
        let missing = self
            .functions
            .keys()
            .filter(|name| !found.contains_key(*name));
        wrong.extend(missing.map(|name| format!("{name} has no row")));
        wrong
    }
}

/// The C signature that a row gives.
pub(crate) fn signature(function: &Function, width: Width) -> Signature {
    let returns = match &function.value {
        None => "int",
        Some(kind) => kinds::scalar_c(kind, width).unwrap_or("int"),
    };
    let params = function
        .params
        .iter()
        .filter(|p| !p.large_only || width == Width::Large);
    Signature {
        returns: returns.to_owned(),
        params: params
            .map(|p| (kinds::c_type(p, width), p.name.clone()))
            .collect(),
        deprecated: function.deprecated.clone(),
    }
}

fn function(line: &str) -> Option<(String, Signature)> {
    let mut columns = line.split('\t');
    let _chapter = columns.next()?;
    let name = columns.next()?.to_owned();
    let returns = columns.next()?.to_owned();
    let params = params(columns.next().unwrap_or_default());
    let deprecated = columns
        .next()
        .filter(|text| !text.is_empty())
        .map(str::to_owned);
    Some((
        name,
        Signature {
            returns,
            params,
            deprecated,
        },
    ))
}

fn callback(line: &str) -> Option<(String, Signature)> {
    let mut columns = line.split('\t');
    let name = columns.next()?.to_owned();
    let returns = columns.next()?.to_owned();
    let params = params(&columns.next()?.replace(" *", " * "));
    Some((
        name,
        Signature {
            returns,
            params,
            deprecated: None,
        },
    ))
}

fn constant(line: &str) -> Option<Constant> {
    let mut columns = line.split('\t').map(str::to_owned);
    Some(Constant {
        name: columns.next()?,
        c_type: columns.next()?,
        value: columns.next()?,
    })
}

fn params(text: &str) -> Vec<CParam> {
    let parts = text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| match part.rsplit_once(' ') {
            Some((c_type, name)) => (c_type.trim().to_owned(), name.to_owned()),
            None => (part.to_owned(), String::new()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Standard {
        let functions = "head\n3\tMPI_X\tint\tconst void * buf; int count\t\n\
                         3\tMPI_X_c\tint\tconst void * buf; MPI_Count count\t\n";
        Standard::parse(functions, "head\n", "head\n")
    }

    #[test]
    fn the_same_signatures_have_no_difference() {
        let api = Api::parse("== a  A\nMPI_X  3  Buf buf, Count count  -\n").unwrap();
        assert_eq!(standard().differences(&api), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_difference_is_reported() {
        let api =
            Api::parse("== a  A\nMPI_X  3  Buf buf, Tag count  -\nMPI_Y  3  ()  -\n").unwrap();
        let found = standard().differences(&api).join("\n");
        assert!(found.contains("MPI_X_c has no row"), "{found}");
        assert!(
            found.contains("MPI_Y is not a function of the standard"),
            "{found}"
        );
        let api = Api::parse("== a  A\nMPI_X  3  MutBuf buf, Count count  -\n").unwrap();
        assert!(
            standard()
                .differences(&api)
                .join("\n")
                .contains("MPI_X differs")
        );
    }
}
