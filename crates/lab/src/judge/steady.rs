//! Had the load settled? The criterion is the one of SNIA's performance test specification, on seconds instead of
//! rounds: in the window, no value is further than 10 % from the mean, and the trend over the window is within 10 %.

use super::stats::{mean, slope};
use serde::{Deserialize, Serialize};

/// The shortest series of which anything can be said.
pub const SECONDS_MIN: usize = 5;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Steady {
    /// From this second on, counted in the series.
    From {
        second: usize,
    },
    Never {
        worst_excursion: f64,
        trend: f64,
    },
    TooShort,
}

/// The earliest second from which the rest of the series is steady; at least half of it must be.
pub fn judge(rates: &[f64]) -> Steady {
    if rates.len() < SECONDS_MIN {
        return Steady::TooShort;
    }
    let latest = (rates.len() - SECONDS_MIN).min(rates.len() / 2);
    for second in 0..=latest {
        let (excursion, trend) = spread(&rates[second..]);
        if excursion <= 0.1 && trend <= 0.1 {
            return Steady::From { second };
        }
    }
    let (worst_excursion, trend) = spread(&rates[latest..]);
    Steady::Never { worst_excursion, trend }
}

/// The furthest value and the trend over the whole, as shares of the mean.
fn spread(rates: &[f64]) -> (f64, f64) {
    let mean = mean(rates);
    if mean <= 0.0 {
        return (f64::INFINITY, f64::INFINITY);
    }
    let furthest = rates.iter().map(|r| (r - mean).abs()).fold(0.0, f64::max);
    (furthest / mean, slope(rates).abs() * (rates.len() - 1) as f64 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_rising_and_noisy_loads_are_classified() {
        assert_eq!(judge(&[100.0, 101.0, 99.0]), Steady::TooShort);
        assert_eq!(judge(&[100.0, 102.0, 99.0, 101.0, 100.0, 98.0]), Steady::From { second: 0 });
        let warming = [20.0, 60.0, 95.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0, 99.0];
        assert_eq!(judge(&warming), Steady::From { second: 2 });
        let rising: Vec<f64> = (0..20).map(|n| 100.0 + 4.0 * f64::from(n)).collect();
        assert!(matches!(judge(&rising), Steady::Never { trend, .. } if trend > 0.1));
        assert!(matches!(judge(&[100.0, 10.0, 100.0, 10.0, 100.0, 10.0]), Steady::Never { .. }));
        assert!(matches!(judge(&[0.0; 8]), Steady::Never { .. }));
    }
}
