//! Sizes in bytes as people write them, `4096`, `4k`, `4KiB`, `4M`: always in powers of 1024, as in fio and Ceph.

/// `None` if the text is no size.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// The shortest exact form: `4 KiB`, `47008 B`.
pub fn show(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes} B"), |(shift, name)| format!("{} {name}", bytes >> shift))
}

/// A rate, rounded for reading: `12.3 MiB/s`.
pub fn show_rate(bytes_per_s: f64) -> String {
    let (divisor, unit) = match bytes_per_s {
        v if v >= (1u64 << 30) as f64 => (1u64 << 30, "GiB/s"),
        v if v >= (1u64 << 20) as f64 => (1 << 20, "MiB/s"),
        _ => (1 << 10, "KiB/s"),
    };
    format!("{:.1} {unit}", bytes_per_s / divisor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_formatted() {
        for (text, bytes) in
            [("4096", 4096), ("4k", 4096), ("4KiB", 4096), ("4 MB", 4 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "4x", "99999999999T"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(show(4096), "4 KiB");
        assert_eq!(show(47008), "47008 B");
        assert_eq!(show(6 << 20), "6 MiB");
    }
}
