//! Checks that the calls of a history have distinct ids and that every result has its call.

use std::collections::HashMap;

use muse_core::contract::Message;

use super::error::RequestError;

/// Checks the ids of calls and results.
///
/// # Errors
/// Two calls have the same id, or a result has the id of no earlier call and no tool name. The path
/// is that of the id, like `messages[2].tool_calls[0].id`.
pub fn check_calls(messages: &[Message]) -> Result<(), RequestError> {
    let mut made: HashMap<&str, (usize, usize)> = HashMap::new();
    for (i, message) in messages.iter().enumerate() {
        match message {
            Message::Assistant { calls, .. } => {
                for (j, call) in calls.iter().enumerate().filter(|(_, call)| !call.id.is_empty()) {
                    if let Some((earlier, position)) = made.insert(&call.id, (i, j)) {
                        return Err(RequestError {
                            path: format!("messages[{i}].tool_calls[{j}].id"),
                            message: format!(
                                "{:?} is the id of messages[{earlier}].tool_calls[{position}] already; \
                                 give each call of the conversation its own",
                                call.id
                            ),
                        });
                    }
                }
            }
            Message::Tool { name, call_id: Some(id), .. }
                if !id.is_empty()
                    && name.as_deref().unwrap_or_default().is_empty()
                    && !made.contains_key(id.as_str()) =>
            {
                return Err(RequestError {
                    path: format!("messages[{i}].tool_call_id"),
                    message: format!(
                        "no call before it has the id {id:?}; send the message with that call, or \
                         the name of the tool"
                    ),
                });
            }
            _ => {}
        }
    }
    Ok(())
}
