//! Installs Tenstorrent's host library, compiler and a simulator from the package registry, or
//! finds an installed host library. Every step gives its result its final name when it is complete,
//! so that an interrupted installation can be continued.

mod packages;
mod prerequisites;

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result, bail};

use packages::HostLibrary;
pub use prerequisites::{Prerequisite, missing};

/// The packages cannot be installed: the machine lacks something, or no registry answers.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Where the installed packages are, for the build script and the programs, in
/// [`Environment::FILE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    values: Vec<(String, String)>,
}

impl Environment {
    /// The name of the file in the folder of the packages. A shell can read it too.
    pub const FILE: &str = "muse-tt.env";

    /// Reads the file that `tt-setup` wrote into `folder`.
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

    /// The environment variables of Tenstorrent's host library and of the simulator.
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

/// Installs what is missing into `folder` and writes the environment file.
///
/// # Errors
/// [`Unavailable`] names everything that the machine lacks, and the command that installs
/// it, or the download that failed. A file with an unexpected hash is another kind of error.
pub fn install(folder: &Path) -> Result<Environment> {
    let absent = missing();
    if !absent.is_empty() {
        return Err(Unavailable(prerequisites::advice(&absent)).into());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let folder = folder.canonicalize()?;
    if folder.to_string_lossy().contains([' ', ':', '=']) {
        bail!("{}: choose a folder without blanks, `:` and `=` in its name", folder.display());
    }
    let library = match packages::installed() {
        Some(library) => {
            println!("tt-setup: using Tenstorrent's own packages in {}", library.root.display());
            library
        }
        None => packages::install(&folder)?,
    };
    let python = packages::simulator(&folder)?;
    let environment = environment(&folder, &library, &python)?;
    environment.write(&folder)?;
    println!("tt-setup: {}", folder.join(Environment::FILE).display());
    Ok(environment)
}

/// What is missing in `folder` and on the machine, one line each.
pub fn check(folder: &Path) -> Vec<String> {
    let mut lines: Vec<String> = missing().iter().map(Prerequisite::to_string).collect();
    let advice =
        |what: String| format!("{what} is absent: run `cargo xtask tt-setup {}`", folder.display());
    match Environment::read(folder) {
        Ok(environment) => {
            let paths = environment.values.iter().filter(|(name, _)| name != "MUSE_TT_LIBRARY");
            let paths =
                paths.flat_map(|(_, value)| value.split(':')).filter(|v| v.starts_with('/'));
            lines.extend(paths.filter(|p| !Path::new(p).exists()).map(|p| advice(p.to_owned())));
            let python = environment.value("WOLFPINE_PYTHON").unwrap_or_default();
            let missing = packages::missing_of_simulator(Path::new(python)).into_iter();
            lines.extend(missing.map(|package| advice(format!("the simulator's {package}"))));
        }
        Err(_) => lines.push(advice(folder.join(Environment::FILE).display().to_string())),
    }
    lines
}

fn environment(folder: &Path, library: &HostLibrary, python: &Path) -> Result<Environment> {
    let mut environment = Environment::default();
    environment.set("TT_METAL_RUNTIME_ROOT", &library.root);
    environment.set("TT_METAL_CACHE", created(folder.join("cache")));
    environment.set("TT_METAL_LOGS_PATH", created(folder.join("logs")));
    environment.set("TT_METAL_LOGGER_LEVEL", "ERROR");
    // The inspector would listen on a port and write into the current folder.
    environment.set("TT_METAL_INSPECTOR", "0");
    environment.set("WOLFPINE_PYTHON", python);
    environment.set("MUSE_TT_LIBRARY", &library.version);
    environment.set("MUSE_TT_HEADERS", &library.headers);
    let libraries: Vec<_> = library.libraries.iter().map(|path| path.to_string_lossy()).collect();
    environment.set("MUSE_TT_LIBRARIES", libraries.join(":"));
    if let Some(mock) = &library.mock {
        environment.set("MUSE_TT_MOCK", mock);
    }
    let simulator = packages::simulator_folder(python).with_context(|| {
        format!(
            "{} has no simulator after its installation; expected {}: the layout of its package \
             differs from the tested version",
            python.display(),
            packages::SIMULATOR
        )
    })?;
    environment.set("MUSE_TT_WOLFPINE", simulator);
    Ok(environment)
}

/// Creates a folder that may stay empty.
fn created(folder: PathBuf) -> PathBuf {
    // An error is reported by the program that writes into it.
    let _ = fs::create_dir_all(&folder);
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read_as_it_was_written() {
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
    fn a_missing_simulator_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let library = HostLibrary {
            root: at.to_owned(),
            version: "local".to_owned(),
            headers: at.to_owned(),
            libraries: Vec::new(),
            mock: None,
        };
        let python = at.join("python/bin/python");
        let error = environment(at, &library, &python).unwrap_err().to_string();
        assert!(error.contains("sim/blackhole/run.sh"), "{error}");
        let site_packages = at.join("python/lib/python3.12/site-packages");
        let run = site_packages.join(packages::SIMULATOR);
        fs::create_dir_all(run.parent().unwrap()).unwrap();
        fs::write(run, "").unwrap();
        let environment = environment(at, &library, &python).unwrap();
        let simulator = site_packages.join("framework/sim/blackhole");
        assert_eq!(environment.value("MUSE_TT_WOLFPINE"), simulator.to_str());
    }

    #[test]
    fn check_lists_what_is_missing_and_how_to_install_it() {
        let folder = tempfile::tempdir().unwrap();
        let lines = check(folder.path());
        let last = lines.last().unwrap();
        assert!(last.contains("cargo xtask tt-setup"), "{last}");
        let mut gone = Environment::default();
        gone.set("MUSE_TT_HEADERS", folder.path().join("gone"));
        gone.write(folder.path()).unwrap();
        let lines = check(folder.path());
        assert!(lines.iter().any(|line| line.contains("gone is absent")), "{lines:?}");
        let package = "the simulator's numpy==";
        assert!(lines.iter().any(|line| line.starts_with(package)), "{lines:?}");
    }
}
