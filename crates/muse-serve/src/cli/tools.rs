//! The tools of `muse chat --tools`: a fixed list, run in this process, that reads no files and
//! talks to nobody.

use jiff::Timestamp;
use muse_proto::v1;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::calculator;

struct Local {
    name: &'static str,
    description: &'static str,
    /// Its only argument, a text.
    argument: &'static str,
    explained: &'static str,
    run: fn(&str) -> Result<String, String>,
}

const TOOLS: [Local; 3] = [
    Local {
        name: "time.get_current_time",
        description: "Get the current time in a time zone.",
        argument: "timezone",
        explained: "IANA time zone",
        run: |arguments| time_in(&argument::<TimeZone>(arguments)?.timezone, Timestamp::now()),
    },
    Local {
        name: "calculator.calculate",
        description: "Evaluate an arithmetic expression.",
        argument: "expression",
        explained: "The expression",
        run: |arguments| calculator::evaluate(&argument::<Expression>(arguments)?.expression),
    },
    Local {
        name: "text.get_statistics",
        description: "Count the words and characters of a text.",
        argument: "text",
        explained: "The text",
        run: |arguments| Ok(statistics(&argument::<Text>(arguments)?.text)),
    },
];

#[derive(Deserialize)]
struct TimeZone {
    timezone: String,
}

#[derive(Deserialize)]
struct Expression {
    expression: String,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

/// The tools as declared to the model.
pub(super) fn declared() -> Vec<v1::Tool> {
    let tool = |local: &Local| v1::Tool {
        name: local.name.to_owned(),
        description: local.description.to_owned(),
        parameters_json: json!({
            "type": "object",
            "properties": {
                local.argument: { "type": "string", "description": local.explained },
            },
            "required": [local.argument],
        })
        .to_string(),
        strict: false,
    };
    TOOLS.iter().map(tool).collect()
}

/// The result of a call, or what is wrong with it: the model is to hear either.
pub(super) fn run(name: &str, arguments: &str) -> String {
    let result = match TOOLS.iter().find(|local| local.name == name) {
        Some(local) => (local.run)(arguments),
        None => Err(format!("there is no tool {name}")),
    };
    result.unwrap_or_else(|wrong| format!("error: {wrong}"))
}

fn argument<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|wrong| format!("bad arguments: {wrong}"))
}

fn time_in(zone: &str, now: Timestamp) -> Result<String, String> {
    let time = now.in_tz(zone).map_err(|_| {
        format!("no time zone {zone:?} is known here, give an IANA name such as Europe/Oslo")
    })?;
    Ok(format!(r#"{{"timezone": {}, "time": "{}"}}"#, json!(zone), time.strftime("%H:%M")))
}

fn statistics(text: &str) -> String {
    let (words, characters) = (text.split_whitespace().count(), text.chars().count());
    format!(r#"{{"words": {words}, "characters": {characters}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_given_in_the_zone_asked_for() {
        let now = Timestamp::from_second(1_786_700_000).expect("a time");
        let time = |zone: &str| time_in(zone, now);
        let utc = r#"{"timezone": "UTC", "time": "09:33"}"#;
        assert_eq!(time("UTC").as_deref(), Ok(utc));
        assert!(time("Atlantis/\"x").expect_err("no such place").contains("Europe/Oslo"));
    }

    #[test]
    fn words_and_characters_are_counted() {
        assert_eq!(statistics(" grüne  Türen\n"), r#"{"words": 2, "characters": 14}"#);
        assert_eq!(statistics(""), r#"{"words": 0, "characters": 0}"#);
    }

    #[test]
    fn only_listed_tools_with_fitting_arguments_run() {
        assert_eq!(run("calculator.calculate", r#"{"expression": "6 * 7"}"#), "42");
        for (name, arguments, message) in [
            ("shell.run", "{}", "no tool shell.run"),
            ("calculator.calculate", r#"{"expression": 5}"#, "bad arguments"),
            ("calculator.calculate", r#"{"expression": "1 / 0"}"#, "zero"),
            ("text.get_statistics", "{}", "`text`"),
            ("text.get_statistics", "nonsense", "bad arguments"),
        ] {
            let result = run(name, arguments);
            assert!(result.starts_with("error: ") && result.contains(message), "{result}");
        }
    }

    #[test]
    fn what_is_declared_can_be_run() {
        for tool in declared() {
            let schema: serde_json::Value =
                serde_json::from_str(&tool.parameters_json).expect("JSON");
            let key = schema["required"][0].as_str().expect("a key");
            assert!(schema["properties"].get(key).is_some(), "{}", tool.name);
            let value = if key == "timezone" { "UTC" } else { "7" };
            let result = run(&tool.name, &json!({ key: value }).to_string());
            assert!(!result.starts_with("error"), "{}: {result}", tool.name);
        }
    }
}
