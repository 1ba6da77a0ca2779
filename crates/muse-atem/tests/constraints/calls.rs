//! Required calls, and calls whose arguments must fit their schema.

use serde_json::json;

use super::{GRAMMARS, accepts, call, check, constraint, function, parameter, request};

#[test]
fn structured_output_003_required_is_the_native_format() {
    let tools = json!([function("count", false, &json!({"n": {"type": "integer"}}), &["n"])]);
    let mut required = constraint(json!({"tools": tools, "tool_choice": "required"}));
    let one = call("count", &parameter("n", "1"));
    let thought = " to=self<|message|>Hm.<|eom|><|start|>assistant";
    check(
        &mut required,
        &[
            &format!("{one}<|eot|>"),
            &format!("{thought}{one}<|eot|>"),
            &format!("{one}<|eom|><|start|>assistant{one}<|eot|>"),
            &format!("{thought}{one}<|eom|><|start|>assistant{thought}{one}<|eot|>"),
        ],
        &[
            " to=user<|message|>No.<|eot|>",
            "[{\"name\": \"count\"}]",
            &format!("{}<|eot|>", call("count", "")),
            &format!("{}<|eot|>", call("count", &parameter("n", "one"))),
            &format!("{}<|eot|>", call("other", &parameter("n", "1"))),
            &format!("{one}<|eom|><|eot|>"),
        ],
    );
    let one_only = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false});
    check(
        &mut constraint(one_only),
        &[&format!("{one}<|eot|>")],
        &[&format!("{one}<|eom|><|start|>assistant{one}<|eot|>")],
    );
}

#[test]
fn structured_output_006_and_named_calls_are_constrained_from_the_first_token() {
    let tools = json!([
        function("count", false, &json!({"n": {"type": "integer"}}), &["n"]),
        function(
            "files.put",
            false,
            &json!({"path": {"type": "string"}, "body": {"type": "string"}}),
            &["path"]
        ),
    ]);
    let named = json!({"type": "function", "function": {"name": "files.put"}});
    let mut constraint = constraint(json!({"tools": tools, "tool_choice": named}));
    let body = |parameters: &str| {
        let whole = call("files.put", parameters);
        whole.strip_prefix(" to=files.put<|message|>").unwrap().to_owned() + "<|eot|>"
    };
    check(
        &mut constraint,
        &[
            &body(&(parameter("path", "a b\n<c>") + &parameter("body", "{\"x\": 1}"))),
            &body(&parameter("path", "")),
        ],
        &[&body(&parameter("body", "b")), &body(&parameter("mode", "b")), &call("count", "")],
    );
}

#[test]
fn strict_tools_are_enforced_with_auto() {
    let tools = json!([
        function("count", true, &json!({"n": {"type": "integer"}}), &["n"]),
        function("free", false, &json!({}), &[]),
    ]);
    check(
        &mut constraint(json!({"tools": tools})),
        &[
            " to=user<|message|>Anything<|eot|>",
            &format!("{}<|eot|>", call("count", &parameter("n", "-4"))),
            &format!("{}<|eot|>", call("free", &parameter("any", "thing"))),
            " to=user<|message|>So:<|eom|><|start|>assistant to=free<|message|>",
        ],
        &[&format!("{}<|eot|>", call("count", &parameter("n", "x")))],
    );
    let loose = json!([function("free", false, &json!({}), &[])]);
    let (conversation, choice, answer) = request(json!({"tools": loose}));
    assert!(GRAMMARS.constraint(&conversation, &choice, &answer).unwrap().is_none());
}

#[test]
fn structured_output_007_names_are_escaped() {
    for name in ["a.b-c_d", &"x".repeat(140), "mcp__a:b"] {
        let tools = json!([function(name, true, &json!({}), &[])]);
        check(
            &mut constraint(json!({"tools": tools})),
            &[&format!("{}<|eot|>", call(name, ""))],
            &[],
        );
    }
    let odd = json!([function("t", true, &json!({"a \\b / {c}": {"type": "boolean"}}), &[])]);
    let whole = call("t", &parameter("a \\b / {c}", "true"));
    check(&mut constraint(json!({"tools": odd})), &[&format!("{whole}<|eot|>")], &[]);
}

