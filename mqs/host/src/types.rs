// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads types that a debugger library looks up, from debug information (DWARF).
//!
//! The debug information is in the file itself or in a separate file (found by build id or `.gnu_debuglink`), and parts
//! of it may be in a supplementary file (`.gnu_debugaltlink`). The names of all types are indexed in one pass; a type
//! itself is read when it is looked up.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwTag, Dwarf, EndianArcSlice,
    LittleEndian, SectionId, Unit, UnitHeader, UnitOffset, constants as dw,
};
use object::{CompressionFormat, Object, ObjectSection};

type Bytes = EndianArcSlice<LittleEndian>;
type Entry = DebuggingInformationEntry<Bytes>;
type Sections = HashMap<&'static str, Arc<[u8]>>;

/// A type of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Type {
    /// Size of the type in bytes.
    pub size: u64,
    /// Offsets of the members of the type, including those of anonymous members.
    pub members: HashMap<Box<[u8]>, u64>,
}

/// The debug information of one file.
#[derive(Debug)]
pub struct DebugInfo {
    /// The main file, and the supplementary file if there is one.
    files: Vec<DwarfFile>,
    types: HashMap<Box<[u8]>, At>,
    synonyms: HashMap<Box<[u8]>, At>,
}

/// One DWARF file: the main file or the supplementary one.
#[derive(Debug)]
struct DwarfFile {
    dwarf: Dwarf<Bytes>,
    units: Vec<UnitHeader<Bytes>>,
}

/// A reference to an entry: file, unit and offset.
#[derive(Clone, Copy, Debug)]
struct At {
    file: usize,
    unit: usize,
    entry: UnitOffset,
}

impl DebugInfo {
    /// The debug information of a program or library; `None` if there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        if let Some(found) = Self::within(path, &file) {
            return Some(found);
        }
        separate_files(path, &file).into_iter().find_map(|path| {
            let bytes = fs::read(&path).ok()?;
            Self::within(&path, &object::File::parse(&*bytes).ok()?)
        })
    }

    fn within(path: &Path, file: &object::File<'_>) -> Option<Self> {
        let own = sections(file)?;
        let shared = file.gnu_debugaltlink().ok().flatten();
        let shared = shared.and_then(|(name, _)| {
            let path = path
                .parent()?
                .join(Path::new(std::str::from_utf8(name).ok()?));
            let bytes = fs::read(path).ok()?;
            sections(&object::File::parse(&*bytes).ok()?)
        });
        let mut all = Self {
            files: vec![DwarfFile::new(&own, shared.as_ref())],
            types: HashMap::new(),
            synonyms: HashMap::new(),
        };
        all.files.extend(shared.map(|it| DwarfFile::new(&it, None)));
        for file in 0..all.files.len() {
            // After an error, the names that were collected before the error stay in the index.
            let _ = all.collect(file);
        }
        Some(all)
    }

    /// Indexes the names of all types of a file.
    fn collect(&mut self, file: usize) -> gimli::Result<()> {
        let Some(this) = self.files.get_mut(file) else {
            return Ok(());
        };
        let mut headers = this.dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = this.dwarf.unit(header.clone())?;
            let number = this.units.len();
            this.units.push(header);
            let mut entries = unit.entries();
            // The unit's own entry, then its first child.
            entries.next_entry()?;
            if !entries.next_entry()? {
                continue;
            }
            while let Some(entry) = entries.current() {
                let map = match entry.tag() {
                    dw::DW_TAG_typedef => &mut self.synonyms,
                    tag if is_whole(tag, entry) => &mut self.types,
                    _ => {
                        entries.next_sibling()?;
                        continue;
                    }
                };
                if let Some(name) = name_of(&this.dwarf, &unit, entry) {
                    let entry = entry.offset();
                    let at = At {
                        file,
                        unit: number,
                        entry,
                    };
                    map.entry(name).or_insert(at);
                }
                entries.next_sibling()?;
            }
        }
        Ok(())
    }

    /// Looks a type up by its name or that of a `typedef`.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Type> {
        let at = self.types.get(name).or_else(|| self.synonyms.get(name))?;
        let mut found = Type::default();
        self.read(*at, 0, MAX_NESTING, &mut found)?;
        Some(found)
    }

    /// Reads the type at an entry into `into`, at offset `base`.
    fn read(&self, at: At, base: u64, depth: u32, into: &mut Type) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let dwarf_file = self.files.get(at.file)?;
        let unit = dwarf_file
            .dwarf
            .unit(dwarf_file.units.get(at.unit)?.clone())
            .ok()?;
        let entry = unit.entry(at.entry).ok()?;
        match entry.tag() {
            dw::DW_TAG_typedef | dw::DW_TAG_const_type | dw::DW_TAG_volatile_type => {
                let next = self.follow(at, &entry)?;
                return self.read(next, base, depth, into);
            }
            tag if !is_whole(tag, &entry) => {
                // The entry is only a declaration, so the definition is looked up by name.
                let name = name_of(&dwarf_file.dwarf, &unit, &entry)?;
                let whole = self.types.get(&name)?;
                return self.read(*whole, base, depth, into);
            }
            _ => {}
        }
        if base == 0 {
            into.size = number(&entry, dw::DW_AT_byte_size)?;
        }
        let mut tree = unit.entries_tree(Some(at.entry)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let member = child.entry();
            if member.tag() != dw::DW_TAG_member {
                continue;
            }
            let bits = number(member, dw::DW_AT_data_bit_offset).map(|bits| bits / 8);
            let offset = number(member, dw::DW_AT_data_member_location).or(bits);
            // A member without an offset, as in a union, is at offset 0.
            let offset = base.checked_add(offset.unwrap_or(0))?;
            match name_of(&dwarf_file.dwarf, &unit, member) {
                Some(name) => {
                    into.members.entry(name).or_insert(offset);
                }
                None => {
                    let size = into.size;
                    let inner = self.follow(at, member)?;
                    self.read(inner, offset, depth, into)?;
                    into.size = size;
                }
            }
        }
        Some(())
    }

    /// The type that an entry of the unit of `at` refers to.
    fn follow(&self, at: At, entry: &Entry) -> Option<At> {
        match entry.attr_value(dw::DW_AT_type)? {
            AttributeValue::UnitRef(entry) => Some(At { entry, ..at }),
            AttributeValue::DebugInfoRef(offset) => self.whole(at.file, offset),
            AttributeValue::DebugInfoRefSup(offset) => self.whole(1, offset),
            _ => None,
        }
    }

    /// The entry at an offset of a file's `.debug_info`.
    fn whole(&self, file: usize, offset: DebugInfoOffset) -> Option<At> {
        let units = &self.files.get(file)?.units;
        let begins = |unit: &UnitHeader<Bytes>| unit.debug_info_offset().map(|it| it.0);
        let unit = units
            .partition_point(|it| begins(it) <= Some(offset.0))
            .checked_sub(1)?;
        let entry = offset.to_unit_offset(units.get(unit)?)?;
        Some(At { file, unit, entry })
    }
}

