//! Figures as text: bytes, counts, rates and spans of time.

/// `1.2 TiB`.
pub fn bytes(n: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    scaled(n, 1024.0, &UNITS, " ")
}

/// `12 k`.
pub fn count(n: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    scaled(n, 1000.0, &UNITS, "")
}

fn scaled(n: f64, base: f64, units: &[&str], gap: &str) -> String {
    let (mut n, mut unit) = (n.max(0.0), 0);
    // Rounding must not show a full 1024 of the smaller unit.
    while n >= base - 0.5 && unit + 1 < units.len() {
        (n, unit) = (n / base, unit + 1);
    }
    let digits = if unit == 0 || n >= 9.95 { 0 } else { 1 };
    format!("{n:.digits$}{gap}{}", units[unit])
}

/// `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        7200..=172_799 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// `-` for an unknown figure.
pub fn known<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_two_digits_or_more() {
        let shown = [0.0, 999.0, 1023.7, 1536.0, 25.0 * 1024.0, 1.5e15].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.0 KiB", "1.5 KiB", "25 KiB", "1.3 PiB"]);
        assert_eq!([12.0, 1234.0, 45e6].map(count), ["12", "1.2k", "45M"]);
        assert_eq!([45.0, 125.0, 7800.0, 200_000.0].map(span), ["45 s", "2 min", "2 h 10 min", "2 d 7 h"]);
    }
}
