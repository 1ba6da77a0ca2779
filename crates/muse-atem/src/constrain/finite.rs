//! Refuses JSON schemas that only endless values fit: those that demand themselves by `required`,
//! `minItems` or `$ref`. A model that began such a value would write it up to the limit.

use std::collections::HashMap;

use crate::json::{Json, Number, References};

/// A schema and what must be finite for a value of it to be.
struct Node<'a> {
    schema: &'a Json,
    path: String,
    needs: Vec<Need>,
    is_finite: bool,
    /// Nodes that may be finite once this one is.
    waiting: Vec<usize>,
}

/// What a keyword demands of other schemas, by their numbers.
struct Need {
    keyword: &'static str,
    /// Whether all of them must be finite, or any.
    all: bool,
    schemas: Vec<usize>,
}

/// Checks a schema whose keywords have values of their kind, with all schemas it leads to.
///
/// # Errors
/// The keyword and the place of a schema that no finite value fits.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    let mut graph =
        Graph { nodes: Vec::new(), numbers: HashMap::new(), references: References::new(schema) };
    graph.number(schema, String::new());
    let mut next = 0;
    while next < graph.nodes.len() {
        graph.read(next);
        next += 1;
    }
    graph.settle();
    match graph.nodes.iter().position(|node| !node.is_finite) {
        None => Ok(()),
        Some(endless) => Err(graph.describe(endless)),
    }
}

struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    /// Numbers of schemas, which are told apart by address.
    numbers: HashMap<*const Json, usize>,
    references: References<'a>,
}

impl<'a> Graph<'a> {
    /// The number of a schema, which is added when it is new.
    fn number(&mut self, schema: &'a Json, path: String) -> usize {
        *self.numbers.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            let node =
                Node { schema, path, needs: Vec::new(), is_finite: false, waiting: Vec::new() };
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Adds the schemas that a schema leads to, and what it needs of them.
    fn read(&mut self, node: usize) {
        let (schema, path) = (self.nodes[node].schema, self.nodes[node].path.clone());
        let mut needs = Vec::new();
        if let Some(reference) = schema.member("$ref")
            && let Some(target) = self.references.follow(reference)
        {
            let place = reference.as_str().unwrap_or_default().trim_start_matches('#');
            let target = self.number(target, place.to_owned());
            needs.push(Need { keyword: "$ref", all: true, schemas: vec![target] });
        }
        for (keyword, all) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
            let parts = self.list(schema, keyword, &path);
            if !parts.is_empty() {
                needs.push(Need { keyword, all, schemas: parts });
            }
        }
        let object = self.object(schema, &path);
        let array = self.array(schema, &path);
        // Other values than those of one of these types need no others.
        needs.extend(match only_type(schema) {
            Some("object") => object,
            Some("array") => array,
            _ => None,
        });
        let has_own = ["const", "enum"].iter().any(|key| schema.member(key).is_some())
            || schema.member("nullable").and_then(Json::as_bool) == Some(true);
        if !has_own {
            self.nodes[node].needs = needs;
        }
    }

    /// What an object needs of its required properties.
    fn object(&mut self, schema: &'a Json, path: &str) -> Option<Need> {
        let mut properties = HashMap::new();
        for keyword in ["properties", "patternProperties"] {
            let members = schema.member(keyword).and_then(Json::as_object).unwrap_or_default();
            for (key, part) in members {
                let number = self.number(part, format!("{path}/{keyword}/{key}"));
                properties.insert((keyword, key.as_str()), number);
            }
        }
        let others = self.schema(schema, "additionalProperties", path);
        let patterns = properties.keys().any(|(keyword, _)| *keyword == "patternProperties");
        let names = schema.member("required").and_then(Json::as_array)?;
        let of = |name: &str| match properties.get(&("properties", name)) {
            // Which pattern a name matches is not worth knowing here.
            None if patterns => None,
            found => found.copied().or(others),
        };
        let schemas = names.iter().filter_map(Json::as_str).filter_map(of).collect();
        Some(Need { keyword: "required", all: true, schemas })
    }

