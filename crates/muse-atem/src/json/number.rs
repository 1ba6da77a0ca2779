//! JSON numbers by their spelling, and the spelling Python gives them.

/// A JSON number, as it was spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

impl Number {
    /// Parses a spelling.
    ///
    /// `None` when it is not a JSON number.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('-').unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(rest);
        if whole == 0 || (whole > 1 && rest.starts_with('0')) {
            return None;
        }
        let mut rest = &rest[whole..];
        if let Some(fraction) = rest.strip_prefix('.') {
            let count = digits(fraction);
            if count == 0 {
                return None;
            }
            rest = &fraction[count..];
        }
        if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let count = digits(exponent);
            if count == 0 {
                return None;
            }
            rest = &exponent[count..];
        }
        rest.is_empty().then(|| Self(text.to_owned()))
    }

    /// The spelling.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is spelled without fraction and exponent.
    pub fn is_integer(&self) -> bool {
        !self.0.contains(['.', 'e', 'E'])
    }

    /// The nearest double; infinite when too large.
    pub fn to_f64(&self) -> f64 {
        self.0.parse().expect("a JSON number is spelled like a Rust float")
    }

    /// The value, when it is an integer in range.
    pub fn to_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The value, when it is an integer in range.
    pub fn to_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The value, when it is whole, `3.0` and `1e2` included, and a double holds it exactly.
    pub fn to_whole(&self) -> Option<i64> {
        const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
        self.to_i64().or_else(|| {
            let value = self.to_f64();
            (value.fract() == 0.0 && value.abs() <= MAX_EXACT).then_some(value as i64)
        })
    }

    /// Spelled like Python's `str()` after `json.loads`: integers exact, floats by `repr`.
    pub fn to_python(&self) -> String {
        match (self.is_integer(), self.0.as_str()) {
            (true, "-0") => "0".to_owned(),
            (true, text) => text.to_owned(),
            (false, _) => python_float(self.to_f64()),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

/// Python's `repr` of a float: the shortest digits that parse to it, always with a point, with an
/// exponent of at least two digits below 1e-4 and from 1e16 on.
pub(crate) fn python_float(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Rust's `{:e}` has the same digits, as `d.dddde±x`.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a whole exponent");
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_like_python() {
        for (given, expect) in [
            ("2.0", "2.0"),
            ("2.50", "2.5"),
            ("0.1", "0.1"),
            ("1e-05", "1e-05"),
            ("0.0001", "0.0001"),
            ("1000000000000000.0", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("123456789012345680.0", "1.2345678901234568e+17"),
            ("-0.0", "-0.0"),
            ("-0", "0"),
            ("1e5", "100000.0"),
            ("1e-310", "1e-310"),
            ("1e999", "inf"),
            ("900719925474099312345", "900719925474099312345"),
        ] {
            assert_eq!(Number::parse(given).unwrap().to_python(), expect, "{given}");
        }
    }

    #[test]
    fn only_numbers_of_json_are_numbers() {
        for text in ["", "-", "007", "+1", ".5", "5.", "1e", "1e+", "NaN", "0x1", "1 ", "--1"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }
}
