//! The output about cases that ran in processes of their own.

use std::collections::BTreeMap;

/// Puts lines of cases that end in any order into the order of the list of cases.
#[derive(Debug, Default)]
pub struct OrderedLines {
    printed: usize,
    waiting: BTreeMap<usize, String>,
}

impl OrderedLines {
    /// Takes the line of case `index` and returns the lines that can be printed now.
    pub fn add(&mut self, index: usize, line: String) -> Vec<String> {
        self.waiting.insert(index, line);
        let mut ready = Vec::new();
        while let Some(line) = self.waiting.remove(&(self.printed + ready.len())) {
            ready.push(line);
        }
        self.printed += ready.len();
        ready
    }
}

/// Why a process failed, from its standard error: its panic, or its last error, or its last line.
pub fn failure_reason(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    if let (Some(location), Some(message)) = (lines.next(), lines.next()) {
        return format!("{location} {message}");
    }
    let is_error = |line: &&str| line.contains("Error: ") || line.contains("error:");
    let line = stderr.lines().rev().find(is_error).or(stderr.lines().last());
    line.unwrap_or("no output").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_in_the_order_of_the_list() {
        let mut lines = OrderedLines::default();
        let mut add = |index: usize| lines.add(index, index.to_string()).join(" ");
        assert_eq!([2, 0, 3, 1, 4].map(&mut add), ["", "0", "", "1 2 3", "4"]);
    }

    #[test]
    fn the_reason_is_the_panic_or_the_error_or_the_last_line() {
        let panic = "[info] x\nthread 'main' panicked at a.rs:3:4:\nno tile\nnote: backtrace";
        assert_eq!(failure_reason(panic), "thread 'main' panicked at a.rs:3:4: no tile");
        assert_eq!(
            failure_reason("begin\nkernel.cpp:1: error: no name\nend"),
            "kernel.cpp:1: error: no name"
        );
        assert_eq!(failure_reason("one\ntwo"), "two");
        assert_eq!(failure_reason(""), "no output");
    }
}
