//! Reads how much the assistant may reason. OpenAI, Anthropic, OpenRouter, vLLM and Qwen's
//! template have fields of their own for it.

use super::error::RequestError;
use super::fields::{Fields, wrong};
use crate::json::Json;

/// How much the assistant may reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reasoning {
    /// The strength in the model's words.
    pub(super) strength: Option<String>,
    /// No reasoning at all is requested.
    pub(super) is_off: bool,
    /// The most tokens of reasoning.
    pub(super) budget: Option<u32>,
}

/// Reads the fields of a request and of its `chat_template_kwargs`, which take precedence. Any
/// field that switches reasoning off does so, whatever others say.
pub(super) fn read(fields: &Fields<'_>, arguments: &Fields<'_>) -> Result<Reasoning, RequestError> {
    let mut reasoning = Reasoning::default();
    let mut is_off = false;
    for object in [arguments, fields] {
        for key in ["reasoning_strength", "reasoning_effort"] {
            reasoning.effort(object, key)?;
        }
        is_off |= object.boolean("enable_thinking")? == Some(false);
        if let Some(nested) = object.object("reasoning")? {
            reasoning.effort(&nested, "effort")?;
            is_off |= nested.boolean("enabled")? == Some(false);
            reasoning.budget(&nested, "max_tokens")?;
            if nested.boolean("exclude")? == Some(true) {
                return nested.error("exclude", "is not supported; leave it out");
            }
        }
        is_off |= !reasoning.thinking(object)?;
        for key in ["thinking_token_budget", "thinking_budget", "reasoning_budget"] {
            reasoning.budget(object, key)?;
        }
    }
    if is_off {
        reasoning.switch_off();
    }
    Ok(reasoning)
}

impl Reasoning {
    fn switch_off(&mut self) {
        self.strength = Some("low".to_owned());
        self.is_off = true;
    }

    /// An effort; the first that is given counts.
    fn effort(&mut self, object: &Fields<'_>, key: &str) -> Result<(), RequestError> {
        let Some(word) = object.text(key)? else { return Ok(()) };
        let strength = match word {
            "low" | "medium" | "high" | "xhigh" => word,
            "minimal" => "low",
            "max" => "xhigh",
            "none" | "off" => "none",
            _ => {
                let message = format!(
                    "unknown reasoning effort `{word}`, expected none, off, minimal, low, medium, \
                     high, xhigh or max"
                );
                return object.error(key, message);
            }
        };
        match strength {
            _ if self.strength.is_some() => {}
            "none" => self.switch_off(),
            strength => self.strength = Some(strength.to_owned()),
        }
        Ok(())
    }

    /// A budget; the first that is given counts, and -1 is none.
    fn budget(&mut self, object: &Fields<'_>, key: &str) -> Result<(), RequestError> {
        let budget = object.limit(key, 0)?;
        self.budget = self.budget.or(budget);
        Ok(())
    }

    /// `thinking`: a boolean, or an object with `type` and `budget_tokens`. Returns false when it
    /// switches reasoning off.
    fn thinking(&mut self, object: &Fields<'_>) -> Result<bool, RequestError> {
        let value = match object.value("thinking") {
            None => return Ok(true),
            Some(Json::Bool(thinks)) => return Ok(*thinks),
            Some(value @ Json::Object(_)) => Fields::of(value, object.path("thinking"))?,
            Some(other) => {
                return Err(wrong(object.path("thinking"), "a boolean or an object", other));
            }
        };
        self.budget(&value, "budget_tokens")?;
        match value.text("type")? {
            None | Some("enabled" | "adaptive" | "auto") => Ok(true),
            Some("disabled") => Ok(false),
            Some(kind) => value.error(
                "type",
                format!("is `{kind}`, expected enabled, disabled, adaptive or auto"),
            ),
        }
    }
}
