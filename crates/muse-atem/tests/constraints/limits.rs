//! Unsupported schemas are refused by keyword, expensive ones by their limit, and no grammar is
//! compiled twice.

use muse_atem::request::ToolChoice;
use muse_atem::{AnswerRule, Grammars};
use muse_core::contract::Conversation;
use serde_json::{Value, json};

use super::{
    GRAMMARS, NANO, answer, check, constraint, function, refusal, request, schema, tokens,
};

#[test]
fn structured_output_009_unsupported_keywords_are_named() {
    let of = |key: &str, value: Value| json!({"type": "object", "properties": {"p": {key: value}}});
    for (keyword, shape) in [
        ("pattern", json!({"type": "string", "pattern": "(?<=x)y"})),
        ("pattern", json!({"type": "string", "pattern": "("})),
        ("pattern", json!({"type": "string", "pattern": "(a)\\1"})),
        ("uniqueItems", json!({"type": "array", "uniqueItems": true})),
        ("$ref", json!({"$ref": "#/$defs/Gone"})),
        ("$ref", json!({"$ref": "https://example.org/schema"})),
        ("$ref", json!({"$ref": {"\u{e9}".repeat(99): 1}})),
        ("not", json!({"not": {"type": "string"}})),
        ("if", json!({"if": {}, "then": {}})),
        ("contains", json!({"type": "array", "contains": {}})),
        ("propertyNames", json!({"propertyNames": {}})),
        ("dependentRequired", json!({"dependentRequired": {}})),
        ("unevaluatedProperties", json!({"type": "object", "unevaluatedProperties": false})),
        ("oneOf", json!({"oneOf": [{"type": "string"}, {"maxLength": 3}]})),
        ("format", json!({"type": "string", "format": "no-such-format"})),
        ("minProperties", json!({"properties": {"a": {}, "b": {}}, "minProperties": 2})),
        ("type", of("type", json!("strng"))),
        ("type", of("type", json!(5))),
        ("type", of("type", json!([]))),
        ("enum", of("enum", json!("a"))),
        ("anyOf", of("anyOf", json!({}))),
        ("required", of("required", json!("p"))),
        ("required", of("required", json!([7]))),
        ("properties", of("properties", json!([]))),
        ("items", of("items", json!("p"))),
        ("minLength", of("minLength", json!(-1))),
        ("maxItems", of("maxItems", json!(1.5))),
        ("minimum", of("minimum", json!("3"))),
        ("multipleOf", of("multipleOf", json!(null))),
        ("pattern", of("pattern", json!({}))),
        ("/properties/p", json!({"properties": {"p": 5}})),
    ] {
        let message = refusal(schema(&shape));
        assert!(message.contains(keyword), "{shape}: {message:?} does not name {keyword}");
    }
}

#[test]
fn unsupported_keywords_of_a_tool_are_named() {
    let parameter = |schema: Value| function("t", true, &json!({"p": schema}), &[]);
    let over = |keyword: &str, value: Value| {
        let mut tool = function("t", true, &json!({}), &[]);
        tool["function"]["parameters"][keyword] = value;
        tool
    };
    for (words, tool) in [
        (["tool `t`", "pattern"], parameter(json!({"type": "string", "pattern": "(?<=x)y"}))),
        (["tool `t`", "required"], function("t", true, &json!({}), &["gone"])),
        (["parameter `p`", "format"], parameter(json!({"type": "string", "format": "uri"}))),
        (["`minLength`", "`anyOf`"], parameter(json!({"minLength": 2, "anyOf": [{}]}))),
        (["`maximum`", "`$ref`"], parameter(json!({"maximum": 2, "$ref": "#/properties"}))),
        (["parameter `p`", "allOf"], parameter(json!({"allOf": [{}, {}]}))),
        (["parameter `p`", "no value"], parameter(json!(false))),
        (["parameter `p`", "no value"], parameter(json!({"type": "string", "enum": [1]}))),
        (["tool `t`", "uniqueItems"], parameter(json!({"type": "array", "uniqueItems": true}))),
        (["tool `t`", "anyOf"], over("anyOf", json!([{"required": ["a"]}]))),
        (["tool `t`", "minProperties"], over("minProperties", json!(1))),
        (["tool `t`", "$ref"], over("$ref", json!("#"))),
        (["\"a\\\"b\"", "quotes"], function("t", true, &json!({"a\"b": {}}), &[])),
        (["\"\"", "quotes"], function("t", true, &json!({"": {}}), &[])),
    ] {
        let message = refusal(json!({"tools": [tool]}));
        for word in words {
            assert!(message.contains(word), "{tool}: {message:?} does not name {word}");
        }
    }
}

