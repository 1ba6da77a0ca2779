//! Parses JSON, strictly and with bounded depth.

use std::collections::HashMap;

use super::{Json, JsonError, MAX_DEPTH, Number};

/// Parses one value and nothing else.
pub(super) fn whole(text: &str) -> Result<Json, JsonError> {
    bounded(text, usize::MAX).map(|(value, _)| value)
}

/// Parses one value at the start of a text; also returns the number of bytes it takes.
pub(super) fn first(text: &str) -> Result<(Json, usize), JsonError> {
    let mut reader = Reader::new(text);
    let value = reader.value(0)?;
    Ok((value, reader.at))
}

/// The members of an object as text, none of them built; of duplicate keys the last counts. The
/// whole text is checked.
pub(super) fn members(text: &str) -> Result<Vec<(String, &str)>, JsonError> {
    let mut reader = Reader::new(text);
    reader.space();
    if reader.peek() != Some(b'{') {
        let found = whole(text)?.kind();
        let message = format!("found {found}, expected an object");
        return Err(JsonError { offset: reader.at, message });
    }
    let mut members = Vec::new();
    reader.members(|reader, key| {
        reader.space();
        let start = reader.at;
        reader.skip(1)?;
        members.push((key, &text[start..reader.at]));
        Ok(())
    })?;
    reader.end()?;
    Ok(last_wins(members))
}

/// Reads one value that fills the text, built of at most `limit` values, and how many are left.
pub(super) fn bounded(text: &str, limit: usize) -> Result<(Json, usize), JsonError> {
    let mut reader = Reader { left: limit, ..Reader::new(text) };
    let value = reader.value(0)?;
    reader.end()?;
    Ok((value, reader.left))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many more values may be built.
    left: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, left: usize::MAX }
    }

    /// Nothing but white space may follow.
    fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.text[self.at..].chars().next() {
            None => Ok(()),
            Some(found) => Err(self.error(format!("found {found:?} after the value"))),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return Err(self.error("too many values".to_owned())),
        };
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in
                    [("true", Json::Bool(true)), ("false", Json::Bool(false)), ("null", Json::Null)]
                {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.unexpected("a value"))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut members = Vec::new();
        self.members(|reader, key| {
            members.push((key, reader.value(depth + 1)?));
            Ok(())
        })?;
        Ok(Json::Object(last_wins(members)))
    }

    /// An object whose values `value` reads.
    fn members(
        &mut self,
        mut value: impl FnMut(&mut Self, String) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            value(self, key)?;
            self.space();
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    /// Reads a value without building it; a text that is skipped is as valid as one that is built.
    fn skip(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.members(|reader, _| reader.skip(depth + 1)),
            Some(b'[') => self.items(|reader| reader.skip(depth + 1)),
            // No more than one of these is in memory at a time.
            _ => self.value(depth).map(drop),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut items = Vec::new();
        self.items(|reader| {
            items.push(reader.value(depth + 1)?);
            Ok(())
        })?;
        Ok(Json::Array(items))
    }

    /// A list whose items `item` reads.
    fn items(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            self.space();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let rest = &self.text[self.at..];
        let length = rest
            .bytes()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
            .count();
        let number = Number::parse(&rest[..length])
            .ok_or_else(|| self.error(format!("`{}` is not a number", &rest[..length.min(40)])))?;
        self.at += length;
        Ok(Json::Number(number))
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                self.at = self.text.len();
                return Err(self.error("the text ends inside a string".to_owned()));
            };
            out.push_str(&rest[..length]);
            self.at += length;
            match rest.as_bytes()[length] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                control => {
                    return Err(
                        self.error(format!("control character {control:#04x} inside a string"))
                    );
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let character = self.text.as_bytes().get(self.at + 1).copied();
        let plain = match character {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.error("an unknown escape in a string".to_owned())),
        };
        self.at += 2;
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let unit = self.unit()?;
        let code = if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
            let low = self.unit()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.error("a lone surrogate in a string".to_owned()));
            }
            0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
        } else {
            unit
        };
        char::from_u32(code).ok_or_else(|| self.error("a lone surrogate in a string".to_owned()))
    }

    /// The four digits of `\uXXXX`.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at + 2..self.at + 6).unwrap_or_default();
        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.error("`\\u` without four hexadecimal digits".to_owned()));
        }
        let text = std::str::from_utf8(digits).expect("hexadecimal digits are ASCII");
        self.at += 6;
        Ok(u32::from_str_radix(text, 16).expect("four hexadecimal digits"))
    }

    fn space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let met = self.peek() == Some(byte);
        self.at += usize::from(met);
        met
    }

    fn unexpected(&self, expected: &str) -> JsonError {
        match self.text[self.at..].chars().next() {
            Some(found) => self.error(format!("found {found:?}, expected {expected}")),
            None => self.error(format!("the text ends, expected {expected}")),
        }
    }

    fn error(&self, message: String) -> JsonError {
        JsonError { offset: self.at, message }
    }
}

/// Up to this many members, comparing all pairs is faster than hashing.
const FEW: usize = 8;

/// Of duplicate keys, keeps the first position and the last value.
pub(super) fn last_wins<T>(members: Vec<(String, T)>) -> Vec<(String, T)> {
    let repeated = |at: usize| members[..at].iter().any(|(key, _)| *key == members[at].0);
    if members.len() <= FEW && !(1..members.len()).any(repeated) {
        return members;
    }
    let mut places = HashMap::with_capacity(members.len());
    let mut unique = Vec::with_capacity(members.len());
    for (key, value) in members {
        match places.get(&key) {
            Some(&place) => {
                let member: &mut (String, T) = &mut unique[place];
                member.1 = value;
            }
            None => {
                places.insert(key.clone(), unique.len());
                unique.push((key, value));
            }
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, compact: &str, python: &str) {
        let value = Json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(value.to_compact(), compact);
        assert_eq!(value.to_python(), python);
    }

    #[test]
    fn order_and_spelling_are_kept() {
        check(
            r#" {"b": [1.50, 9007199254740993 , true], "a":"<&> ü\u00e9\ud83e\uddad\n"} "#,
            r#"{"b":[1.50,9007199254740993,true],"a":"<&> üé🦭\n"}"#,
            r#"{"b": [1.5, 9007199254740993, true], "a": "<&> üé🦭\n"}"#,
        );
        check(r#"{"k": 1, "x": {}, "k": []}"#, r#"{"k":[],"x":{}}"#, r#"{"k": [], "x": {}}"#);
        check(
            r#""\u0001\"\\\/\b\f\t\u007f""#,
            "\"\\u0001\\\"\\\\/\\b\\f\\t\u{7f}\"",
            "\"\\u0001\\\"\\\\/\\b\\f\\t\u{7f}\"",
        );
    }

    #[test]
    fn errors_have_position_and_expectation() {
        for (text, message) in [
            ("", "the text ends, expected a value at byte 0"),
            ("{n: 4", "found 'n', expected a key in double quotes at byte 1"),
            ("[1 2]", "found '2', expected `,` or `]` at byte 3"),
            ("NaN", "found 'N', expected a value at byte 0"),
            ("1 x", "found 'x' after the value at byte 2"),
            ("01", "`01` is not a number at byte 0"),
            (r#""\ud800""#, "a lone surrogate in a string at byte 7"),
            ("\"a\nb\"", "control character 0x0a inside a string at byte 2"),
        ] {
            assert_eq!(Json::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
        assert!(Json::parse(&nested(100_000)).unwrap_err().message.contains("deeper"));
    }
}
