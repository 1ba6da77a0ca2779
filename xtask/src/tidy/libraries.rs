//! What every library crate has: a README, an example, facts for a registry, and documents on its
//! public items.

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Fault;
use crate::source::Source;

/// Facts of a manifest that a registry shows.
const FACTS: [&str; 3] = ["description", "keywords", "categories"];
/// Words after `pub` that begin an item.
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro"];
/// Words that may stand before those.
const QUALIFIERS: [&str; 3] = ["unsafe", "async", "extern"];

/// Faults of all library crates below `crates/`; `paths` is every file of the tree.
pub(super) fn check(sources: &[Source], paths: &[String]) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(folder) = source.path.strip_suffix("Cargo.toml") else { continue };
        let is_library = paths.contains(&format!("{folder}src/lib.rs"));
        if folder.starts_with("crates/") && is_library {
            faults.extend(shape(folder, paths));
            faults.extend(facts(source)?);
            let src = format!("{folder}src/");
            let code = sources.iter().filter(|s| s.path.starts_with(&src) && !s.is_generated());
            faults.extend(code.flat_map(undocumented));
        }
        if source.path == "Cargo.toml" {
            faults.extend(lint(source)?);
        }
    }
    Ok(faults)
}

fn shape(folder: &str, paths: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !paths.contains(&format!("{folder}README.md")) {
        faults.push(format!("{folder}: add a README.md: what the crate is, ten lines of use"));
    }
    let examples = format!("{folder}examples/");
    if !paths.iter().any(|p| p.starts_with(&examples) && p.ends_with(".rs")) {
        faults
            .push(format!("{folder}: add a program below {examples}, with fakes of muse-testkit"));
    }
    faults
}

fn facts(source: &Source) -> Result<Vec<Fault>> {
    let manifest: Table = source.text.parse().with_context(|| source.path.clone())?;
    let package = manifest.get("package");
    let absent = FACTS.iter().filter(|fact| package.and_then(|p| p.get(**fact)).is_none());
    Ok(absent.map(|fact| format!("{}: [package] lacks {fact}", source.path)).collect())
}

/// The workspace warns about undocumented items, and clippy in CI makes that an error.
fn lint(source: &Source) -> Result<Option<Fault>> {
    let manifest: Table = source.text.parse().with_context(|| source.path.clone())?;
    let rust = manifest.get("workspace").and_then(|w| w.get("lints")?.get("rust"));
    let level = rust.and_then(|lints| lints.get("missing_docs")).and_then(Value::as_str);
    let on = matches!(level, Some("warn" | "deny" | "forbid"));
    let fault = "Cargo.toml: set [workspace.lints.rust] missing_docs = \"warn\"";
    Ok((!on).then(|| fault.to_owned()))
}

/// Public items without a document, and whatever turns the lint off.
fn undocumented(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, code) in source.code_before_tests().lines().enumerate() {
        if code.contains("allow(") && code.contains("missing_docs") {
            faults.push(format!("{}:{}: document the items instead", source.path, at + 1));
        }
        if let Some(name) = item(code).filter(|_| !documented(&lines[..at])) {
            faults.push(format!("{}:{}: document {name}", source.path, at + 1));
        }
    }
    faults
}

/// The item that a line makes public to everybody.
fn item(code: &str) -> Option<&str> {
    let mut words = code.trim_start().strip_prefix("pub ")?.split_whitespace().peekable();
    while words.peek().is_some_and(|word| QUALIFIERS.contains(word)) {
        words.next();
    }
    let kind = words.next().filter(|word| ITEMS.contains(word))?;
    // `pub const fn` is a function.
    let mut name = words.next()?;
    while kind == "const" && ["unsafe", "fn"].contains(&name) {
        name = words.next()?;
    }
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end])
}

