//! How is a chart drawn? By plotters, as SVG, in colours that are told apart on light and on dark paper. Text and
//! axes are left black here; the page's style sheet turns them into its own ink.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

const WIDTH: u32 = 720;
/// Told apart by people who do not see all colours (after Okabe and Ito), none too light or too dark.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 160, 213),
    RGBColor(190, 140, 0),
    RGBColor(120, 120, 120),
    RGBColor(150, 80, 200),
];
const GRID: RGBColor = RGBColor(136, 136, 136);
const FONT: (&str, i32) = ("sans-serif", 13);

pub fn colour(n: usize) -> RGBColor {
    COLOURS[n % COLOURS.len()]
}

/// One curve: its name and its points.
pub type Curve = (String, Vec<(f64, f64)>);

pub struct Axes<'a> {
    pub x: &'a str,
    pub y: &'a str,
    pub log_x: bool,
    pub log_y: bool,
}

type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn failed(error: Failed<'_>) -> anyhow::Error {
    anyhow!("drawing a chart: {error}")
}

/// Curves with their points marked.
pub fn lines(axes: &Axes<'_>, curves: &[Curve]) -> anyhow::Result<String> {
    let curves: Vec<Curve> = curves
        .iter()
        .map(|(name, points)| {
            let fits = |(x, y): &&(f64, f64)| {
                x.is_finite() && y.is_finite() && (!axes.log_x || *x > 0.0) && (!axes.log_y || *y > 0.0)
            };
            (name.clone(), points.iter().filter(fits).copied().collect())
        })
        .filter(|(_, points): &Curve| !points.is_empty())
        .collect();
    anyhow::ensure!(!curves.is_empty(), "a chart of nothing");
    let all = || curves.iter().flat_map(|(_, points)| points.iter());
    let range = |values: &mut dyn Iterator<Item = f64>, log: bool| {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        match log {
            true => (low / 1.3, high.max(low) * 1.3),
            false => (0.0, if high > 0.0 { high * 1.08 } else { 1.0 }),
        }
    };
    let (x0, x1) = range(&mut all().map(|p| p.0), axes.log_x);
    let (y0, y1) = range(&mut all().map(|p| p.1), axes.log_y);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 330)).into_drawing_area();
        let drawn = match (axes.log_x, axes.log_y) {
            (false, false) => draw(&root, axes, &curves, x0..x1, y0..y1),
            (true, false) => draw(&root, axes, &curves, (x0..x1).log_scale(), y0..y1),
            (false, true) => draw(&root, axes, &curves, x0..x1, (y0..y1).log_scale()),
            (true, true) => draw(&root, axes, &curves, (x0..x1).log_scale(), (y0..y1).log_scale()),
        };
        drawn.and_then(|()| root.present()).map_err(failed)?;
    }
    Ok(svg)
}

fn draw<'a, X, Y>(
    root: &DrawingArea<SVGBackend<'a>, Shift>,
    axes: &Axes<'_>,
    curves: &[Curve],
    x: X,
    y: Y,
) -> Result<(), Failed<'a>>
where
    X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    X::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .bold_line_style(GRID.mix(0.35))
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_label_formatter(&|v| short(*v))
        .y_label_formatter(&|v| short(*v))
        .draw()?;
    for (n, (name, points)) in curves.iter().enumerate() {
        let colour = colour(n);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(3)));
        if points.len() <= 40 {
            chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
        }
    }
    if curves.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(FONT)
            .background_style(RGBColor(136, 136, 136).mix(0.12))
            .draw()?;
    }
    Ok(())
}

/// One bar: what it is, and its pieces one after the other, by the index of their name; then half an interval.
pub struct Bar {
    pub label: String,
    pub pieces: Vec<(usize, f64)>,
    pub error: f64,
}

