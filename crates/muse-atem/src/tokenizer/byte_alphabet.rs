//! The characters that stand for bytes in byte-level BPE: printable Latin-1 characters for
//! themselves, the other 68 bytes as the characters from U+0100 on.

/// The character of a byte.
pub(super) fn to_char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0..=b' ' => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte) - 0x7f,
        0xad => 0x143,
    };
    char::from_u32(code).expect("below the surrogates")
}

/// The byte of a character.
pub(super) fn to_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_and_bytes_are_one_to_one() {
        for value in 0..=255 {
            assert_eq!(to_byte(to_char(value)), Some(value));
        }
        assert_eq!(to_char(b' '), 'Ġ');
        assert_eq!(to_char(b'\n'), 'Ċ');
        assert_eq!(to_byte('日'), None);
    }
}
