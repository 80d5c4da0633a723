//! Quantiles and means with their uncertainty: the few formulas that all judgements share.

use statrs::distribution::{ChiSquared, ContinuousCDF, StudentsT};

pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Of the sample, with n - 1. Zero where there are fewer than two.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// Standard deviation as a share of the mean.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean == 0.0 { 0.0 } else { variance(values).sqrt() / mean }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The number of standard errors that a two-sided interval of this confidence reaches.
pub fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees.max(1.0)).expect("degrees of freedom are positive");
    student.inverse_cdf(0.5 + confidence / 2.0)
}

/// The probability of a value at least this far from zero, either way.
pub fn t_p_value(t: f64, degrees: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees.max(1.0)).expect("degrees of freedom are positive");
    2.0 * (1.0 - student.cdf(t.abs()))
}

/// Below which this share of the sums of so many squares of normal deviates lies.
pub fn chi_square_quantile(share: f64, degrees: f64) -> f64 {
    ChiSquared::new(degrees.max(1.0)).expect("degrees of freedom are positive").inverse_cdf(share)
}

/// Half the width of the mean's 95 % confidence interval; `None` for fewer than two values.
pub fn half_width(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    (values.len() > 1).then(|| t_quantile(0.95, n - 1.0) * (variance(values) / n).sqrt())
}

/// Of counted bins in ascending order: the bound of the bin in which the quantile lies.
pub fn quantile_of_bins(bins: &[(f64, u64)], quantile: f64) -> Option<f64> {
    let total: u64 = bins.iter().map(|(_, count)| count).sum();
    let wanted = ((total as f64 * quantile).ceil() as u64).max(1);
    let mut seen = 0;
    bins.iter().find_map(|(bound, count)| {
        seen += count;
        (seen >= wanted).then_some(*bound)
    })
}

/// Slope of the least-squares line through values at 0, 1, 2, …
pub fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let (mid, mean) = ((n - 1.0) / 2.0, mean(values));
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, y) in values.iter().enumerate() {
        let dx = x as f64 - mid;
        xy += dx * (y - mean);
        xx += dx * dx;
    }
    xy / xx
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_tables() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), 5.0);
        assert!((variance(&values) - 32.0 / 7.0).abs() < 1e-12);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!((t_quantile(0.95, 4.0) - 2.7764).abs() < 1e-3);
        assert!((t_p_value(2.7764, 4.0) - 0.05).abs() < 1e-4);
        assert!((chi_square_quantile(0.2, 4.0) - 1.6488).abs() < 1e-3);
        assert_eq!(slope(&[1.0, 3.0, 5.0]), 2.0);
        assert_eq!(quantile_of_bins(&[(1.0, 50), (2.0, 49), (9.0, 1)], 0.99), Some(2.0));
        assert_eq!(quantile_of_bins(&[], 0.5), None);
        assert_eq!(half_width(&[1.0]), None);
    }
}
