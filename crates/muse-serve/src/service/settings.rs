//! Sampling and limits of a request, checked and completed by the model's defaults.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use muse_atem::request::SamplingFields;
use muse_core::contract::{Sampling, Token};

use super::ServiceError;
use crate::app::App;

/// Entries of a logit bias: each decoding step adds all of them.
const MAX_LOGIT_BIASES: usize = 4096;
/// Alternatives reported with a token.
const MAX_LOGPROBS: u32 = 20;

/// Sampling and limits of a request. None means the model's or the engine's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// What differs from the model's own sampling; a seed is drawn at random when none is given.
    pub sampling: SamplingFields,
    /// At least 1. More than the positions left means all of them.
    pub max_tokens: Option<u32>,
    /// Tokens to generate before a stop token may end the answer.
    pub min_tokens: u32,
    /// The most tokens to draft per verify.
    pub max_draft: Option<u32>,
    /// Alternatives to report with each token, up to 20.
    pub logprobs: Option<u32>,
    /// Requests with a higher value are scheduled first.
    pub priority: i32,
    /// How long the request may take.
    pub deadline: Option<Duration>,
}

impl GenerationSettings {
    /// The sampling of the request.
    pub(super) fn sampling(&self, app: &App) -> Result<Sampling, ServiceError> {
        self.sampling
            .check()
            .map_err(|error| ServiceError::invalid_field(&error.path, error.message))?;
        check_logit_bias(app, &self.sampling.logit_bias)?;
        let mut sampling = self.sampling.over(&app.sampling);
        if self.sampling.seed.is_none() {
            sampling.seed = random_u64();
        }
        Ok(sampling)
    }

    /// Checks the limits.
    pub(super) fn check_limits(&self) -> Result<(), ServiceError> {
        if self.max_tokens == Some(0) {
            let message = "found 0; give at least 1, or leave it out to use all the room there is";
            return Err(ServiceError::invalid_field("max_tokens", message));
        }
        if let Some(max) = self.max_tokens.filter(|&max| max < self.min_tokens) {
            let message = format!("found {}; give at most max_tokens, {max}", self.min_tokens);
            return Err(ServiceError::invalid_field("min_tokens", message));
        }
        match self.logprobs {
            Some(found) if found > MAX_LOGPROBS => Err(ServiceError::invalid_field(
                "logprobs",
                format!("found {found}; at most {MAX_LOGPROBS} alternatives are reported"),
            )),
            _ => Ok(()),
        }
    }
}

fn check_logit_bias(app: &App, biases: &[(Token, f32)]) -> Result<(), ServiceError> {
    if biases.len() > MAX_LOGIT_BIASES {
        let message = format!("found {}; give at most {MAX_LOGIT_BIASES}", biases.len());
        return Err(ServiceError::invalid_field("bias", message));
    }
    for (token, bias) in biases {
        check_token(app, "bias", *token)?;
        if !bias.is_finite() {
            let message = format!("found {bias} for token {}; give a finite number", token.0);
            return Err(ServiceError::invalid_field("bias", message));
        }
    }
    Ok(())
}

/// Checks that a token is part of the vocabulary.
pub(super) fn check_token(app: &App, field: &str, token: Token) -> Result<(), ServiceError> {
    if token.0 < app.model.vocab {
        return Ok(());
    }
    let (found, size) = (token.0, app.model.vocab);
    let message = format!("found token {found}; the vocabulary has {size}, numbered from 0");
    Err(ServiceError::invalid_field(field, message))
}

/// A random number, not for secrets. Hash maps have the standard library's only source of
/// randomness.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}
