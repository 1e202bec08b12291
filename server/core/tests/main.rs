//! The rules of the lock table, shown five ways.
//!
//! | file | shows |
//! | --- | --- |
//! | `scenarios` | one rule, one text file: commands in, exact outcomes and events out |
//! | `model` | random histories do what a second, naive table does |
//! | `pages` | lists and standings say what looking at everything says |
//! | `replay` | the same log gives the same state, also through a snapshot at any index |
//! | `restored` | a state that was brought back issues no token twice, and holds nothing |
//! | `cost` | the work of a command does not grow with the table |
//!
//! They share the words of the scenarios: `line` reads commands, `print` writes them, `show`
//! writes what came out. So a failure anywhere can be pasted as a scenario.

mod cost;
mod draw;
mod line;
mod model;
mod naive;
mod pages;
mod print;
mod replay;
mod restored;
mod scenarios;
mod show;
