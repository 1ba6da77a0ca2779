//! Bytes to text: letters may be spread over tokens.

/// Puts letters together.
#[derive(Default)]
pub(super) struct Letters {
    /// The first `held` bytes are the beginning of a letter.
    partial: [u8; 4],
    held: usize,
}

impl Letters {
    /// Takes bytes; passes on whole letters. Bytes that are no text become U+FFFD.
    pub(super) fn take(&mut self, bytes: &[u8], mut speak: impl FnMut(&str)) {
        let mut rest = bytes;
        while self.held > 0 {
            let Some((&byte, behind)) = rest.split_first() else { return };
            self.partial[self.held] = byte;
            match std::str::from_utf8(&self.partial[..=self.held]) {
                Ok(letter) => {
                    speak(letter);
                    (self.held, rest) = (0, behind);
                }
                Err(fault) if fault.error_len().is_none() => {
                    (self.held, rest) = (self.held + 1, behind);
                }
                // What began is none, and this byte is no part of it.
                Err(_) => self.flush(&mut speak),
            }
        }
        while !rest.is_empty() {
            let fault = match std::str::from_utf8(rest) {
                Ok(text) => return speak(text),
                Err(fault) => fault,
            };
            let (text, broken) = rest.split_at(fault.valid_up_to());
            if !text.is_empty() {
                speak(std::str::from_utf8(text).expect("checked to be text"));
            }
            let Some(length) = fault.error_len() else {
                self.partial[..broken.len()].copy_from_slice(broken);
                self.held = broken.len();
                return;
            };
            speak("\u{fffd}");
            rest = &broken[length..];
        }
    }

    /// No more bytes belong to the letter that began.
    pub(super) fn flush(&mut self, mut speak: impl FnMut(&str)) {
        if std::mem::take(&mut self.held) > 0 {
            speak("\u{fffd}");
        }
    }
}
