//! Charts, drawn by plotters as SVG, in colours that are told apart on light and on dark paper. Text and
//! axes are left black here; the page's style sheet turns them into its own ink.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::prelude::*;

const WIDTH: u32 = 600;
/// A palette for colour-blind readers (after Okabe and Ito), without its lightest and darkest colours.
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
    // A single mark is no curve: the tables have the number.
    anyhow::ensure!(curves.iter().any(|(_, points)| points.len() > 1), "a chart of nothing");
    let all = || curves.iter().flat_map(|(_, points)| points.iter());
    let range = |values: &mut dyn Iterator<Item = f64>, log: bool| {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        match log {
            // Never so narrow that no number stands beside it.
            true => (low / 1.4, high.max(low * 2.5) * 1.4),
            false => (0.0, if high > 0.0 { high * 1.08 } else { 1.0 }),
        }
    };
    let (x0, x1) = range(&mut all().map(|p| p.0), axes.log_x);
    let (y0, y1) = range(&mut all().map(|p| p.1), axes.log_y);
    // Depths and numbers of clients are a few values, and those are what stands below.
    let mut places: Vec<f64> = all().map(|p| p.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let names: Vec<String> = curves.iter().map(|(name, _)| name.clone()).collect();
    let legend = Legend::new(if names.len() > 1 { &names } else { &[] });
    let mut svg = String::new();
    {
        let whole = SVGBackend::with_string(&mut svg, (WIDTH, 300 + legend.height)).into_drawing_area();
        let (above, root) = whole.split_vertically(legend.height);
        legend.draw(&above).map_err(failed)?;
        let drawn = match (axes.log_x, axes.log_y) {
            (false, false) => draw(&root, axes, &curves, x0..x1, y0..y1),
            (true, false) => draw(&root, axes, &curves, logarithmic(x0, x1, &places), y0..y1),
            (false, true) => draw(&root, axes, &curves, x0..x1, logarithmic(y0, y1, &[])),
            (true, true) => {
                draw(&root, axes, &curves, logarithmic(x0, x1, &places), logarithmic(y0, y1, &[]))
            }
        };
        drawn.and_then(|()| root.present()).map_err(failed)?;
    }
    Ok(svg)
}

/// An axis on which each decade is as wide, with numbers at these places when they are few; else at 1, 2 and 5 of each
/// decade, or at 1 alone where those are many.
fn logarithmic(low: f64, high: f64, places: &[f64]) -> WithKeyPoints<LogCoord<f64>> {
    if (2..=9).contains(&places.len()) && places.windows(2).all(|w| w[1] > 1.3 * w[0]) {
        return (low..high).log_scale().with_key_points(places.to_vec());
    }
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let steps: &[f64] = if high / low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let marks = decades.flat_map(|decade| steps.iter().map(move |s| s * 10f64.powi(decade)));
    let marks: Vec<f64> = marks.filter(|m| (low..=high).contains(m)).collect();
    (low..high).log_scale().with_key_points(marks)
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
    for (n, (_, points)) in curves.iter().enumerate() {
        let colour = colour(n);
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        if points.len() <= 24 {
            chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
        }
    }
    Ok(())
}

/// Names with their colours, above the chart, where they cover nothing: left to right, in as many lines as they need.
struct Legend<'a> {
    places: Vec<(&'a str, i32, i32)>,
    height: u32,
}

impl<'a> Legend<'a> {
    fn new(names: &'a [String]) -> Legend<'a> {
        let (mut x, mut y) = (10, 6);
        let mut places = Vec::new();
        for name in names {
            let wide = 36 + width(name, FONT.1);
            if x > 10 && x + wide > WIDTH as i32 {
                (x, y) = (10, y + 20);
            }
            places.push((name.as_str(), x, y));
            x += wide;
        }
        Legend { places, height: if names.is_empty() { 0 } else { y as u32 + 20 } }
    }

    fn draw<'b>(&self, area: &DrawingArea<SVGBackend<'b>, Shift>) -> Result<(), Failed<'b>> {
        for (n, (name, x, y)) in self.places.iter().enumerate() {
            area.draw(&Rectangle::new([(*x, y + 2), (x + 12, y + 14)], colour(n).mix(0.9).filled()))?;
            area.draw(&Text::new((*name).to_owned(), (x + 18, y + 2), FONT.into_font().color(&BLACK)))?;
        }
        Ok(())
    }
}

/// Pixels that a text takes, on the wide side: there is no font at hand to ask.
fn width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.56).ceil() as i32
}

/// One bar: its name, its pieces in order by the index of their name, and half of its interval.
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
    let widest = bars.iter().map(|b| width(&b.label, 11)).max().unwrap_or(0) + 14;
    let n = bars.len();
    let legend = Legend::new(if names.len() > 1 { names } else { &[] });
    let mut svg = String::new();
    {
        let height = 60 + 22 * n as u32 + legend.height;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let (above, below) = root.split_vertically(legend.height);
        let drawn = (|| {
            let mut chart = ChartBuilder::on(&below)
                .margin(8)
                .x_label_area_size(40)
                .y_label_area_size(widest.min(WIDTH as i32 * 3 / 5))
                .build_cartesian_2d(0.0..limit, -0.5..(n as f64 - 0.5))?;
            // The first stands at the top.
            let place = |n_: usize| (n - 1 - n_) as f64;
            chart
                .configure_mesh()
                .x_desc(x)
                .set_tick_mark_size(LabelAreaPosition::Left, 0)
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
            legend.draw(&above)?;
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
    fn charts_are_well_formed_svg() {
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
