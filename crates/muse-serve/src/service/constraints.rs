//! What a request requires of its answers, compiled to the engine's constraint.

use std::sync::Arc;

use muse_atem::request::ToolChoice;
use muse_atem::{AnswerRule, ReasoningBudget};
use muse_core::Error;
use muse_core::contract::{Constraint, Conversation};

use super::ServiceError;
use super::compile_queue::CancelToken;
use crate::app::App;

/// What answers, calls and reasoning must satisfy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatConstraints {
    /// Which tools may or must be called.
    pub tool_choice: ToolChoice,
    /// What the visible answer must be.
    pub answer: AnswerRule,
    /// The most tokens of reasoning.
    pub thinking_budget: Option<u32>,
}

impl ChatConstraints {
    /// Whether answers to `conversation` may need a grammar.
    pub(super) fn may_compile(&self, conversation: &Conversation) -> bool {
        self.answer != AnswerRule::Free || !conversation.tools.is_empty()
    }

    /// The constraint of one answer to `conversation`; none when everything is allowed. May compile
    /// a grammar, which takes up to seconds: for a blocking thread.
    pub(super) fn compile(
        &self,
        app: &App,
        conversation: &Conversation,
        cancel: &CancelToken,
    ) -> Result<Option<Box<dyn Constraint>>, ServiceError> {
        let grammar = match &app.grammars {
            Some(grammars) => grammars
                .constraint_while(conversation, &self.tool_choice, &self.answer, &|| {
                    !cancel.is_cancelled()
                })
                .map_err(|error| self.attribute(conversation, error))?,
            None if *self == Self::default() => None,
            None => {
                let message = "this model's vocabulary has no grammars; ask in the prompt instead";
                return Err(Error::Unsupported(message.to_owned()).into());
            }
        };
        match (self.thinking_budget, &app.tokenizer) {
            (Some(budget), Some(tokenizer)) => {
                let tokenizer = Arc::clone(tokenizer);
                let budget = ReasoningBudget::new(budget, conversation, tokenizer, grammar)?;
                Ok(Some(Box::new(budget)))
            }
            _ => Ok(grammar),
        }
    }

    /// Names the field that an error is about, where only one can be meant.
    fn attribute(&self, conversation: &Conversation, error: Error) -> ServiceError {
        match (error, &self.answer, conversation.tools.is_empty()) {
            (Error::Invalid(message), AnswerRule::Free, _) => {
                ServiceError::invalid_field("tools", message)
            }
            (Error::Invalid(message), _, true) => ServiceError::invalid_field("answer", message),
            (error, ..) => error.into(),
        }
    }
}
