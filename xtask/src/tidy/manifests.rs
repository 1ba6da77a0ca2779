//! Rules about `Cargo.toml` files: one place for versions, one set of lints.

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Fault;
use crate::source::Source;

/// Faults of all member manifests among `sources`.
pub(super) fn check(sources: &[Source]) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|s| s.path.ends_with("/Cargo.toml")) {
        let manifest: Table = source.text.parse().with_context(|| source.path.clone())?;
        // A workspace of its own (the fuzz targets) inherits nothing.
        if manifest.contains_key("workspace") {
            continue;
        }
        if manifest.get("lints").and_then(|l| l.get("workspace")) != Some(&Value::Boolean(true)) {
            faults.push(format!("{}: add `[lints] workspace = true`", source.path));
        }
        for (name, _) in dependencies(&manifest).filter(|(_, value)| !inherits(value)) {
            faults.push(format!(
                "{}: write `{name}.workspace = true`; its version belongs into \
                 [workspace.dependencies]",
                source.path
            ));
        }
    }
    Ok(faults)
}

fn inherits(dependency: &Value) -> bool {
    dependency.get("workspace") == Some(&Value::Boolean(true))
}

/// Every dependency of a manifest, those of a target included.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let of_targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(of_targets)
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"].map(|kind| table.get(kind))
        })
        .flatten()
        .filter_map(Value::as_table)
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<Fault> {
        check(&[Source::new("crates/a/Cargo.toml", text)]).unwrap()
    }

    #[test]
    fn versions_stand_in_the_workspace() {
        let lints = "[lints]\nworkspace = true\n";
        let good = format!("{lints}[dependencies]\nhalf.workspace = true\n");
        assert_eq!(faults(&good), Vec::<Fault>::new());
        for planted in [
            "[dependencies]\nhalf = \"2\"\n",
            "[dev-dependencies]\nhalf = { version = \"2\" }\n",
            "[build-dependencies]\nhalf = { path = \"../half\" }\n",
            "[target.'cfg(unix)'.dependencies]\nhalf = \"2\"\n",
        ] {
            let found = faults(&format!("{lints}{planted}"));
            assert_eq!(found.len(), 1, "{planted}");
            assert!(found[0].contains("half"), "{}", found[0]);
        }
    }

    #[test]
    fn lints_are_the_workspaces() {
        assert_eq!(faults("[package]\nname = \"a\"\n").len(), 1);
        assert_eq!(faults("[workspace]\n[dependencies]\nhalf = \"2\"\n"), Vec::<Fault>::new());
    }
}