    /// What a list needs of the items it must have.
    fn array(&mut self, schema: &'a Json, path: &str) -> Option<Need> {
        let mut items = self.list(schema, "prefixItems", path);
        items.extend(self.list(schema, "items", path));
        let rest = self.schema(schema, "items", path);
        let rest = rest.or(self.schema(schema, "additionalItems", path));
        let min = schema.member("minItems").and_then(Json::as_number).and_then(Number::to_u64)?;
        let min = usize::try_from(min).unwrap_or(usize::MAX);
        if min > items.len() {
            items.extend(rest);
        } else {
            items.truncate(min);
        }
        Some(Need { keyword: "minItems", all: true, schemas: items })
    }

    /// The schema that a keyword holds.
    fn schema(&mut self, schema: &'a Json, keyword: &str, path: &str) -> Option<usize> {
        let part = schema.member(keyword).filter(|part| part.as_object().is_some())?;
        Some(self.number(part, format!("{path}/{keyword}")))
    }

    /// The schemas that a keyword lists.
    fn list(&mut self, schema: &'a Json, keyword: &str, path: &str) -> Vec<usize> {
        let parts = schema.member(keyword).and_then(Json::as_array).unwrap_or_default();
        let parts = parts.iter().enumerate();
        parts.map(|(i, part)| self.number(part, format!("{path}/{keyword}/{i}"))).collect()
    }

    /// Finds all schemas with finite values.
    fn settle(&mut self) {
        let mut open: Vec<usize> = (0..self.nodes.len()).collect();
        while let Some(node) = open.pop() {
            if self.nodes[node].is_finite {
                continue;
            }
            let unmet = self.unmet(node).map(|need| match need.all {
                // One after the other, or a long list would be looked through for each of its own.
                true => need
                    .schemas
                    .iter()
                    .copied()
                    .filter(|s| !self.nodes[*s].is_finite)
                    .take(1)
                    .collect(),
                false => need.schemas.clone(),
            });
            match unmet {
                None => {
                    self.nodes[node].is_finite = true;
                    open.append(&mut self.nodes[node].waiting);
                }
                Some(schemas) => {
                    let schemas: Vec<usize> = schemas;
                    schemas.into_iter().for_each(|schema| self.nodes[schema].waiting.push(node));
                }
            }
        }
    }

    /// The first need of a schema that is not met.
    fn unmet(&self, node: usize) -> Option<&Need> {
        let is_finite = |schema: &usize| self.nodes[*schema].is_finite;
        self.nodes[node].needs.iter().find(|need| match need.all {
            true => !need.schemas.iter().all(is_finite),
            false => !need.schemas.iter().any(is_finite),
        })
    }

    /// Follows an endless schema to the keyword by which one demands itself.
    fn describe(&self, endless: usize) -> String {
        let mut at = endless;
        let mut seen = vec![false; self.nodes.len()];
        while !std::mem::replace(&mut seen[at], true) {
            at = self.demanded(at).1;
        }
        // Now once around the circle, for a keyword that could be left out.
        let start = at;
        let mut found = (at, self.demanded(at).0);
        loop {
            let (keyword, next) = self.demanded(at);
            if matches!(keyword, "required" | "minItems") {
                found = (at, keyword);
                break;
            }
            at = next;
            if at == start {
                break;
            }
        }
        let (place, keyword) = found;
        let path = match self.nodes[place].path.as_str() {
            "" => "the top",
            path => path,
        };
        format!(
            "keyword `{keyword}` at {path} demands a value that demands another of its kind, so \
             that none is finite; make it optional or allow null"
        )
    }