#[test]
fn structured_output_008_values_are_what_the_template_prints() {
    let properties = json!({
        "mix": {"anyOf": [{"const": "red"}, {"const": 3}]},
        "size": {"enum": ["small", "large"]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
        "short": {"type": "string", "maxLength": 3},
        "on": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1},
    });
    let mut tool = function("t", true, &properties, &[]);
    tool["function"]["parameters"]["$defs"] = json!({"Item": {"type": "object",
        "properties": {"k": {"type": "integer"}}, "required": ["k"], "additionalProperties": false}});
    let mut constraint = constraint(json!({"tools": [tool]}));
    for (key, value, fits) in [
        ("mix", "red", true),
        ("mix", "3", true),
        ("mix", "\"red\"", false),
        ("mix", "4", false),
        ("size", "small", true),
        ("size", "huge", false),
        ("code", "AB12", true),
        ("code", "ab12", false),
        ("code", "AB12x", false),
        ("short", "abc", true),
        ("short", "abcd", false),
        ("on", "true", true),
        ("on", "True", false),
        ("maybe", "null", true),
        ("maybe", "any\nthing </b>", true),
        ("list", "[{\"k\": 1}, {\"k\": 2}]", true),
        ("list", "[{\"k\": 1},{\"k\": 2}]", false),
        ("list", "[{\"k\": \"1\"}]", false),
        ("ratio", "0.25", true),
        ("ratio", "2", false),
    ] {
        let text = call("t", &parameter(key, value)) + "<|eot|>";
        assert_eq!(accepts(constraint.as_mut(), &text), fits, "{key} = {value}");
    }
}

#[test]
fn keywords_beside_a_union_are_kept() {
    let properties = json!({
        "small": {"type": ["integer", "string"], "enum": [1, 2.5, "x", null]},
        "either": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false,
            "anyOf": [{"properties": {"a": {"minimum": 5}}}, {"properties": {"a": {"maximum": 1}}}]},
        "day": {"type": "string", "format": "date"},
        "sized": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 3},
        "none": {"anyOf": [{"type": "integer"}], "nullable": true},
        "slash": {"type": "string", "pattern": "^a\\\\$"},
    });
    let mut constraint = constraint(json!({"tools": [function("t", true, &properties, &[])]}));
    for (key, value, fits) in [
        ("small", "1", true),
        ("small", "x", true),
        ("small", "2.5", false),
        ("small", "null", false),
        ("either", "{\"a\": 7}", true),
        ("either", "{\"a\": 0}", true),
        ("either", "{\"a\": 3}", false),
        ("day", "2026-11-29", true),
        ("day", "tomorrow", false),
        ("sized", "abc", true),
        ("sized", "abcd", false),
        ("sized", "AB", false),
        ("none", "null", true),
        ("none", "4", true),
        ("none", "x", false),
        ("slash", "a\\", true),
        ("slash", "a\\b", false),
    ] {
        let text = call("t", &parameter(key, value)) + "<|eot|>";
        assert_eq!(accepts(constraint.as_mut(), &text), fits, "{key} = {value}");
    }
}

#[test]
fn arguments_may_be_declared_through_a_reference() {
    let mut tool = function("t", true, &json!({}), &[]);
    tool["function"]["parameters"] = json!({"$ref": "#/$defs/Arguments", "$defs": {"Arguments":
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}});
    check(
        &mut constraint(json!({"tools": [tool]})),
        &[&(call("t", &parameter("n", "1")) + "<|eot|>")],
        &[&(call("t", "") + "<|eot|>")],
    );
}
