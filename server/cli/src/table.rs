//! Tables for people: aligned columns, one row a line.

use crate::output::shown;
use std::fmt;

/// Rows under a head.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Cells that have no head are left out.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let columns = self.rows.first().map_or(0, Vec::len);
        self.rows.push(cells.iter().take(columns).map(|cell| shown(cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            for (column, cell) in row.iter().enumerate() {
                // The last column is not padded: it would wrap narrow terminals with blanks.
                let width = if column + 1 == row.len() { 0 } else { widths[column] };
                let gap = if column == 0 { "" } else { "  " };
                write!(f, "{gap}{cell:width$}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["RESOURCE", "TOKEN"]);
        assert!(table.is_empty());
        table.row(["a".to_owned(), "7".to_owned()]);
        table.row(["größer/als".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "RESOURCE    TOKEN\na           7\ngrößer/als  -");
    }
}
