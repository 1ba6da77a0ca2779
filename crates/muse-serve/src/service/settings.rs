//! What a request says about generation, checked and completed by the model's defaults.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use muse_core::contract::{Sampling, Token};

use super::Refusal;
use crate::app::App;

/// The most tokens whose logits a request may shift.
const MAX_BIASES: usize = 4096;
/// The most alternatives reported with a token.
const MAX_LOGPROBS: u32 = 20;

/// Bounds of generation, and what differs from the model's own [`Sampling`]. None means the
/// default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// From 0 (greedy) to 100.
    pub temperature: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<u32>,
    /// Above 0, up to 1.
    pub top_p: Option<f32>,
    /// From 0 to 1.
    pub min_p: Option<f32>,
    /// Above 0; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// From -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// From -2 to 2.
    pub presence_penalty: Option<f32>,
    /// Added to the logits of single tokens.
    pub bias: Vec<(Token, f32)>,
    /// Drawn at random when none.
    pub seed: Option<u64>,
    /// At least 1; what is more than the room left means that room.
    pub max_tokens: Option<u32>,
    /// The most tokens to draft per verify.
    pub max_draft: Option<u32>,
    /// Alternatives to report with each token, up to 20.
    pub logprobs: Option<u32>,
    /// Higher goes first.
    pub priority: i32,
    /// How long the request may take.
    pub deadline: Option<Duration>,
}

impl Settings {
    /// The sampling that is meant.
    pub(super) fn sampling(&self, app: &App) -> Result<Sampling, Refusal> {
        let own = &app.sampling;
        let number = |field: &str, value: Option<f32>, default: f32, low: f32, high: f32| {
            let value = value.unwrap_or(default);
            if (low..=high).contains(&value) {
                return Ok(value);
            }
            Err(Refusal::field(field, format!("found {value}; give a number from {low} to {high}")))
        };
        let above_zero = |field: &str, value: Option<f32>, default: f32, high: f32| {
            let value = number(field, value, default, 0.0, high)?;
            if value > 0.0 {
                return Ok(value);
            }
            let message = format!("found 0; give a number above 0 and up to {high}, 1 is off");
            Err(Refusal::field(field, message))
        };
        Ok(Sampling {
            temperature: number("temperature", self.temperature, own.temperature, 0.0, 100.0)?,
            top_k: self.top_k.unwrap_or(own.top_k),
            top_p: above_zero("top_p", self.top_p, own.top_p, 1.0)?,
            min_p: number("min_p", self.min_p, own.min_p, 0.0, 1.0)?,
            repetition_penalty: above_zero(
                "repetition_penalty",
                self.repetition_penalty,
                own.repetition_penalty,
                100.0,
            )?,
            frequency_penalty: number(
                "frequency_penalty",
                self.frequency_penalty,
                own.frequency_penalty,
                -2.0,
                2.0,
            )?,
            presence_penalty: number(
                "presence_penalty",
                self.presence_penalty,
                own.presence_penalty,
                -2.0,
                2.0,
            )?,
            logit_bias: self.bias(app)?,
            seed: self.seed.unwrap_or_else(random),
        })
    }

    fn bias(&self, app: &App) -> Result<Vec<(Token, f32)>, Refusal> {
        // Each step adds all of them.
        if self.bias.len() > MAX_BIASES {
            let message = format!("found {}; give at most {MAX_BIASES}", self.bias.len());
            return Err(Refusal::field("bias", message));
        }
        for (token, bias) in &self.bias {
            known(app, "bias", *token)?;
            if !bias.is_finite() {
                let message = format!("found {bias} for token {}; give a finite number", token.0);
                return Err(Refusal::field("bias", message));
            }
        }
        Ok(if self.bias.is_empty() { app.sampling.logit_bias.clone() } else { self.bias.clone() })
    }

    /// Checks what is not part of the sampling.
    pub(super) fn check_limits(&self) -> Result<(), Refusal> {
        if self.max_tokens == Some(0) {
            let message = "found 0; give at least 1, or leave it out to use all the room there is";
            return Err(Refusal::field("max_tokens", message));
        }
        match self.logprobs {
            Some(many) if many > MAX_LOGPROBS => Err(Refusal::field(
                "logprobs",
                format!("found {many}; at most {MAX_LOGPROBS} alternatives are reported"),
            )),
            _ => Ok(()),
        }
    }
}

/// Checks that a token is part of the vocabulary.
pub(super) fn known(app: &App, field: &str, token: Token) -> Result<(), Refusal> {
    if token.0 < app.model.vocab {
        return Ok(());
    }
    let (found, size) = (token.0, app.model.vocab);
    let message = format!("found token {found}; the vocabulary has {size}, numbered from 0");
    Err(Refusal::field(field, message))
}

/// A seed nobody chose: hash maps have the standard library's only source of randomness.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
