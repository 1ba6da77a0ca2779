//! The workspace's rules that a program can check. Each rule is a function from what it reads to
//! the faults it finds, and has a test that plants the fault.

mod documents;
mod layers;
mod libraries;
mod manifests;
mod retired;
mod rules;
mod sizes;

use std::path::Path;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::{golden, source};

/// A broken rule: where, and what to do.
pub(crate) type Fault = String;

/// Checks every rule and prints the largest files and functions.
pub(crate) fn run(sh: &Shell, root: &Path) -> Result<()> {
    let metadata = cmd!(sh, "cargo metadata --format-version 1 --no-deps").quiet().read()?;
    let paths = source::paths(root)?;
    let sources = source::read_tree(root, &paths)?;
    let mut faults = layers::check(&metadata)?;
    faults.extend(rules::check(&sources));
    faults.extend(manifests::check(&sources)?);
    faults.extend(retired::check(&sources));
    faults.extend(documents::check(&sources, &paths));
    faults.extend(libraries::check(&sources, &paths)?);
    faults.extend(golden::listing_faults(root)?);
    print!("{}", sizes::report(&sources));
    if faults.is_empty() {
        println!("tidy: {} files, no faults", sources.len());
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("tidy found {} faults", faults.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree itself obeys, so that `cargo test` says it too.
    #[test]
    fn the_tree_is_tidy() {
        let sh = Shell::new().unwrap();
        sh.change_dir(crate::root());
        run(&sh, &crate::root()).unwrap();
    }
}
