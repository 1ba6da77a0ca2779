//! Options on the history beyond the published template, which drops text beside calls and renders
//! all reasoning it is given.

use muse_core::contract::Message;

/// Makes text beside calls a message of its own before them, as the model generated it.
pub(super) fn keep_text_beside_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut kept = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::Assistant { reasoning, content, calls, recipient, end_turn }
                if !content.is_empty() && !calls.is_empty() =>
            {
                kept.push(Message::Assistant {
                    reasoning,
                    content,
                    calls: Vec::new(),
                    recipient,
                    end_turn: Some(false),
                });
                kept.push(Message::Assistant {
                    reasoning: None,
                    content: Vec::new(),
                    calls,
                    recipient: None,
                    end_turn,
                });
            }
            message => kept.push(message),
        }
    }
    kept
}

/// Removes reasoning before the last user message; reasoning after it belongs to the current turn.
pub(super) fn drop_earlier_reasoning(messages: &mut [Message]) {
    let last =
        messages.iter().rposition(|message| matches!(message, Message::User(_))).unwrap_or(0);
    for message in &mut messages[..last] {
        if let Message::Assistant { reasoning, .. } = message {
            *reasoning = None;
        }
    }
}