/// Bars that lie, each with its label to its left; pieces of one bar are stacked.
pub fn bars(x: &str, names: &[String], bars: &[Bar]) -> anyhow::Result<String> {
    anyhow::ensure!(!bars.is_empty(), "a chart of nothing");
    let length = |bar: &Bar| bar.pieces.iter().map(|p| p.1).sum::<f64>();
    let longest = bars.iter().map(|b| length(b) + b.error).fold(0.0, f64::max);
    let limit = if longest > 0.0 { longest * 1.08 } else { 1.0 };
    let widest = bars.iter().map(|b| b.label.chars().count()).max().unwrap_or(0) as u32;
    let n = bars.len();
    let legend = if names.len() > 1 { 22 * names.len().div_ceil(5) as u32 } else { 0 };
    let mut svg = String::new();
    {
        let height = 60 + 22 * n as u32 + legend;
        let root = SVGBackend::with_string(&mut svg, (WIDTH + 60, height)).into_drawing_area();
        let (above, below) = root.split_vertically(legend);
        let drawn = (|| {
            let mut chart = ChartBuilder::on(&below)
                .margin(8)
                .x_label_area_size(40)
                .y_label_area_size((widest * 6 + 14).min(WIDTH * 3 / 5))
                .build_cartesian_2d(0.0..limit, -0.5..(n as f64 - 0.5))?;
            // The first stands at the top.
            let place = |n_: usize| (n - 1 - n_) as f64;
            chart
                .configure_mesh()
                .x_desc(x)
                .y_labels(2 * n + 1)
                .disable_y_mesh()
                .bold_line_style(GRID.mix(0.35))
                .light_line_style(TRANSPARENT)
                .label_style(("sans-serif", 11))
                .axis_desc_style(FONT)
                .x_label_formatter(&|v| short(*v))
                .y_label_formatter(&|_| String::new())
                .draw()?;
            for (row, bar) in bars.iter().enumerate() {
                let (y, mut at) = (place(row), 0.0);
                for (name, value) in &bar.pieces {
                    let corners = [(at, y - 0.36), (at + value, y + 0.36)];
                    chart.draw_series([Rectangle::new(corners, colour(*name).mix(0.85).filled())])?;
                    at += value;
                }
                if bar.error > 0.0 {
                    let ends = [((at - bar.error).max(0.0), y), (at + bar.error, y)];
                    chart.draw_series([PathElement::new(ends, BLACK.stroke_width(2))])?;
                }
            }
            let left = chart.plotting_area().get_base_pixel();
            let _ = left;
            for (row, bar) in bars.iter().enumerate() {
                let (_, y) = chart.backend_coord(&(0.0, place(row)));
                let style = ("sans-serif", 11).into_font().color(&BLACK);
                let (x0, _) = chart.backend_coord(&(0.0, 0.0));
                let style = style.pos(plotters::style::text_anchor::Pos::new(
                    plotters::style::text_anchor::HPos::Right,
                    plotters::style::text_anchor::VPos::Center,
                ));
                root.draw(&Text::new(bar.label.clone(), (x0 - 8, y), style))?;
            }
            for (n, name) in names.iter().enumerate().filter(|_| legend > 0) {
                let (x, y) = (10 + (n % 5) as i32 * 150, 4 + (n / 5) as i32 * 22);
                above.draw(&Rectangle::new([(x, y + 2), (x + 12, y + 14)], colour(n).mix(0.85).filled()))?;
                above.draw(&Text::new(name.clone(), (x + 18, y + 2), FONT.into_font().color(&BLACK)))?;
            }
            root.present()
        })();
        drawn.map_err(failed)?;
    }
    Ok(svg)
}

/// A number that fits an axis: 1.5k, 20M.
pub fn short(value: f64) -> String {
    let (divisor, unit) = match value.abs() {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / divisor;
    let digits = if scaled.abs() >= 100.0 || scaled.fract().abs() < 1e-9 { 0 } else { 2 };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_whole_svg() {
        let axes = Axes { x: "op/s", y: "µs", log_x: true, log_y: true };
        let svg = lines(
            &axes,
            &[("a <b>".into(), vec![(1.0, 2.0), (10.0, 3.0), (0.0, 1.0)]), ("none".into(), vec![])],
        );
        let svg = svg.unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("a <b>"), "names are escaped");
        let bar = Bar { label: "one".into(), pieces: vec![(0, 2.0), (1, 3.0)], error: 0.5 };
        let svg = bars("µs", &["x".into(), "y".into()], &[bar]).unwrap();
        assert!(svg.contains("one") && svg.contains("<rect"));
        assert!(lines(&axes, &[]).is_err() && bars("", &[], &[]).is_err());
        assert_eq!([short(0.5), short(1500.0), short(15_500.0), short(2e6)], ["0.5", "1500", "15.5k", "2M"]);
    }
}
