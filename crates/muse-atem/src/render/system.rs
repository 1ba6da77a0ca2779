//! Renders the system message: reasoning strength, tools and recipients.

use std::collections::{HashMap, HashSet};

use muse_core::contract::{Conversation, Part, Tool};
use muse_core::{Error, Result};

use super::prompt::PromptBuilder;
use crate::json::{self, Json};
use crate::special_token::SpecialToken;

const DEFAULT_STRENGTH: &str = "high";
const DEFAULT_CUTOFF: &str = "2026-01-04";

const BEFORE_TOOLS: &str = r#"In this environment you have access to a set of tools you can use to answer the user's question.

You can invoke a function by writing a "<atem:function_calls>" block like the following:
<atem:function_calls>
<atem:invoke name="$FUNCTION_NAME">
<atem:parameter name="$PARAMETER_NAME">$PARAMETER_VALUE</atem:parameter>
...
</atem:invoke>
</atem:function_calls>

String and scalar parameters should be specified as is, while lists and objects should use JSON format. Note that spaces for string values are not stripped. The output is not expected to be valid XML and is parsed with regular expressions.
Here are the functions available in JSONSchema format:
// Tool metadata
"#;

const AFTER_TOOLS: &str = r#"
Here's an example of how to call a function in the tool set:
(If the tool namespace is not specified, invoke the function directly as `example_function_name` rather than `example_tool_name.example_function_name`)

to=example_tool_name.example_function_name

<atem:function_calls>
<atem:invoke name="example_tool_name.example_function_name">
<atem:parameter name="example_parameter_1">value_1</atem:parameter>
<atem:parameter name="example_parameter_2">This is the value for the second parameter
that can span
"multiple" lines
</atem:parameter>
</atem:invoke>
</atem:function_calls>"#;

/// What ends every system message.
pub(super) struct SystemSuffix {
    strength: String,
    /// The tool block and the recipients, with the empty lines before them.
    suffix: String,
}

impl SystemSuffix {
    pub(super) fn new(conversation: &Conversation) -> Result<Self> {
        let strength = conversation.reasoning_strength.as_deref();
        let namespaces = namespaces(&conversation.tools);
        let mut suffix = String::new();
        if !conversation.tools.is_empty() {
            suffix.push_str("\n\n");
            write_tools(conversation, &namespaces, &mut suffix)?;
        }
        suffix.push_str("\n\n# Valid recipients: \"self\", ");
        for namespace in &namespaces {
            suffix.push_str(&format!("\"{namespace}.*\", "));
        }
        suffix.push_str("\"user\".");
        let strength = strength.filter(|text| !text.is_empty()).unwrap_or(DEFAULT_STRENGTH);
        Ok(Self { strength: strength.to_owned(), suffix })
    }

    /// Writes the default system message, for a conversation without one.
    pub(super) fn write_default(&self, conversation: &Conversation, prompt: &mut PromptBuilder) {
        let cutoff = conversation.knowledge_cutoff.as_deref().unwrap_or(DEFAULT_CUTOFF);
        prompt.header("system");
        prompt.text(&format!("You are a helpful AI assistant.\nKnowledge cutoff: {cutoff}."));
        if let Some(date) = &conversation.current_date {
            prompt.text(&format!("\nCurrent date: {date}."));
        }
        prompt.text(&format!("\n\nReasoning strength: {}.", self.strength));
        self.end(prompt);
    }

    /// Writes a system message of the conversation. Adjacent texts are joined.
    pub(super) fn write(&self, content: &[Part], prompt: &mut PromptBuilder) {
        prompt.header("system");
        let mut has_strength = false;
        for part in join(content) {
            match part {
                Part::Text(text) => {
                    let text = replace_effort(&text);
                    has_strength |= text.to_lowercase().contains("reasoning strength");
                    prompt.text(&text);
                }
                media => prompt.content(&[media]),
            }
        }
        if !has_strength {
            prompt.text(&format!("\n\nReasoning strength: {}.", self.strength));
        }
        self.end(prompt);
    }

    fn end(&self, prompt: &mut PromptBuilder) {
        prompt.text(&self.suffix);
        prompt.special(SpecialToken::EndOfTurn);
    }
}

/// The model was trained on the word strength; users write effort.
fn replace_effort(text: &str) -> String {
    text.replace("Reasoning effort", "Reasoning strength")
        .replace("Reasoning Effort", "Reasoning Strength")
        .replace("reasoning effort", "reasoning strength")
        .replace("REASONING EFFORT", "REASONING STRENGTH")
}

fn join(content: &[Part]) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::with_capacity(content.len());
    for part in content {
        match (joined.last_mut(), part) {
            (Some(Part::Text(last)), Part::Text(text)) => last.push_str(text),
            _ => joined.push(part.clone()),
        }
    }
    joined
}

/// The namespaces of the tools, each once, in order of appearance.
fn namespaces(tools: &[Tool]) -> Vec<&str> {
    let mut seen = HashSet::new();
    tools
        .iter()
        .map(|tool| namespace(&tool.name))
        .filter(|namespace| seen.insert(*namespace))
        .collect()
}

/// The name up to its first dot, or the whole name.
pub(crate) fn namespace(name: &str) -> &str {
    name.split('.').next().expect("a split has a first part")
}

fn write_tools(conversation: &Conversation, namespaces: &[&str], out: &mut String) -> Result<()> {
    out.push_str(BEFORE_TOOLS);
    let described = conversation.namespaces.iter().map(|(name, text)| (name.as_str(), text));
    let described: HashMap<&str, &String> = described.collect();
    for namespace in namespaces {
        out.push_str("{\"name\": ");
        json::quote(namespace, out);
        out.push_str(", \"description\": ");
        json::quote(described.get(namespace).map_or("", |text| text), out);
        out.push_str("}\n");
    }
    out.push_str("// Function schemas\n");
    for tool in &conversation.tools {
        let parameters = Json::parse(&tool.parameters).map_err(|e| {
            Error::Invalid(format!("tool `{}`: parameters are not a JSON schema: {e}", tool.name))
        })?;
        out.push_str("{\"name\": ");
        json::quote(&tool.name, out);
        out.push_str(", \"description\": ");
        json::quote(&tool.description, out);
        out.push_str(", \"parameters\": ");
        out.push_str(&parameters.to_python());
        out.push_str("}\n");
    }
    out.push_str(AFTER_TOOLS);
    Ok(())
}
