//! Bytes in words, as stock prints them (`byte_u_t` of include/types.h).

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/// Longest text with its fraction.
const LEN_MAX: usize = 7;

/// `56 GiB`, `1.5 KiB`: with up to two places behind the point, unless the number is whole.
pub fn iec_bytes(bytes: u64) -> String {
    let unit = (0..UNITS.len()).rev().find(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    let (name, size) = (UNITS[unit], 1u64 << (10 * unit));
    if bytes.is_multiple_of(size) {
        return format!("{} {name}", bytes / size);
    }
    let with = |places: usize| format!("{:.places$} {name}", bytes as f64 / size as f64);
    (1..=2).rev().map(with).find(|text| text.len() <= LEN_MAX).unwrap_or_else(|| with(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short_and_exact_where_they_are_whole() {
        let gib = 1u64 << 30;
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (128 << 10, "128 KiB"),
            (56 * gib, "56 GiB"),
            (gib + gib / 2, "1.5 GiB"),
            (37 * gib + 1, "37 GiB"),
            (600 * gib + 1, "600 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(iec_bytes(bytes), text);
        }
    }
}
