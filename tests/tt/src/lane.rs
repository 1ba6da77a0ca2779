//! Lanes: what kernels run on, and the environment variables that select it in the host library.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::Limit;
use crate::setup::Environment;

/// What kernels run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A device without cores: kernels are compiled but not run, and results are zeros.
    Mock,
    /// A slow simulator from the package registry, without block formats.
    Wolfpine,
    /// Tenstorrent's own simulator ttsim, which the user installs.
    Sim,
    /// A card.
    Card,
}

/// What the lane of a case must be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// BF16 and little arithmetic.
    Basic,
    /// Too much arithmetic for a slow simulator.
    Speed,
    /// The formats BFP8 and BFP4.
    BlockFloat,
    /// Traces and much arithmetic.
    Traces,
    /// Everything that a backend runs: every format and much arithmetic.
    Backend,
}

impl Requirement {
    /// When such a case counts as hung. A simulator takes seconds for what a card does in
    /// microseconds, and every kernel is compiled once.
    pub fn limit(self) -> Limit {
        let cpu = Duration::from_secs(match self {
            Self::Basic => 900,
            Self::Speed | Self::BlockFloat | Self::Traces => 3600,
            Self::Backend => 7200,
        });
        Limit { cpu, idle: Duration::from_secs(300) }
    }
}

/// The variable that names the simulator.
pub const SIMULATOR: &str = "TT_METAL_SIMULATOR";
const SLOW_DISPATCH: (&str, &str) = ("TT_METAL_SLOW_DISPATCH_MODE", "1");
/// Simulators do not support the instruction SFPLOADMACRO.
const NO_LOAD_MACRO: (&str, &str) = ("TT_METAL_DISABLE_SFPLOADMACRO", "1");

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 4] = [Self::Mock, Self::Wolfpine, Self::Sim, Self::Card];

    /// The lane of a name.
    ///
    /// # Errors
    /// When there is no such lane.
    pub fn named(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|lane| lane.to_string() == name) {
            Some(lane) => Ok(lane),
            None => bail!("no lane {name}; there are mock, wolfpine, sim and card"),
        }
    }

    /// Whether results are computed.
    pub fn computes(self) -> bool {
        self != Self::Mock
    }

    /// Bytes that a device reserves for traces.
    pub fn trace_bytes(self) -> u64 {
        if self.lacks(Requirement::Traces).is_some() { 0 } else { 4 << 20 }
    }

    /// Why cases with a requirement cannot run; `None` when they can.
    pub fn lacks(self, requirement: Requirement) -> Option<&'static str> {
        match (self, requirement) {
            (Self::Wolfpine, Requirement::Speed | Requirement::Backend) => {
                Some("is too slow for them")
            }
            (Self::Wolfpine, Requirement::BlockFloat) => Some("has no block formats"),
            (Self::Mock | Self::Wolfpine, Requirement::Traces) => Some("records no traces"),
            (Self::Mock, Requirement::Backend) => Some("cannot run a backend"),
            _ => None,
        }
    }

    /// The environment variables for the process of a case.
    ///
    /// # Errors
    /// Why the lane cannot run on this machine.
    pub fn environment(
        self,
        packages: &Environment,
        simulator: Option<&str>,
    ) -> Result<Vec<(String, String)>, String> {
        let required = |name: &str| {
            let value = packages.value(name);
            value.map(str::to_owned).ok_or(format!("there is no {name}; run tt-setup again"))
        };
        let owned = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        let mut all: Vec<_> = packages.of_metal().map(owned).collect();
        match self {
            Self::Mock => {
                let card =
                    ("TT_METAL_MOCK_CLUSTER_DESC_PATH".to_owned(), required("MUSE_TT_MOCK")?);
                all.extend([owned(SLOW_DISPATCH), card]);
            }
            Self::Wolfpine => {
                let folder = (SIMULATOR.to_owned(), required("MUSE_TT_WOLFPINE")?);
                all.extend([owned(SLOW_DISPATCH), owned(NO_LOAD_MACRO), folder]);
            }
            Self::Sim => {
                let existing = simulator.filter(|path| Path::new(path).exists());
                let Some(path) = existing else {
                    let found = simulator.map_or("is not set".to_owned(), |path| {
                        format!("is {path}, which does not exist")
                    });
                    return Err(format!(
                        "{SIMULATOR} {found}: set it to libttsim_bh.so of Tenstorrent's simulator \
                         ttsim, in a folder that also holds its soc_descriptor.yaml"
                    ));
                };
                all.extend([owned(NO_LOAD_MACRO), owned((SIMULATOR, path))]);
            }
            Self::Card if !Path::new("/dev/tenstorrent").exists() => {
                return Err("this machine has no /dev/tenstorrent".to_owned());
            }
            Self::Card => {}
        }
        Ok(all)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mock => "mock",
            Self::Wolfpine => "wolfpine",
            Self::Sim => "sim",
            Self::Card => "card",
        })
    }
}