#[test]
fn recursive_schemas_terminate() {
    let knot = json!({"$defs": {"k": {"anyOf": [{"$ref": "#/$defs/k"}, {"$ref": "#/$defs/k"}]}},
        "$ref": "#/$defs/k"});
    let mut all = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}},
        "additionalProperties": false});
    let mut wide = json!({"type": "integer"});
    for _ in 0..25 {
        wide = json!({"allOf": [{"anyOf": [wide, {"minimum": 1}]}]});
    }
    all["$defs"] = json!({});
    let start = muse_testkit::CpuTimer::start();
    for shape in [&knot, &all, &json!({"$ref": "#"}), &wide] {
        // Refused or compiled, but quickly and without a crash.
        let (conversation, choice, rule) = request(schema(shape));
        let _ = GRAMMARS.constraint(&conversation, &choice, &rule);
        let tool = function("t", true, &json!({"p": shape}), &[]);
        let (conversation, choice, rule) = request(json!({"tools": [tool]}));
        let _ = GRAMMARS.constraint(&conversation, &choice, &rule);
    }
    check(
        &mut constraint(schema(&tree)),
        &[" to=user<|message|>{\"left\": {\"left\": {}}}<|eot|>"],
        &[" to=user<|message|>{\"right\": {}}<|eot|>"],
    );
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
}

#[test]
fn excessive_work_is_refused() {
    let many: Vec<String> = (0..60_000).map(|i| format!("value {i}")).collect();
    let message = refusal(schema(&json!({"enum": many})));
    assert!(message.contains("bytes") && message.contains("smaller"), "{message}");
    let some = many[..5000].to_vec();
    let message =
        refusal(json!({"tools": [function("t", true, &json!({"p": {"enum": some}}), &[])]}));
    assert!(message.contains("4096"), "{message}");
    let deep = "[".repeat(60_000) + &"]".repeat(60_000);
    let rule = AnswerRule::JsonSchema(format!("{{\"enum\": {deep}}}"));
    let error = GRAMMARS.constraint(&Conversation::default(), &ToolChoice::Auto, &rule).err();
    assert!(error.expect("too deep").to_string().contains("nested"), "advice");
}

#[test]
fn schemas_that_expand_exponentially_are_refused_at_once() {
    let tool = |defs: Value, p: Value| {
        let mut tool = function("t", true, &json!({"p": p}), &[]);
        tool["function"]["parameters"]["$defs"] = defs;
        json!({"tools": [tool]})
    };
    for nothing in [json!(false), json!({"type": "string", "enum": [1]})] {
        let mut defs = json!({"a8": nothing});
        for i in 1..8 {
            let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
            defs[format!("a{i}")] = json!({"anyOf": vec![next; 100]});
        }
        let body = tool(defs, json!({"$ref": "#/$defs/a1"}));
        let start = muse_testkit::CpuTimer::start();
        let message = refusal(body);
        assert!(message.contains("`$ref`") && message.contains("smaller"), "{message}");
        assert!(start.elapsed().as_secs() < 10, "took {:?}", start.elapsed());
    }
    // Each of the alternatives would repeat all definitions.
    let large: serde_json::Map<_, _> =
        (0..1000).map(|i| (format!("d{i}"), json!({"description": "x".repeat(1000)}))).collect();
    let body = tool(json!(large), json!({"anyOf": vec![json!({"type": "object"}); 4096]}));
    let start = muse_testkit::CpuTimer::start();
    let message = refusal(body);
    assert!(message.contains("bytes") && message.contains("smaller"), "{message}");
    assert!(start.elapsed().as_secs() < 10, "took {:?}", start.elapsed());
}

