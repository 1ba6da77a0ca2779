//! `strftime_now` of chat templates.

use jiff::civil::{DateTime, Weekday};
use jiff::fmt::strtime;
use minijinja::{Error, State};

use super::python::invalid;

/// The variable that holds the date.
pub(super) const DATE: &str = "current_date";

/// Formats midnight of the conversation's date by the codes of `strftime`, so that one
/// conversation has one date; without a date in it, the time that it is now, in UTC.
pub(super) fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let date = state.lookup(DATE);
    let now = match date.as_ref().and_then(|date| date.as_str()) {
        Some(date) => match date.parse::<jiff::civil::Date>() {
            Ok(date) => date.at(0, 0, 0, 0),
            Err(_) => {
                return Err(invalid(format!("{DATE} is {date:?}, expected a date as YYYY-MM-DD")));
            }
        },
        None => jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC).datetime(),
    };
    strftime(now, format)
}

/// `datetime.strftime` in the C locale.
fn strftime(now: DateTime, format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let flag = rest.chars().next().filter(|flag| matches!(flag, '-' | '_' | '0' | '^' | '#'));
        let code = rest[flag.map_or(0, char::len_utf8)..].chars().next();
        let Some(code) = code else {
            return Err(invalid(format!("strftime_now({format:?}) ends within a code")));
        };
        rest = &rest[flag.map_or(0, char::len_utf8) + code.len_utf8()..];
        out.push_str(
            &field(now, flag, code).ok_or_else(|| {
                invalid(format!("strftime_now has no code %{code}, in {format:?}"))
            })?,
        );
    }
    out.push_str(rest);
    Ok(out)
}

fn field(now: DateTime, flag: Option<char>, code: char) -> Option<String> {
    let again = |format: &str| strftime(now, format).ok();
    let of_jiff = || {
        let flag = flag.map(String::from).unwrap_or_default();
        strtime::format(format!("%{flag}{code}"), now).ok()
    };
    match code {
        '%' => Some("%".to_owned()),
        'n' => Some("\n".to_owned()),
        't' => Some("\t".to_owned()),
        'c' => again("%a %b %e %H:%M:%S %Y"),
        'x' | 'D' => again("%m/%d/%y"),
        'X' | 'T' => again("%H:%M:%S"),
        'F' => again("%Y-%m-%d"),
        'R' => again("%H:%M"),
        'r' => again("%I:%M:%S %p"),
        'h' => again("%b"),
        'f' => Some(format!("{:06}", now.subsec_nanosecond() / 1000)),
        // A time without zone has neither.
        'z' | 'Z' => Some(String::new()),
        's' => Some(
            now.to_zoned_datetime(jiff::tz::TimeZone::UTC)
                .ok()?
                .timestamp()
                .as_second()
                .to_string(),
        ),
        'u' => Some(now.weekday().to_monday_one_offset().to_string()),
        'w' => Some(now.weekday().to_sunday_zero_offset().to_string()),
        'U' => Some(format!("{:02}", week(now, Weekday::Sunday))),
        'W' => Some(format!("{:02}", week(now, Weekday::Monday))),
        'P' => again("%p").map(|text| text.to_lowercase()),
        'Y' | 'm' | 'd' | 'e' | 'y' | 'C' | 'H' | 'I' | 'k' | 'l' | 'M' | 'S' | 'p' | 'a' | 'A'
        | 'b' | 'B' | 'j' | 'G' | 'g' | 'V' => of_jiff(),
        _ => None,
    }
}

/// The week of the year, from 0; weeks begin on `first`.
fn week(now: DateTime, first: Weekday) -> i16 {
    let days_in = match first {
        Weekday::Sunday => now.weekday().to_sunday_zero_offset(),
        _ => now.weekday().to_monday_zero_offset(),
    };
    (now.day_of_year() + 6 - i16::from(days_in)) / 7
}
