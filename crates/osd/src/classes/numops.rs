//! Arithmetic on decimal numbers in an object's omap.
//!
//! Numbers are read as C's `strtod` reads them and written as `%.10g`, because both ends of old clients do.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;

/// Significant digits that are stored.
const PRECISION: i32 = 10;
const BADMSG: Errno = Errno(74);

pub(super) fn add(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    change(call, |value, by| value + by)
}

pub(super) fn mul(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    change(call, |value, by| value * by)
}

/// A key that is not there, or empty, counts as 0.
fn change(call: &mut MethodCall<'_>, f: fn(f64, f64) -> f64) -> Result<i32, MethodStop> {
    let (key, by): (Bytes, Bytes) = call.argument()?;
    let by = number(&by).ok_or(Errno::INVAL)?;
    let stored = call.omap_value(&key)?.unwrap_or_default();
    let value = number(&stored).ok_or(BADMSG)?;
    call.set_omap_value(&key, text(f(value, by)).as_bytes())?;
    Ok(0)
}

/// As `strtod` does when it must consume everything up to the end or the first NUL. Nothing at all is 0.
fn number(bytes: &[u8]) -> Option<f64> {
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    if bytes.is_empty() {
        return Some(0.0);
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    // A second sign is no number, though Rust's own parser would take it for the first.
    if magnitude.starts_with(['-', '+']) {
        return None;
    }
    let hex = magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X"));
    let value = match hex {
        Some(digits) => hexadecimal(digits)?,
        None => magnitude.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// `1.8p3`: hexadecimal digits and a binary exponent.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i32 = exponent.parse().ok()?;
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + digit.to_digit(16)? as f64;
    }
    let scale = exponent.saturating_sub(4 * i32::try_from(fraction.len()).ok()?);
    Some(value * 2f64.powi(scale))
}

/// `%.10g`.
fn text(value: f64) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.into();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.into();
    }
    let scientific = format!("{value:.*e}", (PRECISION - 1) as usize);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..PRECISION).contains(&exponent) {
        return without_trailing_zeros(&format!("{value:.*}", (PRECISION - 1 - exponent) as usize)).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    #[test]
    fn a_key_is_added_to_and_multiplied() {
        let mut o = Object::existing();
        let mut change = |method, by: &str| o.call("numops", method, &("k".to_string(), by.to_string()));
        change("add", "10").unwrap();
        change("add", "-0.5").unwrap();
        change("mul", "2").unwrap();
        assert_eq!(change("mul", "two"), Err(Errno::INVAL));
        assert_eq!(o.omap("k").unwrap(), "19");
        o.call("numops", "mul", &("k".to_string(), "0.5".to_string())).unwrap();
        assert_eq!(o.omap("k").unwrap(), "9.5");
        o.put_omap("k", b"junk");
        assert_eq!(o.call("numops", "add", &("k".to_string(), "1".to_string())), Err(BADMSG));
        assert_eq!(o.call_raw("numops", "add", b"xx").result, Errno::INVAL.result());
    }

    #[test]
    fn an_object_comes_into_being() {
        let mut o = Object::missing();
        o.call("numops", "add", &("k".to_string(), "1.5".to_string())).unwrap();
        assert_eq!(o.omap("k").unwrap(), "1.5");
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (bytes, value) in [
            (&b""[..], 0.0),
            (b"\0junk", 0.0),
            (b" \t12", 12.0),
            (b"+.5", 0.5),
            (b"-5.", -5.0),
            (b"1e3", 1000.0),
            (b"0x1.8p1", 3.0),
            (b"-0xA", -10.0),
            (b"inf", f64::INFINITY),
        ] {
            assert_eq!(number(bytes), Some(value), "{bytes:?}");
        }
        for bytes in [&b" "[..], b"1 ", b"1e", b".", b"--1", b"+-1", b"0x", b"x", b"\xff"] {
            assert_eq!(number(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (100000.0, "100000"),
            (1234567890.0, "1234567890"),
            (12345678901.0, "1.23456789e+10"),
            (0.1 + 0.2, "0.3"),
            (1.0 / 3.0, "0.3333333333"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (9999999999.9, "1e+10"),
            (1e100, "1e+100"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(value), expected);
        }
    }
}
