//! Opens the files of a model and of its drafter.

use std::path::Path;

use muse_core::contract::WeightSource;
use muse_core::{Error, Result};
use muse_weights::Checkpoint;

use super::{LoadOptions, nano};

/// The checkpoints of a model.
pub(super) struct Checkpoints {
    /// What the model is called.
    pub(super) name: String,
    pub(super) target: Checkpoint,
    pub(super) drafter: Option<Checkpoint>,
}

impl Checkpoints {
    /// Opens what `options` name. The drafter is left out when no draft tokens are wanted.
    pub(super) fn open(options: &LoadOptions) -> Result<Self> {
        if let Some(path) = &options.mmproj {
            return Err(Error::Unsupported(format!(
                "--mmproj {}: this build does not read pictures yet; leave --mmproj out to chat in \
                 text",
                path.display()
            )));
        }
        let (name, target) = match &options.model {
            Some(path) => (name_of(path), Checkpoint::open(path)?),
            None => (nano::NAME.to_owned(), nano::target()?),
        };
        let drafter = match (&options.draft, &options.model) {
            _ if options.max_draft == Some(0) => None,
            (Some(path), _) => Some(Checkpoint::open(path)?),
            (None, None) => Some(nano::drafter()?),
            (None, Some(_)) => None,
        };
        Ok(Self { name, target, drafter })
    }

    /// Refuses files that changed since they were opened: what was read of them may be wrong.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        for checkpoint in std::iter::once(&self.target).chain(&self.drafter) {
            checkpoint.check_unchanged()?;
        }
        Ok(())
    }

    /// Both of them, the model first.
    pub(super) fn sources(&self) -> impl Iterator<Item = &dyn WeightSource> {
        let drafter = self.drafter.as_ref().map(|drafter| drafter as &dyn WeightSource);
        std::iter::once(&self.target as &dyn WeightSource).chain(drafter)
    }
}

/// The name of a folder, or that of a file without its extension.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    name.map_or_else(|| "muse".to_owned(), |name| name.to_string_lossy().into_owned())
}
