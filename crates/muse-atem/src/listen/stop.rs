//! Stop texts in a stream of visible text.

/// Finds the first of several texts in text that comes in parts, looking at each byte once per
/// stop text.
pub(super) struct StopTexts {
    needles: Vec<Needle>,
    /// Text that may be the beginning of a stop text, behind `shown` bytes that went out.
    held: String,
    shown: usize,
}

struct Needle {
    text: String,
    /// Length of the longest proper border of each prefix.
    borders: Vec<usize>,
    /// Bytes of it that the text seen so far ends with.
    matched: usize,
}

impl StopTexts {
    /// Empty texts are left out: they would stop before the first letter.
    pub(super) fn new(texts: &[String]) -> Self {
        let needles = texts.iter().filter(|text| !text.is_empty()).map(|text| Needle::new(text));
        Self { needles: needles.collect(), held: String::new(), shown: 0 }
    }

    /// Takes visible text; says what may be shown. `Some` is the stop text that was met.
    pub(super) fn take(&mut self, text: &str, mut show: impl FnMut(&str)) -> Option<String> {
        if self.needles.is_empty() {
            show(text);
            return None;
        }
        for (at, byte) in text.bytes().enumerate() {
            // Of texts that end at the same byte the longest began first.
            let met = self.needles.iter_mut().filter_map(|needle| needle.step(byte)).max();
            if let Some(length) = met {
                self.held.push_str(&text[..=at]);
                let stop = self.held.split_off(self.held.len() - length);
                self.show_to(self.held.len(), show);
                return Some(stop);
            }
        }
        let keep = self.needles.iter().map(|needle| needle.matched).max().unwrap_or(0);
        self.held.push_str(text);
        self.show_to(self.held.len() - keep, show);
        None
    }

    /// Shows what is held up to `end`. What went out is cleared away only when it is the larger
    /// part, so that a long hold is not moved for every letter.
    fn show_to(&mut self, end: usize, mut show: impl FnMut(&str)) {
        if end > self.shown {
            show(&self.held[self.shown..end]);
            self.shown = end;
        }
        if self.shown * 2 >= self.held.len() {
            self.held.drain(..self.shown);
            self.shown = 0;
        }
    }

    /// What is held when no more text comes.
    pub(super) fn rest(&mut self) -> String {
        let rest = self.held.split_off(self.shown);
        (self.held, self.shown) = (String::new(), 0);
        rest
    }
}

impl Needle {
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

    /// Takes a byte; the length of the text when it ends here.
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

    fn check(stops: &[&str], text: &str, shown: &str, stop: Option<&str>) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        for size in 1..=text.len().max(1) {
            let mut matcher = StopTexts::new(&stops);
            let (mut out, mut met) = (String::new(), None);
            for chunk in text.as_bytes().chunks(size) {
                let chunk = std::str::from_utf8(chunk).expect("ASCII");
                met = matcher.take(chunk, |text| out.push_str(text));
                if met.is_some() {
                    break;
                }
            }
            if met.is_none() {
                out.push_str(&matcher.rest());
            }
            assert_eq!((out.as_str(), met.as_deref()), (shown, stop), "{text} by {size}");
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
