//! Arithmetic on exact fractions: numbers, `+ - * / % ^` and brackets, and nothing else. What a
//! model writes is parsed, never run.

use std::iter::Peekable;
use std::str::Chars;

/// How deep brackets, signs and powers may be nested.
const MAX_DEPTH: usize = 64;
const MAX_BYTES: usize = 1000;
/// Digits behind the point of a result that does not end.
const PLACES: u32 = 12;

/// The value of an expression.
pub(super) fn evaluate(expression: &str) -> Result<String, String> {
    if expression.len() > MAX_BYTES {
        let found = expression.len();
        return Err(format!("the expression has {found} bytes, at most {MAX_BYTES} are read"));
    }
    let mut parser = Parser { rest: expression.chars().peekable(), depth: 0 };
    let value = parser.sum()?;
    match parser.next() {
        None => Ok(value.text()),
        Some(found) => Err(format!("{found:?} is not expected after a number")),
    }
}

/// A fraction in lowest terms; the denominator is above 0.
#[derive(Clone, Copy)]
struct Ratio {
    over: i128,
    under: i128,
}

type Value = Result<Ratio, String>;

impl Ratio {
    fn new(over: Option<i128>, under: Option<i128>) -> Value {
        let (Some(over), Some(under)) = (over, under) else { return Err(too_large()) };
        if under == 0 {
            return Err("division by zero".to_owned());
        }
        let (mut a, mut b) = (over.unsigned_abs(), under.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let shared = i128::try_from(a).map_err(|_| too_large())? * under.signum();
        match over.checked_div(shared).zip(under.checked_div(shared)) {
            Some((over, under)) => Ok(Self { over, under }),
            None => Err(too_large()),
        }
    }

    fn add(self, other: Self) -> Value {
        let left = self.over.checked_mul(other.under);
        let right = other.over.checked_mul(self.under);
        let over = left.zip(right).and_then(|(left, right)| left.checked_add(right));
        Self::new(over, self.under.checked_mul(other.under))
    }

    fn multiply(self, other: Self) -> Value {
        Self::new(self.over.checked_mul(other.over), self.under.checked_mul(other.under))
    }

    fn divide(self, other: Self) -> Value {
        Self::new(self.over.checked_mul(other.under), self.under.checked_mul(other.over))
    }

    fn negate(self) -> Value {
        Self::new(self.over.checked_neg(), Some(self.under))
    }

    /// What is left of whole parts, with the sign of `other`.
    fn remainder(self, other: Self) -> Value {
        let parts = self.divide(other)?;
        let whole = Self { over: parts.over.div_euclid(parts.under), under: 1 };
        self.add(other.multiply(whole)?.negate()?)
    }

    fn power(self, exponent: Self) -> Value {
        if exponent.under != 1 {
            return Err("exponents must be whole numbers".to_owned());
        }
        let count = u32::try_from(exponent.over.unsigned_abs()).map_err(|_| too_large())?;
        let raised = Self::new(self.over.checked_pow(count), self.under.checked_pow(count))?;
        if exponent.over < 0 { Self { over: 1, under: 1 }.divide(raised) } else { Ok(raised) }
    }

    /// As a decimal, rounded where it does not end.
    fn text(self) -> String {
        let (over, mut under) = (self.over.unsigned_abs(), self.under.unsigned_abs());
        let (mut whole, mut rest) = (over / under, over % under);
        let mut digits = String::new();
        for _ in 0..PLACES {
            if rest > u128::MAX / 10 {
                // What is lost lies behind 30 digits and more.
                (rest, under) = (rest >> 4, under >> 4);
            }
            digits.push(char::from(b'0' + (rest * 10 / under) as u8));
            rest = rest * 10 % under;
        }
        if rest >= under.div_ceil(2) {
            whole += carry(&mut digits);
        }
        let digits = digits.trim_end_matches('0');
        let sign = if self.over < 0 && (whole > 0 || !digits.is_empty()) { "-" } else { "" };
        let point = if digits.is_empty() { "" } else { "." };
        format!("{sign}{whole}{point}{digits}")
    }
}

/// Adds one to the last of some decimal digits; returns what does not fit before them.
fn carry(digits: &mut String) -> u128 {
    let kept = digits.trim_end_matches('9').len();
    let nines = digits.len() - kept;
    digits.truncate(kept);
    let Some(last) = digits.pop() else {
        *digits = "0".repeat(nines);
        return 1;
    };
    digits.push(char::from(last as u8 + 1));
    digits.push_str(&"0".repeat(nines));
    0
}

fn too_large() -> String {
    "the numbers become too large, use smaller ones".to_owned()
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    depth: usize,
}

impl Parser<'_> {
    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        self.peek()?;
        self.rest.next()
    }

    fn takes(&mut self, accepted: &[char]) -> Option<char> {
        let found = self.peek()?;
        if accepted.contains(&found) { self.rest.next() } else { None }
    }

    fn sum(&mut self) -> Value {
        let mut value = self.product()?;
        while let Some(sign) = self.takes(&['+', '-', '−']) {
            let next = self.product()?;
            value = value.add(if sign == '+' { next } else { next.negate()? })?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Value {
        let mut value = self.signed()?;
        while let Some(sign) = self.takes(&['*', '×', '·', '/', '÷', '%']) {
            let next = self.signed()?;
            value = match sign {
                '/' | '÷' => value.divide(next)?,
                '%' => value.remainder(next)?,
                _ => value.multiply(next)?,
            };
        }
        Ok(value)
    }

    /// A power with its sign; powers bind tighter than signs: `-2 ^ 2` is -4.
    fn signed(&mut self) -> Value {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let value = match self.takes(&['+', '-', '−']) {
            Some('+') => self.signed(),
            Some(_) => self.signed()?.negate(),
            None => self.power(),
        };
        self.depth -= 1;
        value
    }

    fn power(&mut self) -> Value {
        let base = self.number()?;
        if self.takes(&['^']).is_some() {
            // From the right: 2 ^ 3 ^ 2 is 2 ^ 9.
            return base.power(self.signed()?);
        }
        Ok(base)
    }

    fn number(&mut self) -> Value {
        if self.takes(&['(']).is_some() {
            let value = self.sum()?;
            return match self.next() {
                Some(')') => Ok(value),
                found => Err(format!("a bracket is not closed, found {}", shown(found))),
            };
        }
        let (mut digits, mut places) = (String::new(), None);
        self.peek();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_digit() || *c == '.') {
            match (c, places) {
                ('.', None) => places = Some(0),
                ('.', Some(_)) => return Err("a number has two points".to_owned()),
                (digit, _) => {
                    digits.push(digit);
                    places = places.map(|places| places + 1);
                }
            }
        }
        if digits.is_empty() {
            return Err(format!("expected a number, found {}", shown(self.peek())));
        }
        Ratio::new(digits.parse().ok(), 10_i128.checked_pow(places.unwrap_or(0)))
    }
}

