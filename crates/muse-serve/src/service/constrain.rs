//! What a request demands of its answers, as the engine's constraint.

use std::sync::Arc;

use muse_atem::request::ToolChoice;
use muse_atem::{AnswerRule, ReasoningBudget};
use muse_core::Error;
use muse_core::contract::{Constraint, Conversation};

use super::{Refusal, Wanted};
use crate::app::App;

/// What answers, calls and reasoning are held to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Which tools may or must be called.
    pub tools: ToolChoice,
    /// What the visible answer must be.
    pub answer: AnswerRule,
    /// The most tokens of reasoning.
    pub thinking: Option<u32>,
}

impl Rules {
    /// Whether answers to `conversation` may need a grammar.
    pub(super) fn may_compile(&self, conversation: &Conversation) -> bool {
        self.answer != AnswerRule::Free || !conversation.tools.is_empty()
    }

    /// The constraint of one answer to `conversation`. A grammar that is new takes its time to
    /// compile: not for the engine's thread, nor for one that serves others.
    pub(super) fn constraint(
        &self,
        app: &App,
        conversation: &Conversation,
        wanted: &Wanted,
    ) -> Result<Option<Box<dyn Constraint>>, Refusal> {
        let grammar = match &app.grammars {
            Some(grammars) => grammars
                .constraint_while(conversation, &self.tools, &self.answer, &|| wanted.still())
                .map_err(|error| self.blame(conversation, error))?,
            None if *self == Self::default() => None,
            None => {
                let message = "this model's vocabulary has no grammars; ask in the prompt instead";
                return Err(Error::Unsupported(message.to_owned()).into());
            }
        };
        match (self.thinking, &app.tokenizer) {
            (Some(budget), Some(tokenizer)) => {
                let tokenizer = Arc::clone(tokenizer);
                let budget = ReasoningBudget::new(budget, conversation, tokenizer, grammar)?;
                Ok(Some(Box::new(budget)))
            }
            _ => Ok(grammar),
        }
    }

    /// Names the field that cannot be honoured, where only one can be meant.
    fn blame(&self, conversation: &Conversation, error: Error) -> Refusal {
        match (error, &self.answer, conversation.tools.is_empty()) {
            (Error::Invalid(message), AnswerRule::Free, _) => Refusal::field("tools", message),
            (Error::Invalid(message), _, true) => Refusal::field("answer", message),
            (error, ..) => error.into(),
        }
    }
}
