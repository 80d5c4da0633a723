//! A table of text: two spaces between columns, headings to the left, every cell padded.

use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Column {
    heading: Cow<'static, str>,
    align: Align,
    width: usize,
}

impl Table {
    /// Columns by heading: the first is what a row is about and aligned left, the others right, as most tables are.
    pub fn with_headings(headings: &[&'static str]) -> Table {
        let mut table = Table::default();
        for (i, heading) in headings.iter().enumerate() {
            table.column(*heading, if i == 0 { Align::Left } else { Align::Right });
        }
        table
    }

    pub fn column(&mut self, heading: impl Into<Cow<'static, str>>, align: Align) -> &mut Table {
        let heading = heading.into();
        let width = heading.chars().count();
        self.columns.push(Column { heading, align, width });
        self
    }

    /// A row may be shorter than the table: what is missing is not padded.
    ///
    /// # Panics
    /// When it is longer.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) -> &mut Table {
        let cells: Vec<String> = cells.into_iter().collect();
        assert!(cells.len() <= self.columns.len(), "a row has no more cells than the table columns");
        for (cell, column) in cells.iter().zip(&mut self.columns) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, column) in self.columns.iter().enumerate() {
            let gap = if i > 0 { "  " } else { "" };
            write!(f, "{gap}{:<width$}", column.heading, width = column.width)?;
        }
        writeln!(f)?;
        for row in &self.rows {
            for (i, (cell, column)) in row.iter().zip(&self.columns).enumerate() {
                let gap = if i > 0 { "  " } else { "" };
                let width = column.width;
                match column.align {
                    Align::Left => write!(f, "{gap}{cell:<width$}")?,
                    Align::Right => write!(f, "{gap}{cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_padded_to_the_widest_of_their_column() {
        let mut t = Table::with_headings(&["ID", "SIZE"]);
        t.row(["a".into(), "1".into()]).row(["long name".into(), "12345".into()]).row(["x".into()]);
        let want = "ID         SIZE \na              1\nlong name  12345\nx        \n";
        assert_eq!(t.to_string(), want);
    }
}