/// Whether the lines above an item end with its document, attributes between them.
fn documented(above: &[&str]) -> bool {
    let mut in_attribute = false;
    for line in above.iter().rev().map(|line| line.trim()) {
        if line.starts_with("#[doc") || (line.starts_with("///") && !in_attribute) {
            return true;
        }
        let begins = line.starts_with("#[");
        if !begins && !in_attribute && !line.ends_with(")]") {
            return false;
        }
        in_attribute = !begins;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.lints.rust]\nmissing_docs = \"warn\"\n";
    const MANIFEST: &str =
        "[package]\nname = \"a\"\ndescription = \"d\"\nkeywords = []\ncategories = []\n";
    const PATHS: [&str; 3] =
        ["crates/a/src/lib.rs", "crates/a/README.md", "crates/a/examples/use.rs"];

    fn faults(root: &str, manifest: &str, paths: &[&str], code: &str) -> Vec<Fault> {
        let sources = [
            Source::new("Cargo.toml", root),
            Source::new("crates/a/Cargo.toml", manifest),
            Source::new("crates/a/src/lib.rs", code),
        ];
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        check(&sources, &paths).unwrap()
    }

    #[track_caller]
    fn refuses(found: &[Fault], what: &str) {
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert!(found[0].contains(what), "{}", found[0]);
    }

    #[test]
    fn a_library_has_a_readme_and_an_example() {
        assert_eq!(faults(ROOT, MANIFEST, &PATHS, ""), Vec::<Fault>::new());
        refuses(&faults(ROOT, MANIFEST, &[PATHS[0], PATHS[2]], ""), "README.md");
        refuses(&faults(ROOT, MANIFEST, &PATHS[..2], ""), "examples/");
        // A package without a library is a tool.
        assert_eq!(faults(ROOT, "[package]\n", &["crates/a/src/main.rs"], ""), Vec::<Fault>::new());
    }

    #[test]
    fn a_library_tells_a_registry_what_it_is() {
        for fact in FACTS {
            let lines = MANIFEST.lines().filter(|line| !line.starts_with(fact));
            let manifest = lines.collect::<Vec<_>>().join("\n");
            refuses(&faults(ROOT, &manifest, &PATHS, ""), fact);
        }
    }

    #[test]
    fn the_lint_against_missing_documents_is_on() {
        refuses(&faults("[workspace]\n", MANIFEST, &PATHS, ""), "missing_docs");
        let off = ROOT.replace("warn", "allow");
        refuses(&faults(&off, MANIFEST, &PATHS, ""), "missing_docs");
        refuses(&faults(ROOT, MANIFEST, &PATHS, "#![allow(missing_docs)]"), "instead");
    }

    #[test]
    fn public_items_are_documented() {
        for planted in [
            "pub fn planted() {}",
            "pub const fn planted() {}",
            "pub unsafe fn planted() {}",
            "pub struct planted;",
            "#[derive(Debug)]\npub enum planted {}",
            "/// Another.\nfn other() {}\npub trait planted {}",
            "// No document.\npub type planted = u8;",
            "impl A {\n    #[must_use]\n    pub const planted: u8 = 1;\n}",
        ] {
            refuses(&faults(ROOT, MANIFEST, &PATHS, planted), "document planted");
        }
        for good in [
            "/// One.\npub fn f() {}",
            "/// One.\n#[derive(Debug)]\n#[must_use = \"b\"]\npub struct A;",
            "/// One.\n#[cfg_attr(\n    a,\n    derive(B)\n)]\npub struct A;",
            "pub(crate) fn f() {}",
            "pub use a::B;\npub mod c;",
            "#[cfg(test)]\nmod tests {\n    pub fn f() {}\n}",
        ] {
            assert_eq!(faults(ROOT, MANIFEST, &PATHS, good), Vec::<Fault>::new(), "{good}");
        }
    }

    #[test]
    fn faults_name_the_line() {
        let found = faults(ROOT, MANIFEST, &PATHS, "\npub fn planted() {}\n");
        assert!(found[0].starts_with("crates/a/src/lib.rs:2: "), "{}", found[0]);
    }
}