#[test]
fn server_dos_002_hostile_patterns_run_in_linear_time() {
    let mut constraint = constraint(schema(&json!({"type": "string", "pattern": "^(a+)+$"})));
    let long = "a".repeat(2000);
    let start = muse_testkit::CpuTimer::start();
    check(
        &mut constraint,
        &[&format!(" to=user<|message|>\"{long}\"<|eot|>")],
        &[&format!(" to=user<|message|>\"{long}b\"<|eot|>")],
    );
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
    // Nested repetitions: refused or compiled, but quickly.
    let huge = json!({"type": "string", "pattern": "^(a{1,100}){1,100}b$"});
    let (conversation, choice, rule) = request(schema(&huge));
    if let Ok(Some(mut constraint)) = GRAMMARS.constraint(&conversation, &choice, &rule) {
        let text = tokens(&format!(" to=user<|message|>\"{}", "a".repeat(200)));
        for token in text {
            if constraint.accept(token).is_err() {
                break;
            }
        }
    }
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
}

#[test]
fn long_texts_and_client_grammars_are_bounded() {
    let none = Conversation::default();
    let long = "x".repeat(10_000);
    for (words, rule) in [
        ("10000 bytes", AnswerRule::Choice(vec![long.clone()])),
        ("`enum`", AnswerRule::JsonSchema(json!({"enum": [{"k": [long]}]}).to_string())),
        ("`const`", AnswerRule::JsonSchema(json!({"const": long}).to_string())),
        ("`pattern`", AnswerRule::JsonSchema(json!({"pattern": long}).to_string())),
        ("at most", AnswerRule::Regex("a".repeat(40_000))),
        ("at most", AnswerRule::Lark("start: \"a\"\n".repeat(4000))),
    ] {
        let error = GRAMMARS.constraint(&none, &ToolChoice::Auto, &rule).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn long_rule_chains_do_not_exhaust_the_stack() {
    let none = Conversation::default();
    let chain: String = (0..2500).map(|i| format!("r{i}: r{} \"x\"\n", i + 1)).collect();
    let nested = "(".repeat(15_000) + "\"x\"" + &")".repeat(15_000);
    for lark in [
        chain + "r2500: \"y\"\nstart: r0\n",
        format!("start: {nested}\n"),
        format!("start: {}\"x\"\n", "!".repeat(20_000)),
        format!("start: T\nT: {nested}\n"),
        format!("start: T\nT: {}\"x\"\n", "~".repeat(20_000)),
    ] {
        // Compiled or refused, it terminates.
        let _ = GRAMMARS.constraint(&none, &ToolChoice::Auto, &AnswerRule::Lark(lark));
    }
    let defs: serde_json::Map<_, _> = (0..9000)
        .map(|i| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", i + 1)}})))
        .chain([("d9000".to_owned(), json!({}))])
        .collect();
    let chained = json!({"$defs": defs, "$ref": "#/$defs/d0"});
    let rule = AnswerRule::JsonSchema(chained.to_string());
    let _ = GRAMMARS.constraint(&none, &ToolChoice::Auto, &rule);
}

#[test]
fn an_expression_is_not_a_grammar_of_the_same_text() {
    let text = "start: \"a\"";
    let expression = &format!(" to=user<|message|>{text}<|eot|>");
    let grammar = " to=user<|message|>a<|eot|>";
    check(&mut answer(AnswerRule::Regex(text.to_owned())), &[expression], &[grammar]);
    check(&mut answer(AnswerRule::Lark(text.to_owned())), &[grammar], &[expression]);
}

#[test]
fn nothing_is_compiled_twice() {
    let grammars = Grammars::new(NANO.clone()).unwrap();
    let shape = json!({"type": "object", "properties": (0..60).map(|i| (format!("k{i}"),
        json!({"type": "string", "maxLength": i + 1}))).collect::<serde_json::Map<_, _>>()});
    let (conversation, choice, rule) = request(schema(&shape));
    let compile = || drop(grammars.constraint(&conversation, &choice, &rule).unwrap());
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(compile)));
    });
    assert_eq!(grammars.compiled(), 1, "four asked for the same at once");
    compile();
    assert_eq!(grammars.compiled(), 1);
    // The cache is bounded: the oldest entries are evicted.
    for i in 0..70 {
        let rule = AnswerRule::Choice(vec![format!("choice {i}")]);
        grammars.constraint(&conversation, &choice, &rule).unwrap();
    }
    assert_eq!(grammars.compiled(), 71);
    compile();
    assert_eq!(grammars.compiled(), 72);
}

