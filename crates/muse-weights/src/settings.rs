//! Settings of an untrusted file, JSON or GGUF, read with their bounds.

use std::fmt::Display;

use crate::error::{Error, Result};

/// Bounds that no model of this family comes near, and that keep products of two in 64 bits.
pub(crate) mod most {
    pub(crate) const WIDTH: usize = 1 << 22;
    pub(crate) const HEADS: usize = 1 << 12;
    pub(crate) const HEAD_DIM: usize = 1 << 12;
    pub(crate) const LAYERS: usize = 1 << 10;
    pub(crate) const VOCAB: usize = 1 << 24;
    pub(crate) const POSITIONS: usize = 1 << 30;
    pub(crate) const SIDE: usize = 1 << 12;
    pub(crate) const BLOCK: usize = 1 << 10;
}

/// Named settings. `None` is a setting that is not there.
pub(crate) trait Settings {
    /// The file and the key as the file spells it, for messages.
    fn locate(&self, key: &str) -> (String, String);
    /// A whole number that is not negative.
    fn integer(&self, key: &str) -> Result<Option<u64>>;
    /// Any number.
    fn number(&self, key: &str) -> Result<Option<f64>>;
    /// A text.
    fn text(&self, key: &str) -> Result<Option<String>>;
    /// A yes or no.
    fn flag(&self, key: &str) -> Result<Option<bool>>;

    /// The setting is wrong.
    fn wrong(&self, key: &str, found: impl Display, expected: impl Display) -> Error {
        let (file, key) = self.locate(key);
        Error::Key { file, key, found: found.to_string(), expected: expected.to_string() }
    }

    /// The setting is sound, but not what this build runs.
    fn variant(&self, key: &str, found: impl Display, expected: impl Display) -> Error {
        let (file, key) = self.locate(key);
        Error::Variant { file, key, found: found.to_string(), expected: expected.to_string() }
    }

    /// A size that must be there: `1 ..= most`.
    fn size(&self, key: &str, most: usize) -> Result<usize> {
        let expected = format!("a number from 1 to {most}");
        self.maybe_size(key, most)?.ok_or_else(|| self.wrong(key, "nothing", expected))
    }

    /// A size that may be there: `1 ..= most`.
    fn maybe_size(&self, key: &str, most: usize) -> Result<Option<usize>> {
        match self.integer(key)? {
            Some(n) if n == 0 || n > most as u64 => {
                Err(self.wrong(key, n, format!("a number from 1 to {most}")))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// A token id of a vocabulary, if there is one.
    fn token(&self, key: &str) -> Result<Option<u32>> {
        match self.integer(key)? {
            Some(id) if id >= most::VOCAB as u64 => {
                Err(self.wrong(key, id, format!("a token id below {}", most::VOCAB)))
            }
            id => Ok(id.map(|id| id as u32)),
        }
    }

    /// A number that must be there, above 0 and at most `most`.
    fn positive(&self, key: &str, most: f32) -> Result<f32> {
        let expected = format!("a number above 0 and at most {most}");
        self.maybe_positive(key, most)?.ok_or_else(|| self.wrong(key, "nothing", expected))
    }

    /// A number that may be there, above 0 and at most `most`.
    fn maybe_positive(&self, key: &str, most: f32) -> Result<Option<f32>> {
        self.maybe_between(key, f32::MIN_POSITIVE, most)
    }

    /// A number that may be there, `least ..= most`.
    fn maybe_between(&self, key: &str, least: f32, most: f32) -> Result<Option<f32>> {
        let Some(wide) = self.number(key)? else { return Ok(None) };
        let value = wide as f32;
        if (least..=most).contains(&value) {
            return Ok(Some(value));
        }
        let expected = if least == f32::MIN_POSITIVE {
            format!("a number above 0 and at most {most}")
        } else {
            format!("a number from {least} to {most}")
        };
        Err(self.wrong(key, wide, expected))
    }

    /// The soft cap of the scores: 0 and nothing mean none.
    fn cap(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.maybe_between(key, 0.0, 1e6)?.filter(|&cap| cap != 0.0))
    }

    /// Refuses another text than `allowed`; nothing is fine.
    fn only(&self, key: &str, allowed: &[&str]) -> Result<()> {
        match self.text(key)? {
            Some(text) if !allowed.contains(&text.as_str()) => {
                let found = format!("`{}`", crate::error::shown(&text));
                Err(self.variant(key, found, allowed.join(" or ")))
            }
            _ => Ok(()),
        }
    }
}

/// Geometry every attention of the family keeps to, under the file's own key names.
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
        return Err(settings.wrong(head_dim_key, head_dim, "an even number: rope turns pairs"));
    }
    Ok(())
}

/// Geometry of the vision tower's heads: rope turns pairs, half of them down and half across.
pub(crate) fn check_tower(
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

/// Rows of a drafter's block: the anchor and at least one guess.
pub(crate) fn block(settings: &impl Settings, key: &str) -> Result<usize> {
    match settings.size(key, most::BLOCK)? {
        1 => Err(settings.wrong(key, 1, "at least 2: an anchor and a guess")),
        rows => Ok(rows),
    }
}

/// The target's layers a drafter reads, numbered from 0 after taking `first` off.
pub(crate) fn check_target_layers(
    settings: &impl Settings,
    key: &str,
    layers: Option<Vec<u64>>,
    first: u64,
) -> Result<Vec<usize>> {
    let expected =
        format!("increasing layer numbers from {first} to {}", most::LAYERS as u64 - 1 + first);
    let layers = layers.unwrap_or_default();
    if layers.is_empty() {
        return Err(settings.wrong(key, "no layers", expected));
    }
    let increasing = layers.windows(2).all(|pair| pair[0] < pair[1]);
    let within = layers.iter().all(|layer| (first..most::LAYERS as u64 + first).contains(layer));
    if !increasing || !within {
        let shown: Vec<u64> = layers.iter().copied().take(16).collect();
        return Err(settings.wrong(key, format!("{shown:?}"), expected));
    }
    Ok(layers.into_iter().map(|layer| (layer - first) as usize).collect())
}
