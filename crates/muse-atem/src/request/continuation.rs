//! Reads where the answer begins: behind a header that the prompt has or leaves out, or within
//! the last message of the conversation.

use muse_core::contract::{Message, Part, PromptPart};

use super::error::RequestError;
use super::fields::Fields;
use super::header;
use super::tools::ToolChoice;
use crate::special_token::SpecialToken;

/// Where the answer begins.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AnswerStart {
    /// What the prompt ends with, behind `<|start|>assistant`.
    pub(super) prefix: Vec<PromptPart>,
    /// Whether the prompt ends before `<|start|>assistant`.
    pub(super) omits_header: bool,
}

/// Reads `continue_final_message` and `add_generation_prompt`. The message to continue is taken
/// from `messages`.
pub(super) fn read(
    fields: &Fields<'_>,
    arguments: &Fields<'_>,
    choice: &ToolChoice,
    messages: &mut Vec<Message>,
) -> Result<AnswerStart, RequestError> {
    const CONTINUE: &str = "continue_final_message";
    const HEADER: &str = "add_generation_prompt";
    let flag = |key: &str| Ok::<_, RequestError>(arguments.boolean(key)?.or(fields.boolean(key)?));
    let continues = flag(CONTINUE)?.unwrap_or(false);
    let omits_header = !continues && !flag(HEADER)?.unwrap_or(true);
    if (continues || omits_header)
        && let ToolChoice::Named(_) | ToolChoice::Required = choice
    {
        let key = if continues { CONTINUE } else { HEADER };
        let message = "leaves no place for the call that `tool_choice` demands; send one of them";
        return fields.error(key, message);
    }
    let prefix = if continues { continue_final_message(messages)? } else { Vec::new() };
    Ok(AnswerStart { prefix, omits_header })
}

/// Takes the last message, which the answer continues, from a conversation. Returns what the prompt
/// ends with instead, behind `<|start|>assistant`.
///
/// # Errors
/// When the last message is not a text of the assistant, or the only one. The path begins with
/// `messages`.
pub fn continue_final_message(
    messages: &mut Vec<Message>,
) -> Result<Vec<PromptPart>, RequestError> {
    let index = messages.len().saturating_sub(1);
    let wrong = |message: &str| {
        Err(RequestError { path: format!("messages[{index}]"), message: message.to_owned() })
    };
    let Some(Message::Assistant { reasoning, content, calls, recipient, .. }) = messages.last()
    else {
        return wrong("is to be continued, so it must be of the role assistant");
    };
    if !calls.is_empty() {
        return wrong("is to be continued, but ends with tool calls; a text can be continued");
    }
    let mut text = String::new();
    for part in content {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Image | Part::Video => {
                return wrong("is to be continued, but holds pictures; a text can be continued");
            }
        }
    }
    let reasoning = reasoning.as_deref().unwrap_or_default();
    let prefix = prefix(reasoning, &text, recipient.as_deref().unwrap_or("user"));
    messages.pop();
    match messages.is_empty() {
        true => Err(RequestError {
            path: "messages".to_owned(),
            message: "holds the message to continue alone; send what it answers".to_owned(),
        }),
        false => Ok(prefix),
    }
}

/// The message as the template renders it, up to the end of its text.
fn prefix(reasoning: &str, text: &str, recipient: &str) -> Vec<PromptPart> {
    let mut prefix = Vec::new();
    if !reasoning.is_empty() {
        prefix.extend(header("self"));
        prefix.push(PromptPart::Text(reasoning.to_owned()));
        if text.is_empty() {
            return prefix;
        }
        prefix.push(PromptPart::Special(SpecialToken::EndOfMessage.text()));
        prefix.push(PromptPart::Special(SpecialToken::Start.text()));
        let [PromptPart::Text(to), message] = header(recipient) else {
            unreachable!("a header is text and a special token")
        };
        prefix.extend([PromptPart::Text(format!("assistant{to}")), message]);
    } else {
        prefix.extend(header(recipient));
    }
    if !text.is_empty() {
        prefix.push(PromptPart::Text(text.to_owned()));
    }
    prefix
}
