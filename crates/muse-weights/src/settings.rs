//! Typed, bounded access to the settings of an untrusted file, JSON or GGUF.

use std::fmt::Display;

use crate::error::{Error, Result};

/// Upper bounds. They are far above any model of this family, and the product of two of them fits
/// in 64 bits.
pub(crate) mod max {
    pub(crate) const WIDTH: usize = 1 << 22;
    pub(crate) const HEADS: usize = 1 << 12;
    pub(crate) const HEAD_DIM: usize = 1 << 12;
    pub(crate) const LAYERS: usize = 1 << 10;
    pub(crate) const VOCAB: usize = 1 << 24;
    pub(crate) const POSITIONS: usize = 1 << 30;
    pub(crate) const SIDE: usize = 1 << 12;
    pub(crate) const BLOCK: usize = 1 << 10;
}

/// Special tokens that are found by their text, since the settings that name them may be absent.
pub(crate) mod special {
    pub(crate) const END_OF_TEXT: &str = "<|end_of_text|>";
    pub(crate) const END_OF_TURN: &str = "<|eot|>";
    pub(crate) const END_OF_MESSAGE: &str = "<|eom|>";
    pub(crate) const IMAGE: &str = "<|patch|>";
}

/// Settings by key. `None` is an absent setting.
pub(crate) trait Settings {
    /// The file and the full key, for messages.
    fn locate(&self, key: &str) -> (String, String);
    /// An integer that is not negative.
    fn integer(&self, key: &str) -> Result<Option<u64>>;
    /// A number.
    fn number(&self, key: &str) -> Result<Option<f64>>;
    /// A string.
    fn string(&self, key: &str) -> Result<Option<String>>;
    /// A bool.
    fn boolean(&self, key: &str) -> Result<Option<bool>>;

    /// The error for a setting that is absent, of the wrong type or out of range.
    fn wrong(&self, key: &str, found: impl Display, expected: impl Display) -> Error {
        let (file, key) = self.locate(key);
        Error::Key { file, key, found: found.to_string(), expected: expected.to_string() }
    }

    /// The error for a setting that is sound, but that this build does not run.
    fn variant(&self, key: &str, found: impl Display, expected: impl Display) -> Error {
        let (file, key) = self.locate(key);
        Error::Variant { file, key, found: found.to_string(), expected: expected.to_string() }
    }

    /// A required size, `1..=max`.
    fn size(&self, key: &str, max: usize) -> Result<usize> {
        let expected = format!("a number from 1 to {max}");
        self.optional_size(key, max)?.ok_or_else(|| self.wrong(key, "nothing", expected))
    }

    /// An optional size, `1..=max`.
    fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>> {
        match self.integer(key)? {
            Some(n) if n == 0 || n > max as u64 => {
                Err(self.wrong(key, n, format!("a number from 1 to {max}")))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// An optional token id.
    fn token(&self, key: &str) -> Result<Option<u32>> {
        match self.integer(key)? {
            Some(id) if id >= max::VOCAB as u64 => {
                Err(self.wrong(key, id, format!("a token id below {}", max::VOCAB)))
            }
            id => Ok(id.map(|id| id as u32)),
        }
    }

    /// A required number above 0 and at most `max`.
    fn positive(&self, key: &str, max: f32) -> Result<f32> {
        let expected = format!("a number above 0 and at most {max}");
        self.optional_positive(key, max)?.ok_or_else(|| self.wrong(key, "nothing", expected))
    }

    /// An optional number above 0 and at most `max`.
    fn optional_positive(&self, key: &str, max: f32) -> Result<Option<f32>> {
        self.optional_between(key, f32::MIN_POSITIVE, max)
    }

    /// An optional number, `min..=max`.
    fn optional_between(&self, key: &str, min: f32, max: f32) -> Result<Option<f32>> {
        let Some(wide) = self.number(key)? else { return Ok(None) };
        let value = wide as f32;
        if (min..=max).contains(&value) {
            return Ok(Some(value));
        }
        let expected = if min == f32::MIN_POSITIVE {
            format!("a number above 0 and at most {max}")
        } else {
            format!("a number from {min} to {max}")
        };
        Err(self.wrong(key, wide, expected))
    }

    /// The softcap of the logits; 0 and an absent setting mean none.
    fn softcap(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.optional_between(key, 0.0, 1e6)?.filter(|&softcap| softcap != 0.0))
    }

    /// Refuses a string that is not in `allowed`; an absent setting is accepted.
    fn only(&self, key: &str, allowed: &[&str]) -> Result<()> {
        match self.string(key)? {
            Some(value) if !allowed.contains(&value.as_str()) => {
                let found = format!("`{}`", crate::error::escaped(&value));
                Err(self.variant(key, found, allowed.join(" or ")))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses head counts and widths that the attention cannot run. Keys are the file's own.
pub(crate) fn check_heads(
    settings: &impl Settings,
    (heads_key, heads): (&str, usize),
    (kv_heads_key, kv_heads): (&str, usize),
    (head_dim_key, head_dim): (&str, usize),
) -> Result<()> {
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of the {heads} query heads (`{heads_key}`)");
        return Err(settings.wrong(kv_heads_key, kv_heads, expected));
    }
    if !head_dim.is_multiple_of(2) {
        return Err(settings.wrong(head_dim_key, head_dim, "an even number: rope rotates pairs"));
    }
    Ok(())
}

/// Refuses a vision tower whose head width is no multiple of 4: rope rotates pairs, half of them by
/// the row and half by the column.
pub(crate) fn check_vision_heads(
    settings: &impl Settings,
    (heads_key, heads): (&str, usize),
    (hidden_key, hidden): (&str, usize),
) -> Result<()> {
    if !hidden.is_multiple_of(4 * heads) {
        let expected = format!(
            "a number that splits {hidden} (`{hidden_key}`) into heads of a \
             multiple of 4"
        );
        return Err(settings.wrong(heads_key, heads, expected));
    }
    Ok(())
}

/// The size of a draft block: the anchor and at least one draft token.
pub(crate) fn draft_block_size(settings: &impl Settings, key: &str) -> Result<usize> {
    match settings.size(key, max::BLOCK)? {
        1 => Err(settings.wrong(key, 1, "at least 2: the anchor and a draft token")),
        size => Ok(size),
    }
}

/// The target layers whose output a drafter reads, in numbers from 0; `first` is the number the
/// file gives to layer 0.
pub(crate) fn check_target_layers(
    settings: &impl Settings,
    key: &str,
    layers: Option<Vec<u64>>,
    first: u64,
) -> Result<Vec<usize>> {
    let expected =
        format!("increasing layer numbers from {first} to {}", max::LAYERS as u64 - 1 + first);
    let layers = layers.unwrap_or_default();
    if layers.is_empty() {
        return Err(settings.wrong(key, "no layers", expected));
    }
    let increasing = layers.windows(2).all(|pair| pair[0] < pair[1]);
    let within = layers.iter().all(|layer| (first..max::LAYERS as u64 + first).contains(layer));
    if !increasing || !within {
        let shown: Vec<u64> = layers.iter().copied().take(16).collect();
        return Err(settings.wrong(key, format!("{shown:?}"), expected));
    }
    Ok(layers.into_iter().map(|layer| (layer - first) as usize).collect())
}
