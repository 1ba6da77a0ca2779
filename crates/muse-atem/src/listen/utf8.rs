//! Bytes to text: letters may be spread over tokens.

/// Puts letters together.
#[derive(Default)]
pub(super) struct Letters {
    /// The beginning of a letter, at most three bytes.
    partial: Vec<u8>,
}

impl Letters {
    /// Takes bytes; passes on whole letters. Bytes that are no text become U+FFFD.
    pub(super) fn take(&mut self, bytes: &[u8], mut speak: impl FnMut(&str)) {
        let mut joined;
        let mut rest = bytes;
        if !self.partial.is_empty() {
            joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        loop {
            match std::str::from_utf8(rest) {
                Ok("") => return,
                Ok(text) => return speak(text),
                Err(fault) => {
                    let (text, broken) = rest.split_at(fault.valid_up_to());
                    if !text.is_empty() {
                        speak(std::str::from_utf8(text).expect("checked to be text"));
                    }
                    match fault.error_len() {
                        None => {
                            self.partial.extend_from_slice(broken);
                            return;
                        }
                        Some(length) => {
                            speak("\u{fffd}");
                            rest = &broken[length..];
                        }
                    }
                }
            }
        }
    }

    /// No more bytes belong to the letter that began.
    pub(super) fn flush(&mut self, mut speak: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.partial.clear();
            speak("\u{fffd}");
        }
    }
}
