//! Settings from `MUSE_*` variables. Every flag with a variable is read as if it were on a command
//! line of its own, so that an error can name the variable. An empty variable counts as unset.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, anyhow};
use clap::builder::Resettable;
use clap::{Arg, Args, Command, Id};

/// What all variables of muse begin with.
const PREFIX: &str = "MUSE_";
/// Beginnings of variables that are not for the command: those that Kubernetes sets for a service
/// called muse, and those of the workspace's tests and of the Tenstorrent backend.
const OTHERS: [&str; 5] =
    ["MUSE_SERVICE_", "MUSE_PORT", "MUSE_TEST_", "MUSE_EXPECT_ISA", "MUSE_TT_"];

/// Reads the variables of a set of flags.
///
/// # Errors
/// For a variable whose value the flag refuses; the message names the variable.
pub(super) fn flags<A: Args>(variable: impl Fn(&OsStr) -> Option<OsString>) -> Result<A> {
    let command = A::augment_args(Command::new("muse").no_binary_name(true));
    let variables: Vec<(OsString, String)> = command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_env()?.to_owned(), arg.get_long()?.to_owned())))
        .collect();
    let alone = |arg: Arg| without_variable(arg).conflicts_with(Resettable::<Id>::Reset);
    let command = command.mut_args(alone);
    let mut line = Vec::new();
    for (name, flag) in variables {
        let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
        let mut text = OsString::from(format!("--{flag}="));
        text.push(value);
        if let Err(error) = command.clone().try_get_matches_from([&text]) {
            let error = error.to_string();
            let why = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Err(anyhow!("the variable {}: {why}", name.to_string_lossy()));
        }
        line.push(text);
    }
    Ok(A::from_arg_matches(&command.try_get_matches_from(line)?)?)
}

/// The same command line, read without variables.
pub(crate) fn without_variables(command: Command) -> Command {
    command.mut_args(without_variable).mut_subcommands(without_variables)
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(None::<&'static str>)
}

/// A warning for each variable that begins like those of muse and is none of `command`, with the
/// name it may have been meant to be.
pub(crate) fn unknown_variables(command: &Command) -> Vec<String> {
    let names = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let names = names.filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| unknown(&name, &known(command))).collect()
}

/// The variables of a command and its subcommands.
fn known(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(known)).collect()
}

fn unknown(name: &str, known: &[String]) -> Option<String> {
    let ours = name.starts_with(PREFIX) && !OTHERS.iter().any(|other| name.starts_with(other));
    if !ours || known.iter().any(|known| known == name) {
        return None;
    }
    let nearest = known.iter().min_by_key(|known| distance(name, known))?;
    Some(format!("no setting is called {name}; the nearest variable is {nearest}"))
}

/// Insertions, deletions and replacements of letters between two texts.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = ["MUSE_CONTEXT", "MUSE_CONFIG", "MUSE_KV"].map(str::to_owned);
        for (name, nearest) in [
            ("MUSE_CONTEX", "MUSE_CONTEXT"),
            ("MUSE_KVV", "MUSE_KV"),
            ("MUSE_CONFG", "MUSE_CONFIG"),
        ] {
            let warning = unknown(name, &known).expect("unknown");
            assert!(warning.contains(name) && warning.ends_with(nearest), "{warning}");
        }
        for fine in ["MUSE_KV", "HOME", "MUSE_SERVICE_HOST", "MUSE_PORT_8080_TCP", "MUSE_TT_SHIM"] {
            assert_eq!(unknown(fine, &known), None);
        }
    }
}
