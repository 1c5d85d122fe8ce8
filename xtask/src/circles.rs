//! Checks that the files of a crate are layers: none of them imports itself, directly or through others.
//!
//! A path in code counts as an import of the file that defines what it names. A `pub use` gives an item another address, and
//! imports nothing. Test modules, which end a file, may import what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::run::{Result, root};

/// The crates that are checked.
const CRATES: [&str; 11] = [
    "xtask",
    "zlock-bench",
    "zlock-etcd",
    "zlock-mem",
    "zlock-mysql",
    "zlock-postgres",
    "zlock-proof",
    "zlock-recipes",
    "zlock-suite",
    "zlock-testkit",
    "zlock-zk",
];

/// A module's path in its crate, or that of an item. It begins with `crate`.
type Name = Vec<String>;

/// A file's imports, and the items to which it gives another address.
#[derive(Debug, Default)]
struct File {
    imports: BTreeSet<Name>,
    aliases: BTreeMap<String, Name>,
}

/// Checks every crate.
pub(crate) fn check() -> Result {
    for name in CRATES {
        let mut files = BTreeMap::new();
        read(&root().join(name).join("src"), vec!["crate".to_owned()], &mut files)?;
        if let Some(circle) = circle(&files) {
            return Err(format!("{name}: the files import each other: {circle}"));
        }
        println!("{name}: {} files without a circle", files.len());
    }
    Ok(())
}

/// Reads all files of a folder, whose module is `module`.
fn read(folder: &Path, module: Name, files: &mut BTreeMap<Name, File>) -> Result {
    let failed = |e| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let child = || [&module[..], std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            read(&path, child(), files)?;
        } else {
            let is_root = ["lib", "main", "mod"].contains(&&*stem);
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let module = if is_root { module.clone() } else { child() };
            files.insert(module.clone(), parse(&module, &text));
        }
    }
    Ok(())
}

fn parse(module: &Name, text: &str) -> File {
    let text = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let child = |line: &&str| Some(line.split("mod ").nth(1)?.strip_suffix(';')?.to_owned());
    let children: BTreeSet<String> = code.iter().filter_map(child).collect();
    let (code, mut file) = (code.join("\n"), File::default());
    for statement in code.split_inclusive([';', '}']) {
        let is_alias =
            ["pub use ", "pub(crate) use "].iter().any(|use_| statement.trim_start().starts_with(use_));
        let mut rest = statement;
        while let Some(at) = rest.find("::") {
            let start = rest[..at].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
            let (first, path) = (&rest[start..at], &rest[start..]);
            let end = path.find(|c| !is_part(c) && c != ':').unwrap_or(path.len());
            rest = &path[end..];
            if !["crate", "super", "self"].contains(&first) && !children.contains(first) {
                continue;
            }
            let group = rest.strip_prefix('{').and_then(|group| group.split('}').next());
            for item in group.unwrap_or(if rest.starts_with(" as ") { rest } else { "" }).split(',') {
                let (item, alias) = item.split_once(" as ").unwrap_or((item, ""));
                let address = address(module, &path[..end], item.trim());
                if is_alias {
                    let name = if alias.is_empty() {
                        address.last().cloned().unwrap_or_default()
                    } else {
                        alias.to_owned()
                    };
                    file.aliases.insert(name.trim_end_matches(';').to_owned(), address);
                } else {
                    file.imports.insert(address);
                }
            }
        }
    }
    file
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the whole name of an item in a path, as seen from a module.
fn address(module: &Name, path: &str, item: &str) -> Name {
    let mut name = module.clone();
    for part in path.split("::").chain(item.split("::")).filter(|part| !part.is_empty()) {
        match part {
            "crate" => name.truncate(1),
            "self" => {}
            "super" => drop(name.pop()),
            part => name.push(part.to_owned()),
        }
    }
    name
}

/// Returns the file that defines what has this name.
fn file_of<'a>(files: &'a BTreeMap<Name, File>, name: &[String]) -> Option<&'a Name> {
    let (file, rest) =
        (0..=name.len()).rev().find_map(|end| Some((files.get_key_value(&name[..end])?, &name[end..])))?;
    match rest.split_first().and_then(|(first, rest)| Some((file.1.aliases.get(first)?, rest))) {
        Some((address, rest)) if address[..] != *name => file_of(files, &[address, rest].concat()),
        _ => Some(file.0),
    }
}

/// Returns the files of a circle, if there is one.
fn circle(files: &BTreeMap<Name, File>) -> Option<String> {
    let imports = |(name, file): (&Name, &File)| {
        let imports = file.imports.iter().filter_map(|import| file_of(files, import));
        (name.clone(), imports.filter(|import| *import != name).cloned().collect::<BTreeSet<_>>())
    };
    let mut left: BTreeMap<Name, BTreeSet<Name>> = files.iter().map(imports).collect();
    // Files that import nothing that is left are the lowest layer.
    while let Some(lowest) = left.iter().find(|(_, imports)| imports.is_empty()).map(|(name, _)| name.clone())
    {
        left.remove(&lowest);
        for imports in left.values_mut() {
            imports.remove(&lowest);
        }
    }
    // Each file that is left imports another one, so this way comes to a file for the second time.
    let mut way = vec![left.keys().next()?];
    loop {
        let next = left.get(*way.last()?)?.first()?;
        if let Some(start) = way.iter().position(|file| *file == next) {
            way.push(next);
            let names = way[start..].iter().map(|name| name.join("::"));
            return Some(names.collect::<Vec<_>>().join(" -> "));
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> BTreeMap<Name, File> {
        let name = |path: &str| path.split("::").map(str::to_owned).collect::<Name>();
        texts.iter().map(|(path, text)| (name(path), parse(&name(path), text))).collect()
    }

    #[test]
    fn files_that_import_each_other_are_named() {
        let of_b = |b| {
            let root = ("crate", "mod a;\nmod b;\nfn f() { a::run(); }");
            circle(&files(&[root, ("crate::a", "use super::b::{self, Two};\nfn run() {}"), ("crate::b", b)]))
        };
        let found = of_b("fn two() { crate::a::run(); }");
        assert_eq!(found.as_deref(), Some("crate::a -> crate::b -> crate::a"));
        assert_eq!(of_b("fn two() {}\n#[cfg(test)]\nmod tests { use crate::a; }"), None);
    }

    #[test]
    fn another_address_is_no_import() {
        let texts = [
            ("crate", "pub use one::{One, Uno as Un};\nmod one;\nmod two;"),
            ("crate::one", "struct One;\nstruct Uno;"),
            ("crate::two", "use crate::{One, Un};\nuse super::one;"),
        ];
        assert_eq!(circle(&files(&texts)), None);
        let own = [
            ("crate", "mod one;\npub use one::One;\nfn own() { one::f(); }"),
            ("crate::one", "use super::own;"),
        ];
        assert_eq!(circle(&files(&own)).as_deref(), Some("crate -> crate::one -> crate"));
    }

    #[test]
    fn no_crate_has_a_circle() {
        check().unwrap();
    }
}
