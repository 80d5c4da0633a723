//! Sizes in bytes and rates as people read them, in powers of 1024.

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
    fn sizes_are_formatted_exactly() {
        assert_eq!(show(4096), "4 KiB");
        assert_eq!(show(47008), "47008 B");
        assert_eq!(show(6 << 20), "6 MiB");
    }
}
