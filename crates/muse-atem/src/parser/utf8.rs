//! Bytes to text: the bytes of a character may be spread over tokens.

/// Assembles characters.
#[derive(Default)]
pub(super) struct Utf8Decoder {
    /// The first `held` bytes are the beginning of a character.
    partial: [u8; 4],
    held: usize,
}

impl Utf8Decoder {
    /// Takes bytes; emits complete characters. Invalid bytes become U+FFFD. Returns whether the
    /// bytes held before turned out invalid.
    pub(super) fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(&str)) -> bool {
        let mut rest = bytes;
        let mut invalid = false;
        while self.held > 0 {
            let Some((&byte, after)) = rest.split_first() else { return invalid };
            self.partial[self.held] = byte;
            match std::str::from_utf8(&self.partial[..=self.held]) {
                Ok(character) => {
                    emit(character);
                    (self.held, rest) = (0, after);
                }
                Err(error) if error.error_len().is_none() => {
                    (self.held, rest) = (self.held + 1, after);
                }
                // The held bytes are invalid, and this byte is not part of them.
                Err(_) => {
                    self.flush(&mut emit);
                    invalid = true;
                }
            }
        }
        while !rest.is_empty() {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => {
                    emit(text);
                    return invalid;
                }
                Err(error) => error,
            };
            let (text, broken) = rest.split_at(error.valid_up_to());
            if !text.is_empty() {
                emit(std::str::from_utf8(text).expect("checked to be text"));
            }
            let Some(length) = error.error_len() else {
                self.partial[..broken.len()].copy_from_slice(broken);
                self.held = broken.len();
                return invalid;
            };
            emit("\u{fffd}");
            rest = &broken[length..];
        }
        invalid
    }

    /// Bytes of an incomplete character.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The held beginning of a character will not be completed.
    pub(super) fn flush(&mut self, mut emit: impl FnMut(&str)) {
        if std::mem::take(&mut self.held) > 0 {
            emit("\u{fffd}");
        }
    }
}