/// An object with `count` properties `k0`, `k1`, …, the first `required` of which are required.
fn object(count: usize, required: usize, each: &Value) -> Value {
    let properties: serde_json::Map<_, _> =
        (0..count).map(|i| (format!("k{i}"), each.clone())).collect();
    let required: Vec<_> = (0..required).map(|i| format!("k{i}")).collect();
    json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false})
}

#[test]
fn expensive_schemas_are_refused_before_compiling() {
    let integer = json!({"type": "integer"});
    let parts = |count: usize| vec![json!({"type": "integer"}); count];
    let divisors = |key: &str| json!({key: [{"multipleOf": 9973}, {"multipleOf": 99.41}]});
    let patterns: serde_json::Map<_, _> = (0..17).map(|i| (format!("^p{i}$"), json!({}))).collect();
    let long = json!({"type": "string", "pattern": "^a*$", "minLength": 15_000});
    let start = muse_testkit::CpuTimer::start();
    for (words, shape) in [
        (["401 of the `properties` of the top", "at most 400"], object(401, 0, &integer)),
        (["4001", "at most 4000"], object(4001, 4001, &integer)),
        (["more than 10000 schemas", "smaller"], json!({"prefixItems": parts(10_000)})),
        (["`oneOf` at /oneOf has 501", "at most 500"], json!({"oneOf": parts(501)})),
        (["`patternProperties`", "17"], json!({"patternProperties": patterns})),
        (["\"(a{1000}){1000}\"", "1000000 characters"], json!({"pattern": "(a{1000}){1000}"})),
        (["`minLength`", "at most 40000"], object(3, 3, &long)),
        (["`multipleOf`", "1000003"], json!({"type": "integer", "multipleOf": 1_000_003})),
        (["`multipleOf`", "common multiple"], divisors("allOf")),
        (["`maxProperties`", "may be left out"], {
            let mut some = object(400, 0, &integer);
            some["maxProperties"] = json!(1);
            some
        }),
    ] {
        let message = refusal(schema(&shape));
        for word in words {
            assert!(message.contains(word), "{message:?} lacks {word:?}");
        }
    }
    assert!(start.elapsed().as_secs() < 10, "took {:?}", start.elapsed());
    // The limits hold for the sum over all tools.
    let tool = |i| function(&format!("t{i}"), true, &json!({"p": {"items": long}}), &[]);
    let message = refusal(json!({"tools": (0..3).map(tool).collect::<Vec<_>>()}));
    assert!(message.contains("tool `t2`") && message.contains("at most 40000"), "{message}");
    let rule = AnswerRule::Regex("(a{1000}){1000}".to_owned());
    let error = GRAMMARS.constraint(&Conversation::default(), &ToolChoice::Auto, &rule).err();
    assert!(error.unwrap().to_string().contains("1000000 characters"), "of a plain expression");
    // A schema within a grammar counts towards the same limits.
    for (schema, words) in
        [("{\"multipleOf\": 1000003}", "`multipleOf`"), ("[", "no JSON schema"), ("x", "schema")]
    {
        let rule = AnswerRule::Lark(format!("start: \"a\" %json {schema}"));
        let error = GRAMMARS.constraint(&Conversation::default(), &ToolChoice::Auto, &rule).err();
        let message = error.unwrap().to_string();
        assert!(message.contains(words) && message.contains("the grammar"), "{message}");
    }
    check(
        &mut answer(AnswerRule::Lark("start: \"a\" %json {\"multipleOf\": 3} \"b\"".to_owned())),
        &[" to=user<|message|>a12b<|eot|>"],
        &[" to=user<|message|>a13b<|eot|>"],
    );
}

