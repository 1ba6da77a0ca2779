//! Parses GBNF.

use std::collections::HashMap;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 64;

/// The largest count of a repetition.
const MAX_COUNT: u32 = 2000;

/// The largest code point.
const MAX_CHAR: u32 = 0x10_ffff;

/// A rule under its number.
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) alternatives: Vec<Sequence>,
}

/// Parts that follow each other.
pub(super) type Sequence = Vec<Item>;

/// A part of a sequence, with how often it comes.
pub(super) struct Item {
    pub(super) atom: Atom,
    pub(super) min: u32,
    pub(super) max: Option<u32>,
}

/// What comes once.
pub(super) enum Atom {
    /// A text.
    Literal(String),
    /// A character within the ranges, or outside of them.
    Class { negated: bool, ranges: Vec<(u32, u32)> },
    /// A rule by its number.
    Rule(usize),
    /// Alternatives in parentheses.
    Group(Vec<Sequence>),
}

/// Parses a grammar; gives its rules and the number of each.
///
/// # Errors
/// What is wrong or cannot be translated, and where.
pub(super) fn parse(text: &str) -> Result<(Vec<Rule>, HashMap<String, usize>), String> {
    let mut parser = Parser { text, at: 0, rules: Vec::new(), numbers: HashMap::new() };
    parser.grammar()?;
    Ok((parser.defined()?, parser.numbers))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Rules by number; none for those that are named, but not defined yet.
    rules: Vec<(String, Option<Vec<Sequence>>)>,
    numbers: HashMap<String, usize>,
}

