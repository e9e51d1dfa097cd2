// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads symbols and types of object files. Each file is read once, for all ranks of a host.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use object::{Object, ObjectKind, ObjectSymbol};

use crate::types::{DebugInfo, Type};

/// A cache of symbol files.
#[derive(Debug, Default)]
pub struct SymbolFiles(HashMap<PathBuf, Arc<Symbols>>);

/// A file with symbols.
#[derive(Debug, Default)]
pub struct Symbols {
    path: PathBuf,
    /// Whether addresses are relative to the start of the mapping.
    relative: bool,
    by_name: HashMap<Box<[u8]>, u64>,
    debug_info: OnceLock<Option<DebugInfo>>,
}

impl SymbolFiles {
    /// The symbols of a file, read on first use; none if the file is unreadable or not an object file.
    pub fn symbols(&mut self, path: &Path) -> Arc<Symbols> {
        if let Some(known) = self.0.get(path) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(Symbols::of(path).unwrap_or_default());
        self.0.insert(path.to_owned(), Arc::clone(&fresh));
        fresh
    }
}

impl Symbols {
    fn of(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let all = file.dynamic_symbols().chain(file.symbols());
        let defined = all.filter(|symbol| symbol.is_definition());
        let pairs = defined.filter_map(|it| Some((it.name_bytes().ok()?.into(), it.address())));
        Some(Self {
            path: path.to_owned(),
            relative: file.kind() == ObjectKind::Dynamic,
            by_name: pairs.collect(),
            debug_info: OnceLock::new(),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a symbol in a process that maps the file at `start`.
    #[must_use]
    pub fn address(&self, name: &[u8], start: u64) -> Option<u64> {
        let value = *self.by_name.get(name)?;
        Some(if self.relative {
            start.wrapping_add(value)
        } else {
            value
        })
    }

    /// Looks a type up in the file's debug information.
    #[must_use]
    pub fn find_type(&self, name: &[u8]) -> Option<Type> {
        let debug_info = self.debug_info.get_or_init(|| DebugInfo::of(&self.path));
        debug_info.as_ref()?.find(name)
    }
}