#[test]
fn grammars_at_the_limits_compile() {
    let mut optional = constraint(schema(&object(400, 0, &json!({"type": "integer"}))));
    check(
        &mut optional,
        &[
            " to=user<|message|>{\"k399\": 1}<|eot|>",
            " to=user<|message|>{\"k0\":1,\"k7\":2, \"k398\": 3}<|eot|>",
        ],
        &[" to=user<|message|>{\"k7\": 1, \"k0\": 2}<|eot|>"],
    );
    let texts: Vec<String> = (0..5000).map(|i| format!("text {i}")).collect();
    check(
        &mut answer(AnswerRule::Choice(texts.clone())),
        &[" to=user<|message|>text 4999<|eot|>", " to=user<|message|>text 4<|eot|>"],
        &[" to=user<|message|>text 5000<|eot|>"],
    );
    check(
        &mut answer(AnswerRule::Choice(vec![String::new(), "a".to_owned()])),
        &[" to=user<|message|><|eot|>", " to=user<|message|>a<|eot|>"],
        &[" to=user<|message|>b<|eot|>"],
    );
    let parameters = object(400, 0, &json!({"enum": &texts[..4]}));
    let tool = json!({"type": "function", "function": {"name": "t", "strict": true,
        "parameters": parameters}});
    let last = super::call("t", &super::parameter("k399", "text 3"));
    let mut call = constraint(json!({"tools": [tool], "tool_choice": "required"}));
    check(&mut call, &[&format!("{last}<|eot|>")], &[]);
}

/// Messages must not mention the compiler's options or the grammar around the schema.
#[test]
fn refusals_are_about_the_schema_in_one_line() {
    let either = json!({"oneOf": [{"type": "object"}, {"properties": {"a": {}}}]});
    let names = json!({"type": "object", "patternProperties": {"^a": {}, "a$": {}}});
    let many: Vec<_> = (0..2100).map(|i| object(1, 1, &json!({"const": i}))).collect();
    for (words, shape) in [
        ("`oneOf`", either),
        ("`patternProperties`", names),
        ("2000", json!({"anyOf": many})),
        ("`false`", json!(false)),
        ("look-ahead", json!({"type": "string", "pattern": "(?=a)b"})),
        ("`minimum` at /minimum is 1e+300", json!({"type": "number", "minimum": 1e300})),
        ("`minimum` 5 is above `maximum` 3", json!({"minimum": 5, "maximum": 3})),
        ("`multipleOf` at /multipleOf is 0", json!({"multipleOf": 0})),
        ("date-time", json!({"type": "string", "format": "no-such-format"})),
        ("no value", json!({"allOf": [{"type": "string"}, {"type": "null"}]})),
    ] {
        let message = refusal(schema(&shape).clone());
        assert!(message.contains(words), "{message:?} lacks {words:?}");
        for foreign in ["coerce", "Error", "Unsatis", "Unimpl", "recursive", "row", "\n"] {
            assert!(!message.contains(foreign), "{message:?} has {foreign:?}");
        }
    }
}

