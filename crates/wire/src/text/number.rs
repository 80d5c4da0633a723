//! Numbers shortened to about five characters.

use std::fmt;

/// A number of bytes with a binary unit: `1.5 KiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

/// A plain number with a decimal unit: `1.5k`.
#[derive(Clone, Copy, Debug)]
pub struct Si(pub u64);

const BINARY: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shorten(self.0, 1024, &BINARY))
    }
}

impl fmt::Display for Si {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shorten(self.0, 1000, &DECIMAL))
    }
}

/// Whole multiples have no fraction; others as many digits, at most two, as keep number and unit within seven.
fn shorten(value: u64, base: u64, units: &[&str; 7]) -> String {
    let (mut whole, mut unit, mut scale) = (value, 0, 1u64);
    while whole >= base && unit + 1 < units.len() {
        whole /= base;
        scale *= base;
        unit += 1;
    }
    if value.is_multiple_of(scale) {
        return format!("{whole}{}", units[unit]);
    }
    let exact = value as f64 / scale as f64;
    let fits = (0..=2).rev().map(|digits| format!("{exact:.digits$}{}", units[unit])).find(|s| s.len() <= 7);
    fits.unwrap_or_else(|| format!("{exact:.0}{}", units[unit]))
}

/// A CRUSH weight: five digits, `0` for nothing, `-` for one that makes no sense (a bucket's reweight).
#[derive(Clone, Copy, Debug)]
pub struct Weight(pub f64);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            w if w < -0.01 => f.pad("-"),
            w if w < 0.000001 => f.pad("0"),
            w => f.pad(&format!("{w:.5}")),
        }
    }
}

/// A ratio or percentage of two digits, `0` below a thousandth.
#[derive(Clone, Copy, Debug)]
pub struct LowPrecision(pub f64);

impl fmt::Display for LowPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v < -0.01 => f.pad("-"),
            v if v < 0.001 => f.pad("0"),
            v => f.pad(&format!("{v:.2}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_ceph_prints_them() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10239, "10 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) + 1, "1.0 MiB"),
            (123 << 20 | 1 << 19, "124 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (n, want) in cases {
            assert_eq!(Bytes(n).to_string(), want, "{n}");
        }
        assert_eq!(Si(1234).to_string(), "1.23k");
        assert_eq!(Si(999).to_string(), "999");
    }

    #[test]
    fn weights_hide_what_is_nothing() {
        assert_eq!(Weight(1.0).to_string(), "1.00000");
        assert_eq!(Weight(0.0).to_string(), "0");
        assert_eq!(Weight(-1.0).to_string(), "-");
    }
}
