//! Installs Tenstorrent's host library, compiler and a simulator from the package registry, or
//! finds those of the machine. Every step leaves its result under its name only when it is whole,
//! so a run that was interrupted is repeated by running again.

mod needs;
mod parts;

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result, bail};

pub use needs::{Need, missing};
use parts::Found;

/// The machine cannot have the parts: it lacks something, or no registry gives them.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// What the compiler and the programs must know of the parts, in [`Environment::FILE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    values: Vec<(String, String)>,
}

impl Environment {
    /// Name of the file in the folder of the parts. A shell can read it too.
    pub const FILE: &str = "muse-tt.env";

    /// Reads what `tt-setup` wrote into `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(Self::FILE);
        let text = fs::read_to_string(&path).with_context(|| {
            format!("{}: run `cargo xtask tt-setup {}`", path.display(), folder.display())
        })?;
        let pair = |line: &str| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        Ok(Self { values: text.lines().filter_map(pair).collect() })
    }

    /// A value by its name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The values that Tenstorrent's host library itself reads.
    pub fn of_metal(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(name, _)| !name.starts_with("MUSE_"))
    }

    fn set(&mut self, name: &str, value: impl AsRef<Path>) {
        self.values.push((name.to_owned(), value.as_ref().to_string_lossy().into_owned()));
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let lines: String =
            self.values.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let partial = folder.join(format!("{}.partial", Self::FILE));
        fs::write(&partial, lines)?;
        Ok(fs::rename(&partial, folder.join(Self::FILE))?)
    }
}

/// Installs what is not there yet into `folder` and writes the environment file.
///
/// # Errors
/// [`Unavailable`] names everything that the machine lacks, and the command that installs it, or
/// the download that failed. A file that is not the one expected is a fault like any other.
pub fn install(folder: &Path) -> Result<Environment> {
    let absent = missing();
    if !absent.is_empty() {
        return Err(Unavailable(needs::advice(&absent)).into());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let folder = folder.canonicalize()?;
    if folder.to_string_lossy().contains([' ', ':', '=']) {
        bail!("{}: choose a folder without blanks, `:` and `=` in its name", folder.display());
    }
    let own = parts::own();
    let found = match &own {
        Some(found) => {
            println!("tt-setup: using Tenstorrent's own packages in {}", found.root.display());
            found.clone()
        }
        None => parts::install(&folder)?,
    };
    let python = parts::simulator(&folder)?;
    let environment = environment(&folder, &found, &python)?;
    environment.write(&folder)?;
    println!("tt-setup: {}", folder.join(Environment::FILE).display());
    Ok(environment)
}

/// What `folder` and the machine lack, one line each; nothing when all is there.
pub fn check(folder: &Path) -> Vec<String> {
    let mut lacks: Vec<String> = missing().iter().map(Need::to_string).collect();
    let advice =
        |what: String| format!("{what} is absent: run `cargo xtask tt-setup {}`", folder.display());
    match Environment::read(folder) {
        Ok(environment) => {
            let paths = environment.values.iter().filter(|(name, _)| name != "MUSE_TT_LIBRARY");
            let slices =
                paths.flat_map(|(_, value)| value.split(':')).filter(|v| v.starts_with('/'));
            lacks.extend(slices.filter(|p| !Path::new(p).exists()).map(|p| advice(p.to_owned())));
            let python = environment.value("WOLFPINE_PYTHON").unwrap_or_default();
            let packages = parts::simulator_lacks(Path::new(python)).into_iter();
            lacks.extend(packages.map(|package| advice(format!("the simulator's {package}"))));
        }
        Err(_) => lacks.push(advice(folder.join(Environment::FILE).display().to_string())),
    }
    lacks
}

fn environment(folder: &Path, found: &Found, python: &Path) -> Result<Environment> {
    let mut environment = Environment::default();
    environment.set("TT_METAL_RUNTIME_ROOT", &found.root);
    environment.set("TT_METAL_CACHE", made(folder.join("cache")));
    environment.set("TT_METAL_LOGS_PATH", made(folder.join("logs")));
    environment.set("TT_METAL_LOGGER_LEVEL", "ERROR");
    // It would listen on a port and write into the current folder.
    environment.set("TT_METAL_INSPECTOR", "0");
    environment.set("WOLFPINE_PYTHON", python);
    environment.set("MUSE_TT_LIBRARY", &found.version);
    environment.set("MUSE_TT_HEADERS", &found.headers);
    let libraries: Vec<_> = found.libraries.iter().map(|path| path.to_string_lossy()).collect();
    environment.set("MUSE_TT_LIBRARIES", libraries.join(":"));
    if let Some(mock) = &found.mock {
        environment.set("MUSE_TT_MOCK", mock);
    }
    let simulator = parts::simulator_folder(python).with_context(|| {
        format!(
            "{} has no simulator after its installation; expected {}: its package is laid out \
             otherwise than the one that was tried",
            python.display(),
            parts::SIMULATOR
        )
    })?;
    environment.set("MUSE_TT_WOLFPINE", simulator);
    Ok(environment)
}

/// Makes a folder that may stay empty.
fn made(folder: PathBuf) -> PathBuf {
    // Whoever writes into it says what is wrong.
    let _ = fs::create_dir_all(&folder);
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut written = Environment::default();
        written.set("TT_METAL_CACHE", "/a/cache");
        written.set("MUSE_TT_LIBRARY", "ttnn-0.76.0");
        written.write(folder.path()).unwrap();
        let read = Environment::read(folder.path()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.value("MUSE_TT_LIBRARY"), Some("ttnn-0.76.0"));
        assert_eq!(read.of_metal().collect::<Vec<_>>(), [("TT_METAL_CACHE", "/a/cache")]);
    }

    #[test]
    fn a_simulator_that_is_not_where_it_should_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let found = Found {
            root: at.to_owned(),
            version: "local".to_owned(),
            headers: at.to_owned(),
            libraries: Vec::new(),
            mock: None,
        };
        let python = at.join("python/bin/python");
        let error = environment(at, &found, &python).unwrap_err().to_string();
        assert!(error.contains("sim/blackhole/run.sh"), "{error}");
        let packages = at.join("python/lib/python3.12/site-packages");
        let run = packages.join(parts::SIMULATOR);
        fs::create_dir_all(run.parent().unwrap()).unwrap();
        fs::write(run, "").unwrap();
        let environment = environment(at, &found, &python).unwrap();
        let simulator = packages.join("framework/sim/blackhole");
        assert_eq!(environment.value("MUSE_TT_WOLFPINE"), simulator.to_str());
    }

    #[test]
    fn a_folder_without_parts_is_told_how_to_get_them() {
        let folder = tempfile::tempdir().unwrap();
        let lacks = check(folder.path());
        let last = lacks.last().unwrap();
        assert!(last.contains("cargo xtask tt-setup"), "{last}");
        let mut gone = Environment::default();
        gone.set("MUSE_TT_HEADERS", folder.path().join("gone"));
        gone.write(folder.path()).unwrap();
        let lacks = check(folder.path());
        assert!(lacks.iter().any(|lack| lack.contains("gone is absent")), "{lacks:?}");
        let package = "the simulator's numpy==";
        assert!(lacks.iter().any(|lack| lack.starts_with(package)), "{lacks:?}");
    }
}