/// Nobody who writes a grammar knows the compiler's names for its parts.
#[test]
fn faults_of_a_grammar_are_in_the_words_of_its_writer() {
    for (grammar, words) in [
        ("root: \"a\"", "it has no rule `start`"),
        ("start: a", "line 1, column 8: `a` is not defined; rules have lower-case names"),
        ("start: T\nT: a\na: \"x\"", "line 2, column 4: `a` is not defined"),
        ("start: \"a", "a text has no closing quote in \"start: \\\"a\""),
        ("start: 'a'", "texts stand in double quotes"),
        ("start: \"a\" ;", "rules end with their line, without `;`"),
        ("start \"a\"", "line 1, column 7: found a text, expected `:`"),
        ("start = \"a\"", "found `=`, expected `:`"),
        ("start: (\"a\"", "found the end of the line, expected `)`"),
        ("start: \"a\"\nx: \"b\" )", "line 2, column 8: a rule (`name: …`), a terminal"),
        ("start: /a(?=b)/", "the expression \"a(?=b)\" is not supported: look-around"),
        ("start: \"a\"{3,1}", "the repetition `(3, 1)` ends below where it begins"),
        ("start: T\nT: T \"a\"", "line 2, column 4: the terminal `T` refers to itself"),
        ("start: start", "no text fits: rules lead back to themselves"),
        ("start: \"a\"\nstart: \"b\"", "the rule `start` is defined twice"),
        ("start: <|nope|>", "the vocabulary has no token `<|nope|>`"),
        ("start: <[99999]>", "the vocabulary has no token `99999`"),
        ("start: @other", "`@other` is no grammar of this request"),
        ("%import common.NOPE\nstart: NOPE", "`common.NOPE` cannot be imported"),
        ("%declare X\nstart: X", "`%declare` is not supported"),
        ("%foo bar", "there is no such statement"),
        ("start[foo=3]: \"a\"", "a rule has no attribute `foo`"),
        ("start: \"z\"..\"a\"", "ends before it begins"),
        ("start: \"a\" & \"b\"", "`&` stands in terminals (upper-case names) only"),
        ("start.5: \"a\"", "priorities are not supported"),
        ("start: \"\\q\"", "a text holds an unknown escape"),
    ] {
        let rule = AnswerRule::Lark(grammar.to_owned());
        let error = GRAMMARS.constraint(&Conversation::default(), &ToolChoice::Auto, &rule).err();
        let message = error.unwrap_or_else(|| panic!("{grammar:?} is accepted")).to_string();
        assert!(message.contains(words), "{grammar:?}: {message:?} lacks {words:?}");
        for foreign in ["NoExtensionBias", "lexer", "TOKEN_NAME", "(at ", "string...", "⟦", "\n"]
        {
            assert!(!message.contains(foreign), "{message:?} has {foreign:?}");
        }
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let mut constraint = answer(AnswerRule::Choice(vec!["yes".to_owned()]));
    for token in tokens(" to=user<|message|>") {
        constraint.accept(token).unwrap();
    }
    for wrong in tokens("<|eot|>") {
        let error = constraint.accept(wrong).unwrap_err().to_string();
        assert!(error.contains("does not fit") && error.contains("mask"), "{error}");
    }
    let error = constraint.rollback(1000).unwrap_err().to_string();
    assert!(error.contains("1000 tokens to take back"), "{error}");
    for token in tokens("yes<|eot|>") {
        constraint.accept(token).unwrap();
    }
    let mut tools = Conversation::default();
    let required = |tools: &Conversation| {
        GRAMMARS.constraint(tools, &ToolChoice::Required, &AnswerRule::Free).err()
    };
    let error = required(&tools).expect("no tool can be called").to_string();
    assert!(error.contains("no tool is declared"), "{error}");
    let (declared, ..) = request(json!({"tools": [function("t", true, &json!({}), &[])]}));
    tools.tools = declared.tools;
    assert!(required(&tools).is_none());
    let rule = AnswerRule::JsonObject;
    let mut none = GRAMMARS.constraint(&tools, &ToolChoice::None, &rule).unwrap().unwrap();
    check(&mut none, &[" to=user<|message|>{}<|eot|>"], &[" to=t<|message|>"]);
}

#[test]
fn cancelled_requests_are_not_compiled() {
    let grammars = Grammars::new(NANO.clone()).unwrap();
    let none = Conversation::default();
    let rule = AnswerRule::JsonObject;
    let asked = std::cell::Cell::new(0);
    let compile = |keep_going: &dyn Fn() -> bool| {
        grammars.constraint_while(&none, &ToolChoice::Auto, &rule, keep_going)
    };
    let error = compile(&|| false).err().expect("given up");
    assert!(matches!(error, muse_core::Error::Exhausted(_)), "{error}");
    assert_eq!(grammars.compiled(), 0);
    // Cancelled after it was compiled: the compiled grammar stays in the cache.
    assert!(compile(&|| asked.replace(asked.get() + 1) < 1).is_err());
    assert_eq!((asked.get(), grammars.compiled()), (2, 1));
    assert!(compile(&|| true).unwrap().is_some());
}
