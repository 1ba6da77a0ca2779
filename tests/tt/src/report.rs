//! What is said of cases that ran in processes of their own.

use std::collections::BTreeMap;

/// Lines of cases that end in any order, to be said in the order of their list.
#[derive(Debug, Default)]
pub struct Lines {
    said: usize,
    waiting: BTreeMap<usize, String>,
}

impl Lines {
    /// Takes the line of case `at`; the lines that can be said now.
    pub fn add(&mut self, at: usize, line: String) -> Vec<String> {
        self.waiting.insert(at, line);
        let mut now = Vec::new();
        while let Some(line) = self.waiting.remove(&(self.said + now.len())) {
            now.push(line);
        }
        self.said += now.len();
        now
    }
}

/// What went wrong, from what a process wrote to its standard error.
pub fn fault(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
    if let (Some(slice), Some(message)) = (lines.next(), lines.next()) {
        return format!("{slice} {message}");
    }
    let named = |line: &&str| line.contains("Error: ") || line.contains("error:");
    let line = said.lines().rev().find(named).or(said.lines().last());
    line.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_said_in_the_order_of_the_list() {
        let mut lines = Lines::default();
        let mut add = |at: usize| lines.add(at, at.to_string()).join(" ");
        assert_eq!([2, 0, 3, 1, 4].map(&mut add), ["", "0", "", "1 2 3", "4"]);
    }

    #[test]
    fn a_panic_is_told_by_its_place_and_message_and_an_error_by_its_line() {
        let panic = "[info] x\nthread 'main' panicked at a.rs:3:4:\nno tile\nnote: backtrace";
        assert_eq!(fault(panic), "thread 'main' panicked at a.rs:3:4: no tile");
        assert_eq!(
            fault("begin\nkernel.cpp:1: error: no name\nend"),
            "kernel.cpp:1: error: no name"
        );
        assert_eq!((fault("one\ntwo"), fault("")), ("two".into(), "it said nothing".into()));
    }
}
