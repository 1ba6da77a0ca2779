//! Selection of the cases to run.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::cases::Case;

/// The flags of the command line that select cases. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct CaseFilter {
    /// Only cases with this in their name.
    pub case: Option<String>,
    /// Only cases for a slow simulator.
    pub quick: bool,
    /// Only the last case of each operation, which is its largest.
    pub brief: bool,
    /// Only cases with an expected cost, which is then compared with the measured one.
    pub cost: bool,
}

/// The selected cases.
pub struct Selection {
    /// The cases to run, at least one.
    pub cases: Vec<Case>,
    /// Names of the cases that are left out because they have no expected cost.
    pub without_cost: Vec<String>,
}

impl CaseFilter {
    /// Selects from `all` cases.
    ///
    /// # Errors
    /// When no case is selected; the message lists the operations.
    pub fn select(&self, all: Vec<Case>) -> Result<Selection> {
        let name = self.case.as_deref().unwrap_or_default();
        let operations: BTreeSet<String> =
            all.iter().map(|case| operation(case).to_owned()).collect();
        let mut cases: Vec<Case> = all.into_iter().filter(|c| c.name.contains(name)).collect();
        if cases.is_empty() {
            let operations: Vec<String> = operations.into_iter().collect();
            bail!("no case has {name:?} in its name; there are {}", operations.join(", "));
        }
        cases.retain(|case| !self.quick || case.quick);
        let without_cost = cases.extract_if(.., |case| self.cost && !case.has_cost);
        let without_cost = without_cost.map(|case| case.name).collect();
        if self.brief {
            let mut seen = BTreeSet::new();
            cases.reverse();
            cases.retain(|case| seen.insert(operation(case).to_owned()));
            cases.reverse();
        }
        if cases.is_empty() {
            bail!("no case with {name:?} in its name is for --quick or --cost: leave these out");
        }
        Ok(Selection { cases, without_cost })
    }
}

/// The operation of a case.
fn operation(case: &Case) -> &str {
    case.name.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::all;

    fn names(filter: &CaseFilter) -> Vec<String> {
        filter.select(all()).unwrap().cases.into_iter().map(|case| case.name).collect()
    }

    fn refusal(filter: &CaseFilter) -> String {
        filter.select(all()).err().expect("there is no such case").to_string()
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_operations() {
        let case = Some("rms_nrom".to_owned());
        let error = refusal(&CaseFilter { case, ..CaseFilter::default() });
        assert!(error.contains("\"rms_nrom\"") && error.contains(" rms_norm, "), "{error}");
        let case = Some("layers_bf16".to_owned());
        let error = refusal(&CaseFilter { case, quick: true, ..CaseFilter::default() });
        assert!(error.contains("--quick"), "{error}");
    }

    #[test]
    fn brief_selects_one_case_of_each_operation() {
        let (all, brief) =
            (names(&CaseFilter::default()), CaseFilter { brief: true, ..CaseFilter::default() });
        let brief = names(&brief);
        let operations = |names: &[String]| -> BTreeSet<String> {
            names.iter().map(|name| name.split('/').next().unwrap().to_owned()).collect()
        };
        assert_eq!(operations(&brief), operations(&all));
        assert_eq!(brief.len(), operations(&all).len());
        assert!(brief.contains(&"matmul_bfp4_b/19968/32x64/grid".to_owned()), "{brief:?}");
    }

    #[test]
    fn cases_without_expected_cost_are_left_out_and_named() {
        let selection = CaseFilter { cost: true, ..CaseFilter::default() }.select(all()).unwrap();
        assert!(selection.cases.iter().all(|case| case.has_cost));
        assert_eq!(selection.cases.len() + selection.without_cost.len(), all().len());
        assert!(selection.without_cost.iter().any(|name| name.starts_with("layers_bf16/")));
    }
}