impl Parser<'_> {
    fn grammar(&mut self) -> Result<(), String> {
        self.space(true);
        while self.at < self.text.len() {
            let start = self.at;
            let name = self.name().ok_or_else(|| self.unexpected("the name of a rule"))?;
            self.space(false);
            if !self.take("::=") {
                return Err(self.unexpected("`::=`"));
            }
            self.space(true);
            let alternatives = self.alternatives(0)?;
            let number = self.number(name);
            if self.rules[number].1.replace(alternatives).is_some() {
                self.at = start;
                return Err(self.error(&format!(
                    "rule `{name}` is defined twice",
                    name = self.rules[number].0
                )));
            }
            if !matches!(self.peek(), None | Some('\n' | '\r')) {
                return Err(self.unexpected("a part of the rule or the end of the line"));
            }
            self.space(true);
        }
        Ok(())
    }

    /// All rules, each of which must be defined.
    fn defined(&mut self) -> Result<Vec<Rule>, String> {
        let rules = std::mem::take(&mut self.rules).into_iter();
        let rules = rules.map(|(name, alternatives)| match alternatives {
            Some(alternatives) => Ok(Rule { name, alternatives }),
            None => Err(format!("rule `{name}` is used, but not defined")),
        });
        rules.collect()
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Sequence>, String> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("groups are nested deeper than {MAX_DEPTH} levels")));
        }
        let mut all = vec![self.sequence(depth)?];
        loop {
            // The next line may go on with an alternative.
            let end = self.at;
            self.space(true);
            if !self.take("|") {
                if depth == 0 {
                    self.at = end;
                }
                return Ok(all);
            }
            self.space(true);
            all.push(self.sequence(depth)?);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Sequence, String> {
        let mut items = Vec::new();
        while let Some(atom) = self.atom(depth)? {
            let (min, max) = self.count()?;
            if max != Some(0) {
                items.push(Item { atom, min, max });
            }
            self.space(depth > 0);
        }
        Ok(items)
    }

    fn atom(&mut self, depth: usize) -> Result<Option<Atom>, String> {
        Ok(match self.peek() {
            Some('"') => Some(self.literal()?),
            Some('[') => Some(self.class()?),
            Some('.') => {
                self.at += 1;
                Some(Atom::Class { negated: false, ranges: vec![(0, MAX_CHAR)] })
            }
            Some('(') => {
                self.at += 1;
                self.space(true);
                let alternatives = self.alternatives(depth + 1)?;
                if !self.take(")") {
                    return Err(self.unexpected("`)`"));
                }
                Some(Atom::Group(alternatives))
            }
            Some('<' | '!') => {
                return Err(
                    self.error("tokens like <[1]> or <think> cannot be translated; spell texts")
                );
            }
            _ => self.name().map(|name| Atom::Rule(self.number(name))),
        })
    }

    fn literal(&mut self) -> Result<Atom, String> {
        self.at += 1;
        let mut text = String::new();
        while !self.take("\"") {
            if matches!(self.peek(), None | Some('\n')) {
                return Err(self.error("a text has no closing quote"));
            }
            let code = self.character()?;
            let spelled = char::from_u32(code);
            text.push(spelled.ok_or_else(|| self.error(&format!("U+{code:04X} is no character")))?);
        }
        Ok(Atom::Literal(text))
    }

    fn class(&mut self) -> Result<Atom, String> {
        self.at += 1;
        let negated = self.take("^");
        let mut ranges = Vec::new();
        while !self.take("]") {
            if matches!(self.peek(), None | Some('\n')) {
                return Err(self.error("a class of characters has no closing `]`"));
            }
            let low = self.character()?;
            let rest = &self.text[self.at..];
            let high = match rest.starts_with('-') && !rest.starts_with("-]") {
                true => {
                    self.at += 1;
                    self.character()?
                }
                false => low,
            };
            if low > high {
                return Err(self.error("a range of characters ends before it begins"));
            }
            ranges.push((low, high));
        }
        if ranges.is_empty() {
            return Err(self.error("a class of no characters matches nothing"));
        }
        Ok(Atom::Class { negated, ranges })
    }

    /// A character, or its escape.
    fn character(&mut self) -> Result<u32, String> {
        let Some(character) = self.peek() else { return Err(self.unexpected("a character")) };
        self.at += character.len_utf8();
        if character != '\\' {
            return Ok(u32::from(character));
        }
        let Some(escape) = self.peek() else { return Err(self.unexpected("an escape")) };
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'n' => return self.escaped('\n'),
            'r' => return self.escaped('\r'),
            't' => return self.escaped('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return self.escaped(escape),
            other => return Err(self.error(&format!("`\\{other}` is no escape"))),
        };
        let hex = self.text.get(self.at + 1..self.at + 1 + digits).unwrap_or_default();
        let code = u32::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'));
        let code = code.filter(|code| *code <= MAX_CHAR);
        let code =
            code.ok_or_else(|| self.error(&format!("`\\{escape}` takes {digits} digits")))?;
        self.at += 1 + digits;
        Ok(code)
    }

    fn escaped(&mut self, character: char) -> Result<u32, String> {
        self.at += 1;
        Ok(u32::from(character))
    }

    /// How often the atom before comes.
    fn count(&mut self) -> Result<(u32, Option<u32>), String> {
        let end = self.at;
        self.space(false);
        if self.take("*") {
            return Ok((0, None));
        } else if self.take("+") {
            return Ok((1, None));
        } else if self.take("?") {
            return Ok((0, Some(1)));
        } else if !self.take("{") {
            self.at = end;
            return Ok((1, Some(1)));
        }
        let min = self.digits()?.ok_or_else(|| self.unexpected("a number"))?;
        let max = if self.take(",") { self.digits()? } else { Some(min) };
        if !self.take("}") {
            return Err(self.unexpected("`}`"));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.error("a repetition ends below where it begins"));
        }
        Ok((min, max))
    }

    fn digits(&mut self) -> Result<Option<u32>, String> {
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
        self.at += digits.len();
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(count) if count <= MAX_COUNT => Ok(Some(count)),
            _ => Err(self.error(&format!("a repetition of {digits:.20}, at most {MAX_COUNT}"))),
        }
    }

    fn name(&mut self) -> Option<String> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let rest = &self.text[self.at..];
        let name = &rest[..rest.bytes().take_while(fits).count()];
        self.at += name.len();
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn number(&mut self, name: String) -> usize {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.rules.push((name.clone(), None));
            self.rules.len() - 1
        })
    }

    /// Passes over white space and comments.
    fn space(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\n' | '\r') if lines => self.at += 1,
                Some('#') => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.text[self.at..].starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn unexpected(&self, expected: &str) -> String {
        match self.peek() {
            Some(found) => self.error(&format!("found {found:?}, expected {expected}")),
            None => self.error(&format!("the grammar ends, expected {expected}")),
        }
    }

    fn error(&self, message: &str) -> String {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {message}")
    }
}
