//! The parts themselves: which packages, where what lies in them, and those of the machine.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::Unavailable;

/// A package by name, with what the file must hash to.
struct Wheel {
    name: &'static str,
    version: &'static str,
    file: &'static str,
    sha256: &'static str,
}

/// The host library, device headers and firmware.
const TTNN: Wheel = Wheel {
    name: "ttnn",
    version: "0.76.0",
    file: "ttnn-0.76.0-cp312-cp312-manylinux_2_34_x86_64.whl",
    sha256: "ef9ae928b233dbda6b732937e00d803552ad75dc0d8e892d5f2d75e87b2b77df",
};
/// The compiler for the device, and the host headers that go with that library.
const PLUGIN: Wheel = Wheel {
    name: "jax-tt-plugin",
    version: "0.1.0",
    file: "jax_tt_plugin-0.1.0-py3-none-manylinux_2_34_x86_64.whl",
    sha256: "2a5eaa1536ffb811a08513127828ad652fc042ea7a69f68b1ddad46d234b8c7f",
};
/// A simulator of the chip.
const WOLFPINE: Wheel = Wheel {
    name: "wolfpine",
    version: "2.2",
    file: "wolfpine-2.2-py3-none-any.whl",
    sha256: "1f25b17122bc7b1d7af611d9b5067d82e075515252c9a4f4c7de4895a0cc93e8",
};

/// What starts the simulator, in a Python's folder of packages.
pub(super) const SIMULATOR: &str = "site-packages/framework/sim/blackhole/run.sh";

/// How a frame of zstd begins.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Where a header of tar says what it is.
const USTAR: std::ops::Range<usize> = 257..262;

/// Where the pieces of a host library are.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// What the library takes for its root at run time.
    pub(super) root: PathBuf,
    pub(super) version: String,
    /// The folder `tt_metal` of a source tree.
    pub(super) headers: PathBuf,
    pub(super) libraries: Vec<PathBuf>,
    /// Describes a card that is not there.
    pub(super) mock: Option<PathBuf>,
}

/// Downloads and unpacks what is not there yet.
pub(super) fn install(folder: &Path) -> Result<Found> {
    let library = once(&folder.join("ttnn"), |to| {
        let wheel = TTNN.download(folder)?;
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))
    })?;
    let tree = once(&folder.join("metal"), |to| {
        println!(
            "tt-setup: {} {} declares no licence of its own (it holds Apache-2.0 headers and a \
             GPLv3 compiler); it is installed here and nothing of it is passed on",
            PLUGIN.name, PLUGIN.version
        );
        let wheel = PLUGIN.download(folder)?;
        let unzipped = once(&folder.join("plugin"), |to| {
            run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))
        })?;
        unpack_tree(&unzipped.join("jax_plugins/libtt/libtt.so"), to)?;
        // A third of a gigabyte that has served.
        Ok(fs::remove_dir_all(unzipped)?)
    })?;
    let root = library.join("ttnn");
    let link = root.join("runtime/sfpi");
    if !link.exists() {
        // A link that leads nowhere is there and does not exist.
        let _ = fs::remove_file(&link);
        fs::create_dir_all(root.join("runtime"))?;
        std::os::unix::fs::symlink(tree.join("runtime/sfpi"), &link)?;
    }
    let version = format!("{}-{}", TTNN.name, TTNN.version);
    let libraries = vec![root.join("build/lib"), library.join("ttnn.libs")];
    Ok(Found { root, version, libraries, mock: mock(&tree), headers: tree.join("tt_metal") })
}

/// Tenstorrent's own packages on this machine, when all that is needed is among them.
pub(super) fn own() -> Option<Found> {
    own_in(
        &PathBuf::from(std::env::var_os("TT_METAL_RUNTIME_ROOT")?),
        Path::new("/opt/tenstorrent/sfpi"),
    )
}

fn own_in(root: &Path, sfpi: &Path) -> Option<Found> {
    let headers = root.join("tt_metal");
    let library = ["build/lib", "build_Release/lib", "lib"].map(|place| root.join(place));
    let library = library.into_iter().find(|place| place.join("libtt_metal.so").exists())?;
    let compiler = root.join("runtime/sfpi").exists() || sfpi.exists();
    let complete = compiler && headers.join("api/tt-metalium/host_api.hpp").exists();
    complete.then(|| Found {
        root: root.to_owned(),
        version: "local".to_owned(),
        libraries: vec![library],
        mock: mock(root),
        headers,
    })
}

fn mock(tree: &Path) -> Option<PathBuf> {
    let folder = tree.join("tt_metal/third_party/umd/tests/cluster_descriptor_examples");
    Some(folder.join("blackhole_P150.yaml")).filter(|file| file.exists())
}

/// Installs the simulator into a Python of its own, which this returns.
pub(super) fn simulator(folder: &Path) -> Result<PathBuf> {
    let home = folder.join("python");
    let python = home.join("bin/python");
    if simulator_folder(&python).is_none() {
        let wheel = WOLFPINE.download(folder)?;
        println!("tt-setup: installing {} {}", WOLFPINE.name, WOLFPINE.version);
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        fetch(Command::new(&python).args(install).arg(wheel))?;
    }
    Ok(python)
}

/// Where the host library finds the simulator of the chip.
pub(super) fn simulator_folder(python: &Path) -> Option<PathBuf> {
    let lib = python.parent()?.parent()?.join("lib");
    let versions = fs::read_dir(lib).ok()?.flatten();
    let folders = versions.filter_map(|v| Some(v.path().join(SIMULATOR).parent()?.to_owned()));
    // pip writes this last, when everything else is in place.
    let whole = |folder: &PathBuf| {
        let packages = folder.ancestors().nth(3);
        let record = format!("wolfpine-{}.dist-info/RECORD", WOLFPINE.version);
        packages.is_some_and(|packages| packages.join(record).exists())
    };
    folders.into_iter().find(|folder| folder.join("run.sh").exists() && whole(folder))
}

