//! The lanes: what a kernel runs on, and how the host library is told.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::Limit;
use crate::setup::Environment;

/// What kernels run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Nothing: kernels are compiled, results are zeros.
    Mock,
    /// A slow simulator that the package registry has; BF16 only.
    Wolfpine,
    /// Tenstorrent's own simulator, which a user installs.
    Sim,
    /// A card.
    Card,
}

/// What a case needs of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// BF16 and a little time.
    Little,
    /// More arithmetic than a slow simulator can do.
    Speed,
    /// Formats whose values share exponents.
    Blocks,
    /// Recorded traces, and time.
    Traces,
    /// All that a backend runs: every format, and time.
    Backend,
}

impl Needs {
    /// When such a case counts as hung: a simulator takes seconds for what a card does in
    /// microseconds, and every kernel is compiled once.
    pub fn limit(self) -> Limit {
        let cpu = Duration::from_secs(match self {
            Self::Little => 900,
            Self::Speed | Self::Blocks | Self::Traces => 3600,
            Self::Backend => 7200,
        });
        Limit { cpu, idle: Duration::from_secs(300) }
    }
}

/// Where the user says his simulator is.
pub const SIMULATOR: &str = "TT_METAL_SIMULATOR";
const SLOW: (&str, &str) = ("TT_METAL_SLOW_DISPATCH_MODE", "1");
/// Simulators do not know that instruction.
const NO_MACRO: (&str, &str) = ("TT_METAL_DISABLE_SFPLOADMACRO", "1");

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 4] = [Self::Mock, Self::Wolfpine, Self::Sim, Self::Card];

    /// A lane by its name.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|lane| lane.to_string() == name) {
            Some(lane) => Ok(lane),
            None => bail!("no lane {name}; there are mock, wolfpine, sim and card"),
        }
    }

    /// Whether results are worth looking at.
    pub fn computes(self) -> bool {
        self != Self::Mock
    }

    /// Bytes that a device keeps for traces.
    pub fn trace_bytes(self) -> u64 {
        if self.lacks(Needs::Traces).is_some() { 0 } else { 4 << 20 }
    }

    /// Why cases that need this cannot run; nothing when they can.
    pub fn lacks(self, needs: Needs) -> Option<&'static str> {
        match (self, needs) {
            (Self::Wolfpine, Needs::Speed | Needs::Backend) => Some("is too slow for them"),
            (Self::Wolfpine, Needs::Blocks) => Some("has no block formats"),
            (Self::Mock | Self::Wolfpine, Needs::Traces) => Some("records no traces"),
            (Self::Mock, Needs::Backend) => Some("compiles the kernels of a backend alone"),
            _ => None,
        }
    }

    /// What the process of a case gets in its environment, or why the lane cannot run here.
    ///
    /// # Errors
    /// Names what is absent.
    pub fn environment(
        self,
        parts: &Environment,
        simulator: Option<&str>,
    ) -> Result<Vec<(String, String)>, String> {
        let part = |name: &str| {
            let value = parts.value(name);
            value.map(str::to_owned).ok_or(format!("the parts have no {name}; run tt-setup again"))
        };
        let own = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        let mut all: Vec<_> = parts.of_metal().map(own).collect();
        match self {
            Self::Mock => {
                let card = ("TT_METAL_MOCK_CLUSTER_DESC_PATH".to_owned(), part("MUSE_TT_MOCK")?);
                all.extend([own(SLOW), card]);
            }
            Self::Wolfpine => {
                let folder = (SIMULATOR.to_owned(), part("MUSE_TT_WOLFPINE")?);
                all.extend([own(SLOW), own(NO_MACRO), folder]);
            }
            Self::Sim => {
                let named = simulator.filter(|path| Path::new(path).exists());
                let Some(path) = named else {
                    let found = simulator.map_or("is not set".to_owned(), |path| {
                        format!("is {path}, which is not there")
                    });
                    return Err(format!(
                        "{SIMULATOR} {found}: set it to libttsim_bh.so of Tenstorrent's simulator \
                         ttsim, in a folder that also holds its soc_descriptor.yaml"
                    ));
                };
                all.extend([own(NO_MACRO), own((SIMULATOR, path))]);
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
