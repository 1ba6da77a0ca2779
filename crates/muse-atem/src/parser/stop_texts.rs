//! Stop texts in a stream of visible text.

/// Finds the first of several stop texts in text that comes in parts. Looks at each byte once per
/// stop text (Knuth-Morris-Pratt).
pub(super) struct StopTexts {
    matchers: Vec<StopMatcher>,
    /// Text that may be the beginning of a stop text, after the first `emitted` bytes, which went
    /// out.
    held: String,
    emitted: usize,
}

struct StopMatcher {
    text: String,
    /// For each prefix, the length of the longest proper prefix that is also its suffix.
    borders: Vec<usize>,
    /// How many bytes of the stop text the input so far ends with.
    matched: usize,
}

impl StopTexts {
    /// Empty texts are ignored: they would stop before the first character.
    pub(super) fn new(texts: &[String]) -> Self {
        let matchers =
            texts.iter().filter(|text| !text.is_empty()).map(|text| StopMatcher::new(text));
        Self { matchers: matchers.collect(), held: String::new(), emitted: 0 }
    }

    /// Takes visible text and emits what cannot belong to a stop text. Returns the stop text found.
    pub(super) fn push(&mut self, text: &str, mut emit: impl FnMut(&str)) -> Option<String> {
        if self.matchers.is_empty() {
            emit(text);
            return None;
        }
        for (at, byte) in text.bytes().enumerate() {
            // Of stop texts that end at the same byte, the longest began first.
            let found = self.matchers.iter_mut().filter_map(|matcher| matcher.step(byte)).max();
            if let Some(length) = found {
                self.held.push_str(&text[..=at]);
                let stop = self.held.split_off(self.held.len() - length);
                self.emit_to(self.held.len(), emit);
                return Some(stop);
            }
        }
        let keep = self.matchers.iter().map(|matcher| matcher.matched).max().unwrap_or(0);
        self.held.push_str(text);
        self.emit_to(self.held.len() - keep, emit);
        None
    }

    /// Emits the held text up to `end`. Emitted bytes are removed only once they are the larger
    /// part, so that a long held text is not moved for every character.
    fn emit_to(&mut self, end: usize, mut emit: impl FnMut(&str)) {
        if end > self.emitted {
            emit(&self.held[self.emitted..end]);
            self.emitted = end;
        }
        if self.emitted * 2 >= self.held.len() {
            self.held.drain(..self.emitted);
            self.emitted = 0;
        }
    }

    /// The held text, when no more input comes.
    pub(super) fn rest(&mut self) -> String {
        let rest = self.held.split_off(self.emitted);
        (self.held, self.emitted) = (String::new(), 0);
        rest
    }
}

impl StopMatcher {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut border = 0;
        for at in 1..bytes.len() {
            while border > 0 && bytes[at] != bytes[border] {
                border = borders[border - 1];
            }
            border += usize::from(bytes[at] == bytes[border]);
            borders[at] = border;
        }
        Self { text: text.to_owned(), borders, matched: 0 }
    }

    /// Takes a byte; returns the length of the stop text when it ends here.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        (self.matched == bytes.len()).then(|| {
            self.matched = self.borders[self.matched - 1];
            bytes.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stops: &[&str], text: &str, emitted: &str, stop: Option<&str>) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        for size in 1..=text.len().max(1) {
            let mut matcher = StopTexts::new(&stops);
            let (mut out, mut found) = (String::new(), None);
            for chunk in text.as_bytes().chunks(size) {
                let chunk = std::str::from_utf8(chunk).expect("ASCII");
                found = matcher.push(chunk, |text| out.push_str(text));
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() {
                out.push_str(&matcher.rest());
            }
            assert_eq!((out.as_str(), found.as_deref()), (emitted, stop), "{text} by {size}");
        }
    }

    #[test]
    fn the_first_stop_text_ends_the_text() {
        check(&["END"], "say END now", "say ", Some("END"));
        check(&["aab"], "aaab", "a", Some("aab"));
        check(&["xyz", "y"], "axyz", "ax", Some("y"));
        check(&["bc", "abc"], "zabc", "z", Some("abc"));
        check(&["END", ""], "say EN", "say EN", None);
    }
}