impl Wheel {
    /// The file, downloaded when it is not there or not what it should be.
    fn download(&self, folder: &Path) -> Result<PathBuf> {
        let downloads = folder.join("downloads");
        let file = downloads.join(self.file);
        if file.exists() && self.hash_fault(&file)?.is_none() {
            return Ok(file);
        }
        println!("tt-setup: downloading {} {}", self.name, self.version);
        fs::create_dir_all(&downloads)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "30"]);
        pip.args(["--python-version", "3.12", "--platform", "manylinux_2_34_x86_64"]);
        pip.arg("--dest").arg(&downloads).arg(format!("{}=={}", self.name, self.version));
        fetch(&mut pip)?;
        match self.hash_fault(&file)? {
            None => Ok(file),
            Some(found) => {
                fs::remove_file(&file)?;
                bail!(
                    "{} has the sha256 {found}, expected {}: the registry serves another file \
                     than the one that was tried; nothing of it is used",
                    self.file,
                    self.sha256
                )
            }
        }
    }

    fn hash_fault(&self, file: &Path) -> Result<Option<String>> {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(file).with_context(|| self.file.to_owned())?, &mut hash)?;
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((found != self.sha256).then_some(found))
    }
}

/// Makes `folder` by filling another one that gets its name at the end.
fn once(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    if !folder.exists() {
        let partial = folder.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        fill(&partial).with_context(|| format!("making {}", folder.display()))?;
        fs::rename(&partial, folder)?;
    }
    Ok(folder.to_owned())
}

/// Runs to the end; what went wrong is in the last line that a program says.
/// Runs what needs a registry: without one the parts cannot be had.
fn fetch(pip: &mut Command) -> Result<()> {
    run(pip).map_err(|error| Unavailable(format!("{error:#}")).into())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    // pip blames the package then.
    let registry = if said.contains("Retrying (") { " (no registry answers)" } else { "" };
    let last = last.unwrap_or("it said nothing");
    ensure!(output.status.success(), "{command:?} failed: {last}{registry}");
    Ok(())
}

/// Unpacks the archive inside a library: the frame of zstd that holds a tar.
fn unpack_tree(library: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(library).with_context(|| library.display().to_string())?;
    let starts = bytes.windows(ZSTD.len()).enumerate().filter(|(_, at)| **at == ZSTD);
    for (at, _) in starts {
        let Ok(mut frame) = ruzstd::decoding::StreamingDecoder::new(&bytes[at..]) else { continue };
        let mut header = [0; 512];
        if frame.read_exact(&mut header).is_err() || &header[USTAR] != b"ustar" {
            continue;
        }
        let mut tar = Command::new("tar");
        tar.arg("-x").arg("-C").arg(to).stdin(Stdio::piped());
        let mut child = tar.spawn().context("tar")?;
        let mut pipe = child.stdin.take().context("tar takes no archive")?;
        pipe.write_all(&header)?;
        io::copy(&mut frame, &mut pipe).context("the archive is damaged")?;
        drop(pipe);
        ensure!(child.wait()?.success(), "tar could not unpack the archive");
        return Ok(());
    }
    bail!(
        "{} holds no archive; another version of the package is laid out otherwise",
        library.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("part");
        let stop = once(&folder, |to| {
            fs::write(to.join("half"), "")?;
            bail!("interrupted")
        });
        assert!(stop.is_err() && !folder.exists());
        once(&folder, |to| Ok(fs::write(to.join("whole"), "")?)).unwrap();
        assert!(folder.join("whole").exists() && !folder.join("half").exists());
        once(&folder, |_| bail!("it is there already")).unwrap();
    }

    #[test]
    fn a_failure_is_told_in_the_words_of_the_program() {
        let script =
            "echo 'WARNING: Retrying (Retry(total=1'>&2; echo 'ERROR: no room' >&2; exit 1";
        let error = run(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(error.ends_with("failed: ERROR: no room (no registry answers)"), "{error}");
        run(Command::new("sh").args(["-c", "echo much >&2"])).unwrap();
    }

    #[test]
    fn packages_of_the_machine_are_found_when_complete() {
        let place = tempfile::tempdir().unwrap();
        let (root, sfpi) = (place.path().join("metal"), place.path().join("sfpi"));
        fs::create_dir_all(root.join("tt_metal/api/tt-metalium")).unwrap();
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::write(root.join("tt_metal/api/tt-metalium/host_api.hpp"), "").unwrap();
        fs::write(root.join("lib/libtt_metal.so"), "").unwrap();
        assert!(own_in(&root, &sfpi).is_none(), "no compiler yet");
        fs::create_dir(&sfpi).unwrap();
        let found = own_in(&root, &sfpi).unwrap();
        assert_eq!(
            (found.version.as_str(), &found.libraries[..]),
            ("local", &[root.join("lib")][..])
        );
    }

    /// What a registry does not give cannot be had; what it gives wrongly is a fault.
    #[test]
    fn only_what_cannot_be_had_is_unavailable() {
        let error = fetch(&mut Command::new("false")).context("pip").unwrap_err();
        assert!(error.is::<Unavailable>(), "{error:#}");
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(!error.is::<Unavailable>(), "{error:#}");
    }

    #[test]
    fn a_library_without_an_archive_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("libtt.so");
        fs::write(&library, [&[1, 2, 3][..], &ZSTD, &[0; 64]].concat()).unwrap();
        let error = unpack_tree(&library, place.path()).unwrap_err();
        assert!(error.to_string().contains("no archive"), "{error}");
    }
}