    /// The keyword by which an endless schema demands another, and which.
    fn demanded(&self, endless: usize) -> (&'static str, usize) {
        let need = self.unmet(endless).expect("an endless schema has an unmet need");
        let unmet = need.schemas.iter().find(|schema| !self.nodes[**schema].is_finite);
        (need.keyword, *unmet.expect("an unmet need names an endless schema"))
    }
}

/// The type of all values that fit a schema, when it is one.
fn only_type(schema: &Json) -> Option<&str> {
    match schema.member("type")? {
        Json::String(name) => Some(name),
        Json::Array(names) if names.len() == 1 => names[0].as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &str) -> Option<String> {
        check(&Json::parse(schema).unwrap()).err()
    }

    #[test]
    fn schemas_that_demand_themselves_are_refused() {
        let node = |next: &str, more: &str| {
            format!(
                r##"{{"type": "object", "properties": {{"next": {next}}}, "required": ["next"]{more}}}"##
            )
        };
        for (schema, keyword, path) in [
            (node(r##"{"$ref": "#"}"##, ""), "required", "the top"),
            (
                node(r##"{"$ref": "#/$defs/n"}"##, &format!(r##", "$defs": {{"n": {}}}"##, node(r##"{"$ref": "#/$defs/n"}"##, ""))),
                "required",
                "/$defs/n",
            ),
            (node(r##"{"anyOf": [{"$ref": "#"}, {"$ref": "#/properties/next"}]}"##, ""), "required", "the top"),
            (r##"{"type": "array", "items": {"$ref": "#"}, "minItems": 1}"##.to_owned(), "minItems", "the top"),
            (r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##.to_owned(), "$ref", "/$defs/"),
            // It need not be there, but once begun it does not end.
            (
                format!(r##"{{"type": "object", "properties": {{"n": {{"$ref": "#/$defs/n"}}}}, "$defs": {{"n": {}}}}}"##, node(r##"{"$ref": "#/$defs/n"}"##, "")),
                "required",
                "/$defs/n",
            ),
            (r##"{"type": "object", "required": ["x"], "additionalProperties": {"allOf": [{"$ref": "#"}]}}"##.to_owned(), "required", "the top"),
        ] {
            let message = refused(&schema).unwrap_or_else(|| panic!("{schema} is accepted"));
            assert!(message.contains(&format!("`{keyword}` at {path}")), "{schema}: {message}");
        }
    }

    #[test]
    fn schemas_with_finite_values_are_not() {
        for schema in [
            r##"{"type": "object", "properties": {"next": {"$ref": "#"}}}"##,
            r##"{"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}"##,
            r##"{"type": "object", "properties": {"next": {"$ref": "#", "nullable": true}}, "required": ["next"]}"##,
            r##"{"type": "array", "items": {"$ref": "#"}}"##,
            r##"{"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#"}, "minItems": 1}"##,
            r##"{"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]}"##,
            r##"{"properties": {"next": {"$ref": "#"}}, "required": ["next"]}"##,
            r##"{"type": "object", "properties": {"x": false}, "$defs": {"unused": {"$ref": "#/$defs/unused"}}}"##,
            r##"{"const": 5, "type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            "true",
            "false",
        ] {
            assert_eq!(refused(schema), None, "{schema}");
        }
    }

    #[test]
    fn long_chains_are_settled_in_linear_time() {
        let count = 10_000;
        let link = |i: usize| {
            format!(
                r##""d{i}": {{"type": "array", "minItems": 1, "items": {{"$ref": "#/$defs/d{}"}}}}"##,
                (i + 1) % count
            )
        };
        let links: Vec<String> = (0..count).map(link).collect();
        let closed = format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{}}}}}"##, links.join(","));
        assert!(refused(&closed).is_some_and(|message| message.contains("`minItems`")));
        let open = closed
            .replace(r##""d7": {"type": "array", "minItems": 1"##, r##""d7": {"type": "array""##);
        assert_eq!(refused(&open), None);
    }
}