fn shown(found: Option<char>) -> String {
    found.map_or_else(|| "the end".to_owned(), |found| format!("{found:?}"))
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, evaluate};

    #[track_caller]
    fn is(expression: &str, value: &str) {
        assert_eq!(evaluate(expression).as_deref(), Ok(value), "{expression}");
    }

    #[track_caller]
    fn fails(expression: &str, message: &str) {
        let wrong = evaluate(expression).expect_err(expression);
        assert!(wrong.contains(message), "{expression}: {wrong}");
    }

    #[test]
    fn operators_bind_as_in_school() {
        is("2 + 3 * 4", "14");
        is("(2 + 3) * 4", "20");
        is("10 - 4 - 3", "3");
        is("100 / 5 / 2", "10");
        is("-2 ^ 2", "-4");
        is("(-2) ^ 2", "4");
        is("2 ^ 3 ^ 2", "512");
        is("2 ^ -2", "0.25");
        is("2 * -3", "-6");
        is("7 % 3 + 8 × 2 ÷ 4", "5");
        is("-7 % 3", "2");
    }

    #[test]
    fn decimals_are_exact_and_endless_ones_rounded() {
        is("0.1 + 0.2", "0.3");
        is("1 / 3", "0.333333333333");
        is("2 / 3", "0.666666666667");
        is("-1 / 8", "-0.125");
        is(".5 * 4.", "2");
        is("1 - 1 / 10 ^ 13", "1");
        is("1 / 10 ^ 20", "0");
        is("-1 / 10 ^ 20", "0");
        is("2 ^ 125 / (2 ^ 126 - 1)", "0.5");
        is("0 - 2999999 / 1000000", "-2.999999");
    }

    #[test]
    fn zero_divides_nothing() {
        fails("1 / 0", "zero");
        fails("1 % (2 - 2)", "zero");
        fails("0 ^ -1", "zero");
        is("0 ^ 0", "1");
    }

    #[test]
    fn huge_numbers_are_exact_or_refused() {
        is("2 ^ 64 * 3 + 1", "55340232221128654849");
        is("12345678901234567890 * 98765432109876543", "1219326311370217949644871231852004270");
        fails("9 ^ 99", "too large");
        fails("2 ^ 9999999999", "too large");
        fails("2 ^ 0.5", "whole");
        fails(&"9".repeat(60), "too large");
        fails(&format!("0.{}1", "0".repeat(60)), "too large");
        fails(&"1+".repeat(600), "bytes");
        fails("1 / (-2 ^ 126 - 2 ^ 126)", "too large");
        for edge in ["170141183460469231731687303715884105727", "-2^126-2^126", "1/(2^126)"] {
            assert!(evaluate(edge).is_ok(), "{edge}");
            let _ = evaluate(&format!("-({edge}) - ({edge}) * ({edge}) % ({edge})"));
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| format!("{}1{}", "(".repeat(levels), ")".repeat(levels));
        is(&nested(MAX_DEPTH - 1), "1");
        fails(&nested(MAX_DEPTH), "nested");
        fails(&format!("{}1", "-".repeat(900)), "nested");
        fails(&format!("1{}", "^1".repeat(400)), "nested");
    }

    #[test]
    fn invalid_expressions_are_refused_by_kind() {
        fails("", "the end");
        fails("2 +", "the end");
        fails("2 3", "'3'");
        fails("(1", "not closed");
        fails("1)", "')'");
        fails("1.2.3", "two points");
        fails(".", "a number");
        fails("__import__('os')", "'_'");
        fails("1e5", "'e'");
        fails("١ + ١", "a number");
    }
}