impl DwarfFile {
    fn new(own: &Sections, shared: Option<&Sections>) -> Self {
        let section = |of: Option<&Sections>, id: SectionId| {
            let bytes = of.and_then(|it| it.get(id.name()).cloned());
            let bytes = bytes.unwrap_or_else(|| Arc::new([]));
            Ok::<_, core::convert::Infallible>(EndianArcSlice::new(bytes, LittleEndian))
        };
        let Ok(mut dwarf) = Dwarf::load(|id| section(Some(own), id));
        let Ok(()) = dwarf.load_sup(|id| section(shared, id));
        Self {
            dwarf,
            units: Vec::new(),
        }
    }
}

/// Whether an entry is the definition of a type, not only a declaration.
fn is_whole(tag: DwTag, entry: &Entry) -> bool {
    let kinds = [
        dw::DW_TAG_structure_type,
        dw::DW_TAG_union_type,
        dw::DW_TAG_class_type,
        dw::DW_TAG_enumeration_type,
        dw::DW_TAG_base_type,
        dw::DW_TAG_pointer_type,
    ];
    kinds.contains(&tag) && !entry.has_attr(dw::DW_AT_declaration)
}

fn name_of(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, entry: &Entry) -> Option<Box<[u8]>> {
    let value = entry.attr_value(dw::DW_AT_name)?;
    let name = dwarf.attr_string(unit, value).ok()?;
    Some(name.bytes().into())
}

fn number(entry: &Entry, name: gimli::DwAt) -> Option<u64> {
    entry.attr(name)?.udata_value()
}

/// The debug sections of a file, if it has any.
fn sections(file: &object::File<'_>) -> Option<Sections> {
    let wanted = [
        SectionId::DebugAbbrev,
        SectionId::DebugInfo,
        // `gimli` needs the header of a unit's line table.
        SectionId::DebugLine,
        SectionId::DebugLineStr,
        SectionId::DebugStr,
        SectionId::DebugStrOffsets,
    ];
    let mut all = HashMap::new();
    for id in wanted {
        let section = file.section_by_name(id.name());
        if let Some(bytes) = section.and_then(|it| contents(&it)) {
            all.insert(id.name(), bytes);
        }
    }
    all.contains_key(SectionId::DebugInfo.name()).then_some(all)
}

/// The bytes of a section, decompressed if necessary.
fn contents(section: &object::Section<'_, '_>) -> Option<Arc<[u8]>> {
    let stored = section.compressed_data().ok()?;
    let size = usize::try_from(stored.uncompressed_size).ok()?;
    match stored.format {
        CompressionFormat::None => Some(stored.data.into()),
        CompressionFormat::Zlib => {
            let limit = size.min(MAX_SECTION_BYTES);
            let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(stored.data, limit);
            bytes.ok().map(Arc::from)
        }
        _ => None,
    }
}

/// Paths at which a separate debug file may be, in the search order of gdb.
fn separate_files(path: &Path, file: &object::File<'_>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let root = Path::new("/usr/lib/debug");
    if let Ok(Some([first, rest @ ..])) = file.build_id() {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        all.push(root.join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    let link = file.gnu_debuglink().ok().flatten();
    let name = link.and_then(|(name, _)| std::str::from_utf8(name).ok());
    if let (Some(name), Some(folder)) = (name, path.parent()) {
        all.push(folder.join(name));
        all.push(folder.join(".debug").join(name));
        let below = folder.strip_prefix("/").unwrap_or(folder);
        all.push(root.join(below).join(name));
    }
    all.retain(|it| it != path);
    all
}

/// Maximum depth of typedefs and anonymous members.
const MAX_NESTING: u32 = 32;
/// Maximum size of a decompressed section.
const MAX_SECTION_BYTES: usize = 1 << 32;
