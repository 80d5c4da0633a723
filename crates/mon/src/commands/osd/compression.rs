//! A pool's compression options, as `ceph osd pool set` takes them.

use crate::commands::Answer;
use command::options::value;

/// Checks the value of a compression option; other options pass. "unset" goes back to the OSDs' own option.
pub(super) fn check(option: &str, value: &str) -> Result<(), Answer> {
    match option {
        _ if value == "unset" => Ok(()),
        "compression_mode" => match value {
            "none" | "passive" | "aggressive" | "force" => Ok(()),
            _ => Err(Answer::invalid(format!("unrecognized compression mode '{value}'"))),
        },
        "compression_algorithm" => match value {
            "none" | "lz4" | "zstd" | "zlib" | "snappy" => Ok(()),
            _ => Err(Answer::invalid(format!("unrecognized compression_algorithm '{value}'"))),
        },
        "compression_required_ratio" => match value.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
            Ok(_) => {
                Err(Answer::invalid(format!("compression_required_ratio is out of range (0-1): '{value}'")))
            }
            Err(_) => Err(Answer::invalid(format!(
                "error parsing float value '{value}': strict_strtod: expected double, got: '{value}'"
            ))),
        },
        option if is_size(option) && bytes_of(option, value).is_none() => Err(Answer::invalid(format!(
            "error parsing int value '{value}': strict_iecstrtoll: value '{value}' is no size"
        ))),
        _ => Ok(()),
    }
}

fn is_size(option: &str) -> bool {
    matches!(option, "compression_max_blob_size" | "compression_min_blob_size")
}

/// The value of an option that is a size: 65536, 64K or 64Ki.
pub(super) fn bytes_of(option: &str, value: &str) -> Option<i64> {
    if !is_size(option) {
        return None;
    }
    i64::try_from(value::bytes(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_as_they_are_set() {
        for (option, value, is_one) in [
            ("compression_mode", "force", true),
            ("compression_mode", "Force", false),
            ("compression_mode", "unset", true),
            ("compression_algorithm", "zstd", true),
            ("compression_algorithm", "none", true),
            ("compression_algorithm", "snappy", true),
            ("compression_algorithm", "zlib", true),
            ("compression_algorithm", "brotli", false),
            ("compression_algorithm", "Snappy", false),
            ("compression_required_ratio", "0.7", true),
            ("compression_required_ratio", "1.01", false),
            ("compression_required_ratio", "half", false),
            ("compression_required_ratio", "NaN", false),
            ("compression_min_blob_size", "8192", true),
            ("compression_min_blob_size", "8K", true),
            ("compression_min_blob_size", "8X", false),
            ("compression_max_blob_size", "-1", false),
            ("csum_type", "anything", true),
        ] {
            assert_eq!(check(option, value).is_ok(), is_one, "{option} {value}");
        }
        assert_eq!(bytes_of("compression_max_blob_size", "64Ki"), Some(65536));
    }
}
